//! Wrong words get one line that says what is wrong and what is allowed, and exit code 2: never a panic.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn sim(args: &[&str], scenarios: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(args);
    if let Some(path) = scenarios {
        command.env("SIM_SCENARIOS", path);
    }
    command.output().expect("sim can be started")
}

fn assert_one_line(out: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "exit code; stderr: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "one line, not: {text}");
    assert!(!text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[test]
fn wrong_arguments_are_named_with_what_is_allowed() {
    let table: &[(&[&str], &[&str])] = &[
        (&["fly"], &["\"fly\"", "list, run, sweep"]),
        (&["run"], &["name of one scenario"]),
        (
            &["run", "no-such-scenario"],
            &["\"no-such-scenario\"", "shutdown-race"],
        ),
        (
            &["run", "shutdown-race", "--seed", "seven"],
            &["--seed \"seven\"", "whole number"],
        ),
        (
            &["run", "shutdown-race", "--seed", "-1"],
            &["--seed \"-1\"", "whole number"],
        ),
        (
            &["run", "shutdown-race", "--seed"],
            &["--seed needs a value"],
        ),
        (
            &["run", "shutdown-race", "--speed", "9"],
            &["\"--speed\"", "--seed"],
        ),
        (&["sweep", "--seeds", "0"], &["--seeds 0"]),
        (&["sweep", "--jobs", "many"], &["--jobs \"many\""]),
        (&["list", "everything"], &["\"everything\""]),
        (&["coverage", "--seeds", "0"], &["--seeds 0"]),
        (&["coverage", "no-such-scenario"], &["shutdown-race"]),
        (&["coverage", "--first", "2"], &["\"--first\"", "--seeds"]),
    ];
    for (args, words) in table {
        assert_one_line(&sim(args, None), words);
    }
}

/// A scenario that is fine, with one piece of it replaced.
fn broken(from: &str, to: &str) -> PathBuf {
    let good = "about = \"x\"\n\n[[node]]\nname = \"pool\"\nservice = \"pool\"\nconfig = { workers = 2 }\n\n\
        [[workload]]\nkind = \"pool.put\"\nfor_s = 1\n\n[[fault]]\nkind = \"disk.stall\"\non = \"pool\"\nat_s = [0, 1]\n\n\
        [check]\nexcept = { \"http.one_outcome\" = \"x\" }\neventually = { within_s = 2, hold = [\"ready\"] }\n";
    assert!(good.contains(from), "{from:?} is no part of it");
    let name = format!(
        "sim-bad-input-{}-{}",
        std::process::id(),
        blake3::hash(to.as_bytes()).to_hex()
    );
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder for the scenario");
    std::fs::write(folder.join("bad.toml"), good.replacen(from, to, 1))
        .expect("the scenario is written");
    folder
}

#[test]
fn a_scenario_with_a_typo_names_the_file_the_line_and_what_is_allowed() {
    let table: &[(&str, &str, &[&str])] = &[
        ("about", "abuot", &["bad.toml:1:", "abuot"]),
        (
            "service = \"pool\"",
            "service = \"pol\"",
            &["bad.toml:5:", "node.service", "\"pol\"", "pool"],
        ),
        (
            "workers = 2",
            "workerz = 2",
            &["bad.toml:6:", "workerz", "workers"],
        ),
        ("workers = 2", "workers = 0", &["bad.toml:6:", "1..=64"]),
        (
            "pool.put",
            "pool.putt",
            &["bad.toml:9:", "\"pool.putt\"", "pool.burst"],
        ),
        ("for_s = 1", "for_s = \"long\"", &["bad.toml:10:"]),
        (
            "for_s = 1",
            "every_ms = 1",
            &["bad.toml:10:", "every_ms", "clients"],
        ),
        (
            "disk.stall",
            "disk.stale",
            &["bad.toml:13:", "\"disk.stale\"", "disk.stall"],
        ),
        (
            "on = \"pool\"",
            "on = \"pond\"",
            &["bad.toml:14:", "fault.on", "\"pond\""],
        ),
        (
            "at_s = [0, 1]",
            "at_s = [2, 1]",
            &["bad.toml:15:", "no range"],
        ),
        (
            "at_s = [0, 1]",
            "nth = 1",
            &["bad.toml:15:", "\"nth\"", "for_ms"],
        ),
        (
            "http.one_outcome",
            "http.two_outcomes",
            &["bad.toml:18:", "http.one_outcome"],
        ),
        (
            "= \"x\" }",
            "= \"\" }",
            &["bad.toml:18:", "http.one_outcome", "without a reason"],
        ),
        (
            "http.one_outcome",
            "kms.nonce_once",
            &["bad.toml:18:", "\"kms.nonce_once\""],
        ),
        (
            "\"ready\"",
            "\"happy\"",
            &["bad.toml:19:", "\"happy\"", "serves"],
        ),
        (
            "at_s = [0, 1]",
            "at_s = [0, 1e300]",
            &["bad.toml:15:", "1e12"],
        ),
        (
            "at_s = [0, 1]",
            "times = 1e7",
            &["bad.toml:15:", "fault.times", "100000"],
        ),
        (
            "service = \"pool\"",
            "service = \"pool\"\ncount = 0",
            &["bad.toml:6:", "node.count", "1 to 1000"],
        ),
        (
            "service = \"pool\"",
            "service = \"pool\"\ncount = 4000000000",
            &["bad.toml:6:", "node.count", "1 to 1000"],
        ),
        (
            "for_s = 1",
            "clients = 1e9",
            &["bad.toml:10:", "workload.clients"],
        ),
        (
            "within_s = 2",
            "within_s = -2",
            &["bad.toml:19:", "within_s", "0 to 10000"],
        ),
        (
            "[check]",
            "[seeds]\ntest = 0\n[check]",
            &["bad.toml", "seeds.test", "1 to"],
        ),
        ("[check]", "[chekc]", &["bad.toml", "chekc"]),
        (
            "disk.stall",
            "disk.bit_rot",
            &["bad.toml:13:", "disk.bit_rot", "beyond_promise = true"],
        ),
        (
            "kind = \"disk.stall\"",
            "kind = \"net.loss\"\nper_10_000 = 5\nfor_ms = [20, 500]",
            &["bad.toml:13:", "flap", "from 100"],
        ),
        (
            "workers = 2",
            "workers = [2, 65]",
            &["bad.toml:6:", "workers = 65", "1..=64"],
        ),
        (
            "for_s = 1",
            "rate_per_s = 1e9",
            &["bad.toml:", "requests in all", "1000000"],
        ),
        (
            "[check]",
            "[swarm]\nfault = true\n[check]",
            &["bad.toml:17:", "fault", "most_down"],
        ),
        ("about = \"x\"", "about = \"x", &["bad.toml:1:"]),
    ];
    for (from, to, words) in table {
        let folder = broken(from, to);
        assert_one_line(&sim(&["run", "bad"], Some(&folder)), words);
        assert_one_line(&sim(&["list"], Some(&folder)), words);
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}

#[test]
fn a_missing_folder_of_scenarios_is_said() {
    assert_one_line(
        &sim(&["list"], Some(Path::new("/nonexistent/scenarios"))),
        &["/nonexistent/scenarios"],
    );
}
