//! What CI runs, as one table: locally through `.ci/run`, in the workflows step by step.
//!
//! Steps run in order and stop at the first failure. No step sets `RUSTFLAGS`, and none may find it set:
//! it would replace `--cfg madsim` and the simulation would quietly not be one.

use std::{
    fmt::Write,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

pub struct Step {
    pub name: &'static str,
    /// Arguments of cargo.
    pub cargo: &'static [&'static str],
}

const fn step(name: &'static str, cargo: &'static [&'static str]) -> Step {
    Step { name, cargo }
}

/// Determinism comes before all other tests: without it no seed means anything.
pub const STEPS: [Step; 11] = [
    step("fmt", &["fmt", "--all", "--check"]),
    step("clippy", &["clippy", "--workspace", "--all-targets"]),
    step(
        "determinism",
        &["test", "-p", "sim", "--test", "determinism"],
    ),
    step("test", &["test", "--workspace"]),
    step(
        "loom",
        &[
            "test",
            "-p",
            "ron-core",
            "--features",
            "loom",
            "--release",
            "--test",
            "loom",
        ],
    ),
    step(
        "loom-kms",
        &[
            "test",
            "-p",
            "ron-kms",
            "--features",
            "loom",
            "--release",
            "--test",
            "loom",
        ],
    ),
    step(
        "loom-dht",
        &[
            "test",
            "-p",
            "svc-dht",
            "--features",
            "loom",
            "--release",
            "--test",
            "loom",
        ],
    ),
    step("sim", &["sim", "sweep", "--seeds", "200", "--jobs", "2"]),
    step("fuzz", &["build", "--package", "fuzz", "--bins"]),
    step("spec", &["xtask", "spec"]),
    step("docs", &["xtask", "docs", "--check"]),
];

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
        println!("\n=== {}: cargo {}", step.name, step.cargo.join(" "));
        let started = Instant::now();
        let outcome = cargo(root, step.cargo);
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
        let _ = writeln!(out, "{:<12} cargo {}", step.name, step.cargo.join(" "));
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

fn cargo(root: &Path, args: &[&str]) -> Outcome {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(cargo).current_dir(root).args(args).status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(_) => Outcome::Failed,
        Err(error) => {
            println!("cannot start cargo: {error}");
            Outcome::Failed
        }
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
            assert!(!step.cargo.iter().any(|arg| arg.contains("RUSTFLAGS")
                || *arg == "--all-features"
                || *arg == "--config"));
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
