//! Offline verification: a directory of the audit log, or one receipt, checked from the bytes alone.
//!
//! Reads through the seam's disk, so the command line and the simulator's oracles run the same code. The
//! log is read once, front to back, beside its entry bundles; what is held is one bundle, one tile per
//! level and the numbers in flight, however long the log is. Nothing is written, nothing is repaired.

mod fault;
mod files;
mod keys;
mod numbers;
mod receipt;
mod tree;

use ron_core::seam::Disk;

pub use self::{
    fault::{AccountFault, Fault, KeysError, OfflineError},
    keys::{parse_keys, trust_of},
    receipt::{ProvenEntry, ReceiptFault, verify_receipt},
};
use self::{
    files::{MAX_KEYS, Place},
    numbers::Numbers,
    tree::TreeCheck,
};
use crate::audit::{
    checkpoint::{Trust, Verified},
    frames::{self, End, Framed, HEADER_LEN, LogId, Scanner},
    merkle::{Hash, empty_root, leaf_hash},
    note::MAX_NOTE,
    record::Event,
    sequence::Missing,
    tiles::{self, Kind, MAX_ENTRY, TILE_WIDTH, Tile},
};

/// The files of the directory, beside the tiles.
pub const CHECKPOINT: &str = "checkpoint";
pub const LOG: &str = "log";
pub const KEYS: &str = "keys.txt";

/// How far a verification is: bytes of the file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// What a directory that verifies says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub origin: String,
    pub log_id: LogId,
    /// Entries under the checkpoint, and their root.
    pub size: u64,
    pub root: Hash,
    /// When each cosigner signed, Unix seconds.
    pub times_s: Vec<u64>,
    /// The wall clock of the first and the last record, Unix milliseconds.
    pub first_at_ms: Option<u64>,
    pub last_at_ms: Option<u64>,
    /// Uses and changes of keys that have a record; an intent and its outcome are one.
    pub operations: u64,
    pub gap_records: u64,
    /// Operations whose records are missing, told one by one in gap records.
    pub lost: u64,
    pub restart_gaps: u64,
    /// Operations that restart gaps admit as missing, at most.
    pub missing_at_most: u64,
    /// Numbers that an orderly end left unused: no operation had them, by the log's word.
    pub unused: u64,
    /// What the end of the file leaves open: the service runs, or ended uncleanly.
    pub open: Option<Missing>,
    /// Checkpoints that records tell of; the root of each was checked.
    pub checkpoints_told: u64,
    /// Whole records that the checkpoint does not cover yet.
    pub beyond_checkpoint: u64,
    /// Bytes of an append that was not finished.
    pub torn_bytes: u64,
    /// The keys came from the directory itself: it is whole, but who signed it is its own word.
    pub own_keys: bool,
}

/// Verifies everything below `dir` that the service publishes. Keys not given are read from `keys.txt`.
///
/// A log that never had a checkpoint has nothing to verify yet: [`Fault::Missing`] of [`CHECKPOINT`]. Partial
/// tiles of older checkpoints may lie beside the current ones; they are not looked at.
pub fn verify_directory(
    disk: &dyn Disk,
    dir: &str,
    trust: Option<&Trust>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, OfflineError> {
    let place = Place { disk, dir };
    let own = match trust {
        Some(_) => None,
        None => Some(read_keys(&place)?),
    };
    let verified = match (trust, &own) {
        (Some(trust), _) | (None, Some(trust)) => read_checkpoint(&place, trust)?,
        (None, None) => unreachable!("keys are given or read"),
    };
    let mut reading = Reading::new(&place, verified);
    let (log_id, scan, len) = reading.scan(progress)?;
    reading.conclude(&scan)?;
    let mut summary = reading.summary;
    summary.log_id = log_id;
    summary.own_keys = own.is_some();
    summary.beyond_checkpoint = scan.records - summary.size;
    summary.torn_bytes = len.saturating_sub(scan.valid_len);
    Ok(summary)
}

fn read_keys(place: &Place<'_>) -> Result<Trust, OfflineError> {
    let at = |fault| OfflineError::new(KEYS, fault);
    let bytes = place.read(KEYS, MAX_KEYS)?;
    let text = String::from_utf8(bytes).map_err(|_| at(Fault::Keys(KeysError::NotText)))?;
    let trust = parse_keys(&text).map_err(|error| at(Fault::Keys(error)))?;
    keys::demand_both_kinds(&trust).map_err(|error| at(Fault::Keys(error)))?;
    Ok(trust)
}

fn read_checkpoint(place: &Place<'_>, trust: &Trust) -> Result<Verified, OfflineError> {
    let note = place.read(CHECKPOINT, MAX_NOTE as u64)?;
    let refused = |error| OfflineError::new(CHECKPOINT, Fault::Checkpoint(error));
    trust.verify(&note).map_err(refused)
}

/// The records, one by one, beside the published entries.
struct Reading<'a> {
    place: &'a Place<'a>,
    tree: TreeCheck<'a>,
    numbers: Numbers,
    bundle: Option<Bundle>,
    summary: Summary,
    last_told: u64,
    fault: Option<OfflineError>,
}

