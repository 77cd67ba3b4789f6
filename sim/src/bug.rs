//! A filed bug: scenario, seed and the smallest plan that shows it, as a file that is replayed for ever.
//!
//! The plan is written out, faults and operations, so the file means the same after unrelated code has changed,
//! when the seed alone would draw others. Always: a file of an older format is read as what it meant then, or
//! refused in one line.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    calls,
    oracle::Violation,
    plan::{Plan, Planned},
    run::{self, RunResult, Watch},
    scenario::{Scenario, ScenarioError},
};

/// The version of the format; a newer one is refused. 1 had faults alone: its operations were the seed's.
const FORMAT: u32 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    pub format: u32,
    pub scenario: String,
    pub seed: u64,
    /// The oracle that spoke.
    pub fingerprint: String,
    /// What it said, for whoever reads the file.
    pub said: String,
    /// What failed, whatever its numbers; older files have none.
    #[serde(default)]
    pub failing: String,
    pub commit: String,
    /// The compiler it was seen with.
    #[serde(default)]
    pub toolchain: String,
    /// What the run was told to be, for whoever reads the file.
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(default)]
    pub plan: Plan,
}

/// Format 1: faults only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Older {
    #[serde(rename = "format")]
    _format: u32,
    scenario: String,
    seed: u64,
    fingerprint: String,
    said: String,
    commit: String,
    #[serde(default)]
    plan: Vec<Planned>,
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Bug {
    pub fn new(run: &RunResult, commit: String) -> Option<Bug> {
        let violation = run.violation()?;
        Some(Bug {
            format: FORMAT,
            scenario: run.scenario.clone(),
            seed: run.seed,
            fingerprint: violation.oracle.to_owned(),
            said: violation.why.clone(),
            failing: violation.fingerprint(),
            commit,
            toolchain: toolchain(),
            options: run.options.clone(),
            plan: run.plan.clone(),
        })
    }

    pub fn parse(file: &str, text: &str) -> Result<Bug, ScenarioError> {
        match read::<Version>(file, text)?.format {
            FORMAT => read(file, text),
            1 => Ok(Bug::from_older(read(file, text)?)),
            found => Err(ScenarioError(format!(
                "{file}: format {found} is not known here, only 1 and {FORMAT}: file it again with `sim shrink`"
            ))),
        }
    }

    /// The operations of an older file are drawn when it is replayed.
    fn from_older(older: Older) -> Bug {
        Bug {
            format: 1,
            scenario: older.scenario,
            seed: older.seed,
            fingerprint: older.fingerprint,
            said: older.said,
            failing: String::new(),
            commit: older.commit,
            toolchain: String::new(),
            options: Vec::new(),
            plan: Plan {
                faults: older.plan,
                ..Plan::default()
            },
        }
    }

    pub fn load(path: &Path) -> Result<Bug, ScenarioError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| ScenarioError(format!("{file}: cannot be read: {e}")))?;
        Self::parse(&file, &text)
    }

    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("a bug can be written as TOML")
    }

    /// A name that tells it apart: the scenario, what broke, the seed.
    pub fn file_name(&self) -> String {
        format!("{}-{}-{}.toml", self.scenario, self.fingerprint, self.seed)
            .replace(['/', '.', '_'], "-")
            .replace("-toml", ".toml")
    }

    pub fn replay(
        &self,
        root: &Path,
        watch: &Watch,
    ) -> Result<(Scenario, RunResult), ScenarioError> {
        let scenario = self.scenario(root)?;
        let run = run::run_plan(&scenario, self.seed, watch, self.full_plan(&scenario));
        Ok((scenario, run))
    }

    /// The plan; the first format had no operations, so these are drawn again.
    pub fn full_plan(&self, scenario: &Scenario) -> Plan {
        let mut plan = self.plan.clone();
        if self.format == 1 {
            let drawn = Plan::draw(scenario, self.seed);
            (plan.ops, plan.sizes) = (drawn.ops, drawn.sizes);
        }
        plan
    }

    /// Whether a run fails as this one did.
    pub fn is_shown_by(&self, violation: &Violation) -> bool {
        let same = self.failing.is_empty() || self.failing == violation.fingerprint();
        violation.oracle == self.fingerprint && same
    }

    /// Its scenario, if the plan still fits it.
    pub fn scenario(&self, root: &Path) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::load(root, &self.scenario)?;
        self.check(&scenario)?;
        Ok(scenario)
    }

    /// The scenario may have changed since: what the plan speaks of must still be there.
    fn check(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        let (of, known) = (&self.scenario, crate::catalogue::node_names(scenario));
        let nodes = (self.plan.faults.iter().map(|planned| &planned.on))
            .chain(self.plan.ops.iter().map(|op| &op.on));
        if let Some(on) = nodes.into_iter().find(|on| !known.contains(on)) {
            let known = known.join(", ");
            return Err(ScenarioError(format!(
                "{of}: the plan speaks of {on:?}, the scenario has: {known}"
            )));
        }
        let calls = self.plan.ops.iter().map(|op| &op.call);
        if let Some(call) = calls.into_iter().find(|call| calls::find(call).is_none()) {
            let known: Vec<_> = crate::services::calls().map(|call| call.name).collect();
            let known = known.join(", ");
            return Err(ScenarioError(format!(
                "{of}: the plan calls {call:?}, there are: {known}"
            )));
        }
        Ok(())
    }
}

