//! What can go wrong with a disk, how long it takes, and what it counts: plain data.
//!
//! Rates are parts per 10 000, so that a scenario can hold them as integers and two runs agree on
//! them to the last bit. The default is a disk without faults.

use serde::{Deserialize, Serialize};

/// The faults in force. Set as a whole by [`SimDisk::set_faults`](super::SimDisk::set_faults).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskFaults {
    /// `read_at` and `list` fail.
    pub eio_read_per_10k: u32,
    /// `write_at` and `append` fail after any prefix; `set_len` and changes of names fail whole.
    pub eio_write_per_10k: u32,
    /// `sync` fails, and what it had not written by then is lost, though still seen until the power goes; a later
    /// `sync` does not bring it back. How much it had written is drawn as at a loss of power, by `lose_unsynced` and
    /// `torn`. `sync_dir` fails and may be tried again.
    pub eio_sync_per_10k: u32,
    /// `sync` and `sync_dir` answer Ok and make nothing durable; a later honest one does.
    pub lying_sync_per_10k: u32,
    /// Room for the contents of all files. Growth beyond it fails with `StorageFull`, after a prefix
    /// that fits; overwriting never does.
    pub capacity_bytes: Option<u64>,
    /// The operation of the incarnation, counted from 1, at which the disk crashes: that one may take
    /// effect in part or whole without anyone being told, later ones fail. It fires once; if the
    /// count is already past, at the next operation.
    pub crash_at_op: Option<u64>,
    /// The same for the process alone: it is killed in this operation, and what it wrote stays in the system's memory.
    pub kill_at_op: Option<u64>,
    /// The same again, of a first start, so that the two can be told apart.
    pub kill_at_start: Option<u64>,
    /// The next sync fails and the process is killed with it, before it can undo what the system goes on to show. It
    /// fires once.
    pub sync_kills: bool,
    /// A loss of power, or a sync that fails, lets each unsynced write, change of length and change of a name survive or
    /// vanish. Off (with `torn` off too): exactly what was synced remains.
    pub lose_unsynced: bool,
    /// A loss of power lets an unsynced write survive in part: a prefix that ends at a sector, any of its sectors, or
    /// its length without its bytes (zeros).
    pub torn: bool,
    /// The prefixes of `torn` end at any byte.
    pub torn_bytes: bool,
}

/// A fault that can be asked for once, by [`SimDisk::fail_next`](super::SimDisk::fail_next).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    EioRead,
    EioWrite,
    EioSync,
    LyingSync,
}

/// Simulated time an operation takes: ranges in microseconds, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskLatency {
    pub read_us: (u64, u64),
    pub write_us: (u64, u64),
    pub sync_us: (u64, u64),
}

impl Default for DiskLatency {
    fn default() -> Self {
        DiskLatency {
            read_us: (5, 50),
            write_us: (5, 50),
            sync_us: (200, 2000),
        }
    }
}

/// The operations of a disk and its files, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    Open,
    CreateDir,
    Rename,
    Remove,
    List,
    SyncDir,
    Identity,
    Lock,
    Read,
    Write,
    Append,
    Len,
    SetLen,
    Sync,
}

/// What an operation costs and which faults can hit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    Write,
    Sync,
    /// Answered from memory: it takes the time of a read and does not fail.
    Look,
}

impl Op {
    pub const ALL: [Op; 14] = [
        Op::Open,
        Op::CreateDir,
        Op::Rename,
        Op::Remove,
        Op::List,
        Op::SyncDir,
        Op::Identity,
        Op::Lock,
        Op::Read,
        Op::Write,
        Op::Append,
        Op::Len,
        Op::SetLen,
        Op::Sync,
    ];

    pub(super) fn class(self) -> Class {
        match self {
            Op::Read | Op::List => Class::Read,
            Op::CreateDir | Op::Rename | Op::Remove | Op::Write | Op::Append | Op::SetLen => {
                Class::Write
            }
            Op::Sync | Op::SyncDir => Class::Sync,
            Op::Open | Op::Identity | Op::Lock | Op::Len => Class::Look,
        }
    }
}

/// How often each operation was tried by a live incarnation, over the life of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts([u64; Op::ALL.len()]);

impl OpCounts {
    pub fn get(&self, op: Op) -> u64 {
        self.0[op as usize]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn count(&mut self, op: Op) {
        self.0[op as usize] += 1;
    }
}
