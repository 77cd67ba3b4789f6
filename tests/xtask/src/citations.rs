//! Where the code says which rule it proves, and whether it says so beside something that can fail.
//!
//! A citation is `proves: ID, ID` in a comment, or the `proves` list of a scenario. In Rust it must stand
//! on a test, a row of a test's table, an assertion, a `compile_fail` example or a lint: anything else
//! would go on claiming a proof after the proof is gone.

use crate::{
    rust_text::{Class, view},
    tree::Tree,
};

const MARK: &str = "proves:";
const SOURCES: [&str; 6] = ["core/", "io/", "sim/", "services/", "tests/", ".github/"];
const ROOT_FILES: [&str; 2] = ["clippy.toml", "Cargo.toml"];
const SCENARIOS: &str = "scenarios/";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Citation {
    pub id: String,
    pub path: String,
    pub line: usize,
}

/// All citations of the tree, and what is wrong with the others as `path:line: what`.
pub fn collect(tree: &Tree) -> (Vec<Citation>, Vec<String>) {
    let (mut citations, mut errors) = (Vec::new(), Vec::new());
    for (path, text) in tree.iter() {
        let found = if path.starts_with(SCENARIOS) {
            in_scenario(path, text)
        } else if SOURCES.iter().any(|dir| path.starts_with(dir)) || ROOT_FILES.contains(&path) {
            in_source(path, text)
        } else {
            continue;
        };
        for claim in found {
            match claim {
                Ok(citation) => citations.push(citation),
                Err(error) => errors.push(error),
            }
        }
    }
    (citations, errors)
}

type Claim = Result<Citation, String>;

fn in_scenario(path: &str, text: &str) -> Vec<Claim> {
    if !path.ends_with(".toml") {
        return Vec::new();
    }
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return vec![Err(format!("{path}:1: not TOML: {}", error.message()))],
    };
    let line = text
        .lines()
        .position(|line| line.trim_start().starts_with("proves"))
        .map_or(1, |n| n + 1);
    match table.get("proves") {
        None => Vec::new(),
        Some(toml::Value::Array(ids)) => ids
            .iter()
            .map(|id| match id.as_str() {
                Some(id) => Ok(citation(id, path, line)),
                None => Err(format!("{path}:{line}: `proves` is a list of rule ids")),
            })
            .collect(),
        Some(_) => vec![Err(format!(
            "{path}:{line}: `proves` is a list of rule ids"
        ))],
    }
}

fn in_source(path: &str, text: &str) -> Vec<Claim> {
    let rust = path.ends_with(".rs");
    let comments = match comment_marker(path) {
        Some("//") if rust => view(text, Class::Comment),
        Some(_) => text.to_string(),
        None => return Vec::new(),
    };
    let marker = comment_marker(path).unwrap_or("//");
    let notes: Vec<Option<&str>> = comments
        .lines()
        .map(|line| note(line, marker, rust))
        .collect();
    let mut claims = Vec::new();
    for (at, text_of_note) in notes.iter().enumerate() {
        let Some(list) = text_of_note.and_then(cited) else {
            continue;
        };
        let last = last_line_of_list(&notes, at, list);
        let wrapped = notes[at + 1..=last].iter().flatten().copied();
        let ids: Vec<&str> = std::iter::once(list).chain(wrapped).collect();
        let beside = if rust {
            stands_in_rust(path, text, at, last)
        } else {
            stands_before_a_line(text, last)
        };
        match beside {
            Ok(()) => claims.extend(split_ids(&ids.join(" ")).map(|id| match is_id(id) {
                true => Ok(citation(id, path, at + 1)),
                false => Err(format!(
                    "{path}:{}: `{id}` is no rule id; after `{MARK}` come ids with commas between",
                    at + 1
                )),
            })),
            Err(why) => claims.push(Err(format!("{path}:{}: {why}", at + 1))),
        }
    }
    claims
}

fn citation(id: &str, path: &str, line: usize) -> Citation {
    Citation {
        id: id.to_string(),
        path: path.to_string(),
        line,
    }
}

