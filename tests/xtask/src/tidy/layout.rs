//! Rules for the repository as a whole: what lies at its top, and that it means the same on every machine.

use std::collections::BTreeSet;

use crate::tree::Tree;

const TOP_LEVEL: [&str; 19] = [
    ".cargo",
    ".ci",
    ".github",
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "clippy.toml",
    "core",
    "docs",
    "io",
    "rust-toolchain.toml",
    "scenarios",
    "services",
    "sim",
    "tests",
    // Written by the simulator, never committed; git does not list it, a plain walk might.
    "out",
];

/// Need not be there: they come with the first service and the first scenario.
const OPTIONAL: [&str; 3] = ["out", "scenarios", "services"];

/// Directories that exist on somebody's machine and not on another's.
const MACHINE_ROOTS: [&str; 5] = ["work", "farm", "home", "root", "Users"];

pub fn top_level(tree: &Tree) -> Vec<String> {
    let found: BTreeSet<&str> = tree
        .iter()
        .map(|(path, _)| path.split('/').next().unwrap_or(path))
        .collect();
    let unexpected = found
        .iter()
        .filter(|name| !TOP_LEVEL.contains(name))
        .map(|name| format!("{name}:1: does not belong at the top level"));
    let missing = TOP_LEVEL
        .iter()
        .filter(|name| !found.contains(*name) && !OPTIONAL.contains(name))
        .map(|name| format!("{name}:1: is missing at the top level"));
    unexpected.chain(missing).collect()
}

pub fn machine_paths(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter() {
        for (line, number) in text.lines().zip(1..) {
            for root in MACHINE_ROOTS {
                if stands_alone(line, &format!("/{root}/")) {
                    findings.push(format!("{path}:{number}: a path of one machine, /{root}/"));
                }
            }
            if stands_alone(line, concat!("shared", "/")) {
                findings.push(format!("{path}:{number}: points outside the repository"));
            }
        }
    }
    findings
}

/// True where `pattern` begins a path, not where it continues one.
fn stands_alone(line: &str, pattern: &str) -> bool {
    line.match_indices(pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_./-}*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Vec<(&'static str, &'static str)> {
        TOP_LEVEL
            .iter()
            .filter(|name| !OPTIONAL.contains(name))
            .map(|name| (*name, ""))
            .collect()
    }

    #[test]
    fn the_top_level_holds_neither_more_nor_less() {
        assert_eq!(top_level(&Tree::of(&whole())), [""; 0]);
        let mut more = whole();
        more.extend([
            ("scenarios/a.toml", ""),
            ("notes.md", ""),
            ("src/lib.rs", ""),
        ]);
        assert_eq!(
            top_level(&Tree::of(&more)),
            ["notes.md", "src"].map(|n| format!("{n}:1: does not belong at the top level"))
        );
        for (name, _) in whole() {
            let mut less = whole();
            less.retain(|(n, _)| *n != name);
            assert_eq!(
                top_level(&Tree::of(&less)),
                [format!("{name}:1: is missing at the top level")]
            );
        }
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let slash = "/";
        for (line, expected) in [
            (format!("see {slash}home{slash}me/notes"), 1),
            (format!("\"{slash}work{slash}main\""), 1),
            (format!("cd {slash}Users{slash}me"), 1),
            (format!("({}{slash}x.md)", "shared"), 1),
            ("GET /v1/home/".to_string(), 0),
            ("https://example.org/work/x".to_string(), 0),
            ("homework/ and the shared state".to_string(), 0),
            (format!("./{}{slash}button.ts", "shared"), 0),
        ] {
            let found = machine_paths(&Tree::of(&[("docs/a.md", &line)]));
            assert_eq!(found.len(), expected, "{line}");
        }
    }
}
