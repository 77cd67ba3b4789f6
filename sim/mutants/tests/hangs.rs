//! A run that spins, blocks or never ends still comes back, with its seed and why.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::time::Duration;

use sim::{
    cli,
    oracle::{NO_HANG, NO_SPIN},
    run::{self, RunResult, Watch},
    scenario::{self, Scenario},
};

fn run(bug: &str) -> (Scenario, RunResult) {
    let scenario = Scenario::load(&scenario::root(), "shutdown-race").expect("it is there");
    let watch = Watch {
        bug: Some(bug.to_owned()),
        give_up_after: Some(Duration::from_secs(2)),
        ..Watch::default()
    };
    let run = run::run(&scenario, 3, &watch);
    (scenario, run)
}

#[test]
fn tasks_that_wake_themselves_for_ever_end_the_run_with_its_seed() {
    let (scenario, run) = run("pool.spin");
    let violation = run.violation().expect("it is noticed");
    assert_eq!(violation.oracle, NO_SPIN, "{violation}");
    assert!(violation.why.contains("pool"), "{violation}");
    let text = cli::failure_text(&scenario, &run);
    assert!(text.contains("SIM_SEED=3 cargo test"), "{text}");
}

#[test]
fn a_task_that_blocks_its_thread_is_given_up_and_still_yields_its_seed_and_plan() {
    let (scenario, run) = run("pool.block");
    let violation = run.violation().expect("it is noticed");
    assert_eq!(violation.oracle, NO_HANG, "{violation}");
    assert_eq!((run.seed, run.plan.ops.is_empty()), (3, false));
    let text = cli::failure_text(&scenario, &run);
    assert!(
        text.contains("SIM_SEED=3 cargo test") && text.contains("pool.put clients"),
        "{text}"
    );
}
