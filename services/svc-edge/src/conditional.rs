//! Conditional requests (RFC 9110, 13): whether an answer is needed, and which part of it.
//!
//! [`evaluate`] goes through the preconditions in the order of section 13.2.2. The representation and its validators go
//! in, a decision comes out; nothing is looked up.

use std::time::SystemTime;

use http::{HeaderMap, HeaderName, Method, header};

use crate::{
    etag::{ETag, ETags},
    range::{self, Part},
};

/// What a representation is known by.
#[derive(Clone, Debug, Default)]
pub struct Validators {
    pub etag: Option<ETag>,
    pub modified: Option<SystemTime>,
    /// When the answer was made; a date of change is a strong validator only if it lies a second before.
    pub date: Option<SystemTime>,
}

/// What a request gets of a representation that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it: all, a part, or 416.
    Send(Part),
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 400: a condition that cannot be read. To ignore it could do harm the client wanted to prevent.
    Malformed(&'static str),
}

/// `len`: of the whole representation, if it is known already; without it no range is granted.
pub fn evaluate(
    method: &Method,
    headers: &HeaderMap,
    validators: &Validators,
    len: Option<u64>,
) -> Verdict {
    let etag = validators.etag.as_ref();
    if headers.contains_key(header::IF_MATCH) {
        match tags(headers, header::IF_MATCH) {
            None => return Verdict::Malformed("if-match"),
            Some(tags) if !tags.match_strongly(etag, true) => return Verdict::PreconditionFailed,
            Some(_) => {}
        }
    } else if let (Some(since), Some(modified)) = (
        date(headers, &header::IF_UNMODIFIED_SINCE),
        validators.modified,
    ) && modified > since
    {
        return Verdict::PreconditionFailed;
    }
    let reads = method == Method::GET || method == Method::HEAD;
    if headers.contains_key(header::IF_NONE_MATCH) {
        match tags(headers, header::IF_NONE_MATCH) {
            None => return Verdict::Malformed("if-none-match"),
            Some(tags) if tags.match_weakly(etag, true) => {
                return match reads {
                    true => Verdict::NotModified,
                    false => Verdict::PreconditionFailed,
                };
            }
            Some(_) => {}
        }
    } else if reads
        && let (Some(since), Some(modified)) = (
            date(headers, &header::IF_MODIFIED_SINCE),
            validators.modified,
        )
        && modified <= since
    {
        return Verdict::NotModified;
    }
    Verdict::Send(part(method, headers, validators, len))
}

fn part(method: &Method, headers: &HeaderMap, validators: &Validators, len: Option<u64>) -> Part {
    // Only GET has ranges: an answer to HEAD tells of the whole.
    if method != Method::GET {
        return Part::Whole;
    }
    let mut lines = headers.get_all(header::RANGE).iter();
    match (lines.next(), lines.next(), len) {
        (Some(range), None, Some(len)) if if_range(headers, validators) => {
            range::choose(range.as_bytes(), len)
        }
        _ => Part::Whole,
    }
}

/// Whether the part that the client has is of this representation. Only a strong validator can tell.
fn if_range(headers: &HeaderMap, validators: &Validators) -> bool {
    let mut lines = headers.get_all(header::IF_RANGE).iter();
    let (Some(value), None) = (lines.next(), lines.next()) else {
        return !headers.contains_key(header::IF_RANGE);
    };
    if let Some(tag) = ETag::parse(value.as_bytes()) {
        let current = validators.etag.as_ref();
        return current.is_some_and(|current| tag.is_strongly(current));
    }
    let Some(said) = date(headers, &header::IF_RANGE) else {
        return false;
    };
    match (validators.modified, validators.date) {
        (Some(modified), Some(date)) => {
            let strong = date
                .duration_since(modified)
                .is_ok_and(|age| age.as_secs() >= 1);
            strong && modified == said
        }
        _ => false,
    }
}

fn tags(headers: &HeaderMap, name: HeaderName) -> Option<ETags> {
    ETags::parse(headers.get_all(name).iter().map(|value| value.as_bytes()))
}

