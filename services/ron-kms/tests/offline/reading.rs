//! Disks that are slow or refuse: no verdict is made of what could not be read.

use std::{io, sync::Arc};

use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};
use ron_io::MemoryDisk;

use crate::{disk, eventful, verify, written::Keys};

/// A disk that hands out a few bytes at a time, and fails for one file.
struct Slow {
    disk: MemoryDisk,
    fails: &'static str,
}

struct SlowFile(Arc<dyn DiskFile>);

impl Disk for Slow {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        match path.ends_with(self.fails) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(Arc::new(SlowFile(self.disk.open(path, how)?))),
        }
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
        self.disk.sync_dir(dir)
    }
    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        self.disk.identity(path)
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }
}

impl DiskFile for SlowFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let few = buf.len().min(7);
        self.0.read_at(offset, &mut buf[..few])
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
    fn append(&self, data: &[u8]) -> io::Result<u64> {
        self.0.append(data)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn identity(&self) -> io::Result<FileId> {
        self.0.identity()
    }
}

#[test]
fn short_reads_are_read_on_and_a_file_that_cannot_be_read_is_no_verdict() {
    let (disk, keys) = (disk(), Keys::new(1));
    let size = eventful(&disk, &keys).log.covered();
    let mut disk = Slow {
        disk,
        fails: "nothing",
    };
    assert_eq!(verify(&disk).unwrap().size, size);
    for file in ["keys.txt", "checkpoint", "log", "tile/0/001", "entries/000"] {
        disk.fails = file;
        let error = verify(&disk).unwrap_err();
        assert!(error.is_unreadable(), "{error}");
        assert!(error.file.ends_with(file), "{error}");
        assert!(error.to_string().contains("cannot be read: "), "{error}");
    }
}
