//! Range requests (RFC 9110, 14): which bytes of a representation an answer carries.
//!
//! Always: what is granted lies within the representation, first byte not behind the last. A unit that is not `bytes`
//! is ignored; several ranges are answered with the whole; a `bytes` range that cannot be read or satisfied is 416.

/// Which part of a representation an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it, 200.
    Whole,
    /// 206, both ends included.
    Bytes { first: u64, last: u64 },
    /// 416.
    Unsatisfiable,
}

impl Part {
    /// How many bytes the body has.
    pub fn len(self, whole: u64) -> u64 {
        match self {
            Part::Whole => whole,
            Part::Bytes { first, last } => last - first + 1,
            Part::Unsatisfiable => 0,
        }
    }

    /// The value of `Content-Range`, if the answer has one.
    pub fn content_range(self, whole: u64) -> Option<String> {
        match self {
            Part::Whole => None,
            Part::Bytes { first, last } => Some(format!("bytes {first}-{last}/{whole}")),
            Part::Unsatisfiable => Some(format!("bytes */{whole}")),
        }
    }
}

/// What the one line of a `Range` field asks for, of a representation that is `len` bytes long.
pub fn choose(range: &[u8], len: u64) -> Part {
    let range = range.trim_ascii();
    let Some(split) = range.iter().position(|byte| *byte == b'=') else {
        // No unit at all: nothing that could be understood, as with a unit nobody knows.
        return Part::Whole;
    };
    let (unit, specs) = (&range[..split], &range[split + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return Part::Whole;
    }
    let mut specs = specs
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|spec| !spec.is_empty());
    match (specs.next(), specs.next()) {
        (Some(spec), None) => Spec::parse(spec).map_or(Part::Unsatisfiable, |spec| spec.of(len)),
        (Some(_), Some(_)) => Part::Whole,
        (None, _) => Part::Unsatisfiable,
    }
}

enum Spec {
    From(u64),
    Between(u64, u64),
    Last(u64),
}

impl Spec {
    fn parse(spec: &[u8]) -> Option<Spec> {
        let dash = spec.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (&spec[..dash], &spec[dash + 1..]);
        match (first.is_empty(), last.is_empty()) {
            (true, true) => None,
            (true, false) => number(last).map(Spec::Last),
            (false, true) => number(first).map(Spec::From),
            (false, false) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Spec::Between(first, last))
            }
        }
    }

    fn of(self, len: u64) -> Part {
        let Some(end) = len.checked_sub(1) else {
            return Part::Unsatisfiable;
        };
        match self {
            Spec::From(first) | Spec::Between(first, _) if first > end => Part::Unsatisfiable,
            Spec::From(first) => Part::Bytes { first, last: end },
            Spec::Between(first, last) => Part::Bytes {
                first,
                last: last.min(end),
            },
            Spec::Last(0) => Part::Unsatisfiable,
            Spec::Last(count) => Part::Bytes {
                first: len.saturating_sub(count),
                last: end,
            },
        }
    }
}

/// Digits only. One that no file has is as good as the largest there is.
fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn bytes(first: u64, last: u64) -> Part {
        Part::Bytes { first, last }
    }

    #[test]
    fn a_range_is_granted_ignored_or_unsatisfiable() {
        use Part::{Unsatisfiable, Whole};
        for (range, len, part) in [
            ("bytes=0-0", 10, bytes(0, 0)),
            ("bytes=0-9", 10, bytes(0, 9)),
            ("bytes=0-10", 10, bytes(0, 9)),
            ("bytes=9-9", 10, bytes(9, 9)),
            ("bytes=9-", 10, bytes(9, 9)),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=10-20", 10, Unsatisfiable),
            ("bytes=-1", 10, bytes(9, 9)),
            ("bytes=-10", 10, bytes(0, 9)),
            ("bytes=-11", 10, bytes(0, 9)),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=-5", 0, Unsatisfiable),
            ("BYTES=1-2", 10, bytes(1, 2)),
            ("bytes= 1-2 ", 10, bytes(1, 2)),
            ("bytes=1-2,", 10, bytes(1, 2)),
            ("bytes=0-18446744073709551616", 10, bytes(0, 9)),
            ("bytes=99999999999999999999-", 10, Unsatisfiable),
            ("bytes=2-1", 10, Unsatisfiable),
            ("bytes=-", 10, Unsatisfiable),
            ("bytes=", 10, Unsatisfiable),
            ("bytes=1", 10, Unsatisfiable),
            ("bytes=a-b", 10, Unsatisfiable),
            ("bytes=1-2x", 10, Unsatisfiable),
            ("bytes=+1-2", 10, Unsatisfiable),
            ("bytes=1 - 2", 10, Unsatisfiable),
            ("bytes=--1", 10, Unsatisfiable),
            ("bytes=0-0,5-6", 10, Whole),
            ("bytes=x,y", 10, Whole),
            ("lines=1-2", 10, Whole),
            ("bytes", 10, Whole),
            ("", 10, Whole),
        ] {
            assert_eq!(choose(range.as_bytes(), len), part, "{range} of {len}");
        }
    }

    #[test]
    fn content_range_says_what_is_sent() {
        assert_eq!(bytes(2, 4).content_range(9).as_deref(), Some("bytes 2-4/9"));
        assert_eq!(
            Part::Unsatisfiable.content_range(9).as_deref(),
            Some("bytes */9")
        );
        assert_eq!(Part::Whole.content_range(9), None);
        assert_eq!((bytes(2, 4).len(9), Part::Whole.len(9)), (3, 9));
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_the_part_lies_within(range in "(bytes=)?[-0-9, a]{0,24}", len in 0u64..40) {
            match choose(range.as_bytes(), len) {
                Part::Bytes { first, last } => prop_assert!(first <= last && last < len),
                Part::Whole | Part::Unsatisfiable => {}
            }
        }

        #[test]
        fn a_range_within_is_granted_as_it_is(len in 1u64..1_000, a in 0u64..1_000, b in 0u64..1_000) {
            let (first, last) = (a.min(b) % len, a.max(b) % len);
            prop_assume!(first <= last);
            prop_assert_eq!(choose(format!("bytes={first}-{last}").as_bytes(), len), bytes(first, last));
        }
    }
}
