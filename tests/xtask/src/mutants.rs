//! Planted bugs as data, and the copy of the tree that has them.
//!
//! `sim/mutants/*.toml` says which text each bug replaces by which; the tree itself has no bug and no switch for one. The
//! gate copies the tree below `target/`, applies every edit there behind a switch that exists only in that copy, builds it
//! once, and lets its simulator turn on one bug per run. Always: the text of an edit is found exactly once, white space
//! aside, and no two edits share a byte, so that their order makes no difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use serde::Deserialize;

use crate::tree::{self, Tree};

/// Where the bugs are told.
const FOLDER: &str = "sim/mutants/";
/// Tests of the simulator that need a planted bug.
const TESTS: &str = "sim/mutants/tests/";
/// Stands in a replacement for "this bug is on".
const SWITCH: &str = "BUG";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// The part it is planted in, a dot, and what it does wrong.
    pub name: String,
    /// The law that should catch it.
    pub law: String,
    /// Laws that it wakes by itself, and the scenario in which a few seeds are enough for that.
    #[serde(default)]
    pub wakes: BTreeMap<String, String>,
    pub edit: Vec<Edit>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    pub file: String,
    pub find: String,
    pub replace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    bug: Vec<Bug>,
}

/// All planted bugs of a checkout, by name.
pub fn read(root: &Path) -> Result<BTreeMap<String, Bug>, String> {
    let tree = Tree::read(root).map_err(|error| format!("{}: {error}", root.display()))?;
    bugs(&tree)
}

/// All planted bugs of a tree, by name.
pub fn bugs(tree: &Tree) -> Result<BTreeMap<String, Bug>, String> {
    let mut all = BTreeMap::new();
    let told = tree.with_extension("toml");
    for (path, text) in told.filter(|(path, _)| path.starts_with(FOLDER)) {
        let file: File = toml::from_str(text)
            .map_err(|error| format!("{path}: {}", error.to_string().replace('\n', " ")))?;
        for bug in file.bug {
            if let Some(twice) = all.insert(bug.name.clone(), bug) {
                return Err(format!("{path}: {} is there twice", twice.name));
            }
        }
    }
    Ok(all)
}

/// The files that the bugs change, as they are with all of them; else what is wrong, a line for each.
pub fn plant(
    tree: &Tree,
    bugs: &BTreeMap<String, Bug>,
) -> Result<BTreeMap<String, String>, Vec<String>> {
    type Spot<'a> = (Range<usize>, &'a str, String);
    let mut wrong = Vec::new();
    let mut spots: BTreeMap<&str, Vec<Spot>> = BTreeMap::new();
    for (name, bug) in bugs {
        let mut asked = 0;
        for edit in &bug.edit {
            let Edit { file, find, .. } = edit;
            let call = match file.starts_with("core/") {
                true => format!("crate::planted::is({name:?})"),
                false => format!("ron_core::planted::is({name:?})"),
            };
            let found = locate(tree.text(file).unwrap_or_default(), find);
            let (text, times) = switched(&edit.replace, &call);
            asked += times;
            match &found[..] {
                [at] => spots
                    .entry(file)
                    .or_default()
                    .push((at.clone(), name, text)),
                found => wrong.push(format!(
                    "{file}: {name}: the text it replaces is there {} times, not once: {}",
                    found.len(),
                    find.trim().lines().next().unwrap_or_default()
                )),
            }
        }
        if asked == 0 {
            wrong.push(format!("{name}: no replacement of it asks for {SWITCH}"));
        }
    }
    let mut planted = BTreeMap::new();
    for (file, mut spots) in spots {
        spots.sort_by_key(|(at, ..)| at.start);
        for pair in spots.windows(2) {
            if pair[0].0.end > pair[1].0.start {
                let (one, other) = (pair[0].1, pair[1].1);
                wrong.push(format!("{file}: {one} and {other} replace the same text"));
            }
        }
        let mut text = tree.text(file).unwrap_or_default().to_owned();
        if wrong.is_empty() {
            for (at, _, new) in spots.into_iter().rev() {
                text.replace_range(at, &new);
            }
            planted.insert(file.to_owned(), text);
        }
    }
    match wrong.is_empty() {
        true => Ok(planted),
        false => Err(wrong),
    }
}

