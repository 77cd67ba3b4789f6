//! What tests take from elsewhere and build on this machine: a Python environment with pinned packages, and a
//! Go program. Both lie below `target/`, are made once, and again when what they are made from changes.
//!
//! Always: one maker at a time, however many tests ask at once; an unfinished one is made anew.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

const REQUIREMENTS: &str = "tests/third_party/python/requirements.txt";
const GO_SOURCE: &str = "tests/third_party/go/main.go";
/// Where Debian keeps the sources of Go packages.
const GOPATH: &str = "/usr/share/gocode";

/// The interpreter of an environment that has the required packages.
pub fn python(root: &Path) -> Result<PathBuf, String> {
    let made = Made::new(root, "python", REQUIREMENTS)?;
    let python = made.dir.join("bin/python");
    made.once(|| {
        let dir = path_text(&made.dir)?;
        start("python3", &["-m", "venv", "--clear", dir], &[])?;
        let requirements = root.join(REQUIREMENTS);
        let install = ["-m", "pip", "install", "--quiet", "--requirement"];
        let args = [&install[..], &[path_text(&requirements)?]].concat();
        start(path_text(&python)?, &args, &[])
    })?;
    Ok(python)
}

/// The checker written in Go, built from Debian's packages alone.
pub fn go_checker(root: &Path) -> Result<PathBuf, String> {
    let made = Made::new(root, "go", GO_SOURCE)?;
    let checker = made.dir.join("check");
    made.once(|| {
        let (cache, source) = (made.dir.join("cache"), root.join(GO_SOURCE));
        let env = [
            ("GO111MODULE", "off"),
            ("GOPATH", GOPATH),
            ("GOFLAGS", ""),
            ("GOCACHE", path_text(&cache)?),
        ];
        let args = ["build", "-o", path_text(&checker)?, path_text(&source)?];
        start("go", &args, &env)
    })?;
    Ok(checker)
}

/// A directory below `target/`, made from one file of the repository.
struct Made {
    dir: PathBuf,
    from: String,
}

impl Made {
    fn new(root: &Path, name: &str, from: &str) -> Result<Made, String> {
        let from = fs::read_to_string(root.join(from));
        Ok(Made {
            dir: root.join("target/third_party").join(name),
            from: from.map_err(|error| format!("cannot read what {name} needs: {error}"))?,
        })
    }

    /// The stamp is the text it was made from, written last.
    fn once(&self, make: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let failed = |error| format!("cannot prepare {}: {error}", self.dir.display());
        let stamp = self.dir.with_extension("stamp");
        fs::create_dir_all(&self.dir).map_err(failed)?;
        let lock = File::create(self.dir.with_extension("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if fs::read_to_string(&stamp).is_ok_and(|text| text == self.from) {
            return Ok(());
        }
        make()?;
        fs::write(&stamp, &self.from).map_err(failed)
    }
}

fn start(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    let out = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .output()
        .map_err(|error| {
            format!("cannot start {program} (cargo xtask deps installs it): {error}")
        })?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&out.stderr);
            let last = said.trim().lines().last().unwrap_or_default().to_owned();
            Err(format!("{program} {}: {last}", args.join(" ")))
        }
    }
}

fn path_text(path: &Path) -> Result<&str, String> {
    let text = path.to_str();
    text.ok_or_else(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_made_once_and_again_when_its_source_changes() {
        let root = std::env::temp_dir().join(format!("xtask-made-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let mut makings = Vec::new();
        for (text, works) in [("1", false), ("1", true), ("1", true), ("2", true)] {
            fs::write(root.join("source"), text).unwrap();
            let made = Made::new(&root, "thing", "source").unwrap();
            let mut called = false;
            let done = made.once(|| {
                called = true;
                works.then_some(()).ok_or("broken".to_owned())
            });
            makings.push((called, done.is_ok()));
        }
        fs::remove_dir_all(&root).unwrap();
        let expected = [(true, false), (true, true), (false, true), (true, true)];
        assert_eq!(makings, expected);
    }

    #[test]
    fn a_program_that_is_not_there_or_fails_is_one_line() {
        for (program, args) in [("no-such-program", &[][..]), ("ls", &["/no/such/file"][..])] {
            let error = start(program, args, &[]).unwrap_err();
            assert!(error.contains(program), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert_eq!(start("ls", &["/"], &[]), Ok(()));
    }
}
