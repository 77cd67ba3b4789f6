//! The quotas, who gives way, and what readers see.

use proptest::{collection::vec, prelude::*};

use super::*;

const NOW: u64 = 1_000_000;
const TTL: u64 = 10_000;
const SKEW: u64 = 100;
const ME: Id = Id([0; 32]);

fn quotas() -> StoreQuotas {
    StoreQuotas {
        per_publisher: 4,
        providers_per_key: 3,
        max_bytes: 8 * (RECORD_OVERHEAD_BYTES + 10),
        published: 2,
        clock_skew_ms: SKEW,
    }
}

fn store() -> RecordStore {
    RecordStore::new(ME, quotas())
}

/// `far` is its distance from [`ME`], in the last byte and beyond.
fn record(kind: RecordKind, far: u16, publisher: u8, seq: u64) -> Record {
    let mut key = [0; 32];
    key[30..].copy_from_slice(&far.to_be_bytes());
    Record {
        kind,
        key: Id(key),
        publisher: [publisher; 32],
        seq,
        created_ms: NOW,
        ttl_ms: TTL,
        body: vec![seq as u8; 10],
        signature: [publisher; 64],
    }
}

fn value(far: u16, publisher: u8, seq: u64) -> Record {
    record(RecordKind::Value, far, publisher, seq)
}

fn provider(far: u16, publisher: u8, seq: u64) -> Record {
    record(RecordKind::Provider, far, publisher, seq)
}

/// Everything in it, in its time or not.
fn all(store: &RecordStore) -> Vec<Arc<Record>> {
    store.contents().map(|(record, _)| record).collect()
}

/// Whether a record replaced another, and how many gave way.
fn taken(put: Result<Put, RefusalCode>) -> (bool, usize) {
    let put = put.unwrap();
    (matches!(put, Put::Newer { .. }), put.evicted().len())
}

fn check(store: &RecordStore) {
    let all = all(store);
    assert_eq!(store.records(), all.len());
    assert_eq!(store.bytes(), all.iter().map(|r| weight(r)).sum::<usize>());
    assert!(
        store.bytes() <= store.quotas.max_bytes,
        "{} bytes",
        store.bytes()
    );
    assert!(store.published.len() <= store.quotas.published);
    assert_eq!(
        store.published().count(),
        store.published.len(),
        "none of ours is lost"
    );
    let names: BTreeSet<_> = all.iter().map(|r| RecordName::of(r)).collect();
    assert_eq!(names.len(), all.len(), "one record of each name");
    let mut publishers = BTreeMap::new();
    let mut providers = BTreeMap::new();
    for name in names.difference(&store.published) {
        *publishers.entry(name.publisher).or_insert(0) += 1;
        if name.kind == RecordKind::Provider {
            *providers.entry(name.key).or_insert(0) += 1;
        }
    }
    assert_eq!(store.publishers, publishers);
    assert!(
        publishers
            .values()
            .all(|n| *n <= store.quotas.per_publisher)
    );
    assert!(
        providers
            .values()
            .all(|n| *n <= store.quotas.providers_per_key)
    );
}

#[test]
fn an_empty_store_costs_next_to_nothing() {
    assert!(size_of::<Shared>() + size_of::<RecordStore>() < 512);
    assert_eq!(store().reader().value(&ME, NOW), None);
    assert!(store().reader().providers(&ME, NOW, 9).is_empty());
    assert_eq!(store().reader().all(NOW).count(), 0);
}

#[test]
fn the_newest_sequence_wins_whatever_comes_when() {
    let mut store = store();
    let reader = store.reader();
    assert_eq!(taken(store.put(value(1, 1, 5), NOW)), (false, 0));
    assert_eq!(store.put(value(1, 1, 5), NOW), Ok(Put::Same));
    assert_eq!(store.put(value(1, 1, 4), NOW), Err(RefusalCode::Stale));
    assert_eq!(taken(store.put(value(1, 1, 6), NOW)), (true, 0));
    assert_eq!(store.put(value(1, 1, 5), NOW), Err(RefusalCode::Stale));
    assert_eq!(
        *reader.value(&value(1, 1, 0).key, NOW).unwrap(),
        value(1, 1, 6)
    );
    check(&store);
}

#[test]
fn an_old_record_does_not_come_back_while_its_successor_is_held_past_its_time() {
    let mut store = store();
    let mut short = value(1, 1, 6);
    short.ttl_ms = 1;
    store.put(short, NOW).unwrap();
    let late = NOW + SKEW + 1;
    assert_eq!(store.reader().value(&value(1, 1, 0).key, late), None);
    assert_eq!(store.put(value(1, 1, 5), late), Err(RefusalCode::Stale));
}

