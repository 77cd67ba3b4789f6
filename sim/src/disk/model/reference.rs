//! The naive disk: byte vectors, lists of unsynced changes, and every outcome of a loss of power
//! enumerated instead of drawn.
//!
//! It shares no code with the disk. Where the outcomes of one file are too many to enumerate, each
//! byte is still explained by the durable file or by an unsynced change.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ron_core::seam::{Disk, FileId};

use super::{DIRS, FILES, Loss, Step, Sync};
use crate::disk::SimDisk;

const ENUMERATED: usize = 200;

/// A path leads to a file by number, or is a directory.
type Names = BTreeMap<String, Option<usize>>;

#[derive(Default)]
pub(super) struct Model {
    files: Vec<ModelFile>,
    seen: Names,
    durable: Names,
    unsynced: Vec<NameChange>,
}

#[derive(Default)]
struct ModelFile {
    id: Option<FileId>,
    seen: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Clone)]
struct NameChange {
    gone: Option<String>,
    new: Option<(String, Option<usize>)>,
}

impl Model {
    pub(super) fn apply(&mut self, step: &Step, fill: u8) -> bool {
        match step {
            Step::Create(path) => match self.seen.get(*path) {
                Some(entry) => entry.is_some(),
                None if !self.is_dir(dir_of(path)) => false,
                None => {
                    self.files.push(ModelFile::default());
                    self.name(None, Some((path, Some(self.files.len() - 1))));
                    true
                }
            },
            // The root has no name to create.
            Step::CreateDir("") => false,
            Step::CreateDir(path) => {
                if !self.is_dir(path) {
                    self.name(None, Some((path, None)));
                }
                true
            }
            Step::Rename(from, to) => match self.file(from) {
                Some(file) if self.is_dir(dir_of(to)) => {
                    if from != to {
                        self.name(Some(from), Some((to, Some(file))));
                    }
                    true
                }
                _ => false,
            },
            Step::Remove(path) => {
                let there = self.file(path).is_some();
                if there {
                    self.name(Some(path), None);
                }
                there
            }
            Step::SyncDir(path, kind) => {
                if !self.is_dir(path) {
                    return false;
                }
                if *kind == Sync::Honest {
                    self.sync_dir(path);
                }
                *kind != Sync::Failing
            }
            Step::Write(path, offset, len) => {
                self.change(path, |_| Change::Write(*offset, vec![fill; *len]))
            }
            Step::Append(path, len) => {
                self.change(path, |end| Change::Write(end, vec![fill; *len]))
            }
            Step::SetLen(path, len) => self.change(path, |_| Change::SetLen(*len)),
            Step::Sync(path, kind) => {
                let Some(file) = self.file(path) else {
                    return false;
                };
                let file = &mut self.files[file];
                match kind {
                    Sync::Honest => {
                        for change in std::mem::take(&mut file.unsynced) {
                            change.replay(&mut file.durable);
                        }
                    }
                    Sync::Lying => (),
                    Sync::Failing => file.unsynced.clear(),
                }
                *kind != Sync::Failing
            }
            Step::Kill | Step::PowerOff(_) => unreachable!("the world's, not the process's"),
        }
    }

    pub(super) fn learn_identities(&mut self, disk: &dyn Disk) {
        for (path, entry) in &self.seen {
            if let Some(file) = entry {
                let id = disk.identity(path).unwrap();
                let known = self.files[*file].id.get_or_insert(id.unwrap());
                assert_eq!(Some(*known), id, "{path} leads to another file");
            }
        }
    }

    /// Both layers, as the world sees them.
    pub(super) fn check(&self, sim: &SimDisk) -> Result<(), TestCaseError> {
        let durable = reachable(&self.durable);
        for path in FILES {
            let seen = self.file(path).map(|file| self.files[file].seen.clone());
            prop_assert_eq!(sim.read_file(path), seen, "{} as seen", path);
            let kept = durable.get(path).copied().flatten();
            let kept = kept.map(|file| self.files[file].durable.clone());
            prop_assert_eq!(sim.read_durable(path), kept, "{} as durable", path);
        }
        Ok(())
    }

