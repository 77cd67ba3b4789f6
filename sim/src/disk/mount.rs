//! What a process holds of the disk: the seam's [`Disk`], its files and its locks, each bound to the
//! incarnation that opened it.
//!
//! A stale handle fails and changes nothing, wherever it is used. A live one is used inside an
//! offload only: anything else would block an executor in production, so here it panics.

use std::{
    cell::Cell,
    io,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};

use super::{
    faults::Op,
    state::{State, file_id, stale_error},
};

thread_local! {
    static OFFLOADS: Cell<u32> = const { Cell::new(0) };
}

/// Marks this thread as running an offloaded job until it drops. The world holds one around every
/// job of [`Pool::DISK`](ron_core::seam::Pool::DISK).
pub fn enter_offload() -> OffloadGuard {
    OFFLOADS.set(OFFLOADS.get() + 1);
    OffloadGuard(PhantomData)
}

/// See [`enter_offload`]. It stays on its thread.
pub struct OffloadGuard(PhantomData<*const ()>);

impl Drop for OffloadGuard {
    fn drop(&mut self) {
        OFFLOADS.set(OFFLOADS.get() - 1);
    }
}

pub(super) fn lock_state(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
pub(super) struct Mount {
    state: Arc<Mutex<State>>,
    incarnation: u64,
}

impl Mount {
    pub(super) fn new(state: Arc<Mutex<State>>) -> Self {
        let incarnation = lock_state(&state).begin_incarnation();
        Mount { state, incarnation }
    }

    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = lock_state(&self.state);
        if !state.is_live(self.incarnation) {
            state.stale_ops += 1;
            return Err(stale_error());
        }
        if OFFLOADS.get() == 0 {
            drop(state);
            // A second panic while one unwinds would abort the whole run.
            if std::thread::panicking() {
                return Err(io::Error::other(OUTSIDE));
            }
            panic!("{OUTSIDE}");
        }
        Ok(state)
    }

    fn leave(&self, close: impl FnOnce(&mut State)) {
        let mut state = lock_state(&self.state);
        if state.is_live(self.incarnation) {
            close(&mut state);
        }
    }

    fn file(&self, id: u64) -> Arc<dyn DiskFile> {
        Arc::new(File {
            mount: self.clone(),
            id,
        })
    }
}

const OUTSIDE: &str =
    "disk operation outside of an offload: files are reached only through Env::disk (Pool::DISK)";

impl Disk for Mount {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.enter()?.run(Op::Open, |disk| disk.open(path, how))?;
        Ok(self.file(id))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.enter()?
            .run(Op::CreateDir, |disk| disk.create_dir(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.enter()?.run(Op::Rename, |disk| disk.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.enter()?.run(Op::Remove, |disk| disk.remove(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.enter()?.run(Op::List, |disk| disk.list(dir))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.enter()?.sync_dir(dir)
    }

    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        self.enter()?.run(Op::Identity, |disk| disk.identity(path))
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        let id = self.enter()?.run(Op::Lock, |disk| disk.lock(path))?;
        Ok(Box::new(Lock {
            mount: self.clone(),
            id,
        }))
    }
}

struct File {
    mount: Mount,
    id: u64,
}

impl DiskFile for File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.mount.enter()?.run(Op::Read, |disk| {
            Ok(disk.file(self.id).seen().read_at(offset, buf))
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.mount.enter()?;
        disk.write(Op::Write, self.id, Some(offset), data)?;
        Ok(())
    }

    fn append(&self, data: &[u8]) -> io::Result<u64> {
        self.mount.enter()?.write(Op::Append, self.id, None, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.mount
            .enter()?
            .run(Op::Len, |disk| Ok(disk.file(self.id).seen().len()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.mount
            .enter()?
            .run(Op::SetLen, |disk| disk.set_len(self.id, len))
    }

    fn sync(&self) -> io::Result<()> {
        self.mount.enter()?.sync(self.id)
    }

    fn identity(&self) -> io::Result<FileId> {
        self.mount
            .enter()?
            .run(Op::Identity, |_| Ok(file_id(self.id)))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.mount.leave(|disk| disk.close(self.id));
    }
}

struct Lock {
    mount: Mount,
    id: u64,
}

impl DiskLock for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        self.mount.leave(|disk| disk.unlock(self.id));
    }
}