/// The compiler that this checkout pins.
fn toolchain() -> String {
    let pinned: Option<toml::Table> = include_str!("../../rust-toolchain.toml").parse().ok();
    let channel = pinned.and_then(|file| Some(file.get("toolchain")?.get("channel")?.clone()));
    let channel = channel.and_then(|channel| channel.as_str().map(str::to_owned));
    channel.unwrap_or_else(|| "unknown".to_owned())
}

fn read<T: serde::de::DeserializeOwned>(file: &str, text: &str) -> Result<T, ScenarioError> {
    toml::from_str(text).map_err(|e| {
        let line = e
            .span()
            .map_or(1, |span| text[..span.start].lines().count().max(1));
        ScenarioError(format!(
            "{file}:{line}: no bug file: {}",
            e.message().replace('\n', " ")
        ))
    })
}

/// All filed bugs below `root`, sorted.
pub fn files(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join("bugs"))
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<_> = entries
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ops::Op, plan::Fault, swarm::Bent};

    fn bug() -> Bug {
        let strike = |at_us, fault| Planned {
            at_us,
            on: "pool".to_owned(),
            fault,
        };
        let plan = Plan {
            sizes: [("pool".to_owned(), "queue_cap = 7".parse().expect("a table"))].into(),
            faults: vec![
                strike(1_500_000, Fault::PowerOff { down_ms: 40 }),
                strike(1_700_000, Fault::ClockJump { by_ms: -3 }),
            ],
            buggify: vec![Bent {
                point: "timer.late".to_owned(),
                per_10_000: 500,
            }],
            ops: vec![Op {
                at_us: 9,
                client: 2,
                on: "pool".to_owned(),
                call: "pool.put".to_owned(),
                key: 3,
                arg: 0,
                timeout_ms: 700,
            }],
        };
        Bug {
            format: FORMAT,
            scenario: "torn-write".to_owned(),
            seed: 7,
            fingerprint: "pool.acked_is_durable".to_owned(),
            said: "item 3 is \"gone\"".to_owned(),
            failing: "pool.acked_is_durable: item # is \"gone\"".to_owned(),
            commit: "abc".to_owned(),
            toolchain: "1.91".to_owned(),
            options: vec!["pool.put clients=2".to_owned()],
            plan,
        }
    }

    #[test]
    fn a_bug_file_reads_back_as_it_was_written() {
        assert_eq!(Bug::parse("x.toml", &bug().to_text()), Ok(bug()));
        assert_eq!(bug().file_name(), "torn-write-pool-acked-is-durable-7.toml");
    }

    #[test]
    fn a_file_of_faults_alone_is_read_with_the_operations_of_its_seed() {
        let text = "format = 1\nscenario = \"torn-write\"\nseed = 7\nfingerprint = \"x\"\n\
            said = \"\"\ncommit = \"\"\n[[plan]]\nat_us = 5\non = \"pool\"\n\
            fault = { kind = \"power_off\", down_ms = 40 }\n";
        let bug = Bug::parse("x.toml", text).expect("an older file");
        assert_eq!(bug.plan.faults.len(), 1);
        let root = crate::scenario::root();
        let (scenario, run) = bug.replay(&root, &Watch::default()).expect("it replays");
        assert_eq!(run.plan.faults, bug.plan.faults);
        assert_eq!(run.plan.ops, Plan::draw(&scenario, 7).ops);
    }

    #[test]
    fn a_plan_that_no_longer_fits_its_scenario_is_refused_in_one_line() {
        let root = crate::scenario::root();
        for (from, to, says) in [
            ("on = \"pool\"", "on = \"pond\"", "\"pond\""),
            ("call = \"pool.put\"", "call = \"pool.get\"", "pool.put"),
            (
                "scenario = \"torn-write\"",
                "scenario = \"torn\"",
                "torn-write",
            ),
        ] {
            let text = bug().to_text().replacen(from, to, 1);
            let bug = Bug::parse("x.toml", &text).expect("well formed");
            let error = match bug.replay(&root, &Watch::default()) {
                Ok(_) => panic!("{to} was accepted"),
                Err(error) => error.to_string(),
            };
            assert!(
                error.contains(says) && error.lines().count() == 1,
                "{error}"
            );
        }
    }

    #[test]
    fn a_broken_bug_file_is_refused_in_one_line() {
        let text = bug().to_text();
        for (from, to, says) in [
            (
                "format = 2",
                "format = 3",
                "format 3 is not known here, only 1 and 2",
            ),
            ("format = 2\n", "", "format"),
            ("seed = 7", "seed = \"x\"", "x.toml:3:"),
            ("power_off", "power_of", "power_of"),
            ("down_ms", "downms", "downms"),
            ("scenario =", "scenari =", "scenari"),
            ("timeout_ms", "time_ms", "time_ms"),
        ] {
            let broken = text.replacen(from, to, 1);
            assert_ne!(broken, text, "{from}");
            let error = Bug::parse("x.toml", &broken).unwrap_err().to_string();
            assert!(
                error.contains(says) && error.lines().count() == 1,
                "{error}"
            );
        }
    }
}
