//! `cargo xtask new-service NAME`: a service that compiles, serves, is documented, simulated and tested, to begin with.
//!
//! The templates are plain text with three words to replace. Besides its own files it touches three that all services
//! share: the workspace's manifest, the simulator's, and the simulator's list.

use std::{collections::BTreeMap, fs, io, path::Path};

use crate::tree::Tree;

/// The first port that no service has.
const FIRST_PORT: u32 = 7500;

/// File of the new service, by its path, and the template.
const TEMPLATES: [(&str, &str); 12] = [
    (
        "services/@NAME@/Cargo.toml",
        include_str!("../templates/Cargo.toml.txt"),
    ),
    (
        "services/@NAME@/src/lib.rs",
        include_str!("../templates/lib.rs.txt"),
    ),
    (
        "services/@NAME@/src/api.rs",
        include_str!("../templates/api.rs.txt"),
    ),
    (
        "services/@NAME@/src/bin/@NAME@.rs",
        include_str!("../templates/main.rs.txt"),
    ),
    (
        "services/@NAME@/src/commands.rs",
        include_str!("../templates/commands.rs.txt"),
    ),
    (
        "services/@NAME@/src/config.rs",
        include_str!("../templates/config.rs.txt"),
    ),
    (
        "services/@NAME@/src/service.rs",
        include_str!("../templates/service.rs.txt"),
    ),
    (
        "services/@NAME@/src/topology.rs",
        include_str!("../templates/topology.rs.txt"),
    ),
    (
        "services/@NAME@/tests/whole.rs",
        include_str!("../templates/test.rs.txt"),
    ),
    (
        "sim/src/services/@CRATE@.rs",
        include_str!("../templates/sim.rs.txt"),
    ),
    (
        "scenarios/@NAME@/restarts.toml",
        include_str!("../templates/scenario.toml.txt"),
    ),
    ("docs/@NAME@.md", include_str!("../templates/docs.md.txt")),
];

/// Where a line goes: the file, the line before which it stands, and the line itself.
const EDITS: [(&str, &str, &str); 5] = [
    (
        "Cargo.toml",
        "\"tests\", \"tests/contract\"",
        "\"services/@NAME@\", ",
    ),
    (
        "Cargo.toml",
        "sim = { path",
        "@NAME@ = { path = \"services/@NAME@\", default-features = false }\n",
    ),
    (
        "sim/Cargo.toml",
        "\n[dev-dependencies]",
        "@NAME@.workspace = true\n",
    ),
    ("sim/src/services.rs", "use std::sync", "mod @CRATE@;\n\n"),
    (
        "sim/src/services.rs",
        "Arc::new(crate::dht::DhtService),",
        "Arc::new(@CRATE@::Node),\n            ",
    ),
];

/// Every file that is new or changes, with its whole text.
pub fn files(tree: &Tree, name: &str) -> Result<BTreeMap<String, String>, String> {
    check(tree, name)?;
    let port = (FIRST_PORT..).find(|port| {
        let port = port.to_string();
        tree.with_extension("rs")
            .all(|(_, text)| !text.contains(&port))
    });
    let port = port.unwrap_or(FIRST_PORT).to_string();
    let fill = |text: &str| {
        text.replace("@CRATE@", &name.replace('-', "_"))
            .replace("@PORT@", &port)
            .replace("@NAME@", name)
    };
    let mut files: BTreeMap<String, String> = TEMPLATES
        .iter()
        .map(|(path, text)| (fill(path), fill(text)))
        .collect();
    for (path, before, line) in EDITS {
        let text = files
            .get(path)
            .map(String::as_str)
            .or_else(|| tree.text(path));
        let text = text.ok_or_else(|| format!("{path} is missing"))?;
        let Some(at) = text.find(before) else {
            return Err(format!(
                "{path}: the place before `{}` is gone",
                before.trim()
            ));
        };
        let changed = format!("{}{}{}", &text[..at], fill(line), &text[at..]);
        files.insert(path.to_owned(), changed);
    }
    Ok(files)
}

fn check(tree: &Tree, name: &str) -> Result<(), String> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let sound = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !sound || !name.chars().all(letter) || name.ends_with('-') || name.len() > 32 {
        return Err(format!(
            "`{name}`: lower-case letters, digits and dashes, 32 at most"
        ));
    }
    match tree.exists(&format!("services/{name}")) {
        true => Err(format!("services/{name} is there already")),
        false => Ok(()),
    }
}

pub fn write(root: &Path, files: &BTreeMap<String, String>) -> io::Result<()> {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tidy, tree};

    #[test]
    fn a_new_service_is_small_tidy_and_touches_three_files_of_others() {
        let root = tree::root();
        let before = Tree::read(&root).unwrap();
        let files = files(&before, "svc-hello").unwrap();
        let own = |path: &&String| !before.exists(path.as_str());
        let lines: usize = files
            .iter()
            .filter(|(path, _)| own(path))
            .map(|(_, text)| text.lines().count())
            .sum();
        assert!(lines <= 350, "{lines} lines");
        let touched: Vec<&String> = files.keys().filter(|path| !own(path)).collect();
        assert_eq!(
            touched,
            ["Cargo.toml", "sim/Cargo.toml", "sim/src/services.rs"]
        );
        let mut after: BTreeMap<&str, &str> = before.iter().collect();
        after.extend(
            files
                .iter()
                .map(|(path, text)| (path.as_str(), text.as_str())),
        );
        // Written by `cargo xtask docs`.
        after.insert("docs/_generated/svc-hello.md", "");
        let after: Vec<(&str, &str)> = after.into_iter().collect();
        let known = tidy::check(&before);
        let found = tidy::check(&Tree::of(&after));
        let new: Vec<&String> = found.iter().filter(|line| !known.contains(line)).collect();
        assert!(new.is_empty(), "{new:?}");
    }

    #[test]
    fn a_name_that_is_none_or_taken_is_refused() {
        let tree = Tree::of(&[("services/svc-x/Cargo.toml", "")]);
        for name in [
            "",
            "Svc",
            "svc_x",
            "-x",
            "x-",
            "a b",
            "svc-x",
            &"x".repeat(33),
        ] {
            assert!(files(&tree, name).is_err(), "{name}");
        }
    }
}
