//! The audit log's files on the seam's disk: the file of records, the tiles, the checkpoint, the reserve.
//!
//! Every method blocks and runs inside `Env::disk`. Always: a write returns only once it is durable; the
//! checkpoint is replaced in one step, after the tiles it covers; nothing is written to a file that is not
//! the one that was opened; a write of an earlier attempt never follows a later truncation.

use std::{collections::BTreeSet, io, sync::Arc};

use ron_core::{
    durable, journal,
    lock::{LockDecl, RankedMutex},
    seam::{Disk, DiskFile, Open},
};

use crate::audit::{
    checkpoint::Trust,
    frames::{Audit, Framed, HEADER_LEN, LogId, Scan, Scanner},
    log::{Head, Mismatch},
    note::Note,
    publish::{Edge, Published},
    recovery::Stored,
    tiles::{Kind, TILE_WIDTH, Tile},
};

pub const DIR: &str = "audit";
pub const LOG: &str = "audit/log";
pub const CHECKPOINT: &str = "audit/checkpoint";
pub const KEYS: &str = "audit/keys.txt";
const CHECKPOINT_NEW: &str = "audit/checkpoint.new";
const RESERVE: &str = "audit/reserve";
/// How much is read at once.
const PIECE: usize = 256 * 1024;
/// A checkpoint is a few kilobytes.
const MAX_SMALL_FILE: u64 = 1024 * 1024;

pub const JOURNAL_LOCK: LockDecl = LockDecl {
    name: "journal",
    rank: 20,
    guards: "the file of records; taken on the disk pool only",
};

pub const PUBLISH_LOCK: LockDecl = LockDecl {
    name: "publish",
    rank: 21,
    guards: "tiles and checkpoint; taken on the disk pool only",
};

/// The open file of records.
#[derive(Clone)]
pub struct Journal {
    state: Arc<RankedMutex<State>>,
    /// Room for a last batch, its tiles and a checkpoint on a disk that is full.
    reserve_bytes: u64,
}

struct State {
    file: Option<journal::Journal<Audit>>,
    /// Grows with every truncation: a write that began before it must not land after it.
    epoch: u64,
    /// The newest attempt to publish: an older one must not land after it.
    publishing: Arc<RankedMutex<u64>>,
}

/// What was found at the start.
pub struct Found {
    pub journal: Journal,
    pub stored: Stored,
    /// The signed note, byte by byte, if it verifies.
    pub note: Option<Vec<u8>>,
    /// The file cannot be the log of this store.
    pub mismatch: Option<Mismatch>,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file of records was deleted or replaced")]
    Replaced,
    #[error("an older attempt")]
    Outdated,
}

impl Journal {
    /// Opens the files, or makes them if this is the first start (`fresh`: the store has no keys, so there
    /// was no log).
    pub fn open(
        disk: &dyn Disk,
        id: LogId,
        trust: &Trust,
        fresh: bool,
        reserve_bytes: u64,
    ) -> io::Result<Found> {
        disk.create_dir(DIR)?;
        let (stored, note) = read_checkpoint(disk, trust)?;
        let existing = disk.identity(LOG)?.is_some();
        let fresh = fresh && stored == Stored::Absent;
        let mut mismatch = (!existing && !fresh).then_some(Mismatch::Replaced);
        let file = match (existing, fresh) {
            (false, false) => None,
            _ => Some(journal::Journal::open(disk, LOG, Open::Create)?),
        };
        if let Some(file) = &file {
            match file.id()? {
                Ok(found) if found == id => {}
                // A first start that did not get far: there is no record yet.
                _ if fresh && file.len()? <= HEADER_LEN as u64 => file.begin(id)?,
                _ => mismatch = Some(Mismatch::OtherLog),
            }
        }
        // Whoever made them may have been killed before their names were durable.
        disk.sync_dir(DIR)?;
        disk.sync_dir("")?;
        let journal = Journal {
            state: Arc::new(RankedMutex::new(
                JOURNAL_LOCK,
                State {
                    file,
                    epoch: 0,
                    publishing: Arc::new(RankedMutex::new(PUBLISH_LOCK, 0)),
                },
            )),
            reserve_bytes,
        };
        if mismatch.is_none() {
            if existing && disk.identity(RESERVE)?.is_none() {
                tracing::warn!(
                    "{RESERVE} was not there (used up on a full disk, or deleted): room is set aside again"
                );
            }
            journal.make_reserve(disk)?;
        }
        Ok(Found {
            journal,
            stored,
            note,
            mismatch,
        })
    }

