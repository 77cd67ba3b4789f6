//! What CI runs, as one table: locally through `.ci/run`, in the workflows step by step.
//!
//! Steps run in order and stop at the first failure. No step sets `RUSTFLAGS`, and none may find it set:
//! it would replace `--cfg madsim` and the simulation would quietly not be one.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::suites;

pub struct Step {
    pub name: &'static str,
    pub run: Run,
}

/// How a step is run. There is one profile and one set of features, those of the whole workspace: whatever a step needs is
/// built once, by whichever step comes first.
#[derive(Clone, Copy)]
pub enum Run {
    Cargo(&'static [&'static str]),
    /// A binary of the workspace, as the tests' build left it.
    Built(&'static str, &'static [&'static str]),
    /// Every test but those whose name contains this, which a step of its own runs.
    Tests {
        skip: &'static str,
    },
}

use Run::{Built, Cargo, Tests};

/// Part of the name of every test of determinism.
const SAME_TRACE: &str = "gives_the_same_trace";

/// Determinism comes before all other tests: without it no seed means anything.
pub const STEPS: [Step; 9] = [
    step("fmt", Cargo(&["fmt", "--all", "--check"])),
    step("clippy", Cargo(&["clippy", "--workspace", "--all-targets"])),
    step("build", Cargo(&["test", "--workspace", "--no-run"])),
    step(
        "determinism",
        Cargo(&["test", "--workspace", "--test", "determinism", SAME_TRACE]),
    ),
    step("test", Tests { skip: SAME_TRACE }),
    step(
        "loom",
        Cargo(&[
            "test",
            "--workspace",
            "--features",
            "ron-core/loom,ron-kms/loom,svc-dht/loom",
            "--test",
            "loom",
        ]),
    ),
    step(
        "sim",
        Built("sim", &["sweep", "--seeds", "300", "--jobs", "2"]),
    ),
    step("spec", Cargo(&["xtask", "spec"])),
    step("docs", Built("tables", &["--check"])),
];

const fn step(name: &'static str, run: Run) -> Step {
    Step { name, run }
}

impl Run {
    fn line(self) -> String {
        match self {
            Cargo(args) => format!("cargo {}", args.join(" ")),
            Built(name, args) => format!("target/debug/{name} {}", args.join(" ")),
            Tests { skip } => format!("every test of the workspace but `{skip}`, slowest named"),
        }
    }

    fn go(self, root: &Path) -> Outcome {
        let mut command = match self {
            Cargo(args) => {
                let mut cargo = Command::new(cargo());
                cargo.args(args);
                cargo
            }
            Built(name, args) => {
                let mut built = Command::new(debug_dir(root).join(name));
                built.args(args);
                built
            }
            Tests { skip } => {
                return match suites::run(root, &[skip]) {
                    Ok(()) => Outcome::Passed,
                    Err(error) => {
                        println!("{error}");
                        Outcome::Failed
                    }
                };
            }
        };
        match command.current_dir(root).status() {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(_) => Outcome::Failed,
            Err(error) => {
                println!("cannot start {}: {error}", self.line());
                Outcome::Failed
            }
        }
    }
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn debug_dir(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root.join(target.unwrap_or_else(|| "target".into()))
        .join("debug")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
}

/// Runs the named steps, or all, in the order of the table.
pub fn run(root: &Path, names: &[String]) -> Result<(), String> {
    refuse_flags(|name| std::env::var_os(name).is_some())?;
    let chosen = choose(names)?;
    let mut results = Vec::new();
    for step in chosen {
        println!("\n=== {}: {}", step.name, step.run.line());
        let started = Instant::now();
        let outcome = step.run.go(root);
        results.push((step.name, outcome, started.elapsed()));
        if outcome == Outcome::Failed {
            break;
        }
    }
    print!("\n{}", summary(&results));
    match results.last() {
        Some((name, Outcome::Failed, _)) => Err(format!("step {name} failed")),
        _ => Ok(()),
    }
}

/// The table, for `ci --list`.
pub fn list() -> String {
    let mut out = String::new();
    for step in &STEPS {
        let _ = writeln!(out, "{:<12} {}", step.name, step.run.line());
    }
    out
}

fn choose(names: &[String]) -> Result<Vec<&'static Step>, String> {
    if let Some(unknown) = names.iter().find(|n| !STEPS.iter().any(|s| s.name == **n)) {
        let known: Vec<&str> = STEPS.iter().map(|s| s.name).collect();
        return Err(format!("no step {unknown}; there are {}", known.join(", ")));
    }
    let chosen = |step: &&Step| names.is_empty() || names.iter().any(|n| n == step.name);
    Ok(STEPS.iter().filter(chosen).collect())
}

fn refuse_flags(is_set: impl Fn(&str) -> bool) -> Result<(), String> {
    match ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"]
        .into_iter()
        .find(|name| is_set(name))
    {
        None => Ok(()),
        Some(name) => Err(format!(
            "{name} is set: it replaces `--cfg madsim`, so nothing would be simulated; unset it \
             (CARGO_BUILD_RUSTFLAGS adds flags and is fine)"
        )),
    }
}

fn summary(results: &[(&str, Outcome, Duration)]) -> String {
    let mut out = String::new();
    for (name, outcome, took) in results {
        let word = match outcome {
            Outcome::Passed => "ok",
            Outcome::Failed => "FAILED",
        };
        let _ = writeln!(out, "{name:<12} {word:<8} {:>7.1} s", took.as_secs_f64());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn determinism_is_proven_before_other_tests() {
        let at = |name| STEPS.iter().position(|s| s.name == name).unwrap();
        assert!(at("determinism") < at("test"));
        assert!(at("determinism") < at("sim"));
    }

    #[test]
    fn no_step_sets_flags_of_its_own() {
        for step in &STEPS {
            let line = step.run.line();
            for flag in ["RUSTFLAGS", "--all-features", "--config", "--release"] {
                assert!(!line.contains(flag), "{line}");
            }
        }
    }

    #[test]
    fn flags_that_would_switch_simulation_off_are_refused() {
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            let refused = refuse_flags(|set| set == name).unwrap_err();
            assert!(refused.starts_with(&format!("{name} is set")));
        }
        assert_eq!(refuse_flags(|set| set == "CARGO_BUILD_RUSTFLAGS"), Ok(()));
    }

    #[test]
    fn steps_are_chosen_by_name_and_run_in_order() {
        let names = |chosen: Vec<&Step>| chosen.iter().map(|s| s.name).collect::<Vec<_>>();
        let ask = |asked: &[&str]| choose(&asked.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        assert_eq!(names(ask(&["clippy", "fmt"]).unwrap()), ["fmt", "clippy"]);
        assert_eq!(ask(&[]).unwrap().len(), STEPS.len());
        assert!(
            ask(&["nothing"]).is_err_and(|e| e.starts_with("no step nothing; there are fmt, "))
        );
    }

    #[test]
    fn the_summary_names_every_step_with_its_time() {
        let results = [
            ("fmt", Outcome::Passed, Duration::from_millis(1500)),
            ("spec", Outcome::Failed, Duration::from_secs(61)),
        ];
        let lines: Vec<Vec<String>> = summary(&results)
            .lines()
            .map(|l| l.split_whitespace().map(str::to_string).collect())
            .collect();
        assert_eq!(
            lines,
            [["fmt", "ok", "1.5", "s"], ["spec", "FAILED", "61.0", "s"]]
        );
    }
}
