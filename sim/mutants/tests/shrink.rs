//! A large failing plan shrinks to the few faults it needs, and the file it is saved in fails the same way
//! in another process.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::process::Command;

use sim::{
    bug::Bug,
    catalogue,
    plan::{self, Plan, Planned},
    run::{self, Watch},
    scenario::{self, Scenario},
    shrink,
};

#[test]
fn fifty_faults_shrink_to_at_most_three_and_replay_in_another_process() {
    let bug_name = "pool.ack_before_sync";
    let mut scenario =
        Scenario::load(&scenario::root(), "torn-write").expect("the scenario is there");
    // Alone: a log that is never synced breaks other laws too, and by more than one operation.
    scenario.check.only = Some("pool.acked_is_durable".to_owned());
    let watch = Watch {
        bug: Some(bug_name.to_owned()),
        ..Watch::default()
    };
    let nodes = catalogue::node_names(&scenario);
    let mut faults: Vec<Planned> = (1..)
        .flat_map(|seed| plan::draw(&scenario, seed, &nodes))
        .take(50)
        .collect();
    faults.sort_by_key(|planned| planned.at_us);
    let plan = Plan {
        faults,
        ..Plan::draw(&scenario, 1)
    };
    assert!(plan.ops.len() > 200, "{} operations", plan.ops.len());

    let run = run::run_plan(&scenario, 1, &watch, plan.clone());
    let violation = run.violation().expect("the planted bug shows").clone();
    let shrunk = shrink::shrink(&scenario, 1, &plan, &violation.fingerprint(), &watch);
    assert_eq!((shrunk.from, shrunk.from_ops), (50, plan.ops.len()));
    assert!(
        shrunk.minimal && shrunk.took.as_secs() < 60,
        "{:?}",
        shrunk.took
    );
    let left = &shrunk.plan;
    assert!((1..=3).contains(&left.faults.len()), "{left:?}");
    assert!((1..=3).contains(&left.ops.len()), "{left:?}");
    assert!(left.buggify.is_empty(), "{left:?}");
    assert!(
        shrunk.needed.iter().all(|needed| *needed),
        "it passes without any one of them"
    );

    assert!(shrunk.run.options.join("").contains("operations are left"));
    let told = shrunk.run.violation().expect("it still fails");
    assert_eq!(told.fingerprint(), violation.fingerprint());
    let bug = Bug::new(&shrunk.run, "test".to_owned()).expect("the run failed");
    assert_eq!((&bug.plan, &bug.said), (left, &told.why));
    let file = std::env::temp_dir().join(format!("sim-shrink-{}.toml", std::process::id()));
    std::fs::write(&file, bug.to_text()).expect("the bug file is written");
    let replay = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_sim"))
            .arg("replay")
            .arg(&file)
            .args(args)
            .output();
        let out = out.expect("sim can be started");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
        )
    };
    let (code, told) = replay(&["--bug", bug_name]);
    assert!(
        code == Some(1) && told.contains(&format!("reproduced: filed as {}", violation.oracle)),
        "{told}"
    );
    let (code, told) = replay(&[]);
    assert!(
        code == Some(0) && told.contains("no longer reproduces"),
        "{told}"
    );
    std::fs::remove_file(&file).expect("the file goes");
}
