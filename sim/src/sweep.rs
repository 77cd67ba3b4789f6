//! Many seeds, on all cores, with a bar to watch.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    coverage::Tally,
    run::{self, RunResult, Watch},
    scenario::Scenario,
};

pub struct Sweep {
    pub seeds: u64,
    pub first_seed: u64,
    pub jobs: usize,
    pub progress: bool,
    pub bug: Option<String>,
    /// Once it is set no further seed is begun.
    pub stop: Arc<AtomicBool>,
}

/// What a sweep found, in figures.
#[derive(Debug, Default)]
pub struct SweepResult {
    pub seeds: u64,
    pub failures: Vec<RunResult>,
    pub violations: u64,
    pub requests: u64,
    /// Requests by what they ask for.
    pub by_op: BTreeMap<&'static str, u64>,
    pub events: u64,
    pub simulated: Duration,
    pub wall: Duration,
    /// By scenario: seeds run, requests, simulated time, violations.
    pub by_scenario: BTreeMap<String, Share>,
    /// By scenario: what was ever seen in it.
    pub marks: BTreeMap<String, BTreeMap<String, u64>>,
    /// By scenario and mark: runs that came by.
    pub reached: BTreeMap<String, BTreeMap<String, u64>>,
    /// By `service fault`: what became of it.
    pub fates: BTreeMap<String, Tally>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    pub seeds: u64,
    pub violations: u64,
    pub requests: u64,
    pub simulated: Duration,
    pub wall: Duration,
}

/// More failures than this are counted, not kept.
const KEPT_FAILURES: usize = 20;

/// Deals seeds to scenarios, round by round.
struct Deal<'a> {
    scenarios: &'a [Scenario],
    first_seed: u64,
    left: u64,
    round: u64,
    at: usize,
}

impl<'a> Iterator for Deal<'a> {
    type Item = (&'a Scenario, u64);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if self.at == self.scenarios.len() {
                self.at = 0;
                self.round += 1;
            }
            let scenario = &self.scenarios[self.at];
            self.at += 1;
            let one_in = scenario.seeds.one_in.get();
            if self.round.is_multiple_of(one_in) {
                return Some((scenario, self.first_seed + self.round / one_in));
            }
        }
    }
}

