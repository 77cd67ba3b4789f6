//! The file of records, cut, flipped and shuffled: what is valid is read, and why it ends is told.

use proptest::prelude::*;

use super::{super::record::Event, *};

const ID: LogId = [5; 16];

fn record(index: u64) -> Record {
    let event = Event::Reserve { end: index * 10 };
    let at_ms = 1_700_000_000_000 + index;
    Record {
        index,
        at_ms,
        event,
    }
}

/// A file of batches of these sizes, and where each batch begins.
fn file(batches: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = encode_header(ID);
    let (mut index, mut starts) = (0, Vec::new());
    for size in batches {
        starts.push(bytes.len());
        let mut batch = Batch::new(index);
        for _ in 0..*size {
            batch.push(&record(index), &attachment(index)).unwrap();
            index += 1;
        }
        bytes.extend(batch.bytes());
    }
    starts.push(bytes.len());
    (bytes, starts)
}

fn attachment(index: u64) -> Vec<u8> {
    vec![0xcd; index as usize % 3]
}

/// A frame with a sound check, whatever it holds.
fn frame(leaf: &[u8], batch_first: u64) -> Vec<u8> {
    let mut head = FRAME_MAGIC.to_vec();
    head.extend((leaf.len() as u16).to_be_bytes());
    head.extend([0; 4]);
    head.extend(batch_first.to_be_bytes());
    let check = checksum(&[&head, leaf]);
    [&head[..], &check, leaf].concat()
}

fn read(bytes: &[u8]) -> Scan {
    let mut seen = 0;
    let (id, scan) = scan(bytes, |framed| {
        assert_eq!(framed.record, record(seen));
        assert_eq!(framed.leaf, record(seen).encode().unwrap());
        assert_eq!(framed.attachment, attachment(seen));
        seen += 1;
    })
    .unwrap();
    assert_eq!((id, seen), (ID, scan.records));
    scan
}

/// Bytes up to the end of the `n`-th record.
fn length_of(n: u64) -> u64 {
    let (bytes, _) = file(&[n]);
    bytes.len() as u64
}

#[test]
fn a_whole_file_reads_back() {
    let (bytes, starts) = file(&[1, 3, 2]);
    let expected = Scan {
        records: 6,
        valid_len: bytes.len() as u64,
        last_batch: starts[2] as u64,
        end: End::Clean,
    };
    assert_eq!(read(&bytes), expected);
    let (empty, _) = file(&[]);
    assert_eq!(read(&empty).end, End::Clean);
}

#[test]
fn a_file_cut_anywhere_keeps_its_whole_records_and_is_torn() {
    let (bytes, _) = file(&[2, 3]);
    for cut in HEADER_LEN..bytes.len() {
        let scan = read(&bytes[..cut]);
        let whole = (0..5).rfind(|n| length_of(*n) <= cut as u64).unwrap();
        assert_eq!((scan.records, scan.valid_len), (whole, length_of(whole)));
        let expected = match scan.valid_len == cut as u64 {
            true => End::Clean,
            false => End::Torn(Broken::Incomplete),
        };
        assert_eq!(scan.end, expected, "cut at {cut}");
    }
}

#[test]
fn a_flipped_byte_is_corruption_before_the_last_batch_and_torn_within_it() {
    let (bytes, starts) = file(&[2, 3]);
    for at in HEADER_LEN..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x40;
        let scan = read(&bad);
        let durable = at < starts[1];
        match scan.end {
            End::Corrupt(_) => assert!(durable, "a torn write at {at} taken for corruption"),
            End::Torn(_) => assert!(!durable, "corruption at {at} would be cut off"),
            _ => panic!("a flip at {at} went unnoticed"),
        }
        assert!(scan.valid_len <= at as u64);
        assert_eq!(scan.valid_len, length_of(scan.records));
    }
}

#[test]
fn pages_of_one_batch_that_arrived_out_of_order_are_a_torn_write() {
    let (bytes, starts) = file(&[2, 3]);
    let mut bad = bytes.clone();
    // The first record of the last batch never reached the disk, those behind it did.
    let second = length_of(3) as usize;
    bad[starts[1]..second].fill(0);
    let scan = read(&bad);
    assert_eq!(scan.records, 2);
    assert_eq!(scan.end, End::Torn(Broken::NoFrame));
}

#[test]
fn a_repeated_or_missing_record_is_no_record() {
    let (bytes, starts) = file(&[1, 1, 1]);
    let without = [&bytes[..starts[1]], &bytes[starts[2]..]].concat();
    let scan = read(&without);
    let wrong = Broken::WrongIndex {
        expected: 1,
        found: 2,
    };
    assert_eq!((scan.records, scan.end), (1, End::Corrupt(wrong)));
    let twice = [&bytes[..], &bytes[starts[2]..]].concat();
    let wrong = Broken::WrongIndex {
        expected: 3,
        found: 2,
    };
    assert_eq!(read(&twice).end, End::Torn(wrong));
}

