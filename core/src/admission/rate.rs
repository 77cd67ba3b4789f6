//! A token bucket in whole numbers: in any window of `t` seconds at most `burst + rate × t` are let through,
//! and one that keeps to the rate is never refused.

use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate_per_s: u32,
    burst: u32,
    start: Instant,
    tokens: Tokens,
}

/// What a bucket holds; rate and size are its owner's. Where there are many equal ones, this is all that each needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// In billionths of a token, so that a nanosecond adds exactly the rate. Below zero it is owed.
    level: i64,
    at_ns: u64,
}

const TOKEN: i64 = 1_000_000_000;

impl TokenBucket {
    /// Starts full. Both numbers are at least 1.
    pub fn new(rate_per_s: u32, burst: u32, now: Instant) -> Self {
        let burst = burst.max(1);
        TokenBucket {
            rate_per_s: rate_per_s.max(1),
            burst,
            start: now,
            tokens: Tokens::full(burst, 0),
        }
    }

    /// Takes a token, or says how long it takes until there is one.
    pub fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        let now_ns = nanos(now.saturating_duration_since(self.start));
        self.tokens.refill(self.rate_per_s, self.burst, now_ns);
        self.tokens.has(self.rate_per_s, 1)?;
        self.tokens.take(1);
        Ok(())
    }
}

impl Tokens {
    pub fn full(burst: u32, at_ns: u64) -> Tokens {
        Tokens {
            level: TOKEN * i64::from(burst),
            at_ns,
        }
    }

    /// A clock reading from before changes nothing.
    pub fn refill(&mut self, per_s: u32, burst: u32, now_ns: u64) {
        let passed = i128::from(now_ns.saturating_sub(self.at_ns));
        let gained = passed * i128::from(per_s);
        let full = i128::from(TOKEN) * i128::from(burst);
        self.level = (i128::from(self.level) + gained).min(full) as i64;
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// So many are there, or will be after so long.
    pub fn has(&self, per_s: u32, tokens: u32) -> Result<(), Duration> {
        let missing = TOKEN * i64::from(tokens) - self.level;
        if missing <= 0 {
            return Ok(());
        }
        let wait = (missing as u64).div_ceil(u64::from(per_s));
        Err(Duration::from_nanos(wait))
    }

    /// What is there: after [`has`](Self::has) said so.
    pub fn take(&mut self, tokens: u32) {
        self.level -= TOKEN * i64::from(tokens);
    }

    /// Whether or not it is there, down to a debt of `most`.
    pub fn owe(&mut self, tokens: u32, most: u32) {
        let cost = TOKEN * i64::from(tokens);
        let floor = -TOKEN * i64::from(most);
        self.level = self.level.saturating_sub(cost).max(floor);
    }

    pub fn is_full(&self, burst: u32) -> bool {
        self.level == TOKEN * i64::from(burst)
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
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
                    held * TOKEN as u128
                        <= u128::from(burst) * TOKEN as u128 + (t - since) * u128::from(rate)
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
