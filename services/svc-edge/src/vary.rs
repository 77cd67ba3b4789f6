//! `Vary` (RFC 9111, 4.1): which of the answers stored under one URL fits a request.
//!
//! Always: an answer is chosen only if every field it names is, in this request, what it was in the one it answered.

use http::{HeaderMap, HeaderName, header};

/// The fields an answer was chosen by, with the values its request had; sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selected(Vec<(FieldName, Option<Vec<u8>>)>);

/// A field name that can be ordered.
type FieldName = String;

/// More fields than an answer has a reason to vary by; with more it is not stored.
pub const MAX_FIELDS: usize = 16;

impl Selected {
    /// `None`: with `*` or a field that cannot be read no request can be known to fit.
    pub fn of(answer: &HeaderMap, request: &HeaderMap) -> Option<Selected> {
        let mut fields = Vec::new();
        for line in answer.get_all(header::VARY) {
            for name in line.as_bytes().split(|byte| *byte == b',') {
                let name = name.trim_ascii();
                if name.is_empty() {
                    continue;
                }
                // A name in lower case; `*` is a token, but of no field.
                let name = HeaderName::from_bytes(name)
                    .ok()
                    .filter(|name| name != "*")?;
                fields.push((name.to_string(), value(request, &name)));
            }
        }
        fields.sort();
        fields.dedup();
        (fields.len() <= MAX_FIELDS).then_some(Selected(fields))
    }

    pub fn fits(&self, request: &HeaderMap) -> bool {
        self.0.iter().all(|(name, wanted)| {
            let name = HeaderName::from_bytes(name.as_bytes());
            name.is_ok_and(|name| value(request, &name) == *wanted)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn fields(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
    }
}

/// All lines of a field as one, with the white space around its elements taken away.
fn value(request: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut lines = request.get_all(name).iter().peekable();
    lines.peek()?;
    let elements = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    Some(
        elements
            .map(<[u8]>::trim_ascii)
            .collect::<Vec<_>>()
            .join(&b","[..]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn an_answer_fits_the_requests_that_are_alike_in_what_it_varies_by() {
        type Fields<'a> = &'a [(&'static str, &'a str)];
        let cases: &[(&str, Fields<'_>, Fields<'_>, bool)] = &[
            ("foo", &[("foo", "1")], &[("foo", "1")], true),
            ("Foo", &[("foo", "1")], &[("foo", "1"), ("bar", "2")], true),
            ("foo", &[("foo", "1")], &[("foo", "2")], false),
            ("foo", &[("foo", "1")], &[], false),
            ("foo", &[], &[("foo", "1")], false),
            ("foo", &[], &[("foo", "")], false),
            ("foo", &[], &[], true),
            ("foo", &[("foo", "1, 2")], &[("foo", "1,2")], true),
            (
                "foo",
                &[("foo", "1"), ("foo", "2")],
                &[("foo", "1,  2")],
                true,
            ),
            ("foo", &[("foo", "1, 2")], &[("foo", "2, 1")], false),
            ("foo", &[("foo", "a b")], &[("foo", "ab")], false),
            (
                "foo, bar",
                &[("foo", "1"), ("bar", "2")],
                &[("foo", "1"), ("bar", "2")],
                true,
            ),
            (
                "foo, bar",
                &[("foo", "1"), ("bar", "2")],
                &[("foo", "1"), ("bar", "3")],
                false,
            ),
            (" ,foo,,", &[("foo", "1")], &[("foo", "2")], false),
            ("", &[("foo", "1")], &[("foo", "2")], true),
        ];
        for (vary, first, second, fits) in cases {
            let answer = headers(&[("vary", vary)]);
            let selected = Selected::of(&answer, &headers(first)).unwrap();
            assert_eq!(
                selected.fits(&headers(second)),
                *fits,
                "{vary}: {first:?} {second:?}"
            );
        }
    }

    #[test]
    fn the_order_and_number_of_lines_do_not_matter_but_a_star_or_a_flood_does() {
        let request = headers(&[("a", "1"), ("b", "2")]);
        let one = Selected::of(&headers(&[("vary", "a, b")]), &request);
        let other = Selected::of(&headers(&[("vary", "B"), ("vary", "a, A")]), &request);
        assert!(one.is_some() && one == other);
        for vary in ["*", "a, *", "a b", "a;b"] {
            assert_eq!(
                Selected::of(&headers(&[("vary", vary)]), &request),
                None,
                "{vary}"
            );
        }
        let names = |count: usize| {
            (0..count)
                .map(|n| format!("x{n}"))
                .collect::<Vec<_>>()
                .join(",")
        };
        for (count, stored) in [(MAX_FIELDS, true), (MAX_FIELDS + 1, false)] {
            let answer = headers(&[("vary", &names(count))]);
            assert_eq!(Selected::of(&answer, &request).is_some(), stored);
        }
    }
}
