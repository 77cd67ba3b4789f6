//! Journals cut, flipped and shuffled: what is valid is read, and why it ends is told.

use proptest::{collection::vec, prelude::*};

use super::*;

/// Numbered records; one that is numbered wrongly is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strict;
/// Any bytes but those that begin with a 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lenient;

const ID: JournalId = [5; 16];
const NAMES: (&str, &str) = ("test log", "ron-test");

fn check(parts: &[&[u8]]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut check = [0; CHECK];
    hasher.finalize_xof().fill(&mut check);
    check
}

impl Format for Strict {
    const MAGIC: [u8; 8] = *b"RONTESTS";
    const FRAME: [u8; 4] = *b"\xabRTS";
    const VERSION: u16 = 2;
    const NAME: &'static str = NAMES.0;
    const PROGRAM: &'static str = NAMES.1;
    const MAX_ATTACHMENT: usize = 1000;
    const ROT: Rot = Rot::Stop;
    type Record = u64;
    type Error = std::convert::Infallible;

    fn check(parts: &[&[u8]]) -> [u8; CHECK] {
        check(parts)
    }
    fn encode(record: &u64, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        out.extend(record.to_be_bytes());
        out.extend(vec![7; *record as usize % 5]);
        Ok(())
    }
    fn decode(expected: u64, bytes: &[u8]) -> Result<u64, Refused> {
        let Some((number, _)) = bytes.split_first_chunk() else {
            return Err(Refused::Broken(Broken::BadRecord));
        };
        match u64::from_be_bytes(*number) {
            u64::MAX => Err(Refused::Newer(9)),
            found if found == expected => Ok(found),
            found => Err(Refused::Broken(Broken::WrongIndex { expected, found })),
        }
    }
}

impl Format for Lenient {
    const MAGIC: [u8; 8] = *b"RONTESTL";
    const FRAME: [u8; 4] = *b"\xabRTL";
    const VERSION: u16 = 1;
    const NAME: &'static str = NAMES.0;
    const PROGRAM: &'static str = NAMES.1;
    const MAX_ATTACHMENT: usize = 0;
    const ROT: Rot = Rot::Skip;
    type Record = Vec<u8>;
    type Error = std::convert::Infallible;

    fn check(parts: &[&[u8]]) -> [u8; CHECK] {
        check(parts)
    }
    fn encode(record: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        out.extend(record);
        Ok(())
    }
    fn decode(_: u64, bytes: &[u8]) -> Result<Vec<u8>, Refused> {
        match bytes.first() {
            None | Some(0) => Err(Refused::Broken(Broken::BadRecord)),
            Some(_) => Ok(bytes.to_vec()),
        }
    }
}

fn attachment(number: u64) -> Vec<u8> {
    vec![0xcd; number as usize % 3]
}

/// A file of batches of these sizes, and where each record begins.
fn strict(batches: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = encode_header::<Strict>(ID);
    let (mut number, mut starts) = (0, Vec::new());
    for size in batches {
        let mut batch = Batch::<Strict>::new(number);
        for _ in 0..*size {
            starts.push(bytes.len() + batch.bytes().len());
            batch.push(&number, &attachment(number)).unwrap();
            number += 1;
        }
        assert_eq!(batch.next_index(), number);
        bytes.extend(batch.bytes());
    }
    starts.push(bytes.len());
    (bytes, starts)
}

fn lenient(batches: &[Vec<Vec<u8>>]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = encode_header::<Lenient>(ID);
    let (mut number, mut starts) = (0, Vec::new());
    for records in batches {
        let mut batch = Batch::<Lenient>::new(number);
        for record in records {
            starts.push(bytes.len() + batch.bytes().len());
            batch.push(record, &[]).unwrap();
        }
        number = batch.next_index();
        bytes.extend(batch.bytes());
    }
    starts.push(bytes.len());
    (bytes, starts)
}

fn read(bytes: &[u8]) -> Scan {
    let mut seen = 0;
    let (id, scan) = scan::<Strict>(bytes, |frame| {
        assert_eq!(frame.record, seen);
        assert_eq!(frame.attachment, attachment(seen));
        seen += 1;
    })
    .unwrap();
    assert_eq!((id, seen, seen), (ID, scan.records, scan.next));
    scan
}

fn read_lenient(bytes: &[u8]) -> (Vec<Vec<u8>>, Scan) {
    let mut records = Vec::new();
    let (_, scan) = scan::<Lenient>(bytes, |frame| records.push(frame.record)).unwrap();
    (records, scan)
}

#[test]
fn a_whole_file_reads_back() {
    let (bytes, starts) = strict(&[1, 3, 2]);
    let expected = Scan {
        records: 6,
        rotten: 0,
        next: 6,
        valid_len: bytes.len() as u64,
        last_batch: starts[4] as u64,
        end: End::Clean,
    };
    assert_eq!(read(&bytes), expected);
    assert_eq!(read(&strict(&[]).0).end, End::Clean);
}

