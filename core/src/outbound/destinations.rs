//! What a client knows of each destination: its breaker, its rate, how many requests are on their way.
//!
//! Pure: `now` is an argument. Always: no destination has more requests in flight, or more begun in any second, than
//! the limits say; no more destinations are known than the limits say, and one that is being asked is not forgotten.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::breaker::{Ask, Breaker, BreakerRules};
use crate::admission::{InFlight, Permit, TokenBucket};

/// For each destination on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundLimits {
    /// Requests whose answers have not been read to their ends.
    pub in_flight: usize,
    /// Requests a second, and at once after a rest; `None` for no limit.
    pub per_s: Option<u32>,
    /// Destinations that are told apart; another one waits until one of them rests.
    pub destinations: usize,
}

/// What was in the way of a request that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    Breaker,
    InFlight,
    Rate,
    Destinations,
}

impl Refusal {
    /// As a label of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Breaker => "breaker",
            Refusal::InFlight => "in_flight",
            Refusal::Rate => "rate",
            Refusal::Destinations => "destinations",
        }
    }
}

/// What was learnt from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    Answered,
    Failed,
    Nothing,
}

#[derive(Debug)]
pub struct Destinations {
    breaker: BreakerRules,
    limits: OutboundLimits,
    known: BTreeMap<String, Destination>,
}

#[derive(Debug)]
struct Destination {
    breaker: Breaker,
    bucket: Option<TokenBucket>,
    in_flight: InFlight,
    used: Instant,
}

/// When only the ends of others make room.
const COME_BACK_AFTER: Duration = Duration::from_millis(100);

impl Default for OutboundLimits {
    fn default() -> Self {
        OutboundLimits {
            in_flight: 64,
            per_s: None,
            destinations: 64,
        }
    }
}

impl Destinations {
    pub fn new(breaker: BreakerRules, limits: OutboundLimits) -> Self {
        Destinations {
            breaker,
            limits,
            known: BTreeMap::new(),
        }
    }

    /// A place for a request, to be [reported](Self::report); or what is in its way and for how long.
    pub fn enter(&mut self, to: &str, now: Instant) -> Result<(Ask, Permit), (Refusal, Duration)> {
        let rules = self.breaker;
        let Some(destination) = self.destination(to, now) else {
            return Err((Refusal::Destinations, COME_BACK_AFTER));
        };
        destination.used = now;
        let Some(permit) = destination.in_flight.try_enter() else {
            return Err((Refusal::InFlight, COME_BACK_AFTER));
        };
        let ask = destination.breaker.ask(&rules, now);
        if let Ask::Not { until } = ask {
            return Err((Refusal::Breaker, until.saturating_duration_since(now)));
        }
        // Last, so that no token is spent for nothing.
        if let Some(bucket) = &mut destination.bucket
            && let Err(wait) = bucket.try_take(now)
        {
            destination.breaker.handle_cancelled(ask);
            return Err((Refusal::Rate, wait));
        }
        Ok((ask, permit))
    }

    /// True if that opened its breaker.
    pub fn report(&mut self, to: &str, ask: Ask, learnt: Learnt, now: Instant) -> bool {
        let Some(destination) = self.known.get_mut(to) else {
            return false;
        };
        match learnt {
            Learnt::Answered => destination.breaker.handle_answer(&self.breaker, ask, now),
            Learnt::Failed => return destination.breaker.handle_failure(&self.breaker, ask, now),
            Learnt::Nothing => destination.breaker.handle_cancelled(ask),
        }
        false
    }