#[test]
fn a_record_out_of_its_time_is_neither_taken_nor_given() {
    let mut store = store();
    let reader = store.reader();
    let (key, end) = (value(1, 1, 1).key, NOW + TTL + SKEW);
    assert_eq!(
        store.put(value(1, 1, 1), NOW - SKEW - 1),
        Err(RefusalCode::Expired)
    );
    assert_eq!(store.put(value(1, 1, 1), end), Err(RefusalCode::Expired));
    store.put(value(1, 1, 1), NOW).unwrap();
    store.put(provider(1, 1, 1), NOW).unwrap();
    for (now, given) in [(NOW - SKEW - 1, 0), (NOW - SKEW, 1), (end - 1, 1), (end, 0)] {
        assert_eq!(
            usize::from(reader.value(&key, now).is_some()),
            given,
            "{now}"
        );
        assert_eq!(reader.providers(&key, now, 9).len(), given, "{now}");
        assert_eq!(reader.all(now).count(), 2 * given, "{now}");
    }
    assert!(store.expire(end - 1).is_empty());
    assert_eq!(store.expire(end).len(), 2);
    assert_eq!((store.records(), store.bytes()), (0, 0));
    assert!(
        store
            .shared
            .shards
            .iter()
            .all(|shard| shard.load().is_none())
    );
    check(&store);
}

#[test]
fn a_key_has_many_providers_but_not_too_many_and_one_record_of_each() {
    let mut store = store();
    for publisher in 1..=3 {
        store.put(provider(1, publisher, 1), NOW).unwrap();
    }
    assert_eq!(store.put(provider(1, 4, 1), NOW), Err(RefusalCode::Quota));
    assert_eq!(taken(store.put(provider(1, 3, 2), NOW)), (true, 0));
    assert!(store.put(provider(2, 4, 1), NOW).is_ok());
    assert!(
        store.put(value(1, 4, 1), NOW).is_ok(),
        "a value there is another matter"
    );
    let found = store.reader().providers(&provider(1, 1, 0).key, NOW, 9);
    let found: Vec<_> = found.iter().map(|r| (r.publisher[0], r.seq)).collect();
    assert_eq!(found, [(1, 1), (2, 1), (3, 2)]);
    assert_eq!(
        store
            .reader()
            .providers(&provider(1, 1, 0).key, NOW, 2)
            .len(),
        2
    );
    check(&store);
}

#[test]
fn a_publisher_has_so_many_records_and_no_more() {
    let mut store = store();
    for far in 1..=4 {
        store.put(value(far, 1, 1), NOW).unwrap();
    }
    assert_eq!(store.put(value(5, 1, 1), NOW), Err(RefusalCode::Quota));
    assert!(store.put(value(4, 1, 2), NOW).is_ok());
    assert!(store.put(value(5, 2, 1), NOW).is_ok());
    check(&store);
}

#[test]
fn when_full_the_farthest_gives_way_to_a_nearer_one_and_to_no_other() {
    let mut store = store();
    for n in 0..8_u8 {
        store
            .put(value(100 + u16::from(n) * 300, n / 4, 1), NOW)
            .unwrap();
    }
    let before = all(&store);
    assert_eq!(
        store.put(value(2201, 9, 1), NOW),
        Err(RefusalCode::Quota),
        "farther than all"
    );
    let mut huge = value(2100, 9, 1);
    huge.body = vec![0; 3000];
    assert_eq!(
        store.put(huge, NOW),
        Err(RefusalCode::Quota),
        "one does not make that room"
    );
    assert_eq!(all(&store), before, "who is refused costs nobody anything");
    assert_eq!(taken(store.put(value(50, 9, 1), NOW)), (false, 1));
    assert_eq!(store.reader().value(&value(2200, 1, 0).key, NOW), None);
    let mut twice = value(60, 9, 1);
    twice.body = vec![0; 10 + RECORD_OVERHEAD_BYTES];
    assert_eq!(taken(store.put(twice, NOW)), (false, 2));
    check(&store);
}

#[test]
fn what_is_published_here_never_gives_way_and_outlives_its_time() {
    let mut store = store();
    store.publish(value(60_000, 7, 1), NOW).unwrap();
    for n in 0..8_u8 {
        let put = store.put(value(100 + u16::from(n), n / 4, 1), NOW);
        assert_eq!(put.is_ok(), n < 7);
    }
    assert!(store.put(value(1, 9, 1), NOW).is_ok());
    let late = NOW + 10 * TTL;
    assert_eq!(store.expire(late).len(), 7);
    let published: Vec<_> = store.published().map(|r| (*r).clone()).collect();
    assert_eq!(published, [value(60_000, 7, 1)]);
    assert_eq!(
        store.reader().value(&value(60_000, 7, 0).key, late),
        None,
        "until it is renewed"
    );
    let mut renewed = value(60_000, 7, 1);
    renewed.created_ms = late;
    assert_eq!(taken(store.publish(renewed, late)), (true, 0));
    assert!(
        store
            .reader()
            .value(&value(60_000, 7, 0).key, late)
            .is_some()
    );

    store.publish(value(60_001, 7, 1), late).unwrap();
    assert_eq!(
        store.publish(value(60_002, 7, 1), late),
        Err(RefusalCode::Quota)
    );
    check(&store);
    let name = RecordName::of(&value(60_001, 7, 0));
    assert!(store.withdraw(&name).is_some());
    assert!(store.withdraw(&name).is_none());
    assert!(store.publish(value(60_002, 7, 1), late).is_ok());
    check(&store);
}

