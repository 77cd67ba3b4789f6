//! Rules for source files: biased selects, length, module docs, unsafe, nothing left unfinished.
//!
//! They look at code apart from comments and literals, so that a rule can be spoken about.

use crate::{
    rust_text::{Class, line_of, view, words},
    tree::Tree,
};

pub const MAX_LINES: usize = 700;

/// Longer than [`MAX_LINES`], with the reason why it is still one idea.
const LONG_FILES: [(&str, &str); 0] = [];

/// May say `unsafe`, with the reason.
pub const UNSAFE_FILES: [(&str, &str); 1] = [(
    "services/svc-dht/tests/link/heap.rs",
    "an allocator that counts, so that a test can say what a connection holds",
)];

/// A `select!` that polls in random order breaks determinism; only `io` lives outside simulation.
pub fn unbiased_selects(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        if path.starts_with("io/") {
            continue;
        }
        let code = view(text, Class::Code);
        for at in words(&code, "select") {
            let Some(call) = code[at + "select".len()..].strip_prefix('!') else {
                continue;
            };
            let body = call.trim_start().trim_start_matches(['{', '(', '[']);
            if !body.trim_start().starts_with("biased;") {
                let line = line_of(&code, at);
                findings.push(format!(
                    "{path}:{line}: `select!` must begin with `biased;`"
                ));
            }
        }
    }
    findings
}

pub fn long_files(tree: &Tree) -> Vec<String> {
    ["rs", "ts", "tsx"]
        .iter()
        .flat_map(|ext| tree.with_extension(ext))
        .filter(|(path, _)| !LONG_FILES.iter().any(|(listed, _)| listed == path))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| {
            format!("{path}:{lines}: {lines} lines, more than {MAX_LINES}: one file, one idea")
        })
        .collect()
}

/// An empty file has nothing to say yet.
pub fn missing_module_docs(tree: &Tree) -> Vec<String> {
    tree.with_extension("rs")
        .filter(|(_, text)| !text.trim().is_empty() && !text.starts_with("//!"))
        .map(|(path, _)| format!("{path}:1: does not begin with `//!`"))
        .collect()
}

pub fn unlisted_unsafe(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        if UNSAFE_FILES.iter().any(|(listed, _)| *listed == path) {
            continue;
        }
        let code = view(text, Class::Code);
        for at in words(&code, "unsafe") {
            let line = line_of(&code, at);
            findings.push(format!(
                "{path}:{line}: `unsafe` in a file that is not listed for it"
            ));
        }
    }
    findings
}

/// No test is switched off and no code is a stub.
pub fn unfinished(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let code = view(text, Class::Code);
        let mut report = |text: &str, at: usize, what: &str| {
            let line = line_of(text, at);
            findings.push(format!("{path}:{line}: `{what}`"));
        };
        for stub in ["todo", "unimplemented"] {
            for at in words(&code, stub).filter(|at| code[at + stub.len()..].starts_with('!')) {
                report(&code, at, &format!("{stub}!"));
            }
        }
        for at in words(&code, "ignore").filter(|at| in_attribute(&code[..*at])) {
            report(&code, at, "#[ignore]");
        }
        let comments = view(text, Class::Comment);
        for (at, fence) in comments.match_indices("```ignore") {
            report(&comments, at, fence);
        }
    }
    findings
}

/// True if an attribute is open at the end of `before`.
fn in_attribute(before: &str) -> bool {
    before
        .rfind("#[")
        .is_some_and(|open| !before[open..].contains(']'))
}

/// An exception that nothing needs any more would hide the next one.
pub fn stale_lists(tree: &Tree) -> Vec<String> {
    stale(tree, &LONG_FILES, |text| text.lines().count() > MAX_LINES)
        .chain(stale(tree, &UNSAFE_FILES, |text| {
            words(&view(text, Class::Code), "unsafe").next().is_some()
        }))
        .collect()
}