    /// Hands every whole record to `visit`.
    pub fn scan(&self, visit: impl FnMut(Framed<'_>)) -> io::Result<Scan> {
        match &self.state.lock().file {
            Some(file) => file.scan(visit),
            None => Ok(Scanner::new().finish(visit)),
        }
    }

    pub fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Writes and syncs one batch.
    pub fn write(
        &self,
        disk: &dyn Disk,
        epoch: u64,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        let state = self.state.lock();
        if state.epoch != epoch {
            return Err(JournalError::Outdated);
        }
        let file = state.current(disk)?;
        file.write(at, bytes)?;
        Ok(file.sync()?)
    }

    /// Makes sure of the end of the file and of the last batch, which lies between these two.
    pub fn settle(&self, from: u64, to: u64) -> io::Result<()> {
        match &self.state.lock().file {
            Some(file) => file.settle(from, to),
            None => Ok(()),
        }
    }

    /// Cuts off what a failed write may have left.
    pub fn truncate(&self, disk: &dyn Disk, len: u64) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.current(disk)?;
        let file = state.file.as_mut().ok_or(JournalError::Replaced)?;
        Ok(file.cut(len)?)
    }

    /// Publishes tiles and checkpoint; attempts are numbered, and an older one does nothing.
    pub fn publish(
        &self,
        disk: &dyn Disk,
        attempt: u64,
        files: &[Published],
        note: &[u8],
        reserve: Reserve,
    ) -> Result<(), JournalError> {
        let publishing = {
            let state = self.state.lock();
            state.current(disk)?;
            state.publishing.clone()
        };
        let mut newest = publishing.lock();
        if attempt <= *newest {
            return Err(JournalError::Outdated);
        }
        *newest = attempt;
        publish(disk, files, note, reserve)?;
        Ok(())
    }

    /// Sets room aside, if there is too little.
    pub fn make_reserve(&self, disk: &dyn Disk) -> io::Result<()> {
        let file = disk.open(RESERVE, Open::Create)?;
        match fill_up(file.as_ref(), self.reserve_bytes) {
            // On a disk that is full already, the service still starts.
            Err(error) if durable::is_full(&error) => disk.remove(RESERVE),
            other => other,
        }
    }

    /// Whether the name still leads to the file that was opened.
    pub fn check(&self, disk: &dyn Disk) -> Result<(), JournalError> {
        self.state.lock().current(disk).map(|_| ())
    }
}

impl State {
    fn current(&self, disk: &dyn Disk) -> Result<&journal::Journal<Audit>, JournalError> {
        let file = self.file.as_ref().ok_or(JournalError::Replaced)?;
        match file.is_current(disk)? {
            true => Ok(file),
            false => Err(JournalError::Replaced),
        }
    }
}

/// What becomes of the reserve on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// There will be a last checkpoint that needs it more.
    Keep,
    /// This is the last one.
    Use,
}

/// Writes the tiles, then replaces the checkpoint.
fn publish(disk: &dyn Disk, files: &[Published], note: &[u8], reserve: Reserve) -> io::Result<()> {
    match publish_once(disk, files, note) {
        Err(error)
            if reserve == Reserve::Use && durable::is_full(&error) && free_reserve(disk)? =>
        {
            ron_core::sometimes!("kms.reserve_used");
            publish_once(disk, files, note)
        }
        other => other,
    }
}