    /// Checks what is left, then takes it over.
    pub(super) fn power_off(
        &mut self,
        sim: &SimDisk,
        disk: &dyn Disk,
        loss: Loss,
    ) -> Result<(), TestCaseError> {
        let left = self.names_left(disk);
        let allowed = match loss.lose_unsynced {
            true => self.possible_names(),
            false => BTreeSet::from([reachable(&self.durable)]),
        };
        prop_assert!(allowed.contains(&left), "{:?} not in {:?}", left, allowed);
        let durable = reachable(&self.durable);
        for path in FILES {
            // What a rename replaces is never absent.
            let moved_away = self
                .unsynced
                .iter()
                .any(|change| change.gone.as_deref() == Some(path));
            if durable.contains_key(path) && !moved_away {
                prop_assert!(left.contains_key(path), "{} is gone", path);
            }
        }
        for (path, entry) in &left {
            let Some(file) = entry else { continue };
            let bytes = sim.read_file(path).unwrap();
            let file = &mut self.files[*file];
            file.explain(&bytes, loss)?;
            file.unsynced.clear();
            file.seen.clone_from(&bytes);
            file.durable = bytes;
        }
        self.unsynced.clear();
        self.seen.clone_from(&left);
        self.durable = left;
        Ok(())
    }

    fn names_left(&self, disk: &dyn Disk) -> Names {
        let mut left = Names::new();
        for dir in DIRS.into_iter().filter(|dir| disk.list(dir).is_ok()) {
            for name in disk.list(dir).unwrap() {
                let path = match dir {
                    "" => name,
                    _ => format!("{dir}/{name}"),
                };
                let entry = match path.strip_suffix('/') {
                    Some(_) => None,
                    None => {
                        let id = disk.identity(&path).unwrap();
                        let same = |file: &ModelFile| file.id == id;
                        Some(self.files.iter().position(same).expect("a known identity"))
                    }
                };
                left.insert(path.trim_end_matches('/').to_owned(), entry);
            }
        }
        left
    }

    /// All ways to keep a prefix of each directory's changes without splitting one.
    fn possible_names(&self) -> BTreeSet<Names> {
        let cuts = |dir: &str| {
            let ends = self.unsynced.iter().enumerate();
            let ends = ends.filter(|(_, change)| change.dirs().contains(dir));
            let mut cuts = vec![0];
            cuts.extend(ends.map(|(at, _)| at + 1));
            cuts
        };
        let (roots, ds, es) = (cuts(""), cuts("d"), cuts("e"));
        let mut all = BTreeSet::new();
        for ((root, d), e) in roots
            .iter()
            .flat_map(|root| ds.iter().map(move |d| (root, d)))
            .flat_map(|cut| es.iter().map(move |e| (cut, e)))
        {
            let cut = BTreeMap::from([("", root), ("d", d), ("e", e)]);
            let kept = |(at, change): (usize, &NameChange)| {
                let mut dirs = change.dirs().into_iter().map(|dir| at < *cut[dir]);
                let first = dirs.next().unwrap();
                dirs.all(|other| other == first).then_some(first)
            };
            let Some(kept) = self
                .unsynced
                .iter()
                .enumerate()
                .map(kept)
                .collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            let mut names = self.durable.clone();
            for (change, _) in self.unsynced.iter().zip(kept).filter(|(_, kept)| *kept) {
                change.replay(&mut names);
            }
            all.insert(reachable(&names));
        }
        all
    }

    /// What precedes a synced change in any of its directories is synced with it.
    fn sync_dir(&mut self, dir: &str) {
        let all = &self.unsynced;
        let mut synced: BTreeSet<usize> = (0..all.len())
            .filter(|at| all[*at].dirs().contains(dir))
            .collect();
        loop {
            let more: BTreeSet<usize> = (0..all.len())
                .filter(|at| {
                    let before = |later: &usize| {
                        at <= later && !all[*at].dirs().is_disjoint(&all[*later].dirs())
                    };
                    synced.iter().any(before)
                })
                .collect();
            if more == synced {
                break;
            }
            synced = more;
        }
        for at in &synced {
            self.unsynced[*at].replay(&mut self.durable);
        }
        let mut at = 0;
        self.unsynced.retain(|_| {
            at += 1;
            !synced.contains(&(at - 1))
        });
    }

