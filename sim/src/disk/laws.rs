//! The laws of durability, names and incarnations, each shown on the smallest disk that needs it.

use std::{io, sync::Arc};

use ron_core::seam::{Disk, DiskFile, Open};

use super::{DiskFaults, Image, SimDisk, enter_offload};

const SEEDS: u64 = 200;

fn put(disk: &Arc<dyn Disk>, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(path, Open::Create).unwrap();
    file.write_at(0, bytes).unwrap();
    file
}

fn put_durably(disk: &Arc<dyn Disk>, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = put(disk, path, bytes);
    file.sync().unwrap();
    disk.sync_dir(super::names::parent(path)).unwrap();
    file
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

fn losing() -> DiskFaults {
    DiskFaults {
        lose_unsynced: true,
        ..DiskFaults::default()
    }
}

/// What a scenario leaves after a loss of power, over many seeds, each outcome once.
fn outcomes<T: Ord>(
    faults: DiskFaults,
    scenario: impl Fn(&SimDisk, &Arc<dyn Disk>),
    look: impl Fn(&SimDisk) -> T,
) -> std::collections::BTreeSet<T> {
    let _offload = enter_offload();
    (0..SEEDS)
        .map(|seed| {
            let sim = SimDisk::new(seed);
            sim.set_faults(faults.clone());
            scenario(&sim, &sim.mount());
            sim.power_off();
            look(&sim)
        })
        .collect()
}

// -------------------------------------------------------------------------------------- contents

#[test]
fn file_reads_back_what_was_written_at_every_position() {
    let _offload = enter_offload();
    let disk = SimDisk::new(1).mount();
    let file = disk.open("f", Open::CreateNew).unwrap();
    assert!(file.is_empty().unwrap());
    assert_eq!(file.append(b"hello").unwrap(), 0);
    assert_eq!(file.append(b" world").unwrap(), 5);
    file.write_at(4, b"0").unwrap();
    assert_eq!(file.len().unwrap(), 11);
    let mut buf = [0; 20];
    assert_eq!(file.read_at(0, &mut buf).unwrap(), 11);
    assert_eq!(&buf[..11], b"hell0 world");
    assert_eq!(file.read_at(9, &mut buf).unwrap(), 2);
    assert_eq!(&buf[..2], b"ld");
    assert_eq!(file.read_at(11, &mut buf).unwrap(), 0);
    file.set_len(2).unwrap();
    file.set_len(4).unwrap();
    assert_eq!(file.read_at(0, &mut buf).unwrap(), 4);
    assert_eq!(&buf[..4], b"he\0\0");
    assert_eq!(
        kind(file.write_at(i64::MAX as u64, b"x")),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(file.write_at(u64::MAX, b"x")),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(kind(file.set_len(u64::MAX)), io::ErrorKind::InvalidInput);
    assert_eq!(file.len().unwrap(), 4);
}

#[test]
fn process_death_keeps_everything_that_was_written() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    put_durably(&disk, "a", b"synced");
    put(&disk, "a", b"not").set_len(4).unwrap();
    put(&disk, "b", b"never synced");
    sim.kill();
    assert_eq!(sim.read_file("a").unwrap(), b"notc");
    assert_eq!(sim.read_file("b").unwrap(), b"never synced");
    assert_eq!(sim.read_durable("a").unwrap(), b"synced");
    assert_eq!(sim.read_durable("b"), None);
    sim.power_off();
    assert_eq!(sim.read_file("a").unwrap(), b"synced");
    assert_eq!(sim.list_files(), ["a"]);
}

#[test]
fn power_loss_without_luck_leaves_exactly_what_was_synced() {
    let left = outcomes(
        DiskFaults::default(),
        |_, disk| {
            let file = put_durably(disk, "f", b"synced");
            file.append(b" and more").unwrap();
            file.write_at(0, b"S").unwrap();
            put(disk, "new", b"x").sync().unwrap();
            disk.rename("f", "g").unwrap();
        },
        |sim| (sim.list_files(), sim.read_file("f"), sim.read_durable("f")),
    );
    let synced = Some(b"synced".to_vec());
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        [(vec!["f".to_owned()], synced.clone(), synced)]
    );
}

