//! The files, on a disk in memory: what is noticed, what is refused, what a full disk still takes.

use ron_io::MemoryDisk;

use super::*;
use crate::{
    audit::{
        frames::{Batch, encode_header},
        record::{Event, Record},
        tiles::encode_entries,
    },
    auditor::LogKeys,
    keys::Secret,
    keystore::Identity,
};

const ID: LogId = [7; 16];
const RESERVE_BYTES: u64 = 300 * 1024;

fn keys() -> LogKeys {
    let seed = |byte| Secret::new(vec![byte; 32]);
    let identity = Identity {
        log_id: ID,
        ed25519_seed: seed(1),
        ml_dsa_44_seed: seed(2),
        attestation_seed: seed(3),
    };
    LogKeys::new("test/log", &identity).unwrap()
}

fn open(disk: &MemoryDisk, fresh: bool) -> Found {
    Journal::open(disk, ID, &keys().trust().unwrap(), fresh, RESERVE_BYTES).unwrap()
}

fn batch(first: u64, count: u64) -> Batch {
    let mut batch = Batch::new(first);
    for index in first..first + count {
        let record = Record {
            index,
            at_ms: 0,
            event: Event::Reserve { end: index },
        };
        batch.push(&record, &[]).unwrap();
    }
    batch
}

fn note(size: u64) -> Vec<u8> {
    let checkpoint = crate::audit::checkpoint::Checkpoint {
        origin: "test/log".into(),
        size,
        root: [0; 32],
    };
    checkpoint
        .sign(&keys().signing(), 1)
        .unwrap()
        .encode()
        .into_bytes()
}

fn indexes(journal: &Journal) -> Vec<u64> {
    let mut seen = Vec::new();
    journal
        .scan(|framed| seen.push(framed.record.index))
        .unwrap();
    seen
}

const START: u64 = HEADER_LEN as u64;

#[test]
fn what_was_written_is_read_back_and_a_later_start_finds_it() {
    let disk = MemoryDisk::new(4 << 20);
    let journal = open(&disk, true).journal;
    let first = batch(0, 3);
    journal.write(&disk, 0, START, first.bytes()).unwrap();
    let at = START + first.bytes().len() as u64;
    journal.write(&disk, 0, at, batch(3, 2).bytes()).unwrap();
    assert_eq!(indexes(&journal), [0, 1, 2, 3, 4]);
    let found = open(&disk, false);
    assert_eq!(found.mismatch, None);
    assert_eq!(found.stored, Stored::Absent);
    assert_eq!(indexes(&found.journal), [0, 1, 2, 3, 4]);
}

#[test]
fn a_file_that_was_deleted_or_replaced_takes_no_more_records() {
    let disk = MemoryDisk::new(4 << 20);
    let journal = open(&disk, true).journal;
    journal.check(&disk).unwrap();
    let spare = disk.open("audit/spare", Open::Create).unwrap();
    spare.write_at(0, &encode_header(ID)).unwrap();
    disk.rename("audit/spare", LOG).unwrap();
    let refused = |result: Result<(), JournalError>| {
        assert!(matches!(result, Err(JournalError::Replaced)), "{result:?}");
    };
    refused(journal.check(&disk));
    refused(journal.write(&disk, 0, START, b"x"));
    refused(journal.truncate(&disk, START));
    refused(journal.publish(&disk, 1, &[], &note(0), Reserve::Keep));
    disk.remove(LOG).unwrap();
    refused(journal.check(&disk));
    assert!(
        disk.identity(CHECKPOINT).unwrap().is_none(),
        "nothing was published"
    );
}

#[test]
fn a_start_without_the_log_of_its_store_is_a_mismatch() {
    let disk = MemoryDisk::new(4 << 20);
    assert_eq!(open(&disk, false).mismatch, Some(Mismatch::Replaced));
    assert!(disk.identity(LOG).unwrap().is_none(), "and makes none");
    drop(open(&disk, true));
    let other = Journal::open(&disk, [8; 16], &keys().trust().unwrap(), false, 0).unwrap();
    assert_eq!(other.mismatch, Some(Mismatch::OtherLog));
    // A checkpoint without its log, though the store is new.
    let disk = MemoryDisk::new(4 << 20);
    open(&disk, true)
        .journal
        .publish(&disk, 1, &[], &note(0), Reserve::Keep)
        .unwrap();
    disk.remove(LOG).unwrap();
    assert_eq!(open(&disk, true).mismatch, Some(Mismatch::Replaced));
}

