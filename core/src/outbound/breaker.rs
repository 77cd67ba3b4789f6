//! The circuit breaker of one destination: one that fails again and again, or too often, is left alone for a while,
//! then tried with care.
//!
//! Pure: `now` and the rules are arguments. Always: it is asked freely until so many failures in a row, or so large
//! a share of failures within the window; then not at all until its time is over; then by at most `probes` requests
//! at once until one of them is answered. What was asked before it opened has no say in when it closes.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Failures in a row that open it; 0 for none.
    pub failures: u32,
    pub rate: Option<ErrorRate>,
    /// How long it stays open at first; twice as long each time a probe fails.
    pub open: Duration,
    pub open_max: Duration,
    /// Requests at once while half open, 1 to 3.
    pub probes: u8,
}

/// How large a share of failures opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    pub percent: u8,
    /// Of the requests that ended within this.
    pub window: Duration,
    /// Of fewer requests a share says nothing.
    pub at_least: u32,
}

/// Whether a destination may be asked. Who may asks, and reports what came of it.
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

#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    /// When it last changed for the worse.
    at: Instant,
    /// Kept only where a rate is asked for.
    window: Option<Box<Window>>,
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
            rate: None,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            probes: 1,
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

impl Breaker {
    pub fn new(now: Instant) -> Self {
        Breaker {
            state: State::Closed { failures: 0 },
            at: now,
            window: None,
        }
    }

    /// Counts a probe if it is one.
    pub fn ask(&mut self, rules: &BreakerRules, now: Instant) -> Ask {
        match &mut self.state {
            State::Closed { .. } => Ask::Freely,
            State::Open { times } => {
                let until = self.at + rules.open_for(*times);
                if now < until {
                    return Ask::Not { until };
                }
                self.state = State::HalfOpen {
                    times: *times,
                    probing: 1,
                };
                self.at = now;
                Ask::AsProbe
            }
            State::HalfOpen { times, probing } => {
                // A probe that was never reported does not keep the destination away for ever.
                let until = self.at + rules.open_for(*times);
                if now >= until {
                    *probing = 0;
                }
                if *probing >= rules.probes() {
                    return Ask::Not { until };
                }
                *probing += 1;
                self.at = now;
                Ask::AsProbe
            }
        }
    }

    /// All is well, if it was asked in this state of the breaker.
    pub fn handle_answer(&mut self, rules: &BreakerRules, asked: Ask, now: Instant) {
        match (&mut self.state, asked) {
            (State::Closed { failures }, _) => {
                *failures = 0;
                self.note(rules, false, now);
            }
            (State::HalfOpen { .. }, Ask::AsProbe) => *self = Breaker::new(now),
            _ => {}
        }
    }

    /// True if that opened it.
    pub fn handle_failure(&mut self, rules: &BreakerRules, asked: Ask, now: Instant) -> bool {
        let times = match (&mut self.state, asked) {
            (State::Closed { failures }, _) => {
                *failures = failures.saturating_add(1);
                let in_a_row = rules.failures > 0 && *failures >= rules.failures;
                self.at = now;
                let too_often = self.note(rules, true, now);
                if !in_a_row && !too_often {
                    return false;
                }
                1
            }
            (State::HalfOpen { times, .. }, Ask::AsProbe) => times.saturating_add(1),
            // Of a request that left before it opened.
            _ => return false,
        };
        *self = Breaker {
            state: State::Open { times },
            at: now,
            window: None,
        };
        true
    }

    /// The request was given up before anything was learnt from it.
    pub fn handle_cancelled(&mut self, asked: Ask) {
        if let (State::HalfOpen { probing, .. }, Ask::AsProbe) = (&mut self.state, asked) {
            *probing = probing.saturating_sub(1);
        }
    }

    /// It is asked freely.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// When it last changed for the worse.
    pub fn since(&self) -> Instant {
        self.at
    }

    /// True if the failures within the window are too large a share.
    fn note(&mut self, rules: &BreakerRules, failed: bool, now: Instant) -> bool {
        let Some(rate) = rules.rate else {
            return false;
        };
        let window = self
            .window
            .get_or_insert_with(|| Box::new(Window::new(now)));
        let (all, failures) = window.note(rate.window, failed, now);
        all >= u64::from(rate.at_least.max(1)) && failures * 100 >= all * u64::from(rate.percent)
    }
}

/// What ended lately, in slots that are forgotten one by one.
#[derive(Clone, Debug)]
struct Window {
    start: Instant,
    /// The number of the newest slot.
    newest: u64,
    /// All, and failures among them; slot `n` at `n % SLOTS`.
    slots: [(u32, u32); SLOTS as usize],
}