#[test]
fn a_file_cut_anywhere_keeps_its_whole_records_and_is_torn() {
    let (bytes, starts) = strict(&[2, 3]);
    for cut in HEADER_LEN..bytes.len() {
        let scan = read(&bytes[..cut]);
        let whole = starts.iter().rposition(|start| *start <= cut).unwrap();
        assert_eq!(scan.records, whole as u64);
        assert_eq!(scan.valid_len, starts[whole] as u64);
        let expected = match scan.valid_len == cut as u64 {
            true => End::Clean,
            false => End::Torn(Broken::Incomplete),
        };
        assert_eq!(scan.end, expected, "cut at {cut}");
    }
}

#[test]
fn a_flipped_byte_is_corruption_before_the_last_batch_and_torn_within_it() {
    let (bytes, starts) = strict(&[2, 3]);
    for at in HEADER_LEN..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x40;
        let scan = read(&bad);
        let durable = at < starts[2];
        match scan.end {
            End::Corrupt(_) => assert!(durable, "a torn write at {at} taken for corruption"),
            End::Torn(_) => assert!(!durable, "corruption at {at} would be cut off"),
            _ => panic!("a flip at {at} went unnoticed"),
        }
        assert!(scan.valid_len <= at as u64);
        assert_eq!(scan.valid_len, starts[scan.records as usize] as u64);
    }
}

#[test]
fn pages_of_one_batch_that_arrived_out_of_order_are_a_torn_write() {
    let (mut bytes, starts) = strict(&[2, 3]);
    // The first record of the last batch never reached the disk, those behind it did.
    bytes[starts[2]..starts[3]].fill(0);
    let scan = read(&bytes);
    assert_eq!((scan.records, scan.end), (2, End::Torn(Broken::NoFrame)));
}

#[test]
fn records_that_do_not_fit_are_told_by_what_is_wrong_with_them() {
    let (bytes, starts) = strict(&[1, 1, 1]);
    let wrong = |expected, found| Broken::WrongIndex { expected, found };
    let missing = [&bytes[..starts[1]], &bytes[starts[2]..]].concat();
    let twice = [&bytes[..], &bytes[starts[2]..]].concat();
    let behind = |first, number: u64| {
        let mut batch = Batch::<Strict>::new(first);
        batch.push(&number, &[]).unwrap();
        [&bytes[..starts[1]], batch.bytes()].concat()
    };
    let mut long = bytes[..starts[1]].to_vec();
    long.extend(Strict::FRAME);
    long.extend([0, 1]);
    long.extend(1001_u32.to_be_bytes());
    long.extend([0; 64]);
    for (file, records, end) in [
        (missing, 1, End::Corrupt(wrong(1, 2))),
        (twice, 3, End::Torn(wrong(3, 2))),
        (behind(5, 1), 1, End::Corrupt(wrong(1, 1))),
        (behind(1, u64::MAX), 1, End::Newer { found: 9 }),
        (long, 1, End::Torn(Broken::BadLength)),
    ] {
        let scan = read(&file);
        assert_eq!((scan.records, scan.end), (records, end));
        assert_eq!(scan.valid_len, starts[records as usize] as u64);
    }
}

#[test]
fn headers_are_told_apart() {
    let good = encode_header::<Strict>(ID);
    let decode = decode_header::<Strict>;
    assert_eq!((good.len(), decode(&good)), (HEADER_LEN, Ok(ID)));
    let of_version = |version: u16| {
        let mut header = good.clone();
        header[8..10].copy_from_slice(&version.to_be_bytes());
        decode(&header).unwrap_err()
    };
    let newer = of_version(3).to_string();
    assert_eq!(
        newer,
        "test log version 3 is newer than 2: open it with a newer ron-test"
    );
    let name = NAMES.0;
    assert_eq!(of_version(1), HeaderError::Older { name, found: 1 });
    assert_eq!(of_version(0), HeaderError::Damaged { name });
    for other in [&b"SQLite format 3"[..], b"x"] {
        assert_eq!(decode(other), Err(HeaderError::Foreign { name }));
    }
    for cut in 0..HEADER_LEN {
        let refused = decode(&good[..cut]);
        assert_eq!(refused, Err(HeaderError::Damaged { name }), "cut at {cut}");
    }
    for at in 8..HEADER_LEN {
        let mut bad = good.clone();
        bad[at] ^= 0x01;
        assert!(decode(&bad).is_err(), "flip at {at}");
    }
}

#[test]
fn a_batch_takes_nothing_oversized_and_is_then_as_it_was() {
    let mut batch = Batch::<Strict>::new(0);
    let long = vec![0; Strict::MAX_ATTACHMENT + 1];
    let refused = batch.push(&0, &long).unwrap_err();
    assert_eq!(refused, FrameError::Attachment(Strict::MAX_ATTACHMENT + 1));
    let refused = batch.push_with(&[], |out| {
        out.resize(out.len() + 65536, 0);
        Ok(())
    });
    assert_eq!(refused, Err(FrameError::Long(65536)));
    assert!(batch.is_empty() && batch.bytes().is_empty());
    batch.push(&0, &long[1..]).unwrap();
    let mut scanner = Scanner::<Strict>::starting_at(0);
    scanner.feed(batch.bytes(), |frame| {
        assert_eq!(frame.attachment.len(), Strict::MAX_ATTACHMENT);
    });
    assert_eq!(scanner.finish(|_| {}).records, 1);
    let spare = batch.into_spare().unwrap();
    assert!(Batch::<Strict>::within(7, spare).bytes().is_empty());
}

