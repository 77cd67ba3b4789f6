//! The record journal of the DHT: the valid part of any file reads the same again, and what was written behind it
//! is read too.

use svc_dht::{
    id::Id,
    record::{Record, RecordKind},
    record_journal::{Entry, encode_header, put_entry, scan},
};

pub fn run(input: (u16, u8, &[u8])) {
    let (at, change, body) = input;
    let _ = scan(body, |_| ());

    // Any bytes behind a good header, then an entry where the file is said to be valid.
    let mut file = [&encode_header(), body].concat();
    let (first, found) = read(&file);
    file.truncate(found.valid_len as usize);
    let written = entry(body);
    put_entry(&mut file, &written);
    let (again, _) = read(&file);
    assert_eq!(again.len(), first.len() + 1);
    assert_eq!(again.last(), Some(&written));

    // A good file with one byte changed: nothing is made up.
    let mut good = encode_header();
    let header = good.len();
    for _ in 0..3 {
        put_entry(&mut good, &written);
    }
    let at = header + usize::from(at) % (good.len() - header);
    good[at] ^= change;
    let (left, _) = read(&good);
    assert!(left.iter().all(|entry| *entry == written));
    assert!(change != 0 || left.len() == 3);
}

fn read(file: &[u8]) -> (Vec<Entry>, svc_dht::record_journal::Scan) {
    let mut entries = Vec::new();
    let scan = scan(file, |entry| entries.push(entry)).expect("the header is good");
    (entries, scan)
}

fn entry(body: &[u8]) -> Entry {
    Entry::Held(Record {
        kind: RecordKind::Value,
        key: Id([1; 32]),
        publisher: [2; 32],
        seq: 3,
        created_ms: 4,
        ttl_ms: 5,
        body: body[..body.len().min(1024)].to_vec(),
        signature: [6; 64],
    })
}
