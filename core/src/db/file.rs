//! What redb reads and writes: a file of the seam's disk, or bytes in memory.
//!
//! Always: after the first failure, or once its opening has ended, nothing reaches the storage any more; what may not be
//! on the disk as it is shown is on account before it is written.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redb::StorageBackend;

use crate::{
    durable,
    lock::{LEAF, LockDecl, RankedMutex},
    seam::{Disk, DiskFile, Open},
};

use super::unsynced::Unsynced;

/// What is known of one opening, by redb's side and by ours.
#[derive(Debug, Default)]
pub(super) struct Known {
    ended: AtomicBool,
    len: AtomicU64,
}

impl Known {
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The length of the file.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }
}

/// Passes on until it ended, and ends at the first failure: what a failed sync lost must not be built upon.
pub(super) struct Guarded<S> {
    storage: S,
    known: Arc<Known>,
}

impl<S> Guarded<S> {
    pub fn new(storage: S, known: Arc<Known>) -> Guarded<S> {
        Guarded { storage, known }
    }

    fn pass<T>(&self, operation: impl FnOnce(&S) -> io::Result<T>) -> io::Result<T> {
        if self.known.ended() {
            return Err(io::Error::other("this opening of the database has ended"));
        }
        operation(&self.storage).inspect_err(|_| self.known.end())
    }
}

impl<S: StorageBackend> StorageBackend for Guarded<S> {
    fn len(&self) -> io::Result<u64> {
        let len = self.pass(S::len)?;
        self.known.len.store(len, Ordering::Release);
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pass(|storage| storage.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.pass(|storage| storage.set_len(len))?;
        self.known.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.pass(S::sync_data)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pass(|storage| storage.write(offset, data))
    }
}

impl<S> fmt::Debug for Guarded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarded")
    }
}

pub(super) struct Stored {
    file: Arc<dyn DiskFile>,
    unsynced: RankedMutex<Unsynced>,
}

const UNSYNCED_LOCK: LockDecl = LockDecl {
    name: "database_unsynced",
    rank: LEAF,
    guards: "what was written to the file of a database since its last sync",
};

/// The file of an earlier opening. Whoever made it may have been killed before its name was durable; and if one of its
/// syncs failed, the system goes on to show what the disk never got. Such a file verifies, is built upon, and is
/// damaged when the power goes. Therefore what was not synced is written again: what the account beside the file says,
/// or all of it if there is none (a copy, or the file of an older version).
pub(super) fn open(disk: &Arc<dyn Disk>, path: &str) -> io::Result<Stored> {
    disk.sync_dir(durable::directory(path))?;
    let file = disk.open(path, Open::Existing)?;
    let id = file.identity()?;
    let unsynced = match Unsynced::found(&**disk, path, id)? {
        Some(mut found) => {
            if !found.is_empty() {
                settle(&*file, found.parts())?;
                found.clear()?;
            }
            found
        }
        None => {
            settle(&*file, std::iter::once(0..file.len()?))?;
            Unsynced::begin(&**disk, path, id)?
        }
    };
    Ok(Stored {
        file,
        unsynced: RankedMutex::new(UNSYNCED_LOCK, unsynced),
    })
}

fn settle(
    file: &dyn DiskFile,
    parts: impl IntoIterator<Item = std::ops::Range<u64>>,
) -> io::Result<()> {
    // The length first: what is torn beyond the end that the disk knows of would leave one that no database has.
    // A length itself is never torn.
    durable::settle_length(file)?;
    for part in parts {
        durable::rewrite(file, part.start, part.end)?;
    }
    file.sync()
}

impl Stored {
    pub fn is_empty(&self) -> io::Result<bool> {
        self.file.is_empty()
    }
}

impl StorageBackend for Stored {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match durable::read_full(&*self.file, offset, out)? == out.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock();
        // Whatever is on account, the length is made sure of with it.
        unsynced.mark(0, 1)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock();
        self.file.sync()?;
        unsynced.clear()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock();
        unsynced.mark(offset, data.len() as u64)?;
        self.file.write_at(offset, data)
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stored")
    }
}

#[derive(Clone)]
pub(super) struct Memory(Arc<RankedMutex<Vec<u8>>>);

const MEMORY_LOCK: LockDecl = LockDecl {
    name: "database_bytes",
    rank: LEAF,
    guards: "the bytes of a database in memory",
};

impl Default for Memory {
    fn default() -> Memory {
        Memory::holding(&[])
    }
}

impl Memory {
    pub fn holding(contents: &[u8]) -> Memory {
        Memory(Arc::new(RankedMutex::new(MEMORY_LOCK, contents.to_vec())))
    }

    pub fn contents(&self) -> Vec<u8> {
        self.0.lock().clone()
    }
}

/// Where `len` bytes from `offset` lie, if all of them are there.
fn span(bytes: &[u8], offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    let end = start.checked_add(len).filter(|end| *end <= bytes.len());
    Ok(start..end.ok_or(io::ErrorKind::UnexpectedEof)?)
}

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock();
        let span = span(&bytes, offset, out.len())?;
        out.copy_from_slice(&bytes[span]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.0.lock().resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock();
        let span = span(&bytes, offset, data.len())?;
        bytes[span].copy_from_slice(data);
        Ok(())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}
