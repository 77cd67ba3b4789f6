//! The moment by which a request must be answered. It travels: in with two headers, through every
//! await on its behalf, and out again with the same headers.
//!
//! Always: a deadline only shrinks. What a caller asks for can shorten what the server grants and
//! never lengthen it, and what is written out is never later than what was held.

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Seconds that the caller is still willing to wait, decimals allowed: `2`, `0.25`.
pub const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("request-timeout");
/// The moment after which nobody reads the answer, in Unix milliseconds.
pub const DEADLINE: HeaderName = HeaderName::from_static("deadline");

/// Nothing waits longer; it keeps every sum of times inside what the clock can hold.
const FARTHEST: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn at(moment: Instant) -> Self {
        Deadline(moment)
    }

    /// A year at most.
    pub fn after(now: Instant, limit: Duration) -> Self {
        Deadline(now + limit.min(FARTHEST))
    }

    /// What the caller's headers leave of `granted`, and how many header values were malformed (and
    /// therefore ignored). Of several values the smallest wins.
    pub fn from_headers(
        headers: &HeaderMap,
        now: Instant,
        wall: SystemTime,
        granted: Deadline,
    ) -> (Self, u32) {
        let timeouts = headers.get_all(REQUEST_TIMEOUT).into_iter().map(seconds);
        let moments = headers
            .get_all(DEADLINE)
            .into_iter()
            .map(|value| until_unix_ms(value, wall));
        let (mut deadline, mut malformed) = (granted, 0);
        for asked in timeouts.chain(moments) {
            match asked {
                Some(limit) => deadline = deadline.shrink(Deadline::after(now, limit)),
                None => malformed += 1,
            }
        }
        (deadline, malformed)
    }

    /// Sets both headers to what remains, rounded down to the millisecond, so that a hop over a
    /// skewed clock is still bounded by the relative one.
    pub fn write_to(self, headers: &mut HeaderMap, now: Instant, wall: SystemTime) {
        let remaining = self.remaining(now);
        let timeout = format!("{}.{:03}", remaining.as_secs(), remaining.subsec_millis());
        let unix_ms = (since_epoch(wall).saturating_add(remaining)).as_millis();
        headers.insert(REQUEST_TIMEOUT, ascii(timeout));
        headers.insert(DEADLINE, ascii(unix_ms.to_string()));
    }

    /// The earlier of the two.
    #[must_use]
    pub fn shrink(self, other: Deadline) -> Self {
        Deadline(self.0.min(other.0))
    }

    /// Zero once it is past.
    pub fn remaining(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    pub fn is_past(self, now: Instant) -> bool {
        now >= self.0
    }

    pub fn instant(self) -> Instant {
        self.0
    }
}

/// `12`, `0.5`, `3.`: digits, and at most one point. No sign, no exponent, no blanks.
fn seconds(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = digits(whole)?;
    let millis = match fraction {
        "" => 0,
        _ => {
            digits(fraction)?;
            // Only what a millisecond can hold counts, rounded down.
            fraction
                .bytes()
                .chain(*b"000")
                .take(3)
                .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
        }
    };
    Some(Duration::from_secs(whole).saturating_add(Duration::from_millis(millis)))
}

fn until_unix_ms(value: &HeaderValue, wall: SystemTime) -> Option<Duration> {
    let moment = Duration::from_millis(digits(value.to_str().ok()?)?);
    Some(moment.saturating_sub(since_epoch(wall)))
}

