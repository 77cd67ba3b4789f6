//! The file of records: what the store was told, in order, so that a restart holds what was acknowledged.
//!
//! ```text
//! header  "RONDHTRJ" | version u16 | check 8
//! entry   length u32 | check 8 | kind u8 | the rest, as the kind says
//! ```
//! Always: wherever a crash tore the end off, what is left reads as the entries before it; an entry that rotted is
//! skipped and counted, and those behind it are still read; no length is believed before it is checked. What gave way is
//! written too, so that a replay holds no more at any point than the store did then, and nothing that was taken is
//! refused. The one who calls does the reading, writing and syncing.

use crate::{
    record::{Record, RecordKind},
    record_store::{Put, RecordName, RecordStore},
    wire::cbor::{CborError, Reader, put_bytes, put_uint},
};

pub const VERSION: u16 = 1;
pub const HEADER_LEN: usize = 8 + 2 + CHECK;
/// No entry is longer: a record of the longest body and name fits several times over.
pub const MAX_ENTRY_BYTES: usize = 64 * 1024;
/// A file shorter than this is not worth writing anew.
pub const COMPACT_FROM_BYTES: u64 = 256 * 1024;

const MAGIC: &[u8; 8] = b"RONDHTRJ";
const CHECK: usize = 8;
const HEAD: usize = 4 + CHECK;

const HELD: u8 = 1;
const PUBLISHED: u8 = 2;
const WITHDRAWN: u8 = 3;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("not a record journal: the file does not begin like one")]
    NotAJournal,
    #[error("the header of the record journal is damaged")]
    Damaged,
    #[error("record journal version {found} is newer than {VERSION}: open it with a newer svc-dht")]
    Newer { found: u16 },
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

/// The result of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub entries: u64,
    /// Entries that rotted, and were skipped.
    pub damaged: u64,
    /// Where to write on: the file is to be cut there first if it is longer.
    pub valid_len: u64,
}

pub fn encode_header() -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_be_bytes());
    let check = checksum(&[&header]);
    header.extend(check);
    header
}

/// Appends an entry. What is appended between two syncs may be lost together.
pub fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    match entry {
        Entry::Held(record) => put_record(out, false, record),
        Entry::Published(record) => put_record(out, true, record),
        Entry::Withdrawn(name) => put_framed(out, WITHDRAWN, |out| {
            put_uint(out, name.kind as u64);
            put_bytes(out, &name.key.0);
            put_bytes(out, &name.publisher);
        }),
    }
}

/// Appends an entry with a record that lies elsewhere.
pub fn put_record(out: &mut Vec<u8>, published: bool, record: &Record) {
    let kind = if published { PUBLISHED } else { HELD };
    put_framed(out, kind, |out| record.put(out));
}

/// Appends what a store did when it took a record.
pub fn put_taken(out: &mut Vec<u8>, published: bool, record: &Record, put: &Put) {
    for gone in put.evicted() {
        put_entry(out, &Entry::Withdrawn(RecordName::of(gone)));
    }
    put_record(out, published, record);
}

/// Tells a store what it was told before. False if it does not take that any more, because its time is over.
pub fn replay(store: &mut RecordStore, entry: Entry, now_wall_ms: u64) -> bool {
    match entry {
        Entry::Held(record) => store.put(record, now_wall_ms).is_ok(),
        Entry::Published(record) => store.publish(record, now_wall_ms).is_ok(),
        Entry::Withdrawn(name) => store.discard(&name).is_some(),
    }
}

/// A file with only what is live.
pub fn compacted(store: &RecordStore) -> Vec<u8> {
    let mut file = encode_header();
    for (record, published) in store.contents() {
        put_record(&mut file, published, &record);
    }
    file
}

/// How many bytes [`put_record`] appends, or a little more.
pub fn record_len(record: &Record) -> u64 {
    (HEAD + 1 + 176 + record.body.len()) as u64
}

/// Whether a file of this length should be written anew with only what is live.
pub fn should_compact(file_len: u64, live_len: u64) -> bool {
    file_len > COMPACT_FROM_BYTES && file_len > live_len.saturating_mul(2)
}

/// Hands every whole entry of a file to `visit`, in order. An empty file, or one that a crash left before its header
/// was whole, holds nothing and is to be begun anew: its valid length is 0.
pub fn scan(file: &[u8], mut visit: impl FnMut(Entry)) -> Result<Scan, JournalError> {
    let mut scan = Scan {
        entries: 0,
        damaged: 0,
        valid_len: 0,
    };
    if file.len() < HEADER_LEN && encode_header().starts_with(file) {
        return Ok(scan);
    }
    check_header(file)?;
    let mut at = HEADER_LEN;
    while let Some(framed) = Framed::at(file, at) {
        let entry = framed.sound.then(|| decode_entry(framed.content)).flatten();
        match entry {
            Some(entry) => {
                scan.entries += 1;
                visit(entry);
            }
            // A broken entry with a sound one behind it was whole once. With none it is where a crash tore the file.
            None if Framed::at(file, framed.end).is_some_and(|next| next.sound) => {
                scan.damaged += 1
            }
            None => break,
        }
        at = framed.end;
    }
    scan.valid_len = at as u64;
    Ok(scan)
}

fn check_header(file: &[u8]) -> Result<(), JournalError> {
    let rest = file.strip_prefix(MAGIC).ok_or(JournalError::NotAJournal)?;
    let (version, check) = rest.split_first_chunk().ok_or(JournalError::Damaged)?;
    let found = u16::from_be_bytes(*version);
    if found > VERSION {
        return Err(JournalError::Newer { found });
    }
    let covered = &file[..HEADER_LEN - CHECK];
    match check.starts_with(&checksum(&[covered])) && found == VERSION {
        true => Ok(()),
        false => Err(JournalError::Damaged),
    }
}

/// An entry as it lies in a file.
struct Framed<'a> {
    content: &'a [u8],
    end: usize,
    /// Whether its check says that it is as it was written.
    sound: bool,
}

impl<'a> Framed<'a> {
    /// None where no entry could begin, or none that is whole.
    fn at(file: &'a [u8], start: usize) -> Option<Framed<'a>> {
        let (head, rest) = file.get(start..)?.split_first_chunk::<HEAD>()?;
        let (length, check) = head.split_at(4);
        let len = u32::from_be_bytes(length.try_into().ok()?) as usize;
        if len == 0 || len > MAX_ENTRY_BYTES {
            return None;
        }
        let content = rest.get(..len)?;
        Some(Framed {
            content,
            end: start + HEAD + len,
            sound: check == checksum(&[length, content]),
        })
    }
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

fn put_framed(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + HEAD, 0);
    out.push(kind);
    write(out);
    let (head, content) = out[start..].split_at_mut(HEAD);
    let (length, check) = head.split_at_mut(4);
    length.copy_from_slice(&(content.len() as u32).to_be_bytes());
    check.copy_from_slice(&checksum(&[length, content]));
}

fn checksum(parts: &[&[u8]]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut check = [0; CHECK];
    hasher.finalize_xof().fill(&mut check);
    check
}

#[cfg(test)]
mod tests;
