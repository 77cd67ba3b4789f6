//! House rules that no compiler checks. Each is a function over text; each has a test that sees it fail.
//!
//! [`CHECKS`] is the whole list. `tests/tidy.rs` runs every one over the real tree.

use crate::tree::Tree;

pub mod layout;
pub mod links;
pub mod manifests;
pub mod sources;

/// One check: its name, and what it finds as `path:line: what`.
pub type Check = (&'static str, fn(&Tree) -> Vec<String>);

pub const CHECKS: [Check; 11] = [
    ("every select! is biased", sources::unbiased_selects),
    ("files stay short", sources::long_files),
    ("a file says what it is", sources::missing_module_docs),
    ("unsafe only where listed", sources::unlisted_unsafe),
    ("nothing is left unfinished", sources::unfinished),
    ("the top level holds what it should", layout::top_level),
    ("no path of one machine", layout::machine_paths),
    ("lints are inherited", manifests::uninherited_lints),
    ("versions are pinned once", manifests::stray_versions),
    ("links between documents resolve", links::broken),
    ("lists name what exists", sources::stale_lists),
];

/// Runs all checks; empty if the tree is tidy.
pub fn check(tree: &Tree) -> Vec<String> {
    CHECKS
        .iter()
        .flat_map(|(name, check)| {
            check(tree)
                .into_iter()
                .map(move |finding| format!("{finding} ({name})"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_its_check() {
        let tree = Tree::of(&[("core/src/a.rs", "fn main() {}\n")]);
        assert!(check(&tree).contains(
            &"core/src/a.rs:1: does not begin with `//!` (a file says what it is)".into()
        ));
    }
}