fn stale<'a>(
    tree: &'a Tree,
    list: &'a [(&str, &str)],
    needed: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = String> + 'a {
    list.iter()
        .filter(move |(path, _)| !tree.text(path).is_some_and(&needed))
        .map(|(path, _)| format!("{path}:1: is listed as an exception and is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(check: fn(&Tree) -> Vec<String>, path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn an_unbiased_select_is_found_outside_io() {
        let cases = [
            (
                "core/src/a.rs",
                "tokio::select! {\n  biased;\n  a = b => {}\n}",
                0,
            ),
            ("core/src/a.rs", "tokio::select! { biased; a = b => {} }", 0),
            ("core/src/a.rs", "select! {\n  // why\n  biased;\n}", 0),
            (
                "core/src/a.rs",
                "tokio::select! {\n  a = b => {}\n  biased;\n}",
                1,
            ),
            (
                "core/src/a.rs",
                "select!{ _ = a => {} }\nselect! { _ = b => {} }",
                2,
            ),
            ("sim/src/a.rs", "select! { _ = a => {} }", 1),
            ("io/src/a.rs", "select! { _ = a => {} }", 0),
            (
                "core/src/a.rs",
                "// select! { a }\nlet a = \"select! {}\";",
                0,
            ),
            ("core/src/a.rs", "my_select! { a }; self.select(a)", 0),
        ];
        for (path, text, expected) in cases {
            assert_eq!(
                findings(unbiased_selects, path, text),
                expected,
                "{path}\n{text}"
            );
        }
    }

    #[test]
    fn a_finding_names_the_line() {
        let tree = Tree::of(&[("core/src/a.rs", "\n\nselect! { a }")]);
        assert_eq!(
            unbiased_selects(&tree),
            ["core/src/a.rs:3: `select!` must begin with `biased;`"]
        );
    }

    #[test]
    fn a_file_may_have_700_lines_and_no_more() {
        let exact = "a\n".repeat(MAX_LINES);
        let more = "a\n".repeat(MAX_LINES + 1);
        assert_eq!(findings(long_files, "core/src/a.rs", &exact), 0);
        assert_eq!(findings(long_files, "core/src/a.rs", &more), 1);
        assert_eq!(
            findings(long_files, "services/svc-admin/ui/a.tsx", &more),
            1
        );
        assert_eq!(findings(long_files, "Cargo.lock", &more), 0);
    }

    #[test]
    fn a_file_without_module_docs_is_found() {
        for (text, expected) in [
            ("//! What.\nfn a() {}", 0),
            ("", 0),
            ("\n", 0),
            ("fn a() {}", 1),
            ("// What.\n", 1),
            ("#![allow(x)]\n//! What.\n", 1),
        ] {
            assert_eq!(
                findings(missing_module_docs, "core/src/a.rs", text),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn unsafe_is_found_in_code_only() {
        for (text, expected) in [
            ("unsafe { a() }", 1),
            ("unsafe fn a() {}\nunsafe impl Send for A {}", 2),
            ("#![deny(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";", 0),
        ] {
            assert_eq!(
                findings(unlisted_unsafe, "core/src/a.rs", text),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn stubs_and_tests_switched_off_are_found() {
        for (text, expected) in [
            ("fn a() { todo!() }", 1),
            ("unimplemented!(\"later\")", 1),
            ("#[test]\n#[ignore]\nfn a() {}", 1),
            ("#[ignore = \"slow\"]", 1),
            ("#[cfg_attr(loom, ignore)]", 1),
            ("/// ```ignore\n/// a\n/// ```", 1),
            (
                "// todo!() and #[ignore]\nlet todo = ignore(a);\nlet b = \"#[ignore]\";",
                0,
            ),
            ("#[test]\nfn a() { ignore() }", 0),
        ] {
            assert_eq!(
                findings(unfinished, "core/src/a.rs", text),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn an_exception_that_is_none_is_found() {
        let tree = Tree::of(&[("a.rs", "unsafe {}"), ("b.rs", "")]);
        let list = [("a.rs", "why"), ("b.rs", "why"), ("gone.rs", "why")];
        let stale: Vec<String> = stale(&tree, &list, |text| text.contains("unsafe")).collect();
        assert_eq!(
            stale,
            ["b.rs", "gone.rs"].map(|p| format!("{p}:1: is listed as an exception and is none"))
        );
    }
}
