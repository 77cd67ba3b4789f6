//! What was observed of peers' latency, and the hedge delay that follows from it.
//!
//! Smoothed round trip and deviation of the peers heard last, as TCP estimates them. Always: at most as many peers as
//! were granted, and a delay that never exceeds `hedge_after`: observation only shortens it. Only answers over a warm
//! connection belong here; a first answer also carries the handshake.

use std::{collections::BTreeMap, time::Duration};

use crate::id::Id;

/// A smoothed round trip per peer, for the peers heard last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStats {
    /// By the first eight bytes of the id: two peers that share them share an estimate, which does no harm.
    peers: BTreeMap<u64, Estimate>,
    cap: usize,
    /// Grows with every observation.
    turn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Estimate {
    /// In eighths of a millisecond.
    smoothed: u32,
    /// In quarters of a millisecond.
    deviation: u32,
    heard: u32,
}

/// What any round trip may grow by for reasons of our own: a busy core, a batched write.
const SLACK_MS: u32 = 50;

impl PeerStats {
    pub fn new(cap: usize) -> PeerStats {
        PeerStats {
            peers: BTreeMap::new(),
            cap,
            turn: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.peers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// A request over a warm connection was answered after `rtt`.
    pub fn observe(&mut self, peer: &Id, rtt: Duration) {
        self.turn = self.turn.wrapping_add(1);
        let (key, rtt, turn) = (peer.short(), millis(rtt), self.turn);
        if let Some(estimate) = self.peers.get_mut(&key) {
            estimate.add(rtt);
            estimate.heard = turn;
            return;
        }
        if self.cap == 0 {
            return;
        }
        if self.peers.len() >= self.cap {
            self.forget_oldest();
        }
        self.peers.insert(key, Estimate::first(rtt, turn));
    }

    /// When a request to this peer is overdue: what it usually takes and then some. None for a stranger.
    pub fn delay(&self, peer: &Id, hedge_after: Duration) -> Option<Duration> {
        let estimate = self.peers.get(&peer.short())?;
        let usual = estimate.smoothed / 8 + estimate.deviation.max(SLACK_MS);
        Some(Duration::from_millis(u64::from(usual)).min(hedge_after))
    }

    pub fn rtt(&self, peer: &Id) -> Option<Duration> {
        let estimate = self.peers.get(&peer.short())?;
        Some(Duration::from_millis(u64::from(estimate.smoothed / 8)))
    }

    fn forget_oldest(&mut self) {
        let age = |estimate: &Estimate| self.turn.wrapping_sub(estimate.heard);
        let oldest = self.peers.iter().max_by_key(|(_, estimate)| age(estimate));
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.peers.remove(&key);
        }
    }
}

impl Estimate {
    fn first(rtt: u32, heard: u32) -> Estimate {
        Estimate {
            smoothed: rtt * 8,
            deviation: rtt * 2,
            heard,
        }
    }

    /// An eighth of the news for the mean, a quarter for the deviation: RFC 6298.
    fn add(&mut self, rtt: u32) {
        let error = (self.smoothed / 8).abs_diff(rtt);
        self.deviation = self.deviation - self.deviation / 4 + error;
        self.smoothed = self.smoothed - self.smoothed / 8 + rtt;
    }
}

/// A minute at most, so that no sum overflows.
fn millis(rtt: Duration) -> u32 {
    u32::try_from(rtt.as_millis())
        .unwrap_or(u32::MAX)
        .min(60_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEDGE_AFTER: Duration = Duration::from_millis(250);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn peer(n: u8) -> Id {
        Id([n; 32])
    }

    #[test]
    fn a_steady_peer_is_overdue_soon_and_a_stranger_has_no_delay() {
        let mut stats = PeerStats::new(4);
        assert_eq!(stats.delay(&peer(1), HEDGE_AFTER), None);
        stats.observe(&peer(1), ms(20));
        assert_eq!(stats.delay(&peer(1), HEDGE_AFTER), Some(ms(20 + 50)));
        (0..50).for_each(|_| stats.observe(&peer(1), ms(20)));
        assert_eq!(stats.delay(&peer(1), HEDGE_AFTER), Some(ms(70)));
        assert_eq!(stats.rtt(&peer(1)), Some(ms(20)));
        stats.observe(&peer(1), ms(120));
        let delay = stats.delay(&peer(1), HEDGE_AFTER).unwrap();
        assert!(delay > ms(120) && delay < ms(150), "{delay:?}");
    }

    #[test]
    fn the_peer_not_heard_for_longest_is_forgotten() {
        let mut stats = PeerStats::new(2);
        for n in [1, 2, 1, 3] {
            stats.observe(&peer(n), ms(5));
        }
        let known = |n| stats.delay(&peer(n), HEDGE_AFTER).is_some();
        assert_eq!([1, 2, 3].map(known), [true, false, true]);
    }

    proptest! {
        // proves: DHT-5.2
        #[test]
        fn observation_only_shortens_the_delay_and_memory_stays_bounded(
            cap in 0..8usize, seen in prop::collection::vec((any::<u8>(), any::<u64>()), 0..200),
        ) {
            let mut stats = PeerStats::new(cap);
            for (n, rtt) in seen {
                stats.observe(&peer(n), Duration::from_micros(rtt));
                prop_assert!(stats.len() <= cap);
                prop_assert!(stats.delay(&peer(n), HEDGE_AFTER).is_none_or(|delay| delay <= HEDGE_AFTER));
            }
        }
    }
}
