//! Faults, crashes at an operation, bit rot, and the time operations take.

use std::{collections::BTreeSet, io, time::Duration};

use ron_core::{
    durable,
    seam::{DiskFile, Open},
};

use super::{kind, losing, outcomes, put, put_durably};
use crate::disk::{BitRot, Death, DiskFaults, DiskLatency, Fault, Op, SimDisk, enter_offload};

const EIO: Option<i32> = Some(5);

#[test]
fn rates_of_10_000_hit_every_operation_of_their_kind_and_no_other() {
    let _offload = enter_offload();
    let always = |faults: fn(&mut DiskFaults) -> &mut u32| {
        let mut all = DiskFaults::default();
        *faults(&mut all) = 10_000;
        all
    };
    let cases = [
        (always(|f| &mut f.eio_read_per_10k), "read list"),
        (
            always(|f| &mut f.eio_write_per_10k),
            "create create_dir rename remove write append set_len",
        ),
        (always(|f| &mut f.eio_sync_per_10k), "sync sync_dir"),
        (always(|f| &mut f.lying_sync_per_10k), ""),
        (DiskFaults::default(), ""),
    ];
    for (faults, expected) in cases {
        let sim = SimDisk::new(1);
        let disk = sim.mount();
        let file = put(&disk, "f", b"x");
        sim.set_faults(faults.clone());
        assert_eq!(sim.faults(), faults);
        let results = [
            ("open", disk.open("f", Open::Existing).map(drop)),
            ("create", disk.open("new", Open::Create).map(drop)),
            ("create_dir", disk.create_dir("d")),
            ("rename", disk.rename("f", "f")),
            ("remove", disk.remove("f")),
            ("identity", disk.identity("f").map(drop)),
            ("read", file.read_at(0, &mut [0]).map(drop)),
            ("list", disk.list("").map(drop)),
            ("write", file.write_at(0, b"y")),
            ("append", file.append(b"y").map(drop)),
            ("len", file.len().map(drop)),
            ("set_len", file.set_len(9)),
            ("sync", file.sync()),
            ("sync_dir", disk.sync_dir("")),
        ];
        let is_eio =
            |result: &io::Result<()>| matches!(result, Err(error) if error.raw_os_error() == EIO);
        for (op, result) in &results {
            let hit = expected.split(' ').any(|name| name == *op);
            assert_eq!(is_eio(result), hit, "{op} under {faults:?}");
        }
        if faults.eio_write_per_10k > 0 {
            assert_eq!(sim.list_files(), ["f"], "a failed change of names is none");
        }
    }
}

#[test]
fn rate_is_parts_per_10_000() {
    let _offload = enter_offload();
    let sim = SimDisk::new(7);
    let file = put(&sim.mount(), "f", b"x");
    for (per_10k, expected) in [(0, 0..=0), (500, 400..=600), (5_000, 4_800..=5_200)] {
        sim.set_faults(DiskFaults {
            eio_read_per_10k: per_10k,
            ..DiskFaults::default()
        });
        let failed = (0..10_000)
            .filter(|_| file.read_at(0, &mut [0]).is_err())
            .count();
        assert!(expected.contains(&failed), "{per_10k}: {failed}");
    }
}

#[test]
fn fault_asked_for_once_hits_once() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let file = put(&sim.mount(), "f", b"x");
    sim.fail_next(Fault::EioRead, 2);
    sim.fail_next(Fault::EioSync, 1);
    let mut buf = [0];
    assert_eq!(file.read_at(0, &mut buf).unwrap_err().raw_os_error(), EIO);
    file.append(b"y").unwrap();
    assert_eq!(file.read_at(0, &mut buf).unwrap_err().raw_os_error(), EIO);
    assert_eq!(file.read_at(0, &mut buf).unwrap(), 1);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
    file.sync().unwrap();
}

#[test]
fn failed_write_leaves_any_prefix() {
    let _offload = enter_offload();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let sim = SimDisk::new(seed);
        let file = put(&sim.mount(), "f", b"...");
        sim.fail_next(Fault::EioWrite, 1);
        assert_eq!(file.write_at(0, b"abc").unwrap_err().raw_os_error(), EIO);
        seen.insert(String::from_utf8(sim.read_file("f").unwrap()).unwrap());
    }
    let seen: Vec<_> = seen.into_iter().collect();
    assert_eq!(seen, ["...", "a..", "ab.", "abc"]);
}

