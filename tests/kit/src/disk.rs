//! A disk in memory that does as it is told: every operation is shown to a rule first, which may count it, refuse it, or
//! end it; reads may be short.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};
use ron_io::MemoryDisk;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Open,
    Read { at: u64, len: usize },
    Write { at: u64, len: usize },
    Append { len: usize },
    SetLen(u64),
    Sync,
    Rename,
    Remove,
    SyncDir,
}

/// Refuses what it answers an error for. It gets the path of the file, or of the directory.
pub type Rule = dyn Fn(&str, Op) -> io::Result<()> + Send + Sync;

/// A handle; clones share one disk.
#[derive(Clone)]
pub struct ToldDisk(Arc<Inner>);

struct Inner {
    disk: MemoryDisk,
    rule: Mutex<Arc<Rule>>,
    most_read: AtomicUsize,
}

impl ToldDisk {
    pub fn new(limit_bytes: u64) -> ToldDisk {
        ToldDisk(Arc::new(Inner {
            disk: MemoryDisk::new(limit_bytes),
            rule: Mutex::new(Arc::new(|_, _| Ok(()))),
            most_read: AtomicUsize::new(usize::MAX),
        }))
    }

    /// From now on every operation is shown to this rule, and to no other.
    pub fn tell(&self, rule: impl Fn(&str, Op) -> io::Result<()> + Send + Sync + 'static) {
        *self.0.rule.lock().unwrap() = Arc::new(rule);
    }

    /// From now on it does as any disk.
    pub fn behave(&self) {
        self.tell(|_, _| Ok(()));
    }

    /// No read gets more than so many bytes.
    pub fn read_at_most(&self, bytes: usize) {
        self.0.most_read.store(bytes, Ordering::Relaxed);
    }

    /// The whole contents of a file.
    pub fn contents(&self, path: &str) -> Vec<u8> {
        let file = self.0.disk.open(path, Open::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Puts these bytes in the place of what a file holds, or makes it.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let file = self.0.disk.open(path, Open::Create).unwrap();
        file.set_len(0).unwrap();
        file.write_at(0, bytes).unwrap();
    }

    fn ask(&self, path: &str, op: Op) -> io::Result<()> {
        let rule = self.0.rule.lock().unwrap().clone();
        rule(path, op)
    }
}

impl Disk for ToldDisk {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        self.ask(path, Op::Open)?;
        Ok(Arc::new(ToldFile {
            path: path.to_owned(),
            disk: self.clone(),
            file: self.0.disk.open(path, how)?,
        }))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.0.disk.create_dir(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.ask(to, Op::Rename)?;
        self.0.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.ask(path, Op::Remove)?;
        self.0.disk.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.disk.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.ask(dir, Op::SyncDir)?;
        self.0.disk.sync_dir(dir)
    }

    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        self.0.disk.identity(path)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        self.0.disk.lock(path)
    }
}

struct ToldFile {
    path: String,
    disk: ToldDisk,
    file: Arc<dyn DiskFile>,
}

impl DiskFile for ToldFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.disk.ask(
            &self.path,
            Op::Read {
                at: offset,
                len: buf.len(),
            },
        )?;
        let most = buf.len().min(self.disk.0.most_read.load(Ordering::Relaxed));
        self.file.read_at(offset, &mut buf[..most])
    }

    fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let len = data.len();
        self.disk.ask(&self.path, Op::Write { at, len })?;
        self.file.write_at(at, data)
    }

    fn append(&self, data: &[u8]) -> io::Result<u64> {
        self.disk.ask(&self.path, Op::Append { len: data.len() })?;
        self.file.append(data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.ask(&self.path, Op::SetLen(len))?;
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.ask(&self.path, Op::Sync)?;
        self.file.sync()
    }

    fn identity(&self) -> io::Result<FileId> {
        self.file.identity()
    }
}
