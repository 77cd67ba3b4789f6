//! The kinds of faults that a scenario may name: the keys each takes, and how a seed draws one.
//!
//! On an ordered stream of bytes a duplicated or overtaken segment is never seen as such: the other end throws the
//! copy away and waits for the missing piece. `net.duplicate` therefore costs the link's rate, `net.reorder` costs
//! time.

use super::Fault;
use crate::{
    scenario::{FaultSpec, Span},
    seed,
    swarm::Mood,
};

/// A fault kind of the catalogue: its name in a scenario, what keys it takes, what it becomes.
pub struct FaultKind {
    pub name: &'static str,
    pub keys: &'static [&'static str],
    pub(super) make: fn(&Drawn<'_>) -> Fault,
}

pub const FAULT_KINDS: &[FaultKind] = &[
    FaultKind {
        name: "node.kill",
        keys: &["for_ms"],
        make: |d| Fault::Kill {
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.power_off",
        keys: &["for_ms"],
        make: |d| Fault::PowerOff {
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.shutdown",
        keys: &["for_ms"],
        make: |d| Fault::Shutdown {
            again_ms: None,
            restart_after_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.shutdown_twice",
        keys: &["for_ms", "by_ms"],
        make: |d| Fault::Shutdown {
            again_ms: Some(d.number(d.spec.by_ms, 0.0).max(0) as u64),
            restart_after_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "node.restart",
        keys: &[],
        make: |_| Fault::Restart,
    },
    FaultKind {
        name: "node.pause",
        keys: &["for_ms"],
        make: |d| Fault::Pause { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "net.partition",
        keys: &["for_ms", "one_way"],
        make: |d| Fault::Partition {
            for_ms: d.for_ms(),
            one_way: d.spec.one_way,
        },
    },
    FaultKind {
        name: "net.loss",
        keys: &["for_ms", "per_10_000"],
        make: |d| Fault::Loss {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(500.0),
        },
    },
    FaultKind {
        name: "net.latency",
        keys: &["for_ms", "factor"],
        make: |d| Fault::Latency {
            for_ms: d.for_ms(),
            factor: d.factor(),
        },
    },
    FaultKind {
        name: "net.slow",
        keys: &["for_ms", "bytes"],
        make: |d| Fault::SlowLink {
            for_ms: d.for_ms(),
            bytes_per_s: d.bytes(20_000.0).max(1),
        },
    },
    FaultKind {
        name: "net.connect_hang",
        keys: &["for_ms"],
        make: |d| Fault::ConnectHang { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "net.duplicate",
        keys: &["for_ms", "per_10_000"],
        make: |d| Fault::Duplicate {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(2000.0),
        },
    },
    FaultKind {
        name: "net.reorder",
        keys: &["for_ms", "per_10_000", "by_ms"],
        make: |d| Fault::Reorder {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(1000.0),
            by_ms: d.number(d.spec.by_ms, 5.0).max(0) as u64,
        },
    },
    FaultKind {
        name: "net.reset",
        keys: &[],
        make: |_| Fault::ResetConnections,
    },
    FaultKind {
        name: "net.half_open",
        keys: &[],
        make: |_| Fault::HalfOpen,
    },
    FaultKind {
        name: "disk.stall",
        keys: &["for_ms"],
        make: |d| Fault::DiskStall { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "disk.errors",
        keys: &["for_ms", "per_10_000"],
        make: |d| Fault::DiskErrors {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(1000.0),
        },
    },
    FaultKind {
        name: "disk.sync_fails",
        keys: &["for_ms", "per_10_000"],
        make: |d| Fault::SyncFails {
            for_ms: d.for_ms(),
            per_10_000: d.per_10_000(1000.0),
        },
    },
    FaultKind {
        name: "disk.sync_lies",
        keys: &["for_ms"],
        make: |d| Fault::SyncLies { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "disk.full",
        keys: &["for_ms", "bytes"],
        make: |d| Fault::DiskFull {
            for_ms: d.for_ms(),
            free_bytes: d.bytes(0.0),
        },
    },
    FaultKind {
        name: "disk.crash_at_op",
        keys: &["nth", "for_ms"],
        make: |d| Fault::CrashAtDiskOp {
            nth: d.number(d.spec.nth, 1.0).max(1) as u64,
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "disk.kill_at_op",
        keys: &["nth", "for_ms"],
        make: |d| Fault::KillAtDiskOp {
            nth: d.number(d.spec.nth, 1.0).max(1) as u64,
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "disk.kill_at_start",
        keys: &["nth", "for_ms"],
        make: |d| Fault::KillAtStart {
            nth: d.number(d.spec.nth, 1.0).max(1) as u64,
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "disk.sync_kills",
        keys: &["for_ms"],
        make: |d| Fault::SyncKills {
            down_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "disk.bit_rot",
        keys: &["path"],
        make: |d| Fault::BitRot { path: d.path() },
    },
    FaultKind {
        name: "disk.restore",
        keys: &["path", "for_ms"],
        make: |d| Fault::Restore {
            path: d.path(),
            after_ms: d.for_ms(),
        },
    },
    FaultKind {
        name: "backend.away",
        keys: &["for_ms"],
        make: |d| Fault::BackendAway { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "backend.hangs",
        keys: &["for_ms"],
        make: |d| Fault::BackendHangs { for_ms: d.for_ms() },
    },
    FaultKind {
        name: "backend.slow",
        keys: &["for_ms", "factor"],
        make: |d| Fault::BackendSlow {
            for_ms: d.for_ms(),
            factor: d.factor(),
        },
    },
    FaultKind {
        name: "clock.jump",
        keys: &["by_ms"],
        make: |d| Fault::ClockJump {
            by_ms: d.number(d.spec.by_ms, 60_000.0),
        },
    },
    FaultKind {
        name: "clock.drift",
        keys: &["ppm"],
        make: |d| Fault::ClockDrift {
            ppm: d.number(d.spec.ppm, 100.0),
        },
    },
    FaultKind {
        name: "task.panic",
        keys: &["task", "count"],
        make: |d| Fault::Panic {
            task: d.spec.task.clone().unwrap_or_else(|| "worker".to_owned()),
            count: d.number(d.spec.count, 1.0).max(1) as u32,
        },
    },
    FaultKind {
        name: "cpu.slow",
        keys: &["for_ms", "factor"],
        make: |d| Fault::SlowCpu {
            for_ms: d.for_ms(),
            factor: d.factor(),
        },
    },
];

/// Draws one occurrence of a fault.
pub(super) struct Drawn<'a> {
    pub(super) spec: &'a FaultSpec,
    pub(super) mood: Mood,
    pub(super) rng: std::cell::RefCell<&'a mut seed::SimRng>,
}

impl Drawn<'_> {
    fn number(&self, span: Option<Span>, default: f64) -> i64 {
        span.unwrap_or(Span::fixed(default))
            .draw_signed(&mut self.rng.borrow_mut())
    }

    fn for_ms(&self) -> u64 {
        let span = self.spec.for_ms.map(|span| self.mood.how_long.of(span));
        self.number(span, 1000.0).max(0) as u64
    }

    fn per_10_000(&self, default: f64) -> u32 {
        self.number(self.spec.per_10_000, default).clamp(0, 10_000) as u32
    }

    fn factor(&self) -> u32 {
        self.number(self.spec.factor, 10.0).clamp(1, 1_000_000) as u32
    }

    fn path(&self) -> String {
        self.spec.path.clone().unwrap_or_default()
    }

    fn bytes(&self, default: f64) -> u64 {
        self.number(self.spec.bytes, default).max(0) as u64
    }
}
