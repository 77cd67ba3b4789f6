//! Every file under `scenarios/` is a test of the same name, over the seeds it asks for.
//!
//! `SIM_SEED=N cargo test -p sim NAME` replays one seed and tells it as it happens.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use sim::{
    bug::{self, Bug},
    cli,
    run::{self, Watch},
    scenario::{self, Scenario},
};

fn main() -> ExitCode {
    let seed = match std::env::var("SIM_SEED")
        .ok()
        .map(|text| (cli::parse_seed(&text), text))
    {
        None => None,
        Some((Some(seed), _)) => Some(seed),
        Some((None, text)) => {
            eprintln!(
                "sim: SIM_SEED={text:?} is no number; it takes a whole number from 0 to {}",
                u64::MAX
            );
            return ExitCode::from(2);
        }
    };
    let root = scenario::root();
    let names = match scenario::names(&root) {
        Ok(names) => names,
        Err(error) => {
            eprintln!("sim: {error}");
            return ExitCode::from(2);
        }
    };
    let trials = names.into_iter().map(|name| {
        let root = root.clone();
        Trial::test(scenario::test_name(&name), move || {
            let scenario = Scenario::load(&root, &name).map_err(|e| e.to_string())?;
            match seed {
                Some(seed) => replay(&scenario, seed),
                None => all_seeds(&scenario),
            }
        })
    });
    let bugs = bug::files(&scenario::root()).into_iter().map(|path| {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .replace('-', "_");
        Trial::test(format!("bugs::{name}"), move || stays_fixed(&path))
    });
    let trials = trials.chain(bugs);
    let mut args = Arguments::from_args();
    // `kms/disk-full`, as the file is called, means the test `kms::disk_full`.
    args.filter = args.filter.as_deref().map(scenario::test_name);
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// A filed bug does not come back.
fn stays_fixed(path: &Path) -> Result<(), Failed> {
    let bug = Bug::load(path).map_err(|e| e.to_string())?;
    let (scenario, run) = bug
        .replay(&scenario::root(), &Watch::default())
        .map_err(|e| e.to_string())?;
    match run.violation() {
        Some(_) => Err(cli::failure_text(&scenario, &run).into()),
        None => Ok(()),
    }
}

fn replay(scenario: &Scenario, seed: u64) -> Result<(), Failed> {
    println!("replay   {}", cli::replay_line(scenario, seed));
    let run = run::run(
        scenario,
        seed,
        &Watch {
            echo: true,
            ..Watch::default()
        },
    );
    println!("trace {}", run.record.hash);
    match run.violation() {
        Some(_) => Err(cli::failure_text(scenario, &run).into()),
        None => Ok(()),
    }
}

fn all_seeds(scenario: &Scenario) -> Result<(), Failed> {
    println!(
        "replay   {}  (seeds 1 to {})",
        cli::replay_line(scenario, 1),
        scenario.seeds.test
    );
    let mut marks: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 1..=scenario.seeds.test {
        let run = run::run(scenario, seed, &Watch::default());
        if run.violation().is_some() {
            return Err(cli::failure_text(scenario, &run).into());
        }
        for (mark, count) in run.record.marks {
            *marks.entry(mark).or_default() += count;
        }
    }
    let unreached = scenario.unreached(&marks);
    if unreached.is_empty() {
        return Ok(());
    }
    let seen: Vec<_> = marks.keys().collect();
    Err(format!(
        "{}: never reached {unreached:?}; reached {seen:?}",
        scenario.name
    )
    .into())
}
