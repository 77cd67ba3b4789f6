//! A token bucket in whole numbers: in any window of `t` seconds at most `burst + rate × t` are let through,
//! and one that keeps to the rate is never refused.

use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate_per_s: u64,
    /// In billionths of a token, so that a nanosecond adds exactly `rate_per_s` of them.
    level: u64,
    full: u64,
    at: Instant,
}

const TOKEN: u64 = 1_000_000_000;

impl TokenBucket {
    /// Starts full. Both numbers are at least 1.
    pub fn new(rate_per_s: u32, burst: u32, now: Instant) -> Self {
        let full = u64::from(burst.max(1)) * TOKEN;
        TokenBucket {
            rate_per_s: u64::from(rate_per_s.max(1)),
            level: full,
            full,
            at: now,
        }
    }

    /// Takes a token, or says how long it takes until there is one.
    pub fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let gained = passed.saturating_mul(u128::from(self.rate_per_s));
        let level = u128::from(self.level)
            .saturating_add(gained)
            .min(u128::from(self.full));
        self.level = level as u64;
        self.at = self.at.max(now);
        match self.level.checked_sub(TOKEN) {
            Some(rest) => {
                self.level = rest;
                Ok(())
            }
            None => Err(Duration::from_nanos(
                (TOKEN - self.level).div_ceil(self.rate_per_s),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_env::World;

    proptest! {
        /// The reference keeps the history and no level: a request passes if no window that ends with
        /// it would hold more than the burst plus what the rate adds.
        #[test]
        fn it_lets_through_exactly_what_rate_and_burst_allow(
            rate in 1u32..50,
            burst in 1u32..20,
            gaps_us in proptest::collection::vec(0u64..200_000, 1..120),
        ) {
            let start = World::new().env().now();
            let mut bucket = TokenBucket::new(rate, burst, start);
            let mut passed_ns: Vec<u128> = Vec::new();
            let mut t = 0u128;
            for gap in gaps_us {
                t += u128::from(gap) * 1000;
                let now = start + Duration::from_nanos(t as u64);
                let allowed = (0..=passed_ns.len()).all(|skip| {
                    let held = (passed_ns.len() - skip + 1) as u128;
                    let since = passed_ns.get(skip).copied().unwrap_or(t);
                    held * u128::from(TOKEN)
                        <= u128::from(burst) * u128::from(TOKEN) + (t - since) * u128::from(rate)
                });
                let got = bucket.try_take(now);
                prop_assert_eq!(got.is_ok(), allowed);
                match got {
                    Ok(()) => passed_ns.push(t),
                    Err(wait) => {
                        // The advice is exact: not a nanosecond too early, nor too late.
                        let early = bucket.clone().try_take(now + wait - Duration::from_nanos(1));
                        prop_assert!(early.is_err());
                        prop_assert!(bucket.clone().try_take(now + wait).is_ok());
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_rest_fills_it_no_further_than_the_burst() {
        let start = World::new().env().now();
        let mut bucket = TokenBucket::new(u32::MAX, 2, start);
        let later = start + Duration::from_secs(1 << 32);
        let passed = (0..5).filter(|_| bucket.try_take(later).is_ok()).count();
        assert_eq!(passed, 2);
        // A clock reading from before changes nothing.
        assert!(bucket.try_take(start).is_err());
    }
}
