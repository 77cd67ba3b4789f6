//! Runs all tests of the workspace, each in a process of its own, and says which were slow.
//!
//! `cargo test` runs one test binary after another, so that one long test leaves the other cores idle, and it does not
//! tell what a test took. Here every core takes the next test of any binary. What is built, and with which features, is
//! cargo's own `test --workspace`.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// A test binary that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    pub name: String,
    pub binary: PathBuf,
    /// Where cargo would run it.
    pub package_dir: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    /// `suite::test`.
    pub name: String,
    pub passed: bool,
    pub took: Duration,
}

/// Builds, then runs every test whose name contains none of `skip`, and the examples in documentation.
pub fn run(root: &Path, skip: &[&str]) -> Result<(), String> {
    let suites = build(root)?;
    let mut queue = VecDeque::new();
    for suite in &suites {
        let tests = list(suite)?;
        let wanted = |test: &String| !skip.iter().any(|part| test.contains(part));
        queue.extend(tests.into_iter().filter(wanted).map(|test| (suite, test)));
    }
    let all = queue.len();
    println!("{all} tests in {} suites", suites.len());
    let started = Instant::now();
    let outcomes = run_all(queue, run_one);
    println!("in {:.1} s; the slowest:", started.elapsed().as_secs_f64());
    print!("{}", slowest(&outcomes, 15));
    let failed: Vec<&str> = names_of_failed(&outcomes);
    println!("{} passed, {} failed", all - failed.len(), failed.len());
    match failed.is_empty() {
        true => examples(root),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

fn run_all<'a>(
    queue: VecDeque<(&'a Suite, String)>,
    run: impl Fn(&'a Suite, &str) -> Outcome + Sync,
) -> Vec<Outcome> {
    let (queue, outcomes) = (Mutex::new(queue), Mutex::new(Vec::new()));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = || queue.lock().expect("no test panics in here").pop_front();
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((suite, test)) = next() {
                    let outcome = run(suite, &test);
                    outcomes.lock().expect("as above").push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("as above")
}

fn run_one(suite: &Suite, test: &str) -> Outcome {
    let started = Instant::now();
    let ran = command(suite).args(["--exact", test]).output();
    let name = format!("{}::{test}", suite.name);
    let took = started.elapsed();
    let (passed, said) = match ran {
        // A name that is not found passes in silence: it must have run.
        Ok(out) => {
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            let passed = out.status.success() && said.contains("test result: ok. 1 passed");
            (passed, said + &String::from_utf8_lossy(&out.stderr))
        }
        Err(error) => (false, error.to_string()),
    };
    let word = if passed { "ok" } else { "FAILED" };
    println!("{word:<6} {:>7.2} s  {name}", took.as_secs_f64());
    if !passed {
        println!("{said}");
    }
    Outcome { name, passed, took }
}

fn build(root: &Path) -> Result<Vec<Suite>, String> {
    let args = ["test", "--workspace", "--no-run", "--message-format=json"];
    let out = cargo()
        .current_dir(root)
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        let rendered = text.lines().filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            message["message"]["rendered"].as_str().map(str::to_owned)
        });
        return Err(rendered.collect());
    }
    let mut suites: Vec<Suite> = text.lines().filter_map(suite_of).collect();
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

/// What a line of cargo's output says was built, if it is a test binary.
fn suite_of(line: &str) -> Option<Suite> {
    let message: Value = serde_json::from_str(line).ok()?;
    let test = message["profile"]["test"].as_bool()?;
    let binary = message["executable"].as_str().filter(|_| test)?;
    let package_dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = package_dir.file_name()?.to_string_lossy();
    let target = message["target"]["name"].as_str()?;
    Some(Suite {
        name: format!("{package}/{target}"),
        binary: binary.into(),
        package_dir: package_dir.to_owned(),
    })
}

fn list(suite: &Suite) -> Result<Vec<String>, String> {
    let out = command(suite)
        .args(["--list", "--format", "terse"])
        .output();
    let out = out.map_err(|error| format!("{}: {error}", suite.binary.display()))?;
    if !out.status.success() {
        return Err(format!("{} cannot list its tests", suite.name));
    }
    Ok(listed(&String::from_utf8_lossy(&out.stdout)))
}

fn listed(text: &str) -> Vec<String> {
    let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
    tests.map(str::to_owned).collect()
}

fn command(suite: &Suite) -> Command {
    let mut command = Command::new(&suite.binary);
    command
        .current_dir(&suite.package_dir)
        .env("CARGO_MANIFEST_DIR", &suite.package_dir)
        .stdin(Stdio::null());
    command
}

fn examples(root: &Path) -> Result<(), String> {
    let args = ["test", "--workspace", "--doc", "--quiet"];
    match cargo().current_dir(root).args(args).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("an example in the documentation fails".to_owned()),
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn slowest(outcomes: &[Outcome], count: usize) -> String {
    let mut sorted: Vec<&Outcome> = outcomes.iter().collect();
    sorted.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    let lines = sorted.into_iter().take(count);
    lines
        .map(|o| format!("{:>9.2} s  {}\n", o.took.as_secs_f64(), o.name))
        .collect()
}

fn names_of_failed(outcomes: &[Outcome]) -> Vec<&str> {
    let failed = outcomes.iter().filter(|outcome| !outcome.passed);
    failed.map(|outcome| outcome.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, passed: bool, millis: u64) -> Outcome {
        Outcome {
            name: name.to_owned(),
            passed,
            took: Duration::from_millis(millis),
        }
    }

    #[test]
    fn a_test_binary_is_known_from_what_cargo_tells() {
        let line = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/services/svc-x/Cargo.toml","target":{{"name":"whole"}},"profile":{{"test":{test}}},"executable":"/r/target/debug/deps/whole-1"}}"#
            )
        };
        let suite = suite_of(&line(true)).unwrap();
        assert_eq!(suite.name, "svc-x/whole");
        assert_eq!(suite.package_dir, Path::new("/r/services/svc-x"));
        for other in [&line(false), r#"{"reason":"build-finished"}"#, "noise", ""] {
            assert_eq!(suite_of(other), None, "{other}");
        }
    }

    #[test]
    fn benchmarks_and_the_closing_line_are_no_tests() {
        let text = "a::b: test\nc: benchmark\nd with spaces: test\n\n3 tests, 1 benchmark\n";
        assert_eq!(listed(text), ["a::b", "d with spaces"]);
    }

    #[test]
    fn every_test_runs_once_and_the_slowest_and_the_failed_are_named() {
        let suite = Suite {
            name: "s".to_owned(),
            binary: PathBuf::new(),
            package_dir: PathBuf::new(),
        };
        let queue = (0..50).map(|n| (&suite, n.to_string())).collect();
        let mut outcomes = run_all(queue, |_, test| {
            let n: u64 = test.parse().unwrap();
            outcome(test, n != 7, n)
        });
        assert_eq!(slowest(&outcomes, 2), "     0.05 s  49\n     0.05 s  48\n");
        assert_eq!(names_of_failed(&outcomes), ["7"]);
        outcomes.sort_by_key(|outcome| outcome.took);
        let ran: Vec<String> = outcomes.into_iter().map(|o| o.name).collect();
        assert_eq!(ran, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}
