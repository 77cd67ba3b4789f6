//! One seed, two processes, one trace: for every scenario. Two processes, because statics, hash seeds
//! and addresses that differ between processes are just what a check inside one would miss.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use sim::scenario;

/// Starts one seed in a process of its own.
fn start(scenarios: &Path, name: &str, seed: u64) -> Child {
    Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(["run", name, "--seed", &seed.to_string()])
        .env("SIM_SCENARIOS", scenarios)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sim can be started")
}

/// The `trace <hex>` line of a run.
fn trace_of(run: Child) -> String {
    let out = run.wait_with_output().expect("sim can be waited for");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let trace = text.lines().find(|line| line.starts_with("trace "));
    trace
        .unwrap_or_else(|| panic!("no trace was told:\n{text}"))
        .to_owned()
}

#[test]
fn every_scenario_gives_the_same_trace_in_two_processes() {
    let root = scenario::root();
    let names = scenario::names(&root).expect("scenarios can be listed");
    assert!(names.len() >= 13, "the kernel's scenarios are there");
    for name in names {
        let traces = [1, 77].map(|seed| {
            let both = [(); 2].map(|()| start(&root, &name, seed));
            let [first, second] = both.map(trace_of);
            assert_eq!(first, second, "{name} seed {seed} is not deterministic");
            first
        });
        assert_ne!(traces[0], traces[1], "{name}: the seed changes nothing");
    }
}

#[test]
fn a_service_that_draws_on_the_real_world_is_caught() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/flaky");
    let traces: std::collections::BTreeSet<_> =
        (0..4).map(|_| trace_of(start(&root, "flaky", 1))).collect();
    assert!(
        traces.len() > 1,
        "four processes agreed on a trace that depends on real randomness"
    );
}