/// Runs `seeds` seeds in all, dealt out to the scenarios in turn.
pub fn sweep(
    scenarios: &[Scenario],
    sweep: &Sweep,
    on_failure: impl Fn(&RunResult) + Sync,
) -> SweepResult {
    let begin = Instant::now();
    let deal = Mutex::new(Deal {
        scenarios,
        first_seed: sweep.first_seed,
        left: sweep.seeds,
        round: 0,
        at: 0,
    });
    let result = Mutex::new(SweepResult::default());
    let bar = progress_bar(sweep);
    std::thread::scope(|scope| {
        for _ in 0..sweep.jobs.max(1) {
            scope.spawn(|| {
                while !sweep.stop.load(Ordering::Relaxed) {
                    let Some((scenario, seed)) = deal.lock().unwrap().next() else {
                        return;
                    };
                    let watch = Watch {
                        bug: sweep.bug.clone(),
                        ..Watch::default()
                    };
                    let run = run::run(scenario, seed, &watch);
                    if run.violation().is_some() {
                        bar.suspend(|| on_failure(&run));
                    }
                    let mut result = result.lock().unwrap();
                    result.add(run);
                    bar.set_message(result.pace(begin.elapsed()));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut result = result.into_inner().unwrap();
    result.wall = begin.elapsed();
    result
}

impl SweepResult {
    fn add(&mut self, run: RunResult) {
        self.seeds += 1;
        self.requests += run.record.requests;
        for (op, count) in &run.record.by_op {
            *self.by_op.entry(op).or_default() += count;
        }
        self.events += run.record.events;
        self.simulated += run.record.simulated;
        let failed = run.violation().is_some();
        self.violations += u64::from(failed);
        let share = self.by_scenario.entry(run.scenario.clone()).or_default();
        share.seeds += 1;
        share.violations += u64::from(failed);
        share.requests += run.record.requests;
        share.simulated += run.record.simulated;
        share.wall += run.wall;
        let marks = self.marks.entry(run.scenario.clone()).or_default();
        let reached = self.reached.entry(run.scenario.clone()).or_default();
        for (mark, count) in &run.record.marks {
            *marks.entry(mark.clone()).or_default() += count;
            *reached.entry(mark.clone()).or_default() += 1;
        }
        let survived = !failed && run.live_after.is_some();
        for fate in &run.fates {
            let cell = format!("{} {}", fate.service, fate.kind);
            let tally = self.fates.entry(cell).or_default();
            tally.injected += 1;
            tally.observed += u64::from(fate.felt);
            tally.survived += u64::from(fate.felt && survived);
        }
        if failed && self.failures.len() < KEPT_FAILURES {
            self.failures.push(run);
        }
    }

    fn pace(&self, wall: Duration) -> String {
        let secs = wall.as_secs_f64().max(0.001);
        let (seeds, ratio) = (
            self.seeds as f64 / secs,
            self.simulated.as_secs_f64() / secs,
        );
        format!(
            "{seeds:.0} seeds/s, {ratio:.0}x real time, {} violations",
            self.violations
        )
    }

    /// `<n> seeds, <v> violations, <s> seeds/s, <r>x real time`
    pub fn closing_line(&self) -> String {
        let secs = self.wall.as_secs_f64().max(0.001);
        let (seeds, ratio) = (
            self.seeds as f64 / secs,
            self.simulated.as_secs_f64() / secs,
        );
        format!(
            "{} seeds, {} violations, {seeds:.1} seeds/s, {ratio:.0}x real time",
            self.seeds, self.violations
        )
    }

    /// What was found, by scenario, as a page of documentation.
    pub fn report(&self, commit: &str) -> String {
        let mut page = format!(
            "# The newest sweep\n\nWritten by `sim sweep --report` at commit {commit}: {}.\n\n\
             | scenario | seeds | violations | requests |\n| --- | --- | --- | --- |\n",
            self.closing_line()
        );
        for (name, share) in &self.by_scenario {
            let Share {
                seeds,
                violations,
                requests,
                ..
            } = share;
            let _ = writeln!(page, "| {name} | {seeds} | {violations} | {requests} |");
        }
        page
    }

    /// How many of each kind of request, and how many of them in a second of real time.
    pub fn ops_line(&self) -> String {
        let secs = self.wall.as_secs_f64().max(0.001);
        let told = self.by_op.iter().map(|(op, count)| {
            let rate = *count as f64 / secs;
            format!("{count} {op} ({rate:.0}/s)")
        });
        told.collect::<Vec<_>>().join(", ")
    }

    pub fn requests_line(&self) -> String {
        let secs = self.wall.as_secs_f64().max(0.001);
        format!(
            "{} simulated HTTP requests, {:.0} per wall second, {:.1} per simulated second, {} events",
            self.requests,
            self.requests as f64 / secs,
            self.requests as f64 / self.simulated.as_secs_f64().max(0.001),
            self.events,
        )
    }
}

fn progress_bar(sweep: &Sweep) -> ProgressBar {
    if !sweep.progress {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left {eta})  {msg}");
    ProgressBar::new(sweep.seeds).with_style(style.expect("a valid template"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn a_long_scenario_has_its_turn_less_often_but_its_seeds_without_a_hole() {
        let root = scenario::root();
        let mut scenarios = ["shutdown-race", "partition-heal"]
            .map(|name| Scenario::load(&root, name).unwrap())
            .to_vec();
        scenarios[1].seeds.one_in = 3.try_into().unwrap();
        let deal = Deal {
            scenarios: &scenarios,
            first_seed: 5,
            left: 9,
            round: 0,
            at: 0,
        };
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for (scenario, seed) in deal {
            match scenario.name == scenarios[0].name {
                true => short.push(seed),
                false => long.push(seed),
            }
        }
        assert_eq!(short, [5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(long, [5, 6]);
    }
}