fn comment_marker(path: &str) -> Option<&'static str> {
    match path.rsplit_once('.').map(|(_, ext)| ext)? {
        "rs" | "ts" | "tsx" | "js" | "mjs" => Some("//"),
        "toml" | "yml" | "yaml" | "py" | "sh" => Some("#"),
        _ => None,
    }
}

/// What a line's comment says, without its marker. Outside Rust only a comment that fills its line counts.
fn note<'a>(line: &'a str, marker: &str, rust: bool) -> Option<&'a str> {
    let line = line.trim();
    if rust {
        let said = line.trim_start_matches(['/', '!', '*']).trim();
        (!line.is_empty()).then_some(said.trim_end_matches("*/").trim())
    } else {
        Some(line.strip_prefix(marker)?.trim())
    }
}

/// The list after the mark. A sentence may stand before it, but then an id must follow.
fn cited(note: &str) -> Option<&str> {
    let at = note.find(MARK)?;
    let list = note[at + MARK.len()..].trim();
    (at == 0 || split_ids(list).next().is_some_and(is_id)).then_some(list)
}

/// A list goes on in the next comment line as long as it ends in a comma.
fn last_line_of_list(notes: &[Option<&str>], first: usize, list: &str) -> usize {
    let (mut last, mut said) = (first, list);
    while said.ends_with(',') {
        match notes.get(last + 1).copied().flatten() {
            Some(next) => (last, said) = (last + 1, next),
            None => break,
        }
    }
    last
}

fn split_ids(list: &str) -> impl Iterator<Item = &str> {
    list.trim_end_matches('.')
        .split([',', ' '])
        .map(str::trim)
        .filter(|id| !id.is_empty())
}

/// Three capitals, a dash, section dot number.
fn is_id(id: &str) -> bool {
    let Some((service, rest)) = id.split_once('-') else {
        return false;
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    service.len() == 3
        && service.bytes().all(|b| b.is_ascii_uppercase())
        && rest
            .split_once('.')
            .is_some_and(|(section, item)| number(section) && number(item))
}

fn stands_before_a_line(text: &str, last: usize) -> Result<(), String> {
    let next = text
        .lines()
        .skip(last + 1)
        .find(|line| !line.trim_start().starts_with(['#', '/']));
    match next {
        Some(line) if !line.trim().is_empty() => Ok(()),
        _ => Err("a citation stands right above the setting or test that it speaks of".into()),
    }
}

fn stands_in_rust(path: &str, text: &str, first: usize, last: usize) -> Result<(), String> {
    let code = view(text, Class::Code);
    let code: Vec<&str> = code.lines().collect();
    let lines: Vec<&str> = text.lines().collect();
    if in_compile_fail(&lines, first) {
        return Ok(());
    }
    let own_line = code[first].trim();
    let (item, attributes) = if own_line.is_empty() {
        next_item(&code, &lines, last + 1)
    } else {
        (own_line, String::new())
    };
    let tested = attributes.contains("test") || is_test_code(path, &lines[..first]);
    match judge(item, &attributes) {
        Stands::Always => Ok(()),
        Stands::InTests if tested => Ok(()),
        Stands::InTests => Err(format!(
            "a citation stands on a test; this is no test code: `{item}`"
        )),
        Stands::Never => Err(format!(
            "a citation stands on a test, a row of its table or an assertion, not on `{item}`"
        )),
    }
}

enum Stands {
    Always,
    InTests,
    Never,
}

fn judge(item: &str, attributes: &str) -> Stands {
    let lint = ["#![deny(", "#![forbid("];
    if lint.iter().any(|l| attributes.contains(l)) || item.starts_with("const _:") {
        return Stands::Always;
    }
    let bare = without_qualifiers(item);
    if bare.starts_with("fn ") {
        return Stands::InTests;
    }
    let declares = [
        "struct", "enum", "trait", "impl", "mod", "use", "type", "static", "const",
    ];
    let first = bare
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .next();
    match first {
        Some(word) if declares.contains(&word) => Stands::Never,
        // A line of a test's body, or a row: a tuple, a literal (blanked in this view), a constructor, a macro call.
        _ if !bare.is_empty() && !bare.starts_with(['}', ')', ']']) => Stands::InTests,
        _ => Stands::Never,
    }
}

fn without_qualifiers(item: &str) -> &str {
    let mut rest = item.trim_start();
    loop {
        let before = rest;
        for word in [
            "pub(crate) ",
            "pub(super) ",
            "pub ",
            "async ",
            "const fn",
            "unsafe ",
        ] {
            if let Some(after) = rest.strip_prefix(word) {
                rest = if word == "const fn" {
                    &rest["const ".len()..]
                } else {
                    after.trim_start()
                };
                break;
            }
        }
        if rest == before {
            return rest;
        }
    }
}

/// The first line of code after comments and attributes, and those attributes.
fn next_item<'a>(code: &[&'a str], lines: &[&'a str], from: usize) -> (&'a str, String) {
    let (mut attributes, mut open) = (String::new(), 0i32);
    for (line, raw) in code.iter().zip(lines).skip(from) {
        let trimmed = line.trim();
        if open > 0 || trimmed.starts_with("#[") || trimmed.starts_with("#![") {
            open += balance(trimmed);
            attributes.push_str(trimmed);
        } else if !trimmed.is_empty() {
            return (trimmed, attributes);
        } else if raw.trim_start().starts_with(['"', 'r']) {
            // A row that is nothing but a literal.
            return (raw.trim(), attributes);
        }
    }
    ("", attributes)
}