#[test]
fn a_first_start_that_did_not_get_far_is_begun_again() {
    for torn in [0, 1, HEADER_LEN - 1] {
        let disk = MemoryDisk::new(4 << 20);
        disk.create_dir(DIR).unwrap();
        let file = disk.open(LOG, Open::Create).unwrap();
        file.write_at(0, &encode_header(ID)[..torn]).unwrap();
        let found = open(&disk, true);
        assert_eq!(found.mismatch, None, "{torn}");
        assert_eq!(file.len().unwrap(), START);
    }
}

#[test]
fn a_write_that_began_before_a_truncation_does_not_land_after_it() {
    let disk = MemoryDisk::new(4 << 20);
    let journal = open(&disk, true).journal;
    let before = journal.epoch();
    journal
        .write(&disk, before, START, batch(0, 2).bytes())
        .unwrap();
    journal.truncate(&disk, START).unwrap();
    assert_ne!(journal.epoch(), before);
    let late = journal.write(&disk, before, START, batch(0, 2).bytes());
    assert!(matches!(late, Err(JournalError::Outdated)), "{late:?}");
    assert_eq!(indexes(&journal), Vec::<u64>::new());
    let now = journal.epoch();
    journal
        .write(&disk, now, START, batch(0, 1).bytes())
        .unwrap();
    assert_eq!(indexes(&journal), [0]);
}

#[test]
fn an_older_attempt_to_publish_does_not_land_after_a_newer_one() {
    let disk = MemoryDisk::new(4 << 20);
    let journal = open(&disk, true).journal;
    journal
        .publish(&disk, 2, &[], &note(9), Reserve::Keep)
        .unwrap();
    for older in [1, 2] {
        let late = journal.publish(&disk, older, &[], &note(1), Reserve::Keep);
        assert!(matches!(late, Err(JournalError::Outdated)), "{late:?}");
    }
    let found = open(&disk, false);
    assert_eq!(published_head(&found.note.unwrap()).unwrap().size, 9);
    assert!(matches!(found.stored, Stored::Verified(checkpoint) if checkpoint.size == 9));
}

#[test]
fn a_checkpoint_that_does_not_verify_is_told_as_such() {
    let disk = MemoryDisk::new(4 << 20);
    let journal = open(&disk, true).journal;
    let mut forged = note(9);
    let at = forged.iter().position(|byte| *byte == b'9').unwrap();
    forged[at] = b'8';
    journal
        .publish(&disk, 1, &[], &forged, Reserve::Keep)
        .unwrap();
    let found = open(&disk, false);
    assert_eq!((found.stored, found.note), (Stored::Invalid, None));
}

fn hashes(width: u16) -> Published {
    Published {
        tile: Tile::new(Kind::Hashes { level: 0 }, 0, width).unwrap(),
        bytes: vec![1; usize::from(width) * 32].into(),
    }
}

#[test]
fn a_full_disk_still_takes_the_last_checkpoint_from_the_reserve_and_no_other() {
    // Room for the header, the reserve and next to nothing else.
    let disk = MemoryDisk::new(RESERVE_BYTES + START + 1_000);
    let journal = open(&disk, true).journal;
    assert_eq!(
        disk.open(RESERVE, Open::Existing).unwrap().len().unwrap(),
        RESERVE_BYTES
    );
    let appended = journal.write(&disk, 0, START, &[0; 2_000]);
    let Err(JournalError::Io(full)) = appended else {
        panic!("{appended:?}");
    };
    assert!(durable::is_full(&full));
    journal.truncate(&disk, START).unwrap();
    let publish =
        |attempt, reserve| journal.publish(&disk, attempt, &[hashes(250)], &note(250), reserve);
    assert!(
        publish(1, Reserve::Keep).is_err(),
        "a later one may need it more"
    );
    assert!(disk.identity(RESERVE).unwrap().is_some());
    publish(2, Reserve::Use).unwrap();
    assert!(
        disk.identity(RESERVE).unwrap().is_none(),
        "it was given up for that"
    );
    assert!(!free_reserve(&disk).unwrap(), "there is none any more");
    assert_eq!(
        published_head(&open(&disk, false).note.unwrap())
            .unwrap()
            .size,
        250
    );
}