/// The bytes of a bundle, its name, and where its next entry begins.
struct Bundle {
    tile: Tile,
    bytes: Vec<u8>,
    next: usize,
}

impl<'a> Reading<'a> {
    fn new(place: &'a Place<'a>, verified: Verified) -> Reading<'a> {
        let head = verified.checkpoint;
        Reading {
            place,
            tree: TreeCheck::new(place, head.size),
            numbers: Numbers::default(),
            bundle: None,
            summary: Summary {
                origin: head.origin,
                log_id: LogId::default(),
                size: head.size,
                root: head.root,
                times_s: verified.times_s,
                first_at_ms: None,
                last_at_ms: None,
                operations: 0,
                gap_records: 0,
                lost: 0,
                restart_gaps: 0,
                missing_at_most: 0,
                unused: 0,
                open: None,
                checkpoints_told: 0,
                beyond_checkpoint: 0,
                torn_bytes: 0,
                own_keys: false,
            },
            last_told: 0,
            fault: None,
        }
    }

    fn scan(
        &mut self,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(LogId, frames::Scan, u64), OfflineError> {
        let mut pieces = self.place.pieces(LOG)?;
        let total = pieces.len();
        let header = pieces.next(HEADER_LEN)?;
        let refused = |error| OfflineError::new(LOG, Fault::Header(error));
        let id = frames::decode_header(&header).map_err(refused)?;
        let mut scanner = Scanner::new();
        loop {
            let piece = pieces.next(files::PIECE)?;
            if piece.is_empty() {
                break;
            }
            scanner.feed(&piece, |framed| self.visit(&framed));
            self.stop()?;
            progress(Progress {
                done: pieces.done(),
                total,
            });
        }
        // Whole records were visited as they came: none is left for the end.
        let scan = scanner.finish(|_| ());
        Ok((id, scan, pieces.done()))
    }

    fn stop(&mut self) -> Result<(), OfflineError> {
        self.fault.take().map_or(Ok(()), Err)
    }

    fn visit(&mut self, framed: &Framed<'_>) {
        if self.fault.is_none() {
            self.fault = self.take(framed).err();
        }
    }

    fn take(&mut self, framed: &Framed<'_>) -> Result<(), OfflineError> {
        let index = framed.record.index;
        if index < self.summary.size {
            self.compare(index, framed.bytes)?;
            self.tree.push(leaf_hash(framed.bytes))?;
        }
        let at = framed.record.at_ms;
        self.summary.first_at_ms.get_or_insert(at);
        self.summary.last_at_ms = Some(at);
        self.count(index, &framed.record.event)?;
        let accounted = self.numbers.record(&framed.record.event);
        accounted.map_err(|fault| OfflineError::new(LOG, Fault::Account { index, fault }))
    }

    /// The published entry of this index must be the record's very bytes.
    fn compare(&mut self, index: u64, leaf: &[u8]) -> Result<(), OfflineError> {
        let at = (index % TILE_WIDTH) as usize;
        if at == 0 {
            self.bundle = Some(self.open_bundle(index)?);
        }
        let Some(bundle) = &mut self.bundle else {
            unreachable!("records are read from the first");
        };
        let (head, rest) = bundle.bytes[bundle.next..].split_at(2);
        let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
        bundle.next += 2 + length;
        match &rest[..length] == leaf {
            true => Ok(()),
            false => Err(OfflineError::new(bundle.tile, Fault::Entry { at, index })),
        }
    }

    fn open_bundle(&self, index: u64) -> Result<Bundle, OfflineError> {
        let Some(tile) = Tile::holding(Kind::Entries, index, self.summary.size) else {
            unreachable!("only covered entries are compared");
        };
        let most = u64::from(tile.width()) * (2 + MAX_ENTRY as u64);
        let bytes = self.place.read(&tile.path(), most)?;
        let parsed = tiles::parse_entries(tile.width(), &bytes);
        parsed.map_err(|error| OfflineError::new(tile, Fault::Tile(error)))?;
        Ok(Bundle {
            tile,
            bytes,
            next: 0,
        })
    }

    fn count(&mut self, index: u64, event: &Event) -> Result<(), OfflineError> {
        let summary = &mut self.summary;
        match event {
            Event::Intent { .. } | Event::Operation { .. } | Event::Key { .. } => {
                summary.operations += 1;
            }
            Event::Gap { count, .. } => {
                summary.gap_records += 1;
                summary.lost = summary.lost.saturating_add(*count);
            }
            Event::RestartGap { at_most, .. } => {
                summary.restart_gaps += 1;
                summary.missing_at_most = summary.missing_at_most.saturating_add(*at_most);
            }
            Event::Checkpoint { size, root } => {
                summary.checkpoints_told += 1;
                return self.told(index, *size, root);
            }
            Event::Outcome { .. }
            | Event::Reserve { .. }
            | Event::Closed { .. }
            | Event::NonceMark { .. } => {}
        }
        Ok(())
    }

    /// A record tells of a checkpoint: it covers records before it, more than the last one told, no more
    /// than the stored one, and has their root.
    fn told(&mut self, index: u64, size: u64, root: &Hash) -> Result<(), OfflineError> {
        let at = |fault| Err(OfflineError::new(LOG, fault));
        let covered = self.summary.size;
        if size > index || size <= self.last_told {
            return at(Fault::ToldOutOfOrder { index, size });
        }
        if size > covered {
            let told = size;
            return Err(OfflineError::new(
                CHECKPOINT,
                Fault::OldCheckpoint { told, covered },
            ));
        }
        self.last_told = size;
        match self.tree.root_at(size)? == *root {
            true => Ok(()),
            false => at(Fault::ToldRoot { index, size }),
        }
    }

    /// The end of the file: is everything there that the checkpoint covers, under its root?
    fn conclude(&mut self, scan: &frames::Scan) -> Result<(), OfflineError> {
        let at = |file: &str, fault| Err(OfflineError::new(file, fault));
        let (records, covered) = (scan.records, self.summary.size);
        match &scan.end {
            End::Newer { found } => {
                let (index, found) = (records, *found);
                return at(LOG, Fault::Newer { index, found });
            }
            End::Corrupt(broken) => {
                let (index, broken) = (records, *broken);
                return at(LOG, Fault::Damaged { index, broken });
            }
            End::Torn(broken) if records < covered => {
                let (index, broken) = (records, *broken);
                return at(LOG, Fault::Damaged { index, broken });
            }
            End::Clean if records < covered => {
                return at(LOG, Fault::Shorter { records, covered });
            }
            End::Clean | End::Torn(_) => {}
        }
        let root = match covered {
            0 => empty_root(),
            _ => self.tree.finish()?,
        };
        if root != self.summary.root {
            return at(CHECKPOINT, Fault::OtherRoot { covered });
        }
        self.summary.open = self.numbers.open();
        self.summary.unused = self.numbers.unused();
        Ok(())
    }
}