/// Where the text stands, however it is broken into lines.
fn locate(text: &str, find: &str) -> Vec<Range<usize>> {
    let solid = |text: &str| -> Vec<(usize, u8)> {
        let bytes = text.bytes().enumerate();
        bytes.filter(|(_, b)| !b.is_ascii_whitespace()).collect()
    };
    let (text, find) = (solid(text), solid(find));
    if find.is_empty() {
        return Vec::new();
    }
    let same = |at: &&[(usize, u8)]| at.iter().map(|b| b.1).eq(find.iter().map(|b| b.1));
    let found = text.windows(find.len()).filter(same);
    found.map(|at| at[0].0..at[at.len() - 1].0 + 1).collect()
}

/// The replacement with the question in it, and how often it asks.
fn switched(replace: &str, call: &str) -> (String, usize) {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut from, mut times) = (String::new(), 0, 0);
    for (at, _) in replace.match_indices(SWITCH) {
        let end = at + SWITCH.len();
        if !replace[..at].ends_with(in_word) && !replace[end..].starts_with(in_word) {
            out += &replace[from..at];
            out += call;
            (from, times) = (end, times + 1);
        }
    }
    (out + &replace[from..], times)
}

/// What the copy has beside the edits: the switch, the simulator's hand on it, the tests that need a bug, and no word about
/// code that a bug makes superfluous.
fn switch(tree: &Tree, planted: &mut BTreeMap<String, String>) {
    let switch = include_str!("../../../sim/mutants/switch.rs");
    let hand = "pub use ron_core::planted::plant;\npub const COMPILED: bool = true;\n";
    planted.insert("core/src/planted.rs".to_owned(), switch.to_owned());
    planted.insert("sim/src/planted.rs".to_owned(), hand.to_owned());
    for (path, text) in tree.iter() {
        if let Some(test) = path.strip_prefix(TESTS) {
            planted.insert(format!("sim/tests/{test}"), text.to_owned());
        }
    }
    let mut change = |file: &str, with: &dyn Fn(&str) -> String| {
        let text = planted.get(file).map(String::as_str).or(tree.text(file));
        let text = with(text.unwrap_or_default());
        planted.insert(file.to_owned(), text);
    };
    change("core/src/lib.rs", &|text| {
        format!("{text}pub mod planted;\n")
    });
    change("Cargo.toml", &|text| {
        text.replace(
            "warnings = { level = \"deny\"",
            "warnings = { level = \"allow\"",
        )
    });
}

