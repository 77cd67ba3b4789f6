//! What the kernel's parts tell about themselves.
//!
//! A part counts in plain numbers and knows no metrics registry; telemetry, the ops endpoints and the
//! simulator's oracles all read the same numbers through these views, so they cannot disagree.

use std::collections::BTreeMap;

/// One queue, at one moment. Always: `offered = accepted + refused`,
/// `accepted = delivered + dropped + depth`, `depth <= high_water <= cap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    pub name: &'static str,
    pub cap: usize,
    pub depth: usize,
    /// The greatest depth ever reached.
    pub high_water: usize,
    /// Items that a producer tried to put in.
    pub offered: u64,
    pub accepted: u64,
    /// Items given back to their producer: full, timed out or closed.
    pub refused: u64,
    /// Items taken by a consumer.
    pub delivered: u64,
    /// Items accepted once and thrown away later, by policy or by `clear`.
    pub dropped: u64,
}

pub trait QueueView: Send + Sync {
    fn stats(&self) -> QueueStats;
}

/// Counts of one kind of task since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub alive: u64,
    pub spawned: u64,
    pub restarted: u64,
    pub panicked: u64,
    /// Ended by themselves because they were asked to stop.
    pub canceled: u64,
    /// Stopped by force after their drain deadline.
    pub aborted: u64,
}

pub trait TaskView: Send + Sync {
    /// By kind of task.
    fn tasks(&self) -> BTreeMap<&'static str, TaskCounts>;
}
