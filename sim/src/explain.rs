//! Why a run fails: which faults it needs, and where it parts from the nearest run that passes.
//!
//! Each fault of the plan is taken out in turn. The nearest passing sibling is the run without one needed
//! fault that stays with the failing one for longest; the removed fault's own lines do not count as a
//! difference, what it did does.

use std::fmt::Write as _;

use crate::{
    plan::{Plan, Planned},
    run::{self, RunResult, Watch},
    scenario::Scenario,
    trace::{Event, What},
};

/// What there is to say about a plan.
pub struct Explanation {
    /// The run of the whole plan, watched closely.
    pub run: RunResult,
    pub needs: Vec<Need>,
    /// `None` if the run passes, or if no single fault makes the difference.
    pub parts: Option<Parts>,
}

/// One fault, and what happens without it.
pub struct Need {
    pub planned: Planned,
    pub without: Without,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Without {
    Passes,
    /// The same oracle says the same: the fault is not needed.
    FailsAllTheSame,
    /// Another oracle speaks.
    FailsOtherwise(&'static str),
}

/// Where the failing run leaves the passing one.
pub struct Parts {
    /// Which fault the passing run lacks: an index into [`Explanation::needs`].
    pub lacks: usize,
    /// The first event that differs, counted from 0, in each of the two runs.
    pub failing_at: usize,
    pub passing_at: usize,
    /// The events before it, which both runs have.
    pub both: Vec<String>,
    /// The events from there on.
    pub failing: Vec<String>,
    pub passing: Vec<String>,
}

/// How many events are shown before and after the parting.
const AROUND: usize = 5;

pub fn explain(scenario: &Scenario, seed: u64, plan: &Plan, bug: Option<&str>) -> Explanation {
    let watch = Watch {
        bug: bug.map(str::to_owned),
        detail: true,
        ..Watch::default()
    };
    let run = run::run_plan(scenario, seed, &watch, plan.clone());
    let mut needs = Vec::new();
    let mut parts: Option<Parts> = None;
    let Some(violation) = run.violation().cloned() else {
        return Explanation { run, needs, parts };
    };
    for (lacks, planned) in plan.faults.iter().enumerate() {
        let mut rest = plan.clone();
        rest.faults.remove(lacks);
        let sibling = run::run_plan(scenario, seed, &watch, rest);
        let without = match sibling.violation() {
            None => Without::Passes,
            Some(other) if other.fingerprint() == violation.fingerprint() => {
                Without::FailsAllTheSame
            }
            Some(other) => Without::FailsOtherwise(other.oracle),
        };
        if without == Without::Passes {
            let found = part(lacks, planned, &run, &sibling);
            let nearer = |found: &Parts| {
                parts
                    .as_ref()
                    .is_none_or(|best| found.failing_at > best.failing_at)
            };
            parts = found.filter(nearer).or(parts);
        }
        needs.push(Need {
            planned: planned.clone(),
            without,
        });
    }
    Explanation { run, needs, parts }
}

impl Explanation {
    /// The report in lines, without the line that says what failed.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for need in &self.needs {
            let (word, why) = match &need.without {
                Without::Passes => ("needed", "passes without it".to_owned()),
                Without::FailsAllTheSame => ("idle", "fails all the same without it".to_owned()),
                Without::FailsOtherwise(oracle) => {
                    ("needed", format!("without it {oracle} fails instead"))
                }
            };
            let _ = writeln!(out, "{word:<7} {}   ({why})", place(&need.planned));
        }
        match &self.parts {
            Some(parts) => self.tell_parting(parts, &mut out),
            None if self.needs.is_empty() => {
                out.push_str("parts   from no passing run: it fails without any fault\n");
            }
            None => out.push_str("parts   from no passing run: no single fault makes it pass\n"),
        }
        out
    }

