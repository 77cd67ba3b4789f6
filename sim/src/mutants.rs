//! The mutation gate: every planted bug must be caught by the oracles, within its budget of runs.
//!
//! `sim/mutants/*.toml` tells of the bugs; only the copy of the tree that `cargo mutants-gate` builds has them
//! ([`xtask::mutants`]). Each is hunted as a sweep would: one seed of every scenario that has its code in turn, from
//! several first seeds. Always: nothing tells an oracle that a bug is planted; a seed that fails without the bug has
//! caught nothing; the tree without one raises no alarm over as many runs.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    oracle::LIVE_AGAIN,
    run::{self, Watch},
    scenario::{self, Scenario},
};

/// How hard a bug is hunted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Runs that a bug may survive from one first seed.
    pub runs: u64,
    /// Hunts for each bug, each from a first seed of its own.
    pub hunts: u64,
    pub jobs: usize,
}

pub const RUNS: u64 = 600;
pub const HUNTS: u64 = 5;

/// What came of the hunts for one bug.
#[derive(Clone, Debug)]
pub struct Hunted {
    pub name: String,
    /// For each hunt: how it ended.
    pub hunts: Vec<Option<Catch>>,
    /// Seeds that fail without the bug, too.
    pub alarms: Vec<Catch>,
}

#[derive(Clone, Debug)]
pub struct Catch {
    pub oracle: &'static str,
    pub scenario: String,
    pub seed: u64,
    /// Runs until then.
    pub runs: u64,
    pub took: Duration,
}

impl Hunted {
    pub fn caught(&self) -> bool {
        self.hunts.iter().all(Option::is_some)
    }

    /// The middle hunt by runs; a hunt that found nothing is the longest.
    pub fn median(&self) -> Option<&Catch> {
        let mut hunts: Vec<_> = self.hunts.iter().collect();
        hunts.sort_by_key(|hunt| hunt.as_ref().map_or(u64::MAX, |catch| catch.runs));
        hunts[hunts.len() / 2].as_ref()
    }

    /// The law and the scenario that caught it most often.
    fn catcher(&self) -> (&str, &str) {
        let mut by: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for catch in self.hunts.iter().flatten() {
            *by.entry((catch.oracle, &catch.scenario)).or_default() += 1;
        }
        by.into_iter()
            .max_by_key(|(_, count)| *count)
            .map_or(("", ""), |(who, _)| who)
    }

    /// One line: who caught it where, and how fast.
    pub fn line(&self) -> String {
        let (name, (oracle, scenario)) = (&self.name, self.catcher());
        let Some(median) = self.median() else {
            let missed = self.hunts.iter().filter(|hunt| hunt.is_none()).count();
            let hunts = self.hunts.len();
            return format!("{name:<34} MISSED in {missed} of {hunts} hunts");
        };
        let told = match self.caught() {
            true => "",
            false => "  MISSED in some",
        };
        format!(
            "{name:<34} {oracle:<28} {scenario:<26} {:>5} runs {:>8.2} s{told}",
            median.runs,
            median.took.as_secs_f64()
        )
    }

    /// The same, as a row of a table.
    pub fn row(&self) -> String {
        let (name, (oracle, scenario)) = (&self.name, self.catcher());
        match self.median().filter(|_| self.caught()) {
            Some(Catch { runs, took, .. }) => {
                let seconds = took.as_secs_f64();
                format!("| `{name}` | `{oracle}` | {scenario} | {runs} | {seconds:.2} |\n")
            }
            None => format!("| `{name}` | MISSED | | | |\n"),
        }
    }
}

/// The scenarios that are there for a bug: a service's own, or else those of no service and, for one of the kernel, those of
/// the service that uses most of it.
fn grounds(scenarios: &[Scenario], mutant: Option<&str>) -> Vec<Scenario> {
    let Some(mutant) = mutant else {
        return scenarios.to_vec();
    };
    let part = mutant.split('.').next().unwrap_or_default();
    let own = format!("{part}/");
    let of_service = scenarios.iter().any(|s| s.name.starts_with(&own));
    let of_exemplar = EXEMPLAR.contains(&part);
    let has = |scenario: &&Scenario| match of_service {
        true => scenario.name.starts_with(&own),
        false => {
            !scenario::is_of_a_service(&scenario.name)
                || !of_exemplar && scenario.name.starts_with(MOST_OF_KERNEL)
        }
    };
    scenarios.iter().filter(has).cloned().collect()
}

/// Seeds of a scenario in which a bug that is there to wake a law does so.
const WAKES_WITHIN: u64 = 40;

/// The first seed in which this law, asked alone so that no other can speak first, fires with the bug and not without.
pub fn wakes(law: &str, scenario: &str, with_bug: &Watch) -> Option<u64> {
    let mut scenario = Scenario::load(&scenario::root(), scenario).ok()?;
    scenario.check.only = Some(law.to_owned());
    if law != LIVE_AGAIN {
        scenario.check.eventually.hold.clear();
    }
    let fires = |seed, watch: &Watch| {
        let run = run::run(&scenario, seed, watch);
        run.violation().is_some_and(|found| found.oracle == law)
    };
    let wakes = |seed: &u64| fires(*seed, with_bug) && !fires(*seed, &Watch::default());
    (1..=WAKES_WITHIN).find(wakes)
}

