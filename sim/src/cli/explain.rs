//! `sim explain`: why a filed bug, or a seed, fails; in lines, as a page, as a trace for Perfetto.

use std::{path::Path, process::ExitCode};

use super::{Args, Wrong, commit, replay_line, write};
use crate::{
    bug::Bug,
    explain, perfetto,
    plan::Plan,
    run::{self, Watch},
    say,
    scenario::Scenario,
    shrink, timeline,
};

pub(super) fn explain(root: &Path, args: &Args) -> Result<ExitCode, Wrong> {
    let case = find(root, args)?;
    let Case {
        scenario,
        seed,
        plan,
        replay,
    } = &case;
    say!("replay  {replay}      (commit {})", commit());
    let explanation = explain::explain(scenario, *seed, plan, args.value("--bug"));
    let failed = match explanation.run.violation() {
        Some(violation) => {
            say!("FAILED  {} seed {seed}: {violation}", scenario.name);
            print!("{}", explanation.text());
            true
        }
        None => {
            say!(
                "{} seed {seed} passes: there is nothing to explain",
                scenario.name
            );
            false
        }
    };
    if let Some(file) = args.value("--html") {
        write(file, &timeline::html(&explanation, replay))?;
        say!("see     {file} ({} events)", explanation.run.record.events);
    }
    if let Some(file) = args.value("--perfetto") {
        write(file, &perfetto::trace(&explanation.run).to_string())?;
        say!("see     {file} (open it in Perfetto or chrome://tracing)");
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

struct Case {
    scenario: Scenario,
    seed: u64,
    plan: Plan,
    replay: String,
}

/// A bug file as it is; a seed with its plan shrunk first.
fn find(root: &Path, args: &Args) -> Result<Case, Wrong> {
    let [name] = &args.names[..] else {
        return Err(Wrong(
            "explain takes one bug file, or one scenario and a seed: sim explain NAME --seed N"
                .to_owned(),
        ));
    };
    let bug = args.value("--bug");
    if let Some(seed) = args.number("--seed")? {
        let scenario = Scenario::load(root, name)?;
        let watch = Watch {
            bug: bug.map(str::to_owned),
            ..Watch::default()
        };
        let run = run::run(&scenario, seed, &watch);
        let plan = match run.violation() {
            Some(v) => shrink::shrink(&scenario, seed, &run.plan, &v.fingerprint(), &watch).plan,
            None => run.plan,
        };
        let replay = replay_line(&scenario, seed);
        return Ok(Case {
            scenario,
            seed,
            plan,
            replay,
        });
    }
    if !name.ends_with(".toml") {
        return Err(Wrong(format!(
            "{name:?} is no bug file (NAME.toml); a scenario needs its seed: sim explain {name} --seed N"
        )));
    }
    let bug = Bug::load(Path::new(name))?;
    let scenario = bug.scenario(root)?;
    Ok(Case {
        plan: bug.full_plan(&scenario),
        scenario,
        seed: bug.seed,
        replay: format!("sim replay {name}"),
    })
}
