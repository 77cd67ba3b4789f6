//! Each oracle is seen to fire: a bug of just its kind is planted and must be noticed, by that oracle,
//! within a few seeds. An oracle that nothing can wake is no oracle.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::collections::BTreeSet;

use sim::{
    oracle::{LIVE_AGAIN, ORACLES},
    run::{self, Watch},
    scenario::{self, Scenario},
};

/// The planted bug, where it is tried, and who must notice.
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
    (
        "ready_while_down",
        "worker-panic-storm",
        "ready.off_while_down",
    ),
    ("starts_while_draining", "shutdown-race", "model.lifecycle"),
    ("cap_off_by_one", "queue-saturation", "model.queue"),
];

const SEEDS: u64 = 40;

#[test]
fn every_planted_bug_wakes_its_oracle() {
    let mut missed = Vec::new();
    for (plant, name, oracle) in PLANTED {
        let mut scenario = Scenario::load(&scenario::root(), name).expect("the scenario is there");
        // Alone, so that no other oracle can speak first.
        scenario.check.always.retain(|o| o == oracle);
        let watch = Watch {
            plant: Some((*plant).to_owned()),
            ..Watch::default()
        };
        let fired = |seed| {
            run::run(&scenario, seed, &watch)
                .violation()
                .map(|v| v.oracle)
                == Some(*oracle)
        };
        match (1..=SEEDS).find(|seed| fired(*seed)) {
            Some(seed) => println!("{oracle:<30} noticed {plant} in {name} at seed {seed}"),
            None => missed.push(format!(
                "{oracle} missed {plant} in {name} over {SEEDS} seeds"
            )),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_oracle_has_its_planted_bug() {
    let planted: BTreeSet<&str> = PLANTED.iter().map(|(_, _, oracle)| *oracle).collect();
    let all: BTreeSet<&str> = ORACLES
        .iter()
        .map(|kind| kind.name)
        // The laws of services are woken by bugs in their own code: `cargo mutants-gate`.
        .filter(|name| !name.starts_with("kms.") && !name.starts_with("dht."))
        .chain([LIVE_AGAIN])
        .collect();
    assert_eq!(planted, all);
}
