//! What a restart finds.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    id::Id,
    record_store::{RECORD_OVERHEAD_BYTES, StoreQuotas},
};

fn record(seq: u64, body: usize) -> Record {
    Record {
        kind: RecordKind::Value,
        key: Id([seq as u8; 32]),
        publisher: [3; 32],
        seq,
        created_ms: 1,
        ttl_ms: 2,
        body: vec![seq as u8; body],
        signature: [4; 64],
    }
}

fn read(file: &[u8]) -> (Vec<Entry>, Scan) {
    let mut read = Vec::new();
    let scan = scan(file, |entry| read.push(entry)).unwrap();
    (read, scan)
}

/// Written by version 0.1.0: five entries, the second of which rotted, and a sixth that a crash tore.
const WRITTEN: &[u8] = include_bytes!("../../tests/data/records-v1.journal");

#[test]
fn a_file_of_the_first_version_is_read_as_that_did() {
    let (entries, scan) = read(WRITTEN);
    let names: Vec<u64> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Held(record) => record.seq,
            Entry::Published(record) => 100 + record.seq,
            Entry::Withdrawn(name) => 200 + u64::from(name.key.0[0]),
        })
        .collect();
    assert_eq!(names, [1, 103, 201, 4]);
    assert_eq!((scan.records, scan.rotten), (4, 1));
    assert!(matches!(scan.end, journal::End::Torn(_)));
    let (again, whole) = read(&WRITTEN[..scan.valid_len as usize]);
    assert_eq!((again, whole.end), (entries, journal::End::Clean));
    for at in [8, 9, 12] {
        let mut bad = WRITTEN.to_vec();
        bad[at] ^= 1;
        super::scan(&bad, |_| {}).unwrap_err();
    }
}

#[test]
fn a_header_that_a_crash_cut_is_begun_anew_and_another_file_left_alone() {
    for cut in 0..HEADER_LEN {
        let (entries, scan) = read(&encode_header()[..cut]);
        assert_eq!((entries.len(), scan.valid_len), (0, 0), "cut at {cut}");
    }
    let said = |bytes: &[u8]| super::scan(bytes, |_| {}).unwrap_err().to_string();
    assert!(said(b"something else entirely").contains("no record journal"));
    let mut newer = encode_header();
    newer[9] = 3;
    assert!(said(&newer).contains("newer svc-dht"));
}

#[test]
fn the_longest_record_fits_a_frame_and_every_kind_of_entry_reads_back() {
    use crate::record::{MAX_NAME_BYTES, MAX_VALUE_BYTES};
    let longest = record(1, MAX_VALUE_BYTES + MAX_NAME_BYTES + 16);
    let entries = [
        Entry::Withdrawn(RecordName::of(&longest)),
        Entry::Published(record(2, 0)),
        Entry::Held(longest),
    ];
    let mut batch = Batch::new(0);
    entries
        .iter()
        .for_each(|entry| put_entry(&mut batch, entry));
    let file = [&encode_header()[..], batch.bytes()].concat();
    let (read, scan) = read(&file);
    assert_eq!(read, entries);
    assert_eq!(scan.valid_len, file.len() as u64);
}

#[test]
fn what_rots_in_a_compacted_file_is_one_record() {
    let quotas = StoreQuotas {
        per_publisher: 9,
        providers_per_key: 9,
        max_bytes: 1 << 20,
        published: 9,
        clock_skew_ms: 0,
    };
    let mut store = RecordStore::new(Id([0; 32]), quotas);
    for seq in 1..=3 {
        let mut record = record(seq, 100);
        (record.created_ms, record.ttl_ms) = (0, 900);
        store.put(record, 1).unwrap();
    }
    let (file, next) = compacted(&store);
    assert_eq!((read(&file).0.len(), next), (3, 3));
    let each = (file.len() - HEADER_LEN) / 3;
    for rotten in [0, 1] {
        let mut bad = file.clone();
        bad[HEADER_LEN + each * rotten + 60] ^= 4;
        let (left, scan) = read(&bad);
        assert_eq!((left.len(), scan.rotten), (2, 1));
    }
}

#[test]
fn a_file_is_written_anew_once_half_of_it_is_dead() {
    for (file, live, expected) in [
        (0, 0, false),
        (COMPACT_FROM_BYTES, 0, false),
        (COMPACT_FROM_BYTES + 1, 0, true),
        (10_000_000, 5_000_000, false),
        (10_000_001, 5_000_000, true),
        (u64::MAX, u64::MAX, false),
    ] {
        assert_eq!(should_compact(file, live), expected, "{file} {live}");
    }
}

proptest! {
    #[test]
    fn a_store_comes_back_as_it_was_from_its_journal_and_from_a_compacted_one(
        steps in vec((0..40_u8, 0..5_u8, 0..4_u64, 0..400_usize, 0..20_u8), 0..60), later in 0..1000_u64,
    ) {
        let quotas = StoreQuotas {
            per_publisher: 5,
            providers_per_key: 3,
            max_bytes: 10 * (RECORD_OVERHEAD_BYTES + 100),
            published: 3,
            clock_skew_ms: 0,
        };
        let new = || crate::record_store::RecordStore::new(Id([0; 32]), quotas);
        let mut store = new();
        let (mut file, mut next) = (encode_header(), 0);
        let mut now = 0;
        for (far, publisher, seq, body, choice) in steps {
            let record = Record {
                kind: if far % 3 == 0 { RecordKind::Value } else { RecordKind::Provider },
                key: Id([far / 4; 32]),
                publisher: [publisher; 32],
                created_ms: now,
                ttl_ms: 900,
                ..record(seq, body)
            };
            let name = RecordName::of(&record);
            let mut batch = Batch::new(next);
            match choice {
                0 => if store.withdraw(&name).is_some() {
                    put_entry(&mut batch, &Entry::Withdrawn(name));
                },
                1 => now += 300,
                2 => drop(store.expire(now)),
                _ => {
                    let published = choice < 5;
                    let put = match published {
                        true => store.publish(record.clone(), now),
                        false => store.put(record.clone(), now),
                    };
                    if let Ok(put) = put {
                        put_taken(&mut batch, published, &record, &put);
                    }
                }
            }
            next = batch.next_index();
            file.extend(batch.bytes());
        }
        now += later;
        store.expire(now);
        for file in [compacted(&store).0, file] {
            let mut again = new();
            scan(&file, |entry| { replay(&mut again, entry, now); }).unwrap();
            prop_assert_eq!(
                again.contents().collect::<Vec<_>>(),
                store.contents().collect::<Vec<_>>()
            );
            prop_assert_eq!(again.bytes(), store.bytes());
        }
    }
}
