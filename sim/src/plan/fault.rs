//! A fault with everything drawn: what strikes, how hard, for how long. Plain data with a name and a text.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The process dies; its machine lives. Started again after the time.
    Kill {
        down_ms: u64,
    },
    /// The machine dies: unsynced bytes may be lost, peers hear nothing.
    PowerOff {
        down_ms: u64,
    },
    /// An orderly shutdown is asked for; the node is started again after the time.
    Shutdown {
        again_ms: Option<u64>,
        restart_after_ms: u64,
    },
    /// The process dies and its successor starts at once.
    Restart,
    Pause {
        for_ms: u64,
    },
    /// Cut off from everybody; one way: its own words still arrive.
    Partition {
        for_ms: u64,
        one_way: bool,
    },
    Loss {
        for_ms: u64,
        per_10_000: u32,
    },
    Latency {
        for_ms: u64,
        factor: u32,
    },
    SlowLink {
        for_ms: u64,
        bytes_per_s: u64,
    },
    ConnectHang {
        for_ms: u64,
    },
    /// Segments come twice; the copy is thrown away, but takes its share of a slow link.
    Duplicate {
        for_ms: u64,
        per_10_000: u32,
    },
    /// Segments come late, and what was sent after them waits for them.
    Reorder {
        for_ms: u64,
        per_10_000: u32,
        by_ms: u64,
    },
    ResetConnections,
    /// Open connections go silent for ever, and neither end is told.
    HalfOpen,
    DiskStall {
        for_ms: u64,
    },
    DiskErrors {
        for_ms: u64,
        per_10_000: u32,
    },
    SyncFails {
        for_ms: u64,
        per_10_000: u32,
    },
    SyncLies {
        for_ms: u64,
    },
    DiskFull {
        for_ms: u64,
        free_bytes: u64,
    },
    /// The node dies in its Nth disk operation from now.
    CrashAtDiskOp {
        nth: u64,
        down_ms: u64,
    },
    /// The process is killed in its Nth disk operation from now.
    KillAtDiskOp {
        nth: u64,
        down_ms: u64,
    },
    /// The process is killed in the Nth disk operation of its first start.
    KillAtStart {
        nth: u64,
        down_ms: u64,
    },
    /// The next sync fails, and the process is killed with it.
    SyncKills {
        down_ms: u64,
    },
    /// In some file, or in one whose path begins so.
    BitRot {
        #[serde(default, skip_serializing_if = "String::is_empty")]
        path: String,
    },
    /// A copy of the file, or of all below it, is taken now and put back later, while the process is down.
    Restore {
        path: String,
        after_ms: u64,
    },
    BackendAway {
        for_ms: u64,
    },
    BackendHangs {
        for_ms: u64,
    },
    BackendSlow {
        for_ms: u64,
        factor: u32,
    },
    ClockJump {
        by_ms: i64,
    },
    ClockDrift {
        ppm: i64,
    },
    Panic {
        task: String,
        count: u32,
    },
    SlowCpu {
        for_ms: u64,
        factor: u32,
    },
}

