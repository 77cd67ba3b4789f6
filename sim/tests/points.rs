//! Marks, bent points and planted bugs reach the run they belong to, and only that one.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use sim::{
    plan::Plan,
    run::{self, RunResult, Watch},
    scenario::{self, Scenario},
    swarm::Bent,
};

fn run(bent: &[(&str, u32)]) -> RunResult {
    let scenario = Scenario::load(&scenario::root(), "queue-saturation").expect("it is there");
    let bent = bent.iter().map(|(point, per_10_000)| Bent {
        point: (*point).to_owned(),
        per_10_000: *per_10_000,
    });
    let plan = Plan {
        buggify: bent.collect(),
        ..Plan::draw(&scenario, 5)
    };
    let watch = Watch {
        keep_lines: true,
        ..Watch::default()
    };
    run::run_plan(&scenario, 5, &watch, plan)
}

fn lines<'a>(run: &'a RunResult, word: &'a str) -> impl Iterator<Item = &'a String> {
    run.record
        .lines
        .iter()
        .filter(move |line| line.contains(word))
}

#[test]
fn a_mark_is_told_once_in_each_run_that_comes_by() {
    for _ in 0..2 {
        let run = run(&[]);
        assert_eq!(run.violation(), None);
        assert_eq!(lines(&run, "queue.full 0 reached").count(), 1);
        assert!(run.record.marks.contains_key("queue.full"));
        assert!(!run.record.marks.contains_key("bus.lagged"));
    }
}

#[test]
fn a_point_fires_only_in_runs_that_drew_it_and_breaks_no_law() {
    let quiet = run(&[]);
    assert_eq!(lines(&quiet, " bent").count(), 0);
    let bent = run(&[("serve.short_read", 5000), ("timer.late", 0)]);
    assert_eq!(bent.violation(), None);
    assert_eq!(lines(&bent, "serve.short_read 0 bent").count(), 1);
    assert_eq!(lines(&bent, "timer.late 0 bent").count(), 0);
    assert_ne!(quiet.record.hash, bent.record.hash);
    // However often it fires, it does only what everybody must bear.
    let often = run(&[("queue.pop_yields", 2500), ("serve.short_write", 9000)]);
    assert_eq!(often.violation(), None);
}

#[test]
fn a_build_without_planted_bugs_acts_out_none() {
    let scenario = Scenario::load(&scenario::root(), "queue-saturation").expect("it is there");
    let watch = Watch {
        bug: Some("queue.cap_off_by_one".to_owned()),
        ..Watch::default()
    };
    let found = (1..=10).any(|seed| run::run(&scenario, seed, &watch).violation().is_some());
    assert_eq!(found, sim::planted::COMPILED);
}
