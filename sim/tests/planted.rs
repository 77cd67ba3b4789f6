//! Each law has a planted bug that wakes it: one that nothing can wake is no law. That it does so is seen in the copy of the
//! tree that has the bugs, by `cargo mutants-gate --quick`.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::collections::BTreeSet;

use sim::{oracle::LIVE_AGAIN, services};
use xtask::mutants::Bug;

/// Woken by nothing that can be planted: a law about rotten bytes, which only the offline reader could break.
const ASLEEP: &[&str] = &["kms.rot_noticed"];

fn bugs() -> Vec<Bug> {
    let bugs = xtask::mutants::read(&xtask::tree::root()).expect("they can be read");
    bugs.into_values().collect()
}

#[test]
fn every_law_can_be_woken() {
    let bugs = bugs();
    let woken = bugs.iter().flat_map(|bug| bug.wakes.keys());
    let woken: BTreeSet<&str> = woken.map(String::as_str).collect();
    let all: BTreeSet<&str> = services::laws()
        .map(|kind| kind.name)
        .filter(|name| !ASLEEP.contains(name))
        .chain([LIVE_AGAIN])
        .collect();
    assert_eq!(woken, all);
}

#[test]
fn the_law_that_should_catch_a_bug_is_there() {
    let all: BTreeSet<&str> = services::laws().map(|kind| kind.name).collect();
    for bug in bugs() {
        let of_the_run = bug.law.starts_with("world.");
        assert!(
            of_the_run || all.contains(bug.law.as_str()),
            "{}: no law {}",
            bug.name,
            bug.law
        );
    }
}
