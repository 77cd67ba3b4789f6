//! Entity tags (RFC 9110, 8.8.3): the validators of a representation, and the lists that conditional requests carry.
//!
//! Always: what parses is a list of well-formed tags or `*`; anything else is refused as a whole, because a tag that is
//! guessed could confirm a body that the client does not have.

use std::fmt;

/// One entity tag, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag {
    pub weak: bool,
    opaque: String,
}

impl ETag {
    /// A strong tag; `None` if a tag may not contain these characters.
    pub fn strong(opaque: &str) -> Option<ETag> {
        let opaque = opaque.to_owned();
        let tag = ETag {
            weak: false,
            opaque,
        };
        tag.opaque.bytes().all(is_etagc).then_some(tag)
    }

    /// The value of an `ETag` field.
    pub fn parse(value: &[u8]) -> Option<ETag> {
        let (tag, rest) = take(value.trim_ascii())?;
        rest.is_empty().then_some(tag)
    }

    pub fn opaque(&self) -> &str {
        &self.opaque
    }

    /// Byte for byte the same representation.
    pub fn is_strongly(&self, other: &ETag) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Good enough to be used in its place.
    pub fn is_weakly(&self, other: &ETag) -> bool {
        self.opaque == other.opaque
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weak = if self.weak { "W/" } else { "" };
        write!(f, "{weak}\"{}\"", self.opaque)
    }
}

/// What `If-Match` or `If-None-Match` asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ETags {
    /// `*`: any representation at all.
    Any,
    List(Vec<ETag>),
}

/// More tags than anybody sends for good; a longer list is refused.
pub const MAX_TAGS: usize = 64;

impl ETags {
    /// The values of all lines of the field, in their order. `None`: not a list of tags.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<ETags> {
        let (mut tags, mut any) = (Vec::new(), false);
        for value in values {
            let mut rest = value.trim_ascii();
            if rest == b"*" {
                any = true;
                continue;
            }
            while !rest.is_empty() {
                if let Some(after) = rest.strip_prefix(b",") {
                    rest = after.trim_ascii_start();
                    continue;
                }
                let (tag, after) = take(rest)?;
                let after = after.trim_ascii_start();
                if !(after.is_empty() || after.starts_with(b",")) || tags.len() == MAX_TAGS {
                    return None;
                }
                tags.push(tag);
                rest = after;
            }
        }
        match (any, tags.is_empty()) {
            (true, true) => Some(ETags::Any),
            (false, false) => Some(ETags::List(tags)),
            _ => None,
        }
    }

    /// By the strong comparison, as `If-Match` wants it. `current`: of the representation, if there is one.
    pub fn match_strongly(&self, current: Option<&ETag>, exists: bool) -> bool {
        match self {
            ETags::Any => exists,
            ETags::List(tags) => tags
                .iter()
                .any(|tag| current.is_some_and(|current| tag.is_strongly(current))),
        }
    }

    /// By the weak comparison, as `If-None-Match` wants it.
    pub fn match_weakly(&self, current: Option<&ETag>, exists: bool) -> bool {
        match self {
            ETags::Any => exists,
            ETags::List(tags) => tags
                .iter()
                .any(|tag| current.is_some_and(|current| tag.is_weakly(current))),
        }
    }
}

/// A tag at the start, and what comes after it.
fn take(value: &[u8]) -> Option<(ETag, &[u8])> {
    let (weak, quoted) = match value.strip_prefix(b"W/") {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let inner = quoted.strip_prefix(b"\"")?;
    let end = inner.iter().position(|byte| *byte == b'"')?;
    let (opaque, rest) = (&inner[..end], &inner[end + 1..]);
    if !opaque.iter().copied().all(is_etagc) {
        return None;
    }
    // Bytes from 0x80 on are allowed in a tag and need not be UTF-8: each becomes a character of its own.
    let opaque = opaque.iter().map(|byte| char::from(*byte)).collect();
    Some((ETag { weak, opaque }, rest))
}

fn is_etagc(byte: u8) -> bool {
    byte == 0x21 || (0x23..=0x7e).contains(&byte) || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_one_spelling_and_what_is_none_is_refused() {
        for (text, weak) in [("\"abc\"", false), ("W/\"abc\"", true), ("\"\"", false)] {
            let tag = ETag::parse(text.as_bytes()).unwrap();
            assert_eq!((tag.weak, tag.to_string().as_str()), (weak, text));
        }
        for text in [
            "abc",
            "\"abc",
            "abc\"",
            "w/\"abc\"",
            "W/abc",
            "\"a b\"",
            "\"a\"b\"",
            "\"a\" x",
            "",
            "*",
            "\"a\u{7f}\"",
            "\"a\\\"b\"",
        ] {
            assert_eq!(ETag::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn tags_are_compared_as_the_table_of_the_rfc_says() {
        for (one, other, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            let (one, other) = (
                ETag::parse(one.as_bytes()).unwrap(),
                ETag::parse(other.as_bytes()).unwrap(),
            );
            assert_eq!(
                (one.is_strongly(&other), one.is_weakly(&other)),
                (strong, weak)
            );
        }
    }

    #[test]
    fn lists_may_be_split_over_lines_and_hold_empty_elements_but_nothing_else() {
        let parse = |lines: &[&str]| ETags::parse(lines.iter().map(|line| line.as_bytes()));
        let tags = |list: Option<ETags>| match list {
            Some(ETags::List(tags)) => tags.len(),
            Some(ETags::Any) => usize::MAX,
            None => 0,
        };
        for (lines, count) in [
            (&["\"a\""][..], 1),
            (&["\"a\", W/\"b\",\"c\""], 3),
            (&["\"a\"", "\"b\""], 2),
            (&[", ,\"a\",, \"b\","], 2),
            (&["*"], usize::MAX),
            (&[" * "], usize::MAX),
            (&["\"a,b\""], 1),
            (&["*", "\"a\""], 0),
            (&["*, \"a\""], 0),
            (&["\"a\" \"b\""], 0),
            (&["\"a\";x"], 0),
            (&["a, b"], 0),
            (&[""], 0),
            (&[], 0),
        ] {
            assert_eq!(tags(parse(lines)), count, "{lines:?}");
        }
        let many = vec!["\"a\""; MAX_TAGS].join(",");
        assert_eq!(tags(parse(&[&many])), MAX_TAGS);
        assert_eq!(tags(parse(&[&many, "\"b\""])), 0, "one more than allowed");
    }
}
