//! A disk that forgets: amnesia mode. It keeps the seam's rules and loses everything with the process.
//!
//! Always: its files together hold at most the limit; beyond it writes fail as on a full disk.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use ron_core::seam::{Disk, DiskFile, DiskLock, FileId, Open};

use ron_core::disk_path::{check, check_dir};

pub struct MemoryDisk {
    names: Mutex<BTreeMap<String, Node>>,
    space: Arc<Space>,
    ids: AtomicU64,
}

#[derive(Clone)]
enum Node {
    Dir,
    File(Arc<Contents>),
}

impl MemoryDisk {
    pub fn new(limit_bytes: u64) -> Self {
        MemoryDisk {
            names: Mutex::default(),
            space: Arc::new(Space {
                free: AtomicU64::new(limit_bytes),
            }),
            ids: AtomicU64::new(1),
        }
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Node>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, path: &str, how: Open) -> io::Result<Arc<Contents>> {
        let path = check(path)?;
        let mut names = self.names();
        match (names.get(path), how) {
            (Some(_), Open::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(file)), _) => Ok(file.clone()),
            (Some(Node::Dir), _) => Err(io::ErrorKind::IsADirectory.into()),
            (None, Open::Existing) => Err(missing(&names, path)),
            (None, _) => {
                parent_must_exist(&names, path)?;
                let file = Arc::new(Contents {
                    id: FileId(0, self.ids.fetch_add(1, Ordering::Relaxed)),
                    data: Mutex::default(),
                    space: self.space.clone(),
                    locked: AtomicBool::new(false),
                });
                names.insert(path.into(), Node::File(file.clone()));
                Ok(file)
            }
        }
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, how)?)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let path = check(path)?;
        let mut names = self.names();
        let ends = path.match_indices('/').map(|(i, _)| i).chain([path.len()]);
        for end in ends {
            match names.get(&path[..end]) {
                Some(Node::Dir) => {}
                Some(Node::File(_)) if end == path.len() => {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    names.insert(path[..end].into(), Node::Dir);
                }
            }
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (check(from)?, check(to)?);
        let mut names = self.names();
        let node = names
            .get(from)
            .cloned()
            .ok_or_else(|| missing(&names, from))?;
        parent_must_exist(&names, to)?;
        if from == to {
            return Ok(());
        }
        match (&node, names.get(to)) {
            (Node::File(_), Some(Node::Dir)) => return Err(io::ErrorKind::IsADirectory.into()),
            (Node::Dir, Some(Node::File(_))) => return Err(io::ErrorKind::NotADirectory.into()),
            (Node::Dir, Some(Node::Dir)) if below(&names, to).next().is_some() => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            (Node::Dir, _) if to.starts_with(&format!("{from}/")) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            _ => {}
        }
        let inside: Vec<String> = below(&names, from).map(|(name, _)| name.clone()).collect();
        for name in inside {
            if let Some(node) = names.remove(&name) {
                names.insert(format!("{to}{}", &name[from.len()..]), node);
            }
        }
        names.remove(from);
        names.insert(to.into(), node);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let path = check(path)?;
        let mut names = self.names();
        match names.get(path) {
            Some(Node::File(_)) => {
                names.remove(path);
                Ok(())
            }
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(missing(&names, path)),
        }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let dir = check_dir(dir)?;
        let names = self.names();
        dir_must_exist(&names, dir)?;
        let skip = if dir.is_empty() { 0 } else { dir.len() + 1 };
        let mut found: Vec<String> = below(&names, dir)
            .filter(|(name, _)| !name[skip..].contains('/'))
            .map(|(name, node)| match node {
                Node::Dir => format!("{}/", &name[skip..]),
                Node::File(_) => name[skip..].into(),
            })
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        dir_must_exist(&self.names(), check_dir(dir)?)
    }

    fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        let path = check(path)?;
        let names = self.names();
        match names.get(path) {
            Some(Node::File(file)) => Ok(Some(file.id)),
            // Directories are told apart by nobody.
            Some(Node::Dir) => Ok(Some(FileId(0, 0))),
            None => match missing(&names, path) {
                error if error.kind() == io::ErrorKind::NotFound => Ok(None),
                error => Err(error),
            },
        }
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        let file = self.file(path, Open::Create)?;
        if file.locked.swap(true, Ordering::AcqRel) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Locked(file)))
    }
}

/// What is left of the limit.
struct Space {
    free: AtomicU64,
}

