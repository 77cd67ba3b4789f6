//! Names in two layers, and the rules of paths.
//!
//! Changes of names become durable as on a journaling filesystem: of each directory a prefix of its
//! changes survives, a rename is one change even between two directories, and a name under a directory
//! whose own name did not survive is gone. Directories are neither renamed nor removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use super::dice::Dice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(u64),
    Dir(u64),
}

/// Paths in order, and where they lead. A list, because most disks have a few names and a world has many disks;
/// both layers hold a path once.
#[derive(Clone, Default)]
pub(super) struct Map(Vec<(Arc<str>, Entry)>);

/// So many names have room for no more.
const SMALL: usize = 8;

impl Map {
    fn get(&self, path: &str) -> Option<&Entry> {
        self.place(path).ok().map(|at| &self.0[at].1)
    }

    fn insert(&mut self, path: Arc<str>, entry: Entry) {
        match self.place(&path) {
            Ok(at) => self.0[at].1 = entry,
            Err(at) => {
                if self.0.len() < SMALL {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (path, entry));
            }
        }
    }

    fn remove(&mut self, path: &str) {
        if let Ok(at) = self.place(path) {
            self.0.remove(at);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Entry)> {
        self.from("")
    }

    /// From this path on.
    fn from(&self, path: &str) -> impl Iterator<Item = (&str, Entry)> {
        let first = self.place(path).unwrap_or_else(|at| at);
        self.0[first..]
            .iter()
            .map(|(path, entry)| (&**path, *entry))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().map(|(_, entry)| entry)
    }

    fn place(&self, path: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(path))
    }
}

/// Invariant: `durable` with `unsynced` replayed in order equals `seen`.
#[derive(Default)]
pub(super) struct Names {
    seen: Map,
    durable: Map,
    unsynced: Vec<Change>,
}

enum Change {
    Create {
        path: Arc<str>,
        entry: Entry,
    },
    Rename {
        from: Arc<str>,
        to: Arc<str>,
        file: u64,
    },
    Remove {
        path: Arc<str>,
    },
}

impl Names {
    pub(super) fn seen(&self) -> &Map {
        &self.seen
    }

    pub(super) fn get(&self, path: &str) -> Option<Entry> {
        self.seen.get(path).copied()
    }

    pub(super) fn file(&self, path: &str) -> io::Result<Option<u64>> {
        match self.get(path) {
            Some(Entry::File(file)) => Ok(Some(file)),
            Some(Entry::Dir(_)) => Err(error(io::ErrorKind::IsADirectory, path)),
            None => self.need_dir(parent(path)).map(|()| None),
        }
    }

    /// What the path would lead to if the power went now and nothing unsynced survived.
    pub(super) fn durable_file(&self, path: &str) -> Option<u64> {
        match self.durable.get(path) {
            Some(Entry::File(file)) if reachable(&self.durable, path) => Some(*file),
            _ => None,
        }
    }

    pub(super) fn need_dir(&self, dir: &str) -> io::Result<()> {
        if dir.is_empty() {
            return Ok(());
        }
        match self.get(dir) {
            Some(Entry::Dir(_)) => Ok(()),
            Some(Entry::File(_)) => Err(error(io::ErrorKind::NotADirectory, dir)),
            None => {
                self.need_dir(parent(dir))?;
                Err(error(io::ErrorKind::NotFound, dir))
            }
        }
    }

    /// The names directly in a directory; a directory's name ends in `/`.
    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.need_dir(dir)?;
        let prefix = match dir {
            "" => String::new(),
            _ => format!("{dir}/"),
        };
        let mut names: Vec<String> = self
            .seen
            .from(&prefix)
            .take_while(|(path, _)| path.starts_with(&prefix))
            .filter(|(path, _)| parent(path) == dir)
            .map(|(path, entry)| match entry {
                Entry::File(_) => path[prefix.len()..].to_owned(),
                Entry::Dir(_) => format!("{}/", &path[prefix.len()..]),
            })
            .collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn create(&mut self, path: &str, entry: Entry) {
        self.change(Change::Create {
            path: path.into(),
            entry,
        });
    }

