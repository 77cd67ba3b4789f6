//! The path of an asset, in one spelling: what is asked for, what is kept and what is fetched are the same name.
//!
//! Always: a normal path has no empty, `.` or `..` segment, no encoded slash, backslash or control character, and is
//! spelled in one way only. Two spellings of one asset would be two entries of the cache; one spelling for two assets
//! would be a way around the allow-list.

use std::fmt::Write;

/// Longest path that is served, in bytes as it is spelled here.
pub const MAX_BYTES: usize = 1024;

/// Why a path names no asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty")]
    Empty,
    #[error("the path is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the path has an empty segment")]
    EmptySegment,
    #[error("the path has a `.` or `..` segment")]
    DotSegment,
    #[error("the path has a malformed percent-encoding")]
    Percent,
    #[error("the path has an encoded slash, a backslash or a control character")]
    Forbidden,
    #[error("the path is not UTF-8")]
    NotUtf8,
}

/// A path below a route, without its leading slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssetPath(String);

impl AssetPath {
    /// From the raw path of a request, without its leading slash.
    pub fn parse(raw: &str) -> Result<AssetPath, PathError> {
        if raw.is_empty() {
            return Err(PathError::Empty);
        }
        // Each byte is spelled with three at most: longer than that, it is not even looked at.
        if raw.len() > 3 * MAX_BYTES {
            return Err(PathError::TooLong);
        }
        let mut normal = String::with_capacity(raw.len());
        for (at, segment) in raw.split('/').enumerate() {
            let decoded = decode(segment.as_bytes())?;
            let text = std::str::from_utf8(&decoded).map_err(|_| PathError::NotUtf8)?;
            match text {
                "" => return Err(PathError::EmptySegment),
                "." | ".." => return Err(PathError::DotSegment),
                _ => {}
            }
            if text
                .chars()
                .any(|c| c == '/' || c == '\\' || c.is_control())
            {
                return Err(PathError::Forbidden);
            }
            if at > 0 {
                normal.push('/');
            }
            encode(text, &mut normal);
        }
        match normal.len() <= MAX_BYTES {
            true => Ok(AssetPath(normal)),
            false => Err(PathError::TooLong),
        }
    }

    /// As it goes into a key or a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn decode(segment: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut out = Vec::with_capacity(segment.len());
    let mut rest = segment;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or(PathError::Percent)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (Some(high), Some(low)) = (digit(digits[0]), digit(digits[1])) else {
            return Err(PathError::Percent);
        };
        out.push((high * 16 + low) as u8);
        rest = after;
    }
    Ok(out)
}

/// What RFC 3986 calls `pchar` stands for itself, everything else is percent-encoded in capitals.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
        match plain {
            true => out.push(char::from(byte)),
            false => {
                // Writing to a string does not fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_has_one_spelling_or_names_nothing() {
        for (raw, normal) in [
            ("a", Ok("a")),
            ("a/b.txt", Ok("a/b.txt")),
            ("%61/%62", Ok("a/b")),
            ("a%20b", Ok("a%20b")),
            ("a b", Ok("a%20b")),
            ("%c3%a9", Ok("%C3%A9")),
            ("é", Ok("%C3%A9")),
            ("a%25b", Ok("a%25b")),
            ("%2561", Ok("%2561")),
            ("a~b", Ok("a~b")),
            ("%7E", Ok("~")),
            ("...", Ok("...")),
            (".a", Ok(".a")),
            ("", Err(PathError::Empty)),
            ("/a", Err(PathError::EmptySegment)),
            ("a//b", Err(PathError::EmptySegment)),
            ("a/", Err(PathError::EmptySegment)),
            ("../a", Err(PathError::DotSegment)),
            ("a/./b", Err(PathError::DotSegment)),
            ("a/..", Err(PathError::DotSegment)),
            ("%2e%2E/a", Err(PathError::DotSegment)),
            ("a/.%2e/b", Err(PathError::DotSegment)),
            ("a%2fb", Err(PathError::Forbidden)),
            ("a%2Fb", Err(PathError::Forbidden)),
            ("a\\b", Err(PathError::Forbidden)),
            ("a%5cb", Err(PathError::Forbidden)),
            ("a%00", Err(PathError::Forbidden)),
            ("a%0d%0ab", Err(PathError::Forbidden)),
            ("a%7f", Err(PathError::Forbidden)),
            ("%c2%85", Err(PathError::Forbidden)),
            ("a%", Err(PathError::Percent)),
            ("a%2", Err(PathError::Percent)),
            ("a%zz", Err(PathError::Percent)),
            ("a%+1", Err(PathError::Percent)),
            ("%ff", Err(PathError::NotUtf8)),
            ("%c0%ae%c0%ae", Err(PathError::NotUtf8)),
        ] {
            let parsed = AssetPath::parse(raw);
            assert_eq!(
                parsed.as_ref().map(AssetPath::as_str),
                normal.as_ref().copied(),
                "{raw}"
            );
        }
    }

    #[test]
    fn a_path_may_be_as_long_as_the_limit_and_not_longer() {
        for (len, ok) in [
            (MAX_BYTES - 1, true),
            (MAX_BYTES, true),
            (MAX_BYTES + 1, false),
        ] {
            assert_eq!(AssetPath::parse(&"a".repeat(len)).is_ok(), ok, "{len}");
        }
        assert_eq!(
            AssetPath::parse(&"%61".repeat(MAX_BYTES))
                .unwrap()
                .as_str()
                .len(),
            MAX_BYTES
        );
        assert_eq!(
            AssetPath::parse(&" ".repeat(MAX_BYTES / 3 + 1)),
            Err(PathError::TooLong)
        );
        assert_eq!(
            AssetPath::parse(&"a".repeat(1 << 20)),
            Err(PathError::TooLong)
        );
    }

    proptest! {
        #[test]
        fn a_normal_path_is_its_own_spelling_and_never_leaves_its_root(raw in "[-a-c./%2eEfF5cC0 é\\\\]{0,30}") {
            if let Ok(path) = AssetPath::parse(&raw) {
                prop_assert_eq!(AssetPath::parse(path.as_str()).unwrap(), path.clone());
                prop_assert!(path.as_str().split('/').all(|segment| !["", ".", ".."].contains(&segment)));
            }
        }

        #[test]
        fn any_text_is_a_path_or_an_error(raw in any::<String>()) {
            let _ = AssetPath::parse(&raw);
        }
    }
}
