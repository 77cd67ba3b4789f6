//! Did the seeds come by what they are there for? Marks by scenario, faults by service.
//!
//! A simulation that passes proves only what it reached. Always: a mark that no run reached, a bent point that
//! never fired and a fault that was never injected, felt or survived is a failure, unless
//! `scenarios/coverage.toml` lists it with its reason.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde::Deserialize;

use crate::{
    catalogue,
    plan::FAULT_KINDS,
    scenario::{COVERAGE, Scenario, ScenarioError},
    sweep::SweepResult,
};

/// What need not be reached, each with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Exempt {
    /// By mark or point: why no run comes by.
    pub marks: BTreeMap<String, String>,
    /// By `service fault`, or `service *` for all: why it is not injected, not felt or not survived.
    pub faults: BTreeMap<String, String>,
}

impl Exempt {
    /// Reads the list; without a file nothing is exempt.
    pub fn load(root: &Path) -> Result<Exempt, ScenarioError> {
        let path = root.join(COVERAGE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Exempt::parse(&path.display().to_string(), &text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Exempt::default()),
            Err(e) => {
                let path = path.display();
                Err(ScenarioError(format!("{path}: cannot be read: {e}")))
            }
        }
    }

    pub fn parse(file: &str, text: &str) -> Result<Exempt, ScenarioError> {
        let exempt: Exempt = toml::from_str(text).map_err(|e| {
            let line = e
                .span()
                .map_or(1, |span| text[..span.start].lines().count().max(1));
            let message = e.message().replace('\n', " ");
            ScenarioError(format!("{file}:{line}: {message}"))
        })?;
        let all = exempt.marks.iter().chain(&exempt.faults);
        match all.into_iter().find(|(_, why)| why.trim().is_empty()) {
            Some((name, _)) => Err(ScenarioError(format!(
                "{file}: {name:?} is listed without a reason"
            ))),
            None => Ok(exempt),
        }
    }
}

/// How often a fault of one kind struck one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub injected: u64,
    pub observed: u64,
    pub survived: u64,
}

pub struct Coverage {
    pub text: String,
    /// One line for each gap that is not listed, or listed in vain.
    pub gaps: Vec<String>,
    /// Listed, but reached: worth taking off the list.
    pub stale: Vec<String>,
}

/// Judges what a sweep over these scenarios reached.
pub fn judge(scenarios: &[Scenario], result: &SweepResult, exempt: &Exempt) -> Coverage {
    let mut coverage = Coverage {
        text: String::new(),
        gaps: Vec::new(),
        stale: Vec::new(),
    };
    coverage.marks(scenarios, result, exempt);
    coverage.faults(scenarios, result, exempt);
    coverage
}

impl Coverage {
    fn marks(&mut self, scenarios: &[Scenario], result: &SweepResult, exempt: &Exempt) {
        let names = mark_names(scenarios);
        for (n, scenario) in scenarios.iter().enumerate() {
            let _ = writeln!(self.text, "{:>3}  {}", n + 1, scenario.name);
        }
        let columns: String = (1..=scenarios.len()).map(|n| format!("{n:>5}")).collect();
        let _ = writeln!(
            self.text,
            "\n{:<38}{columns}   runs that reached it",
            "mark"
        );
        for name in &names {
            let counts: Vec<u64> = scenarios
                .iter()
                .map(|scenario| {
                    let marks = result.reached.get(&scenario.name);
                    marks
                        .and_then(|marks| marks.get(*name))
                        .copied()
                        .unwrap_or(0)
                })
                .collect();
            let _ = write!(self.text, "{name:<38}");
            for count in &counts {
                let _ = match count {
                    0 => write!(self.text, "    ."),
                    _ => write!(self.text, "{count:>5}"),
                };
            }
            self.text.push('\n');
            let reached = counts.iter().any(|count| *count > 0);
            self.weigh(
                reached,
                exempt.marks.get(*name),
                &format!("mark {name}"),
                "was never reached",
            );
        }
        for name in exempt
            .marks
            .keys()
            .filter(|name| !names.contains(&name.as_str()))
        {
            self.gaps.push(format!(
                "{COVERAGE} lists the mark {name:?}, which does not exist"
            ));
        }
    }

    fn faults(&mut self, scenarios: &[Scenario], result: &SweepResult, exempt: &Exempt) {
        let services = service_names(scenarios);
        let _ = writeln!(
            self.text,
            "\n{:<38}{:>10}{:>10}{:>10}",
            "service fault", "injected", "observed", "survived"
        );
        let mut known = Vec::new();
        for service in services {
            let whole = format!("{service} *");
            for kind in FAULT_KINDS {
                let cell = format!("{service} {}", kind.name);
                let tally = result.fates.get(&cell).copied().unwrap_or_default();
                let Tally {
                    injected,
                    observed,
                    survived,
                } = tally;
                let _ = writeln!(
                    self.text,
                    "{cell:<38}{injected:>10}{observed:>10}{survived:>10}"
                );
                let missing = match tally {
                    Tally { injected: 0, .. } => "was never injected",
                    Tally { observed: 0, .. } => "was never felt",
                    _ => "was never survived",
                };
                if survived == 0 || !exempt.faults.contains_key(&whole) {
                    let listed = exempt.faults.get(&cell).or(exempt.faults.get(&whole));
                    self.weigh(survived > 0, listed, &cell, missing);
                }
                known.push(cell);
            }
            known.push(whole);
        }
        for cell in exempt.faults.keys().filter(|cell| !known.contains(cell)) {
            self.gaps.push(format!(
                "{COVERAGE} lists {cell:?}, which is no service and fault"
            ));
        }
    }

