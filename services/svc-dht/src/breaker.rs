//! The circuit breakers: a peer that times out again and again is left alone for a while, then tried with care.
//!
//! Pure: `now` is an argument. Always: a peer is asked freely until `failures` timeouts in a row; then not at all
//! until its time is over; then by at most `probes` requests at once until one of them is answered. Only peers
//! in trouble are remembered, and no more than `peers` of them: a forgotten one is asked freely again.

use std::time::{Duration, Instant};

use crate::{few::FewMap, id::Id};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Timeouts in a row that open it; 0 switches breakers off.
    pub failures: u32,
    /// How long it stays open at first; twice as long each time a probe fails.
    pub open: Duration,
    pub open_max: Duration,
    /// Requests at once while half open, 1 to 3.
    pub probes: u8,
    /// Peers in trouble that are remembered.
    pub peers: usize,
}

/// The breakers of all peers.
#[derive(Clone, Debug)]
pub struct Breakers {
    rules: BreakerRules,
    peers: FewMap<Id, Breaker>,
}

/// Whether a peer may be asked. Who may asks, and reports what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Freely,
    /// As one of the few that find out whether it is back.
    AsProbe,
    /// Not before this.
    Not {
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
struct Breaker {
    state: State,
    /// When it last changed for the worse.
    at: Instant,
}

impl Breaker {
    fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed { failures: u32 },
    Open { times: u32 },
    HalfOpen { times: u32, probing: u8 },
}

impl Default for BreakerRules {
    fn default() -> Self {
        BreakerRules {
            failures: 5,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            probes: 1,
            peers: 64,
        }
    }
}

impl BreakerRules {
    fn probes(&self) -> u8 {
        self.probes.clamp(1, 3)
    }

    fn open_for(&self, times: u32) -> Duration {
        let doubled = self
            .open
            .saturating_mul(1 << times.saturating_sub(1).min(16));
        doubled.min(self.open_max.max(self.open))
    }
}

impl Breakers {
    pub fn new(rules: BreakerRules) -> Breakers {
        Breakers {
            rules,
            peers: FewMap::new(),
        }
    }

    /// Counts a probe if it is one.
    pub fn ask(&mut self, peer: &Id, now: Instant) -> Ask {
        let rules = self.rules;
        let Some(breaker) = self.peers.get_mut(peer) else {
            return Ask::Freely;
        };
        match &mut breaker.state {
            State::Closed { .. } => Ask::Freely,
            State::Open { times } => {
                let until = breaker.at + rules.open_for(*times);
                if now < until {
                    return Ask::Not { until };
                }
                breaker.state = State::HalfOpen {
                    times: *times,
                    probing: 1,
                };
                breaker.at = now;
                Ask::AsProbe
            }
            State::HalfOpen { times, probing } => {
                // A probe that was never reported does not keep the peer away for ever.
                let until = breaker.at + rules.open_for(*times);
                if now >= until {
                    *probing = 0;
                }
                if *probing >= rules.probes() {
                    return Ask::Not { until };
                }
                *probing += 1;
                breaker.at = now;
                Ask::AsProbe
            }
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
        let counts = |b: &Breaker| !b.is_closed() || now.saturating_duration_since(b.at) < old;
        self.peers.retain(|_, breaker| counts(breaker));
    }

    /// It did not. True if that opened its breaker.
    pub fn handle_timeout(&mut self, peer: &Id, now: Instant) -> bool {
        if self.rules.failures == 0 {
            return false;
        }
        let rules = self.rules;
        let breaker = self.remember(peer, now);
        let times = match &mut breaker.state {
            State::Closed { failures } => {
                *failures = failures.saturating_add(1);
                breaker.at = now;
                if *failures < rules.failures {
                    return false;
                }
                1
            }
            // Of a request that left before it opened.
            State::Open { .. } => return false,
            State::HalfOpen { times, .. } => times.saturating_add(1),
        };
        breaker.state = State::Open { times };
        breaker.at = now;
        true
    }

    /// The request was given up before anything was learnt from it.
    pub fn handle_cancelled(&mut self, peer: &Id, asked: Ask) {
        if let Some(breaker) = self.peers.get_mut(peer)
            && let State::HalfOpen { probing, .. } = &mut breaker.state
            && asked == Ask::AsProbe
        {
            *probing = probing.saturating_sub(1);
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
        let troubled = |b: &&Breaker| !b.is_closed();
        self.peers.values().filter(troubled).count()
    }

    /// Its breaker, made in the place of the one of least use if there are too many.
    fn remember(&mut self, peer: &Id, now: Instant) -> &mut Breaker {
        if !self.peers.contains_key(peer) && self.peers.len() >= self.rules.peers.max(1) {
            let use_of = |b: &Breaker| (!b.is_closed(), b.at);
            let least = self
                .peers
                .iter()
                .min_by_key(|(_, b)| use_of(b))
                .map(|(id, _)| *id);
            if let Some(least) = least {
                self.peers.remove(&least);
            }
        }
        let new = Breaker {
            state: State::Closed { failures: 0 },
            at: now,
        };
        self.peers.get_or_insert(*peer, new)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEER: Id = Id([1; 32]);

    fn rules() -> BreakerRules {
        BreakerRules {
            failures: 3,
            probes: 2,
            peers: 4,
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
        let mut breakers = Breakers::new(rules());
        // Not in a row.
        for _ in 0..5 {
            assert!(!breakers.handle_timeout(&PEER, now));
            assert!(!breakers.handle_timeout(&PEER, now));
            breakers.handle_answer(&PEER);
        }
        let opened: Vec<bool> = (0..4)
            .map(|_| breakers.handle_timeout(&PEER, now))
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
        assert!(breakers.handle_timeout(&PEER, until));
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
            let mut breakers = Breakers::new(BreakerRules {
                probes: configured,
                failures: 1,
                ..rules()
            });
            breakers.handle_timeout(&PEER, now);
            let asks = (0..10).map(|_| breakers.ask(&PEER, now + secs(6)));
            assert_eq!(asks.filter(|ask| *ask == Ask::AsProbe).count(), allowed);
        }
    }

    #[test]
    fn a_probe_that_was_given_up_or_lost_makes_room_for_another() {
        let now = start();
        let mut breakers = Breakers::new(BreakerRules {
            probes: 1,
            failures: 1,
            ..rules()
        });
        breakers.handle_timeout(&PEER, now);
        let later = now + secs(5);
        let probe = breakers.ask(&PEER, later);
        assert!(matches!(breakers.ask(&PEER, later), Ask::Not { .. }));
        breakers.handle_cancelled(&PEER, Ask::Freely);
        assert!(matches!(breakers.ask(&PEER, later), Ask::Not { .. }));
        breakers.handle_cancelled(&PEER, probe);
        assert_eq!(breakers.ask(&PEER, later), Ask::AsProbe);
        let lost = later + secs(5);
        assert_eq!(breakers.ask(&PEER, lost), Ask::AsProbe);
    }

    #[test]
    fn it_stays_open_no_longer_than_the_longest_time() {
        let mut now = start();
        let mut breakers = Breakers::new(BreakerRules {
            failures: 1,
            ..rules()
        });
        for _ in 0..100 {
            breakers.handle_timeout(&PEER, now);
            let Ask::Not { until } = breakers.ask(&PEER, now) else {
                panic!("it is closed");
            };
            assert!(until <= now + secs(60));
            now = until;
            assert_eq!(breakers.ask(&PEER, now), Ask::AsProbe);
        }
    }

    #[test]
    fn switched_off_it_remembers_nobody() {
        let mut breakers = Breakers::new(BreakerRules {
            failures: 0,
            ..rules()
        });
        for _ in 0..100 {
            assert!(!breakers.handle_timeout(&PEER, start()));
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
            let mut breakers = Breakers::new(rules());
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
                        let opened = breakers.handle_timeout(&peer, now);
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
