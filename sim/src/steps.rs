//! Counts the steps of every task of every process, so that a run which spins is noticed and stopped.
//!
//! A step takes almost no simulated time, so a task that wakes itself for ever would keep a run busy for years
//! of real time. Always: a world has a budget of steps for each stretch of simulated time; past it every task
//! is frozen and the run ends with its verdict. What blocks inside one step is seen from outside, by the
//! heartbeat.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::timer;

/// So many steps in one stretch are no work any more. At the cost of a step in simulated time (50 to 100 ns)
/// a world that does nothing but step reaches it in three quarters of the stretch.
const BUDGET: u64 = 5_000_000;
const STRETCH: Duration = Duration::from_millis(500);
/// The clock is read once in so many steps.
const LOOK_EVERY: u64 = 1024;

/// The steps of one world. Clones count together; the count alone may be read from another thread.
#[derive(Clone, Default)]
pub struct Steps {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    taken: AtomicU64,
    frozen: AtomicBool,
    /// When the present stretch began, and at which count.
    stretch: Mutex<(Duration, u64)>,
}

impl Steps {
    /// How many steps were taken: a heartbeat.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// A task is about to take one.
    pub(crate) fn step(&self) -> Step {
        // One thread writes, others only read: no need for an atomic addition.
        let taken = self.shared.taken.load(Ordering::Relaxed) + 1;
        self.shared.taken.store(taken, Ordering::Relaxed);
        if self.shared.frozen.load(Ordering::Relaxed) {
            return Step::Frozen;
        }
        if !taken.is_multiple_of(LOOK_EVERY) {
            return Step::Go;
        }
        let now = timer::elapsed();
        let mut stretch = self.shared.stretch.lock().unwrap();
        let (began, count) = *stretch;
        if now - began >= STRETCH {
            *stretch = (now, taken);
        } else if taken - count > BUDGET {
            self.shared.frozen.store(true, Ordering::Relaxed);
            return Step::Spun;
        }
        Step::Go
    }
}

pub(crate) enum Step {
    Go,
    /// This one broke the budget.
    Spun,
    Frozen,
}
