//! Freshness (RFC 9111, 3 and 4; RFC 5861): may an answer be stored, how old is it, may it be used again.
//!
//! All of it is for a shared cache, and pure: times come in as arguments. Always: what is used without asking the origin is
//! younger than its lifetime, or within a grace that the origin gave and no directive forbids.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, StatusCode, header};

use crate::{
    cache_control::{Directives, seconds},
    conditional::date,
};

/// Of an answer that says nothing of its lifetime: a tenth of the time since its last change, and no more than this.
const HEURISTIC_MAX: Duration = Duration::from_secs(24 * 3600);

/// Why an answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStored {
    Method,
    Status,
    NoStore,
    Private,
    Authorization,
    NoLifetime,
    VaryAny,
}

impl NotStored {
    /// As `Cache-Status` and the metrics spell it.
    pub fn reason(self) -> &'static str {
        match self {
            NotStored::Method => "method",
            NotStored::Status => "status",
            NotStored::NoStore => "no_store",
            NotStored::Private => "private",
            NotStored::Authorization => "authorization",
            NotStored::NoLifetime => "no_lifetime",
            NotStored::VaryAny => "vary_any",
        }
    }
}

/// The directives of an answer: `CDN-Cache-Control` if it is there and can be read, else `Cache-Control`.
///
/// The second value tells whether it was the former, in whose presence `Expires` says nothing either.
pub fn directives(answer: &HeaderMap) -> (Directives, bool) {
    let lines = |name: &str| {
        let lines = answer.get_all(name).iter();
        lines.map(|value| value.as_bytes()).collect::<Vec<_>>()
    };
    match Directives::parse_targeted(lines("cdn-cache-control")) {
        Some(targeted) => (targeted, true),
        None => (Directives::parse(lines("cache-control")), false),
    }
}