/// Begins the names of scenarios whose service uses more of the kernel than any other.
const MOST_OF_KERNEL: &str = "kms/";

/// Parts that only the scenarios of no service have: the exemplar service and its clients.
const EXEMPLAR: [&str; 2] = ["pool", "client"];

/// Hunts one bug; `None` hunts for false alarms in the tree as it is.
pub fn hunt(scenarios: &[Scenario], mutant: Option<&str>, effort: Effort) -> Hunted {
    let scenarios = &grounds(scenarios, mutant)[..];
    let mut hunts: Vec<Option<Catch>> = Vec::new();
    let alarms = Mutex::default();
    for n in 0..effort.hunts {
        hunts.push(hunt_from(
            scenarios,
            mutant,
            1 + n * 10_000,
            effort,
            &alarms,
        ));
        // A bug that got away once is missed; more hunts would only take time.
        if mutant.is_some() && hunts.last().is_some_and(Option::is_none) {
            break;
        }
    }
    Hunted {
        name: mutant.unwrap_or("(no bug)").to_owned(),
        hunts,
        alarms: alarms.into_inner().unwrap(),
    }
}

/// Runs seeds of all scenarios in turn until one fails; the first in that order counts, however many run at once.
fn hunt_from(
    scenarios: &[Scenario],
    mutant: Option<&str>,
    first_seed: u64,
    effort: Effort,
    alarms: &Mutex<Vec<Catch>>,
) -> Option<Catch> {
    let begin = Instant::now();
    let (next, best) = (AtomicU64::new(0), Mutex::new(None::<Catch>));
    let watch = Watch {
        bug: mutant.map(str::to_owned),
        give_up_after: Some(Duration::from_secs(20)),
        ..Watch::default()
    };
    let clean = Watch {
        bug: None,
        ..watch.clone()
    };
    let count = scenarios.len() as u64;
    std::thread::scope(|scope| {
        for _ in 0..effort.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let found = best.lock().unwrap().as_ref().map(|catch| catch.runs);
                    if turn >= effort.runs || found.is_some_and(|runs| turn >= runs) {
                        return;
                    }
                    let scenario = &scenarios[(turn % count) as usize];
                    let seed = first_seed + turn / count;
                    let run = run::run(scenario, seed, &watch);
                    let Some(violation) = run.violation() else {
                        continue;
                    };
                    let catch = Catch {
                        oracle: violation.oracle,
                        scenario: scenario.name.clone(),
                        seed,
                        runs: turn + 1,
                        took: begin.elapsed(),
                    };
                    let fails_anyway = || run::run(scenario, seed, &clean).violation().is_some();
                    if mutant.is_some() && fails_anyway() {
                        alarms.lock().unwrap().push(catch);
                        continue;
                    }
                    let mut best = best.lock().unwrap();
                    if best.as_ref().is_none_or(|best| catch.runs < best.runs) {
                        *best = Some(catch);
                    }
                }
            });
        }
    });
    best.into_inner().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catch(runs: u64) -> Option<Catch> {
        Some(Catch {
            oracle: "queue.conserves",
            scenario: "queue-saturation".to_owned(),
            seed: 1,
            runs,
            took: Duration::from_millis(runs),
        })
    }

    #[test]
    fn a_bug_is_caught_only_if_every_hunt_caught_it_and_the_median_counts_misses_as_longest() {
        let hunted = |hunts: Vec<Option<Catch>>| Hunted {
            name: "x".to_owned(),
            hunts,
            alarms: Vec::new(),
        };
        let all = hunted(vec![catch(9), catch(1), catch(4)]);
        assert!(all.caught());
        assert_eq!(all.median().map(|c| c.runs), Some(4));
        assert!(all.line().contains("queue.conserves"));
        assert!(
            all.row()
                .starts_with("| `x` | `queue.conserves` | queue-saturation | 4 |")
        );
        let some = hunted(vec![catch(9), None, catch(4)]);
        assert!(!some.caught());
        assert_eq!(some.median().map(|c| c.runs), Some(9));
        assert!(some.line().contains("MISSED") && some.row().contains("MISSED"));
        let none = hunted(vec![None, None, catch(4)]);
        assert!(none.median().is_none() && none.line().contains("MISSED in 2 of 3"));
    }

    #[test]
    fn a_seed_that_fails_without_the_bug_is_an_alarm_and_no_catch() {
        let root = crate::scenario::root();
        let mut scenario = Scenario::load(&root, "late-subscriber").expect("it is there");
        // Of a service that is not there: it has nothing to compare, and fails.
        scenario.check.only = Some("model.kms.audit".to_owned());
        let effort = Effort {
            runs: 2,
            hunts: 1,
            jobs: 1,
        };
        let hunted = hunt(&[scenario], Some("queue.close_drops"), effort);
        assert!(!hunted.caught());
        assert_eq!(hunted.alarms.len(), 2);
    }

    #[test]
    fn the_tree_without_a_bug_raises_no_alarm() {
        let root = crate::scenario::root();
        let scenario = Scenario::load(&root, "late-subscriber").expect("it is there");
        let effort = Effort {
            runs: 200,
            hunts: 1,
            jobs: 1,
        };
        assert!(hunt_from(&[scenario], None, 500, effort, &Mutex::default()).is_none());
    }
}
