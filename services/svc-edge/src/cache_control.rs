//! `Cache-Control` (RFC 9111, 5.2) and `CDN-Cache-Control` (RFC 9213): what may be stored, and for how long.
//!
//! Always: what cannot be read makes an answer staler, never fresher. A lifetime that is no number counts as 0, and of a
//! directive that is given twice the first counts, as RFC 9111, 4.2.1 says.

/// More seconds than anything is kept; a larger number means this one (RFC 9111, 1.2.2).
pub const MAX_SECONDS: u64 = 1 << 31;

/// The directives that a shared cache acts upon, of a request or of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    pub no_store: bool,
    /// With or without field names: a cache may take the one for the other, and this one does.
    pub no_cache: bool,
    pub private: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub only_if_cached: bool,
    pub max_age: Option<u64>,
    pub s_maxage: Option<u64>,
    pub min_fresh: Option<u64>,
    /// Without a number: however stale.
    pub max_stale: Option<u64>,
    pub stale_while_revalidate: Option<u64>,
    pub stale_if_error: Option<u64>,
}

impl Directives {
    /// The values of all `Cache-Control` lines, in their order.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Directives {
        let mut directives = Directives::default();
        for value in values {
            for (name, argument) in Members(value) {
                directives.take(&name.to_ascii_lowercase(), argument);
            }
        }
        directives
    }

    fn take(&mut self, name: &[u8], argument: Argument<'_>) {
        // What is no number expires at once where it limits reuse, and is not there where it would extend it.
        let limit = || Some(argument.seconds().unwrap_or(0));
        let grace = || argument.seconds();
        match name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age = self.max_age.or_else(limit),
            b"s-maxage" => self.s_maxage = self.s_maxage.or_else(limit),
            b"min-fresh" => self.min_fresh = self.min_fresh.or_else(grace),
            b"max-stale" => {
                let any = || match argument {
                    Argument::None => Some(MAX_SECONDS),
                    _ => grace(),
                };
                self.max_stale = self.max_stale.or_else(any);
            }
            b"stale-while-revalidate" => {
                self.stale_while_revalidate = self.stale_while_revalidate.or_else(grace);
            }
            b"stale-if-error" => self.stale_if_error = self.stale_if_error.or_else(grace),
            _ => {}
        }
    }

    /// The values of all `CDN-Cache-Control` lines. `None` if there is none that can be read: then `Cache-Control` counts.
    pub fn parse_targeted<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Directives> {
        let all: Vec<&[u8]> = values.into_iter().collect();
        let members = dictionary(&all.join(&b", "[..]))?;
        if members.is_empty() {
            return None;
        }
        let mut directives = Directives::default();
        for (name, item) in members {
            match item {
                Item::True => directives.take(&name, Argument::None),
                Item::Integer(seconds) => directives.take(&name, Argument::Number(seconds)),
                Item::False | Item::Other => {}
            }
        }
        Some(directives)
    }
}

#[derive(Clone, Copy)]
enum Argument<'a> {
    None,
    Text(&'a [u8]),
    Number(u64),
}

impl Argument<'_> {
    fn seconds(self) -> Option<u64> {
        match self {
            Argument::None => None,
            Argument::Text(text) => seconds(text),
            Argument::Number(seconds) => Some(seconds.min(MAX_SECONDS)),
        }
    }
}

/// Digits only; more than fit mean the most there is.
pub fn seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(text).ok()?.parse().unwrap_or(u64::MAX);
    Some(number.min(MAX_SECONDS))
}

/// The members of one line: a comma inside quotes parts nothing.
struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], Argument<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = std::mem::take(&mut self.0);
            if line.is_empty() {
                return None;
            }
            let (mut quoted, mut escaped) = (false, false);
            let end = line.iter().position(|byte| {
                let here = (escaped, quoted, *byte);
                escaped = matches!(here, (false, true, b'\\'));
                quoted ^= matches!(here, (false, _, b'"'));
                matches!(here, (_, false, b','))
            });
            let member = match end {
                Some(end) => {
                    self.0 = &line[end + 1..];
                    &line[..end]
                }
                None => line,
            };
            let member = member.trim_ascii();
            if member.is_empty() {
                continue;
            }
            let Some(equals) = member.iter().position(|byte| *byte == b'=') else {
                return Some((member, Argument::None));
            };
            let argument = &member[equals + 1..];
            let inner = argument.strip_prefix(b"\"");
            let inner = inner.and_then(|text| text.strip_suffix(b"\""));
            return Some((&member[..equals], Argument::Text(inner.unwrap_or(argument))));
        }
    }
}

