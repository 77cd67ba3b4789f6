//! Whether a call is made again, and when.
//!
//! Pure. Always: a call that may have been acted on is made again only if that does no harm; no wait is shorter than
//! the other side asked for, and none leads past the deadline.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, StatusCode, header};

use crate::{backoff::Backoff, seam::HttpError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// In all: 1 for no retry.
    pub attempts: u32,
    pub backoff: Backoff,
    /// One attempt may take so long; `None` for as long as the call.
    pub attempt_timeout: Option<Duration>,
}

impl RetryRules {
    pub const NEVER: RetryRules = RetryRules {
        attempts: 1,
        backoff: Backoff::band(Duration::ZERO, Duration::ZERO, Duration::ZERO),
        attempt_timeout: None,
    };
}

/// What one attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// Another attempt would end as this one did.
    Final,
    /// It was certainly not seen.
    NotSent,
    /// It may have been seen.
    Unknown,
    /// The other side could not do it now, and may have said when.
    NotNow { retry_after: Option<Duration> },
}

/// The names of a key with which the other side tells the second of two equal calls.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A second time does what the first did: by its method, or because it has a key.
pub fn is_idempotent(method: &Method, headers: &HeaderMap) -> bool {
    method.is_idempotent() || headers.contains_key(IDEMPOTENCY_KEY)
}

impl Tried {
    pub fn of_error(error: &HttpError) -> Tried {
        match error {
            HttpError::Invalid(_) | HttpError::Forbidden { .. } => Tried::Final,
            error if error.outcome_unknown() => Tried::Unknown,
            _ => Tried::NotSent,
        }
    }

    pub fn of_answer(status: StatusCode, headers: &HeaderMap, wall: SystemTime) -> Tried {
        match status.as_u16() {
            408 | 425 | 429 | 502 | 503 | 504 => Tried::NotNow {
                retry_after: retry_after(headers, wall),
            },
            _ => Tried::Final,
        }
    }
}

impl RetryRules {
    /// How long to wait before the next attempt after `attempt` earlier ones; `None` if there is none.
    pub fn next(
        &self,
        attempt: u32,
        tried: Tried,
        idempotent: bool,
        left: Duration,
        rng: &mut impl rand_core::Rng,
    ) -> Option<Duration> {
        if attempt + 1 >= self.attempts {
            return None;
        }
        let asked = match tried {
            Tried::Final => return None,
            Tried::NotSent => Duration::ZERO,
            Tried::Unknown if idempotent => Duration::ZERO,
            Tried::NotNow { retry_after } if idempotent => retry_after.unwrap_or_default(),
            Tried::Unknown | Tried::NotNow { .. } => return None,
        };
        let wait = self.backoff.delay(attempt, rng).max(asked);
        (wait < left).then_some(wait)
    }
}

/// Seconds, or a date. Anything else is as good as nothing.
fn retry_after(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Duration::from_secs);
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(wall).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::Rng;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    const RULES: RetryRules = RetryRules {
        attempts: 3,
        backoff: Backoff::band(ms(100), ms(250), ms(1000)),
        attempt_timeout: None,
    };

    #[test]
    fn calls_are_idempotent_by_their_method_or_their_key() {
        let mut keyed = HeaderMap::new();
        keyed.insert(IDEMPOTENCY_KEY, "a".parse().unwrap());
        for (method, alone) in [
            ("GET", true),
            ("HEAD", true),
            ("PUT", true),
            ("DELETE", true),
            ("POST", false),
            ("PATCH", false),
            ("MADE-UP", false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(is_idempotent(&method, &HeaderMap::new()), alone, "{method}");
            assert!(is_idempotent(&method, &keyed), "{method}");
        }
    }

    #[test]
    fn answers_that_ask_to_come_back_say_when() {
        let wall = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let secs = Duration::from_secs;
        let cases = [
            (503, "7", Some(Some(secs(7)))),
            (429, "0", Some(Some(secs(0)))),
            (503, "Sun, 06 Nov 1994 08:49:47 GMT", Some(Some(secs(10)))),
            (503, "Sun, 06 Nov 1994 08:49:27 GMT", Some(Some(secs(0)))),
            (503, "-1", Some(None)),
            (503, "99999999999999999999999", Some(None)),
            (503, "soon", Some(None)),
            (504, "", Some(None)),
            (502, "1.5", Some(None)),
            (500, "7", None),
            (501, "7", None),
            (200, "7", None),
            (404, "7", None),
        ];
        for (status, header, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, header.parse().unwrap());
            let tried = Tried::of_answer(StatusCode::from_u16(status).unwrap(), &headers, wall);
            let expected =
                expected.map_or(Tried::Final, |retry_after| Tried::NotNow { retry_after });
            assert_eq!(tried, expected, "{status} {header}");
        }
    }

    proptest! {
        #[test]
        fn a_retry_does_no_harm_waits_as_asked_and_ends_before_the_deadline(
            attempt in 0_u32..5,
            which in 0_u8..5,
            asked_ms in 0_u64..3000,
            idempotent: bool,
            left_ms in 0_u64..4000,
            seed: u64,
        ) {
            let tried = match which {
                0 => Tried::Final,
                1 => Tried::NotSent,
                2 => Tried::Unknown,
                3 => Tried::NotNow { retry_after: None },
                _ => Tried::NotNow { retry_after: Some(ms(asked_ms)) },
            };
            let next = RULES.next(attempt, tried, idempotent, ms(left_ms), &mut Rng::seed_from_u64(seed));
            let harmless = tried == Tried::NotSent || (idempotent && tried != Tried::Final);
            match next {
                None => {
                    let longest = RULES.backoff.ceiling(attempt).max(ms(asked_ms));
                    prop_assert!(attempt >= 2 || !harmless || longest >= ms(left_ms));
                }
                Some(wait) => {
                    prop_assert!(attempt < 2 && harmless && wait < ms(left_ms));
                    prop_assert!(wait >= RULES.backoff.floor(attempt));
                    prop_assert!(which < 4 || wait >= ms(asked_ms));
                }
            }
        }
    }
}