/// A number of at most 18 digits, so that none overflows.
fn digits(text: &str) -> Option<u64> {
    let plain = (1..=18).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn since_epoch(wall: SystemTime) -> Duration {
    wall.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

fn ascii(text: String) -> HeaderValue {
    HeaderValue::from_str(&text).expect("digits and a point are a valid header value")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Some moment; only differences matter.
    #[allow(
        clippy::disallowed_methods,
        reason = "an Instant can be had from nowhere else; its value plays no part"
    )]
    fn some_now() -> Instant {
        Instant::now()
    }

    fn wall(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    type Pairs = [(HeaderName, &'static str)];

    fn headers(pairs: &Pairs) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        map
    }

    // proves: EDG-5.4
    #[test]
    fn headers_shorten_the_grant_smallest_wins_and_malformed_ones_are_counted() {
        let cases: &[(&Pairs, u64, u32)] = &[
            (&[], 5000, 0),
            (&[(REQUEST_TIMEOUT, "2")], 2000, 0),
            (&[(REQUEST_TIMEOUT, "0.25")], 250, 0),
            (&[(REQUEST_TIMEOUT, "1.0009")], 1000, 0),
            (&[(REQUEST_TIMEOUT, "3.")], 3000, 0),
            (&[(REQUEST_TIMEOUT, "0")], 0, 0),
            (&[(REQUEST_TIMEOUT, "60")], 5000, 0),
            (&[(DEADLINE, "1700000001500")], 1500, 0),
            (&[(DEADLINE, "1600000000000")], 0, 0),
            (&[(DEADLINE, "999999999999999999")], 5000, 0),
            (
                &[(REQUEST_TIMEOUT, "3"), (DEADLINE, "1700000002000")],
                2000,
                0,
            ),
            (
                &[(REQUEST_TIMEOUT, "1"), (DEADLINE, "1700000002000")],
                1000,
                0,
            ),
            (&[(REQUEST_TIMEOUT, "4"), (REQUEST_TIMEOUT, "3")], 3000, 0),
            (
                &[(REQUEST_TIMEOUT, "soon"), (DEADLINE, "1700000002000")],
                2000,
                1,
            ),
            (&[(REQUEST_TIMEOUT, "-1")], 5000, 1),
            (&[(REQUEST_TIMEOUT, "+1")], 5000, 1),
            (&[(REQUEST_TIMEOUT, "1e3")], 5000, 1),
            (&[(REQUEST_TIMEOUT, "1.2.3")], 5000, 1),
            (&[(REQUEST_TIMEOUT, ".5")], 5000, 1),
            (
                &[(REQUEST_TIMEOUT, "inf"), (REQUEST_TIMEOUT, "NaN")],
                5000,
                2,
            ),
            (&[(REQUEST_TIMEOUT, "")], 5000, 1),
            (&[(REQUEST_TIMEOUT, "9999999999999999999")], 5000, 1),
            (
                &[(DEADLINE, "1700000001500.5"), (REQUEST_TIMEOUT, "\u{e9}")],
                5000,
                2,
            ),
        ];
        let now = some_now();
        let granted = Deadline::after(now, Duration::from_secs(5));
        for (pairs, remaining_ms, malformed) in cases {
            let got =
                Deadline::from_headers(&headers(pairs), now, wall(1_700_000_000_000), granted);
            let want = Deadline::after(now, Duration::from_millis(*remaining_ms));
            assert_eq!(got, (want, *malformed), "{pairs:?}");
        }
    }

    #[test]
    fn a_deadline_is_past_from_its_very_moment_on() {
        let now = some_now();
        let deadline = Deadline::after(now, Duration::from_millis(1));
        assert!(!deadline.is_past(now));
        assert!(deadline.is_past(deadline.instant()));
        assert_eq!(deadline.remaining(deadline.instant()), Duration::ZERO);
        let far = Deadline::after(now, Duration::MAX);
        assert_eq!(far.remaining(now), FARTHEST);
    }

    #[test]
    fn written_headers_replace_what_was_there() {
        let now = some_now();
        let mut map = headers(&[(REQUEST_TIMEOUT, "99"), (REQUEST_TIMEOUT, "98")]);
        let deadline = Deadline::after(now, Duration::from_micros(1_234_567));
        deadline.write_to(&mut map, now, wall(1_700_000_000_000));
        assert_eq!(map.get_all(REQUEST_TIMEOUT).iter().count(), 1);
        assert_eq!(map[REQUEST_TIMEOUT], "1.234");
        assert_eq!(map[DEADLINE], "1700000001234");
    }

    fn header_text() -> impl Strategy<Value = String> {
        prop_oneof!["[0-9]{0,20}", "[0-9]{1,4}\\.[0-9]{0,12}", "[ -~]{0,12}"]
    }

    proptest! {
        #[test]
        fn no_header_lengthens_a_deadline(
            timeouts in prop::collection::vec(header_text(), 0..3),
            moments in prop::collection::vec(header_text(), 0..3),
            granted_ms in 0..100_000u64,
            wall_ms in 0..3_000_000_000_000u64,
        ) {
            let now = some_now();
            let granted = Deadline::after(now, Duration::from_millis(granted_ms));
            let mut map = HeaderMap::new();
            for text in &timeouts {
                map.append(REQUEST_TIMEOUT, HeaderValue::from_str(text).unwrap());
            }
            for text in &moments {
                map.append(DEADLINE, HeaderValue::from_str(text).unwrap());
            }
            let (deadline, malformed) = Deadline::from_headers(&map, now, wall(wall_ms), granted);
            prop_assert!(deadline <= granted);
            prop_assert!(malformed as usize <= timeouts.len() + moments.len());
        }

        #[test]
        fn a_hop_never_lengthens_and_costs_less_than_two_milliseconds(
            held_us in 0..10_000_000u64,
            travel_us in 0..10_000_000u64,
            skew_ms in -5_000..5_000i64,
            wall_us in 1_600_000_000_000_000..1_800_000_000_000_000u64,
        ) {
            let (now, us) = (some_now(), Duration::from_micros);
            let held = Deadline::after(now, us(held_us));
            let sent_wall = SystemTime::UNIX_EPOCH + us(wall_us);
            let mut map = HeaderMap::new();
            held.write_to(&mut map, now, sent_wall);

            let arrived = now + us(travel_us);
            let far = Deadline::after(arrived, FARTHEST);
            let agreed = Deadline::from_headers(&map, arrived, sent_wall + us(travel_us), far).0;
            prop_assert!(agreed <= held.max(Deadline::at(arrived)));
            prop_assert!(agreed.remaining(arrived) + us(2000) > held.remaining(arrived));

            // On a skewed clock the relative header still bounds the wait.
            let skew = Duration::from_millis(skew_ms.unsigned_abs());
            let there = if skew_ms < 0 { sent_wall - skew } else { sent_wall + skew };
            let skewed = Deadline::from_headers(&map, arrived, there, far).0;
            prop_assert!(skewed.remaining(arrived) <= held.remaining(now));
        }
    }
}
