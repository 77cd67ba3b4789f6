//! The state of one disk, and the gate every operation passes: is the caller's incarnation alive,
//! what time does it take, which fault hits it.
//!
//! Operations in here know nothing of handles, so that no handle is ever dropped under the lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use ron_core::{
    disk_path::{check, check_dir},
    seam::{FileId, Open},
};

use crate::felt::Felt;

use super::{
    Death,
    contents::Image,
    dice::Dice,
    faults::{Class, DiskFaults, DiskLatency, Fault, Op, OpCounts},
    file::FileState,
    names::{Entry, Names, ancestors, error, parent},
};

/// The largest offset a file can have, as on a real system.
const MAX_LEN: u64 = i64::MAX as u64;
const EIO: i32 = 5;

pub(super) struct State {
    pub(super) names: Names,
    /// Boxed: a map has room for a dozen, most nodes have a few.
    pub(super) files: BTreeMap<u64, Box<FileState>>,
    last_id: u64,
    locked: BTreeSet<u64>,

    incarnations: u64,
    live: Option<u64>,
    /// How the incarnation ended in one of its operations.
    pub(super) crashed: Option<Death>,
    /// Operations of the live incarnation.
    pub(super) incarnation_ops: u64,
    pub(super) stale_ops: u64,
    pub(super) counts: OpCounts,

    pub(super) faults: DiskFaults,
    pub(super) fail_next: BTreeMap<Fault, u32>,
    pub(super) latency: DiskLatency,
    pub(super) accrued: Duration,
    pub(super) fate: Dice,
    timing: Dice,
    pub(super) felt: Arc<Felt>,
}

/// What the gate decided for an operation it let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Go,
    /// Answer Ok, make nothing durable.
    Lie,
    Eio,
    /// The last operation of the incarnation.
    Crash,
}

// ---------------------------------------------------------------------------------- incarnations

impl State {
    pub(super) fn new(seed: u64) -> Self {
        State {
            names: Names::default(),
            files: BTreeMap::new(),
            last_id: 0,
            locked: BTreeSet::new(),
            incarnations: 0,
            live: None,
            crashed: None,
            incarnation_ops: 0,
            stale_ops: 0,
            counts: OpCounts::default(),
            faults: DiskFaults::default(),
            fail_next: BTreeMap::new(),
            latency: DiskLatency::default(),
            accrued: Duration::ZERO,
            fate: Dice::new(seed, 0),
            timing: Dice::new(seed, 1),
            felt: Arc::default(),
        }
    }

    pub(super) fn begin_incarnation(&mut self) -> u64 {
        self.end_incarnation();
        self.incarnations += 1;
        self.live = Some(self.incarnations);
        self.incarnations
    }

    pub(super) fn end_incarnation(&mut self) {
        self.live = None;
        self.crashed = None;
        self.incarnation_ops = 0;
        self.accrued = Duration::ZERO;
        self.locked.clear();
        for file in self.files.values_mut() {
            file.open = 0;
        }
        self.forget_unreachable();
    }

    pub(super) fn power_off(&mut self) {
        self.names
            .power_off(self.faults.lose_unsynced, &mut self.fate);
        for file in self.files.values_mut() {
            file.power_off(&self.faults, &mut self.fate);
            file.linked = false;
        }
        for entry in self.names.seen().values() {
            if let Entry::File(id) = entry
                && let Some(file) = self.files.get_mut(id)
            {
                file.linked = true;
            }
        }
        self.end_incarnation();
    }

    pub(super) fn is_live(&self, incarnation: u64) -> bool {
        self.live == Some(incarnation)
    }
}

// ------------------------------------------------------------------------------------- the gate

impl State {
    /// Lets an operation of the live incarnation in: counts it, times it, draws its fault.
    fn admit(&mut self, op: Op) -> io::Result<Verdict> {
        if self.crashed.is_some() {
            return Err(crash_error());
        }
        self.counts.count(op);
        self.incarnation_ops += 1;
        let (low, high) = match op.class() {
            Class::Read | Class::Look => self.latency.read_us,
            Class::Write => self.latency.write_us,
            Class::Sync => self.latency.sync_us,
        };
        self.accrued += Duration::from_micros(self.timing.between(low, high));
        let due = |at: &mut Option<u64>| at.take_if(|at| self.incarnation_ops >= *at).is_some();
        if due(&mut self.faults.crash_at_op) {
            self.crashed = Some(Death::Power);
            self.felt.note("disk.crash_at_op");
            return Ok(Verdict::Crash);
        }
        if due(&mut self.faults.kill_at_op) {
            self.crashed = Some(Death::Process);
            self.felt.note("disk.kill_at_op");
            return Ok(Verdict::Crash);
        }
        if due(&mut self.faults.kill_at_start) {
            self.crashed = Some(Death::Process);
            self.felt.note("disk.kill_at_start");
            return Ok(Verdict::Crash);
        }
        if op.class() == Class::Sync && std::mem::take(&mut self.faults.sync_kills) {
            self.crashed = Some(Death::Process);
            self.felt.note("disk.sync_kills");
            return Ok(Verdict::Eio);
        }
        let (verdict, fault) = match op.class() {
            Class::Read if self.strikes(Fault::EioRead) => (Verdict::Eio, "disk.errors"),
            Class::Write if self.strikes(Fault::EioWrite) => (Verdict::Eio, "disk.errors"),
            Class::Sync if self.strikes(Fault::EioSync) => (Verdict::Eio, "disk.sync_fails"),
            Class::Sync if self.strikes(Fault::LyingSync) => (Verdict::Lie, "disk.sync_lies"),
            _ => return Ok(Verdict::Go),
        };
        self.felt.note(fault);
        Ok(verdict)
    }