const SLOTS: u64 = 8;

impl Window {
    fn new(now: Instant) -> Self {
        Window {
            start: now,
            newest: 0,
            slots: [(0, 0); SLOTS as usize],
        }
    }

    /// All of the window now, and failures among them.
    fn note(&mut self, length: Duration, failed: bool, now: Instant) -> (u64, u64) {
        let slot_ns = (length.as_nanos() / u128::from(SLOTS)).max(1);
        let passed = now.saturating_duration_since(self.start).as_nanos();
        let current = u64::try_from(passed / slot_ns).unwrap_or(u64::MAX);
        let stale = current.saturating_sub(self.newest).min(SLOTS);
        for n in 0..stale {
            self.slots[((current - n) % SLOTS) as usize] = (0, 0);
        }
        self.newest = self.newest.max(current);
        let (all, failures) = &mut self.slots[(self.newest % SLOTS) as usize];
        *all = all.saturating_add(1);
        *failures = failures.saturating_add(u32::from(failed));
        let sum = |part: fn(&(u32, u32)) -> u32| self.slots.iter().map(part).map(u64::from).sum();
        (sum(|slot| slot.0), sum(|slot| slot.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_env::World;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn start() -> Instant {
        World::new().env().now()
    }

    fn by_rate(percent: u8, at_least: u32) -> BreakerRules {
        BreakerRules {
            failures: 0,
            rate: Some(ErrorRate {
                percent,
                window: secs(8),
                at_least,
            }),
            ..BreakerRules::default()
        }
    }

    /// `x` a failure, `.` an answer, each asked for freely; a digit lets so many seconds pass. Where it opens.
    fn opens_at(rules: &BreakerRules, what: &str) -> Option<usize> {
        let mut now = start();
        let mut breaker = Breaker::new(now);
        what.chars().position(|c| match c {
            'x' => breaker.handle_failure(rules, Ask::Freely, now),
            '.' => {
                breaker.handle_answer(rules, Ask::Freely, now);
                false
            }
            passed => {
                now += secs(u64::from(passed.to_digit(10).unwrap()));
                false
            }
        })
    }

    #[test]
    fn failures_in_a_row_or_too_many_of_a_window_open_it() {
        let in_a_row = BreakerRules {
            failures: 3,
            ..BreakerRules::default()
        };
        let both = BreakerRules {
            failures: 3,
            ..by_rate(50, 6)
        };
        let cases = [
            (in_a_row, "xx.xx.xx.xx.", None),
            (in_a_row, "xx.xxx", Some(5)),
            (in_a_row, "x9x9x", Some(4)),
            // Not of fewer than six.
            (by_rate(50, 6), "xxxxx", None),
            (by_rate(50, 6), "xxxxxx", Some(5)),
            (by_rate(50, 6), "x.x.x.x", Some(6)),
            (by_rate(50, 6), "x..x..x..x..x..", None),
            (by_rate(51, 6), "x.x.x.x.x.x.x.", Some(6)),
            // What is older than the window has no say.
            (by_rate(50, 6), "xxxxx8x", None),
            (by_rate(50, 6), "xxxxx7x", Some(6)),
            (by_rate(50, 6), "........8xxxxxx", Some(14)),
            (by_rate(50, 6), "........7xxxxxx", None),
            (both, "xx.xx.xx", Some(6)),
            (both, "xxx", Some(2)),
        ];
        for (rules, what, expected) in cases {
            assert_eq!(opens_at(&rules, what), expected, "{what} {rules:?}");
        }
    }

    #[test]
    fn late_reports_neither_open_nor_close_it_and_a_given_up_probe_makes_room() {
        let rules = BreakerRules {
            failures: 1,
            ..BreakerRules::default()
        };
        let now = start();
        let mut breaker = Breaker::new(now);
        assert!(breaker.handle_failure(&rules, Ask::Freely, now));
        let until = now + secs(5);
        breaker.handle_answer(&rules, Ask::Freely, now);
        assert_eq!(breaker.ask(&rules, now), Ask::Not { until });
        assert_eq!(breaker.ask(&rules, until), Ask::AsProbe);
        breaker.handle_answer(&rules, Ask::Freely, until);
        assert!(!breaker.handle_failure(&rules, Ask::Freely, until));
        assert!(matches!(breaker.ask(&rules, until), Ask::Not { .. }));
        breaker.handle_cancelled(Ask::Freely);
        assert!(matches!(breaker.ask(&rules, until), Ask::Not { .. }));
        breaker.handle_cancelled(Ask::AsProbe);
        assert_eq!(breaker.ask(&rules, until), Ask::AsProbe);
        breaker.handle_answer(&rules, Ask::AsProbe, until);
        assert_eq!(breaker.ask(&rules, until), Ask::Freely);
    }

    /// What a breaker does, told from the whole history and without its state.
    #[derive(Default)]
    struct Reference {
        /// Since it last closed: when each request ended, and whether it failed.
        ended: Vec<(u64, bool)>,
        /// When it opened, and for how long.
        open: Option<(u64, u64)>,
        /// Probes that were let through and not yet reported, and when the last one was.
        probes: usize,
        last_probe: u64,
        times: u32,
    }

    const WINDOW_MS: u64 = 8000;

    impl Reference {
        fn should_open(&self, rules: &BreakerRules) -> bool {
            let row = self.ended.iter().rev().take_while(|(_, failed)| *failed);
            let in_a_row = rules.failures > 0 && row.count() >= rules.failures as usize;
            let rate = rules.rate.unwrap();
            let slot = |at: u64| (at - self.ended[0].0) / (WINDOW_MS / SLOTS);
            let newest = slot(self.ended.last().unwrap().0);
            let lately = self
                .ended
                .iter()
                .filter(|(at, _)| slot(*at) + SLOTS > newest);
            let (all, failed) =
                lately.fold((0, 0), |(all, bad), (_, f)| (all + 1, bad + u32::from(*f)));
            in_a_row || (all >= rate.at_least && failed * 100 >= all * u32::from(rate.percent))
        }

        fn open_now(&mut self, rules: &BreakerRules, now: u64) {
            self.times += 1;
            let length = (rules.open * 2_u32.pow(self.times.min(10) - 1)).min(rules.open_max);
            *self = Reference {
                open: Some((now, length.as_millis() as u64)),
                times: self.times,
                ..Reference::default()
            };
        }

        fn may_ask(&mut self, rules: &BreakerRules, now: u64) -> bool {
            let Some((since, length)) = self.open else {
                return true;
            };
            if now >= self.last_probe + length {
                self.probes = 0;
            }
            let free = now >= since + length && self.probes < usize::from(rules.probes);
            if free {
                self.probes += 1;
                self.last_probe = now;
            }
            free
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_does_what_the_history_says_and_always_comes_back(
            failures in 0_u32..4,
            percent in 30_u8..=100,
            at_least in 1_u32..8,
            probes in 1_u8..=3,
            steps in prop::collection::vec((0_u8..8, 0_u64..3000), 0..200),
        ) {
            let rules = BreakerRules {
                failures,
                rate: Some(ErrorRate { percent, window: Duration::from_millis(WINDOW_MS), at_least }),
                open: secs(2),
                open_max: secs(10),
                probes,
            };
            let origin = start();
            let (mut now_ms, mut breaker, mut told) = (0, Breaker::new(origin), Reference::default());
            for (what, passed_ms) in steps {
                now_ms += passed_ms;
                let now = origin + Duration::from_millis(now_ms);
                let probe = told.open.is_some();
                let asked = breaker.ask(&rules, now);
                let allowed = told.may_ask(&rules, now_ms);
                match asked {
                    Ask::Freely => prop_assert!(allowed && !probe),
                    Ask::AsProbe => prop_assert!(allowed && probe),
                    Ask::Not { until } => {
                        prop_assert!(!allowed && until > now && until <= now + secs(10));
                        continue;
                    }
                }
                match what {
                    // Never reported.
                    0 if probe => {}
                    0 | 1 => {
                        breaker.handle_cancelled(asked);
                        told.probes = told.probes.saturating_sub(1);
                    }
                    2..=4 => {
                        breaker.handle_answer(&rules, asked, now);
                        match probe {
                            true => told = Reference::default(),
                            false => told.ended.push((now_ms, false)),
                        }
                    }
                    _ => {
                        let opened = breaker.handle_failure(&rules, asked, now);
                        told.ended.push((now_ms, true));
                        let expected = probe || told.should_open(&rules);
                        prop_assert_eq!(opened, expected);
                        if opened {
                            told.open_now(&rules, now_ms);
                        }
                    }
                }
                prop_assert_eq!(breaker.is_closed(), told.open.is_none());
            }
            // Whatever happened: after the longest time it is tried, and an answer closes it for good.
            let later = origin + Duration::from_millis(now_ms) + secs(10);
            let asked = breaker.ask(&rules, later);
            let refused = matches!(asked, Ask::Not { .. });
            prop_assert!(!refused);
            breaker.handle_answer(&rules, asked, later);
            prop_assert_eq!(breaker.ask(&rules, later), Ask::Freely);
        }
    }
}
