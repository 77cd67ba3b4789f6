//! What a loss of power leaves of contents.

use std::io;

use ron_core::seam::Open;

use super::{kind, losing, outcomes, put, put_durably};
use crate::disk::{DiskFaults, SimDisk, enter_offload};

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
            file.write_at(0, b"11").unwrap();
            file.write_at(0, b"2").unwrap();
        },
        |sim| sim.read_file("f").unwrap(),
    );
    let expected: [&[u8]; 4] = [b"0", b"11", b"2", b"21"];
    assert_eq!(left.into_iter().collect::<Vec<_>>(), expected);
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
fn of_a_torn_write_any_sectors_of_the_file_arrive_but_not_all() {
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
            assert_eq!(bytes.len(), 2000);
            let parts = [
                0..500,
                500..512,
                512..1024,
                1024..1536,
                1536..1600,
                1600..2000,
            ];
            let sector = |part: std::ops::Range<usize>| {
                let first = bytes[part.start];
                assert!(
                    bytes[part].iter().all(|byte| *byte == first),
                    "half a sector"
                );
                char::from(first)
            };
            parts.map(sector).into_iter().collect::<String>()
        },
    );
    let any = (0..15).map(|chosen| {
        let sectors = (0..4).map(|at| {
            if chosen >> (3 - at) & 1 == 1 {
                'x'
            } else {
                '.'
            }
        });
        format!(".{}.", sectors.collect::<String>())
    });
    assert_eq!(left, any.collect());
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
