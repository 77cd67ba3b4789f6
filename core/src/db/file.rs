//! What redb reads and writes: a file of the seam's disk, or bytes in memory.
//!
//! Always: after the first failure, or once its opening has ended, nothing reaches the storage any more; a
//! new file gets its name only when its contents are durable.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::StorageBackend;

use crate::{
    durable,
    lock::{LEAF, LockDecl, RankedMutex},
    seam::{Disk, DiskFile, Open},
};

/// Passes on until `ended`, and ends at the first failure: what a failed sync lost must not be built upon.
pub(super) struct Guarded<S> {
    storage: S,
    ended: Arc<AtomicBool>,
}

impl<S> Guarded<S> {
    pub fn new(storage: S, ended: Arc<AtomicBool>) -> Guarded<S> {
        Guarded { storage, ended }
    }

    fn pass<T>(&self, operation: impl FnOnce(&S) -> io::Result<T>) -> io::Result<T> {
        if self.ended.load(Ordering::Acquire) {
            return Err(io::Error::other("this opening of the database has ended"));
        }
        operation(&self.storage).inspect_err(|_| self.ended.store(true, Ordering::Release))
    }
}

impl<S: StorageBackend> StorageBackend for Guarded<S> {
    fn len(&self) -> io::Result<u64> {
        self.pass(S::len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pass(|storage| storage.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.pass(|storage| storage.set_len(len))
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

pub(super) struct Stored(Arc<dyn DiskFile>);

/// The file of an earlier opening. Whoever made it may have been killed before its name was durable; and if one of its
/// syncs failed, the system goes on to show what the disk never got. Such a file verifies, is built upon, and is
/// damaged when the power goes. Therefore all of it is written again: it is small, and is read to its end anyway.
pub(super) fn open(disk: &Arc<dyn Disk>, path: &str) -> io::Result<Stored> {
    disk.sync_dir(durable::directory(path))?;
    let file = disk.open(path, Open::Existing)?;
    // The length first: what is torn beyond the end that the disk knows of would leave one that no database has.
    // A length itself is never torn.
    durable::settle_length(file.as_ref())?;
    durable::settle(file.as_ref(), 0, file.len()?)?;
    Ok(Stored(file))
}

/// Writes the contents beside, syncs, and renames: a crash leaves no half of a file under the name.
pub(super) fn create(disk: &Arc<dyn Disk>, path: &str, contents: &[u8]) -> io::Result<()> {
    let beside = format!("{path}.new");
    let file = disk.open(&beside, Open::Create)?;
    file.set_len(0)?;
    file.set_len(contents.len() as u64)?;
    for (block, offset) in contents.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
        // An empty database is zeros for the most part.
        if block.iter().any(|byte| *byte != 0) {
            file.write_at(offset, block)?;
        }
    }
    file.sync()?;
    disk.rename(&beside, path)?;
    disk.sync_dir(durable::directory(path))
}

const BLOCK: usize = 4096;

impl StorageBackend for Stored {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self.0.read_at(offset + done as u64, &mut out[done..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
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