#[test]
fn a_newer_record_ends_the_reading_and_is_never_cut_off() {
    let (mut bytes, _) = file(&[1]);
    let valid_len = bytes.len() as u64;
    let leaf = br#"{"v":9,"what":"ever"}"#;
    bytes.extend(frame(leaf, 1));
    let expected = Scan {
        records: 1,
        valid_len,
        last_batch: HEADER_LEN as u64,
        end: End::Newer { found: 9 },
    };
    assert_eq!(read(&bytes), expected);
}

#[test]
fn a_record_before_the_first_of_its_batch_is_no_record() {
    let mut bytes = encode_header(ID);
    let leaf = record(0).encode().unwrap();
    bytes.extend(frame(&leaf, 5));
    let wrong = Broken::WrongIndex {
        expected: 0,
        found: 0,
    };
    assert_eq!(read(&bytes).end, End::Corrupt(wrong));
}

#[test]
fn headers_are_told_apart() {
    let good = encode_header(ID);
    assert_eq!(good.len(), HEADER_LEN);
    assert_eq!(decode_header(&good), Ok(ID));
    let mut newer = good.clone();
    newer[9] = 2;
    let error = decode_header(&newer).unwrap_err();
    assert_eq!(error, HeaderError::Newer { found: 2 });
    assert!(error.to_string().contains("with a newer ron-kms"));
    assert_eq!(decode_header(b"SQLite format 3"), Err(HeaderError::NotALog));
    assert_eq!(decode_header(b"short"), Err(HeaderError::NotALog));
    for cut in 0..HEADER_LEN {
        let refused = decode_header(&good[..cut]);
        assert_eq!(refused, Err(HeaderError::Damaged), "cut at {cut}");
    }
    for at in 8..HEADER_LEN {
        let mut bad = good.clone();
        bad[at] ^= 0x01;
        assert!(decode_header(&bad).is_err(), "flip at {at}");
    }
}

#[test]
fn a_batch_takes_no_oversized_attachment() {
    let mut batch = Batch::new(0);
    let long = vec![0; MAX_ATTACHMENT + 1];
    let refused = batch.push(&record(0), &long);
    assert_eq!(refused, Err(FrameError::Attachment(MAX_ATTACHMENT + 1)));
    assert!(batch.is_empty());
    batch.push(&record(0), &long[1..]).unwrap();
    let mut scanner = Scanner::new();
    scanner.feed(batch.bytes(), |framed| {
        assert_eq!(framed.attachment.len(), MAX_ATTACHMENT);
    });
    assert_eq!(scanner.finish(|_| {}).records, 1);
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_anything_is_read() {
    let mut bytes = encode_header(ID);
    bytes.extend(FRAME_MAGIC);
    bytes.extend([0, 1]);
    bytes.extend(u32::MAX.to_be_bytes());
    bytes.extend([0; 64]);
    assert_eq!(read(&bytes).end, End::Torn(Broken::BadLength));
}

proptest! {
    #[test]
    fn pieces_of_any_size_read_the_same(batches in prop::collection::vec(1_u64..5, 0..6), cut in 0_usize..2000, flip in 0_usize..2000, step in 1_usize..200) {
        let (mut bytes, _) = file(&batches);
        let cut = HEADER_LEN + cut % (bytes.len() - HEADER_LEN + 1);
        bytes.truncate(cut);
        if flip % 2 == 0 && cut > HEADER_LEN {
            bytes[HEADER_LEN + flip % (cut - HEADER_LEN)] ^= 1;
        }
        let whole = read(&bytes);
        let mut scanner = Scanner::new();
        let mut records = Vec::new();
        for piece in bytes[HEADER_LEN..].chunks(step) {
            scanner.feed(piece, |framed| records.push(framed.record));
        }
        let in_pieces = scanner.finish(|framed| records.push(framed.record));
        prop_assert_eq!(records.len() as u64, whole.records);
        prop_assert_eq!(in_pieces, whole);
    }

    #[test]
    fn any_bytes_are_read_without_panic(noise in prop::collection::vec(any::<u8>(), 0..400), magic_at in 0_usize..400) {
        let mut bytes = encode_header(ID);
        bytes.extend(&noise[..magic_at.min(noise.len())]);
        bytes.extend(FRAME_MAGIC);
        bytes.extend(&noise[magic_at.min(noise.len())..]);
        let (_, scan) = scan(&bytes, |_| {}).unwrap();
        prop_assert_eq!((scan.records, scan.valid_len), (0, HEADER_LEN as u64));
    }
}