pub fn may_store(
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    answer: &HeaderMap,
) -> Result<(), NotStored> {
    if method != Method::GET {
        return Err(NotStored::Method);
    }
    // A part was not asked for, and 304 is no answer of its own.
    let partial = [StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    if status.is_informational() || partial {
        return Err(NotStored::Status);
    }
    let (said, targeted) = directives(answer);
    let asked = Directives::parse(
        request
            .get_all(header::CACHE_CONTROL)
            .iter()
            .map(|v| v.as_bytes()),
    );
    if said.must_understand && !is_understood(status) {
        return Err(NotStored::Status);
    }
    if asked.no_store || (said.no_store && !said.must_understand) {
        return Err(NotStored::NoStore);
    }
    if said.private {
        return Err(NotStored::Private);
    }
    let shareable = said.public || said.must_revalidate || said.s_maxage.is_some();
    if request.contains_key(header::AUTHORIZATION) && !shareable {
        return Err(NotStored::Authorization);
    }
    let explicit = said.max_age.is_some()
        || said.s_maxage.is_some()
        || (!targeted && answer.contains_key(header::EXPIRES));
    if !explicit && !said.public && !is_heuristic(status) {
        return Err(NotStored::NoLifetime);
    }
    let any = answer.get_all(header::VARY).iter().any(|line| {
        let mut names = line.as_bytes().split(|byte| *byte == b',');
        names.any(|name| name.trim_ascii() == b"*")
    });
    if any {
        return Err(NotStored::VaryAny);
    }
    Ok(())
}

/// Statuses whose caching this cache knows how to do right.
fn is_understood(status: StatusCode) -> bool {
    is_heuristic(status)
        || matches!(
            status.as_u16(),
            302 | 303 | 307 | 400 | 403 | 500 | 502 | 503 | 504
        )
}

/// Statuses that may be stored without a word about their lifetime (RFC 9110, 15.1; 206 is never stored here).
fn is_heuristic(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// When an answer was made and how long it holds, worked out once when it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freshness {
    pub lifetime: Duration,
    /// The age it had on arrival.
    pub initial_age: Duration,
    pub arrived: SystemTime,
    pub directives: Directives,
}

impl Freshness {
    /// `asked` and `arrived`: when the request left and when the head of the answer came.
    pub fn of(
        status: StatusCode,
        answer: &HeaderMap,
        asked: SystemTime,
        arrived: SystemTime,
    ) -> Freshness {
        let (directives, targeted) = directives(answer);
        let made = date(answer, &header::DATE).unwrap_or(arrived);
        let apparent = arrived.duration_since(made).unwrap_or_default();
        let delay = arrived.duration_since(asked).unwrap_or_default();
        let told = age(answer).unwrap_or_default() + delay;
        Freshness {
            lifetime: lifetime(status, answer, &directives, targeted, made),
            initial_age: apparent.max(told),
            arrived,
            directives,
        }
    }

    /// Of the answer, as `Age` tells it. A clock that went back makes nothing younger than on arrival.
    pub fn age(&self, now: SystemTime) -> Duration {
        self.initial_age + now.duration_since(self.arrived).unwrap_or_default()
    }

    /// What may be done with it for a request that brings these directives.
    pub fn reuse(&self, request: &Directives, now: SystemTime) -> Reuse {
        let age = self.age(now);
        let said = &self.directives;
        let wanted = Duration::from_secs(request.min_fresh.unwrap_or(0));
        let lifetime = request.max_age.map_or(self.lifetime, |asked| {
            self.lifetime.min(Duration::from_secs(asked))
        });
        let unasked = !said.no_cache && !request.no_cache;
        if unasked && age + wanted < lifetime {
            return Reuse::Fresh;
        }
        let stale_for = age.saturating_sub(self.lifetime);
        // A shared cache obeys s-maxage as it does proxy-revalidate (RFC 9111, 5.2.2.10).
        let forbidden = said.no_cache
            || said.must_revalidate
            || said.proxy_revalidate
            || said.s_maxage.is_some();
        let within = |grace: Option<u64>| {
            !forbidden && grace.is_some_and(|grace| stale_for <= Duration::from_secs(grace))
        };
        let demanding =
            request.no_cache || request.max_age.is_some() || request.min_fresh.is_some();
        if !demanding && within(request.max_stale) {
            return Reuse::Fresh;
        }
        Reuse::Stale {
            while_revalidating: !demanding && within(said.stale_while_revalidate),
            if_error: within(said.stale_if_error) || within(request.stale_if_error),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// As it is, without asking anybody.
    Fresh,
    /// The origin is to be asked.
    Stale {
        /// Served meanwhile.
        while_revalidating: bool,
        /// Served if the origin does not answer well.
        if_error: bool,
    },
}

fn lifetime(
    status: StatusCode,
    answer: &HeaderMap,
    said: &Directives,
    targeted: bool,
    made: SystemTime,
) -> Duration {
    if let Some(seconds) = said.s_maxage.or(said.max_age) {
        return Duration::from_secs(seconds);
    }
    if !targeted && answer.contains_key(header::EXPIRES) {
        // One that cannot be read, or is given twice, is over (RFC 9111, 5.3).
        let expires = date(answer, &header::EXPIRES);
        let left = expires.and_then(|expires| expires.duration_since(made).ok());
        return left.unwrap_or_default();
    }
    if !is_heuristic(status) && !said.public {
        return Duration::ZERO;
    }
    let changed = date(answer, &header::LAST_MODIFIED);
    let unchanged = changed.and_then(|changed| made.duration_since(changed).ok());
    unchanged.map_or(Duration::ZERO, |unchanged| {
        (unchanged / 10).min(HEURISTIC_MAX)
    })
}

/// The `Age` of an answer: the first number; one that is none says nothing.
fn age(answer: &HeaderMap) -> Option<Duration> {
    let value = answer.get(header::AGE)?.as_bytes();
    let first = value.split(|byte| *byte == b',').next()?.trim_ascii();
    seconds(first).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    /// Wed, 18 Nov 2026 12:00:00 GMT.
    const NOW: u64 = 1_795_003_200;

    fn at(offset: i64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW.saturating_add_signed(offset))
    }

    fn http_date(offset: i64) -> String {
        httpdate::fmt_http_date(at(offset))
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn arrived(fields: &[(&'static str, &str)]) -> Freshness {
        Freshness::of(StatusCode::OK, &headers(fields), at(0), at(0))
    }

    #[test]
    fn what_is_stored_is_what_the_rfc_allows_a_shared_cache() {
        use NotStored::{Authorization, NoLifetime, NoStore, Private, Status, VaryAny};
        const MAX: (&str, &str) = ("cache-control", "max-age=60");
        const AUTH: (&str, &str) = ("authorization", "Basic eDp5");
        let ok = 200;
        type Fields<'a> = &'a [(&'static str, &'a str)];
        let cases: &[(Fields<'_>, u16, Fields<'_>, Result<(), NotStored>)] = &[
            (&[], ok, &[MAX], Ok(())),
            (&[], ok, &[], Ok(())),
            (&[], 201, &[], Err(NoLifetime)),
            (&[], 201, &[MAX], Ok(())),
            (&[], 201, &[("cache-control", "public")], Ok(())),
            (&[], 500, &[], Err(NoLifetime)),
            (&[], 302, &[], Err(NoLifetime)),
            (
                &[],
                302,
                &[("expires", "Thu, 01 Jan 2037 00:00:00 GMT")],
                Ok(()),
            ),
            (&[], 206, &[MAX], Err(Status)),
            (&[], 304, &[MAX], Err(Status)),
            (&[], 599, &[MAX], Ok(())),
            (
                &[],
                599,
                &[("cache-control", "max-age=60, must-understand")],
                Err(Status),
            ),
            (
                &[],
                ok,
                &[("cache-control", "no-store, must-understand, max-age=60")],
                Ok(()),
            ),
            (
                &[],
                ok,
                &[("cache-control", "no-store, max-age=60")],
                Err(NoStore),
            ),
            (&[("cache-control", "no-store")], ok, &[MAX], Err(NoStore)),
            (
                &[],
                ok,
                &[("cache-control", "private, max-age=60")],
                Err(Private),
            ),
            (&[AUTH], ok, &[MAX], Err(Authorization)),
            (&[AUTH], ok, &[("cache-control", "public")], Ok(())),
            (&[AUTH], ok, &[("cache-control", "s-maxage=60")], Ok(())),
            (
                &[AUTH],
                ok,
                &[("cache-control", "max-age=60, must-revalidate")],
                Ok(()),
            ),
            (&[], ok, &[MAX, ("vary", "accept, *")], Err(VaryAny)),
            (&[], ok, &[MAX, ("vary", "accept")], Ok(())),
            (
                &[],
                ok,
                &[("cdn-cache-control", "no-store"), MAX],
                Err(NoStore),
            ),
            (
                &[],
                ok,
                &[
                    ("cdn-cache-control", "max-age=60"),
                    ("cache-control", "no-store"),
                ],
                Ok(()),
            ),
            (
                &[],
                ok,
                &[("cdn-cache-control", "NO"), ("cache-control", "no-store")],
                Err(NoStore),
            ),
        ];
        for (request, status, answer, may) in cases {
            let status = StatusCode::from_u16(*status).unwrap();
            let got = may_store(&Method::GET, &headers(request), status, &headers(answer));
            assert_eq!(got, *may, "{request:?} {status} {answer:?}");
        }
        let head = may_store(
            &Method::HEAD,
            &headers(&[]),
            StatusCode::OK,
            &headers(&[MAX]),
        );
        assert_eq!(head, Err(NotStored::Method));
    }

    #[test]
    fn a_lifetime_comes_from_the_first_that_tells_one() {
        let (soon, ago, day) = (http_date(100), http_date(-1_000), http_date(-86_400 * 100));
        let cases: &[(&[(&'static str, &str)], u64)] = &[
            (
                &[
                    ("cache-control", "max-age=60, s-maxage=30"),
                    ("expires", &soon),
                ],
                30,
            ),
            (&[("cache-control", "max-age=60"), ("expires", &soon)], 60),
            (&[("expires", &soon)], 100),
            (&[("expires", &ago)], 0),
            (&[("expires", "0")], 0),
            (&[("expires", &soon), ("expires", &soon)], 0),
            (&[("expires", &soon), ("date", &ago)], 1_100),
            (&[("last-modified", &ago)], 100),
            (&[("last-modified", &day)], 86_400),
            (&[("last-modified", &soon)], 0),
            (&[], 0),
            (
                &[
                    ("cdn-cache-control", "max-age=7"),
                    ("cache-control", "max-age=60"),
                ],
                7,
            ),
            (&[("cdn-cache-control", "public"), ("expires", &soon)], 0),
            (
                &[
                    ("cdn-cache-control", "max-age"),
                    ("cache-control", "max-age=60"),
                ],
                0,
            ),
        ];
        for (fields, lifetime) in cases {
            assert_eq!(arrived(fields).lifetime.as_secs(), *lifetime, "{fields:?}");
        }
        let unknown = headers(&[("last-modified", &ago)]);
        let teapot = StatusCode::from_u16(418).unwrap();
        assert_eq!(
            Freshness::of(teapot, &unknown, at(0), at(0)).lifetime,
            Duration::ZERO
        );
    }

    #[test]
    fn age_is_what_was_told_or_what_the_date_shows_and_grows_with_the_stay() {
        let ago = http_date(-50);
        for (fields, age) in [
            (&[][..], 0),
            (&[("age", "20")], 20),
            (&[("date", &ago)], 50),
            (&[("date", &ago), ("age", "20")], 50),
            (&[("date", &ago), ("age", "70")], 70),
            (&[("age", "20, 90")], 20),
            (&[("age", "x")], 0),
            (&[("age", "-20")], 0),
            (&[("age", "20.5")], 0),
            (&[("age", "\"20\"")], 0),
        ] {
            assert_eq!(arrived(fields).age(at(0)).as_secs(), age, "{fields:?}");
            assert_eq!(arrived(fields).age(at(7)).as_secs(), age + 7, "{fields:?}");
            assert_eq!(
                arrived(fields).age(at(-7)).as_secs(),
                age,
                "a clock that went back"
            );
        }
        let slow = Freshness::of(StatusCode::OK, &headers(&[("age", "20")]), at(-3), at(0));
        assert_eq!(slow.age(at(0)).as_secs(), 23, "the way counts");
    }

    #[test]
    fn an_answer_is_used_while_fresh_and_then_only_as_its_origin_allows() {
        const ASK: Reuse = Reuse::Stale {
            while_revalidating: false,
            if_error: false,
        };
        const MEANWHILE: Reuse = Reuse::Stale {
            while_revalidating: true,
            if_error: false,
        };
        const ON_ERROR: Reuse = Reuse::Stale {
            while_revalidating: false,
            if_error: true,
        };
        for (said, asked, after, reuse) in [
            ("max-age=60", "", 59, Reuse::Fresh),
            ("max-age=60", "", 60, ASK),
            ("max-age=0", "", 0, ASK),
            ("max-age=60, no-cache", "", 0, ASK),
            ("max-age=60", "no-cache", 0, ASK),
            ("max-age=60", "max-age=10", 9, Reuse::Fresh),
            ("max-age=60", "max-age=10", 10, ASK),
            ("max-age=60", "max-age=100", 60, ASK),
            ("max-age=60", "min-fresh=10", 49, Reuse::Fresh),
            ("max-age=60", "min-fresh=10", 50, ASK),
            ("max-age=60", "max-stale=5", 65, Reuse::Fresh),
            ("max-age=60", "max-stale=5", 66, ASK),
            ("max-age=60", "max-stale", 6_000, Reuse::Fresh),
            ("max-age=60, must-revalidate", "max-stale", 61, ASK),
            ("max-age=60, proxy-revalidate", "max-stale", 61, ASK),
            ("s-maxage=60", "max-stale", 61, ASK),
            ("max-age=60, stale-while-revalidate=5", "", 65, MEANWHILE),
            ("max-age=60, stale-while-revalidate=5", "", 66, ASK),
            ("max-age=60, stale-while-revalidate=5", "no-cache", 61, ASK),
            (
                "max-age=60, stale-while-revalidate=5, must-revalidate",
                "",
                61,
                ASK,
            ),
            ("max-age=60, stale-if-error=5", "", 65, ON_ERROR),
            ("max-age=60, stale-if-error=5", "", 66, ASK),
            ("max-age=60, stale-if-error=5, must-revalidate", "", 61, ASK),
            ("max-age=60", "stale-if-error=5", 61, ON_ERROR),
        ] {
            let stored = arrived(&[("cache-control", said)]);
            let asked = Directives::parse([asked.as_bytes()]);
            assert_eq!(
                stored.reuse(&asked, at(after)),
                reuse,
                "{said} | {asked:?} after {after}"
            );
        }
    }

    proptest! {
        /// Whatever else was said, unless the client asks for stale answers.
        #[test]
        fn nothing_is_fresh_past_its_lifetime(
            said in "(max-age=[0-9]{1,3}|s-maxage=[0-9]{1,3}|stale-while-revalidate=9|no-cache|public){0,1}(, (max-age=[0-9]{1,3}|immutable))?",
            asked in "(max-age=[0-9]{1,2}|min-fresh=[0-9]{1,2}|no-cache)?",
            after in 0i64..1_200,
        ) {
            let stored = arrived(&[("cache-control", &said)]);
            let fresh = stored.reuse(&Directives::parse([asked.as_bytes()]), at(after)) == Reuse::Fresh;
            prop_assert!(!fresh || stored.age(at(after)) < stored.lifetime);
        }
    }
}
