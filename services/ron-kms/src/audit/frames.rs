//! The file of records, append-only, the truth of the audit log: how records are framed and found again.
//!
//! ```text
//! header  "RONKMSAL" | version u16 | log id 16 | check 8
//! frame   "\xabRKF" | leaf length u16 | attachment length u32 | first of batch u64 | check 8 | leaf | attachment
//! ```
//! A batch is one write and one sync, and a batch begins only after the one before is durable. So a broken
//! frame followed by nothing, or by frames of its own batch, is a write that a crash tore: it is cut off.
//! Followed by a frame of a later batch, it was durable once: that is corruption, and nothing is cut.
//! An attachment travels with its record but is no part of the leaf (a result kept for replay).

use std::{ops::Range, sync::Arc};

use super::{
    merkle::sha256,
    record::{Record, RecordError, USUAL_LEN},
    tiles::MAX_ENTRY,
};

pub const VERSION: u16 = 1;
pub const HEADER_LEN: usize = 8 + 2 + 16 + CHECK;
pub const MAX_ATTACHMENT: usize = 1024 * 1024;

const HEADER_MAGIC: &[u8; 8] = b"RONKMSAL";
const FRAME_MAGIC: &[u8; 4] = b"\xabRKF";
const CHECK: usize = 8;
const FRAME_HEAD: usize = 4 + 2 + 4 + 8 + CHECK;
/// A batch of the usual records fits; one with great attachments gives its memory back.
const MAX_SPARE: usize = 1024 * 1024;
const MAX_FRAME: usize = FRAME_HEAD + MAX_ENTRY + MAX_ATTACHMENT;

/// Names a log for good: a file with another id is another log.
pub type LogId = [u8; 16];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("not an audit log: the file does not begin like one")]
    NotALog,
    #[error("the header of the audit log is damaged")]
    Damaged,
    #[error("audit log version {found} is newer than {VERSION}: open it with a newer ron-kms")]
    Newer { found: u16 },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a record")]
    Record(#[from] RecordError),
    #[error("an attachment of {0} bytes is longer than {MAX_ATTACHMENT}")]
    Attachment(usize),
}

/// Why the valid records end where they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// At the end of the file.
    Clean,
    /// In a write that never became durable: cut the file to the valid length.
    Torn(Broken),
    /// Within what was durable: do not touch it.
    Corrupt(Broken),
    /// A record that only a newer version can read: do not touch it.
    Newer { found: u32 },
}

/// What is wrong with the first frame that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Incomplete,
    NoFrame,
    BadLength,
    BadCheck,
    BadRecord,
    WrongIndex { expected: u64, found: u64 },
}

/// The result of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Valid records.
    pub records: u64,
    /// Bytes up to the end of the last valid record, the header included.
    pub valid_len: u64,
    /// Where the batch of the last valid record begins.
    pub last_batch: u64,
    pub end: End,
}

/// A record as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed<'a> {
    pub record: Record,
    pub leaf: &'a [u8],
    pub attachment: &'a [u8],
}

pub fn encode_header(id: LogId) -> Vec<u8> {
    let mut header = HEADER_MAGIC.to_vec();
    header.extend(VERSION.to_be_bytes());
    header.extend(id);
    let check = checksum(&[&header]);
    header.extend(check);
    header
}

/// The first [`HEADER_LEN`] bytes of a file. A shorter file is damaged, an empty one too.
pub fn decode_header(bytes: &[u8]) -> Result<LogId, HeaderError> {
    let rest = bytes.strip_prefix(HEADER_MAGIC);
    let rest = rest.ok_or(match HEADER_MAGIC.starts_with(bytes) {
        true => HeaderError::Damaged,
        false => HeaderError::NotALog,
    })?;
    let (version, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let found = u16::from_be_bytes(*version);
    if found > VERSION {
        return Err(HeaderError::Newer { found });
    }
    let (id, rest) = rest.split_first_chunk().ok_or(HeaderError::Damaged)?;
    let covered = &bytes[..HEADER_LEN - CHECK];
    match rest.starts_with(&checksum(&[covered])) && found == VERSION {
        true => Ok(*id),
        false => Err(HeaderError::Damaged),
    }
}

/// One batch, ready to append. All of it must be written and synced before the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    first: u64,
    count: u64,
    /// Shared with whoever writes them, so that nothing is copied.
    bytes: Arc<Vec<u8>>,
    /// Where the leaves lie in the bytes.
    leaves: Vec<Range<usize>>,
}

impl Batch {
    pub fn new(first: u64) -> Batch {
        Batch {
            first,
            count: 0,
            bytes: Arc::default(),
            leaves: Vec::new(),
        }
    }

