//! The two commands that judge the simulation itself: does it reach everything, does it catch planted bugs?

use std::{path::Path, process::ExitCode};

use xtask::mutants::Bug;

use super::{Args, Wrong, commit, load_all, print_failure, write};
use crate::{
    coverage::{self, Exempt},
    mutants::{self, Effort, HUNTS, RUNS},
    planted,
    run::Watch,
    say, scenario,
    sweep::{self, Sweep},
};

/// Seeds of each scenario, unless told otherwise.
const SEEDS_EACH: u64 = 100;

pub fn coverage(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    let scenarios = load_all(root, &args.names)?;
    let exempt = Exempt::load(root)?;
    let each = args.number("--seeds")?.unwrap_or(SEEDS_EACH);
    if each == 0 {
        return Err(Wrong(
            "--seeds 0 runs nothing; it takes a number from 1, for each scenario".to_owned(),
        ));
    }
    let sweep = Sweep {
        seeds: each * scenarios.len() as u64,
        first_seed: 1,
        jobs: args.jobs()?,
        progress: true,
        bug: None,
        stop: super::interrupt::flag(),
    };
    let result = sweep::sweep(&scenarios, &sweep, |run| {
        let its_own = scenarios.iter().find(|s| s.name == run.scenario);
        print_failure(its_own.expect("its own scenario"), run);
    });
    let judged = coverage::judge(&scenarios, &result, &exempt);
    say!("{}", judged.text);
    for line in &judged.stale {
        say!("note     {line}");
    }
    for line in &judged.gaps {
        say!("GAP      {line}");
    }
    say!("{}", result.closing_line());
    say!(
        "{} gaps, {} exempt with a reason",
        judged.gaps.len(),
        exempt.marks.len() + exempt.faults.len()
    );
    let good = judged.gaps.is_empty() && result.violations == 0;
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The planted bugs that the command names, or all.
fn chosen(args: &Args) -> Result<Vec<Bug>, Wrong> {
    if !planted::COMPILED {
        return Err(Wrong(
            "no bugs are planted in this build; run `cargo mutants-gate`".to_owned(),
        ));
    }
    let bugs = xtask::mutants::read(&xtask::tree::root()).map_err(Wrong)?;
    // A word is a bug, or the part of the system before the dot.
    let stands_for = |word: &String, name: &String| {
        name == word || name.split_once('.').is_some_and(|(part, _)| part == word)
    };
    let strange = |word: &&String| !bugs.keys().any(|name| stands_for(word, name));
    if let Some(word) = args.names.iter().find(strange) {
        let known = bugs.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(Wrong(format!(
            "no planted bug {word:?}; there are: {known}"
        )));
    }
    let asked = |name: &String| {
        args.names.is_empty() || args.names.iter().any(|word| stands_for(word, name))
    };
    Ok(bugs
        .values()
        .filter(|bug| asked(&bug.name))
        .cloned()
        .collect())
}

/// Each law that a bug is there to wake speaks up, in the scenario named for it.
pub fn wake(args: &Args) -> Result<ExitCode, Wrong> {
    let (mut woken, mut asleep) = (0, 0);
    for bug in chosen(args)? {
        let watch = Watch {
            bug: Some(bug.name.clone()),
            ..Watch::default()
        };
        for (law, scenario) in &bug.wakes {
            let name = &bug.name;
            match mutants::wakes(law, scenario, &watch) {
                Some(seed) => {
                    woken += 1;
                    say!("{law:<30} woken by {name} in {scenario} seed {seed}");
                }
                None => {
                    asleep += 1;
                    say!("ASLEEP  {law} by {name} in {scenario}");
                }
            }
        }
    }
    say!("{woken} woken, {asleep} asleep");
    Ok(match asleep {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

pub fn mutants(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    let chosen = chosen(args)?;
    let effort = Effort {
        runs: args.number("--runs")?.unwrap_or(RUNS),
        hunts: args.number("--hunts")?.unwrap_or(HUNTS),
        jobs: args.jobs()?,
    };
    if effort.runs * effort.hunts == 0 {
        let allowed = "--runs and --hunts take numbers from 1; 0 hunts nothing";
        return Err(Wrong(allowed.to_owned()));
    }
    let scenarios = load_all(root, &scenario::names(root)?)?;
    say!(
        "{:<34} {:<28} {:<26} median of {} hunts of {} runs at most",
        "planted bug",
        "caught by",
        "in",
        effort.hunts,
        effort.runs
    );
    let (mut caught, mut missed) = (0, 0);
    let (mut alarms, mut rows) = (Vec::new(), String::new());
    for bug in chosen {
        let hunted = mutants::hunt(&scenarios, Some(&bug.name), effort);
        say!("{}", hunted.line());
        rows += &hunted.row();
        alarms.extend(hunted.alarms.iter().cloned());
        if hunted.caught() {
            caught += 1;
        } else {
            missed += 1;
        }
    }
    let clean = mutants::hunt(&scenarios, None, effort);
    alarms.extend(clean.hunts.into_iter().flatten());
    for alarm in &alarms {
        say!(
            "FALSE ALARM  {} in {} seed {}",
            alarm.oracle,
            alarm.scenario,
            alarm.seed
        );
    }
    say!(
        "{} false alarms in {} runs without a bug",
        alarms.len(),
        effort.hunts * effort.runs
    );
    say!("{caught} caught, {missed} missed");
    if let Some(file) = args.value("--table") {
        let (Effort { hunts, runs, .. }, alarms) = (effort, alarms.len());
        let text = format!(
            "# Planted bugs\n\nWritten by `cargo mutants-gate` at {}: {hunts} hunts for each, of {runs} runs at most; a run is one seed\nof one scenario. {caught} caught, {missed} missed, {alarms} false alarms.\n\n| planted bug | caught by | in | median runs | seconds |\n| --- | --- | --- | --- | --- |\n{rows}",
            commit()
        );
        write(file, &text)?;
    }
    Ok(if missed == 0 && alarms.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