/// With zeros that take up room, not a hole.
fn fill_up(file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
    let mut at = file.len()?;
    if at >= bytes {
        return Ok(());
    }
    let zeros = vec![0; PIECE];
    while at < bytes {
        let piece = (bytes - at).min(PIECE as u64);
        file.write_at(at, &zeros[..piece as usize])?;
        at += piece;
    }
    file.sync()
}

/// Gives up the reserve; false if there is none.
pub fn free_reserve(disk: &dyn Disk) -> io::Result<bool> {
    if disk.identity(RESERVE)?.is_none() {
        return Ok(false);
    }
    disk.remove(RESERVE)?;
    disk.sync_dir(DIR)?;
    Ok(true)
}

/// What verifiers need to know, for whoever copies the directory.
pub fn write_keys(disk: &dyn Disk, text: &str) -> io::Result<()> {
    let current = read_small(disk, KEYS)?;
    if current.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    if current.is_some() || disk.identity(CHECKPOINT)?.is_some() {
        tracing::warn!("{KEYS} was deleted, or said something else: it is written anew");
    }
    replace(disk, "audit/keys.new", KEYS, text.as_bytes())
}

/// The bytes of a tile as published; `None` if there is none.
pub fn read_tile(disk: &dyn Disk, tile: &Tile) -> io::Result<Option<Vec<u8>>> {
    let bytes = read_small(disk, &tile_path(tile))?;
    if bytes.is_some() || !tile.is_partial() {
        return Ok(bytes);
    }
    // A full tile took the place of its partial ones; they are its beginning.
    let Ok(full) = Tile::new(tile.kind(), tile.index(), TILE_WIDTH as u16) else {
        return Ok(None);
    };
    let Some(bytes) = read_small(disk, &tile_path(&full))? else {
        return Ok(None);
    };
    let width = usize::from(tile.width());
    Ok(match tile.kind() {
        Kind::Hashes { .. } => bytes.get(..width * 32).map(<[u8]>::to_vec),
        Kind::Entries => first_entries(&bytes, width),
    })
}

/// The head that the note on the disk has, without verifying it.
pub fn published_head(note: &[u8]) -> Option<Head> {
    let note = Note::parse(note).ok()?;
    let checkpoint = crate::audit::checkpoint::Checkpoint::parse(&note.text).ok()?;
    Some(Head {
        size: checkpoint.size,
        root: checkpoint.root,
    })
}

fn tile_path(tile: &Tile) -> String {
    format!("{DIR}/{tile}")
}

fn read_checkpoint(disk: &dyn Disk, trust: &Trust) -> io::Result<(Stored, Option<Vec<u8>>)> {
    let Some(bytes) = read_small(disk, CHECKPOINT)? else {
        return Ok((Stored::Absent, None));
    };
    Ok(match trust.verify(&bytes) {
        Ok(verified) => (Stored::Verified(verified.checkpoint), Some(bytes)),
        Err(_) => (Stored::Invalid, None),
    })
}

/// What to do about published files that are not what the records make of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mending {
    /// Only count them: as long as the records themselves are not verified, the files may be the better evidence.
    Look,
    /// Write them anew: the records are the truth, tiles only their copy.
    Write,
}

/// Compares what is published with what the records make of it.
pub struct Mender<'a> {
    disk: &'a dyn Disk,
    edge: Edge,
    /// What the checkpoint covers, and so is published.
    covered: u64,
    mending: Mending,
    damaged: u64,
}

impl<'a> Mender<'a> {
    pub fn new(disk: &'a dyn Disk, covered: u64, mending: Mending) -> Self {
        Mender {
            disk,
            edge: Edge::default(),
            covered,
            mending,
            damaged: 0,
        }
    }