    /// Returns the file that had the name `to` until now.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<Option<u64>> {
        if let Some(Entry::Dir(_)) = self.get(from) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{from:?}: the simulated disk renames files only"),
            ));
        }
        let file = self
            .file(from)?
            .ok_or_else(|| error(io::ErrorKind::NotFound, from))?;
        let replaced = self.file(to)?;
        if replaced == Some(file) {
            return Ok(None);
        }
        self.change(Change::Rename {
            from: from.into(),
            to: to.into(),
            file,
        });
        Ok(replaced)
    }

    /// Returns the file that had the name.
    pub(super) fn remove(&mut self, path: &str) -> io::Result<u64> {
        let file = self
            .file(path)?
            .ok_or_else(|| error(io::ErrorKind::NotFound, path))?;
        self.change(Change::Remove { path: path.into() });
        Ok(file)
    }

    /// Makes the changes of one directory durable, and with a rename from or to another directory
    /// whatever came before it there.
    pub(super) fn sync_dir(&mut self, dir: &str) {
        let mut dirs = BTreeSet::from([dir.to_owned()]);
        let mut chosen = vec![false; self.unsynced.len()];
        for (change, chosen) in self.unsynced.iter().zip(&mut chosen).rev() {
            if change.dirs().any(|dir| dirs.contains(dir)) {
                *chosen = true;
                dirs.extend(change.dirs().map(str::to_owned));
            }
        }
        let mut chosen = chosen.into_iter();
        self.unsynced.retain(|change| {
            let chosen = chosen.next().unwrap_or(false);
            if chosen {
                change.replay(&mut self.durable);
            }
            !chosen
        });
    }

    pub(super) fn power_off(&mut self, lose_unsynced: bool, dice: &mut Dice) {
        if self.unsynced.is_empty() {
            return;
        }
        let unsynced = std::mem::take(&mut self.unsynced);
        if lose_unsynced {
            self.replay_prefixes(&unsynced, dice);
        }
        let whole = &self.durable;
        let names = whole.0.iter();
        let names = names.filter(|(path, _)| reachable(whole, path));
        self.seen = Map(names.cloned().collect());
        self.durable = self.seen.clone();
    }

    /// Gives a name and its directories to both layers; the name must be unknown to both.
    pub(super) fn preload(
        &mut self,
        path: &str,
        mut new_entry: impl FnMut(bool) -> Entry,
    ) -> io::Result<()> {
        let known = self.seen.get(path).is_some()
            || self.durable.get(path).is_some()
            || self.unsynced.iter().any(|change| change.touches(path));
        if known {
            return Err(error(io::ErrorKind::AlreadyExists, path));
        }
        for dir in ancestors(path) {
            if let Some(Entry::File(_)) = self.get(dir) {
                return Err(error(io::ErrorKind::NotADirectory, dir));
            }
        }
        for dir in ancestors(path) {
            let entry = self.get(dir).unwrap_or_else(|| new_entry(true));
            let dir = Arc::<str>::from(dir);
            self.seen.insert(dir.clone(), entry);
            self.durable.insert(dir, entry);
        }
        let entry = new_entry(false);
        let path = Arc::<str>::from(path);
        self.seen.insert(path.clone(), entry);
        self.durable.insert(path, entry);
        Ok(())
    }

    /// Every file that some layer, or a change between the layers, leads to.
    pub(super) fn files(&self) -> BTreeSet<u64> {
        let layers = self.seen.values().chain(self.durable.values());
        let changes = self.unsynced.iter().filter_map(|change| match change {
            Change::Create { entry, .. } => Some(*entry),
            Change::Rename { file, .. } => Some(Entry::File(*file)),
            Change::Remove { .. } => None,
        });
        layers
            .copied()
            .chain(changes)
            .filter_map(|entry| match entry {
                Entry::File(file) => Some(file),
                Entry::Dir(_) => None,
            })
            .collect()
    }

    fn change(&mut self, change: Change) {
        change.replay(&mut self.seen);
        self.unsynced.push(change);
    }

    /// Draws for each directory how many of its changes survive; one between two directories survives
    /// if it does in both, and otherwise ends both.
    fn replay_prefixes(&mut self, unsynced: &[Change], dice: &mut Dice) {
        let mut left: BTreeMap<&str, u64> = BTreeMap::new();
        for dir in unsynced.iter().flat_map(Change::dirs) {
            *left.entry(dir).or_default() += 1;
        }
        for count in left.values_mut() {
            *count = dice.between(0, *count);
        }
        for change in unsynced {
            let survives = change.dirs().all(|dir| left[dir] > 0);
            for dir in change.dirs() {
                left.entry(dir)
                    .and_modify(|count| *count = if survives { *count - 1 } else { 0 });
            }
            if survives {
                change.replay(&mut self.durable);
            }
        }
    }
}

impl Change {
    fn replay(&self, names: &mut Map) {
        match self {
            Change::Create { path, entry } => {
                names.insert(path.clone(), *entry);
            }
            Change::Rename { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), Entry::File(*file));
            }
            Change::Remove { path } => {
                names.remove(path);
            }
        }
    }

    /// The one or two directories the change writes, each once.
    fn dirs(&self) -> impl Iterator<Item = &str> {
        let (one, other) = match self {
            Change::Create { path, .. } | Change::Remove { path } => (parent(path), None),
            Change::Rename { from, to, .. } => (
                parent(from),
                Some(parent(to)).filter(|to| *to != parent(from)),
            ),
        };
        std::iter::once(one).chain(other)
    }

    fn touches(&self, name: &str) -> bool {
        match self {
            Change::Create { path, .. } | Change::Remove { path } => &**path == name,
            Change::Rename { from, to, .. } => &**from == name || &**to == name,
        }
    }
}

/// The directories above a path, outermost first, without the root.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

pub(super) fn error(kind: io::ErrorKind, path: &str) -> io::Error {
    io::Error::new(kind, format!("{path:?}: {kind}"))
}

fn reachable(names: &Map, path: &str) -> bool {
    ancestors(path).all(|dir| matches!(names.get(dir), Some(Entry::Dir(_))))
}