impl Space {
    fn take(&self, bytes: u64) -> io::Result<()> {
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(bytes)
            })
            .map(|_| ())
            .map_err(|_| io::ErrorKind::StorageFull.into())
    }

    fn give(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A file's bytes: they live as long as its name or a handle does.
struct Contents {
    id: FileId,
    data: Mutex<Vec<u8>>,
    space: Arc<Space>,
    locked: AtomicBool,
}

impl Contents {
    fn data(&self) -> MutexGuard<'_, Vec<u8>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resize(&self, data: &mut Vec<u8>, len: u64) -> io::Result<()> {
        let old = data.len() as u64;
        if len > old {
            self.space.take(len - old)?;
        } else {
            self.space.give(old - len);
        }
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        data.resize(len, 0);
        Ok(())
    }

    fn write(&self, data: &mut Vec<u8>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        if !bytes.is_empty() {
            if end > data.len() as u64 {
                self.resize(data, end)?;
            }
            data[offset as usize..end as usize].copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.space.give(self.data().len() as u64);
    }
}

impl DiskFile for Contents {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let data = self.data();
        let start = usize::try_from(offset).map_or(data.len(), |o| o.min(data.len()));
        let n = buf.len().min(data.len() - start);
        buf[..n].copy_from_slice(&data[start..start + n]);
        Ok(n)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(&mut self.data(), offset, bytes)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut data = self.data();
        let end = data.len() as u64;
        self.write(&mut data, end, bytes)?;
        Ok(end)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.data().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(&mut self.data(), len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn identity(&self) -> io::Result<FileId> {
        Ok(self.id)
    }
}

struct Locked(Arc<Contents>);

impl DiskLock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

/// Everything below a directory, at any depth.
fn below<'a>(
    names: &'a BTreeMap<String, Node>,
    dir: &str,
) -> impl Iterator<Item = (&'a String, &'a Node)> + use<'a> {
    let prefix = if dir.is_empty() {
        String::new()
    } else {
        format!("{dir}/")
    };
    names
        .range(prefix.clone()..)
        .take_while(move |(name, _)| name.starts_with(&prefix))
}

fn dir_must_exist(names: &BTreeMap<String, Node>, dir: &str) -> io::Result<()> {
    match names.get(dir) {
        _ if dir.is_empty() => Ok(()),
        Some(Node::Dir) => Ok(()),
        Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
        None => Err(missing(names, dir)),
    }
}

fn parent_must_exist(names: &BTreeMap<String, Node>, path: &str) -> io::Result<()> {
    dir_must_exist(names, path.rsplit_once('/').map_or("", |(dir, _)| dir))
}

/// Why there is nothing at `path`: as on a real disk, a file in the middle of it is another error.
fn missing(names: &BTreeMap<String, Node>, path: &str) -> io::Error {
    let through_a_file = path
        .match_indices('/')
        .any(|(end, _)| matches!(names.get(&path[..end]), Some(Node::File(_))));
    if through_a_file {
        io::ErrorKind::NotADirectory.into()
    } else {
        io::ErrorKind::NotFound.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_refuses_and_takes_again_once_space_is_freed() {
        let disk = MemoryDisk::new(10);
        let a = disk.open("a", Open::Create).unwrap();
        a.append(&[1; 8]).unwrap();
        let b = disk.open("b", Open::Create).unwrap();
        for full in [
            b.append(&[2; 3]).map(|_| ()),
            b.write_at(3, &[0]),
            b.set_len(3),
            b.set_len(u64::MAX),
        ] {
            assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        assert_eq!(b.len().unwrap(), 0);

        disk.remove("a").unwrap();
        assert!(b.set_len(3).is_err(), "an open handle keeps its bytes");
        drop(a);
        b.set_len(10).unwrap();
        b.set_len(0).unwrap();
        b.append(&[3; 10]).unwrap();
    }

    #[test]
    fn a_renamed_directory_takes_its_contents_along() {
        let disk = MemoryDisk::new(1 << 20);
        disk.create_dir("a/b").unwrap();
        disk.open("a/b/f", Open::Create)
            .unwrap()
            .append(b"x")
            .unwrap();
        disk.open("ab", Open::Create).unwrap();
        disk.rename("a", "c").unwrap();
        assert_eq!(disk.list("").unwrap(), ["ab", "c/"]);
        assert_eq!(disk.list("c/b").unwrap(), ["f"]);
        assert!(disk.rename("c", "c/d").is_err());
    }
}