impl Fault {
    /// Its name in a scenario.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Kill { .. } => "node.kill",
            Fault::PowerOff { .. } => "node.power_off",
            Fault::Shutdown { again_ms: None, .. } => "node.shutdown",
            Fault::Shutdown { .. } => "node.shutdown_twice",
            Fault::Restart => "node.restart",
            Fault::Pause { .. } => "node.pause",
            Fault::Partition { .. } => "net.partition",
            Fault::Loss { .. } => "net.loss",
            Fault::Latency { .. } => "net.latency",
            Fault::SlowLink { .. } => "net.slow",
            Fault::ConnectHang { .. } => "net.connect_hang",
            Fault::Duplicate { .. } => "net.duplicate",
            Fault::Reorder { .. } => "net.reorder",
            Fault::ResetConnections => "net.reset",
            Fault::HalfOpen => "net.half_open",
            Fault::DiskStall { .. } => "disk.stall",
            Fault::DiskErrors { .. } => "disk.errors",
            Fault::SyncFails { .. } => "disk.sync_fails",
            Fault::SyncLies { .. } => "disk.sync_lies",
            Fault::DiskFull { .. } => "disk.full",
            Fault::CrashAtDiskOp { .. } => "disk.crash_at_op",
            Fault::KillAtDiskOp { .. } => "disk.kill_at_op",
            Fault::KillAtStart { .. } => "disk.kill_at_start",
            Fault::SyncKills { .. } => "disk.sync_kills",
            Fault::BitRot { .. } => "disk.bit_rot",
            Fault::Restore { .. } => "disk.restore",
            Fault::BackendAway { .. } => "backend.away",
            Fault::BackendHangs { .. } => "backend.hangs",
            Fault::BackendSlow { .. } => "backend.slow",
            Fault::ClockJump { .. } => "clock.jump",
            Fault::ClockDrift { .. } => "clock.drift",
            Fault::Panic { .. } => "task.panic",
            Fault::SlowCpu { .. } => "cpu.slow",
        }
    }

    /// How long it is in force, for those that end by themselves; nodes that are down count as struck.
    pub fn lasts_ms(&self) -> u64 {
        match self {
            Fault::Kill { down_ms: ms }
            | Fault::PowerOff { down_ms: ms }
            | Fault::CrashAtDiskOp { down_ms: ms, .. }
            | Fault::KillAtDiskOp { down_ms: ms, .. }
            | Fault::KillAtStart { down_ms: ms, .. }
            | Fault::SyncKills { down_ms: ms }
            | Fault::Shutdown {
                restart_after_ms: ms,
                ..
            }
            | Fault::Pause { for_ms: ms }
            | Fault::Partition { for_ms: ms, .. }
            | Fault::Loss { for_ms: ms, .. }
            | Fault::Latency { for_ms: ms, .. }
            | Fault::SlowLink { for_ms: ms, .. }
            | Fault::ConnectHang { for_ms: ms }
            | Fault::Duplicate { for_ms: ms, .. }
            | Fault::Reorder { for_ms: ms, .. }
            | Fault::DiskStall { for_ms: ms }
            | Fault::DiskErrors { for_ms: ms, .. }
            | Fault::SyncFails { for_ms: ms, .. }
            | Fault::SyncLies { for_ms: ms }
            | Fault::DiskFull { for_ms: ms, .. }
            | Fault::BackendAway { for_ms: ms }
            | Fault::BackendHangs { for_ms: ms }
            | Fault::BackendSlow { for_ms: ms, .. }
            | Fault::Restore { after_ms: ms, .. }
            | Fault::SlowCpu { for_ms: ms, .. } => *ms,
            Fault::Restart
            | Fault::ResetConnections
            | Fault::HalfOpen
            | Fault::BitRot { .. }
            | Fault::ClockJump { .. }
            | Fault::ClockDrift { .. }
            | Fault::Panic { .. } => 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill { down_ms } => write!(f, "node.kill, down {down_ms} ms"),
            Fault::PowerOff { down_ms } => write!(f, "node.power_off, down {down_ms} ms"),
            Fault::Shutdown { again_ms: None, .. } => write!(f, "node.shutdown"),
            Fault::Shutdown {
                again_ms: Some(ms), ..
            } => write!(f, "node.shutdown, again after {ms} ms"),
            Fault::Restart => write!(f, "node.restart"),
            Fault::Pause { for_ms } => write!(f, "node.pause {for_ms} ms"),
            Fault::Partition { for_ms, one_way } => {
                write!(
                    f,
                    "net.partition {for_ms} ms{}",
                    if *one_way { ", one way" } else { "" }
                )
            }
            Fault::Loss { for_ms, per_10_000 } => {
                write!(f, "net.loss {per_10_000}/10000 for {for_ms} ms")
            }
            Fault::Latency { for_ms, factor } => write!(f, "net.latency x{factor} for {for_ms} ms"),
            Fault::SlowLink {
                for_ms,
                bytes_per_s,
            } => write!(f, "net.slow {bytes_per_s} B/s for {for_ms} ms"),
            Fault::ConnectHang { for_ms } => write!(f, "net.connect_hang {for_ms} ms"),
            Fault::Duplicate { for_ms, per_10_000 } => {
                write!(f, "net.duplicate {per_10_000}/10000 for {for_ms} ms")
            }
            Fault::Reorder {
                for_ms,
                per_10_000,
                by_ms,
            } => write!(
                f,
                "net.reorder {per_10_000}/10000 by {by_ms} ms for {for_ms} ms"
            ),
            Fault::ResetConnections => write!(f, "net.reset"),
            Fault::HalfOpen => write!(f, "net.half_open"),
            Fault::DiskStall { for_ms } => write!(f, "disk.stall {for_ms} ms"),
            Fault::DiskErrors { for_ms, per_10_000 } => {
                write!(f, "disk.errors {per_10_000}/10000 for {for_ms} ms")
            }
            Fault::SyncFails { for_ms, per_10_000 } => {
                write!(f, "disk.sync_fails {per_10_000}/10000 for {for_ms} ms")
            }
            Fault::SyncLies { for_ms } => write!(f, "disk.sync_lies {for_ms} ms"),
            Fault::DiskFull { for_ms, free_bytes } => {
                write!(f, "disk.full ({free_bytes} B free) for {for_ms} ms")
            }
            Fault::CrashAtDiskOp { nth, .. } => write!(f, "disk.crash_at_op {nth}"),
            Fault::KillAtDiskOp { nth, .. } => write!(f, "disk.kill_at_op {nth}"),
            Fault::KillAtStart { nth, .. } => write!(f, "disk.kill_at_start {nth}"),
            Fault::SyncKills { .. } => write!(f, "disk.sync_kills"),
            Fault::BitRot { path } if path.is_empty() => write!(f, "disk.bit_rot"),
            Fault::BitRot { path } => write!(f, "disk.bit_rot below {path}"),
            Fault::Restore { path, after_ms } => {
                write!(f, "disk.restore {path} as it is now, in {after_ms} ms")
            }
            Fault::BackendAway { for_ms } => write!(f, "backend.away {for_ms} ms"),
            Fault::BackendHangs { for_ms } => write!(f, "backend.hangs {for_ms} ms"),
            Fault::BackendSlow { for_ms, factor } => {
                write!(f, "backend.slow x{factor} for {for_ms} ms")
            }
            Fault::ClockJump { by_ms } => write!(f, "clock.jump {by_ms:+} ms"),
            Fault::ClockDrift { ppm } => write!(f, "clock.drift {ppm:+} ppm"),
            Fault::Panic { task, count } => write!(f, "task.panic {count}x {task}"),
            Fault::SlowCpu { for_ms, factor } => write!(f, "cpu.slow x{factor} for {for_ms} ms"),
        }
    }
}
