//! Whole directories verify; every damage is caught and named.

use ron_core::seam::{Disk, Open};
use ron_kms::{
    audit::{checkpoint::Checkpoint, log::Policy, tiles::growth},
    offline::{Progress, verify_directory},
};

use crate::{
    DIR, disk, disk_of, eventful, refused, verify,
    written::{Keys, ORIGIN, Writer, flip, read, write},
};

#[test]
fn a_whole_directory_verifies_and_its_summary_adds_up() {
    let (disk, keys) = (disk(), Keys::new(1));
    let writer = eventful(&disk, &keys);
    let mut steps: Vec<Progress> = Vec::new();
    let summary = verify_directory(&disk, DIR, None, &mut |p| steps.push(p)).unwrap();
    assert_eq!(summary.origin, ORIGIN);
    assert_eq!(summary.size, writer.log.covered());
    assert_eq!(summary.log_id, [5; 16]);
    assert_eq!(summary.operations, 150 + 3 + 200 + 1 + 300 + 7);
    assert_eq!((summary.gap_records, summary.lost), (2, 2));
    assert_eq!(summary.restart_gaps, 1);
    let open = summary.open.unwrap();
    assert_eq!(
        summary.operations + summary.lost + summary.missing_at_most + open.at_most,
        open.end,
        "every number is accounted for"
    );
    assert_eq!(summary.unused, 0);
    // The mark of the last one travels with the records behind it.
    assert_eq!(summary.checkpoints_told, 3);
    assert_eq!(summary.beyond_checkpoint, writer.log.size() - summary.size);
    assert_eq!(summary.beyond_checkpoint, 8);
    assert_eq!(summary.torn_bytes, 0);
    assert!(summary.own_keys);
    assert_eq!(summary.times_s.len(), 1);
    assert_eq!(summary.first_at_ms, Some(1_700_000_001_000));
    assert_eq!(summary.last_at_ms, Some(writer.now_s * 1000));
    let len = read(&disk, "data/audit/log").len() as u64;
    assert_eq!(
        steps.last(),
        Some(&Progress {
            done: len,
            total: len
        })
    );
}

#[test]
fn a_long_log_is_read_in_pieces_and_verifies() {
    let (disk, keys) = (disk(), Keys::new(1));
    let mut writer = Writer::open(&disk, DIR, &keys, Policy::Shed);
    for n in [3_000, 65_000] {
        writer.operate(n);
        writer.checkpoint();
    }
    writer.operate(1);
    let mut pieces = 0;
    let summary = verify_directory(&disk, DIR, None, &mut |_| pieces += 1).unwrap();
    assert!(summary.size > 65_536, "the third level of tiles is there");
    assert!(pieces > 10, "{pieces}");
    flip(&disk, "data/audit/tile/2/000.p/1", 31);
    assert_eq!(refused(&disk), "tile/2/000.p/1: hash 0 differs");
    flip(&disk, "data/audit/tile/2/000.p/1", 31);
    flip(&disk, "data/audit/tile/1/000", 255 * 32);
    assert_eq!(refused(&disk), "tile/1/000: hash 255 differs");
}

/// Every byte of every current file matters.
#[test]
fn a_flipped_bit_in_any_published_file_is_caught_and_the_file_is_named() {
    let (disk, keys) = (disk(), Keys::new(1));
    let size = eventful(&disk, &keys).log.covered();
    for tile in growth(0, size) {
        let path = format!("{DIR}/{tile}");
        let length = read(&disk, &path).len();
        for at in [0, 1, 2, length / 2, length - 1] {
            flip(&disk, &path, at);
            let error = refused(&disk);
            assert!(error.starts_with(&format!("{tile}: ")), "{error}");
            flip(&disk, &path, at);
        }
    }
    let checkpoint = read(&disk, "data/audit/checkpoint");
    for at in (0..checkpoint.len()).step_by(7) {
        flip(&disk, "data/audit/checkpoint", at);
        let error = refused(&disk);
        assert!(error.starts_with("checkpoint: "), "{error}");
        flip(&disk, "data/audit/checkpoint", at);
    }
    let log = read(&disk, "data/audit/log");
    for at in (0..log.len() / 2).step_by(997) {
        flip(&disk, "data/audit/log", at);
        let error = refused(&disk);
        assert!(error.starts_with("log: "), "{error}");
        flip(&disk, "data/audit/log", at);
    }
    verify(&disk).unwrap();
}