#[test]
fn each_unsynced_write_survives_or_vanishes_on_its_own() {
    let left = outcomes(
        losing(),
        |_, disk| {
            let file = put_durably(disk, "f", b"....");
            file.write_at(0, b"a").unwrap();
            file.write_at(1, b"b").unwrap();
            file.write_at(2, b"c").unwrap();
        },
        |sim| String::from_utf8(sim.read_file("f").unwrap()).unwrap(),
    );
    let all = [
        "....", "..c.", ".b..", ".bc.", "a...", "a.c.", "ab..", "abc.",
    ];
    assert_eq!(left.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn of_two_writes_to_one_place_the_later_is_on_top() {
    let left = outcomes(
        losing(),
        |_, disk| {
            let file = put_durably(disk, "f", b"0");
            file.write_at(0, b"1").unwrap();
            file.write_at(0, b"2").unwrap();
            // Both survive exactly if both of these do.
            file.append(b"x").unwrap();
        },
        |sim| sim.read_file("f").unwrap()[0],
    );
    assert_eq!(left.into_iter().collect::<Vec<_>>(), *b"012");
    let both = DiskFaults {
        lose_unsynced: true,
        ..DiskFaults::default()
    };
    let twos = outcomes(
        both,
        |_, disk| {
            let file = put_durably(disk, "f", b"0");
            file.write_at(0, b"11").unwrap();
            file.write_at(0, b"2").unwrap();
        },
        |sim| sim.read_file("f").unwrap(),
    );
    let expected: [&[u8]; 4] = [b"0", b"11", b"2", b"21"];
    assert_eq!(twos.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn unsynced_change_of_length_survives_or_vanishes() {
    let left = outcomes(
        losing(),
        |_, disk| {
            let file = put_durably(disk, "f", b"123456");
            file.set_len(2).unwrap();
            file.set_len(4).unwrap();
        },
        |sim| sim.read_file("f").unwrap(),
    );
    let expected: [&[u8]; 4] = [b"12", b"12\0\0", b"1234", b"123456"];
    assert_eq!(left.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn torn_write_ends_at_a_sector_of_the_file() {
    let faults = DiskFaults {
        torn: true,
        ..DiskFaults::default()
    };
    let left = outcomes(
        faults,
        |_, disk| {
            let file = put_durably(disk, "f", &[b'.'; 2000]);
            file.write_at(500, &[b'x'; 1100]).unwrap();
        },
        |sim| {
            let bytes = sim.read_file("f").unwrap();
            let count = bytes.iter().filter(|byte| **byte == b'x').count();
            let torn = [&[b'.'; 500][..], &vec![b'x'; count]].concat();
            assert_eq!((bytes.len(), &bytes[..torn.len()]), (2000, &torn[..]));
            500 + count
        },
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        [500, 512, 1024, 1536],
        "never whole, never across a border"
    );
}

#[test]
fn torn_write_on_sector_borders_is_never_whole() {
    let faults = DiskFaults {
        torn: true,
        ..DiskFaults::default()
    };
    let left = outcomes(
        faults,
        |_, disk| {
            let file = put_durably(disk, "f", &[b'.'; 2048]);
            file.write_at(512, &[b'x'; 1024]).unwrap();
        },
        |sim| {
            let bytes = sim.read_file("f").unwrap();
            bytes.iter().filter(|byte| **byte == b'x').count()
        },
    );
    assert_eq!(left.into_iter().collect::<Vec<_>>(), [0, 512]);
}

#[test]
fn sub_sector_tearing_cuts_at_any_byte() {
    let faults = DiskFaults {
        torn: true,
        torn_bytes: true,
        ..DiskFaults::default()
    };
    let left = outcomes(
        faults,
        |_, disk| {
            put_durably(disk, "f", b"....")
                .write_at(0, b"abcd")
                .unwrap();
        },
        |sim| String::from_utf8(sim.read_file("f").unwrap()).unwrap(),
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        ["....", "a...", "ab..", "abc."]
    );
}

#[test]
fn torn_append_may_leave_its_length_without_its_bytes() {
    let faults = DiskFaults {
        torn: true,
        ..DiskFaults::default()
    };
    let left = outcomes(
        faults,
        |_, disk| {
            put_durably(disk, "f", b"ab").append(b"cd").unwrap();
        },
        |sim| sim.read_file("f").unwrap(),
    );
    let expected: [&[u8]; 2] = [b"ab", b"ab\0\0"];
    assert_eq!(left.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn synced_write_survives_whatever_the_options() {
    for (torn, torn_bytes) in [(false, false), (true, false), (true, true)] {
        let faults = DiskFaults {
            torn,
            torn_bytes,
            ..losing()
        };
        let left = outcomes(
            faults,
            |_, disk| {
                let file = put_durably(disk, "f", &[1; 5000]);
                file.set_len(4000).unwrap();
                file.write_at(100, &[2; 1000]).unwrap();
                file.append(&[3; 700]).unwrap();
                file.sync().unwrap();
            },
            |sim| sim.read_file("f").unwrap(),
        );
        let mut expected = vec![1; 4000];
        expected[100..1100].fill(2);
        expected.extend([3; 700]);
        assert_eq!(left.into_iter().collect::<Vec<_>>(), [expected]);
    }
}

// ----------------------------------------------------------------------------------------- names

#[test]
fn paths_are_relative_and_without_empty_or_dotted_segments() {
    let _offload = enter_offload();
    let disk = SimDisk::new(1).mount();
    disk.create_dir("d").unwrap();
    let invalid = io::ErrorKind::InvalidInput;
    for path in [
        "/f", "f/", "d//f", ".", "..", "../f", "d/../f", "d/./f", "/", "f\0",
    ] {
        assert_eq!(kind(disk.open(path, Open::Create)), invalid, "{path}");
        assert_eq!(kind(disk.create_dir(path)), invalid, "{path}");
        assert_eq!(kind(disk.rename(path, "x")), invalid, "{path}");
        assert_eq!(kind(disk.rename("x", path)), invalid, "{path}");
        assert_eq!(kind(disk.remove(path)), invalid, "{path}");
        assert_eq!(kind(disk.list(path)), invalid, "{path}");
        assert_eq!(kind(disk.sync_dir(path)), invalid, "{path}");
        assert_eq!(kind(disk.identity(path)), invalid, "{path}");
        assert_eq!(kind(disk.lock(path)), invalid, "{path}");
    }
    assert_eq!(kind(disk.open("", Open::Create)), invalid);
    for path in ["f", "d/f", "..f", "d/f.tmp", "d/ö"] {
        disk.open(path, Open::CreateNew).unwrap();
    }
    // The root has the empty path.
    disk.create_dir("").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(disk.list("").unwrap(), ["..f", "d/", "f"]);
    assert!(disk.identity("").unwrap().is_some());
}

#[test]
fn open_obeys_what_it_was_asked_about_existence() {
    let _offload = enter_offload();
    let disk = SimDisk::new(1).mount();
    assert_eq!(
        kind(disk.open("f", Open::Existing)),
        io::ErrorKind::NotFound
    );
    disk.open("f", Open::CreateNew).unwrap();
    put(&disk, "f", b"kept");
    assert_eq!(disk.open("f", Open::Existing).unwrap().len().unwrap(), 4);
    assert_eq!(disk.open("f", Open::Create).unwrap().len().unwrap(), 4);
    disk.create_dir("d").unwrap();
    for path in ["f", "d"] {
        assert_eq!(
            kind(disk.open(path, Open::CreateNew)),
            io::ErrorKind::AlreadyExists
        );
    }
    let cases = [
        ("d", io::ErrorKind::IsADirectory),
        ("no/f", io::ErrorKind::NotFound),
        ("f/f", io::ErrorKind::NotADirectory),
    ];
    for (path, expected) in cases {
        assert_eq!(kind(disk.open(path, Open::Create)), expected, "{path}");
        assert_eq!(kind(disk.remove(path)), expected, "{path}");
        assert_eq!(kind(disk.rename(path, "x")), expected, "{path}");
        assert_eq!(kind(disk.rename("f", path)), expected, "{path}");
    }
    for (dir, expected) in &cases[1..] {
        assert_eq!(kind(disk.list(dir)), *expected, "{dir}");
        assert_eq!(kind(disk.sync_dir(dir)), *expected, "{dir}");
    }
    assert_eq!(kind(disk.remove("gone")), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.rename("gone", "x")), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.create_dir("f")), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create_dir("f/d")), io::ErrorKind::NotADirectory);
}

#[test]
fn list_is_sorted_and_shows_only_its_own_directory() {
    let _offload = enter_offload();
    let disk = SimDisk::new(1).mount();
    disk.create_dir("b/deep/er").unwrap();
    disk.create_dir("b").unwrap();
    for path in ["c", "b/z", "b/a", "a", "b/deep/x", "b-c"] {
        put(&disk, path, b"");
    }
    assert_eq!(disk.list("").unwrap(), ["a", "b-c", "b/", "c"]);
    assert_eq!(disk.list("b").unwrap(), ["a", "deep/", "z"]);
    assert_eq!(disk.list("b/deep").unwrap(), ["er/", "x"]);
    assert!(disk.list("b/deep/er").unwrap().is_empty());
}

#[test]
fn replaced_file_has_another_identity_and_lives_on_for_who_holds_it() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let old = put(&disk, "f", b"old");
    let new = put(&disk, "f.tmp", b"newer");
    disk.rename("f.tmp", "f").unwrap();
    assert_ne!(old.identity().unwrap(), new.identity().unwrap());
    let named = disk.identity("f").unwrap();
    assert_eq!(named, Some(new.identity().unwrap()));
    assert_eq!(disk.identity("f.tmp").unwrap(), None);
    assert_eq!(old.append(b"er").unwrap(), 3);
    assert_eq!((sim.bytes_used(), sim.list_files().len()), (10, 1));
    disk.rename("f", "f").unwrap();
    assert_eq!(disk.identity("f").unwrap(), named);
    drop(old);
    assert_eq!(sim.bytes_used(), 5);
}

#[test]
fn synced_contents_without_a_synced_name_are_gone() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    disk.create_dir("d").unwrap();
    put(&disk, "d/f", b"x").sync().unwrap();
    disk.sync_dir("d").unwrap();
    assert_eq!(
        sim.read_durable("d/f"),
        None,
        "d itself has no durable name"
    );
    disk.sync_dir("").unwrap();
    assert_eq!(sim.read_durable("d/f").unwrap(), b"x");
    disk.create_dir("e/g").unwrap();
    put(&disk, "e/g/f", b"x").sync().unwrap();
    disk.sync_dir("e/g").unwrap();
    disk.sync_dir("").unwrap();
    sim.power_off();
    assert_eq!(sim.list_files(), ["d/f"]);
    let disk = sim.mount();
    assert_eq!(disk.list("e").unwrap(), [""; 0]);
    disk.create_dir("e/g").unwrap();
    assert_eq!(disk.list("e/g").unwrap(), [""; 0], "nothing comes back");
}

#[test]
fn rename_replaces_in_one_step_even_through_a_power_loss() {
    let left = outcomes(
        losing(),
        |_, disk| {
            put_durably(disk, "f", b"old");
            put(disk, "tmp", b"new").sync().unwrap();
            disk.sync_dir("").unwrap();
            disk.rename("tmp", "f").unwrap();
        },
        |sim| (sim.list_files(), sim.read_file("f").unwrap()),
    );
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        [
            (names(&["f"]), b"new".to_vec()),
            (names(&["f", "tmp"]), b"old".to_vec())
        ]
    );
}

#[test]
fn of_each_directory_a_prefix_of_its_changes_survives() {
    let left = outcomes(
        losing(),
        |_, disk| {
            disk.create_dir("d").unwrap();
            disk.sync_dir("").unwrap();
            put(disk, "a", b"");
            put(disk, "d/x", b"");
            disk.rename("a", "b").unwrap();
            disk.remove("b").unwrap();
        },
        |sim| sim.list_files().join(" "),
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        ["", "a", "a d/x", "b", "b d/x", "d/x"]
    );
}

#[test]
fn rename_between_directories_is_whole_or_nothing() {
    let prepare = |disk: &Arc<dyn Disk>| {
        disk.create_dir("d").unwrap();
        put_durably(disk, "f", b"");
        put(disk, "g", b"");
        disk.rename("g", "f").unwrap();
        put(disk, "d/x", b"");
        disk.rename("f", "d/f").unwrap();
        put(disk, "h", b"");
    };
    let left = outcomes(
        losing(),
        |_, disk| prepare(disk),
        |sim| sim.list_files().join(" "),
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        ["d/f d/x", "d/f d/x h", "d/x f", "d/x f g", "f", "f g"]
    );
    // Syncing one of the two directories carries the other's changes up to the rename.
    let synced = outcomes(
        DiskFaults::default(),
        |_, disk| {
            prepare(disk);
            disk.sync_dir("d").unwrap();
        },
        |sim| sim.list_files().join(" "),
    );
    assert_eq!(synced.into_iter().collect::<Vec<_>>(), ["d/f d/x"]);
}

#[test]
fn unsynced_removal_may_come_back_with_its_contents() {
    let left = outcomes(
        losing(),
        |_, disk| {
            put_durably(disk, "f", b"there");
            disk.remove("f").unwrap();
        },
        |sim| sim.read_file("f"),
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        [None, Some(b"there".to_vec())]
    );
    let synced = outcomes(
        losing(),
        |_, disk| {
            put_durably(disk, "f", b"there");
            disk.remove("f").unwrap();
            disk.sync_dir("").unwrap();
        },
        |sim| sim.read_file("f"),
    );
    assert_eq!(synced.into_iter().collect::<Vec<_>>(), [None]);
}

#[test]
fn file_without_any_way_to_reach_it_is_forgotten() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let file = put_durably(&disk, "f", b"x");
    disk.remove("f").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(sim.lock().files.len(), 1, "held open");
    drop(file);
    assert_eq!(sim.lock().files.len(), 0);
    drop(put_durably(&disk, "g", b"x"));
    disk.remove("g").unwrap();
    assert_eq!(sim.lock().files.len(), 1, "its durable name leads there");
    disk.sync_dir("").unwrap();
    assert_eq!(sim.lock().files.len(), 0);
    let _held = put(&disk, "h", b"x");
    sim.power_off();
    assert_eq!(sim.lock().files.len(), 0);
}

// ---------------------------------------------------------------------------------- incarnations

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
}

#[test]
#[should_panic(expected = "outside of an offload")]
fn operation_outside_of_an_offload_panics() {
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    {
        let _outer = enter_offload();
        drop(enter_offload());
        disk.list("").unwrap();
    }
    let _ = sim.list_files();
    let _ = disk.list("");
}

// --------------------------------------------------------------------------------------- preload

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