#[test]
fn what_a_failed_sync_did_not_write_is_seen_until_the_power_goes_and_never_synced() {
    let left = outcomes(
        losing(),
        |sim, disk| {
            let file = put_durably(disk, "f", b"durable");
            file.write_at(0, b"LOST").unwrap();
            file.append(b"LOST").unwrap();
            sim.fail_next(Fault::EioSync, 1);
            assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
            file.write_at(6, b"E").unwrap();
            file.sync().unwrap();
            assert_eq!(sim.read_file("f").unwrap(), b"LOSTblELOST");
            sim.kill();
            assert_eq!(sim.read_file("f").unwrap(), b"LOSTblELOST");
        },
        |sim| sim.read_file("f").unwrap(),
    );
    let left: Vec<_> = left
        .iter()
        .map(|bytes| str::from_utf8(bytes).unwrap())
        .collect();
    let some_written = ["LOSTblE", "LOSTblELOST", "durablE", "durablELOST"];
    assert_eq!(left, some_written);
}

#[test]
fn failed_sync_alone_already_loses_the_write_or_has_written_it() {
    let left = outcomes(
        losing(),
        |sim, disk| {
            let file = put_durably(disk, "f", b"durable");
            file.append(b"LOST").unwrap();
            sim.fail_next(Fault::EioSync, 1);
            file.sync().unwrap_err();
        },
        |sim| (sim.read_file("f").unwrap(), sim.read_durable("f").unwrap()),
    );
    let lost = (b"durable".to_vec(), b"durable".to_vec());
    let written = (b"durableLOST".to_vec(), b"durableLOST".to_vec());
    assert_eq!(left.into_iter().collect::<Vec<_>>(), [lost, written]);
}

#[test]
fn a_cut_whose_sync_failed_is_made_sure_of_by_a_detour_alone() {
    let cut = |again: fn(&dyn DiskFile) -> io::Result<()>| {
        outcomes(
            losing(),
            move |sim, disk| {
                let file = put_durably(disk, "f", b"kept, cut off");
                file.set_len(4).unwrap();
                sim.fail_next(Fault::EioSync, 1);
                file.sync().unwrap_err();
                again(&*file).unwrap();
                assert_eq!(sim.read_file("f").unwrap(), b"kept");
            },
            |sim| sim.read_file("f").unwrap(),
        )
    };
    let believed = cut(|file| file.set_len(4).and_then(|()| file.sync()));
    assert!(believed.contains(&b"kept, cut off"[..]), "{believed:?}");
    for sure in [
        cut(|file| durable::cut_again(file, 4)),
        cut(durable::settle_length),
    ] {
        assert_eq!(sure.into_iter().collect::<Vec<_>>(), [b"kept"]);
    }
}

#[test]
fn failed_sync_of_a_directory_may_be_tried_again() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    put(&disk, "f", b"").sync().unwrap();
    sim.fail_next(Fault::EioSync, 1);
    assert_eq!(disk.sync_dir("").unwrap_err().raw_os_error(), EIO);
    assert_eq!(sim.read_durable("f"), None);
    disk.sync_dir("").unwrap();
    assert_eq!(sim.read_durable("f").unwrap(), b"");
}

#[test]
fn lying_sync_answers_ok_and_an_honest_one_makes_up_for_it() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let file = put_durably(&disk, "f", b"old");
    file.write_at(0, b"new").unwrap();
    put(&disk, "g", b"");
    sim.fail_next(Fault::LyingSync, 2);
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(sim.read_durable("f").unwrap(), b"old");
    assert_eq!(sim.read_durable("g"), None);
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(sim.read_durable("f").unwrap(), b"new");
    assert_eq!(sim.read_durable("g").unwrap(), b"");
}

#[test]
fn full_disk_refuses_growth_after_a_prefix_that_fits() {
    let _offload = enter_offload();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let sim = SimDisk::new(seed);
        sim.set_faults(DiskFaults {
            capacity_bytes: Some(10),
            ..DiskFaults::default()
        });
        let disk = sim.mount();
        put(&disk, "other", b"12345");
        let file = put(&disk, "f", b"123");
        assert_eq!(kind(file.append(b"abc")), io::ErrorKind::StorageFull);
        assert_eq!(sim.bytes_used(), 5 + file.len().unwrap());
        seen.insert(String::from_utf8(sim.read_file("f").unwrap()).unwrap());
        file.set_len(3).unwrap();
        assert_eq!(kind(file.set_len(6)), io::ErrorKind::StorageFull);
        assert_eq!(kind(file.write_at(6, b"x")), io::ErrorKind::StorageFull);
        assert_eq!(file.len().unwrap(), 3);
        file.set_len(5).unwrap();
        file.write_at(0, b"ABCDE").unwrap();
        assert_eq!(sim.read_file("f").unwrap(), b"ABCDE");
        disk.remove("other").unwrap();
        file.append(b"12345").unwrap();
        assert_eq!(sim.bytes_used(), 10);
    }
    let seen: Vec<_> = seen.into_iter().collect();
    assert_eq!(seen, ["123", "123a", "123ab"]);
}