#[test]
fn where_rot_is_skipped_only_what_rotted_is_missing_and_a_torn_batch_is_cut_off() {
    let record = |n: u8| vec![n; 20];
    let batches = [
        vec![record(1), record(2)],
        vec![record(3)],
        vec![record(4), record(5)],
    ];
    let (file, starts) = lenient(&batches);
    let all: Vec<_> = batches.concat();
    for rotten in 0..5 {
        let mut bad = file.clone();
        bad[starts[rotten] + FRAME_HEAD + 9] ^= 4;
        let (records, scan) = read_lenient(&bad);
        let (mut left, mut valid, mut counted) = (all.clone(), starts[5], 1);
        if rotten < 3 {
            left.remove(rotten);
        } else {
            // Nothing is known of the last batch: it may be a write that was torn.
            (valid, counted) = (starts[rotten], 0);
            left.truncate(rotten);
        }
        assert_eq!(records, left, "{rotten}");
        assert_eq!((scan.rotten, scan.valid_len), (counted, valid as u64));
    }
    // A record with a sound check that is none.
    let (file, _) = lenient(&[vec![record(1)], vec![record(0)], vec![record(2)]]);
    let (records, scan) = read_lenient(&file);
    assert_eq!((records, scan.rotten), (vec![record(1), record(2)], 1));
    assert_eq!((scan.next, scan.end), (3, End::Clean));
}

fn batches() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    vec(vec(vec(1_u8.., 1..30), 1..4), 1..6)
}

proptest! {
    #[test]
    fn pieces_of_any_size_read_the_same(sizes in vec(1_u64..5, 0..6), batches in batches(), cut in 0_usize..2000, flip in 0_usize..2000, step in 1_usize..200) {
        let damage = |mut bytes: Vec<u8>| {
            let cut = HEADER_LEN + cut % (bytes.len() - HEADER_LEN + 1);
            bytes.truncate(cut);
            if flip % 2 == 0 && cut > HEADER_LEN {
                bytes[HEADER_LEN + flip % (cut - HEADER_LEN)] ^= 1;
            }
            bytes
        };
        let bytes = damage(strict(&sizes).0);
        let whole = read(&bytes);
        let (mut scanner, mut records) = (Scanner::<Strict>::new(), 0);
        bytes[HEADER_LEN..].chunks(step).for_each(|piece| scanner.feed(piece, |_| records += 1));
        let in_pieces = scanner.finish(|_| records += 1);
        prop_assert_eq!(records, whole.records);
        prop_assert_eq!(in_pieces, whole);

        let bytes = damage(lenient(&batches).0);
        let (whole, scan) = read_lenient(&bytes);
        let (mut scanner, mut records) = (Scanner::<Lenient>::new(), Vec::new());
        bytes[HEADER_LEN..].chunks(step).for_each(|piece| scanner.feed(piece, |frame| records.push(frame.record)));
        let in_pieces = scanner.finish(|frame| records.push(frame.record));
        prop_assert_eq!(records, whole);
        prop_assert_eq!(in_pieces, scan);
    }

    #[test]
    fn any_bytes_are_read_without_panic(noise in vec(any::<u8>(), 0..400), magic_at in 0_usize..400) {
        let at = magic_at.min(noise.len());
        let mut bytes = encode_header::<Strict>(ID);
        bytes.extend([&noise[..at], &Strict::FRAME, &noise[at..]].concat());
        let scan = read(&bytes);
        prop_assert_eq!((scan.records, scan.valid_len), (0, HEADER_LEN as u64));
    }

    #[test]
    fn whatever_rots_no_record_is_made_up_and_the_valid_part_reads_the_same_again(batches in batches(), at: prop::sample::Index, byte: u8) {
        let (mut file, _) = lenient(&batches);
        let at = HEADER_LEN + at.index(file.len() - HEADER_LEN);
        file[at] = byte;
        let (records, scan) = read_lenient(&file);
        let all = batches.concat();
        let mut rest = all.iter();
        prop_assert!(records.iter().all(|record| rest.any(|written| written == record)));
        let (again, cut) = read_lenient(&file[..scan.valid_len as usize]);
        prop_assert_eq!(&again, &records);
        prop_assert_eq!(cut.valid_len, scan.valid_len);
        // What is appended there is read.
        let mut on = file[..scan.valid_len as usize].to_vec();
        let mut batch = Batch::<Lenient>::new(scan.next);
        batch.push(&vec![99], &[]).unwrap();
        on.extend(batch.bytes());
        let (more, _) = read_lenient(&on);
        prop_assert_eq!(more.len(), records.len() + 1);
    }
}