/// `cargo mutants-gate`: builds the copy and hunts in it. Arguments are those of `sim mutants`; `--quick` runs the tests that
/// need a bug and wakes each law once; any other command of the simulator is run as it is, in the copy.
pub fn gate(root: &Path, args: &[&str]) -> ExitCode {
    let copy = match read_and_copy(root) {
        Ok(copy) => copy,
        Err(wrong) => {
            for line in wrong {
                eprintln!("{line}");
            }
            return ExitCode::from(2);
        }
    };
    let out = root.join("target/planted/out");
    let table = root.join("docs/_generated/planted-bugs.md");
    let table = table.display().to_string();
    // What the tests of the whole workspace were built with serves the quick look, too: the same profile and features.
    let quick = [
        "test",
        "--workspace",
        "--test",
        "explain",
        "--test",
        "hangs",
        "--test",
        "shrink",
    ];
    let whole = ["build", "--release", "--package", "sim", "--bin", "sim"];
    let (build, profile, args) = match args {
        ["--quick", bugs @ ..] => (&quick[..], "debug", [&["wake"], bugs].concat()),
        ["run" | "sweep" | "shrink" | "replay" | "explain", ..] => {
            (&whole[..], "release", args.to_vec())
        }
        [] => (&whole[..], "release", vec!["mutants", "--table", &table]),
        _ => (&whole[..], "release", [&["mutants"], args].concat()),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut building = Command::new(cargo);
    // Dependencies are built where all others are; what is built of the copy itself is kept apart.
    building
        .args(build)
        .current_dir(&copy)
        .env("CARGO_BUILD_BUILD_DIR", root.join("target"))
        .env("CARGO_TARGET_DIR", &out);
    let mut hunting = Command::new(out.join(profile).join("sim"));
    hunting.args(args).current_dir(&copy);
    for command in [&mut building, &mut hunting] {
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                let code = status.code().and_then(|code| code.try_into().ok());
                return ExitCode::from(code.unwrap_or(1));
            }
            Err(error) => {
                eprintln!("{command:?}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn read_and_copy(root: &Path) -> Result<PathBuf, Vec<String>> {
    let failed = |error: io::Error| vec![format!("the tree cannot be copied: {error}")];
    let tree = Tree::read(root).map_err(failed)?;
    let mut planted = plant(&tree, &bugs(&tree).map_err(|wrong| vec![wrong])?)?;
    switch(&tree, &mut planted);
    let copy = root.join("target/planted/tree");
    copy_tree(root, &tree, &planted, &copy).map_err(failed)?;
    Ok(copy)
}

/// A file that is already as it shall be is left alone, so that only what has changed is built again.
fn copy_tree(
    root: &Path,
    tree: &Tree,
    planted: &BTreeMap<String, String>,
    copy: &Path,
) -> io::Result<()> {
    // Cargo's settings are found further up; in two places they would be added up.
    let plain = tree.iter().map(|(path, _)| path);
    let plain = plain.filter(|path| !path.starts_with(".cargo/"));
    let wanted: BTreeSet<&str> = plain.chain(planted.keys().map(String::as_str)).collect();
    for path in &wanted {
        let bytes = match planted.get(*path) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(root.join(path))?,
        };
        let to = copy.join(path);
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(to.parent().unwrap_or(copy))?;
            fs::write(to, bytes)?;
        }
    }
    for path in tree::walked(copy)? {
        if !wanted.contains(path.as_str()) {
            fs::remove_file(copy.join(path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: (&str, &str) = (
        "core/src/ring.rs",
        "fn full(&self) -> bool {\n    self.len >= self.cap\n}\n\nfn free(&self) -> bool {\n    self.len < self.cap\n}\n",
    );

    fn planted(told: &str) -> Result<BTreeMap<String, String>, Vec<String>> {
        let tree = Tree::of(&[RING, ("sim/mutants/kernel.toml", told)]);
        plant(&tree, &bugs(&tree).map_err(|wrong| vec![wrong])?)
    }

    fn bug(name: &str, find: &str, replace: &str) -> String {
        format!(
            "[[bug]]\nname = {name:?}\nlaw = \"queue.conserves\"\n[[bug.edit]]\nfile = \"core/src/ring.rs\"\nfind = {find:?}\nreplace = {replace:?}\n"
        )
    }

    #[test]
    fn bugs_in_one_line_compose_whatever_their_order_and_however_the_line_is_broken() {
        let one = bug(
            "ring.one",
            "self.len\n  >= self.cap",
            "self.len >= self.cap + usize::from(BUG)",
        );
        let other = bug(
            "ring.other",
            "fn full(&self) -> bool {",
            "fn full(&self) -> bool { if BUG { return DEBUG; }",
        );
        let expected = "fn full(&self) -> bool { if crate::planted::is(\"ring.other\") { return DEBUG; }\n    self.len >= self.cap + usize::from(crate::planted::is(\"ring.one\"))\n}";
        for told in [format!("{one}{other}"), format!("{other}{one}")] {
            let planted = planted(&told).expect("both apply");
            assert!(planted[RING.0].starts_with(expected), "{planted:?}");
        }
    }

    #[test]
    fn an_edit_that_does_not_apply_is_told_in_one_line_that_names_its_file() {
        let twice = bug("ring.a", "self.len", "BUG");
        for (told, says) in [
            (
                bug("ring.a", "self.size", "BUG"),
                "core/src/ring.rs: ring.a: the text it replaces is there 0 times, not once: self.size",
            ),
            (
                bug("ring.a", "", "BUG"),
                "core/src/ring.rs: ring.a: the text it replaces is there 0 times, not once: ",
            ),
            (
                twice,
                "core/src/ring.rs: ring.a: the text it replaces is there 2 times, not once: self.len",
            ),
            (
                bug("ring.a", ">=", "> DEBUG"),
                "ring.a: no replacement of it asks for BUG",
            ),
            (
                bug("ring.a", ">= self.cap", "BUG") + &bug("ring.b", "self.len >=", "BUG"),
                "core/src/ring.rs: ring.b and ring.a replace the same text",
            ),
            (
                bug("ring.a", ">=", "BUG") + &bug("ring.a", "<", "BUG"),
                "sim/mutants/kernel.toml: ring.a is there twice",
            ),
        ] {
            assert_eq!(planted(&told).expect_err(says), [says]);
        }
        let strange = bug("ring.a", ">=", "BUG").replace("law", "oracle");
        let wrong = planted(&strange).expect_err("an unknown word");
        assert!(
            wrong[0].starts_with("sim/mutants/kernel.toml: "),
            "{wrong:?}"
        );
    }

    #[test]
    fn every_planted_bug_of_this_tree_still_has_its_text() {
        let tree = Tree::read(&tree::root()).expect("the checkout can be read");
        let bugs = bugs(&tree).expect("they can be read");
        assert!(bugs.len() >= 190, "{} planted bugs", bugs.len());
        if let Err(wrong) = plant(&tree, &bugs) {
            panic!("{}", wrong.join("\n"));
        }
    }

    #[test]
    fn the_product_has_no_planted_bug_and_no_switch_for_one() {
        let tree = Tree::read(&tree::root()).expect("the checkout can be read");
        let of_product = |path: &str| {
            let parts = ["core/src/", "io/src/", "services/"];
            parts.iter().any(|part| path.starts_with(part)) && path.contains("/src/")
        };
        for (path, text) in tree.iter().filter(|(path, _)| of_product(path)) {
            for word in ["mutant", "planted"] {
                assert!(!text.contains(word), "{path} says {word}");
            }
        }
    }

    #[test]
    fn the_copy_has_the_switch_and_what_is_gone_from_the_tree_is_gone_from_it() {
        let root = std::env::temp_dir().join(format!("xtask-planted-{}", std::process::id()));
        let copy = root.join("target/planted/tree");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        write(RING.0, RING.1);
        write("core/src/lib.rs", "pub mod ring;\n");
        write(
            "Cargo.toml",
            "warnings = { level = \"deny\", priority = -1 }\n",
        );
        write(".cargo/config.toml", "[build]\n");
        write(".gitignore", "/target\n");
        write("sim/mutants/kernel.toml", &bug("ring.a", ">=", "BUG"));
        write("sim/mutants/tests/hangs.rs", "//! A test.\n");
        write("target/planted/tree/core/src/gone.rs", "");
        assert_eq!(read_and_copy(&root), Ok(copy.clone()));
        let text = |path: &str| fs::read_to_string(copy.join(path)).unwrap_or_default();
        assert!(text(RING.0).contains("self.len crate::planted::is(\"ring.a\") self.cap"));
        assert_eq!(text("core/src/lib.rs"), "pub mod ring;\npub mod planted;\n");
        assert!(text("core/src/planted.rs").contains("pub fn plant"));
        assert!(text("sim/src/planted.rs").contains("COMPILED: bool = true"));
        assert_eq!(text("sim/tests/hangs.rs"), "//! A test.\n");
        assert!(text("Cargo.toml").contains("allow"));
        assert!(!copy.join("core/src/gone.rs").exists() && !copy.join(".cargo").exists());
        fs::remove_dir_all(root).expect("it goes");
    }
}
