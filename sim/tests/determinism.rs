//! One seed, two processes, one trace: for every scenario. Two processes, because statics, hash seeds
//! and addresses that differ between processes are just what a check inside one would miss.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::{
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
};

use libtest_mimic::{Arguments, Failed, Trial};
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

fn main() -> ExitCode {
    let args = Arguments::from_args();
    let root = scenario::root();
    let names = scenario::names(&root).expect("scenarios can be listed");
    assert!(names.len() >= 13, "the kernel's scenarios are there");
    let mut trials: Vec<Trial> = names
        .into_iter()
        .map(|name| {
            let root = root.clone();
            let title = format!("{}::gives_the_same_trace", name.replace('/', "::"));
            Trial::test(title, move || same_trace_in_two_processes(&root, &name))
        })
        .collect();
    trials.push(Trial::test("real_randomness_is_caught", || {
        a_service_that_draws_on_the_real_world_is_caught();
        Ok(())
    }));
    libtest_mimic::run(&args, trials).exit_code()
}

fn same_trace_in_two_processes(root: &Path, name: &str) -> Result<(), Failed> {
    let mut traces = Vec::new();
    for seed in [1, 77] {
        let both = [(); 2].map(|()| start(root, name, seed));
        let [first, second] = both.map(trace_of);
        if first != second {
            return Err(format!("{name} seed {seed}: {first} and {second}").into());
        }
        traces.push(first);
    }
    match traces[0] == traces[1] {
        true => Err(format!("{name}: the seed changes nothing").into()),
        false => Ok(()),
    }
}

fn a_service_that_draws_on_the_real_world_is_caught() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/flaky");
    let traces: std::collections::BTreeSet<_> =
        (0..4).map(|_| trace_of(start(&root, "flaky", 1))).collect();
    assert!(
        traces.len() > 1,
        "four processes agreed on a trace that depends on real randomness"
    );
}