    fn strikes(&mut self, fault: Fault) -> bool {
        if let Some(count) = self.fail_next.get_mut(&fault)
            && *count > 0
        {
            *count -= 1;
            return true;
        }
        let per_10k = match fault {
            Fault::EioRead => self.faults.eio_read_per_10k,
            Fault::EioWrite => self.faults.eio_write_per_10k,
            Fault::EioSync => self.faults.eio_sync_per_10k,
            Fault::LyingSync => self.faults.lying_sync_per_10k,
        };
        self.fate.chance(per_10k)
    }

    /// An operation that happens whole or not at all.
    pub(super) fn run<T>(
        &mut self,
        op: Op,
        effect: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.admit(op)? {
            Verdict::Go => effect(self),
            Verdict::Lie | Verdict::Eio => Err(eio()),
            Verdict::Crash => {
                if self.fate.coin() {
                    let _ = effect(self);
                }
                Err(crash_error())
            }
        }
    }

    /// A sync of one kind or the other, of a `target` that is there or not: `honest` makes durable,
    /// `failed` is what a failure leaves.
    fn run_sync(
        &mut self,
        op: Op,
        target: io::Result<()>,
        honest: impl FnOnce(&mut State),
        failed: impl FnOnce(&mut State),
    ) -> io::Result<()> {
        let verdict = self.admit(op)?;
        target?;
        match verdict {
            Verdict::Go => {
                honest(self);
                Ok(())
            }
            Verdict::Lie => Ok(()),
            Verdict::Eio => {
                failed(self);
                Err(eio())
            }
            Verdict::Crash => {
                if self.fate.coin() {
                    honest(self);
                }
                Err(crash_error())
            }
        }
    }
}

// ----------------------------------------------------------------------------------------- names

impl State {
    pub(super) fn open(&mut self, path: &str, how: Open) -> io::Result<u64> {
        check(path)?;
        if how == Open::CreateNew && self.names.get(path).is_some() {
            return Err(error(io::ErrorKind::AlreadyExists, path));
        }
        let id = match self.names.file(path)? {
            Some(id) => id,
            None if how == Open::Existing => return Err(error(io::ErrorKind::NotFound, path)),
            None => self.create(path)?,
        };
        self.file_mut(id).open += 1;
        Ok(id)
    }

    pub(super) fn lock(&mut self, path: &str) -> io::Result<u64> {
        let id = self.open(path, Open::Create)?;
        if !self.locked.insert(id) {
            self.close(id);
            return Err(error(io::ErrorKind::WouldBlock, path));
        }
        Ok(id)
    }

    pub(super) fn unlock(&mut self, id: u64) {
        self.locked.remove(&id);
        self.close(id);
    }

    pub(super) fn close(&mut self, id: u64) {
        let file = self.file_mut(id);
        file.open = file.open.saturating_sub(1);
        if file.open == 0 && !file.linked {
            self.forget_unreachable();
        }
    }