/// What a value of a structured field is here: only truths and whole numbers say anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    True,
    False,
    Integer(u64),
    Other,
}

/// A dictionary of structured fields (RFC 9651, 3.2); `None` if any of it is malformed. A key given twice means the last.
fn dictionary(mut text: &[u8]) -> Option<Vec<(Vec<u8>, Item)>> {
    let mut members: Vec<(Vec<u8>, Item)> = Vec::new();
    text = text.trim_ascii();
    while !text.is_empty() {
        let (name, rest) = key(text)?;
        let (item, rest) = match rest.strip_prefix(b"=") {
            Some(rest) => value(rest)?,
            None => (Item::True, rest),
        };
        let rest = parameters(rest)?.trim_ascii_start();
        members.retain(|(known, _)| known != name);
        members.push((name.to_owned(), item));
        text = match rest.strip_prefix(b",") {
            Some(more) => {
                let more = more.trim_ascii_start();
                // A comma is followed by another member.
                if more.is_empty() {
                    return None;
                }
                more
            }
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(members)
}

fn key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let starts = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
    let goes_on = |byte: &u8| starts(byte) || byte.is_ascii_digit() || b"_-.".contains(byte);
    text.first().filter(|byte| starts(byte))?;
    let end = text.iter().position(|byte| !goes_on(byte));
    Some(text.split_at(end.unwrap_or(text.len())))
}

fn parameters(mut text: &[u8]) -> Option<&[u8]> {
    while let Some(rest) = text.strip_prefix(b";") {
        let (_, rest) = key(rest.trim_ascii_start())?;
        text = match rest.strip_prefix(b"=") {
            Some(rest) => bare(rest)?.1,
            None => rest,
        };
    }
    Some(text)
}

fn value(text: &[u8]) -> Option<(Item, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"(") else {
        return bare(text);
    };
    loop {
        rest = rest.trim_ascii_start();
        if let Some(rest) = rest.strip_prefix(b")") {
            return Some((Item::Other, rest));
        }
        rest = parameters(bare(rest)?.1)?;
        if !rest.starts_with(b" ") && !rest.starts_with(b")") {
            return None;
        }
    }
}

