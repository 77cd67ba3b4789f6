//! How a journal's records are framed and found again.
//!
//! ```text
//! header  magic 8 | version u16 | id 16 | check 8
//! frame   magic 4 | record length u16 | attachment length u32 | first of batch u64 | check 8 | record | attachment
//! ```
//! A batch is one write and one sync, and a batch begins only after the one before is durable. So a broken frame that is
//! followed by nothing, or by frames of its own batch, is a write that a crash tore: it is cut off. Followed by a frame
//! of a later batch, it was durable once: that is rot, and the format says whether reading stops there.
//!
//! Always: the valid part of any bytes reads the same again; no length is believed before it is checked; what is fed in
//! pieces reads as the whole does.

use std::{marker::PhantomData, ops::Range, sync::Arc};

pub const HEADER_LEN: usize = 8 + 2 + 16 + CHECK;
pub const CHECK: usize = 8;

const FRAME_HEAD: usize = 4 + 2 + 4 + 8 + CHECK;
/// A batch of the usual records fits; one with great attachments gives its memory back.
const MAX_SPARE: usize = 1024 * 1024;

/// Names a journal for good: a file with another id is another journal.
pub type JournalId = [u8; 16];

/// What a journal holds, and how it says so.
pub trait Format {
    const MAGIC: [u8; 8];
    /// How a frame begins.
    const FRAME: [u8; 4];
    /// What is written; an older one is left to whoever knows it, a newer one refused.
    const VERSION: u16;
    /// As errors call the file, and the program it belongs to.
    const NAME: &'static str;
    const PROGRAM: &'static str;
    const MAX_ATTACHMENT: usize;
    const ROT: Rot;

    type Record;
    /// Why a record cannot be written.
    type Error;

    fn check(parts: &[&[u8]]) -> [u8; CHECK];
    fn encode(record: &Self::Record, out: &mut Vec<u8>) -> Result<(), Self::Error>;
    /// The record with this number, counted from 0.
    fn decode(number: u64, bytes: &[u8]) -> Result<Self::Record, Refused>;
}

/// What becomes of the reading at a record that was durable and is not valid any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rot {
    /// It ends: the records are evidence.
    Stop,
    /// The record is skipped and counted: the others are of use without it.
    Skip,
}

