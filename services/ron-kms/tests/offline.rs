//! Offline verification on directories that are whole, torn, damaged, cut, or dishonest.

mod written;

use std::{io, sync::Arc};

use proptest::prelude::*;
use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};
use ron_io::MemoryDisk;
use ron_kms::{
    audit::{
        checkpoint::Checkpoint,
        log::Policy,
        record::{Event, GapReason, KeyChange, Outcome},
        tiles::growth,
    },
    offline::{OfflineError, Progress, ReceiptFault, Summary, verify_directory, verify_receipt},
};
use written::{
    Keys, ORIGIN, Writer, flip, operation, read, submission, used, write, write_records,
};

const DIR: &str = "data/audit";

fn disk() -> MemoryDisk {
    MemoryDisk::new(1 << 30)
}

fn verify(disk: &dyn Disk) -> Result<Summary, OfflineError> {
    verify_directory(disk, DIR, None, &mut |_| ())
}

fn refused(disk: &dyn Disk) -> String {
    let error = verify(disk).expect_err("it was taken").to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

/// Some hundred records over three checkpoints, a gap record, a crash and records beyond the checkpoint.
fn eventful<'a>(disk: &'a dyn Disk, keys: &'a Keys) -> Writer<'a> {
    let mut writer = Writer::open(disk, DIR, keys, Policy::Shed);
    writer.operate(150);
    writer.checkpoint();
    let some = writer.admit(5);
    writer.log.handle_dropped(some[1]);
    writer.log.handle_abandoned(some[2]);
    writer.append([0, 3, 4].map(|n| used(some[n])).into());
    writer.operate(200);
    writer.checkpoint();
    writer.operate(1);
    drop(writer);
    // Numbers were given out and never recorded; the next start admits them.
    let mut writer = Writer::open(disk, DIR, keys, Policy::Shed);
    writer.operate(300);
    writer.checkpoint();
    writer.operate(7);
    writer
}

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

#[test]
fn an_orderly_end_leaves_nothing_open_and_tells_unused_numbers() {
    let (disk, keys) = (disk(), Keys::new(1));
    let mut writer = Writer::open(&disk, DIR, &keys, Policy::Shed);
    writer.operate(10);
    writer.close();
    let summary = verify(&disk).unwrap();
    assert_eq!((summary.open, summary.missing_at_most), (None, 0));
    assert_eq!((summary.unused, summary.beyond_checkpoint), (0, 0));
    let close_over = |told, next| {
        let mut events = vec![Event::Reserve { end: 50 }, done(told)];
        events.push(Event::Closed { next });
        let disk = disk_of(&keys, events);
        verify(&disk).unwrap().unused
    };
    assert_eq!(close_over(0, 1), 0);
    assert_eq!(close_over(3, 4), 3);
    assert_eq!(close_over(3, 6), 5);
}

#[test]
fn strict_logs_pair_intents_and_outcomes() {
    let (disk, keys) = (disk(), Keys::new(1));
    let mut writer = Writer::open(&disk, DIR, &keys, Policy::Strict);
    let intent = Event::Intent {
        seq: 0,
        operation: operation(),
    };
    writer.append(vec![
        submission(None, intent.clone()),
        submission(None, intent),
    ]);
    let outcome = |seq| Event::Outcome {
        seq,
        outcome: Outcome::Done,
    };
    writer.append(vec![submission(Some(1), outcome(1))]);
    writer.checkpoint();
    let summary = verify(&disk).unwrap();
    assert_eq!((summary.operations, summary.open), (2, None));
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
        "log: not an audit log: the file does not begin like one"
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

fn done(seq: u64) -> Event {
    Event::Operation {
        seq,
        operation: operation(),
        outcome: Outcome::Done,
    }
}

fn disk_of(keys: &Keys, events: Vec<Event>) -> MemoryDisk {
    let disk = disk();
    write_records(&disk, DIR, keys, events);
    disk
}

fn writer_of<'a>(disk: &'a dyn Disk, keys: &'a Keys) -> Writer<'a> {
    Writer::open(disk, DIR, keys, Policy::Strict)
}

/// A service that signs a false account is found out by its own records.
#[test]
fn false_accounts_are_refused_though_they_are_signed() {
    let keys = Keys::new(1);
    let gap = |first, count| Event::Gap {
        first,
        count,
        reason: GapReason::QueueFull,
    };
    let restart = |first, end, at_most| Event::RestartGap {
        first,
        end,
        at_most,
    };
    let key = |seq| Event::Key {
        seq,
        tenant: "acme".into(),
        kid: "k".into(),
        version: 1,
        actor: "alice".into(),
        change: KeyChange::Disabled,
    };
    let intent = |seq| Event::Intent {
        seq,
        operation: operation(),
    };
    let outcome = |seq| Event::Outcome {
        seq,
        outcome: Outcome::Done,
    };
    let reserve = Event::Reserve { end: 8 };
    let (closed, told) = (Event::Closed { next: 2 }, |size, root| Event::Checkpoint {
        size,
        root,
    });
    let table: [(Vec<Event>, &str); 16] = [
        (
            vec![done(0), done(0)],
            "record 1: number 0 was told of before",
        ),
        (
            vec![done(0), key(0)],
            "record 1: number 0 was told of before",
        ),
        (
            vec![key(0), intent(0)],
            "record 1: number 0 was told of before",
        ),
        (
            vec![done(5), gap(4, 3)],
            "record 1: number 4 was told of before",
        ),
        (
            vec![gap(4, 3), done(6)],
            "record 1: number 6 was told of before",
        ),
        (
            vec![outcome(0)],
            "record 0: an outcome of number 0, which has no intent",
        ),
        (
            vec![reserve.clone(), done(0), restart(1, 8, 6)],
            "record 2: a restart gap says at most 6 of 1..8 are missing, the records before it say at most 7 of 1..8 are missing",
        ),
        (
            vec![reserve.clone(), restart(1, 8, 7)],
            "record 1: a restart gap says at most 7 of 1..8 are missing, the records before it say at most 8 of 0..8 are missing",
        ),
        (
            vec![done(0), restart(1, 8, 7)],
            "record 1: a restart gap says at most 7 of 1..8 are missing, the records before it say that nothing is missing",
        ),
        (
            vec![reserve.clone(), restart(0, 8, 8), done(3)],
            "record 2: number 3 was told of before",
        ),
        (
            vec![done(0), done(1), done(2), closed.clone()],
            "record 3: closed at number 2, but number 2 was given out",
        ),
        (
            vec![reserve.clone(), restart(0, 8, 8), closed],
            "record 2: closed at number 2, but number 7 was given out",
        ),
        (
            vec![done(0), told(2, [0; 32])],
            "record 1 tells of a checkpoint over 2 records, which cannot have been before it",
        ),
        (
            vec![told(0, [0; 32])],
            "record 0 tells of a checkpoint over 0 records, which cannot have been before it",
        ),
        (
            vec![done(0), done(1), told(1, [0; 32])],
            "record 2 tells of a checkpoint over 1 records with another root",
        ),
        (
            vec![
                done(1),
                told(1, root_of(&[done(1)])),
                told(1, root_of(&[done(1)])),
            ],
            "record 2 tells of a checkpoint over 1 records, which cannot have been before it",
        ),
    ];
    for (events, said) in table {
        let disk = disk_of(&keys, events.clone());
        assert_eq!(refused(&disk), format!("log: {said}"), "{events:?}");
    }
    let honest = vec![
        reserve,
        done(1),
        gap(2, 1),
        restart(0, 8, 6),
        intent(8),
        outcome(8),
        key(9),
        Event::Closed { next: 10 },
    ];
    let summary = verify(&disk_of(&keys, honest)).unwrap();
    assert_eq!((summary.operations, summary.lost), (3, 1));
    assert_eq!((summary.missing_at_most, summary.open), (6, None));
}

/// However long ago it was, and however much of its tiles is full by now.
#[test]
fn the_root_of_every_checkpoint_told_is_checked() {
    let keys = Keys::new(1);
    let all: Vec<Event> = (0..600).map(done).collect();
    let sizes = [1, 200, 255, 256, 257, 300, 511, 512, 599];
    let told = |size: u64, root| Event::Checkpoint { size, root };
    let mut events = all.clone();
    for size in sizes {
        events.push(told(size, root_of(&all[..size as usize])));
    }
    let summary = verify(&disk_of(&keys, events.clone())).unwrap();
    assert_eq!(summary.checkpoints_told, sizes.len() as u64);
    for (at, size) in (600..).zip(sizes) {
        let mut bad = events.clone();
        bad[at] = told(size, root_of(&all[..size as usize + 1]));
        let said =
            format!("log: record {at} tells of a checkpoint over {size} records with another root");
        assert_eq!(refused(&disk_of(&keys, bad)), said);
    }
}

/// A disk that hands out a few bytes at a time, and fails for one file.
struct Slow {
    disk: MemoryDisk,
    fails: &'static str,
}

struct SlowFile(Arc<dyn DiskFile>);

impl Disk for Slow {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        match path.ends_with(self.fails) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(Arc::new(SlowFile(self.disk.open(path, how)?))),
        }
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        self.disk.identity(path)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }
}

