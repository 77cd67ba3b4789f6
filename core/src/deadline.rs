//! Placeholder of the deadline that travels with a request, until the kernel's own lands.

use std::time::{Duration, Instant, SystemTime};

use http::HeaderMap;

/// A moment after which the caller no longer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn after(now: Instant, limit: Duration) -> Self {
        Deadline(now + limit)
    }

    pub fn instant(&self) -> Instant {
        self.0
    }

    /// The smallest of what was granted, `Request-Timeout` (seconds) and `Deadline` (Unix ms), and how many
    /// of those headers could not be read.
    pub fn from_headers(
        headers: &HeaderMap,
        now: Instant,
        wall: SystemTime,
        granted: Deadline,
    ) -> (Self, u32) {
        let (mut limit, mut malformed) = (granted.0.saturating_duration_since(now), 0);
        let mut shrink = |name: &str, read: &dyn Fn(&str) -> Option<Duration>| {
            for value in headers.get_all(name) {
                match value.to_str().ok().and_then(read) {
                    Some(asked) => limit = limit.min(asked),
                    None => malformed += 1,
                }
            }
        };
        shrink("request-timeout", &|text| {
            Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
        });
        shrink("deadline", &|text| {
            let at = SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_millis(text.trim().parse().ok()?))?;
            Some(at.duration_since(wall).unwrap_or_default())
        });
        (Deadline(now + limit), malformed)
    }
}