#[test]
fn the_reserve_is_made_once_and_a_disk_without_room_for_it_still_starts() {
    let disk = MemoryDisk::new(4 << 20);
    let journal = open(&disk, true).journal;
    journal.make_reserve(&disk).unwrap();
    assert!(free_reserve(&disk).unwrap());
    journal.make_reserve(&disk).unwrap();
    assert_eq!(
        disk.open(RESERVE, Open::Existing).unwrap().len().unwrap(),
        RESERVE_BYTES
    );
    let small = MemoryDisk::new(10_000);
    assert_eq!(open(&small, true).mismatch, None);
    assert!(small.identity(RESERVE).unwrap().is_none());
}

#[test]
fn partial_tiles_are_served_from_the_full_one_that_took_their_place() {
    let disk = MemoryDisk::new(16 << 20);
    let journal = open(&disk, true).journal;
    let entry = |n: u64| n.to_string().into_bytes();
    let bundle = |width: u64| {
        let all: Vec<Vec<u8>> = (0..width).map(entry).collect();
        encode_entries(all.iter().map(Vec::as_slice)).unwrap()
    };
    let entries = |width: u16| Tile::new(Kind::Entries, 0, width).unwrap();
    let numbered = |width: u16| Published {
        bytes: (0..width).flat_map(|n| [n as u8; 32]).collect(),
        ..hashes(width)
    };
    let part = Published {
        tile: entries(5),
        bytes: bundle(5).into(),
    };
    journal
        .publish(&disk, 1, &[part, numbered(5)], &note(5), Reserve::Keep)
        .unwrap();
    assert_eq!(read_tile(&disk, &entries(5)).unwrap(), Some(bundle(5)));
    assert_eq!(
        read_tile(&disk, &entries(6)).unwrap(),
        None,
        "not published"
    );
    let full = Published {
        tile: entries(256),
        bytes: bundle(256).into(),
    };
    journal
        .publish(&disk, 2, &[full, numbered(256)], &note(256), Reserve::Keep)
        .unwrap();
    assert_eq!(
        disk.list("audit/tile/entries/000.p").unwrap(),
        Vec::<String>::new()
    );
    for width in [1, 5, 255] {
        let bytes = read_tile(&disk, &entries(width)).unwrap();
        assert_eq!(bytes, Some(bundle(u64::from(width))), "{width}");
        let bytes = read_tile(&disk, &hashes(width).tile).unwrap();
        assert_eq!(bytes, Some(numbered(width).bytes.to_vec()), "{width}");
    }
    let next = Tile::new(Kind::Entries, 1, 256).unwrap();
    assert_eq!(read_tile(&disk, &next).unwrap(), None);
}

#[test]
fn the_keys_file_says_the_newest_and_is_left_alone_if_it_does() {
    let disk = MemoryDisk::new(4 << 20);
    disk.create_dir(DIR).unwrap();
    write_keys(&disk, "one\n").unwrap();
    let first = disk.identity(KEYS).unwrap();
    write_keys(&disk, "one\n").unwrap();
    assert_eq!(disk.identity(KEYS).unwrap(), first);
    write_keys(&disk, "two\n").unwrap();
    assert_eq!(read_small(&disk, KEYS).unwrap().unwrap(), b"two\n");
}

#[test]
fn damaged_and_missing_tiles_are_written_anew_from_the_records() {
    let disk = MemoryDisk::new(16 << 20);
    let journal = open(&disk, true).journal;
    let leaf = |n: u64| format!("record {n}").into_bytes();
    let mut edge = Edge::default();
    for n in 0..300 {
        edge.push(&leaf(n)).unwrap();
    }
    let files = edge.pending().unwrap();
    journal
        .publish(&disk, 1, &files, &note(300), Reserve::Keep)
        .unwrap();
    let pass = |mending| {
        let mut mender = Mender::new(&disk, 300, mending);
        (0..310).for_each(|n| mender.record(&leaf(n)));
        mender.damaged()
    };
    assert_eq!(pass(Mending::Write), 0);
    for (n, damaged) in files.iter().enumerate() {
        let path = tile_path(&damaged.tile);
        match n % 2 {
            0 => disk.remove(&path).unwrap(),
            _ => {
                let file = disk.open(&path, Open::Existing).unwrap();
                file.write_at(damaged.bytes.len() as u64 - 1, b"!").unwrap();
            }
        }
        for mending in [Mending::Look, Mending::Look, Mending::Write] {
            assert_eq!(pass(mending), 1, "{path}: a look changes nothing");
        }
        let there = read_tile(&disk, &damaged.tile).unwrap();
        assert_eq!(there.as_deref(), Some(&damaged.bytes[..]), "{path}");
    }
    assert_eq!(pass(Mending::Look), 0);
}
