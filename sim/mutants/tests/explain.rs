//! A failing run is explained: what it needs, where it leaves the run that passes, and what the page holds.
#![allow(
    clippy::disallowed_methods,
    reason = "it drives simulations from outside of them"
)]

use std::process::Command;

use sim::{
    explain::{Without, explain},
    perfetto,
    run::{self, Watch},
    scenario::{self, Scenario},
    timeline,
};

const BUG: &str = "pool.ack_before_sync";

fn torn_write() -> Scenario {
    Scenario::load(&scenario::root(), "torn-write").expect("the scenario is there")
}

/// A seed in which the planted bug shows.
fn failing() -> (Scenario, run::RunResult) {
    let scenario = torn_write();
    let watch = Watch {
        bug: Some(BUG.to_owned()),
        ..Watch::default()
    };
    let run = (1..40)
        .map(|seed| run::run(&scenario, seed, &watch))
        .find(|run| {
            run.violation()
                .is_some_and(|v| v.oracle == "pool.acked_is_durable")
        });
    (scenario, run.expect("the planted bug shows in some seed"))
}

#[test]
fn watching_closely_changes_nothing_of_the_run() {
    for name in ["torn-write", "partition-heal"] {
        let scenario = Scenario::load(&scenario::root(), name).expect("the scenario is there");
        for seed in 1..4 {
            let watch = |detail| Watch {
                detail,
                ..Watch::default()
            };
            let plain = run::run(&scenario, seed, &watch(false));
            let close = run::run(&scenario, seed, &watch(true));
            assert_eq!(plain.record.hash, close.record.hash, "{name} {seed}");
            assert!(plain.record.detail.is_none());
            let detail = close.record.detail.expect("it was asked for");
            assert_eq!(detail.events.len() as u64, close.record.events);
            assert!(!detail.messages.is_empty() && !detail.depths.is_empty());
            assert!(
                detail
                    .messages
                    .iter()
                    .all(|m| m.arrives >= Some(m.sent) || m.arrives.is_none())
            );
            let held = detail.messages.iter().any(|m| m.arrives.is_none());
            assert_eq!(held, name == "partition-heal", "{name} {seed}");
        }
    }
}

#[test]
fn the_fault_that_is_needed_is_named_and_the_runs_part_at_what_it_did() {
    let (scenario, run) = failing();
    let shrunk = sim::shrink::shrink(
        &scenario,
        run.seed,
        &run.plan,
        &run.violation().expect("it failed").fingerprint(),
        &Watch {
            bug: Some(BUG.to_owned()),
            ..Watch::default()
        },
    );
    // A fault that does nothing is told apart from the one that is needed.
    let mut plan = shrunk.plan.clone();
    let mut idle = plan.faults[0].clone();
    idle.fault = sim::plan::Fault::ClockJump { by_ms: 5 };
    plan.faults.push(idle);
    let explanation = explain(&scenario, run.seed, &plan, Some(BUG));
    let without: Vec<_> = explanation.needs.iter().map(|n| &n.without).collect();
    assert_eq!(without, [&Without::Passes, &Without::FailsAllTheSame]);
    let parts = explanation.parts.as_ref().expect("it passes without it");
    assert_eq!(parts.lacks, 0);
    assert!(parts.failing[0].contains("died: "), "{:?}", parts.failing);
    assert!(!parts.passing.is_empty() && parts.passing != parts.failing);
    assert!(!parts.both.iter().any(|line| line.contains("fault node")));
    let text = explanation.text();
    assert!(text.contains("passes without it") && text.contains("fails all the same without it"));

    let page = timeline::html(&explanation, "replay");
    let events = explanation.run.record.events;
    assert!(page.contains("pool.acked_is_durable"));
    let column = page.split("\"x\":[").nth(1).expect("the texts");
    let column = &column[..column.find("]}").or(column.find(']')).expect("their end")];
    assert!(column.matches("\",\"").count() as u64 + 1 >= events);
    let trace = perfetto::trace(&explanation.run);
    let slices = trace["traceEvents"].as_array().expect("a list");
    assert!(slices.len() as u64 > events);
}

#[test]
fn a_run_that_passes_has_a_page_and_nothing_to_explain() {
    let scenario = torn_write();
    let run = run::run(&scenario, 1, &Watch::default());
    let explanation = explain(&scenario, 1, &run.plan, None);
    assert!(explanation.needs.is_empty() && explanation.parts.is_none());
    assert!(timeline::html(&explanation, "").contains("\"verdict\":null"));
}

#[test]
fn the_command_writes_both_files_and_refuses_what_it_cannot_explain() {
    let folder = std::env::temp_dir().join(format!("sim-explain-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (html, json) = (folder.join("a.html"), folder.join("a.json"));
    let sim = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output();
        let out = out.expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (html, json) = (html.display().to_string(), json.display().to_string());
    let seed = failing().1.seed.to_string();
    let args = ["explain", "torn-write", "--seed", &seed, "--bug", BUG];
    let (code, told, _) = sim(&[&args[..], &["--html", &html, "--perfetto", &json]].concat());
    assert_eq!(code, Some(1), "{told}");
    for word in ["replay ", "FAILED ", "needed ", "parts ", "see "] {
        assert!(
            told.lines().any(|line| line.starts_with(word)),
            "{word}: {told}"
        );
    }
    let read = |file| std::fs::read_to_string(file).expect("it was written");
    assert!(read(&html).starts_with("<!doctype html>"));
    let trace: serde_json::Value = serde_json::from_str(&read(&json)).expect("valid JSON");
    assert!(trace["traceEvents"].is_array());
    for (args, says) in [
        (&["explain"][..], "takes one bug file"),
        (&["explain", "torn-write"], "needs its seed"),
        (&["explain", "none.toml"], "cannot be read"),
        (&["explain", "none", "--seed", "1"], "none"),
        (
            &["explain", "torn-write", "--seed", "1", "--html", "/"],
            "cannot be written",
        ),
    ] {
        let (code, _, error) = sim(args);
        assert_eq!(code, Some(2), "{args:?}");
        assert!(
            error.contains(says) && error.lines().count() == 1,
            "{error}"
        );
    }
    let _ = std::fs::remove_dir_all(folder);
}
