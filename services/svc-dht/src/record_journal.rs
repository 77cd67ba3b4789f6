//! The file of records: what the store was told, in order, so that a restart holds what was acknowledged.
//!
//! A journal of the kernel. An entry is `kind u8 | the rest, as the kind says`; one that rotted is skipped and counted, and
//! those behind it are still read. What gave way is written too, so that a replay holds no more at any point than the
//! store did then, and nothing that was taken is refused. Files of [version 1](v1) are read, and written anew.

pub mod v1;

use ron_core::journal::{self, Broken, CHECK, Format, HEADER_LEN, HeaderError, Refused, Rot, Scan};

use crate::{
    record::{Record, RecordKind},
    record_store::{Put, RecordName, RecordStore},
    wire::cbor::{CborError, Reader, put_bytes, put_uint},
};

/// A file shorter than this is not worth writing anew.
pub const COMPACT_FROM_BYTES: u64 = 256 * 1024;

const HELD: u8 = 1;
const PUBLISHED: u8 = 2;
const WITHDRAWN: u8 = 3;

pub type Batch = journal::Batch<Records>;

/// The format of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records;

impl Format for Records {
    const MAGIC: [u8; 8] = *b"RONDHTRJ";
    const FRAME: [u8; 4] = *b"\xabRRJ";
    const VERSION: u16 = 2;
    const NAME: &'static str = "record journal";
    const PROGRAM: &'static str = "svc-dht";
    const MAX_ATTACHMENT: usize = 0;
    const ROT: Rot = Rot::Skip;

    type Record = Entry;
    type Error = std::convert::Infallible;

    fn check(parts: &[&[u8]]) -> [u8; CHECK] {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        let mut check = [0; CHECK];
        hasher.finalize_xof().fill(&mut check);
        check
    }

    fn encode(entry: &Entry, out: &mut Vec<u8>) -> Result<(), Self::Error> {
        match entry {
            Entry::Held(record) => write_record(out, HELD, record),
            Entry::Published(record) => write_record(out, PUBLISHED, record),
            Entry::Withdrawn(name) => {
                out.push(WITHDRAWN);
                put_uint(out, name.kind as u64);
                put_bytes(out, &name.key.0);
                put_bytes(out, &name.publisher);
            }
        }
        Ok(())
    }

    fn decode(_: u64, bytes: &[u8]) -> Result<Entry, Refused> {
        decode_entry(bytes).ok_or(Refused::Broken(Broken::BadRecord))
    }
}

/// One thing that the store was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Keep this record of somebody's.
    Held(Record),
    /// This record is published here.
    Published(Record),
    /// Hold it no longer: it gave way, or is not published here any more.
    Withdrawn(RecordName),
}

pub fn encode_header() -> Vec<u8> {
    journal::encode_header::<Records>([0; 16])
}

/// Appends an entry. No record is as long as a frame may be.
pub fn put_entry(batch: &mut Batch, entry: &Entry) {
    let put = batch.push(entry, &[]);
    debug_assert!(put.is_ok(), "{put:?}");
}

/// Appends an entry with a record that lies elsewhere.
pub fn put_record(batch: &mut Batch, published: bool, record: &Record) {
    let kind = if published { PUBLISHED } else { HELD };
    let put = batch.push_with(&[], |out| {
        write_record(out, kind, record);
        Ok(())
    });
    debug_assert!(put.is_ok(), "{put:?}");
}

/// Appends what a store did when it took a record.
pub fn put_taken(batch: &mut Batch, published: bool, record: &Record, put: &Put) {
    for gone in put.evicted() {
        put_entry(batch, &Entry::Withdrawn(RecordName::of(gone)));
    }
    put_record(batch, published, record);
}

/// Tells a store what it was told before. False if it does not take that any more, because its time is over.
pub fn replay(store: &mut RecordStore, entry: Entry, now_wall_ms: u64) -> bool {
    match entry {
        Entry::Held(record) => store.put(record, now_wall_ms).is_ok(),
        Entry::Published(record) => store.publish(record, now_wall_ms).is_ok(),
        Entry::Withdrawn(name) => store.discard(&name).is_some(),
    }
}

/// A file with only what is live, and the number of its next entry.
pub fn compacted(store: &RecordStore) -> (Vec<u8>, u64) {
    let (mut file, mut next) = (encode_header(), 0);
    for (record, published) in store.contents() {
        // Each a batch of its own: the file is there whole or not at all, so one that is broken has rotted.
        let mut batch = Batch::new(next);
        put_record(&mut batch, published, &record);
        file.extend(batch.bytes());
        next += 1;
    }
    (file, next)
}

/// Whether a file of this length should be written anew with only what is live.
pub fn should_compact(file_len: u64, live_len: u64) -> bool {
    file_len > COMPACT_FROM_BYTES && file_len > live_len.saturating_mul(2)
}

/// Hands every whole entry of a file to `visit`, in order. An empty file, or one that a crash left before its header
/// was whole, holds nothing and is to be begun anew: its valid length is 0.
pub fn scan(file: &[u8], mut visit: impl FnMut(Entry)) -> Result<Scan, HeaderError> {
    if file.len() < HEADER_LEN && encode_header().starts_with(file) {
        return Ok(journal::Scanner::<Records>::starting_at(0).finish(|_| {}));
    }
    match journal::scan::<Records>(file, |frame| visit(frame.record)) {
        Err(HeaderError::Older { found: 1, .. }) => v1::scan(file, visit),
        read => read.map(|(_, scan)| scan),
    }
}

fn write_record(out: &mut Vec<u8>, kind: u8, record: &Record) {
    out.push(kind);
    record.put(out);
}

fn decode_entry(content: &[u8]) -> Option<Entry> {
    let (kind, rest) = content.split_first()?;
    match *kind {
        HELD => Record::decode(rest).ok().map(Entry::Held),
        PUBLISHED => Record::decode(rest).ok().map(Entry::Published),
        WITHDRAWN => decode_name(rest).ok().map(Entry::Withdrawn),
        _ => None,
    }
}

fn decode_name(bytes: &[u8]) -> Result<RecordName, CborError> {
    let mut reader = Reader::new(bytes);
    let name = RecordName {
        kind: RecordKind::of(reader.uint()?).ok_or(CborError::Unexpected)?,
        key: crate::id::Id(reader.fixed()?),
        publisher: reader.fixed()?,
    };
    reader.end()?;
    Ok(name)
}

#[cfg(test)]
mod tests;