    fn tell_parting(&self, parts: &Parts, out: &mut String) {
        let _ = writeln!(
            out,
            "parts   at event {} from the run without {}",
            parts.failing_at + 1,
            place(&self.needs[parts.lacks].planned)
        );
        let blocks = [
            ("both", &parts.both),
            ("fails", &parts.failing),
            ("passes", &parts.passing),
        ];
        for (word, lines) in blocks {
            for line in lines {
                let _ = writeln!(out, "  {word:<7} {line}");
            }
            if lines.is_empty() && word != "both" {
                let _ = writeln!(out, "  {word:<7} (ends here)");
            }
        }
    }
}

pub fn place(planned: &Planned) -> String {
    let at = planned.at().as_secs_f64();
    format!("{} on {} at {at:.3}s", planned.fault, planned.on)
}

fn part(lacks: usize, planned: &Planned, run: &RunResult, sibling: &RunResult) -> Option<Parts> {
    let (failing, passing) = (run.record.detail.as_ref()?, sibling.record.detail.as_ref()?);
    let text = planned.fault.to_string();
    let node = failing.nodes.iter().position(|name| *name == planned.on);
    let own = |event: &Event| {
        event.node == node.map(|n| n as u32)
            && matches!(&event.what, What::Fault { text: t } | What::Healed { text: t } if *t == text)
    };
    let (failing_at, passing_at) = first_difference(&failing.events, &passing.events, own);
    let line = |event: &Event| {
        let name = event.node.map_or("world", |n| &failing.nodes[n as usize]);
        format!("{:>11.6}s {name:<8} {}", event.at.as_secs_f64(), event.what)
    };
    let after = |events: &[Event], at: usize| events[at..].iter().take(AROUND).map(line).collect();
    Some(Parts {
        lacks,
        failing_at,
        passing_at,
        both: failing.events[failing_at.saturating_sub(AROUND)..failing_at]
            .iter()
            .filter(|event| !own(event))
            .map(line)
            .collect(),
        failing: after(&failing.events, failing_at),
        passing: after(&passing.events, passing_at),
    })
}

/// The places in both lists from which they differ, `own` events of the first left out of the comparison.
fn first_difference(
    failing: &[Event],
    passing: &[Event],
    own: impl Fn(&Event) -> bool,
) -> (usize, usize) {
    let (mut f, mut p) = (0, 0);
    loop {
        match (failing.get(f), passing.get(p)) {
            (Some(a), Some(b)) if a == b => (f, p) = (f + 1, p + 1),
            (Some(a), _) if own(a) => f += 1,
            _ => return (f, p),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn event(at: u64, text: &str) -> Event {
        let text = text.to_owned();
        Event {
            at: Duration::from_millis(at),
            node: None,
            what: match text.strip_prefix("fault ") {
                Some(text) => What::Fault { text: text.into() },
                None => What::Phase { text },
            },
        }
    }

    fn differ(failing: &[(u64, &str)], passing: &[(u64, &str)]) -> (usize, usize) {
        let events = |of: &[(u64, &str)]| of.iter().map(|(at, text)| event(*at, text)).collect();
        let (failing, passing): (Vec<_>, Vec<_>) = (events(failing), events(passing));
        first_difference(&failing, &passing, |e| matches!(e.what, What::Fault { .. }))
    }

    #[test]
    fn the_removed_fault_itself_is_no_difference_but_what_it_did_is() {
        let common = [(1, "a"), (2, "b")];
        let failing = [&common[..], &[(3, "fault x"), (3, "c"), (4, "dies")]].concat();
        let passing = [&common[..], &[(3, "c"), (4, "lives")]].concat();
        assert_eq!(differ(&failing, &passing), (4, 3));
    }

    #[test]
    fn time_makes_a_difference_and_so_does_an_early_end() {
        assert_eq!(differ(&[(1, "a"), (2, "b")], &[(1, "a"), (3, "b")]), (1, 1));
        assert_eq!(differ(&[(1, "a"), (2, "b")], &[(1, "a")]), (1, 1));
        assert_eq!(differ(&[(1, "a")], &[(1, "a"), (2, "b")]), (1, 1));
    }
}
