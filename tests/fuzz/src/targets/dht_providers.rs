//! Provider records from many submitters at once, against the one who keeps them and those who read meanwhile.
//!
//! The input is cut up among submitting threads, each of which parses its part as records and hands them to the
//! keeper through a bounded channel. Always: the keeper's quotas hold, and a reader sees whole records in their time.

use std::{
    net::SocketAddr,
    sync::{
        LazyLock,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use svc_dht::{
    contact::Contact,
    id::Id,
    identity::Identity,
    record::{Record, RecordLimits},
    record_store::{RECORD_OVERHEAD_BYTES, RecordReader, RecordStore, StoreQuotas},
};

const NOW: u64 = 1_000_000;
const SUBMITTERS: usize = 3;
const QUOTAS: StoreQuotas = StoreQuotas {
    per_publisher: 4,
    providers_per_key: 3,
    max_bytes: 12 * (RECORD_OVERHEAD_BYTES + 38),
    published: 1,
    clock_skew_ms: 100,
};
const LIMITS: RecordLimits = RecordLimits {
    max_value_bytes: 64,
    max_ttl_ms: 1000,
    clock_skew_ms: 100,
};

static PUBLISHERS: LazyLock<Vec<Identity>> = LazyLock::new(|| {
    (1..=6)
        .map(|seed| Identity::from_seed(&[seed; 32]))
        .collect()
});

// proves: DHT-10.7
pub fn run(input: &[u8]) {
    let mut store = RecordStore::new(Id([0; 32]), QUOTAS);
    let reader = store.reader();
    let (submit, submitted) = sync_channel(4);
    thread::scope(|scope| {
        for part in input.chunks((input.len() / SUBMITTERS).max(1)) {
            let (submit, reader) = (submit.clone(), reader.clone());
            scope.spawn(move || submitter(part, &submit, &reader));
        }
        drop(submit);
        keep(&mut store, &submitted);
    });
}

/// Four bytes make a record: which publisher, key and sequence, and what is changed in it on its way.
fn submitter(part: &[u8], submit: &SyncSender<Record>, reader: &RecordReader) {
    for step in part.chunks_exact(4) {
        let [who, key, seq, change] = [step[0], step[1], step[2], step[3]].map(usize::from);
        let publisher = &PUBLISHERS[who % PUBLISHERS.len()];
        let addr = SocketAddr::from(([10, 0, 0, 1], 4100)).into();
        let contact = Contact {
            id: publisher.id(),
            addr,
        };
        let key = Id([(key % 5) as u8; 32]);
        let record = Record::sign_provider(publisher, key, &contact, seq as u64, NOW, 500);
        let mut bytes = record.encode();
        let at = change % bytes.len();
        bytes[at] ^= (change % 3) as u8;
        if let Ok(record) = Record::decode(&bytes)
            && record.check_shape(&LIMITS, NOW).is_ok()
            && record.check_signature()
        {
            submit.send(record).expect("the keeper stays to the end");
        }
        for held in reader.providers(&key, NOW, usize::MAX) {
            assert_eq!(held.key, key);
            assert_eq!(held.check_shape(&LIMITS, NOW), Ok(()));
            assert_eq!(
                held.provider_contact().map(|contact| contact.addr),
                Some(addr)
            );
        }
    }
    // The raw input too, as somebody might send it.
    if let Ok(record) = Record::decode(part) {
        let _ = record.check_shape(&LIMITS, NOW);
    }
}

fn keep(store: &mut RecordStore, submitted: &Receiver<Record>) {
    let reader = store.reader();
    for record in submitted {
        let (key, publisher, seq) = (record.key, record.publisher, record.seq);
        let taken = store.put(record, NOW).is_ok();
        assert!(store.bytes() <= QUOTAS.max_bytes);
        let held = reader.providers(&key, NOW, usize::MAX);
        assert!(held.len() <= QUOTAS.providers_per_key);
        let mine = held.iter().find(|held| held.publisher == publisher);
        assert!(!taken || mine.is_some_and(|mine| mine.seq == seq));
        let all: Vec<_> = reader.all(NOW).collect();
        let of_publisher = all.iter().filter(|held| held.publisher == publisher);
        assert!(of_publisher.count() <= QUOTAS.per_publisher);
        assert_eq!(all.len(), store.records());
    }
}