#[test]
fn a_record_of_ours_that_came_from_elsewhere_can_still_be_published() {
    let mut store = store();
    store.put(value(1, 7, 1), NOW).unwrap();
    assert_eq!(store.publish(value(1, 7, 1), NOW), Ok(Put::Same));
    check(&store);
    store.put(value(2, 7, 1), NOW).unwrap();
    assert_eq!(taken(store.publish(value(2, 7, 2), NOW)), (true, 0));
    check(&store);
    store.put(value(2, 7, 3), NOW).unwrap();
    assert_eq!(store.published().count(), 2);
    check(&store);
}

#[derive(Clone, Debug)]
enum Step {
    Put(Record),
    Publish(Record),
    Withdraw(RecordName),
    Expire,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kinds = prop_oneof![Just(RecordKind::Value), Just(RecordKind::Provider)];
    let numbers = (0..12_u16, 0..5_u8, 0..4_u64);
    let times = (0..30_000_u64, 1..20_000_u64, 0..600_usize);
    let records = (kinds, numbers, times).prop_map(
        |(kind, (far, publisher, seq), (created, ttl_ms, body))| Record {
            created_ms: NOW + created,
            ttl_ms,
            body: vec![0; body],
            ..record(kind, far * 40, publisher, seq)
        },
    );
    let step = prop_oneof![
        8 => records.clone().prop_map(Step::Put),
        2 => records.clone().prop_map(Step::Publish),
        1 => records.prop_map(|record| Step::Withdraw(RecordName::of(&record))),
        1 => Just(Step::Expire),
        4 => (0..5_000_u64).prop_map(Step::Wait),
    ];
    vec(step, 0..80)
}

proptest! {
    #[test]
    fn the_quotas_hold_and_readers_get_the_newest_in_its_time_whatever_happens(steps in steps()) {
        let mut store = store();
        let reader = store.reader();
        let mut newest: BTreeMap<RecordName, Record> = BTreeMap::new();
        let mut now = NOW;
        for step in steps {
            let before: Vec<_> = all(&store);
            match step {
                Step::Wait(ms) => now += ms,
                Step::Expire => {
                    for gone in store.expire(now) {
                        prop_assert_eq!(gone.check_time(SKEW, now), Err(crate::record::RecordError::Expired));
                    }
                    let left = all(&store);
                    let ours = |r: &Record| store.published.contains(&RecordName::of(r));
                    prop_assert!(left.iter().all(|r| ours(r) || r.ends_ms() + SKEW > now));
                }
                Step::Withdraw(name) => {
                    let _ = store.withdraw(&name);
                }
                Step::Put(record) | Step::Publish(record) if before.iter().any(|r| **r == record) => {
                    prop_assert!(record.check_time(SKEW, now).is_err() || store.put(record, now) == Ok(Put::Same));
                }
                Step::Put(record) => match store.put(record.clone(), now) {
                    Ok(_) => {
                        let far = |r: &Record| ME.distance(&r.key);
                        let left = all(&store);
                        let gone = before.iter().filter(|r| !left.contains(r));
                        let gone = gone.filter(|r| RecordName::of(r) != RecordName::of(&record));
                        for gone in gone {
                            let name = RecordName::of(&record);
                            prop_assert!(far(gone) > far(&record) || store.published.contains(&name));
                        }
                        newest.insert(RecordName::of(&record), record);
                    }
                    Err(_) => prop_assert_eq!(all(&store), before),
                },
                Step::Publish(record) => match store.publish(record.clone(), now) {
                    Ok(_) => {
                        newest.insert(RecordName::of(&record), record);
                    }
                    Err(_) => prop_assert_eq!(all(&store), before),
                },
            }
            check(&store);
            for (name, newest) in &newest {
                let mut found = reader.providers(&name.key, now, usize::MAX);
                found.extend(reader.value(&name.key, now));
                for found in found.iter().filter(|r| RecordName::of(r) == *name) {
                    prop_assert_eq!(&**found, newest);
                    prop_assert!(found.check_time(SKEW, now).is_ok());
                }
            }
        }
    }
}

#[test]
fn readers_see_whole_records_and_never_an_older_one_again() {
    const LAST: u64 = 2_000;
    let mut store = RecordStore::new(ME, StoreQuotas::default());
    let whole = |seq: u64| {
        let mut record = value(1, 1, seq);
        record.body = seq.to_be_bytes().repeat(64);
        record
    };
    store.put(whole(1), NOW).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let reader = store.reader();
            scope.spawn(move || {
                let mut seen = 0;
                while seen < LAST {
                    let found = reader
                        .value(&value(1, 1, 0).key, NOW)
                        .expect("there is always one");
                    assert!(found.seq >= seen);
                    seen = found.seq;
                    assert_eq!(*found, whole(seen));
                }
            });
        }
        for seq in 2..=LAST {
            store.put(whole(seq), NOW).unwrap();
            // Others come and go in the same shard.
            store.put(provider(33, (seq % 50) as u8, seq), NOW).unwrap();
        }
    });
}
