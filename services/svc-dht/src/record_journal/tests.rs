//! What a restart finds, wherever the file was torn or rotted.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::id::Id;

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
}
