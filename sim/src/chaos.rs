//! Faults of a machine that are neither network nor disk contents: a stalling disk, a slow CPU.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::{felt::Felt, timer};

#[derive(Default)]
pub struct Chaos {
    state: Mutex<State>,
    felt: Arc<Felt>,
}

#[derive(Default)]
struct State {
    disk_stalled_until: Option<Instant>,
    slow_until: Option<(Instant, u32)>,
    backend_away_until: Option<Instant>,
    backend_hangs_until: Option<Instant>,
    backend_slow_until: Option<(Instant, u32)>,
}

/// How a key backend can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Every call fails at once.
    Away,
    /// Calls neither fail nor end.
    Hangs,
}

impl Chaos {
    /// What takes effect is noted in `felt`.
    pub fn new(felt: Arc<Felt>) -> Self {
        Chaos {
            state: Mutex::default(),
            felt,
        }
    }

    /// The disk answers nothing for a while; what was started before is not affected.
    pub fn stall_disk(&self, for_: Duration) {
        let until = timer::now() + for_;
        let mut state = self.state.lock().unwrap();
        state.disk_stalled_until = state.disk_stalled_until.max(Some(until));
    }

    pub async fn disk_stall_over(&self) {
        loop {
            let until = self.state.lock().unwrap().disk_stalled_until;
            match until {
                Some(until) if until > timer::now() => {
                    self.felt.note("disk.stall");
                    timer::sleep_until(until).await;
                }
                _ => return,
            }
        }
    }

    /// Offloaded work takes `factor` times as long for a while.
    pub fn slow_down(&self, factor: u32, for_: Duration) {
        self.state.lock().unwrap().slow_until = Some((timer::now() + for_, factor.max(1)));
    }

    pub fn slowness(&self) -> u32 {
        match self.state.lock().unwrap().slow_until {
            Some((until, factor)) if until > timer::now() => {
                self.felt.note("cpu.slow");
                factor
            }
            _ => 1,
        }
    }

    pub fn fail_backend(&self, how: Outage, for_: Duration) {
        let until = Some(timer::now() + for_);
        let mut state = self.state.lock().unwrap();
        let slot = match how {
            Outage::Away => &mut state.backend_away_until,
            Outage::Hangs => &mut state.backend_hangs_until,
        };
        *slot = (*slot).max(until);
    }

    /// Each use of a key takes `factor` times as long for a while.
    pub fn slow_backend(&self, factor: u32, for_: Duration) {
        let until = timer::now() + for_;
        self.state.lock().unwrap().backend_slow_until = Some((until, factor.max(1)));
    }

    pub fn backend_slowness(&self) -> u32 {
        match self.state.lock().unwrap().backend_slow_until {
            Some((until, factor)) if until > timer::now() => {
                self.felt.note("backend.slow");
                factor
            }
            _ => 1,
        }
    }

    /// Until when the backend fails in this way, if it does.
    pub fn outage(&self, how: Outage) -> Option<Instant> {
        let state = self.state.lock().unwrap();
        let (until, kind) = match how {
            Outage::Away => (state.backend_away_until, "backend.away"),
            Outage::Hangs => (state.backend_hangs_until, "backend.hangs"),
        };
        let until = until.filter(|until| *until > timer::now());
        if until.is_some() {
            self.felt.note(kind);
        }
        until
    }

    /// Nothing is slow from now on, and the backend is there.
    pub fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.backend_away_until = None;
        state.backend_slow_until = None;
        state.slow_until = None;
        // A stall that is under way ends by itself: whoever waits has a timer for it already.
        if state
            .disk_stalled_until
            .is_some_and(|until| until <= timer::now())
        {
            state.disk_stalled_until = None;
        }
    }
}
