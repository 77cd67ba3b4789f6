//! The simulated disk of one node: it outlives the node's processes and loses, tears and corrupts
//! what a real disk would, by its own generator, so that a seed replays it exactly.
//!
//! Two layers hold contents and names: what processes see (the page cache of the operating system)
//! and what is durable. A killed process loses neither; a loss of power leaves the durable layer, and
//! of what was not synced what [`DiskFaults`] and the dice let through.

mod contents;
mod dice;
mod faults;
mod file;
#[cfg(test)]
mod laws;
mod look;
#[cfg(test)]
mod model;
mod mount;
mod names;
mod state;

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ron_core::seam::Disk;

use crate::felt::Felt;

pub use self::{
    contents::Image,
    faults::{DiskFaults, DiskLatency, Fault, Op, OpCounts},
    look::Look,
    mount::{OffloadGuard, enter_offload},
};
use self::{
    mount::{Mount, lock_state},
    names::Entry,
    state::State,
};

/// A handle to the disk; clones are the same disk. All methods but `mount` are the world's: they need
/// no incarnation, count as no operation and take no simulated time.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// How a node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// What it wrote stays in the system's memory.
    Process,
    /// What it did not sync is at risk.
    Power,
}

/// A bit that was flipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitRot {
    pub path: String,
    pub offset: u64,
    pub bit: u8,
}

// ------------------------------------------------------------------------------------ life cycle

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        SimDisk {
            state: Arc::new(Mutex::new(State::new(seed))),
        }
    }

    /// Begins an incarnation and returns its disk. Whatever an earlier one still holds is stale from
    /// here on: its operations fail, change nothing and are counted; its locks are free.
    pub fn mount(&self) -> Arc<dyn Disk> {
        Arc::new(Mount::new(self.state.clone()))
    }

    /// The process dies, the operating system lives: the incarnation ends, all it wrote is still seen.
    pub fn kill(&self) {
        self.lock().end_incarnation();
    }

    /// The machine loses power: the incarnation ends, and with it what was not durable. Each file
    /// keeps any subset of its unsynced changes, perhaps torn; each directory a prefix of its own.
    pub fn power_off(&self) {
        self.lock().power_off();
    }

    /// Puts a file on the disk as if it had always been there, with its directories. A name that is
    /// taken, or was since names were last synced, is `AlreadyExists`.
    pub fn preload(&self, path: &str, image: &Image) -> io::Result<()> {
        self.lock().preload(path, image)
    }
}

// ---------------------------------------------------------------------------------------- faults

impl SimDisk {
    pub fn set_faults(&self, faults: DiskFaults) {
        self.lock().faults = faults;
    }

    /// The faults in force; a crash that has happened is no longer among them.
    pub fn faults(&self) -> DiskFaults {
        self.lock().faults.clone()
    }

    /// From now on the faults that take effect are noted there.
    pub fn note_in(&self, felt: Arc<Felt>) {
        self.lock().felt = felt;
    }

    /// The next `count` operations that the fault can hit are hit, before any rate is asked.
    pub fn fail_next(&self, fault: Fault, count: u32) {
        self.lock().fail_next.insert(fault, count);
    }

    pub fn set_latency(&self, latency: DiskLatency) {
        self.lock().latency = latency;
    }

    /// Flips a bit in both layers; false if the file or the byte is not there.
    pub fn bit_rot(&self, path: &str, offset: u64, bit: u8) -> bool {
        let mut state = self.lock();
        match state.names.get(path) {
            Some(Entry::File(id)) => state
                .files
                .get_mut(&id)
                .is_some_and(|file| file.rot(offset, bit)),
            _ => false,
        }
    }

    /// The file of that path, or all files below it, as processes see them: something to put back later.
    pub fn copy_of(&self, path: &str) -> BTreeMap<String, Image> {
        let state = self.lock();
        let own = state
            .files_seen()
            .filter(|(name, _)| lies_at_or_below(name, path));
        own.map(|(name, image)| (name.to_owned(), image.clone()))
            .collect()
    }

