//! One clock per node: it drifts, it is off, its wall time jumps.
//!
//! `now` stays monotonic whatever happens to the wall clock; both run at the node's own rate, so two
//! nodes never agree exactly on how long a second is.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use crate::{executor::base, felt::Felt, timer};

pub struct NodeClock {
    state: Mutex<State>,
    felt: Arc<Felt>,
}

struct State {
    /// Where the current rate began: world time and the node's own time then.
    anchor_world: Duration,
    anchor_local: Duration,
    /// Parts per million faster (positive) or slower than the world.
    drift_ppm: i64,
    wall_offset_ms: i64,
    /// The node has looked at the clock since it was changed.
    seen: bool,
}

/// World time 0 as a node with a perfect clock would write it: 2026-01-01T00:00:00Z.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// What a perfect wall clock shows at this time of the world, in milliseconds.
pub fn wall_ms_at(at: Duration) -> u64 {
    (EPOCH + at).as_millis() as u64
}

impl NodeClock {
    pub fn new() -> Self {
        Self::noting(Arc::default())
    }

    /// What the node can see of a wrong clock is noted in `felt`.
    pub fn noting(felt: Arc<Felt>) -> Self {
        let zero = Duration::ZERO;
        NodeClock {
            felt,
            state: Mutex::new(State {
                anchor_world: zero,
                anchor_local: zero,
                drift_ppm: 0,
                wall_offset_ms: 0,
                seen: true,
            }),
        }
    }

    /// From now on the node's clock runs this much faster or slower. It never steps back.
    pub fn set_drift(&self, ppm: i64) {
        let world = timer::elapsed();
        let mut state = self.state.lock().unwrap();
        state.anchor_local = state.local(world);
        state.anchor_world = world;
        state.drift_ppm = ppm.clamp(-500_000, 500_000);
        state.seen = false;
    }

    pub fn drift_ppm(&self) -> i64 {
        self.state.lock().unwrap().drift_ppm
    }

    /// The wall clock steps; `now` does not notice.
    pub fn jump_wall(&self, by_ms: i64) {
        let mut state = self.state.lock().unwrap();
        state.wall_offset_ms += by_ms;
        state.seen = false;
    }

    /// The wall clock is put right again.
    pub fn heal_wall(&self) {
        self.state.lock().unwrap().wall_offset_ms = 0;
    }

    pub fn wall_offset_ms(&self) -> i64 {
        self.state.lock().unwrap().wall_offset_ms
    }

    pub fn now(&self) -> Instant {
        let world = timer::elapsed();
        let mut state = self.state.lock().unwrap();
        if !state.seen {
            state.show(&self.felt, false);
        }
        base() + state.local(world)
    }

    pub fn wall(&self) -> SystemTime {
        let world = timer::elapsed();
        let mut state = self.state.lock().unwrap();
        if !state.seen {
            state.show(&self.felt, true);
        }
        SystemTime::UNIX_EPOCH + state.wall(world)
    }

    /// What the wall clock shows, since the epoch, to somebody who is not the node.
    pub fn shown(&self) -> Duration {
        let world = timer::elapsed();
        self.state.lock().unwrap().wall(world)
    }

    /// When, in world time, this node's clock will show `at`.
    pub fn world_instant(&self, at: Instant) -> Instant {
        let local = at.saturating_duration_since(base());
        base() + self.state.lock().unwrap().world(local)
    }
}

impl Default for NodeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// The node looks at its clock; a wrong wall time is only seen by looking at wall time.
    fn show(&mut self, felt: &Felt, wall: bool) {
        if self.drift_ppm != 0 {
            felt.note("clock.drift");
        }
        if self.wall_offset_ms != 0 && wall {
            felt.note("clock.jump");
        }
        self.seen = wall || self.wall_offset_ms == 0;
    }

    /// Since the epoch.
    fn wall(&self, world: Duration) -> Duration {
        let time = EPOCH + self.local(world);
        let off = Duration::from_millis(self.wall_offset_ms.unsigned_abs());
        if self.wall_offset_ms < 0 {
            time - off
        } else {
            time + off
        }
    }

    fn local(&self, world: Duration) -> Duration {
        let since = world.saturating_sub(self.anchor_world);
        if self.drift_ppm == 0 {
            return self.anchor_local + since;
        }
        let ns = since.as_nanos();
        // In 64 bits wherever it fits, which is for hours: a division of 128 is slow, and every look at the
        // clock takes one.
        let ran = match i64::try_from(ns).map(|ns| (ns, ns.checked_mul(self.drift_ppm))) {
            Ok((ns, Some(drifted))) => ns + drifted / 1_000_000,
            _ => (ns as i128 + ns as i128 * i128::from(self.drift_ppm) / 1_000_000) as i64,
        };
        self.anchor_local + Duration::from_nanos(ran as u64)
    }

    fn world(&self, local: Duration) -> Duration {
        let since = local.saturating_sub(self.anchor_local);
        if self.drift_ppm == 0 {
            return self.anchor_world + since;
        }
        let since = since.as_nanos() as i128;
        let million = 1_000_000;
        let rate = million + i128::from(self.drift_ppm);
        // Rounded up: at that world time the node's clock must have reached `local`.
        let ran = (since * million + rate - 1) / rate;
        self.anchor_world + Duration::from_nanos(ran as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(drift_ppm: i64) -> State {
        State {
            anchor_world: Duration::from_secs(10),
            anchor_local: Duration::from_secs(12),
            drift_ppm,
            wall_offset_ms: 0,
            seen: true,
        }
    }

    #[test]
    fn a_sleep_converted_to_world_time_never_ends_early_on_the_nodes_own_clock() {
        for drift in [-100_000, -31, 0, 7, 31, 250_000] {
            for ns in [0, 1, 999, 1_000_000_007, 86_400_000_000_000] {
                let local = Duration::from_secs(12) + Duration::from_nanos(ns);
                let state = state(drift);
                let back = state.local(state.world(local));
                assert!(back >= local, "drift {drift}: {back:?} < {local:?}");
                assert!(back - local <= Duration::from_nanos(2));
            }
        }
    }

    #[test]
    fn a_fast_clock_shows_more_time_than_passed() {
        let fast = state(100_000).local(Duration::from_secs(20));
        assert_eq!(fast, Duration::from_secs(12) + Duration::from_secs(11));
    }
}
