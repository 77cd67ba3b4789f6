//! Rust source split into code, comments and literals, so that a check looks only where it means to.
//!
//! A view keeps one class and blanks the rest, byte for byte: lines and columns stay what they were.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Code,
    Comment,
    /// The inside of a string or character literal.
    Literal,
}

/// `text` with everything but `keep` replaced by spaces; line breaks stay.
pub fn view(text: &str, keep: Class) -> String {
    let bytes: Vec<u8> = text
        .bytes()
        .zip(classes(text))
        .map(|(byte, class)| {
            if byte == b'\n' || class == keep {
                byte
            } else {
                b' '
            }
        })
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The line, counted from one, in which a byte offset lies.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Offsets at which `word` stands alone in `code`, not inside a longer name.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = code[..*at].chars().next_back();
            let after = code[at + word.len()..].chars().next();
            !before.is_some_and(is_name) && !after.is_some_and(is_name)
        })
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn classes(text: &str) -> Vec<Class> {
    let bytes = text.as_bytes();
    let mut classes = vec![Class::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (class, end) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => (Class::Comment, line_end(bytes, at)),
            b'/' if bytes[at..].starts_with(b"/*") => (Class::Comment, block_end(bytes, at)),
            b'"' => (Class::Literal, string_end(bytes, at + 1)),
            b'r' if !at.checked_sub(1).is_some_and(|b| name_byte(bytes[b]))
                || ends_in_byte_prefix(bytes, at) =>
            {
                match raw_end(bytes, at) {
                    Some(end) => (Class::Literal, end),
                    None => (Class::Code, at + 1),
                }
            }
            b'\'' => match char_end(bytes, at) {
                Some(end) => (Class::Literal, end),
                None => (Class::Code, at + 1),
            },
            _ => (Class::Code, at + 1),
        };
        let end = end.min(bytes.len());
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

fn name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// `br"…"` and `cr"…"`: the letter before is a prefix, not the end of a name.
fn ends_in_byte_prefix(bytes: &[u8], at: usize) -> bool {
    at > 0 && matches!(bytes[at - 1], b'b' | b'c') && (at == 1 || !name_byte(bytes[at - 2]))
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |n| at + n)
}

fn block_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', hashes));
    let inside = &bytes[open + 1..];
    let found = inside.windows(close.len()).position(|w| w == close);
    Some(found.map_or(bytes.len(), |n| open + 1 + n + close.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes.get(at + 3..)?.iter().position(|b| *b == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let width = match *bytes.get(at + 1)? {
        first if first < 0x80 => 1,
        first if first < 0xe0 => 2,
        first if first < 0xf0 => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + 2 + width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let cases = [
            ("a // b", "a     "),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"a "b // c" d"#, "a          d"),
            (r#"f("x\"y") g"#, "f(      ) g"),
            ("r#\"a\"b\"# c", "          c"),
            ("br\"a\" c", "b     c"),
            ("for x in y", "for x in y"),
            ("'a' 'b", "    'b"),
            (r"'\'' x", "     x"),
            (r"'\u{e9}' x", "         x"),
            ("'é' x", "     x"),
            ("&'a str", "&'a str"),
            ("\"a\nb\" c", "  \n   c"),
        ];
        for (text, code) in cases {
            assert_eq!(view(text, Class::Code).len(), text.len(), "{text}");
            assert_eq!(
                view(text, Class::Code)
                    .split_whitespace()
                    .collect::<Vec<_>>(),
                code.split_whitespace().collect::<Vec<_>>(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_view_of_comments_keeps_lines_and_columns() {
        assert_eq!(
            view("x();\n  // why\ny(\"// no\");", Class::Comment),
            "    \n  // why\n           "
        );
    }

    #[test]
    fn a_word_is_not_found_inside_a_longer_name() {
        let found: Vec<usize> = words("unsafe_code unsafe { } is_unsafe", "unsafe").collect();
        assert_eq!(found, [12]);
    }

    #[test]
    fn unterminated_text_never_panics() {
        let text = "r#\"a\" /* 'x' \"\\\" '\\n' 'é // \n br##\"";
        for (end, _) in text.char_indices() {
            assert_eq!(view(&text[..end], Class::Code).len(), end);
        }
    }
}