    /// Made if need be, in the place of the one of least use that nobody is asking.
    fn destination(&mut self, to: &str, now: Instant) -> Option<&mut Destination> {
        if !self.known.contains_key(to) {
            if self.known.len() >= self.limits.destinations.max(1) {
                let resting = self.known.iter().filter(|(_, d)| d.in_flight.now() == 0);
                let least = resting.min_by_key(|(_, d)| (!d.breaker.is_closed(), d.used));
                let least = least.map(|(name, _)| name.clone())?;
                self.known.remove(&least);
            }
            let bucket = |per_s| TokenBucket::new(per_s, per_s, now);
            let made = Destination {
                breaker: Breaker::new(now),
                bucket: self.limits.per_s.map(bucket),
                in_flight: InFlight::new(self.limits.in_flight),
                used: now,
            };
            self.known.insert(to.to_owned(), made);
        }
        self.known.get_mut(to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_env::World;

    const LIMITS: OutboundLimits = OutboundLimits {
        in_flight: 2,
        per_s: Some(5),
        destinations: 3,
    };

    fn start() -> Instant {
        World::new().env().now()
    }

    fn refusal<T>(entered: Result<T, (Refusal, Duration)>) -> Option<Refusal> {
        entered.err().map(|(refusal, _)| refusal)
    }

    #[test]
    fn each_limit_is_of_one_destination_and_a_probe_is_given_back_by_the_rate() {
        let now = start();
        let rules = BreakerRules {
            failures: 1,
            open: Duration::from_millis(1),
            ..BreakerRules::default()
        };
        let limits = OutboundLimits {
            per_s: Some(1),
            ..LIMITS
        };
        let mut all = Destinations::new(rules, limits);
        let (ask, permit) = all.enter("a", now).unwrap();
        assert_eq!(refusal(all.enter("a", now)), Some(Refusal::Rate));
        assert!(all.enter("b", now).is_ok());
        assert!(all.report("a", ask, Learnt::Failed, now));
        drop(permit);
        let (by, wait) = all.enter("a", now).unwrap_err();
        assert_eq!((by, wait), (Refusal::Breaker, rules.open));
        // Half open, and the rate refuses: the probe is not spent.
        let later = now + rules.open;
        assert_eq!(refusal(all.enter("a", later)), Some(Refusal::Rate));
        let refilled = now + Duration::from_secs(1);
        assert_eq!(all.enter("a", refilled).unwrap().0, Ask::AsProbe);
    }

    #[test]
    fn a_new_destination_takes_the_place_of_a_resting_one_that_is_well() {
        let mut now = start();
        let rules = BreakerRules {
            failures: 1,
            ..BreakerRules::default()
        };
        let mut all = Destinations::new(rules, LIMITS);
        // `a` is in trouble, `b` rests, `c` is asked.
        let (ask, _) = all.enter("a", now).unwrap();
        all.report("a", ask, Learnt::Failed, now);
        now += Duration::from_millis(1);
        drop(all.enter("b", now).unwrap());
        let (_, held) = all.enter("c", now).unwrap();
        assert!(all.enter("d", now).is_ok());
        assert_eq!(refusal(all.enter("a", now)), Some(Refusal::Breaker));
        // Nobody rests.
        let (_, also_held) = all.enter("d", now).unwrap();
        let (_, third) = all.enter("e", now).unwrap();
        assert_eq!(refusal(all.enter("f", now)), Some(Refusal::Destinations));
        drop(third);
        assert!(all.enter("f", now).is_ok());
        drop((held, also_held));
    }

    proptest! {
        #[test]
        fn no_limit_is_ever_passed(
            steps in prop::collection::vec((0_usize..5, 0_u8..4, 0_u64..300), 0..200),
        ) {
            let mut now = start();
            let mut all = Destinations::new(BreakerRules::default(), LIMITS);
            let mut held: Vec<(usize, Ask, Permit)> = Vec::new();
            let mut begun: Vec<(usize, Instant)> = Vec::new();
            for (to, what, passed_ms) in steps {
                now += Duration::from_millis(passed_ms);
                let name = to.to_string();
                let of = |held: &[(usize, Ask, Permit)]| held.iter().filter(|(n, ..)| *n == to).count();
                if what < 2 {
                    match all.enter(&name, now) {
                        Ok((ask, permit)) => {
                            held.push((to, ask, permit));
                            begun.push((to, now));
                        }
                        Err((Refusal::InFlight, _)) => prop_assert_eq!(of(&held), 2),
                        Err((Refusal::Destinations, _)) => {
                            let mut busy: Vec<_> = held.iter().map(|(n, ..)| *n).collect();
                            busy.sort_unstable();
                            busy.dedup();
                            prop_assert!(busy.len() == 3 && !busy.contains(&to));
                        }
                        Err(_) => {}
                    }
                } else if let Some(at) = held.iter().position(|(n, ..)| *n == to) {
                    let (_, ask, permit) = held.remove(at);
                    drop(permit);
                    let learnt = if what == 2 { Learnt::Answered } else { Learnt::Nothing };
                    all.report(&name, ask, learnt, now);
                }
                prop_assert!(all.known.len() <= 3 && of(&held) <= 2);
            }
            // A forgotten one starts anew, so this holds where none was: with few enough of them.
            if begun.iter().all(|(to, _)| *to < 3) {
                for (n, (to, since)) in begun.iter().enumerate() {
                    let second = begun[n..].iter().filter(|(t, at)| t == to && *at < *since + Duration::from_secs(1));
                    prop_assert!(second.count() <= 10);
                }
            }
        }
    }
}
