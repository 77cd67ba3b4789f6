//! The `sim` command: list, run, sweep and what follows from a failure. Wrong words get one line and exit code 2; a violation exits 1.

mod cli_gates;
mod explain;
mod interrupt;
mod models;

use std::{path::Path, process::ExitCode};

use crate::{
    bug::Bug,
    catalogue, conformance,
    run::{self, RunResult, Watch},
    say,
    scenario::{self, Scenario, ScenarioError},
    services, shrink,
    sweep::{self, Sweep},
};

const USAGE: &str = "\
sim: seeded simulations of the RON services

  sim list                                   scenarios, each with what it shows
  sim run NAME [--seed N] [--trace FILE]     one seed, told as it happens
  sim sweep [NAME…] [--seeds N] [--jobs J] [--first N] [--report FILE]
                                             many seeds over the named scenarios (default: all); kernel, kms
                                             or dht stands for all of them; FILE gets a table of what was found
  sim shrink NAME --seed N                   a failing seed down to the faults it needs, saved as a bug file
  sim replay FILE                            a bug file
  sim coverage [NAME…] [--seeds N]           marks by scenario and faults by service; fails on what is not reached
  sim mutants [BUG…] [--runs N] [--hunts N]  plants each bug and hunts it (needs: cargo mutants-gate)
  sim wake [BUG…]                            wakes each law by a planted bug (cargo mutants-gate --quick)
  sim explain FILE | NAME --seed N [--html FILE] [--perfetto FILE]
                                             which faults it needs, where it parts from a run that passes
  sim models [MODEL…]                        checks every state of the models
  sim explore MODEL [--port N]               opens a model in the browser, on this machine only
  sim words                                  every service, workload, fault, oracle and condition

A test replays one seed: SIM_SEED=N cargo test -p sim NAME";

/// Wrong usage: what to print. Its exit code is 2.
struct Wrong(String);

impl From<ScenarioError> for Wrong {
    fn from(error: ScenarioError) -> Self {
        Wrong(error.to_string())
    }
}