    pub(super) fn create_dir(&mut self, path: &str) -> io::Result<()> {
        check(path)?;
        for dir in ancestors(path) {
            if let Some(Entry::File(_)) = self.names.get(dir) {
                return Err(error(io::ErrorKind::NotADirectory, dir));
            }
        }
        if let Some(Entry::File(_)) = self.names.get(path) {
            return Err(error(io::ErrorKind::AlreadyExists, path));
        }
        for dir in ancestors(path).chain([path]) {
            if self.names.get(dir).is_none() {
                let id = self.next_id();
                self.names.create(dir, Entry::Dir(id));
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        check(from)?;
        check(to)?;
        if let Some(replaced) = self.names.rename(from, to)? {
            self.file_mut(replaced).linked = false;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        check(path)?;
        let id = self.names.remove(path)?;
        self.file_mut(id).linked = false;
        Ok(())
    }

    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        check_dir(dir)?;
        self.names.list(dir)
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        let target = check_dir(dir).and_then(|_| self.names.need_dir(dir));
        self.run_sync(
            Op::SyncDir,
            target,
            |state| {
                state.names.sync_dir(dir);
                state.forget_unreachable();
            },
            |_| (),
        )
    }

    pub(super) fn identity(&self, path: &str) -> io::Result<Option<FileId>> {
        check(path)?;
        match self.names.get(path) {
            Some(Entry::File(id) | Entry::Dir(id)) => Ok(Some(file_id(id))),
            None => match self.names.need_dir(parent(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(None),
            },
        }
    }

    pub(super) fn preload(&mut self, path: &str, image: &Image) -> io::Result<()> {
        check(path)?;
        let (files, last_id) = (&mut self.files, &mut self.last_id);
        self.names.preload(path, |is_dir| {
            *last_id += 1;
            if is_dir {
                return Entry::Dir(*last_id);
            }
            files.insert(*last_id, Box::new(FileState::named(image)));
            Entry::File(*last_id)
        })
    }

    fn create(&mut self, path: &str) -> io::Result<u64> {
        if self.strikes(Fault::EioWrite) {
            return Err(eio());
        }
        let id = self.next_id();
        self.files
            .insert(id, Box::new(FileState::named(&Image::default())));
        self.names.create(path, Entry::File(id));
        Ok(id)
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A file lives as long as a name, seen or durable, or a handle leads to it.
    fn forget_unreachable(&mut self) {
        if self.files.values().all(|file| file.linked) {
            return;
        }
        let named = self.names.files();
        self.files
            .retain(|id, file| file.open > 0 || named.contains(id));
    }
}

// -------------------------------------------------------------------------------------- contents

impl State {
    /// Writes at `offset`, or at the end; returns where the data starts.
    pub(super) fn write(
        &mut self,
        op: Op,
        id: u64,
        offset: Option<u64>,
        data: &[u8],
    ) -> io::Result<u64> {
        let verdict = self.admit(op)?;
        let start = offset.unwrap_or_else(|| self.file(id).seen().len());
        let len = data.len() as u64;
        check_end(start.checked_add(len))?;
        let room = self.room_at(id, start).min(len);
        let (count, result) = match verdict {
            Verdict::Eio => (self.fate.between(0, room), Err(eio())),
            Verdict::Crash => (self.fate.between(0, room), Err(crash_error())),
            _ if room < len => {
                self.felt.note("disk.full");
                (self.fate.between(0, room), Err(full()))
            }
            _ => (len, Ok(start)),
        };
        self.file_mut(id).write_at(start, &data[..count as usize]);
        result
    }

    pub(super) fn set_len(&mut self, id: u64, len: u64) -> io::Result<()> {
        check_end(Some(len))?;
        let old = self.file(id).seen().len();
        if len > old && self.room_at(id, old) < len - old {
            self.felt.note("disk.full");
            return Err(full());
        }
        self.file_mut(id).set_len(len);
        Ok(())
    }

    pub(super) fn sync(&mut self, id: u64) -> io::Result<()> {
        self.run_sync(
            Op::Sync,
            Ok(()),
            |state| state.file_mut(id).sync(),
            |state| {
                // Not by `file_mut`: the file, the faults and the dice are wanted at once.
                if let Some(file) = state.files.get_mut(&id) {
                    file.fail_sync(&state.faults, &mut state.fate);
                }
            },
        )
    }

    pub(super) fn bytes_used(&self) -> u64 {
        self.files
            .values()
            .filter(|file| file.linked || file.open > 0)
            .map(|file| file.seen().len())
            .fold(0, u64::saturating_add)
    }

    /// A file that a name or a live handle leads to.
    pub(super) fn file(&self, id: u64) -> &FileState {
        &self.files[&id]
    }

    fn file_mut(&mut self, id: u64) -> &mut FileState {
        self.files
            .get_mut(&id)
            .expect("a file with a name or a live handle is kept")
    }

    /// How many bytes can be written from `start` on before the disk is full.
    fn room_at(&self, id: u64, start: u64) -> u64 {
        let Some(capacity) = self.faults.capacity_bytes else {
            return u64::MAX;
        };
        let free = capacity.saturating_sub(self.bytes_used());
        let end = self.file(id).seen().len().saturating_add(free);
        end.saturating_sub(start)
    }
}

pub(super) fn file_id(id: u64) -> FileId {
    FileId(1, id)
}

pub(super) fn stale_error() -> io::Error {
    io::Error::other("stale incarnation")
}

fn crash_error() -> io::Error {
    io::Error::other("the disk crashed in this incarnation")
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "no space left on the disk")
}

fn check_end(end: Option<u64>) -> io::Result<()> {
    match end {
        Some(end) if end <= MAX_LEN => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a file ends at or before byte {MAX_LEN}"),
        )),
    }
}
