//! Whether a process is draining, and how much it has finished since.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub struct Drain {
    begun: AtomicBool,
    finished: AtomicU64,
    before: AtomicU64,
}

impl Drain {
    /// From now on nothing new is let in. What the first phase does first.
    pub fn begin(&self) {
        self.before.store(self.finished.load(Relaxed), Relaxed);
        self.begun.store(true, Relaxed);
    }

    pub fn is_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// Something that a caller waited for has ended, well or not.
    pub fn finish_one(&self) {
        self.finished.fetch_add(1, Relaxed);
    }

    /// Finished since the drain began.
    pub fn drained(&self) -> u64 {
        match self.is_begun() {
            true => self.finished.load(Relaxed) - self.before.load(Relaxed),
            false => 0,
        }
    }
}