#[test]
fn the_file_and_the_fault_are_named_in_one_line() {
    let (disk, keys) = (disk(), Keys::new(1));
    let size = eventful(&disk, &keys).log.covered();
    assert_eq!(size, 663);
    let hit = |file: &str, at: usize| {
        let path = format!("{DIR}/{file}");
        flip(&disk, &path, at);
        let error = refused(&disk);
        flip(&disk, &path, at);
        error
    };
    assert_eq!(hit("tile/0/000", 3 * 32), "tile/0/000: hash 3 differs");
    assert_eq!(
        hit("tile/0/002.p/151", 5),
        "tile/0/002.p/151: hash 0 differs"
    );
    assert_eq!(hit("tile/1/000.p/2", 63), "tile/1/000.p/2: hash 1 differs");
    assert_eq!(
        hit("tile/entries/001", 2 + 10),
        "tile/entries/001: entry 0 is not record 256 of the log"
    );
    assert_eq!(
        hit("log", 34 + 26 + 10),
        "log: record 0 is damaged: its check does not match"
    );
    assert_eq!(
        hit("log", 0),
        "log: the file is no audit log: it does not begin like one"
    );
    let shorten = |file: &str, by: usize| {
        let path = format!("{DIR}/{file}");
        let good = read(&disk, &path);
        write(&disk, &path, &good[..good.len() - by]);
        let error = refused(&disk);
        write(&disk, &path, &good);
        error
    };
    assert_eq!(
        shorten("tile/0/000", 1),
        "tile/0/000: the tile holds 8191 bytes, expected 8192"
    );
    assert!(shorten("tile/entries/000", 1).contains("ends within entry 255"));
    let remove = |file: &str| {
        let path = format!("{DIR}/{file}");
        let good = read(&disk, &path);
        disk.remove(&path).unwrap();
        let error = verify(&disk).unwrap_err();
        write(&disk, &path, &good);
        (error.to_string(), error.is_unreadable())
    };
    let gone = |file: &str, unreadable| (format!("{file}: is missing"), unreadable);
    for file in ["log", "checkpoint", "tile/0/001", "tile/entries/002.p/151"] {
        assert_eq!(remove(file), gone(file, false));
    }
    assert_eq!(remove("keys.txt"), gone("keys.txt", true));
    verify(&disk).unwrap();
}

#[test]
fn a_file_made_huge_is_refused_unread() {
    let (disk, keys) = (disk(), Keys::new(1));
    eventful(&disk, &keys);
    for (file, most) in [
        ("checkpoint", 256 * 1024),
        ("keys.txt", 64 * 1024),
        ("tile/0/000", 8192),
        ("tile/entries/000", 256 * 65_537),
    ] {
        let path = format!("{DIR}/{file}");
        let good = read(&disk, &path);
        let opened = disk.open(&path, Open::Existing).unwrap();
        opened.set_len(most + 1).unwrap();
        let said = format!("{file}: has {} bytes, at most {most} are allowed", most + 1);
        assert_eq!(refused(&disk), said);
        write(&disk, &path, &good);
    }
}