fn bare(text: &[u8]) -> Option<(Item, &[u8])> {
    let split = |from: usize, is: &dyn Fn(&u8) -> bool| {
        let end = text[from..].iter().position(|byte| !is(byte));
        text.split_at(end.map_or(text.len(), |end| end + from))
    };
    match *text.first()? {
        b'?' => match text.get(1)? {
            b'1' => Some((Item::True, &text[2..])),
            b'0' => Some((Item::False, &text[2..])),
            _ => None,
        },
        b'-' | b'0'..=b'9' => {
            let (number, rest) = split(1, &|byte| byte.is_ascii_digit() || *byte == b'.');
            let digits = number.strip_prefix(b"-").unwrap_or(number);
            let whole = digits.iter().all(u8::is_ascii_digit);
            let decimal = digits.split(|byte| *byte == b'.').collect::<Vec<_>>();
            match decimal[..] {
                [whole] if whole.is_empty() || whole.len() > 15 => return None,
                [whole, part]
                    if whole.is_empty() || whole.len() > 12 || !(1..=3).contains(&part.len()) =>
                {
                    return None;
                }
                [_] | [_, _] => {}
                _ => return None,
            }
            // Less than nothing, or not whole: no time that anything is fresh for.
            let item = match whole && number == digits {
                true => Item::Integer(seconds(digits)?),
                false => Item::Integer(0),
            };
            Some((item, rest))
        }
        b'"' => {
            let mut escaped = false;
            let end = text[1..].iter().position(|byte| {
                let closes = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                closes
            })?;
            Some((Item::Other, &text[end + 2..]))
        }
        b':' => {
            let end = text[1..].iter().position(|byte| *byte == b':')?;
            Some((Item::Other, &text[end + 2..]))
        }
        byte if byte.is_ascii_alphabetic() || byte == b'*' => {
            let (_, rest) = split(1, &|byte| {
                byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte)
            });
            Some((Item::Other, rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(lines: &[&str]) -> Directives {
        Directives::parse(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn lifetimes_are_whole_seconds_or_nothing() {
        for (lines, max_age) in [
            (&["max-age=60"][..], Some(60)),
            (&["MAX-AGE=60"], Some(60)),
            (&["max-age=\"60\""], Some(60)),
            (&["max-age=060"], Some(60)),
            (&["max-age=0"], Some(0)),
            (&["public, max-age=60"], Some(60)),
            (&["a=\"b, max-age=7\", max-age=60"], Some(60)),
            (&["a=\"\\\", max-age=7\", max-age=60"], Some(60)),
            (&["max-age=60, max-age=70"], Some(60)),
            (&["max-age=60", "max-age=70"], Some(60)),
            (&["max-age=2147483649"], Some(MAX_SECONDS)),
            (&["max-age=99999999999999999999999"], Some(MAX_SECONDS)),
            // Unreadable is stale at once.
            (&["max-age"], Some(0)),
            (&["max-age="], Some(0)),
            (&["max-age=-60"], Some(0)),
            (&["max-age=60.0"], Some(0)),
            (&["max-age=a"], Some(0)),
            (&["max-age=60a"], Some(0)),
            (&["max-age='60'"], Some(0)),
            (&["max-age= 60"], Some(0)),
            (&["x-max-age=60"], None),
            (&["max-age =60"], None),
            (&["max-age:60"], None),
            (&[""], None),
            (&[",,,"], None),
            (&["\""], None),
        ] {
            assert_eq!(parse(lines).max_age, max_age, "{lines:?}");
        }
    }

    #[test]
    fn what_would_extend_reuse_must_be_readable() {
        for (line, grace) in [
            ("stale-if-error=60", Some(60)),
            ("stale-if-error", None),
            ("stale-if-error=x", None),
            ("stale-if-error=-1", None),
        ] {
            assert_eq!(parse(&[line]).stale_if_error, grace, "{line}");
        }
        assert_eq!(parse(&["max-stale"]).max_stale, Some(MAX_SECONDS));
        assert_eq!(parse(&["max-stale=5"]).max_stale, Some(5));
        assert_eq!(parse(&["max-stale=x"]).max_stale, None);
    }

    #[test]
    fn flags_are_read_whatever_their_case_or_argument() {
        let read = parse(&[
            "No-Store, no-cache=\"set-cookie\", PRIVATE=\"x\", public",
            "must-revalidate,proxy-revalidate , must-understand, only-if-cached, s-maxage=1",
        ]);
        assert!(read.no_store && read.no_cache && read.private && read.public);
        assert!(read.must_revalidate && read.proxy_revalidate && read.must_understand);
        assert!(read.only_if_cached);
        assert_eq!(read.s_maxage, Some(1));
    }

    #[test]
    fn the_targeted_field_is_a_strict_dictionary_or_not_there() {
        let parse = |lines: &[&str]| {
            let parsed = Directives::parse_targeted(lines.iter().map(|line| line.as_bytes()));
            parsed.map(|directives| (directives.max_age, directives.no_store))
        };
        for (lines, read) in [
            (&["max-age=60"][..], Some((Some(60), false))),
            (&["max-age=60", "no-store"], Some((Some(60), true))),
            (&["max-age=60, max-age=70"], Some((Some(70), false))),
            (&["no-store=?0, max-age=60"], Some((Some(60), false))),
            (&["no-store=?1"], Some((None, true))),
            (&["max-age=60;a=1;b;c=\"x\""], Some((Some(60), false))),
            (&["a=(1 \"x\" y;z), max-age=60"], Some((Some(60), false))),
            (&["max-age=60.5"], Some((Some(0), false))),
            (&["max-age=-1"], Some((Some(0), false))),
            (&["a=:AA==:, max-age=60"], Some((Some(60), false))),
            // Of another type: the member says nothing.
            (&["max-age=\"60\""], Some((None, false))),
            (&["max-age"], Some((Some(0), false))),
            (&[""], None),
            (&[], None),
            (&["max-age=60,"], None),
            (&["MAX-AGE=60"], None),
            (&["max-age=60 no-store"], None),
            (&["max-age="], None),
            (&["max-age=1234567890123456"], None),
            (&["a=\"x, max-age=60"], None),
            (&["&"], None),
        ] {
            assert_eq!(parse(lines), read, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Directives::parse([&line[..]]);
            let _ = Directives::parse_targeted([&line[..]]);
        }

        #[test]
        fn likely_bytes_too(line in "[-a-e=\"\\\\,;()? 0-9.:]{0,40}") {
            let _ = Directives::parse([line.as_bytes()]);
            let _ = Directives::parse_targeted([line.as_bytes()]);
        }
    }
}