    /// In the memory of an earlier batch: fresh memory costs more than what is written into it.
    pub fn within(first: u64, mut spare: Vec<u8>) -> Batch {
        spare.clear();
        Batch {
            bytes: Arc::new(spare),
            ..Batch::new(first)
        }
    }

    /// The memory for the next one, unless somebody still reads it or it is unusually much.
    pub fn into_spare(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.bytes).filter(|bytes| bytes.capacity() <= MAX_SPARE)
    }

    pub fn shared(&self) -> Arc<Vec<u8>> {
        self.bytes.clone()
    }

    pub fn next_index(&self) -> u64 {
        self.first + self.count
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn leaves(&self) -> impl Iterator<Item = &[u8]> {
        self.leaves.iter().map(|at| &self.bytes[at.clone()])
    }

    /// Room for so many records of the usual length.
    pub fn reserve(&mut self, records: usize) {
        Arc::make_mut(&mut self.bytes).reserve(records * (FRAME_HEAD + USUAL_LEN));
        self.leaves.reserve(records);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The record's index must be the next one.
    pub fn push(&mut self, record: &Record, attachment: &[u8]) -> Result<(), FrameError> {
        debug_assert_eq!(record.index, self.next_index());
        if attachment.len() > MAX_ATTACHMENT {
            return Err(FrameError::Attachment(attachment.len()));
        }
        let bytes = Arc::make_mut(&mut self.bytes);
        let start = bytes.len();
        let from = start + FRAME_HEAD;
        bytes.resize(from, 0);
        if let Err(error) = record.encode_to(bytes) {
            bytes.truncate(start);
            return Err(error.into());
        }
        let (head, leaf) = bytes[start..].split_at_mut(FRAME_HEAD);
        let (covered, check) = head.split_at_mut(FRAME_HEAD - CHECK);
        covered[..4].copy_from_slice(FRAME_MAGIC);
        covered[4..6].copy_from_slice(&(leaf.len() as u16).to_be_bytes());
        covered[6..10].copy_from_slice(&(attachment.len() as u32).to_be_bytes());
        covered[10..].copy_from_slice(&self.first.to_be_bytes());
        check.copy_from_slice(&checksum(&[covered, leaf, attachment]));
        self.leaves.push(from..bytes.len());
        bytes.extend(attachment);
        self.count += 1;
        Ok(())
    }
}

/// Reads frames from the bytes after the header, fed in pieces of any size; holds at most one frame more.
#[derive(Debug, Default)]
pub struct Scanner {
    buffer: Vec<u8>,
    scan: Option<(Broken, bool)>,
    newer: Option<u32>,
    records: u64,
    valid_len: u64,
    /// The first record of the last batch, and where it stands.
    batch: Option<u64>,
    last_batch: u64,
}

impl Scanner {
    pub fn new() -> Scanner {
        Scanner {
            valid_len: HEADER_LEN as u64,
            last_batch: HEADER_LEN as u64,
            ..Scanner::default()
        }
    }

    /// Reads on where `records` whole ones were read; lengths count from there.
    pub fn starting_at(records: u64) -> Scanner {
        Scanner {
            records,
            ..Scanner::default()
        }
    }

    /// Hands each valid record to `visit`, in order, up to the first that is not valid.
    pub fn feed(&mut self, piece: &[u8], mut visit: impl FnMut(Framed<'_>)) {
        self.buffer.extend(piece);
        self.advance(false, &mut visit);
    }

    /// The end of the file.
    pub fn finish(mut self, mut visit: impl FnMut(Framed<'_>)) -> Scan {
        self.advance(true, &mut visit);
        let end = match (self.newer, self.scan) {
            (Some(found), _) => End::Newer { found },
            (None, None) => End::Clean,
            (None, Some((broken, false))) => End::Torn(broken),
            (None, Some((broken, true))) => End::Corrupt(broken),
        };
        Scan {
            records: self.records,
            valid_len: self.valid_len,
            last_batch: self.last_batch,
            end,
        }
    }

    fn advance(&mut self, last: bool, visit: &mut impl FnMut(Framed<'_>)) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = &buffer[..];
        while self.scan.is_none() && self.newer.is_none() && !rest.is_empty() {
            match take_frame(rest) {
                Taken::Frame { length, parts } => match self.accept(&parts, visit) {
                    Ok(()) => {
                        rest = &rest[length..];
                        if self.batch.replace(parts.batch_first) != Some(parts.batch_first) {
                            self.last_batch = self.valid_len;
                        }
                        self.valid_len += length as u64;
                        self.records += 1;
                    }
                    Err(Refused::Newer(found)) => self.newer = Some(found),
                    Err(Refused::Broken(broken)) => self.scan = Some((broken, false)),
                },
                Taken::More if !last => break,
                Taken::More => self.scan = Some((Broken::Incomplete, false)),
                Taken::Broken(broken) => self.scan = Some((broken, false)),
            }
        }
        rest = match self.newer {
            None if self.scan.is_some() => self.search(rest, last),
            None => rest,
            Some(_) => &[],
        };
        self.buffer = rest.to_vec();
    }

    fn accept(&self, parts: &Parts<'_>, visit: &mut impl FnMut(Framed<'_>)) -> Result<(), Refused> {
        let record = match Record::decode(parts.leaf) {
            Ok(record) => record,
            Err(RecordError::Newer { found }) => return Err(Refused::Newer(found)),
            Err(_) => return Err(Refused::Broken(Broken::BadRecord)),
        };
        if record.index != self.records || parts.batch_first > record.index {
            return Err(Refused::Broken(Broken::WrongIndex {
                expected: self.records,
                found: record.index,
            }));
        }
        visit(Framed {
            record,
            leaf: parts.leaf,
            attachment: parts.attachment,
        });
        Ok(())
    }

    /// Behind a broken frame: is there one of a later batch? Returns what is still undecided.
    fn search<'a>(&mut self, mut rest: &'a [u8], last: bool) -> &'a [u8] {
        loop {
            let at = find(rest, FRAME_MAGIC);
            let Some(at) = at else {
                // A magic may be cut in two by the end of the piece.
                return &rest[rest.len().saturating_sub(FRAME_MAGIC.len() - 1)..];
            };
            rest = &rest[at..];
            match take_frame(rest) {
                Taken::More if !last => return rest,
                Taken::Frame { parts, .. } if parts.batch_first > self.records => {
                    if let Some((_, later)) = &mut self.scan {
                        *later = true;
                    }
                    return &[];
                }
                _ => rest = &rest[1..],
            }
        }
    }
}

/// Reads a whole file that is in memory.
pub fn scan(bytes: &[u8], mut visit: impl FnMut(Framed<'_>)) -> Result<(LogId, Scan), HeaderError> {
    let id = decode_header(bytes)?;
    let mut scanner = Scanner::new();
    scanner.feed(&bytes[HEADER_LEN..], &mut visit);
    Ok((id, scanner.finish(visit)))
}

/// The length of the whole frame that these bytes begin with.
pub fn frame_length(bytes: &[u8]) -> Option<usize> {
    match take_frame(bytes) {
        Taken::Frame { length, .. } => Some(length),
        _ => None,
    }
}

enum Refused {
    Newer(u32),
    Broken(Broken),
}

struct Parts<'a> {
    batch_first: u64,
    leaf: &'a [u8],
    attachment: &'a [u8],
}

enum Taken<'a> {
    Frame {
        length: usize,
        parts: Parts<'a>,
    },
    /// The bytes end within it.
    More,
    Broken(Broken),
}

