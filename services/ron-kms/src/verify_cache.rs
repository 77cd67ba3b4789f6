//! How old the key index may be: fresh, stale with its age, or expired.
//!
//! Verifying reads the index, which is refreshed from the backend in the background. While the backend is
//! out, answers go on and carry the age; past the limit they stop. Pure: `now` is an argument.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyCache {
    ttl: Duration,
    refreshed: Instant,
    /// The last refresh failed, and none succeeded since.
    degraded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    Fresh,
    /// The backend is out: usable, with its age.
    Stale(Duration),
    /// Too old to be trusted.
    Expired(Duration),
}

impl VerifyCache {
    pub fn new(ttl: Duration, now: Instant) -> VerifyCache {
        VerifyCache {
            ttl,
            refreshed: now,
            degraded: false,
        }
    }

    pub fn set_ttl(&mut self, ttl: Duration) {
        self.ttl = ttl;
    }

    pub fn handle_refreshed(&mut self, now: Instant) {
        self.refreshed = self.refreshed.max(now);
        self.degraded = false;
    }

    pub fn handle_failed(&mut self) {
        self.degraded = true;
    }

    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.refreshed)
    }

    pub fn judge(&self, now: Instant) -> Freshness {
        let age = self.age(now);
        match (age > self.ttl, self.degraded) {
            (true, _) => Freshness::Expired(age),
            (_, true) => Freshness::Stale(age),
            (_, false) => Freshness::Fresh,
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "an instant to count from; no time passes"
)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_with_its_age_until_the_limit_and_refused_after_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let mut cache = VerifyCache::new(ms(100), start);
        assert_eq!(cache.judge(at(100)), Freshness::Fresh);
        cache.handle_failed();
        assert_eq!(cache.judge(at(40)), Freshness::Stale(ms(40)));
        assert_eq!(cache.judge(at(100)), Freshness::Stale(ms(100)));
        assert_eq!(cache.judge(at(101)), Freshness::Expired(ms(101)));
        cache.handle_refreshed(at(101));
        assert_eq!(cache.judge(at(102)), Freshness::Fresh);
        assert_eq!(cache.judge(at(202)), Freshness::Expired(ms(101)));
    }

    #[test]
    fn a_late_report_of_an_older_refresh_does_not_make_it_older() {
        let start = Instant::now();
        let mut cache = VerifyCache::new(Duration::from_secs(1), start);
        cache.handle_refreshed(start + Duration::from_millis(500));
        cache.handle_refreshed(start);
        let age = cache.age(start + Duration::from_millis(600));
        assert_eq!(age, Duration::from_millis(100));
    }
}
