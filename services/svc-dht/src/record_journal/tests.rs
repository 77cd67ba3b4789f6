//! What a restart finds, wherever the file was torn or rotted.

use proptest::{collection::vec, prelude::*, sample::Index};

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

fn entries() -> impl Strategy<Value = Entry> {
    let records = (any::<u64>(), 0..300_usize).prop_map(|(seq, body)| record(seq, body));
    let names = (any::<bool>(), any::<[u8; 32]>(), any::<[u8; 32]>());
    prop_oneof![
        records.clone().prop_map(Entry::Held),
        records.prop_map(Entry::Published),
        names.prop_map(|(value, key, publisher)| Entry::Withdrawn(RecordName {
            kind: if value {
                RecordKind::Value
            } else {
                RecordKind::Provider
            },
            key: Id(key),
            publisher,
        })),
    ]
}

/// The file of these entries, and where each of them ends.
fn file_of(entries: &[Entry]) -> (Vec<u8>, Vec<usize>) {
    let mut file = encode_header();
    let mut ends = vec![file.len()];
    for entry in entries {
        put_entry(&mut file, entry);
        ends.push(file.len());
    }
    (file, ends)
}

fn read(file: &[u8]) -> (Vec<Entry>, Scan) {
    let mut read = Vec::new();
    let scan = scan(file, |entry| read.push(entry)).unwrap();
    (read, scan)
}

#[test]
fn a_file_torn_at_any_byte_holds_the_entries_before() {
    let entries: Vec<_> = (0..4).map(|seq| Entry::Held(record(seq, 20))).collect();
    let (file, ends) = file_of(&entries);
    for cut in 0..=file.len() {
        let (read, scan) = read(&file[..cut]);
        let whole = ends
            .iter()
            .filter(|end| **end <= cut)
            .count()
            .saturating_sub(1);
        assert_eq!(read, entries[..whole], "cut at {cut}");
        let valid = if cut < HEADER_LEN { 0 } else { ends[whole] };
        assert_eq!(
            (scan.valid_len, scan.damaged),
            (valid as u64, 0),
            "cut at {cut}"
        );
    }
}

#[test]
fn an_entry_that_rotted_is_skipped_and_counted_and_the_last_is_cut_off() {
    let entries: Vec<_> = (0..3)
        .map(|seq| Entry::Published(record(seq, 20)))
        .collect();
    let (file, ends) = file_of(&entries);
    for (entry, damaged, valid) in [(0, 1, ends[3]), (1, 1, ends[3]), (2, 0, ends[2])] {
        let mut rotten = file.clone();
        rotten[ends[entry] + HEAD + 9] ^= 4;
        let (read, scan) = read(&rotten);
        let mut left = entries.clone();
        left.remove(entry);
        assert_eq!(read, left);
        assert_eq!((scan.damaged, scan.valid_len), (damaged, valid as u64));
    }
}

#[test]
fn another_file_is_left_alone() {
    let refused = |bytes: &[u8]| scan(bytes, |_| ()).unwrap_err();
    assert_eq!(
        refused(b"something else entirely"),
        JournalError::NotAJournal
    );
    assert_eq!(refused(b"x"), JournalError::NotAJournal);
    let mut newer = encode_header();
    newer[9] = 2;
    assert_eq!(refused(&newer), JournalError::Newer { found: 2 });
    assert!(
        JournalError::Newer { found: 2 }
            .to_string()
            .contains("newer svc-dht")
    );
    let mut damaged = encode_header();
    damaged[12] ^= 1;
    assert_eq!(refused(&damaged), JournalError::Damaged);
}

#[test]
fn a_length_beyond_the_file_or_the_cap_is_not_believed() {
    for length in [0, 1000, MAX_ENTRY_BYTES as u32 + 1, u32::MAX] {
        let mut file = encode_header();
        file.extend(length.to_be_bytes());
        file.extend([0; 100]);
        let (read, scan) = read(&file);
        assert_eq!((read.len(), scan.valid_len), (0, HEADER_LEN as u64));
    }
}

#[test]
fn the_longest_record_fits_an_entry() {
    use crate::record::{MAX_NAME_BYTES, MAX_VALUE_BYTES};
    let longest = record(1, MAX_VALUE_BYTES + MAX_NAME_BYTES + 16);
    let mut file = encode_header();
    put_record(&mut file, false, &longest);
    assert!(file.len() as u64 <= HEADER_LEN as u64 + record_len(&longest));
    assert_eq!(read(&file).0, [Entry::Held(longest)]);
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
    fn entries_are_read_as_they_were_written(entries in vec(entries(), 0..8), torn in vec(any::<u8>(), 0..20)) {
        let (mut file, ends) = file_of(&entries);
        // A torn write leaves garbage; it may begin like an entry but is none.
        file.extend(torn);
        let (read, scan) = read(&file);
        prop_assert_eq!(&read, &entries);
        prop_assert_eq!(scan.valid_len as usize, ends[entries.len()]);
        prop_assert_eq!(scan.entries as usize, entries.len());
    }

    #[test]
    fn whatever_rots_no_entry_is_made_up(entries in vec(entries(), 1..6), at: Index, byte: u8) {
        let (mut file, _) = file_of(&entries);
        let at = HEADER_LEN + at.index(file.len() - HEADER_LEN);
        file[at] = byte;
        let (read, scan) = read(&file);
        let mut rest = entries.iter();
        prop_assert!(read.iter().all(|entry| rest.any(|written| written == entry)));
        prop_assert!(scan.valid_len as usize <= file.len());
    }

    #[test]
    fn the_valid_part_of_any_bytes_reads_the_same_again(body in vec(any::<u8>(), 0..200)) {
        let file = [encode_header(), body].concat();
        let (first, found) = read(&file);
        let (again, cut) = read(&file[..found.valid_len as usize]);
        prop_assert_eq!(again, first);
        prop_assert_eq!(cut, found);
    }

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
        let mut file = encode_header();
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
            match choice {
                0 => if store.withdraw(&name).is_some() {
                    put_entry(&mut file, &Entry::Withdrawn(name));
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
                        put_taken(&mut file, published, &record, &put);
                    }
                }
            }
        }
        now += later;
        store.expire(now);
        for file in [compacted(&store), file] {
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