impl DiskFile for SlowFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let few = buf.len().min(7);
        self.0.read_at(offset, &mut buf[..few])
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
    fn append(&self, data: &[u8]) -> io::Result<u64> {
        self.0.append(data)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn identity(&self) -> io::Result<FileId> {
        self.0.identity()
    }
}

#[test]
fn short_reads_are_read_on_and_a_file_that_cannot_be_read_is_no_verdict() {
    let (disk, keys) = (disk(), Keys::new(1));
    let size = eventful(&disk, &keys).log.covered();
    let mut disk = Slow {
        disk,
        fails: "nothing",
    };
    assert_eq!(verify(&disk).unwrap().size, size);
    for file in ["keys.txt", "checkpoint", "log", "tile/0/001", "entries/000"] {
        disk.fails = file;
        let error = verify(&disk).unwrap_err();
        assert!(error.is_unreadable(), "{error}");
        assert!(error.file.ends_with(file), "{error}");
        assert!(error.to_string().contains("cannot be read: "), "{error}");
    }
}

fn root_of(events: &[Event]) -> [u8; 32] {
    let disk = disk_of(&Keys::new(1), events.to_vec());
    verify(&disk).unwrap().root
}

#[test]
fn numbers_scattered_without_end_are_refused_before_memory_is() {
    let limit = (1 << 18) + 1;
    let gap = |n: u64| Event::Gap {
        first: 2 * n + 1,
        count: 1,
        reason: GapReason::QueueFull,
    };
    let keys = Keys::new(1);
    let within = disk_of(&keys, (0..limit - 1).map(gap).collect());
    assert!(verify(&within).is_ok());
    let beyond = disk_of(&keys, (0..limit).map(gap).collect());
    let error = refused(&beyond);
    assert!(
        error.ends_with("more than 262144 runs of numbers are open at once"),
        "{error}"
    );
}

