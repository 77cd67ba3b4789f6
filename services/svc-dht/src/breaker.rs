//! The circuit breakers of a node's peers.
//!
//! Pure: `now` is an argument. Always: only peers in trouble are remembered, and no more than so many of them: a
//! forgotten one is asked freely again.

use std::time::Instant;

use ron_core::outbound::breaker::Breaker;
pub use ron_core::outbound::breaker::{Ask, BreakerRules};

use crate::{few::FewMap, id::Id};

/// Peers in trouble that a node remembers.
pub const PEERS: usize = 64;

/// The breakers of all peers.
#[derive(Clone, Debug)]
pub struct Breakers {
    rules: BreakerRules,
    most: usize,
    peers: FewMap<Id, Breaker>,
}

impl Breakers {
    /// Zero failures in the rules switch breakers off.
    pub fn new(rules: BreakerRules, most: usize) -> Breakers {
        Breakers {
            rules,
            most,
            peers: FewMap::new(),
        }
    }

    /// Counts a probe if it is one.
    pub fn ask(&mut self, peer: &Id, now: Instant) -> Ask {
        match self.peers.get_mut(peer) {
            Some(breaker) => breaker.ask(&self.rules, now),
            None => Ask::Freely,
        }
    }

    /// It answered, whatever it said: all is well.
    pub fn handle_answer(&mut self, peer: &Id) {
        self.peers.remove(peer);
    }

    /// Forgets failures of long ago that opened nothing: they say nothing any more.
    pub fn forget_old(&mut self, now: Instant) {
        if self.peers.is_empty() {
            return;
        }
        let old = self.rules.open_max;
        let counts = |b: &Breaker| !b.is_closed() || now.saturating_duration_since(b.since()) < old;
        self.peers.retain(|_, breaker| counts(breaker));
    }

    /// It did not. True if that opened its breaker.
    pub fn handle_timeout(&mut self, peer: &Id, asked: Ask, now: Instant) -> bool {
        if self.rules.failures == 0 {
            return false;
        }
        let rules = self.rules;
        let opened = self.remember(peer, now).handle_failure(&rules, asked, now);
        if opened {
            ron_core::sometimes!("dht.breaker_opened");
        }
        opened
    }

    /// The request was given up before anything was learnt from it.
    pub fn handle_cancelled(&mut self, peer: &Id, asked: Ask) {
        if let Some(breaker) = self.peers.get_mut(peer) {
            breaker.handle_cancelled(asked);
        }
    }

    /// Peers that are remembered.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Peers that are not asked freely.
    pub fn open(&self) -> usize {
        self.peers.values().filter(|b| !b.is_closed()).count()
    }

    /// Its breaker, made in the place of the one of least use if there are too many.
    fn remember(&mut self, peer: &Id, now: Instant) -> &mut Breaker {
        if !self.peers.contains_key(peer) && self.peers.len() >= self.most.max(1) {
            let use_of = |b: &Breaker| (!b.is_closed(), b.since());
            let least = self
                .peers
                .iter()
                .min_by_key(|(_, b)| use_of(b))
                .map(|(id, _)| *id);
            if let Some(least) = least {
                self.peers.remove(&least);
            }
        }
        self.peers.get_or_insert(*peer, Breaker::new(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const PEER: Id = Id([1; 32]);

    fn rules() -> BreakerRules {
        BreakerRules {
            failures: 3,
            probes: 2,
            ..BreakerRules::default()
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a point to count from; no time passes"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    // proves: DHT-5.6
    #[test]
    fn consecutive_timeouts_open_it_and_a_few_probes_close_it() {
        let now = start();
        let mut breakers = Breakers::new(rules(), 4);
        // Not in a row.
        for _ in 0..5 {
            assert!(!breakers.handle_timeout(&PEER, Ask::Freely, now));
            assert!(!breakers.handle_timeout(&PEER, Ask::Freely, now));
            breakers.handle_answer(&PEER);
        }
        let opened: Vec<bool> = (0..4)
            .map(|_| breakers.handle_timeout(&PEER, Ask::Freely, now))
            .collect();
        assert_eq!(opened, [false, false, true, false]);
        let until = now + secs(5);
        assert_eq!(
            breakers.ask(&PEER, until - Duration::from_nanos(1)),
            Ask::Not { until }
        );
        assert_eq!(breakers.open(), 1);

        let asked: Vec<Ask> = (0..4).map(|_| breakers.ask(&PEER, until)).collect();
        assert_eq!(asked[..2], [Ask::AsProbe; 2]);
        assert!(matches!(asked[2..], [Ask::Not { .. }, Ask::Not { .. }]));

        // A failed probe: twice as long.
        assert!(breakers.handle_timeout(&PEER, Ask::AsProbe, until));
        let longer = until + secs(10);
        assert_eq!(
            breakers.ask(&PEER, until + secs(9)),
            Ask::Not { until: longer }
        );
        assert_eq!(breakers.ask(&PEER, longer), Ask::AsProbe);
        breakers.handle_answer(&PEER);
        assert_eq!(breakers.ask(&PEER, longer), Ask::Freely);
        assert!(breakers.is_empty());
    }

    // proves: DHT-5.6
    #[test]
    fn one_to_three_probes_whatever_is_configured() {
        for (configured, allowed) in [(0, 1), (1, 1), (3, 3), (200, 3)] {
            let now = start();
            let mut breakers = Breakers::new(
                BreakerRules {
                    probes: configured,
                    failures: 1,
                    ..rules()
                },
                4,
            );
            breakers.handle_timeout(&PEER, Ask::Freely, now);
            let asks = (0..10).map(|_| breakers.ask(&PEER, now + secs(6)));
            assert_eq!(asks.filter(|ask| *ask == Ask::AsProbe).count(), allowed);
        }
    }

    #[test]
    fn switched_off_it_remembers_nobody() {
        let mut breakers = Breakers::new(
            BreakerRules {
                failures: 0,
                ..rules()
            },
            4,
        );
        for _ in 0..100 {
            assert!(!breakers.handle_timeout(&PEER, Ask::Freely, start()));
        }
        assert!(breakers.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_happens_few_are_remembered_and_all_may_come_back(
            steps in prop::collection::vec((0_u8..8, 0_u8..4, 0_u64..4000), 0..200),
        ) {
            let mut now = start();
            let mut breakers = Breakers::new(rules(), 4);
            // By the test's own account: timeouts in a row.
            let mut fails = [0_u32; 8];
            for (n, what, passed_ms) in steps {
                now += Duration::from_millis(passed_ms);
                let (peer, n) = (Id([n; 32]), usize::from(n));
                match what {
                    0 => match breakers.ask(&peer, now) {
                        Ask::Freely => {}
                        Ask::AsProbe => prop_assert!(fails[n] >= 3),
                        Ask::Not { until } => prop_assert!(until > now && fails[n] >= 3),
                    },
                    1 => {
                        breakers.handle_answer(&peer);
                        fails[n] = 0;
                        prop_assert_eq!(breakers.ask(&peer, now), Ask::Freely);
                    }
                    _ => {
                        let asked = breakers.ask(&peer, now);
                        let opened = breakers.handle_timeout(&peer, asked, now);
                        fails[n] += 1;
                        prop_assert!(!opened || fails[n] >= 3);
                    }
                }
                prop_assert!(breakers.len() <= 4);
            }
            let later = now + secs(120);
            for n in 0..8 {
                let asked = breakers.ask(&Id([n; 32]), later);
                prop_assert!(asked == Ask::Freely || asked == Ask::AsProbe);
            }
        }
    }
}
