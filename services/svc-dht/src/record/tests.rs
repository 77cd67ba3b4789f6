//! What counts as a record: its form, its time, its signature.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

const HOUR: u64 = 3_600_000;
const NOW: u64 = 1_700_000_000_000;

fn identity(seed: u8) -> Identity {
    Identity::from_seed(&[seed; 32])
}

fn contact_of(who: &Identity) -> Contact {
    Contact {
        id: who.id(),
        addr: SocketAddr::from(([10, 0, 0, 1], 4100)).into(),
    }
}

fn value(seq: u64) -> Record {
    Record::sign_value(&identity(1), b"name", b"some value", seq, NOW, HOUR)
}

fn provider(seed: u8) -> Record {
    let who = identity(seed);
    Record::sign_provider(&who, Id([7; 32]), &contact_of(&who), 1, NOW, HOUR)
}

fn check(record: &Record) -> Result<(), RecordError> {
    record.check_shape(&RecordLimits::default(), NOW)
}

#[test]
fn what_was_signed_passes_and_says_what_it_holds() {
    let (value, provider) = (value(1), provider(2));
    for record in [&value, &provider] {
        assert_eq!(check(record), Ok(()));
        assert!(record.check_signature());
        assert_eq!(Record::decode(&record.encode()).as_ref(), Ok(record));
    }
    assert_eq!(value.value(), Some((&b"name"[..], &b"some value"[..])));
    assert_eq!(value.provider_contact(), None);
    assert_eq!(provider.value(), None);
    assert_eq!(provider.provider_contact(), Some(contact_of(&identity(2))));
}

#[test]
fn nobody_writes_over_the_value_of_another() {
    let theirs = value(1);
    let mut mine = Record::sign_value(&identity(9), b"name", b"mine", 5, NOW, HOUR);
    assert_ne!(mine.key, theirs.key);
    let body = mine.body.clone();
    mine = Record::sign(
        &identity(9),
        RecordKind::Value,
        theirs.key,
        5,
        NOW,
        HOUR,
        body,
    );
    assert!(mine.check_signature());
    assert_eq!(check(&mine), Err(RecordError::WrongKey));
}

#[test]
fn nobody_provides_in_the_name_of_another() {
    let victim = contact_of(&identity(1));
    let record = Record::sign_provider(&identity(9), Id([7; 32]), &victim, 1, NOW, HOUR);
    assert_eq!(check(&record), Err(RecordError::WrongProvider));
}

#[test]
fn a_provider_must_be_somewhere() {
    let who = identity(1);
    let mut contact = contact_of(&who);
    contact.addr = SocketAddr::from(([10, 0, 0, 1], 0)).into();
    let record = Record::sign_provider(&who, Id([7; 32]), &contact, 1, NOW, HOUR);
    assert_eq!(check(&record), Err(RecordError::BadBody));
    let key = Id([7; 32]);
    let record = Record::sign(&who, RecordKind::Provider, key, 1, NOW, HOUR, vec![1; 39]);
    assert_eq!(check(&record), Err(RecordError::BadBody));
}

#[test]
fn a_value_has_at_most_16_kib_and_its_name_at_most_255_bytes() {
    for (name, value, expected) in [
        (255, 16 * 1024, Ok(())),
        (0, 0, Ok(())),
        (256, 0, Err(RecordError::TooLarge)),
        (0, 16 * 1024 + 1, Err(RecordError::TooLarge)),
    ] {
        let record =
            Record::sign_value(&identity(1), &vec![1; name], &vec![2; value], 1, NOW, HOUR);
        assert_eq!(check(&record), expected, "{name} {value}");
    }
    assert_eq!(RecordError::TooLarge.refusal(), RefusalCode::TooLarge);
}

#[test]
fn a_record_counts_from_its_making_to_its_end_give_or_take_the_skew() {
    let limits = RecordLimits::default();
    let skew = limits.clock_skew_ms;
    let record = value(1);
    for (now, expected) in [
        (NOW - skew - 1, Err(RecordError::Early)),
        (NOW - skew, Ok(())),
        (NOW + HOUR + skew - 1, Ok(())),
        (NOW + HOUR + skew, Err(RecordError::Expired)),
        (u64::MAX, Err(RecordError::Expired)),
        (0, Err(RecordError::Early)),
    ] {
        assert_eq!(record.check_shape(&limits, now), expected, "{now}");
    }
    assert_eq!(RecordError::Early.refusal(), RefusalCode::Expired);
}

#[test]
fn a_time_to_live_is_something_and_not_too_long() {
    let day = 24 * HOUR;
    for (ttl, expected) in [
        (0, Err(RecordError::BadTtl)),
        (1, Ok(())),
        (day, Ok(())),
        (day + 1, Err(RecordError::BadTtl)),
        (u64::MAX, Err(RecordError::BadTtl)),
    ] {
        let record = Record::sign_value(&identity(1), b"n", b"v", 1, NOW, ttl);
        assert_eq!(check(&record), expected, "{ttl}");
    }
}

#[test]
fn the_higher_sequence_wins_and_of_one_sequence_the_later() {
    let old = value(1);
    let new = Record::sign_value(&identity(1), b"name", b"a", 2, NOW - 1000, HOUR);
    assert!(new.supersedes(&old) && !old.supersedes(&new));
    assert!(!old.supersedes(&old));
    let renewed = old.renewed(&identity(1), NOW + 1);
    assert!(renewed.supersedes(&old) && renewed.check_signature());
    assert_eq!(
        (renewed.value(), renewed.key, renewed.seq),
        (old.value(), old.key, old.seq)
    );
}

#[test]
fn a_cut_record_or_one_with_more_behind_it_is_refused() {
    let whole = provider(1).encode();
    for cut in 0..whole.len() {
        assert!(Record::decode(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(Record::decode(&longer), Err(CborError::Trailing));
}

#[test]
fn any_flipped_bit_breaks_the_check_of_a_record() {
    for record in [value(1), provider(1)] {
        let whole = record.encode();
        for bit in 0..whole.len() * 8 {
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let passes = Record::decode(&broken).is_ok_and(|r| r.check_signature());
            assert!(!passes, "bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(
        provider: bool, key: [u8; 32], publisher: [u8; 32], seq: u64, created_ms: u64, ttl_ms: u64,
        body: Vec<u8>, signature in proptest::collection::vec(any::<u8>(), 64),
    ) {
        let record = Record {
            kind: if provider { RecordKind::Provider } else { RecordKind::Value },
            key: Id(key),
            publisher,
            seq,
            created_ms,
            ttl_ms,
            body,
            signature: signature.try_into().unwrap(),
        };
        let read = Record::decode(&record.encode());
        prop_assert_eq!(read.as_ref(), Ok(&record));
        // Whatever it claims: nothing overflows or panics, and nobody's signature fits it.
        let _ = record.check_shape(&RecordLimits::default(), NOW);
        prop_assert!(!record.check_signature());
    }

    #[test]
    fn what_reads_as_a_record_is_what_is_written(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode(), bytes);
        }
    }
}
