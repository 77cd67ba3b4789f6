//! Processes come and go, the disk stays: stale handles, locks, offloads, and files put there before.

use std::{io, sync::Arc};

use ron_core::seam::{DiskFile, Open};

use super::{kind, put, put_durably};
use crate::disk::{DiskFaults, Image, SimDisk, enter_offload};

#[test]
fn stale_handles_fail_change_nothing_and_are_counted() {
    let _offload = enter_offload();
    let end: [fn(&SimDisk); 3] = [SimDisk::kill, SimDisk::power_off, |sim| drop(sim.mount())];
    for end in end {
        let sim = SimDisk::new(1);
        let disk = sim.mount();
        let file = put_durably(&disk, "f", b"x");
        let ops = sim.ops();
        end(&sim);
        let stale: Vec<io::Result<()>> = vec![
            disk.open("f", Open::Create).map(drop),
            disk.create_dir("d"),
            disk.rename("f", "g"),
            disk.remove("f"),
            disk.list("").map(drop),
            disk.sync_dir(""),
            disk.identity("f").map(drop),
            disk.lock("f").map(drop),
            file.read_at(0, &mut [0]).map(drop),
            file.write_at(0, b"y"),
            file.append(b"y").map(drop),
            file.len().map(drop),
            file.set_len(0),
            file.sync(),
            file.identity().map(drop),
        ];
        let count = stale.len() as u64;
        for result in stale {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other);
            assert_eq!(error.to_string(), "stale incarnation");
        }
        assert_eq!((sim.stale_ops(), sim.ops()), (count, ops));
        assert_eq!(
            (sim.list_files(), sim.read_file("f")),
            (vec!["f".to_owned()], Some(b"x".to_vec()))
        );
    }
}

#[test]
fn write_in_a_drop_after_death_is_stale_and_needs_no_offload() {
    struct WritesOnDrop(Arc<dyn DiskFile>);
    impl Drop for WritesOnDrop {
        fn drop(&mut self) {
            let _ = self.0.write_at(0, b"late");
            let _ = self.0.sync();
        }
    }
    let sim = SimDisk::new(1);
    let offload = enter_offload();
    let database = WritesOnDrop(put_durably(&sim.mount(), "f", b"x"));
    drop(offload);
    sim.kill();
    let _next = sim.mount();
    drop(database);
    assert_eq!(
        (sim.read_file("f").unwrap(), sim.stale_ops()),
        (b"x".to_vec(), 2)
    );
}

#[test]
fn lock_is_exclusive_until_it_drops_or_its_process_dies() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let held = disk.lock("lock").unwrap();
    assert_eq!(sim.list_files(), ["lock"], "created if absent");
    assert_eq!(kind(disk.lock("lock")), io::ErrorKind::WouldBlock);
    disk.lock("other").unwrap();
    drop(held);
    let stale = disk.lock("lock").unwrap();
    let disk = sim.mount();
    let held = disk.lock("lock").unwrap();
    drop(stale);
    assert_eq!(kind(disk.lock("lock")), io::ErrorKind::WouldBlock);
    drop(held);
    disk.lock("lock").unwrap();
    disk.remove("lock").unwrap();
    disk.remove("other").unwrap();
    disk.sync_dir("").unwrap();
    assert!(sim.lock().files.is_empty(), "a refused lock holds nothing");
}

#[test]
fn offload_within_an_offload_does_not_end_it() {
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let outer = enter_offload();
    drop(enter_offload());
    disk.list("").unwrap();
    drop(outer);
    let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disk.list("")));
    assert!(outside.is_err());
    assert_eq!(sim.ops(), 1, "and the disk is usable after the panic");
}

#[test]
#[should_panic(expected = "outside of an offload")]
fn operation_outside_of_an_offload_panics() {
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let _ = sim.list_files();
    let _ = disk.list("");
}

#[test]
fn preloaded_file_is_durable_shared_and_written_apart() {
    let _offload = enter_offload();
    let image = Image::from(&vec![7; 1 << 20][..]);
    let (one, other) = (SimDisk::new(1), SimDisk::new(2));
    for sim in [&one, &other] {
        sim.preload("db/main.redb", &image).unwrap();
        assert!(sim.image("db/main.redb").unwrap().shares_page(&image, 200));
    }
    let disk = one.mount();
    assert_eq!(disk.list("").unwrap(), ["db/"]);
    let file = disk.open("db/main.redb", Open::Existing).unwrap();
    file.write_at(0, b"x").unwrap();
    file.sync().unwrap();
    assert_eq!(one.read_durable("db/main.redb").unwrap()[..2], *b"x\x07");
    assert_eq!(other.read_file("db/main.redb").unwrap()[..2], [7, 7]);
    one.power_off();
    let after = one.image("db/main.redb").unwrap();
    assert_eq!(
        (after.len(), after.shares_page(&image, 200)),
        (1 << 20, true)
    );
    assert!(!after.shares_page(&image, 0));
}

#[test]
fn preload_refuses_a_bad_or_taken_name() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let image = Image::from(&b"x"[..]);
    sim.preload("f", &image).unwrap();
    let disk = sim.mount();
    put(&disk, "new", b"");
    disk.rename("new", "seen").unwrap();
    disk.remove("f").unwrap();
    let taken = io::ErrorKind::AlreadyExists;
    for (path, expected) in [
        ("f", taken),
        ("new", taken),
        ("seen", taken),
        ("seen/x", io::ErrorKind::NotADirectory),
        ("../x", io::ErrorKind::InvalidInput),
    ] {
        assert_eq!(kind(sim.preload(path, &image)), expected, "{path}");
    }
}

#[test]
fn seed_and_operations_decide_everything() {
    let _offload = enter_offload();
    let run = |seed| {
        let sim = SimDisk::new(seed);
        sim.set_faults(DiskFaults {
            eio_write_per_10k: 2_000,
            lose_unsynced: true,
            torn: true,
            torn_bytes: true,
            ..DiskFaults::default()
        });
        let disk = sim.mount();
        let mut told = Vec::new();
        for round in 0..20 {
            let Ok(file) = disk.open(["a", "b", "c"][round % 3], Open::Create) else {
                continue;
            };
            told.push(file.append(&[round as u8; 40]).ok());
        }
        let (rot, time) = (sim.corrupt_random(""), sim.take_accrued());
        sim.power_off();
        let left = ["a", "b", "c"].map(|path| sim.read_file(path));
        (told, rot, time, left)
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
        assert_ne!(run(seed), run(seed + 1));
    }
}
