//! A disk that holds what it is told, and can be told to fail in one way.

use std::{
    io,
    sync::{Arc, Mutex},
};

use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};
use ron_io::MemoryDisk;

pub struct FickleDisk {
    disk: MemoryDisk,
    fails: Mutex<Option<Failing>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Directories cannot be synced.
    DirSync,
    /// No file can be written beside another, to take its place.
    Beside,
}

impl FickleDisk {
    pub fn new(limit_bytes: u64) -> FickleDisk {
        FickleDisk {
            disk: MemoryDisk::new(limit_bytes),
            fails: Mutex::default(),
        }
    }

    pub fn fail(&self, how: Option<Failing>) {
        *self.fails.lock().unwrap() = how;
    }

    fn check(&self, how: Failing) -> io::Result<()> {
        match *self.fails.lock().unwrap() == Some(how) {
            true => Err(io::Error::other(format!("{how:?} fails"))),
            false => Ok(()),
        }
    }
}

impl Disk for FickleDisk {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        if path.ends_with(".new") {
            self.check(Failing::Beside)?;
        }
        self.disk.open(path, how)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.check(Failing::DirSync)?;
        self.disk.sync_dir(dir)
    }

    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        self.disk.identity(path)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }
}
