//! A filed bug: scenario, seed and the smallest plan that shows it, as a file that is replayed for ever.
//!
//! The plan is written out, so the file means the same faults after unrelated code has changed, when the
//! seed alone would draw others.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    plan::Planned,
    run::{self, RunResult, Watch},
    scenario::{Scenario, ScenarioError},
};

/// The version of the format; a newer one is refused.
const FORMAT: u32 = 1;

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
    pub commit: String,
    #[serde(default)]
    pub plan: Vec<Planned>,
}

impl Bug {
    pub fn new(run: &RunResult, plan: Vec<Planned>, commit: String) -> Option<Bug> {
        let violation = run.violation()?;
        Some(Bug {
            format: FORMAT,
            scenario: run.scenario.clone(),
            seed: run.seed,
            fingerprint: violation.oracle.to_owned(),
            said: violation.why.clone(),
            commit,
            plan,
        })
    }

    pub fn parse(file: &str, text: &str) -> Result<Bug, ScenarioError> {
        let bug: Bug = toml::from_str(text).map_err(|e| {
            let line = e
                .span()
                .map_or(1, |span| text[..span.start].lines().count().max(1));
            ScenarioError(format!(
                "{file}:{line}: no bug file: {}",
                e.message().replace('\n', " ")
            ))
        })?;
        if bug.format != FORMAT {
            let found = bug.format;
            return Err(ScenarioError(format!(
                "{file}: format {found} is not known here, only {FORMAT}: file it again with `sim shrink`"
            )));
        }
        Ok(bug)
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
        let run = run::run_plan(&scenario, self.seed, watch, self.plan.clone());
        Ok((scenario, run))
    }

    /// Its scenario, if the plan still fits it.
    pub fn scenario(&self, root: &Path) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::load(root, &self.scenario)?;
        let known = crate::catalogue::node_names(&scenario);
        if let Some(planned) = self
            .plan
            .iter()
            .find(|planned| !known.contains(&planned.on))
        {
            let (on, known) = (&planned.on, known.join(", "));
            return Err(ScenarioError(format!(
                "{}: the plan strikes {on:?}, the scenario has: {known}",
                self.scenario
            )));
        }
        Ok(scenario)
    }
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
    use crate::plan::Fault;

    fn bug() -> Bug {
        let plan = vec![
            Planned {
                at_us: 1_500_000,
                on: "pool".to_owned(),
                fault: Fault::PowerOff { down_ms: 40 },
            },
            Planned {
                at_us: 1_700_000,
                on: "pool".to_owned(),
                fault: Fault::ClockJump { by_ms: -3 },
            },
        ];
        Bug {
            format: FORMAT,
            scenario: "torn-write".to_owned(),
            seed: 7,
            fingerprint: "pool.acked_is_durable".to_owned(),
            said: "item 3 is \"gone\"".to_owned(),
            commit: "abc".to_owned(),
            plan,
        }
    }

    #[test]
    fn a_bug_file_reads_back_as_it_was_written() {
        assert_eq!(Bug::parse("x.toml", &bug().to_text()), Ok(bug()));
        assert_eq!(bug().file_name(), "torn-write-pool-acked-is-durable-7.toml");
    }

    #[test]
    fn a_broken_bug_file_is_refused_in_one_line() {
        let text = bug().to_text();
        for (from, to, says) in [
            (
                "format = 1",
                "format = 2",
                "format 2 is not known here, only 1",
            ),
            ("seed = 7", "seed = \"x\"", "x.toml:3:"),
            ("power_off", "power_of", "power_of"),
            ("down_ms", "downms", "downms"),
            ("scenario =", "scenari =", "scenari"),
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