fn balance(line: &str) -> i32 {
    let count = |c| line.matches(c).count() as i32;
    count('[') - count(']')
}

/// Test code by its place: a directory or file of tests, or below `#[cfg(test)]`.
fn is_test_code(path: &str, before: &[&str]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.starts_with("tests/")
        || path.starts_with("sim/")
        || path.contains("/tests/")
        || ["contract", "loom", "test"]
            .iter()
            .any(|word| name.contains(word))
        || before
            .iter()
            .any(|line| line.trim_start().starts_with("#[cfg(") && line.contains("test"))
}

/// True within a doc comment that holds an example which must not compile.
fn in_compile_fail(lines: &[&str], at: usize) -> bool {
    let is_doc = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("//!")
    };
    let above = lines[..at].iter().rev().take_while(is_doc);
    let below = lines[at..].iter().take_while(is_doc);
    above.chain(below).any(|line| line.contains("compile_fail"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(path: &str, text: &str) -> Result<Vec<String>, Vec<String>> {
        let (citations, errors) = collect(&Tree::of(&[(path, text)]));
        match errors.is_empty() {
            true => Ok(citations.into_iter().map(|c| c.id).collect()),
            false => Err(errors),
        }
    }

    #[test]
    fn a_citation_counts_where_something_can_fail() {
        let cases = [
            ("core/src/q.rs", "// proves: KMS-3.1\n#[test]\nfn a() {}"),
            (
                "core/src/q.rs",
                "// proves: KMS-3.1\n// why so\n\n#[madsim::test]\nasync fn a() {}",
            ),
            (
                "core/src/q.rs",
                "#[cfg(test)]\nmod t {\n// proves: KMS-3.1\n#[case(\n1)]\npub(crate) async fn a() {}",
            ),
            (
                "core/src/q.rs",
                "#[cfg(all(test, loom))]\nmod t {\n// proves: KMS-3.1\nfn a() {}",
            ),
            (
                "core/src/contract.rs",
                "// proves: KMS-3.1\npub const fn a() {}",
            ),
            ("core/tests/loom.rs", "// proves: KMS-3.1\nfn a() {}"),
            (
                "core/tests/x.rs",
                "let t = [\n// proves: KMS-3.1\n(1, 2),\n];",
            ),
            (
                "core/tests/x.rs",
                "let t = [\n(1, 2), // proves: KMS-3.1\n];",
            ),
            (
                "core/tests/x.rs",
                "let t = [\n// proves: KMS-3.1\n\"a\",\n];",
            ),
            ("core/tests/x.rs", "// proves: KMS-3.1\nCase { a: 1 },"),
            ("core/tests/x.rs", "// proves: KMS-3.1\nassert_eq!(1, 1);"),
            (
                "core/tests/x.rs",
                "#[test]\nfn a() {\n// proves: KMS-3.1\nlet a = 1;\n}",
            ),
            (
                "core/src/q.rs",
                "// proves: KMS-3.1\nconst _: () = assert!(1 < 2);",
            ),
            ("core/src/q.rs", "// proves: KMS-3.1\n#![deny(clippy::x)]\n"),
            (
                "core/src/q.rs",
                "/// One writer. proves: KMS-3.1\n/// ```compile_fail\n/// ```\npub struct W;",
            ),
            ("clippy.toml", "a = [\n# proves: KMS-3.1\n1]"),
            ("Cargo.toml", "# proves: KMS-3.1\na = 1"),
            (".github/workflows/ci.yml", "# proves: KMS-3.1\na: 1"),
            ("scenarios/kms/a.toml", "about = ''\nproves = [\"KMS-3.1\"]"),
        ];
        for (path, text) in cases {
            assert_eq!(
                ids(path, text),
                Ok(vec!["KMS-3.1".to_string()]),
                "{path}\n{text}"
            );
        }
    }

    #[test]
    fn a_citation_beside_nothing_that_can_fail_is_an_error() {
        let cases = [
            ("core/src/q.rs", "// proves: KMS-3.1\npub fn push() {}"),
            ("core/src/q.rs", "// proves: KMS-3.1\npub struct Queue;"),
            (
                "core/src/q.rs",
                "pub fn push() {\n// proves: KMS-3.1\nlet a = 1;\n}",
            ),
            ("core/tests/x.rs", "// proves: KMS-3.1\nuse std::io;"),
            ("core/tests/x.rs", "// proves: KMS-3.1\n}\nfn a() {}"),
            ("core/tests/x.rs", "//! proves: KMS-3.1"),
            (
                "core/src/q.rs",
                "// proves: KMS-3.1\n#[derive(Debug)]\nenum E {}",
            ),
            ("clippy.toml", "# proves: KMS-3.1\n\na = 1"),
            ("Cargo.toml", "a = 1\n# proves: KMS-3.1"),
        ];
        for (path, text) in cases {
            let errors = ids(path, text).expect_err(text);
            assert!(
                errors[0].starts_with(&format!("{path}:1: "))
                    || errors[0].starts_with(&format!("{path}:2: ")),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn lists_wrap_and_end_in_a_full_stop() {
        let text = "// proves: KMS-3.1, EDG-3.1,\n// DHT-10.11.\n#[test]\nfn a() {}";
        let found = ids("core/src/q.rs", text);
        assert_eq!(
            found,
            Ok(["KMS-3.1", "EDG-3.1", "DHT-10.11"]
                .map(String::from)
                .to_vec())
        );
    }

    #[test]
    fn what_is_no_id_is_an_error_that_names_its_line() {
        for wrong in [
            "KMS3.1",
            "kms-3.1",
            "KMS-3",
            "KMS-3.1 and",
            "the law",
            "KMS-3.x",
        ] {
            let errors = ids(
                "core/src/q.rs",
                &format!("\n// proves: {wrong}\n#[test]\nfn a() {{}}"),
            );
            assert!(
                errors.expect_err(wrong)[0].starts_with("core/src/q.rs:2: `"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn prose_strings_and_other_places_are_no_citations() {
        let cases = [
            ("core/src/q.rs", "// What this proves: little.\nfn a() {}"),
            ("core/src/q.rs", "let a = \"// proves: KMS-3.1\";"),
            ("docs/x.rs", "// proves: KMS-3.1\nfn a() {}"),
            ("docs/x.toml", "# proves: KMS-3.1"),
            ("scenarios/README.md", "proves = 1"),
        ];
        for (path, text) in cases {
            assert_eq!(ids(path, text), Ok(vec![]), "{path}\n{text}");
        }
    }

    #[test]
    fn a_scenario_that_cannot_be_read_is_an_error() {
        for text in ["proves = \"KMS-3.1\"", "proves = [1]", "proves = ["] {
            assert!(ids("scenarios/a.toml", text).is_err(), "{text}");
        }
    }
}