#[test]
fn a_receipt_is_one_file_that_proves_its_entry() {
    let (disk, keys, others) = (disk(), Keys::new(1), Keys::new(2));
    let writer = eventful(&disk, &keys);
    for index in [0, 255, 256, 662] {
        let receipt = writer.receipt(index);
        let text = receipt.encode();
        let proven = verify_receipt(text.as_bytes(), None, &keys.trust()).unwrap();
        assert_eq!(proven.record.index, index);
        assert_eq!(Some(&proven.entry), receipt.extra.as_ref());
        assert_eq!(proven.verified.checkpoint.size, 663);
        let error = verify_receipt(text.as_bytes(), None, &others.trust()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("does not verify: no signature of"),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
    let mut bare = writer.receipt(9);
    let entry = bare.extra.take().unwrap();
    let text = bare.encode();
    let check =
        |text: &str, entry: Option<&[u8]>| verify_receipt(text.as_bytes(), entry, &keys.trust());
    assert_eq!(check(&text, None), Err(ReceiptFault::NoEntry));
    assert!(check(&text, Some(&entry)).is_ok());
    // The caller's entry counts, not the one that the receipt carries.
    let other = writer.receipt(10).extra.unwrap();
    bare.extra = Some(entry);
    let error = check(&bare.encode(), Some(&other)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the entry is not under the checkpoint: the proof leads to another root"
    );
    bare.extra = Some(other);
    assert!(check(&bare.encode(), None).is_err());
}

/// The tree may hold what is no record of this log; a receipt for it says nothing.
#[test]
fn a_receipt_for_what_is_no_record_or_another_index_is_refused() {
    use ron_kms::audit::{
        merkle::{leaf_hash, node_hash},
        receipt::Receipt,
        record::Record,
    };
    let keys = Keys::new(1);
    let record = Record {
        index: 5,
        at_ms: 0,
        event: Event::Reserve { end: 1 },
    };
    let leaves = [b"no record".to_vec(), record.encode().unwrap()];
    let hashes = [leaf_hash(&leaves[0]), leaf_hash(&leaves[1])];
    let head = Checkpoint {
        origin: ORIGIN.into(),
        size: 2,
        root: node_hash(&hashes[0], &hashes[1]),
    };
    let note = head.sign(&keys.signing(), 1).unwrap().encode();
    let check = |index: usize| {
        let receipt = Receipt {
            extra: Some(leaves[index].clone()),
            index: index as u64,
            path: vec![hashes[1 - index]],
            checkpoint: note.clone(),
        };
        verify_receipt(receipt.encode().as_bytes(), None, &keys.trust())
    };
    assert!(matches!(check(0), Err(ReceiptFault::Record(_))));
    let error = ReceiptFault::OtherIndex { said: 5, proven: 1 };
    assert_eq!(check(1), Err(error));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However the machine is driven: crashes, drops, checkpoints, orderly ends. What it writes verifies.
    #[test]
    fn whatever_the_service_writes_verifies(steps in prop::collection::vec((0_u8..7, 1_usize..60), 1..25), strict: bool) {
        let (disk, keys) = (disk(), Keys::new(1));
        let policy = if strict { Policy::Strict } else { Policy::Shed };
        let mut writer = Writer::open(&disk, DIR, &keys, policy);
        let mut recorded = 0;
        for (step, n) in steps {
            match step {
                0 if writer.log.size() > writer.log.covered() => writer.checkpoint(),
                1 => writer = Writer::open(&disk, DIR, &keys, policy),
                2 if !strict => {
                    let numbers = writer.admit(n);
                    for seq in &numbers[..n / 2] {
                        writer.log.handle_dropped(*seq);
                    }
                    writer.append(numbers[n / 2..].iter().rev().map(|seq| used(*seq)).collect());
                    recorded += n - n / 2;
                }
                3 => {
                    writer.log.close();
                    writer.log.handle_all_abandoned();
                    writer.append(vec![]);
                    writer = Writer::open(&disk, DIR, &keys, policy);
                }
                4 if !strict => {
                    writer.admit(n.min(3));
                    writer.append(vec![]);
                }
                _ => {
                    let intent = Event::Intent { seq: 0, operation: operation() };
                    writer.append((0..n).map(|_| submission(None, intent.clone())).collect());
                    recorded += n;
                }
            }
        }
        let _ = writer.log.size() > writer.log.covered() && {
            writer.checkpoint();
            true
        };
        // A log without a single record has no checkpoint to verify.
        if writer.log.covered() > 0 {
            let summary = verify(&disk).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(summary.operations, recorded as u64);
        }
    }
}