fn take_frame(bytes: &[u8]) -> Taken<'_> {
    let Some((head, body)) = bytes.split_first_chunk::<FRAME_HEAD>() else {
        return match FRAME_MAGIC.starts_with(&bytes[..bytes.len().min(4)]) {
            true => Taken::More,
            false => Taken::Broken(Broken::NoFrame),
        };
    };
    let (covered, check) = head.split_at(FRAME_HEAD - CHECK);
    if !covered.starts_with(FRAME_MAGIC) {
        return Taken::Broken(Broken::NoFrame);
    }
    let number = |from: usize, to: usize| {
        let digits = covered[from..to].iter();
        digits.fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
    };
    let (leaf_len, attachment_len) = (number(4, 6) as usize, number(6, 10) as usize);
    if attachment_len > MAX_ATTACHMENT {
        return Taken::Broken(Broken::BadLength);
    }
    let Some((leaf, rest)) = body.split_at_checked(leaf_len) else {
        return Taken::More;
    };
    let Some(attachment) = rest.get(..attachment_len) else {
        return Taken::More;
    };
    let length = FRAME_HEAD + leaf_len + attachment_len;
    debug_assert!(length <= MAX_FRAME);
    let parts = Parts {
        batch_first: number(10, 18),
        leaf,
        attachment,
    };
    match checksum(&[covered, leaf, attachment]) == check {
        true => Taken::Frame { length, parts },
        false => Taken::Broken(Broken::BadCheck),
    }
}

/// The first bytes of SHA-256: no checksum is cheaper to trust, and a record costs a signature anyway.
fn checksum(parts: &[&[u8]]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&sha256(parts)[..CHECK]);
    check
}

fn find(bytes: &[u8], magic: &[u8]) -> Option<usize> {
    bytes
        .windows(magic.len())
        .position(|window| window == magic)
}

#[cfg(test)]
mod tests;