/// A date that cannot be read, or that is given twice, is as good as none.
pub fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(value), None) => httpdate::parse_http_date(value.to_str().ok()?.trim()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const MODIFIED: &str = "Mon, 07 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Tue, 08 Nov 1994 08:49:37 GMT";

    fn validators() -> Validators {
        let modified = httpdate::parse_http_date(MODIFIED).unwrap();
        Validators {
            etag: ETag::parse(b"\"now\""),
            modified: Some(modified),
            date: Some(modified + Duration::from_secs(60)),
        }
    }

    fn ask(method: Method, fields: &[(&'static str, &str)], validators: &Validators) -> Verdict {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        evaluate(&method, &headers, validators, Some(100))
    }

    #[test]
    fn preconditions_are_judged_in_the_order_of_the_rfc() {
        use Verdict::{Malformed, NotModified, PreconditionFailed};
        const WHOLE: Verdict = Verdict::Send(Part::Whole);
        const PART: Verdict = Verdict::Send(Part::Bytes { first: 1, last: 2 });
        const R: (&str, &str) = ("range", "bytes=1-2");
        let cases: &[(&[(&'static str, &str)], Verdict)] = &[
            (&[], WHOLE),
            (&[R], PART),
            (&[R, R], WHOLE),
            (
                &[("range", "bytes=100-")],
                Verdict::Send(Part::Unsatisfiable),
            ),
            (&[("if-match", "\"now\"")], WHOLE),
            (&[("if-match", "\"then\", \"now\"")], WHOLE),
            (&[("if-match", "*")], WHOLE),
            (&[("if-match", "\"then\"")], PreconditionFailed),
            (&[("if-match", "W/\"now\"")], PreconditionFailed),
            (&[("if-match", "now")], Malformed("if-match")),
            (&[("if-match", "\"now\""), R], PART),
            (&[("if-unmodified-since", OLD)], PreconditionFailed),
            (&[("if-unmodified-since", MODIFIED)], WHOLE),
            (&[("if-unmodified-since", "yesterday")], WHOLE),
            (
                &[("if-match", "\"now\""), ("if-unmodified-since", OLD)],
                WHOLE,
            ),
            (&[("if-none-match", "\"now\"")], NotModified),
            (&[("if-none-match", "W/\"now\"")], NotModified),
            (&[("if-none-match", "\"then\", W/\"now\"")], NotModified),
            (
                &[("if-none-match", "\"then\""), ("if-none-match", "\"now\"")],
                NotModified,
            ),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"then\"")], WHOLE),
            (&[("if-none-match", "then")], Malformed("if-none-match")),
            (&[("if-none-match", "\"now\""), R], NotModified),
            (&[("if-modified-since", MODIFIED)], NotModified),
            (&[("if-modified-since", NEW)], NotModified),
            (&[("if-modified-since", OLD)], WHOLE),
            (&[("if-modified-since", "0")], WHOLE),
            (
                &[("if-modified-since", MODIFIED), ("if-modified-since", OLD)],
                WHOLE,
            ),
            (
                &[("if-none-match", "\"then\""), ("if-modified-since", NEW)],
                WHOLE,
            ),
            (
                &[("if-match", "\"then\""), ("if-none-match", "\"now\"")],
                PreconditionFailed,
            ),
            (&[R, ("if-range", "\"now\"")], PART),
            (&[R, ("if-range", "W/\"now\"")], WHOLE),
            (&[R, ("if-range", "\"then\"")], WHOLE),
            (&[R, ("if-range", MODIFIED)], PART),
            (&[R, ("if-range", NEW)], WHOLE),
            (&[R, ("if-range", OLD)], WHOLE),
            (&[R, ("if-range", "soon")], WHOLE),
            (
                &[R, ("if-range", "\"now\""), ("if-range", "\"now\"")],
                WHOLE,
            ),
            (&[("if-range", "\"then\"")], WHOLE),
        ];
        for (fields, verdict) in cases {
            assert_eq!(
                ask(Method::GET, fields, &validators()),
                *verdict,
                "{fields:?}"
            );
        }
        // HEAD has no parts, and is answered like GET otherwise.
        assert_eq!(ask(Method::HEAD, &[R], &validators()), WHOLE);
        let known = [("if-none-match", "\"now\"")];
        assert_eq!(ask(Method::HEAD, &known, &validators()), NotModified);
        assert_eq!(ask(Method::PUT, &known, &validators()), PreconditionFailed);
    }

    #[test]
    fn a_representation_without_validators_confirms_nothing() {
        let none = Validators::default();
        for fields in [
            [("if-none-match", "\"now\"")],
            [("if-modified-since", NEW)],
            [("if-unmodified-since", OLD)],
        ] {
            assert_eq!(ask(Method::GET, &fields, &none), Verdict::Send(Part::Whole));
        }
        let ranged = [("range", "bytes=1-2"), ("if-range", "\"now\"")];
        assert_eq!(ask(Method::GET, &ranged, &none), Verdict::Send(Part::Whole));
        assert_eq!(
            ask(Method::GET, &[("if-match", "\"now\"")], &none),
            Verdict::PreconditionFailed
        );
    }

    #[test]
    fn a_date_within_the_second_of_the_answer_is_too_weak_for_a_part() {
        let mut young = validators();
        young.date = young.modified;
        let fields = [("range", "bytes=1-2"), ("if-range", MODIFIED)];
        assert_eq!(
            ask(Method::GET, &fields, &young),
            Verdict::Send(Part::Whole)
        );
        young.date = young.modified.map(|at| at + Duration::from_secs(1));
        assert_ne!(
            ask(Method::GET, &fields, &young),
            Verdict::Send(Part::Whole)
        );
        young.modified = Some(UNIX_EPOCH);
        assert_eq!(
            ask(Method::GET, &fields, &young),
            Verdict::Send(Part::Whole)
        );
    }

    #[test]
    fn a_length_that_is_not_known_yet_has_no_parts() {
        let mut headers = HeaderMap::new();
        headers.insert("range", "bytes=1-2".parse().unwrap());
        let verdict = evaluate(&Method::GET, &headers, &validators(), None);
        assert_eq!(verdict, Verdict::Send(Part::Whole));
    }
}