    fn weigh(&mut self, covered: bool, exempt: Option<&String>, what: &str, missing: &str) {
        match (covered, exempt) {
            (false, None) => self.gaps.push(format!("{what} {missing}")),
            (true, Some(_)) => self
                .stale
                .push(format!("{what} is covered: take it off {COVERAGE}")),
            (true, None) | (false, Some(_)) => {}
        }
    }
}

/// Marks and points of the kernel and of every service in the scenarios, sorted.
fn mark_names(scenarios: &[Scenario]) -> Vec<&'static str> {
    let points = scenarios.iter().flat_map(catalogue::points);
    let mut names: Vec<_> = points
        .flat_map(|points| points.marks.iter().chain(points.buggify))
        .copied()
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn service_names(scenarios: &[Scenario]) -> Vec<String> {
    let nodes = scenarios.iter().flat_map(|scenario| &scenario.node);
    let mut names: Vec<_> = nodes.map(|node| node.service.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenarios() -> Vec<Scenario> {
        let root = crate::scenario::root();
        vec![Scenario::load(&root, "torn-write").expect("it is there")]
    }

    fn all_covered() -> SweepResult {
        let mut result = SweepResult::default();
        let scenarios = scenarios();
        let marks = mark_names(&scenarios)
            .into_iter()
            .map(|m| (m.to_owned(), 1));
        result
            .reached
            .insert("torn-write".to_owned(), marks.collect());
        for kind in FAULT_KINDS {
            let tally = Tally {
                injected: 1,
                observed: 1,
                survived: 1,
            };
            result.fates.insert(format!("pool {}", kind.name), tally);
        }
        result
    }

    #[test]
    fn every_gap_is_told_unless_it_is_listed_with_a_reason() {
        let full = judge(&scenarios(), &all_covered(), &Exempt::default());
        assert!(
            full.gaps.is_empty() && full.stale.is_empty(),
            "{:?}",
            full.gaps
        );

        let mut result = all_covered();
        result
            .reached
            .get_mut("torn-write")
            .expect("its marks")
            .remove("queue.full");
        let tally = result.fates.get_mut("pool net.loss").expect("its tally");
        (tally.observed, tally.survived) = (0, 0);
        result.fates.remove("pool disk.full");
        let gaps = judge(&scenarios(), &result, &Exempt::default()).gaps;
        assert_eq!(
            gaps,
            [
                "mark queue.full was never reached",
                "pool net.loss was never felt",
                "pool disk.full was never injected"
            ]
        );
        let listed = "[marks]\n\"queue.full\" = \"x\"\n[faults]\n\"pool net.loss\" = \"x\"\n\"pool disk.full\" = \"x\"\n";
        let listed = Exempt::parse("c", listed).expect("a list");
        assert!(judge(&scenarios(), &result, &listed).gaps.is_empty());
        let whole = "[marks]\n\"queue.full\" = \"x\"\n[faults]\n\"pool *\" = \"x\"\n";
        let whole = Exempt::parse("c", whole).expect("a list");
        assert!(judge(&scenarios(), &result, &whole).gaps.is_empty());
        assert_eq!(judge(&scenarios(), &all_covered(), &listed).stale.len(), 3);
    }

    #[test]
    fn a_list_without_reasons_or_of_things_that_do_not_exist_is_refused() {
        for text in ["[marks]\n\"queue.full\" = \" \"\n", "[mark]\n", "marks = 1"] {
            assert!(Exempt::parse("c.toml", text).is_err(), "{text}");
        }
        let wrong = "[marks]\n\"queue.fool\" = \"x\"\n[faults]\n\"pool disk.fool\" = \"x\"\n";
        let exempt = Exempt::parse("c", wrong).expect("well formed");
        assert_eq!(judge(&scenarios(), &all_covered(), &exempt).gaps.len(), 2);
    }

    #[test]
    fn the_committed_list_is_well_formed() {
        let exempt = Exempt::load(&crate::scenario::root()).expect("the list");
        let root = crate::scenario::root();
        let names = crate::scenario::names(&root).expect("scenarios");
        let all: Vec<_> = names
            .iter()
            .map(|name| Scenario::load(&root, name).expect("a scenario"))
            .collect();
        let known = mark_names(&all);
        for mark in exempt.marks.keys() {
            assert!(known.contains(&mark.as_str()), "{mark} does not exist");
        }
    }
}