#[test]
fn a_torn_tail_is_told_and_a_cut_into_the_covered_part_is_refused() {
    let (disk, keys) = (disk(), Keys::new(1));
    let writer = eventful(&disk, &keys);
    let log = read(&disk, "data/audit/log");
    write(&disk, "data/audit/log", &log[..log.len() - 3]);
    let summary = verify(&disk).unwrap();
    let whole = writer.log.size() - 1;
    assert_eq!(summary.beyond_checkpoint, whole - summary.size);
    assert!(summary.torn_bytes > 100, "{}", summary.torn_bytes);
    let error = {
        write(&disk, "data/audit/log", &log[..log.len() / 2]);
        refused(&disk)
    };
    assert!(error.ends_with("is damaged: it ends too early"), "{error}");
    let mut at = 0;
    let mut ends = Vec::new();
    while let Some(found) = log[at..].windows(4).position(|w| w == b"\xabRKF") {
        at += found;
        ends.push(at);
        at += 1;
    }
    write(&disk, "data/audit/log", &log[..ends[600]]);
    assert_eq!(
        refused(&disk),
        "log: has 600 whole records, the checkpoint covers 663"
    );
    // Damage behind the checkpoint, with later batches after it, is no torn write.
    let (before, last) = (ends[664], ends[ends.len() - 1]);
    assert!(before < last);
    let mut bad = log.clone();
    bad[before + 40] ^= 1;
    write(&disk, "data/audit/log", &bad);
    // All of them came in one batch: then it is a torn write.
    let summary = verify(&disk).unwrap();
    assert_eq!(summary.beyond_checkpoint, 1);
}

#[test]
fn damage_behind_the_checkpoint_with_a_later_batch_after_it_is_refused() {
    let (disk, keys) = (disk(), Keys::new(1));
    let mut writer = eventful(&disk, &keys);
    let at = read(&disk, "data/audit/log").len() - 5;
    writer.operate(1);
    flip(&disk, "data/audit/log", at);
    let error = refused(&disk);
    assert!(
        error.contains("is damaged: its check does not match"),
        "{error}"
    );
}

#[test]
fn an_older_checkpoint_put_back_is_noticed() {
    let (disk, keys) = (disk(), Keys::new(1));
    let mut writer = Writer::open(&disk, DIR, &keys, Policy::Shed);
    writer.operate(20);
    writer.checkpoint();
    let old = read(&disk, "data/audit/checkpoint");
    writer.operate(20);
    writer.checkpoint();
    // The records behind it tell of it from here on.
    writer.operate(1);
    write(&disk, "data/audit/checkpoint", &old);
    assert_eq!(
        refused(&disk),
        "checkpoint: the log tells of a checkpoint over 42 records, this one covers 21"
    );
}

#[test]
fn a_checkpoint_over_other_entries_is_refused_though_it_is_signed() {
    let (disk, keys) = (disk(), Keys::new(1));
    let writer = eventful(&disk, &keys);
    let size = writer.log.covered();
    let root = [7; 32];
    let origin = ORIGIN.to_owned();
    writer.sign(Checkpoint { origin, size, root });
    assert_eq!(
        refused(&disk),
        "checkpoint: the 663 entries have another root"
    );
    let empty = disk_of(&keys, vec![]);
    assert_eq!(verify(&empty).unwrap().size, 0);
    writer_of(&empty, &keys).sign(Checkpoint {
        origin: ORIGIN.into(),
        size: 0,
        root,
    });
    assert_eq!(
        refused(&empty),
        "checkpoint: the 0 entries have another root"
    );
}

#[test]
fn keys_of_the_caller_go_before_those_of_the_directory() {
    let (disk, keys, others) = (disk(), Keys::new(1), Keys::new(2));
    eventful(&disk, &keys);
    let with = |trust| verify_directory(&disk, DIR, Some(&trust), &mut |_| ());
    assert!(!with(keys.trust()).unwrap().own_keys);
    let error = with(others.trust()).unwrap_err().to_string();
    assert!(error.starts_with("checkpoint: no signature of"), "{error}");
    // A directory signed anew by somebody else verifies only with its own keys.
    write(&disk, "data/audit/keys.txt", others.text().as_bytes());
    assert!(refused(&disk).starts_with("checkpoint: "));
    assert!(with(keys.trust()).is_ok());
    let one = keys.text().lines().next().unwrap().to_owned();
    write(&disk, "data/audit/keys.txt", one.as_bytes());
    assert_eq!(
        refused(&disk),
        "keys.txt: an Ed25519 key, then an ML-DSA-44 key are needed"
    );
}

fn writer_of<'a>(disk: &'a dyn Disk, keys: &'a Keys) -> Writer<'a> {
    Writer::open(disk, DIR, keys, Policy::Strict)
}