/// Why bytes with a sound check are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Only a newer version can read it.
    Newer(u32),
    Broken(Broken),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the file is no {name}: it does not begin like one")]
    Foreign { name: &'static str },
    #[error("the header of the {name} is damaged")]
    Damaged { name: &'static str },
    /// For whoever knows how to read that.
    #[error("{name} version {found} is too old")]
    Older { name: &'static str, found: u16 },
    #[error("{name} version {found} is newer than {newest}: open it with a newer {program}")]
    Newer {
        name: &'static str,
        program: &'static str,
        found: u16,
        newest: u16,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError<E> {
    #[error("a record")]
    Record(#[source] E),
    #[error("a record of {0} bytes is longer than {most}", most = u16::MAX)]
    Long(usize),
    #[error("an attachment of {0} bytes is too long")]
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
    /// Places where something rotted and was skipped.
    pub rotten: u64,
    /// The number of the next record.
    pub next: u64,
    /// Bytes up to the end of the last valid record, the header included.
    pub valid_len: u64,
    /// Where the batch of the last valid record begins.
    pub last_batch: u64,
    pub end: End,
}

/// A record as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a, R> {
    pub record: R,
    /// The record's own bytes.
    pub bytes: &'a [u8],
    /// Travels with its record and is no part of it.
    pub attachment: &'a [u8],
}

pub fn encode_header<F: Format>(id: JournalId) -> Vec<u8> {
    let mut header = F::MAGIC.to_vec();
    header.extend(F::VERSION.to_be_bytes());
    header.extend(id);
    let check = F::check(&[&header]);
    header.extend(check);
    header
}

/// The first [`HEADER_LEN`] bytes of a file. A shorter file is damaged, an empty one too.
pub fn decode_header<F: Format>(bytes: &[u8]) -> Result<JournalId, HeaderError> {
    let name = F::NAME;
    let damaged = HeaderError::Damaged { name };
    let rest = bytes.strip_prefix(&F::MAGIC);
    let rest = rest.ok_or(match F::MAGIC.starts_with(bytes) {
        true => damaged,
        false => HeaderError::Foreign { name },
    })?;
    let (version, rest) = rest.split_first_chunk().ok_or(damaged)?;
    let found = u16::from_be_bytes(*version);
    if found > F::VERSION {
        return Err(HeaderError::Newer {
            name,
            program: F::PROGRAM,
            found,
            newest: F::VERSION,
        });
    }
    if (1..F::VERSION).contains(&found) {
        return Err(HeaderError::Older { name, found });
    }
    let (id, rest) = rest.split_first_chunk().ok_or(damaged)?;
    let covered = &bytes[..HEADER_LEN - CHECK];
    match rest.starts_with(&F::check(&[covered])) && found == F::VERSION {
        true => Ok(*id),
        false => Err(damaged),
    }
}

/// One batch, ready to append. All of it must be written and synced before the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch<F> {
    first: u64,
    count: u64,
    /// Shared with whoever writes them, so that nothing is copied.
    bytes: Arc<Vec<u8>>,
    /// Where the records lie in the bytes.
    records: Vec<Range<usize>>,
    format: PhantomData<F>,
}

impl<F: Format> Batch<F> {
    /// Its first record will have this number.
    pub fn new(first: u64) -> Batch<F> {
        Batch::within(first, Vec::new())
    }

    /// In the memory of an earlier batch: fresh memory costs more than what is written into it.
    pub fn within(first: u64, mut spare: Vec<u8>) -> Batch<F> {
        spare.clear();
        Batch {
            first,
            count: 0,
            bytes: Arc::new(spare),
            records: Vec::new(),
            format: PhantomData,
        }
    }

    /// The memory for the next one, unless somebody still reads it or it is unusually much.
    pub fn into_spare(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.bytes).filter(|bytes| bytes.capacity() <= MAX_SPARE)
    }

    pub fn shared(&self) -> Arc<Vec<u8>> {
        self.bytes.clone()
    }

    /// The number of the record after its last.
    pub fn next_index(&self) -> u64 {
        self.first + self.count
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The records' own bytes.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|at| &self.bytes[at.clone()])
    }

    /// Room for so many records of this length.
    pub fn reserve(&mut self, records: usize, usual_len: usize) {
        Arc::make_mut(&mut self.bytes).reserve(records * (FRAME_HEAD + usual_len));
        self.records.reserve(records);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn push(
        &mut self,
        record: &F::Record,
        attachment: &[u8],
    ) -> Result<(), FrameError<F::Error>> {
        self.push_with(attachment, |out| F::encode(record, out))
    }

    /// What `write` appends is a record. After an error the batch is as it was.
    pub fn push_with(
        &mut self,
        attachment: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), F::Error>,
    ) -> Result<(), FrameError<F::Error>> {
        if attachment.len() > F::MAX_ATTACHMENT {
            return Err(FrameError::Attachment(attachment.len()));
        }
        let bytes = Arc::make_mut(&mut self.bytes);
        let start = bytes.len();
        let from = start + FRAME_HEAD;
        bytes.resize(from, 0);
        let written = write(bytes).map_err(FrameError::Record);
        let written = written.and(match bytes.len() - from {
            long if long > usize::from(u16::MAX) => Err(FrameError::Long(long)),
            _ => Ok(()),
        });
        if written.is_err() {
            bytes.truncate(start);
            return written;
        }
        let (head, record) = bytes[start..].split_at_mut(FRAME_HEAD);
        let (covered, check) = head.split_at_mut(FRAME_HEAD - CHECK);
        covered[..4].copy_from_slice(&F::FRAME);
        covered[4..6].copy_from_slice(&(record.len() as u16).to_be_bytes());
        covered[6..10].copy_from_slice(&(attachment.len() as u32).to_be_bytes());
        covered[10..].copy_from_slice(&self.first.to_be_bytes());
        check.copy_from_slice(&F::check(&[covered, record, attachment]));
        self.records.push(from..bytes.len());
        bytes.extend(attachment);
        self.count += 1;
        Ok(())
    }
}

/// Reads frames from the bytes after the header, fed in pieces of any size; holds at most one frame more, or the last
/// batch if something in it is broken.
#[derive(Debug)]
pub struct Scanner<F> {
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    at: u64,
    broken: Option<Search>,
    newer: Option<u32>,
    scan: Scan,
    /// The first record of the last batch.
    batch: Option<u64>,
    format: PhantomData<F>,
}

/// Behind a broken frame: was it durable once?
#[derive(Clone, Copy, Debug)]
struct Search {
    what: Broken,
    later: bool,
    /// The first whole frame behind it is at the buffer's beginning, and what follows is searched up to here.
    resume: Option<usize>,
}

impl<F: Format> Default for Scanner<F> {
    fn default() -> Scanner<F> {
        Scanner::new()
    }
}

impl<F: Format> Scanner<F> {
    pub fn new() -> Scanner<F> {
        Scanner::from(0, HEADER_LEN as u64)
    }

    /// Reads on where `records` whole ones were read; lengths count from there.
    pub fn starting_at(records: u64) -> Scanner<F> {
        Scanner::from(records, 0)
    }

    fn from(records: u64, at: u64) -> Scanner<F> {
        Scanner {
            buffer: Vec::new(),
            at,
            broken: None,
            newer: None,
            scan: Scan {
                records,
                rotten: 0,
                next: records,
                valid_len: at,
                last_batch: at,
                end: End::Clean,
            },
            batch: None,
            format: PhantomData,
        }
    }

    /// Hands each valid record to `visit`, in order, up to the first that is not valid or beyond, as the format says.
    pub fn feed(&mut self, piece: &[u8], mut visit: impl FnMut(Frame<'_, F::Record>)) {
        self.buffer.extend(piece);
        self.advance(false, &mut visit);
    }

    /// The end of the file.
    pub fn finish(mut self, mut visit: impl FnMut(Frame<'_, F::Record>)) -> Scan {
        self.advance(true, &mut visit);
        self.scan.end = match (self.newer, self.broken) {
            (Some(found), _) => End::Newer { found },
            (None, None) => End::Clean,
            (None, Some(Search { what, later, .. })) => match later {
                false => End::Torn(what),
                true => End::Corrupt(what),
            },
        };
        self.scan
    }

    fn advance(&mut self, last: bool, visit: &mut impl FnMut(Frame<'_, F::Record>)) {
        let buffer = std::mem::take(&mut self.buffer);
        let end = self.at + buffer.len() as u64;
        let mut rest = &buffer[..];
        loop {
            rest = self.read(rest, end, last, visit);
            let Some(search) = self.broken else {
                break;
            };
            rest = self.search(search, rest, last);
            let skip = F::ROT == Rot::Skip && self.broken.is_some_and(|search| search.later);
            if !skip {
                break;
            }
            self.broken = None;
            self.scan.rotten += 1;
        }
        self.at = end - rest.len() as u64;
        self.buffer = rest.to_vec();
    }

    /// Takes frames up to one that is broken, or not there yet.
    fn read<'a>(
        &mut self,
        mut rest: &'a [u8],
        end: u64,
        last: bool,
        visit: &mut impl FnMut(Frame<'_, F::Record>),
    ) -> &'a [u8] {
        while self.broken.is_none() && !rest.is_empty() {
            if self.newer.is_some() {
                return &[];
            }
            let what = match take_frame::<F>(rest) {
                Taken::Frame { length, parts } => match self.accept(&parts, visit) {
                    Ok(()) => {
                        let start = end - rest.len() as u64;
                        rest = &rest[length..];
                        if self.batch.replace(parts.batch_first) != Some(parts.batch_first) {
                            self.scan.last_batch = start;
                        }
                        self.scan.valid_len = start + length as u64;
                        self.scan.records += 1;
                        self.scan.next += 1;
                        continue;
                    }
                    Err(Refused::Newer(found)) => {
                        self.newer = Some(found);
                        continue;
                    }
                    Err(Refused::Broken(what)) => what,
                },
                Taken::More if !last => break,
                Taken::More => Broken::Incomplete,
                Taken::Broken(what) => what,
            };
            self.broken = Some(Search {
                what,
                later: false,
                resume: None,
            });
            if F::ROT == Rot::Skip {
                // Not to be found again as the one to go on with.
                rest = &rest[1..];
            }
        }
        rest
    }

    fn accept(
        &mut self,
        parts: &Parts<'_>,
        visit: &mut impl FnMut(Frame<'_, F::Record>),
    ) -> Result<(), Refused> {
        if F::ROT == Rot::Skip {
            // How many were skipped is known again at the next batch.
            self.scan.next = self.scan.next.max(parts.batch_first);
        }
        let number = self.scan.next;
        let record = F::decode(number, parts.record)?;
        if parts.batch_first > number {
            return Err(Refused::Broken(Broken::WrongIndex {
                expected: number,
                found: number,
            }));
        }
        visit(Frame {
            record,
            bytes: parts.record,
            attachment: parts.attachment,
        });
        Ok(())
    }

    /// Behind a broken frame: is there one of a later batch? Returns what is still undecided, or what to go on with.
    fn search<'a>(&mut self, mut search: Search, mut rest: &'a [u8], last: bool) -> &'a [u8] {
        let mut from = search.resume.unwrap_or(0);
        while !search.later {
            let Some(found) = find(&rest[from..], &F::FRAME) else {
                // A magic may be cut in two by the end of the piece.
                from = from.max(rest.len().saturating_sub(F::FRAME.len() - 1));
                break;
            };
            from += found;
            match take_frame::<F>(&rest[from..]) {
                Taken::More if !last => break,
                Taken::Frame { parts, .. } => {
                    search.later = parts.batch_first > self.scan.next;
                    if search.resume.is_none() {
                        (rest, from) = (&rest[from..], 0);
                        search.resume = Some(0);
                    }
                    from += 1;
                }
                _ => from += 1,
            }
        }
        match (F::ROT, search.resume) {
            (Rot::Skip, Some(_)) => search.resume = Some(from),
            (Rot::Stop, _) if search.later => rest = &[],
            _ => {
                search.resume = None;
                rest = &rest[from.min(rest.len())..];
            }
        }
        self.broken = Some(search);
        rest
    }
}

/// Reads a whole file that is in memory.
pub fn scan<F: Format>(
    bytes: &[u8],
    mut visit: impl FnMut(Frame<'_, F::Record>),
) -> Result<(JournalId, Scan), HeaderError> {
    let id = decode_header::<F>(bytes)?;
    let mut scanner = Scanner::<F>::new();
    scanner.feed(&bytes[HEADER_LEN..], &mut visit);
    Ok((id, scanner.finish(visit)))
}

/// The length of the whole frame that these bytes begin with.
pub fn frame_length<F: Format>(bytes: &[u8]) -> Option<usize> {
    match take_frame::<F>(bytes) {
        Taken::Frame { length, .. } => Some(length),
        _ => None,
    }
}

struct Parts<'a> {
    batch_first: u64,
    record: &'a [u8],
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

fn take_frame<F: Format>(bytes: &[u8]) -> Taken<'_> {
    let Some((head, body)) = bytes.split_first_chunk::<FRAME_HEAD>() else {
        return match F::FRAME.starts_with(&bytes[..bytes.len().min(F::FRAME.len())]) {
            true => Taken::More,
            false => Taken::Broken(Broken::NoFrame),
        };
    };
    let (covered, check) = head.split_at(FRAME_HEAD - CHECK);
    if !covered.starts_with(&F::FRAME) {
        return Taken::Broken(Broken::NoFrame);
    }
    let number = |from: usize, to: usize| {
        let digits = covered[from..to].iter();
        digits.fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
    };
    let (record_len, attachment_len) = (number(4, 6) as usize, number(6, 10) as usize);
    if attachment_len > F::MAX_ATTACHMENT {
        return Taken::Broken(Broken::BadLength);
    }
    let Some((record, rest)) = body.split_at_checked(record_len) else {
        return Taken::More;
    };
    let Some(attachment) = rest.get(..attachment_len) else {
        return Taken::More;
    };
    if F::check(&[covered, record, attachment]) != check {
        return Taken::Broken(Broken::BadCheck);
    }
    Taken::Frame {
        length: FRAME_HEAD + record_len + attachment_len,
        parts: Parts {
            batch_first: number(10, 18),
            record,
            attachment,
        },
    }
}

fn find(bytes: &[u8], magic: &[u8]) -> Option<usize> {
    bytes
        .windows(magic.len())
        .position(|window| window == magic)
}

#[cfg(test)]
mod tests;
