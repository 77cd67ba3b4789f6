//! Rules for `Cargo.toml` files: one set of lints, one table of versions.
//!
//! A package with a workspace of its own (a fuzz crate, which needs other flags) stands outside both.

use toml::{Table, Value};

use crate::tree::Tree;

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
}
