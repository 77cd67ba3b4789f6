//! How long to wait before the next try: exponential, capped and jittered, as one pure function.
//!
//! Retries and restarts share it, so that no service has a second idea of "exponential". Always: a
//! delay lies in `floor(attempt)..=ceiling(attempt)`, both of which only rise with the attempt and
//! stop at the cap; no attempt number overflows; equal generators give equal delays.

use std::time::Duration;

/// A schedule of delays; attempt 0 is the first wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The shortest first wait; it doubles with every attempt.
    pub min: Duration,
    /// Where doubling stops.
    pub max: Duration,
    pub jitter: Jitter,
}

/// Where randomness enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// `min(max, min * 2^n)`, exactly.
    None,
    /// The first wait lies in `min..=min + width` and the whole band doubles until its top reaches
    /// `max`, where it stays. The cap holds for the jittered value, and callers that have all
    /// reached the cap are still spread out.
    Band(Duration),
    /// `min(max, min * 2^n) + U[0, extra]`: the top is `max + extra`.
    Plus(Duration),
}

impl Backoff {
    /// The first wait lies in `low..=high`; no wait is longer than `cap`.
    pub const fn band(low: Duration, high: Duration, cap: Duration) -> Self {
        Backoff {
            min: low,
            max: cap,
            jitter: Jitter::Band(high.saturating_sub(low)),
        }
    }

    /// `min(max, base * 2^n) + U[0, base]`.
    pub const fn plus(base: Duration, max: Duration) -> Self {
        Backoff {
            min: base,
            max,
            jitter: Jitter::Plus(base),
        }
    }

    /// How long to wait before the try that follows `attempt` earlier waits.
    pub fn delay(&self, attempt: u32, rng: &mut impl rand_core::Rng) -> Duration {
        let low = nanos(self.floor(attempt));
        if attempt > 0 && self.ceiling(attempt) == self.ceiling(attempt - 1) {
            crate::sometimes!("backoff.at_cap");
        }
        let high = nanos(self.ceiling(attempt));
        // Multiply and shift: uniform to within 2^-64 and one draw, whatever the span.
        let span = u128::from(high - low) + 1;
        let offset = ((span * u128::from(rng.next_u64())) >> 64) as u64;
        Duration::from_nanos(low + offset)
    }

    /// The shortest delay possible at this attempt.
    pub fn floor(&self, attempt: u32) -> Duration {
        match self.jitter {
            Jitter::None | Jitter::Plus(_) => doubled(self.min, attempt, self.max),
            Jitter::Band(width) => {
                let top = nanos(self.min.saturating_add(width));
                let ceiling = nanos(self.ceiling(attempt));
                // The band keeps its proportions at the cap, but never falls below the first wait.
                let scaled = (u128::from(ceiling) * u128::from(nanos(self.min)))
                    .checked_div(u128::from(top))
                    .unwrap_or(0) as u64;
                Duration::from_nanos(scaled.max(nanos(self.min).min(ceiling)))
            }
        }
    }

    /// The longest delay possible at this attempt.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        match self.jitter {
            Jitter::None => doubled(self.min, attempt, self.max),
            Jitter::Band(width) => doubled(self.min.saturating_add(width), attempt, self.max),
            Jitter::Plus(extra) => Duration::from_nanos(
                nanos(doubled(self.min, attempt, self.max)).saturating_add(nanos(extra)),
            ),
        }
    }
}

/// Nanoseconds, saturating at 584 years.
fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn doubled(first: Duration, times: u32, cap: Duration) -> Duration {
    let (first, cap) = (nanos(first), nanos(cap));
    let grown = if times < first.leading_zeros() {
        first << times
    } else if first == 0 {
        0
    } else {
        u64::MAX
    };
    Duration::from_nanos(grown.min(cap))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;
    use rand_chacha::rand_core::SeedableRng;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_services_schedules_have_these_bounds() {
        // (schedule, attempt, floor, ceiling) in ms
        let restart = Backoff::band(ms(100), ms(400), ms(5000));
        let fill = Backoff::plus(ms(50), ms(800));
        let backend = Backoff::band(ms(50), ms(100), ms(1000));
        let lookup = Backoff::band(ms(50), ms(100), ms(2000));
        let poll = Backoff::band(ms(100), ms(250), ms(2000));
        let cases = [
            (restart, 0, 100, 400), // proves: RWD-2.10
            (restart, 1, 200, 800),
            (restart, 9, 1250, 5000),
            (fill, 0, 50, 100), // proves: EDG-5.2
            (fill, 1, 100, 150),
            (fill, 2, 200, 250),
            (fill, 30, 800, 850),
            (backend, 0, 50, 100), // proves: KMS-5.2
            (backend, 1, 100, 200),
            (backend, 40, 500, 1000),
            (lookup, 0, 50, 100), // proves: DHT-5.4
            (lookup, u32::MAX, 1000, 2000),
            (poll, 0, 100, 250), // proves: ADM-5.14, ADM-5.15
            (poll, 3, 800, 2000),
        ];
        for (schedule, attempt, floor, ceiling) in cases {
            let got = (schedule.floor(attempt), schedule.ceiling(attempt));
            assert_eq!(got, (ms(floor), ms(ceiling)), "{schedule:?} at {attempt}");
        }
    }

    #[test]
    fn draws_reach_both_ends_of_the_band() {
        let schedule = Backoff::band(ms(100), ms(400), ms(5000));
        let mut rng = Rng::seed_from_u64(7);
        let draws: Vec<_> = (0..1000).map(|_| schedule.delay(0, &mut rng)).collect();
        assert!(draws.iter().min().unwrap() < &ms(110));
        assert!(draws.iter().max().unwrap() > &ms(390));
    }

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        let span =
            || prop_oneof![0..=10_000_000_000u64, any::<u64>()].prop_map(Duration::from_nanos);
        let jitter = (0..3u8, span()).prop_map(|(kind, width)| match kind {
            0 => Jitter::None,
            1 => Jitter::Band(width),
            _ => Jitter::Plus(width),
        });
        (span(), span(), jitter).prop_map(|(min, max, jitter)| Backoff { min, max, jitter })
    }

    fn any_attempt() -> impl Strategy<Value = u32> {
        prop_oneof![0..80u32, any::<u32>()]
    }

    proptest! {
        #[test]
        fn delay_stays_between_floor_and_ceiling_and_under_the_cap(
            backoff in any_backoff(), attempt in any_attempt(), seed: u64,
        ) {
            let delay = backoff.delay(attempt, &mut Rng::seed_from_u64(seed));
            prop_assert!(backoff.floor(attempt) <= delay && delay <= backoff.ceiling(attempt));
            let extra = match backoff.jitter { Jitter::Plus(d) => d, _ => Duration::ZERO };
            prop_assert!(delay <= backoff.max.saturating_add(extra));
            prop_assert!(delay >= backoff.min.min(backoff.max));
        }

        #[test]
        fn envelope_never_falls_with_the_attempt(backoff in any_backoff(), attempt in 0..u32::MAX) {
            prop_assert!(backoff.floor(attempt) <= backoff.floor(attempt + 1));
            prop_assert!(backoff.ceiling(attempt) <= backoff.ceiling(attempt + 1));
        }

        #[test]
        fn equal_generators_give_equal_delays(
            backoff in any_backoff(), attempt in any_attempt(), seed: u64,
        ) {
            let draw = || backoff.delay(attempt, &mut Rng::seed_from_u64(seed));
            prop_assert_eq!(draw(), draw());
        }
    }
}