    /// Makes the path what it was when the copy was taken, durably: older contents come back, newer files go. A file that
    /// is gone meanwhile stays so. False if nothing changes.
    pub fn put_back(&self, path: &str, copy: &BTreeMap<String, Image>) -> bool {
        let mut state = self.lock();
        let now: Vec<(String, bool)> = state
            .files_seen()
            .filter(|(name, _)| lies_at_or_below(name, path))
            .map(|(name, image)| {
                let same = copy.get(name).is_some_and(|old| *old == *image);
                (name.to_owned(), same)
            })
            .collect();
        for (name, _) in now.iter().filter(|(_, same)| !same) {
            match (copy.get(name), state.names.get(name)) {
                (Some(image), Some(Entry::File(id))) => {
                    let file = Box::new(file::FileState::named(image));
                    state.files.insert(id, file);
                }
                _ => {
                    let _ = state.remove(name);
                    let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
                    state.names.sync_dir(dir);
                }
            }
        }
        now.iter().any(|(_, same)| !same)
    }

    /// Flips some bit of some file whose path begins so and tells which; `None` if every such file is empty.
    pub fn corrupt_random(&self, prefix: &str) -> Option<BitRot> {
        let rot = {
            let mut state = self.lock();
            let targets: Vec<(String, u64)> = state
                .files_seen()
                .filter(|(path, image)| path.starts_with(prefix) && !image.is_empty())
                .map(|(path, image)| (path.to_owned(), image.len()))
                .collect();
            let (path, len) = targets.get(state.fate.below(targets.len() as u64) as usize)?;
            BitRot {
                path: path.clone(),
                offset: state.fate.below(*len),
                bit: state.fate.below(8) as u8,
            }
        };
        self.bit_rot(&rot.path, rot.offset, rot.bit);
        Some(rot)
    }
}

fn lies_at_or_below(name: &str, path: &str) -> bool {
    let below = name.strip_prefix(path);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

// ------------------------------------------------------------------------------------ inspection

impl SimDisk {
    /// The simulated time the operations since the last call took.
    pub fn take_accrued(&self) -> Duration {
        std::mem::take(&mut self.lock().accrued)
    }

    /// From the operation named by [`DiskFaults::crash_at_op`] or [`DiskFaults::kill_at_op`] until the incarnation
    /// ends: how it is to end.
    pub fn crashed(&self) -> Option<Death> {
        self.lock().crashed
    }

    /// A file as processes see it.
    pub fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        self.image(path).map(|image| image.to_vec())
    }

    /// A file as processes see it, without a copy: a template for [`preload`](SimDisk::preload).
    pub fn image(&self, path: &str) -> Option<Image> {
        let state = self.lock();
        match state.names.get(path)? {
            Entry::File(id) => Some(state.file(id).seen().clone()),
            Entry::Dir(_) => None,
        }
    }

    /// What a loss of power would certainly leave under this name.
    pub fn read_durable(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        let id = state.names.durable_file(path)?;
        Some(state.file(id).durable().to_vec())
    }

    /// The paths of all files that processes see, sorted.
    pub fn list_files(&self) -> Vec<String> {
        self.lock()
            .files_seen()
            .map(|(path, _)| path.to_owned())
            .collect()
    }

    /// The length of all files together, also of removed ones that are still open.
    pub fn bytes_used(&self) -> u64 {
        self.lock().bytes_used()
    }

    /// Operations of all incarnations, without stale ones and those after a crash.
    pub fn ops(&self) -> u64 {
        self.lock().counts.total()
    }

    /// Operations of the live incarnation: what [`DiskFaults::crash_at_op`] counts.
    pub fn incarnation_ops(&self) -> u64 {
        self.lock().incarnation_ops
    }

    /// [`ops`](SimDisk::ops) by kind.
    pub fn op_counts(&self) -> OpCounts {
        self.lock().counts
    }

    /// Operations tried by incarnations that had ended.
    pub fn stale_ops(&self) -> u64 {
        self.lock().stale_ops
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock_state(&self.state)
    }
}

impl State {
    fn files_seen(&self) -> impl Iterator<Item = (&str, &Image)> {
        self.names
            .seen()
            .iter()
            .filter_map(|(path, entry)| match entry {
                Entry::File(id) => Some((path, self.file(id).seen())),
                Entry::Dir(_) => None,
            })
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").finish_non_exhaustive()
    }
}
