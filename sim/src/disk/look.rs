//! A disk as the world sees it, for code that reads through the seam: no incarnation, no faults, no writing.

use std::{collections::BTreeSet, io, sync::Arc};

use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};

use super::SimDisk;

/// Reads a node's files from outside, at any moment.
pub struct Look(pub SimDisk);

struct Bytes(Vec<u8>);

fn read_only<T>() -> io::Result<T> {
    Err(io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "a look from outside changes nothing",
    ))
}

impl Disk for Look {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        match (self.0.read_file(path), how) {
            (Some(bytes), Open::Existing | Open::Create) => Ok(Arc::new(Bytes(bytes))),
            (None, Open::Existing) => Err(io::ErrorKind::NotFound.into()),
            _ => read_only(),
        }
    }

    fn create_dir(&self, _: &str) -> io::Result<()> {
        read_only()
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        read_only()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        read_only()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = match dir {
            "" => String::new(),
            dir => format!("{dir}/"),
        };
        let files = self.0.list_files();
        let below = files.iter().filter_map(|path| path.strip_prefix(&prefix));
        let names: BTreeSet<String> = below
            .map(|rest| match rest.split_once('/') {
                Some((dir, _)) => format!("{dir}/"),
                None => rest.to_owned(),
            })
            .collect();
        match names.is_empty() && !dir.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names.into_iter().collect()),
        }
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        read_only()
    }

    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        Ok(self.0.read_file(path).map(|_| FileId(0, 0)))
    }

    fn lock(&self, _: &str) -> io::Result<Box<dyn DiskLock>> {
        read_only()
    }
}

impl DiskFile for Bytes {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.0.len());
        let rest = &self.0[from..];
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn append(&self, _: &[u8]) -> io::Result<u64> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn identity(&self) -> io::Result<FileId> {
        Ok(FileId(0, 0))
    }
}
