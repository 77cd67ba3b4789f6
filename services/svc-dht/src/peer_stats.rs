//! What was observed of peers' latency, and the hedge delay that follows from it.
//!
//! Smoothed round trip and deviation of the peers heard last, as TCP estimates them. Always: at most as many peers as
//! were granted, and a delay that never exceeds `hedge_after`: observation only shortens it. Only answers over a warm
//! connection belong here; a first answer also carries the handshake.

use std::time::Duration;

use crate::id::Id;

/// A smoothed round trip per peer, for the peers heard last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStats {
    /// In the order of their keys.
    peers: Vec<Estimate>,
    cap: usize,
    /// Grows with every observation.
    turn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Estimate {
    /// The first four bytes of the id: two peers that share them share an estimate, which does no harm.
    key: u32,
    /// In eighths of a millisecond.
    smoothed: u16,
    /// In quarters of a millisecond.
    deviation: u16,
    heard: u32,
}

/// What any round trip may grow by for reasons of our own: a busy core, a batched write.
const SLACK_MS: u32 = 50;

impl PeerStats {
    pub fn new(cap: usize) -> PeerStats {
        PeerStats {
            peers: Vec::new(),
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
        let (key, rtt, turn) = (key(peer), millis(rtt), self.turn);
        if let Ok(at) = self.find(key) {
            self.peers[at].add(rtt);
            self.peers[at].heard = turn;
            return;
        }
        if self.cap == 0 {
            return;
        }
        if self.peers.len() >= self.cap {
            self.forget_oldest();
        }
        if let Err(at) = self.find(key) {
            self.peers.insert(at, Estimate::first(key, rtt, turn));
        }
    }

    /// When a request to this peer is overdue: what it usually takes and then some. None for a stranger.
    pub fn delay(&self, peer: &Id, hedge_after: Duration) -> Option<Duration> {
        let estimate = self.get(peer)?;
        let usual = u32::from(estimate.smoothed / 8) + u32::from(estimate.deviation).max(SLACK_MS);
        Some(Duration::from_millis(u64::from(usual)).min(hedge_after))
    }

    pub fn rtt(&self, peer: &Id) -> Option<Duration> {
        let estimate = self.get(peer)?;
        Some(Duration::from_millis(u64::from(estimate.smoothed / 8)))
    }

    fn find(&self, key: u32) -> Result<usize, usize> {
        self.peers
            .binary_search_by_key(&key, |estimate| estimate.key)
    }

    fn get(&self, peer: &Id) -> Option<&Estimate> {
        self.find(key(peer)).ok().map(|at| &self.peers[at])
    }

    fn forget_oldest(&mut self) {
        let age = |at: &usize| self.turn.wrapping_sub(self.peers[*at].heard);
        if let Some(oldest) = (0..self.peers.len()).max_by_key(age) {
            self.peers.remove(oldest);
        }
    }
}

impl Estimate {
    fn first(key: u32, rtt: u16, heard: u32) -> Estimate {
        Estimate {
            key,
            smoothed: rtt * 8,
            deviation: rtt * 2,
            heard,
        }
    }

    /// An eighth of the news for the mean, a quarter for the deviation: RFC 6298.
    fn add(&mut self, rtt: u16) {
        let error = (self.smoothed / 8).abs_diff(rtt);
        self.deviation = self.deviation - self.deviation / 4 + error;
        self.smoothed = self.smoothed - self.smoothed / 8 + rtt;
    }
}

fn key(peer: &Id) -> u32 {
    (peer.short() >> 32) as u32
}

/// Eight seconds at most, so that no sum overflows: longer than anybody waits for a hedge.
fn millis(rtt: Duration) -> u16 {
    rtt.as_millis().min(8_000) as u16
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
