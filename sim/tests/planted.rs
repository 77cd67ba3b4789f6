//! Each oracle is seen to fire: a bug of just its kind is planted and must be noticed, by that oracle,
//! within a few seeds. An oracle that nothing can wake is no oracle.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::collections::BTreeSet;

use sim::{mutants, oracle::LIVE_AGAIN, run::Watch, services};
use xtask::mutants::Bug;

/// What the exemplar service acts out when it is told to, where it is tried, and who must notice.
const PLANTED: &[(&str, &str, &str)] = &[
    ("client_forgets", "shutdown-race", "http.one_outcome"),
    ("miscount", "queue-saturation", "queue.conserves"),
    (
        "cap_off_by_one",
        "queue-saturation",
        "queue.depth_within_cap",
    ),
    ("lose_job", "queue-saturation", "job.nothing_lost"),
    ("leak_task", "shutdown-race", "tasks.none_alive_after_stop"),
    (
        "uncounted_abort",
        "drain-deadline-exceeded",
        "tasks.aborts_counted",
    ),
    ("edge_shutdown", "late-subscriber", "tasks.none_aborted"),
    (
        "ignore_drain_deadline",
        "drain-deadline-exceeded",
        "drain.within_deadline",
    ),
    ("mute_readyz", "worker-panic-storm", "ready.says_why"),
    (
        "gate_stuck",
        "worker-panic-storm",
        "ready.back_after_relaunch",
    ),
    (
        "unready_on_panic",
        "worker-panic-kept-ready",
        "ready.never_drops",
    ),
    (
        "no_restart_budget",
        "restart-budget",
        "tasks.restart_budget",
    ),
    ("ack_before_sync", "torn-write", "pool.acked_is_durable"),
    (
        "stale_writer",
        "stale-incarnation",
        "disk.stale_changes_nothing",
    ),
    ("clock_wall", "clock-jump", "clock.sleeps_are_true"),
    ("never_recovers", "torn-write", LIVE_AGAIN),
    ("body_cap_off_by_one", "hurried-requests", "http.body_cap"),
    (
        "deaf_to_deadlines",
        "hurried-requests",
        "http.deadline_kept",
    ),
    ("stale_snapshot", "clock-jump", "snapshot.fresh"),
    ("bus_miscounts", "clock-jump", "bus.losses_counted"),
    ("drill_lies", "drills", "kernel.drills_hold"),
    ("drill_hasty", "drills-power", "kernel.drilled_is_durable"),
    (
        "ready_while_down",
        "worker-panic-storm",
        "ready.off_while_down",
    ),
    ("starts_while_draining", "shutdown-race", "model.lifecycle"),
    ("cap_off_by_one", "queue-saturation", "model.queue"),
];

/// Woken by nothing that can be planted: a law about rotten bytes, which only the offline reader could break.
const ASLEEP: &[&str] = &["kms.rot_noticed"];

fn bugs() -> Vec<Bug> {
    let bugs = xtask::mutants::read(&xtask::tree::root()).expect("they can be read");
    bugs.into_values().collect()
}

#[test]
fn every_bug_of_the_exemplar_wakes_its_oracle() {
    for (plant, scenario, oracle) in PLANTED {
        let watch = Watch {
            plant: Some((*plant).to_owned()),
            ..Watch::default()
        };
        let seed = mutants::wakes(oracle, scenario, &watch);
        assert!(seed.is_some(), "{oracle} missed {plant} in {scenario}");
    }
}

#[test]
fn every_law_can_be_woken() {
    let bugs = bugs();
    let woken = bugs.iter().flat_map(|bug| bug.wakes.keys());
    let planted = PLANTED.iter().map(|(_, _, oracle)| *oracle);
    let woken: BTreeSet<&str> = woken.map(String::as_str).chain(planted).collect();
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