#[test]
fn crash_at_an_operation_fails_it_and_all_later_ones() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let file = put_durably(&disk, "f", b"x");
    assert_eq!((sim.incarnation_ops(), sim.crashed()), (4, None));
    sim.set_faults(DiskFaults {
        crash_at_op: Some(6),
        ..DiskFaults::default()
    });
    file.len().unwrap();
    assert_eq!(sim.crashed(), None);
    file.len().unwrap_err();
    assert_eq!(sim.crashed(), Some(Death::Power));
    assert_eq!(sim.faults().crash_at_op, None, "it fires once");
    let (ops, accrued) = (sim.ops(), sim.take_accrued());
    assert!(accrued > Duration::ZERO);
    file.write_at(0, b"y").unwrap_err();
    file.append(b"y").unwrap_err();
    file.set_len(0).unwrap_err();
    file.sync().unwrap_err();
    disk.open("g", Open::Create).err().unwrap();
    disk.rename("f", "g").unwrap_err();
    disk.remove("f").unwrap_err();
    disk.sync_dir("").unwrap_err();
    file.read_at(0, &mut [0]).unwrap_err();
    assert_eq!((sim.ops(), sim.take_accrued()), (ops, Duration::ZERO));
    assert_eq!((sim.stale_ops(), sim.list_files().len()), (0, 1));
    assert_eq!(sim.read_file("f").unwrap(), b"x");
    sim.kill();
    assert_eq!(sim.crashed(), None);
    sim.mount().remove("f").unwrap();
}

#[test]
fn a_kill_at_an_operation_leaves_what_was_written_in_the_systems_memory() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let file = put_durably(&disk, "f", b"x");
    file.write_at(0, b"y").unwrap();
    sim.set_faults(DiskFaults {
        kill_at_op: Some(1),
        lose_unsynced: true,
        ..DiskFaults::default()
    });
    file.len().unwrap_err();
    assert_eq!(sim.crashed(), Some(Death::Process));
    assert_eq!(sim.faults().kill_at_op, None, "it fires once");
    sim.kill();
    assert_eq!(sim.crashed(), None);
    assert_eq!(sim.read_file("f").unwrap(), b"y");
    assert_eq!(sim.read_durable("f").unwrap(), b"x");
}

#[test]
fn a_sync_that_kills_leaves_bytes_that_are_seen_and_never_written() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let file = put_durably(&disk, "f", b"x");
    file.write_at(0, b"y").unwrap();
    sim.set_faults(DiskFaults {
        sync_kills: true,
        ..DiskFaults::default()
    });
    file.len().unwrap();
    assert_eq!(file.sync().unwrap_err().raw_os_error(), EIO);
    assert_eq!(sim.crashed(), Some(Death::Process));
    sim.kill();
    let file = sim.mount().open("f", Open::Existing).unwrap();
    file.sync().unwrap();
    assert_eq!(sim.read_file("f").unwrap(), b"y");
    assert_eq!(sim.read_durable("f").unwrap(), b"x");
    durable::settle(&*file, 0, 1).unwrap();
    assert_eq!(sim.read_durable("f").unwrap(), b"y");
}

#[test]
fn crash_past_its_operation_fires_at_the_next() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    put(&disk, "f", b"x");
    let crash_at_op = Some(1);
    sim.set_faults(DiskFaults {
        crash_at_op,
        ..DiskFaults::default()
    });
    disk.list("").unwrap_err();
    assert_eq!(sim.crashed(), Some(Death::Power));
}

