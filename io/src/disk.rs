//! Files of the operating system under one root.
//!
//! Always: no path leaves the root; appends to one file never overlap, through however many handles; what is made here
//! only its owner can read. What others made wider is left as it is, and told once: they may have had a reason.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::SystemTime,
};

use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};

use ron_core::disk_path::{check, check_dir};

pub struct FileDisk {
    root: PathBuf,
    /// One lock per open file, not per handle: finding the end and writing there is one step.
    appending: Mutex<BTreeMap<FileId, Weak<Mutex<()>>>>,
}

impl FileDisk {
    /// Creates the root if need be.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        make_dir(&root)?;
        let mode = fs::metadata(&root)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = root.display();
            tracing::warn!(
                "others can look into the data directory {path} (mode {mode:o}): run `chmod -R go= {path}`"
            );
        }
        Ok(FileDisk {
            root,
            appending: Mutex::default(),
        })
    }

    fn at(&self, path: &str) -> io::Result<PathBuf> {
        Ok(self.root.join(check(path)?))
    }

    fn dir_at(&self, path: &str) -> io::Result<PathBuf> {
        Ok(self.root.join(check_dir(path)?))
    }

    fn appending(&self, id: FileId) -> Arc<Mutex<()>> {
        let mut all = self
            .appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = all.get(&id).and_then(Weak::upgrade) {
            return lock;
        }
        all.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        all.insert(id, Arc::downgrade(&lock));
        lock
    }
}

impl Disk for FileDisk {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = own();
        match how {
            Open::Existing => &mut options,
            Open::Create => options.create(true),
            Open::CreateNew => options.create_new(true),
        };
        let file = options.open(self.at(path)?)?;
        let id = file_id(&file.metadata()?);
        Ok(Arc::new(Opened {
            file,
            id,
            appending: self.appending(id),
        }))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        make_dir(&self.at(path)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from)?, self.at(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.dir_at(dir)?)? {
            let entry = entry?;
            let mut name = entry
                .file_name()
                .into_string()
                .map_err(|_| io::Error::other("a file name is not UTF-8"))?;
            if entry.file_type()?.is_dir() {
                name.push('/');
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let path = self.dir_at(dir)?;
        if !fs::metadata(&path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        File::open(path)?.sync_all()
    }

    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        match fs::metadata(self.at(path)?) {
            Ok(metadata) => Ok(Some(file_id(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        let file = own().create(true).truncate(false).open(self.at(path)?)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(Locked { _file: file })),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// A file that is made is its owner's alone.
fn own() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// A directory and its parents, its owner's alone; one that exists is left as it is.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

struct Opened {
    file: File,
    id: FileId,
    appending: Arc<Mutex<()>>,
}

impl DiskFile for Opened {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn append(&self, data: &[u8]) -> io::Result<u64> {
        let _alone = self
            .appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let end = self.len()?;
        self.write_at(end, data)?;
        Ok(end)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn identity(&self) -> io::Result<FileId> {
        Ok(self.id)
    }
}

/// The lock belongs to the open file and goes with it.
struct Locked {
    _file: File,
}

impl DiskLock for Locked {}

/// Device and inode, and the time of birth where the file system knows it: a freed inode number is soon
/// used again.
fn file_id(metadata: &fs::Metadata) -> FileId {
    let born = metadata
        .created()
        .ok()
        .and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok())
        .map_or(0, |d| d.as_nanos() as u64);
    FileId(metadata.dev().rotate_left(32) ^ born, metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn concurrent_appends_through_several_handles_never_overlap() {
        const EACH: usize = 500;
        let root = std::env::temp_dir().join(format!("ron-io-append-{}", std::process::id()));
        let disk = FileDisk::open(&root).unwrap();
        thread::scope(|scope| {
            for mark in 1..=4_u8 {
                let file = Disk::open(&disk, "log", Open::Create).unwrap();
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let at = file.append(&[mark; 16]).unwrap();
                        let mut back = [0; 16];
                        file.read_at(at, &mut back).unwrap();
                        assert_eq!(back, [mark; 16]);
                    }
                });
            }
        });
        let file = Disk::open(&disk, "log", Open::Existing).unwrap();
        assert_eq!(file.len().unwrap(), 4 * EACH as u64 * 16);
        fs::remove_dir_all(&root).unwrap();
    }
}