    fn file(&self, path: &str) -> Option<usize> {
        self.seen.get(path).copied().flatten()
    }

    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.seen.get(path) == Some(&None)
    }

    fn name(&mut self, gone: Option<&str>, new: Option<(&str, Option<usize>)>) {
        let change = NameChange {
            gone: gone.map(str::to_owned),
            new: new.map(|(path, entry)| (path.to_owned(), entry)),
        };
        change.replay(&mut self.seen);
        self.unsynced.push(change);
    }

    fn change(&mut self, path: &str, change: impl FnOnce(usize) -> Change) -> bool {
        let Some(file) = self.file(path) else {
            return false;
        };
        let file = &mut self.files[file];
        let change = change(file.seen.len());
        change.replay(&mut file.seen);
        file.unsynced.push(change);
        true
    }
}

impl ModelFile {
    /// Fails unless the contents are one of those a loss of power may leave.
    fn explain(&self, left: &[u8], loss: Loss) -> Result<(), TestCaseError> {
        let mut states = BTreeSet::from([self.durable.clone()]);
        for change in &self.unsynced {
            for state in states.clone() {
                states.extend(change.outcomes(&state, loss));
            }
            if states.len() > ENUMERATED {
                return self.explain_bytes(left);
            }
        }
        prop_assert!(states.contains(left), "an outcome no loss explains");
        Ok(())
    }

    fn explain_bytes(&self, left: &[u8]) -> Result<(), TestCaseError> {
        let lengths = |change: &Change| match change {
            Change::Write(offset, data) => (*offset..=offset + data.len()).contains(&left.len()),
            Change::SetLen(len) => *len == left.len(),
        };
        let known = left.len() == self.durable.len() || self.unsynced.iter().any(lengths);
        prop_assert!(known, "a length of {} from nowhere", left.len());
        for (at, byte) in left.iter().enumerate() {
            let written = |change: &Change| match change {
                Change::Write(offset, data) => {
                    at.checked_sub(*offset).and_then(|at| data.get(at)) == Some(byte)
                }
                Change::SetLen(len) => *byte == 0 && at >= *len,
            };
            let durable = self.durable.get(at).unwrap_or(&0) == byte;
            let known = durable || self.unsynced.iter().any(written);
            prop_assert!(known, "byte {} is {} from nowhere", at, byte);
        }
        Ok(())
    }
}

impl Change {
    fn replay(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(_, data) if data.is_empty() => (),
            Change::Write(offset, data) => {
                bytes.resize(bytes.len().max(offset + data.len()), 0);
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            Change::SetLen(len) => bytes.resize(*len, 0),
        }
    }

    /// What the change may leave of a file, beside leaving it as it was.
    fn outcomes(&self, before: &[u8], loss: Loss) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        if loss.lose_unsynced {
            let mut after = before.to_vec();
            self.replay(&mut after);
            all.push(after);
        }
        if let Change::Write(offset, data) = self
            && loss.torn
            && !data.is_empty()
        {
            let mut keep = |kept: &dyn Fn(usize) -> bool| {
                let mut short = before.to_vec();
                for at in (*offset..offset + data.len()).filter(|at| kept(*at)) {
                    Change::Write(at, vec![data[at - offset]]).replay(&mut short);
                }
                let mut long = short.clone();
                long.resize(short.len().max(offset + data.len()), 0);
                all.extend([short, long]);
            };
            if loss.torn_bytes {
                (0..data.len()).for_each(|cut| keep(&|at| at < offset + cut));
            }
            let first = offset / 512;
            let sectors = (offset + data.len()).div_ceil(512) - first;
            // Any of its sectors, but not all.
            for chosen in 0..(1_usize << sectors) - 1 {
                keep(&|at| chosen >> (at / 512 - first) & 1 == 1);
            }
        }
        all
    }
}

impl NameChange {
    fn replay(&self, names: &mut Names) {
        if let Some(path) = &self.gone {
            names.remove(path);
        }
        if let Some((path, entry)) = &self.new {
            names.insert(path.clone(), *entry);
        }
    }

    fn dirs(&self) -> BTreeSet<&str> {
        let new = self.new.as_ref().map(|(path, _)| path);
        self.gone
            .iter()
            .chain(new)
            .map(|path| dir_of(path))
            .collect()
    }
}

fn dir_of(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..at])
}

fn reachable(names: &Names) -> Names {
    let mut names = names.clone();
    let dirs: BTreeSet<String> = names
        .iter()
        .filter(|(_, entry)| entry.is_none())
        .map(|(path, _)| path.clone())
        .collect();
    names.retain(|path, _| dir_of(path).is_empty() || dirs.contains(dir_of(path)));
    names
}
