//! Documentation that the code writes: `docs/_generated` is exactly what the generators produce.
//!
//! Each service that is registered in the simulator brings its page; the check fails on a file that is missing, out of date, or that
//! nobody produces.

use std::{collections::BTreeMap, fs, io, path::Path};

use crate::tree::Tree;

pub const DIR: &str = "docs/_generated/";

/// Written by the command that measured them: no generator can say what they hold.
const MEASURED: &[&str] = &["planted-bugs.md", "sweep.md"];

pub type Files = BTreeMap<String, String>;

/// From pages, each by its file's name within [`DIR`].
pub fn produce(pages: impl IntoIterator<Item = (&'static str, String)>) -> Files {
    let named = |(name, text): (&str, String)| (name.to_string(), text);
    pages.into_iter().map(named).collect()
}

pub fn committed(tree: &Tree) -> Files {
    tree.iter()
        .filter_map(|(path, text)| Some((path.strip_prefix(DIR)?, text)))
        .filter(|(name, _)| !MEASURED.contains(name))
        .map(|(name, text)| (name.to_string(), text.to_string()))
        .collect()
}

/// What to mend, one line per file; empty if both sides agree.
pub fn compare(produced: &Files, committed: &Files) -> Vec<String> {
    let stale = produced
        .iter()
        .filter_map(|(name, text)| match committed.get(name) {
            Some(found) if found == text => None,
            Some(_) => Some(format!(
                "{DIR}{name} is out of date: run `cargo xtask docs`"
            )),
            None => Some(format!("{DIR}{name} is missing: run `cargo xtask docs`")),
        });
    let orphans = committed
        .keys()
        .filter(|name| !produced.contains_key(*name))
        .map(|name| format!("{DIR}{name} is produced by no generator: run `cargo xtask docs`"));
    stale.chain(orphans).collect()
}

/// Makes the directory hold what was produced and nothing else; returns what it changed.
pub fn write(root: &Path, produced: &Files, committed: &Files) -> io::Result<Vec<String>> {
    let dir = root.join(DIR);
    let mut changed = Vec::new();
    for (name, text) in produced {
        if committed.get(name) != Some(text) {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&dir))?;
            fs::write(path, text)?;
            changed.push(format!("wrote {DIR}{name}"));
        }
    }
    for name in committed
        .keys()
        .filter(|name| !produced.contains_key(*name))
    {
        fs::remove_file(dir.join(name))?;
        changed.push(format!("removed {DIR}{name}"));
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Paths<'a> = &'a [(&'a str, &'a str)];

    fn queues() -> (&'static str, String) {
        ("queues.md", "work 512\n".into())
    }

    #[test]
    fn the_directory_must_hold_exactly_what_is_produced() {
        let produced = produce([queues()]);
        let cases: [(Paths, &[&str]); 4] = [
            (
                &[
                    ("docs/_generated/queues.md", "work 512\n"),
                    ("docs/a.md", "x"),
                ],
                &[],
            ),
            (
                &[("docs/_generated/queues.md", "work 256\n")],
                &["queues.md is out of date"],
            ),
            (&[], &["queues.md is missing"]),
            (
                &[
                    ("docs/_generated/queues.md", "work 512\n"),
                    ("docs/_generated/old.md", ""),
                ],
                &["old.md is produced by no generator"],
            ),
        ];
        for (files, expected) in cases {
            let found = compare(&produced, &committed(&Tree::of(files)));
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (finding, part) in found.iter().zip(expected) {
                assert!(finding.contains(part), "{finding}");
            }
        }
    }

    #[test]
    fn writing_makes_the_two_sides_agree() {
        let root = std::env::temp_dir().join(format!("xtask-docs-{}", std::process::id()));
        let old = committed(&Tree::of(&[("docs/_generated/old.md", "x")]));
        fs::create_dir_all(root.join(DIR)).unwrap();
        fs::write(root.join(DIR).join("old.md"), "x").unwrap();
        let changed = write(&root, &produce([queues()]), &old).unwrap();
        let after: Vec<_> = fs::read_dir(root.join(DIR))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        let text = fs::read_to_string(root.join(DIR).join("queues.md")).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            changed,
            [
                "wrote docs/_generated/queues.md",
                "removed docs/_generated/old.md"
            ]
        );
        assert_eq!(after, ["queues.md"]);
        assert_eq!(text, queues().1);
    }
}
