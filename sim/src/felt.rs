//! Which faults a node has really felt: a fault that strikes where nothing happens tests nothing.
//!
//! A fault is injected when the plan strikes it, felt when it first changes something that a process or its
//! peers can see, and survived when the run that had it ended well.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::FAULT_KINDS;

/// One bit for each kind of fault.
#[derive(Debug, Default)]
pub struct Felt(AtomicU64);

const _: () = assert!(FAULT_KINDS.len() <= 64, "one bit for each kind");

impl Felt {
    /// The fault of that kind has changed something.
    pub fn note(&self, kind: &str) {
        if let Some(n) = FAULT_KINDS.iter().position(|k| k.name == kind) {
            self.0.fetch_or(1 << n, Ordering::Relaxed);
        }
    }

    pub fn has(&self, kind: &str) -> bool {
        let bits = self.0.load(Ordering::Relaxed);
        let n = FAULT_KINDS.iter().position(|k| k.name == kind);
        n.is_some_and(|n| bits & (1 << n) != 0)
    }
}

/// What became of one kind of fault on one service in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    pub service: &'static str,
    pub kind: &'static str,
    pub felt: bool,
}