#[test]
fn crash_lands_before_within_or_after_the_operation() {
    let _offload = enter_offload();
    let (mut writes, mut syncs) = (BTreeSet::new(), BTreeSet::new());
    let (mut dir_syncs, mut renames) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..100 {
        let crash = |at: u64| {
            let sim = SimDisk::new(seed);
            sim.set_faults(DiskFaults {
                crash_at_op: Some(at),
                ..DiskFaults::default()
            });
            let disk = sim.mount();
            let file = disk.open("f", Open::Create).unwrap();
            let done = file
                .append(b"ab")
                .and_then(|_| file.sync())
                .and_then(|()| disk.sync_dir(""))
                .and_then(|()| disk.rename("f", "g"));
            assert!(done.is_err());
            sim
        };
        writes.insert(crash(2).read_file("f").unwrap().len());
        syncs.insert(crash(3).lock().files[&1].durable().len());
        dir_syncs.insert(crash(4).read_durable("f").is_some());
        renames.insert(crash(5).list_files().remove(0));
    }
    assert_eq!(writes, BTreeSet::from([0, 1, 2]));
    assert_eq!(syncs, BTreeSet::from([0, 2]));
    assert_eq!(dir_syncs, BTreeSet::from([false, true]));
    assert_eq!(renames, BTreeSet::from(["f".to_owned(), "g".to_owned()]));
}

#[test]
fn bit_rot_flips_one_bit_in_both_layers_and_stays() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let file = put_durably(&disk, "f", &[0; 4]);
    file.write_at(2, &[0, 0, 0]).unwrap();
    assert!(sim.bit_rot("f", 1, 0));
    assert!(sim.bit_rot("f", 3, 7));
    assert!(sim.bit_rot("f", 4, 1), "not yet durable, but there");
    assert!(!sim.bit_rot("f", 5, 0));
    assert!(!sim.bit_rot("g", 0, 0));
    assert_eq!(sim.read_file("f").unwrap(), [0, 1, 0, 128, 2]);
    assert_eq!(sim.read_durable("f").unwrap(), [0, 1, 0, 128]);
    file.sync().unwrap();
    assert_eq!(sim.read_durable("f").unwrap(), [0, 1, 0, 128, 2]);
}

#[test]
fn random_corruption_tells_what_it_did() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    assert_eq!(sim.corrupt_random(""), None);
    let disk = sim.mount();
    put(&disk, "empty", b"");
    assert_eq!(sim.corrupt_random(""), None);
    let mut hit = BTreeSet::new();
    for _ in 0..50 {
        for path in ["a", "b"] {
            put(&disk, path, &[0; 3]);
        }
        let BitRot { path, offset, bit } = sim.corrupt_random("").unwrap();
        let mut expected = [0; 3];
        expected[offset as usize] = 1 << bit;
        assert_eq!(sim.read_file(&path).unwrap(), expected);
        hit.insert((path, offset));
    }
    assert_eq!(hit.len(), 6);
}

#[test]
fn operations_take_time_by_kind_and_are_counted_by_kind() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    sim.set_latency(DiskLatency {
        read_us: (1, 1),
        write_us: (100, 100),
        sync_us: (10_000, 10_000),
    });
    let disk = sim.mount();
    let file = put(&disk, "f", b"x");
    file.append(b"y").unwrap();
    file.read_at(0, &mut [0]).unwrap();
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(sim.take_accrued(), Duration::from_micros(20_202));
    assert_eq!(sim.take_accrued(), Duration::ZERO);
    let counts = sim.op_counts();
    assert_eq!((sim.ops(), counts.total()), (6, 6));
    for op in Op::ALL {
        let once = [
            Op::Open,
            Op::Write,
            Op::Append,
            Op::Read,
            Op::Sync,
            Op::SyncDir,
        ];
        assert_eq!(counts.get(op), u64::from(once.contains(&op)), "{op:?}");
    }
    file.len().unwrap();
    sim.mount();
    assert_eq!(
        sim.take_accrued(),
        Duration::ZERO,
        "time dies with its process"
    );
    assert_eq!((sim.ops(), sim.incarnation_ops()), (7, 0));
}

#[test]
fn latency_spans_its_range_and_leaves_the_faults_alone() {
    let _offload = enter_offload();
    let run = |sync_us: (u64, u64)| {
        let sim = SimDisk::new(3);
        sim.set_latency(DiskLatency {
            sync_us,
            ..DiskLatency::default()
        });
        sim.set_faults(DiskFaults {
            eio_sync_per_10k: 5_000,
            ..DiskFaults::default()
        });
        let file = put(&sim.mount(), "f", b"x");
        let mut times = BTreeSet::new();
        let failures: Vec<bool> = (0..100)
            .map(|_| {
                sim.take_accrued();
                let failed = file.sync().is_err();
                times.insert(sim.take_accrued().as_micros());
                failed
            })
            .collect();
        (failures, times)
    };
    let (failures, times) = run((3, 5));
    assert_eq!(times.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(failures, run((7, 7)).0);
    assert!(failures.contains(&true) && failures.contains(&false));
}
