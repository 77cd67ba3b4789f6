//! The repository as text: path to contents, with `/` between names and no leading `/`.
//!
//! Checks see only this, so a test can hand them three lines instead of a checkout. A real checkout is
//! what git tracks, or every file that is not ignored where there is no git.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree {
            files: files
                .iter()
                .map(|(path, text)| (path.to_string(), text.to_string()))
                .collect(),
        }
    }

    /// Reads the checkout at `root`; bytes that are not UTF-8 are replaced, never refused.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let paths = match tracked(root) {
            Some(paths) => paths,
            None => walked(root)?,
        };
        let mut files = BTreeMap::new();
        for path in paths {
            let full = root.join(&path);
            // Tracked but removed, or a link to a directory: nothing to read.
            if full.is_file() {
                files.insert(path, String::from_utf8_lossy(&fs::read(full)?).into_owned());
            }
        }
        Ok(Tree { files })
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(p, t)| (p.as_str(), t.as_str()))
    }

    /// Files whose name ends in `.ext`.
    pub fn with_extension(&self, ext: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.iter()
            .filter(move |(path, _)| path.rsplit_once('.').is_some_and(|(_, e)| e == ext))
    }

    /// True for a file, and for a directory that holds one.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(inside.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&inside))
    }
}

/// The root of the checkout this tool was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the package lies two directories below the root")
        .to_path_buf()
}

/// What git tracks; `None` without git, or where `root` is not a checkout of this project.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let out = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z"])
        .output()
        .ok()?;
    let paths: Vec<String> = String::from_utf8(out.stdout)
        .ok()?
        .split_terminator('\0')
        .map(str::to_string)
        .collect();
    (out.status.success() && paths.iter().any(|p| p == "Cargo.toml")).then_some(paths)
}

pub fn walked(root: &Path) -> io::Result<Vec<String>> {
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let mut paths = Vec::new();
    let mut pending = vec![String::new()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if dir.is_empty() {
                name
            } else {
                format!("{dir}/{name}")
            };
            if is_ignored(&ignored, &path) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                pending.push(path);
            } else {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// The part of `.gitignore`'s language that this project uses: `/name` at the root, `name` anywhere.
fn is_ignored(gitignore: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == ".git"
        || gitignore.lines().map(str::trim).any(|line| {
            let line = line.trim_end_matches('/');
            match line.strip_prefix('/') {
                Some(from_root) => from_root == path,
                None => !line.is_empty() && line == name,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_exists_through_its_files_only() {
        let tree = Tree::of(&[("docs/a.md", ""), ("docs-old.md", "")]);
        for (path, exists) in [
            ("docs/a.md", true),
            ("docs", true),
            ("docs/", true),
            ("", true),
            ("doc", false),
            ("docs/b.md", false),
        ] {
            assert_eq!(tree.exists(path), exists, "{path}");
        }
    }

    #[test]
    fn ignored_names_are_matched_at_the_root_or_anywhere() {
        let gitignore = "/target\n/out\nnode_modules/\n\n";
        for (path, ignored) in [
            ("target", true),
            ("core/target", false),
            ("ui/node_modules", true),
            (".git", true),
            ("core", false),
        ] {
            assert_eq!(is_ignored(gitignore, path), ignored, "{path}");
        }
    }

    #[test]
    fn walking_finds_what_git_tracks() {
        let walked = walked(&root()).unwrap();
        for path in ["Cargo.toml", "tests/xtask/src/tree.rs"] {
            assert!(walked.iter().any(|p| p == path), "{path}");
        }
        assert!(!walked.iter().any(|p| p.starts_with("target/")));
    }
}
