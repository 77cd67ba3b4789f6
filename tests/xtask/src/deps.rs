//! The Debian packages that building and testing need, in one list with the reason for each.
//!
//! As root the missing ones are installed; anybody else is told their names in one line.

use std::{path::Path, process::Command};

use crate::third_party;

const LIST: &str = include_str!("../packages.txt");

#[derive(Debug, PartialEq, Eq)]
pub struct Package<'a> {
    pub name: &'a str,
    pub reason: &'a str,
}

/// What to do about the packages that are not there.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan<'a> {
    Nothing,
    Install(Vec<&'a str>),
    /// Not root: the line to fail with.
    Tell(String),
}

/// The packages, and then what is made with them.
pub fn run(root: &Path) -> Result<(), String> {
    packages()?;
    third_party::python(root)?;
    third_party::go_checker(root).map(drop)
}

fn packages() -> Result<(), String> {
    let packages = parse(LIST)?;
    match plan(&packages, is_installed, is_root()) {
        Plan::Nothing => {
            let names: Vec<&str> = packages.iter().map(|p| p.name).collect();
            println!("deps: all there ({})", names.join(", "));
            Ok(())
        }
        Plan::Tell(line) => Err(line),
        Plan::Install(missing) => {
            apt_get(&["update"])?;
            let mut args = vec!["install", "--yes", "--no-install-recommends"];
            args.extend(missing);
            apt_get(&args)
        }
    }
}

/// `name  reason` a line; `#` begins a comment line.
pub fn parse(list: &str) -> Result<Vec<Package<'_>>, String> {
    list.lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(
            |(line, number)| match line.split_once(char::is_whitespace) {
                Some((name, reason)) if !reason.trim().is_empty() => Ok(Package {
                    name,
                    reason: reason.trim(),
                }),
                _ => Err(format!("packages.txt:{number}: a package needs its reason")),
            },
        )
        .collect()
}

pub fn plan<'a>(
    packages: &[Package<'a>],
    installed: impl Fn(&str) -> bool,
    root: bool,
) -> Plan<'a> {
    let missing: Vec<&str> = packages
        .iter()
        .map(|package| package.name)
        .filter(|name| !installed(name))
        .collect();
    match (missing.is_empty(), root) {
        (true, _) => Plan::Nothing,
        (false, true) => Plan::Install(missing),
        (false, false) => Plan::Tell(format!(
            "missing packages, install them as root: apt-get install {}",
            missing.join(" ")
        )),
    }
}

fn is_installed(name: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", name])
        .output()
        .is_ok_and(|out| out.status.success() && out.stdout == b"installed")
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|out| out.stdout.trim_ascii() == b"0")
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    let status = Command::new("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(args)
        .status()
        .map_err(|error| format!("cannot start apt-get: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("apt-get {} failed ({status})", args.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_list_names_a_reason_for_each_package() {
        assert!(parse(LIST).is_ok_and(|packages| !packages.is_empty()));
    }

    #[test]
    fn a_list_is_names_with_reasons() {
        let packages = parse("# why\n\nsofthsm2  a key store to sign with\n").unwrap();
        assert_eq!(
            packages,
            [Package {
                name: "softhsm2",
                reason: "a key store to sign with"
            }]
        );
        for wrong in ["softhsm2", "softhsm2   "] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_root_installs_and_only_what_is_missing() {
        let packages = parse("a x\nb y\nc z\n").unwrap();
        let only_b = |name: &str| name == "b";
        assert_eq!(plan(&packages, |_| true, false), Plan::Nothing);
        assert_eq!(plan(&packages, only_b, true), Plan::Install(vec!["a", "c"]));
        assert_eq!(
            plan(&packages, only_b, false),
            Plan::Tell("missing packages, install them as root: apt-get install a c".into())
        );
    }
}