pub fn main(args: &[String]) -> ExitCode {
    match dispatch(args) {
        Ok(code) => code,
        Err(Wrong(line)) => {
            eprintln!("sim: {line}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> Result<ExitCode, Wrong> {
    let root = scenario::root();
    let Some((command, rest)) = args.split_first() else {
        say!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    if rest.iter().any(|word| word == "--help" || word == "-h") {
        say!("{}", usage_of(command).unwrap_or(USAGE.to_owned()));
        return Ok(ExitCode::SUCCESS);
    }
    match command.as_str() {
        "list" => list(&root, &Args::parse(rest, &[])?),
        "run" => run_one(&root, &Args::parse(rest, &["--seed", "--trace", "--bug"])?),
        "sweep" => sweep_all(
            &root,
            &Args::parse(rest, &["--seeds", "--jobs", "--first", "--report", "--bug"])?,
        ),
        "shrink" => shrink_one(&root, &Args::parse(rest, &["--seed", "--bug"])?),
        "replay" => replay_bug(&root, &Args::parse(rest, &["--bug"])?),
        "coverage" => cli_gates::coverage(&root, &Args::parse(rest, &["--seeds", "--jobs"])?),
        "mutants" => cli_gates::mutants(
            &root,
            &Args::parse(rest, &["--jobs", "--runs", "--hunts", "--table"])?,
        ),
        "wake" => cli_gates::wake(&Args::parse(rest, &[])?),
        "explain" => explain::explain(
            &root,
            &Args::parse(rest, &["--seed", "--html", "--perfetto", "--bug"])?,
        ),
        "models" => models::check_all(&Args::parse(rest, &[])?),
        "explore" => models::explore(&Args::parse(rest, &["--port"])?),
        "words" => words(&Args::parse(rest, &[])?),
        "help" | "--help" | "-h" => {
            say!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => Err(Wrong(format!(
            "no command {other:?}; there are: list, run, sweep, shrink, replay, explain, coverage, mutants, wake, models, explore, words, help"
        ))),
    }
}

/// The lines about one command.
fn usage_of(command: &str) -> Option<String> {
    let begins = format!("  sim {command}");
    let own = USAGE.lines().skip_while(|line| {
        line.strip_prefix(&begins)
            .is_none_or(|rest| rest.starts_with(char::is_alphanumeric))
    });
    let mut lines: Vec<&str> = own.collect();
    let end = lines
        .iter()
        .skip(1)
        .position(|line| !line.starts_with("     "))?;
    lines.truncate(end + 1);
    Some(lines.join("\n"))
}

fn list(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    args.no_names("list")?;
    for name in scenario::names(root)? {
        let scenario = Scenario::load(root, &name)?;
        say!("{name:<28} {}", scenario.about);
    }
    Ok(ExitCode::SUCCESS)
}

fn words(args: &Args) -> Result<ExitCode, Wrong> {
    args.no_names("words")?;
    for service in services::all() {
        say!("service    {}", service.name());
    }
    for kind in services::workloads() {
        say!("workload   {:<24} {}", kind.name, kind.keys.join(", "));
    }
    for kind in crate::plan::FAULT_KINDS {
        say!(
            "fault      {:<24} on, at_s, times{}{}",
            kind.name,
            if kind.keys.is_empty() { "" } else { ", " },
            kind.keys.join(", ")
        );
    }
    for kind in services::laws() {
        say!("law        {:<28} {}", kind.name, kind.law);
    }
    say!("condition  {}", catalogue::READY);
    for service in services::all() {
        for condition in service.conditions() {
            say!("condition  {:<28} of {}", condition.name, service.name());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_one(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    let [name] = &args.names[..] else {
        return Err(Wrong(
            "run takes the name of one scenario: sim run NAME [--seed N]".to_owned(),
        ));
    };
    let scenario = Scenario::load(root, name)?;
    let seed = args.number("--seed")?.unwrap_or(1);
    say!(
        "replay   {}      (commit {})",
        replay_line(&scenario, seed),
        commit()
    );
    let trace_file = args.value("--trace");
    let watch = Watch {
        echo: true,
        keep_lines: trace_file.is_some(),
        bug: args.value("--bug").map(str::to_owned),
        ..Watch::default()
    };
    let run = run::run(&scenario, seed, &watch);
    if let Some(file) = trace_file {
        write(file, &(run.record.lines.join("\n") + "\n"))?;
    }
    match run.violation() {
        None => {
            let live = run.live_after.unwrap_or_default();
            say!(
                "safety ok ({} laws, {} events) · liveness ok in {:.3} s",
                run.record.oracles,
                run.record.events,
                live.as_secs_f64()
            );
            let laws: Vec<_> = scenario.laws().iter().map(|law| law.name).collect();
            for line in conformance::summary(&laws, &run.record.marks) {
                say!("{line}");
            }
        }
        Some(_) => print_failure(&scenario, &run),
    }
    let (simulated, wall) = (run.record.simulated.as_secs_f64(), run.wall.as_secs_f64());
    say!("trace {}", run.record.hash);
    say!(
        "{simulated:.1} s simulated in {:.1} ms ({:.0}x at {:.1} requests per simulated second)",
        wall * 1000.0,
        simulated / wall.max(1e-9),
        run.record.requests as f64 / simulated.max(1e-9)
    );
    Ok(if run.violation().is_some() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn shrink_one(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    let ([name], Some(seed)) = (&args.names[..], args.number("--seed")?) else {
        return Err(Wrong(
            "shrink takes one scenario and a seed: sim shrink NAME --seed N".to_owned(),
        ));
    };
    let scenario = Scenario::load(root, name)?;
    say!(
        "replay   {}      (commit {})",
        replay_line(&scenario, seed),
        commit()
    );
    let watch = Watch {
        bug: args.value("--bug").map(str::to_owned),
        ..Watch::default()
    };
    let run = run::run(&scenario, seed, &watch);
    let Some(violation) = run.violation() else {
        say!("{name} seed {seed} passes: there is nothing to shrink");
        return Ok(ExitCode::SUCCESS);
    };
    print_failure(&scenario, &run);
    let shrunk = shrink::shrink(&scenario, seed, &run.plan, &violation.fingerprint(), &watch);
    say!(
        "shrunk  {} faults → {}, {} operations → {} in {} runs ({:.1} s{})",
        shrunk.from,
        shrunk.plan.faults.len(),
        shrunk.from_ops,
        shrunk.plan.ops.len(),
        shrunk.runs,
        shrunk.took.as_secs_f64(),
        if shrunk.minimal {
            ""
        } else {
            ", not minimal: time ran out"
        },
    );
    for (planned, needed) in shrunk.plan.faults.iter().zip(&shrunk.needed) {
        let without = if *needed {
            "passes without it"
        } else {
            "fails otherwise without it"
        };
        say!("needed  {planned}   ({without})");
    }
    for bent in &shrunk.plan.buggify {
        say!("needed  {bent}");
    }
    let bug = Bug::new(&shrunk.run, commit()).unwrap_or_else(|| {
        // A run that fails by chance of the machine alone is filed as it was.
        Bug::new(&run, commit()).expect("the run failed")
    });
    let path = root.join("bugs").join(bug.file_name());
    let saved = std::fs::create_dir_all(root.join("bugs"))
        .and_then(|()| std::fs::write(&path, bug.to_text()));
    saved.map_err(|e| Wrong(format!("{}: cannot be written: {e}", path.display())))?;
    say!("saved   {}", path.display());
    Ok(ExitCode::FAILURE)
}

fn replay_bug(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    let [file] = &args.names[..] else {
        return Err(Wrong(
            "replay takes one bug file: sim replay scenarios/bugs/NAME.toml".to_owned(),
        ));
    };
    let bug = Bug::load(Path::new(file))?;
    let watch = Watch {
        echo: true,
        bug: args.value("--bug").map(str::to_owned),
        ..Watch::default()
    };
    let (scenario, run) = bug.replay(root, &watch)?;
    say!("trace {}", run.record.hash);
    match run.violation() {
        Some(violation) => {
            let same = if bug.is_shown_by(violation) {
                "reproduced"
            } else {
                "fails, but otherwise"
            };
            say!("FAILED  {}: {violation}", scenario.name);
            say!(
                "{same}: filed as {} at commit {}",
                bug.fingerprint,
                bug.commit
            );
            Ok(ExitCode::FAILURE)
        }
        None => {
            say!(
                "no longer reproduces: {} was filed at {}",
                bug.fingerprint,
                bug.commit
            );
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn sweep_all(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    let scenarios = load_all(root, &args.names)?;
    let sweep = Sweep {
        seeds: args
            .number("--seeds")?
            .unwrap_or(100 * scenarios.len() as u64),
        first_seed: args.number("--first")?.unwrap_or(1),
        jobs: args.jobs()?,
        progress: true,
        bug: args.value("--bug").map(str::to_owned),
        stop: interrupt::flag(),
    };
    if sweep.seeds == 0 {
        return Err(Wrong(
            "--seeds 0 runs nothing; it takes a number from 1".to_owned(),
        ));
    }
    say!(
        "replay   any seed of this sweep: SIM_SEED=N cargo test -p sim NAME   (or sim run NAME --seed N)"
    );
    let result = sweep::sweep(&scenarios, &sweep, |run| {
        let scenario = scenarios
            .iter()
            .find(|s| s.name == run.scenario)
            .expect("its own scenario");
        print_failure(scenario, run);
    });
    for (name, share) in &result.by_scenario {
        say!(
            "{name:<28} {:>7} seeds {:>4} violations {:>9} requests {:>8.0}x real time on one core {:>7.1} ms a seed",
            share.seeds,
            share.violations,
            share.requests,
            share.simulated.as_secs_f64() / share.wall.as_secs_f64().max(1e-9),
            share.wall.as_secs_f64() * 1e3 / share.seeds.max(1) as f64,
        );
    }
    say!("{}", result.requests_line());
    say!("{}", result.ops_line());
    say!("{}", result.closing_line());
    if let Some(file) = args.value("--report") {
        write(file, &result.report(&commit()))?;
        say!("wrote    {file}");
    }
    if result.seeds < sweep.seeds {
        say!(
            "interrupted after {} of {} seeds",
            result.seeds,
            sweep.seeds
        );
        return Ok(ExitCode::from(interrupt::EXIT));
    }
    Ok(if result.violations > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn write(file: &str, text: &str) -> Result<(), Wrong> {
    std::fs::write(file, text).map_err(|e| Wrong(format!("{file}: cannot be written: {e}")))
}

/// The named scenarios, or all.
fn load_all(root: &Path, names: &[String]) -> Result<Vec<Scenario>, Wrong> {
    let names = match names {
        [] => scenario::names(root)?,
        words => words.iter().try_fold(Vec::new(), |mut all, word| {
            all.extend(scenario::named(root, word)?);
            Ok::<_, Wrong>(all)
        })?,
    };
    let scenarios = names
        .iter()
        .map(|name| Scenario::load(root, name))
        .collect::<Result<Vec<_>, _>>()?;
    if scenarios.is_empty() {
        return Err(Wrong(format!("no scenarios in {}", root.display())));
    }
    Ok(scenarios)
}

/// The commit of the checkout whose scenarios are run: a seed means nothing without it.
fn commit() -> String {
    let git = std::process::Command::new("git")
        .arg("-C")
        .arg(scenario::root())
        .args(["describe", "--always", "--dirty"])
        .output();
    let told = git.ok().filter(|out| out.status.success());
    told.map_or_else(
        || "unknown".to_owned(),
        |out| String::from_utf8_lossy(&out.stdout).trim().to_owned(),
    )
}

/// How to see this very run again.
pub fn replay_line(scenario: &Scenario, seed: u64) -> String {
    format!("SIM_SEED={seed} cargo test -p sim {}", scenario.test_name())
}

/// Says what broke, where, and how to see it again.
pub fn print_failure(scenario: &Scenario, run: &RunResult) {
    say!("{}", failure_text(scenario, run));
}

pub fn failure_text(scenario: &Scenario, run: &RunResult) -> String {
    let what = run
        .violation()
        .map_or_else(|| "nothing".to_owned(), ToString::to_string);
    format!(
        "FAILED  {} seed {}: {what}\noptions {}\nreplay  {}",
        scenario.name,
        run.seed,
        run.options.join("\n        "),
        replay_line(scenario, run.seed)
    )
}

/// Names and `--flag value` pairs; anything else is refused.
struct Args {
    names: Vec<String>,
    values: Vec<(String, String)>,
}

impl Args {
    fn parse(args: &[String], allowed: &[&str]) -> Result<Self, Wrong> {
        let mut parsed = Args {
            names: Vec::new(),
            values: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with('-') {
                parsed.names.push(arg.clone());
                continue;
            }
            let (flag, inline) = match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (arg.as_str(), None),
            };
            if !allowed.contains(&flag) {
                let known: Vec<_> = allowed
                    .iter()
                    .filter(|f| !["--bug"].contains(f))
                    .copied()
                    .collect();
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                return Err(Wrong(format!(
                    "no option {flag:?} here; there are: {known}"
                )));
            }
            let value = inline.or_else(|| args.next().cloned());
            let value = value.ok_or_else(|| Wrong(format!("{flag} needs a value")))?;
            parsed.values.push((flag.to_owned(), value));
        }
        Ok(parsed)
    }

    fn value(&self, flag: &str) -> Option<&str> {
        self.values
            .iter()
            .rev()
            .find(|(f, _)| f == flag)
            .map(|(_, value)| value.as_str())
    }

    fn number(&self, flag: &str) -> Result<Option<u64>, Wrong> {
        let Some(value) = self.value(flag) else {
            return Ok(None);
        };
        let number = parse_seed(value).ok_or_else(|| {
            Wrong(format!(
                "{flag} {value:?} is no number; it takes a whole number from 0 to {}",
                u64::MAX
            ))
        })?;
        Ok(Some(number))
    }

    fn jobs(&self) -> Result<usize, Wrong> {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get() as u64);
        let jobs = self.number("--jobs")?.unwrap_or(cores);
        Ok(jobs.clamp(1, 256) as usize)
    }

    fn no_names(&self, command: &str) -> Result<(), Wrong> {
        match self.names.first() {
            Some(name) => Err(Wrong(format!("{command} takes no name, but got {name:?}"))),
            None => Ok(()),
        }
    }
}

/// A seed as people write it.
pub fn parse_seed(text: &str) -> Option<u64> {
    text.trim().replace('_', "").parse().ok()
}
