//! Rules for `Cargo.toml` files: one set of lints, one table of versions.
//!
//! A package with a workspace of its own (a fuzz crate, which needs other flags) stands outside both.

use toml::{Table, Value};

use crate::{
    rust_text::{Class, line_of, view, words},
    tidy::sources::UNSAFE_FILES,
    tree::Tree,
};

const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

pub fn uninherited_lints(tree: &Tree) -> Vec<String> {
    each_member(tree, |path, manifest| {
        let inherits = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(Value::as_bool);
        match inherits {
            Some(true) => Vec::new(),
            _ => vec![format!("{path}:1: lacks `[lints] workspace = true`")],
        }
    })
}

pub fn stray_versions(tree: &Tree) -> Vec<String> {
    each_member(tree, |path, manifest| {
        let mut findings = pinned(path, manifest);
        for (_, target) in manifest
            .get("target")
            .and_then(Value::as_table)
            .into_iter()
            .flatten()
        {
            findings.extend(
                target
                    .as_table()
                    .map(|t| pinned(path, t))
                    .unwrap_or_default(),
            );
        }
        findings
    })
}

fn pinned(path: &str, table: &Table) -> Vec<String> {
    DEPENDENCY_TABLES
        .iter()
        .filter_map(|name| table.get(*name)?.as_table())
        .flatten()
        .filter(|(_, spec)| spec.get("workspace").and_then(Value::as_bool) != Some(true))
        .map(|(name, _)| {
            format!("{path}:1: {name} must say `workspace = true`; its version belongs to the root")
        })
        .collect()
}

/// Lints that the workspace does not deny, and places that allow one of them again.
pub fn missing_denials(tree: &Tree, group: &str, lint: &str) -> Vec<String> {
    let level = tree
        .text("Cargo.toml")
        .and_then(|text| text.parse::<Table>().ok())
        .and_then(|root| {
            let lint = root.get("workspace")?.get("lints")?.get(group)?.get(lint)?;
            Some(lint.get("level").unwrap_or(lint).as_str()?.to_string())
        });
    let mut findings = Vec::new();
    if level.as_deref() != Some("deny") {
        findings.push(format!("Cargo.toml:1: {group} lint {lint} is not denied"));
    }
    // Who is listed for it may say so.
    let listed =
        |path: &str| lint == "unsafe_code" && UNSAFE_FILES.iter().any(|(file, _)| *file == path);
    for (path, text) in tree.with_extension("rs") {
        if listed(path) {
            continue;
        }
        let code = view(text, Class::Code);
        for at in words(&code, lint) {
            let attribute = code[..at].rfind('#').map_or("", |open| &code[open..at]);
            if ["allow(", "expect(", "warn("]
                .iter()
                .any(|a| attribute.contains(a))
                && !attribute.contains(']')
            {
                let line = line_of(&code, at);
                findings.push(format!("{path}:{line}: {lint} is switched off"));
            }
        }
    }
    findings
}

fn each_member(tree: &Tree, check: impl Fn(&str, &Table) -> Vec<String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
    {
        match text.parse::<Table>() {
            Ok(manifest) if manifest.contains_key("workspace") => {}
            Ok(manifest) => findings.extend(check(path, &manifest)),
            Err(error) => findings.push(format!("{path}:1: not TOML: {}", error.message())),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(check: fn(&Tree) -> Vec<String>, text: &str) -> usize {
        check(&Tree::of(&[("core/Cargo.toml", text)])).len()
    }

    #[test]
    fn a_member_that_does_not_inherit_the_lints_is_found() {
        for (text, expected) in [
            ("[lints]\nworkspace = true", 0),
            ("[lints]\nworkspace = false", 1),
            ("[lints.rust]\nunsafe_code = 'deny'", 1),
            ("[package]\nname = 'a'", 1),
            ("[workspace]\n[package]\nname = 'fuzz'", 0),
            ("[package", 1),
        ] {
            assert_eq!(findings(uninherited_lints, text), expected, "{text}");
        }
        let root = Tree::of(&[("Cargo.toml", "[package]\nname = 'a'")]);
        assert_eq!(uninherited_lints(&root), [""; 0]);
    }

    #[test]
    fn a_version_outside_the_root_is_found() {
        for (text, expected) in [
            (
                "[dependencies]\na.workspace = true\nb = { workspace = true, features = ['x'] }",
                0,
            ),
            ("[dependencies]\na = '1'", 1),
            ("[dev-dependencies]\na = { path = '../a' }", 1),
            (
                "[build-dependencies]\na = { version = '1', features = [] }",
                1,
            ),
            ("[target.'cfg(unix)'.dependencies]\na = '1'", 1),
            ("[workspace]\n[dependencies]\na = '1'", 0),
        ] {
            assert_eq!(findings(stray_versions, text), expected, "{text}");
        }
    }
    #[test]
    fn a_lint_that_is_not_denied_everywhere_is_found() {
        let deny = "[workspace.lints.clippy]\na = 'deny'\nb = { level = 'deny', priority = -1 }\nc = 'warn'";
        for (lint, code, expected) in [
            ("a", "", 0),
            ("b", "", 0),
            ("c", "", 1),
            ("d", "", 1),
            ("a", "#![allow(clippy::a)]", 1),
            ("a", "#[expect(\n    clippy::a,\n)]\nfn x() {}", 1),
            (
                "a",
                "#[allow(clippy::aa)]\nfn a() {}\n// #[allow(clippy::a)]",
                0,
            ),
        ] {
            let tree = Tree::of(&[("Cargo.toml", deny), ("core/src/x.rs", code)]);
            assert_eq!(
                missing_denials(&tree, "clippy", lint).len(),
                expected,
                "{lint} {code}"
            );
        }
        assert_eq!(missing_denials(&Tree::of(&[]), "clippy", "a").len(), 1);
    }
}