    /// The next record of the log.
    pub fn record(&mut self, leaf: &[u8]) {
        if self.edge.size() >= self.covered || self.edge.push(leaf).is_err() {
            return;
        }
        let mut files = self.edge.take_full();
        if self.edge.size() == self.covered {
            files.extend(self.edge.pending().unwrap_or_default());
        }
        for file in files {
            let there = read_tile(self.disk, &file.tile).ok().flatten();
            if there.as_deref() != Some(&file.bytes[..]) {
                self.damaged += 1;
                if self.mending == Mending::Write {
                    self.mend(&file);
                }
            }
        }
    }

    /// Files that were not as they should be.
    pub fn damaged(self) -> u64 {
        self.damaged
    }

    fn mend(&self, file: &Published) {
        ron_core::sometimes!("kms.tile_mended");
        let mut dirs = BTreeSet::new();
        let written = write_tile(self.disk, &mut dirs, file).and_then(|written| {
            written.sync()?;
            dirs.iter().try_for_each(|dir| self.disk.sync_dir(dir))
        });
        if let Err(error) = written {
            // Its proofs are refused meanwhile; the next start tries again.
            tracing::warn!(tile = %file.tile, %error, "a damaged tile could not be written anew");
        }
    }
}

/// How many files are open at once while tiles are published.
const SYNCED_TOGETHER: usize = 64;

fn publish_once(disk: &dyn Disk, files: &[Published], note: &[u8]) -> io::Result<()> {
    let mut dirs = BTreeSet::new();
    for some in files.chunks(SYNCED_TOGETHER) {
        // All are written before the first is synced: a file system then does much of it in one go.
        let written = some.iter().map(|file| write_tile(disk, &mut dirs, file));
        let written: Vec<_> = written.collect::<io::Result<_>>()?;
        for file in written {
            file.sync()?;
        }
    }
    for dir in &dirs {
        disk.sync_dir(dir)?;
    }
    replace(disk, CHECKPOINT_NEW, CHECKPOINT, note)?;
    for Published { tile, .. } in files {
        if !tile.is_partial() {
            remove_partials(disk, tile);
        }
    }
    Ok(())
}

fn write_tile(
    disk: &dyn Disk,
    dirs: &mut BTreeSet<String>,
    Published { tile, bytes }: &Published,
) -> io::Result<Arc<dyn DiskFile>> {
    let path = tile_path(tile);
    let dir = path.rsplit_once('/').map_or(DIR, |(dir, _)| dir);
    if !dirs.contains(dir) {
        disk.create_dir(dir)?;
        // New directories are names in their parents.
        let mut at = dir;
        while let Some((parent, _)) = at.rsplit_once('/') {
            dirs.insert(at.to_owned());
            at = parent;
        }
        dirs.insert(at.to_owned());
    }
    let file = disk.open(&path, Open::Create)?;
    file.set_len(bytes.len() as u64)?;
    file.write_at(0, bytes)?;
    Ok(file)
}

/// A full tile holds all that its partial ones did. Best effort: what stays only takes room.
fn remove_partials(disk: &dyn Disk, tile: &Tile) {
    let dir = format!("{}.p", tile_path(tile));
    for name in disk.list(&dir).unwrap_or_default() {
        let _ = disk.remove(&format!("{dir}/{name}"));
    }
}

fn replace(disk: &dyn Disk, new: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = disk.open(new, Open::Create)?;
    // Not to the length it shall have, which an attempt that failed may have set without the disk's knowing.
    file.set_len(0)?;
    file.write_at(0, bytes)?;
    file.sync()?;
    disk.rename(new, name)?;
    disk.sync_dir(DIR)
}

fn first_entries(bundle: &[u8], width: usize) -> Option<Vec<u8>> {
    let mut at = 0;
    for _ in 0..width {
        let length = bundle.get(at..at + 2)?;
        at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
    }
    bundle.get(..at).map(<[u8]>::to_vec)
}

fn read_small(disk: &dyn Disk, path: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = file.len()?;
    if len > MAX_SMALL_FILE.max(TILE_WIDTH * (u64::from(u16::MAX) + 2)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long"));
    }
    let mut bytes = vec![0; len as usize];
    let read = durable::read_full(file.as_ref(), 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests;
