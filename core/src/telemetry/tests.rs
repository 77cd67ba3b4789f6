//! What the exported metrics promise.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{seam::Pool, test_env::World};

struct FixedQueue(&'static str, u64);

impl QueueView for FixedQueue {
    fn stats(&self) -> QueueStats {
        QueueStats {
            name: self.0,
            cap: 512,
            depth: 3,
            dropped: 4,
            refused: self.1,
            ..QueueStats::default()
        }
    }
}

struct FixedTasks;

impl TaskView for FixedTasks {
    fn tasks(&self) -> BTreeMap<&'static str, TaskCounts> {
        let counts = TaskCounts {
            alive: 1,
            spawned: 5,
            restarted: 2,
            panicked: 1,
            canceled: 3,
            aborted: 4,
        };
        BTreeMap::from([("worker", counts)])
    }
}

#[track_caller]
fn assert_exports(telemetry: &Telemetry, lines: &[&str]) {
    let text = telemetry.render();
    for line in lines {
        assert!(
            text.lines().any(|l| l == *line),
            "missing `{line}` in\n{text}"
        );
    }
}

// proves: KMS-9.1, KMS-9.2, KMS-9.3, EDG-9.1, EDG-9.2, DHT-9.1, DHT-9.2, DHT-9.6, RWD-9.1, RWD-9.2, RWD-9.3
#[test]
fn queues_export_depth_drops_and_refusals_with_the_union_of_labels() {
    let telemetry = Telemetry::new("kms", "");
    telemetry.watch_queue(Arc::new(FixedQueue("sign", 7)));
    telemetry.watch_queue_as(
        Arc::new(FixedQueue("fill", 8)),
        Refusals::Busy {
            endpoint: "/edge/assets",
        },
    );
    telemetry.watch_queue_as(Arc::new(FixedQueue("work", 9)), Refusals::Dropped);
    telemetry
        .kernel()
        .busy_rejections
        .with(&["/sign", ""])
        .inc();
    // A handler that counts a queue's refusal by hand adds to the same series, not to a twin of it.
    telemetry.kernel().busy_rejections.with(&["", "sign"]).inc();
    assert_exports(
        &telemetry,
        &[
            r#"queue_depth{queue="sign"} 3"#,
            r#"queue_dropped_total{queue="sign"} 4"#,
            r#"queue_dropped_total{queue="work"} 13"#,
            r#"busy_rejections_total{endpoint="",queue="sign"} 8"#,
            r#"busy_rejections_total{endpoint="/edge/assets",queue="fill"} 8"#,
            r#"busy_rejections_total{endpoint="/sign",queue=""} 1"#,
        ],
    );
    assert!(
        !telemetry
            .render()
            .contains(r#"busy_rejections_total{endpoint="",queue="work"}"#)
    );
}

#[test]
fn queues_of_one_name_are_one_series() {
    let telemetry = Telemetry::new("dht", "");
    for _ in 0..3 {
        telemetry.watch_queue(Arc::new(FixedQueue("route", 1)));
    }
    assert_exports(
        &telemetry,
        &[
            r#"queue_depth{queue="route"} 9"#,
            r#"busy_rejections_total{endpoint="",queue="route"} 3"#,
        ],
    );
    assert_eq!(telemetry.render().matches("queue_depth{").count(), 1);
}

// proves: KMS-9.4, EDG-9.3, DHT-9.3, RWD-9.4, RWD-9.6
#[test]
fn tasks_export_their_counts_by_kind() {
    let telemetry = Telemetry::new("edge", "");
    telemetry.watch_tasks(Arc::new(FixedTasks));
    telemetry.watch_tasks(Arc::new(FixedTasks));
    assert_exports(
        &telemetry,
        &[
            r#"tasks_spawned_total{kind="worker"} 10"#,
            r#"tasks_aborted_total{kind="worker"} 8"#,
            r#"tasks_canceled_total{kind="worker"} 6"#,
            r#"service_restarts_total{task="worker"} 4"#,
        ],
    );
    assert_eq!(telemetry.tasks()["worker"].alive, 2);
}

// proves: KMS-9.5, KMS-9.6, KMS-9.7, EDG-9.4, EDG-9.5, DHT-9.4, DHT-9.5, RWD-9.5
#[test]
fn kernel_counters_carry_their_names_and_labels() {
    let (telemetry, world) = (Telemetry::new("edge", ""), World::new());
    let env = world.env();
    drop(env.offload(Pool::CPU, || ()));
    telemetry.watch_env(&env);
    let lagged = Arc::new(AtomicU64::new(6));
    let read = lagged.clone();
    telemetry.watch_bus("events", move || read.load(Ordering::Relaxed));
    telemetry.watch_counter("hedge_spawned_total", "Hedged probes", || 11);
    telemetry.watch_gauge("verify_cache_age_ms", "Age", || 12.0);
    let kernel = telemetry.kernel();
    kernel.io_timeouts.with(&["sign"]).inc();
    kernel.io_errors.with(&["connect"]).inc();
    kernel.backoff_retries.with(&["live_fill"]).inc_by(2);
    kernel.not_ready.with(&["draining"]).inc();
    kernel.quota_reject.with(&["rate"]).inc();
    kernel.auth_failures.with(&["expired"]).inc();
    kernel.ops_actions.with(&["reload", "done"]).inc();
    kernel.deadline_header_malformed.inc();
    assert_exports(
        &telemetry,
        &[
            r#"io_timeouts_total{op="sign"} 1"#,
            r#"io_errors_total{kind="connect"} 1"#,
            r#"backoff_retries_total{op="live_fill"} 2"#,
            r#"not_ready_total{phase="draining"} 1"#,
            r#"quota_reject_total{kind="rate"} 1"#,
            r#"auth_failures_total{reason="expired"} 1"#,
            r#"ops_actions_total{action="reload",result="done"} 1"#,
            "deadline_header_malformed_total 1",
            "offload_abandoned_total 1",
            r#"bus_lagged_total{bus="events"} 6"#,
            "hedge_spawned_total 11",
            "verify_cache_age_ms 12",
        ],
    );
}

// proves: ADM-9.1, ADM-9.2, ADM-9.3, ADM-9.4, ADM-9.5, ADM-9.6, ADM-9.9
#[test]
fn a_prefix_goes_before_every_name() {
    let telemetry = Telemetry::new("svc-admin", "svc_admin_");
    telemetry.watch_tasks(Arc::new(FixedTasks));
    telemetry.kernel().io_timeouts.with(&["node_call"]).inc();
    telemetry.kernel().io_errors.with(&["parse"]).inc();
    telemetry
        .kernel()
        .busy_rejections
        .with(&["/api/nodes", ""])
        .inc();
    telemetry.kernel().auth_failures.with(&["expired"]).inc();
    telemetry.gauge("own", "Own").set(1);
    assert_exports(
        &telemetry,
        &[
            r#"svc_admin_tasks_spawned_total{kind="worker"} 5"#,
            r#"svc_admin_tasks_aborted_total{kind="worker"} 4"#,
            r#"svc_admin_tasks_canceled_total{kind="worker"} 3"#,
            r#"svc_admin_io_timeouts_total{op="node_call"} 1"#,
            r#"svc_admin_io_errors_total{kind="parse"} 1"#,
            r#"svc_admin_busy_rejections_total{endpoint="/api/nodes",queue=""} 1"#,
            r#"svc_admin_auth_failures_total{reason="expired"} 1"#,
            "svc_admin_own 1",
        ],
    );
    assert!(
        telemetry
            .declared()
            .iter()
            .all(|d| d.name.starts_with("svc_admin_"))
    );
}

#[test]
fn label_values_beyond_the_declared_number_are_counted_as_other() {
    let telemetry = Telemetry::new("rewarder", "");
    let runs = telemetry.counters("runs_total", "Runs", &["epoch", "result"], 2);
    for epoch in ["1", "2", "3", "4", "1"] {
        runs.with(&[epoch, "ok"]).inc();
    }
    assert_exports(
        &telemetry,
        &[
            r#"runs_total{epoch="1",result="ok"} 2"#,
            r#"runs_total{epoch="2",result="ok"} 1"#,
            r#"runs_total{epoch="other",result="other"} 2"#,
        ],
    );
    // A series that is forgotten makes room.
    runs.forget(&["1", "ok"]);
    runs.with(&["5", "ok"]).inc();
    assert_exports(&telemetry, &[r#"runs_total{epoch="5",result="ok"} 1"#]);
    assert!(!telemetry.render().contains(r#"epoch="1""#));
}

#[test]
fn histograms_and_gauges_are_exported_and_everything_exported_is_declared() {
    let telemetry = Telemetry::new("edge", "");
    telemetry
        .histogram("fill_seconds", "Fills", &[0.1, 1.0])
        .observe(0.5);
    telemetry
        .histograms("op_seconds", "Ops", &["op"], 4, &[1.0])
        .with(&["get"])
        .observe(2.0);
    telemetry
        .gauges("load", "Load", &["core"], 4)
        .with(&["0"])
        .set(9);
    telemetry.counter("edge_hits_total", "Hits").inc();
    telemetry.watch_queue(Arc::new(FixedQueue("work", 0)));
    assert_exports(
        &telemetry,
        &[
            r#"fill_seconds_bucket{le="0.1"} 0"#,
            r#"fill_seconds_bucket{le="1"} 1"#,
            r#"op_seconds_count{op="get"} 1"#,
            r#"load{core="0"} 9"#,
            "edge_hits_total 1",
        ],
    );
    let declared = telemetry.declared();
    for line in telemetry
        .render()
        .lines()
        .filter_map(|l| l.strip_prefix("# TYPE "))
    {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(
            declared.iter().any(|d| d.name == name && d.kind == kind),
            "{line}"
        );
    }
    let names: Vec<_> = declared.iter().map(|d| d.name.clone()).collect();
    assert!(names.is_sorted() && names.contains(&"busy_rejections_total".to_owned()));
}

#[test]
#[should_panic(expected = "taken")]
fn a_name_is_taken_once_even_if_its_metric_was_never_used() {
    let telemetry = Telemetry::new("kms", "");
    telemetry.counters("signs_total", "Signs", &["alg"], 4);
    telemetry.gauge("signs_total", "Signs");
}

#[test]
#[should_panic(expected = "not a name")]
fn a_bad_name_is_refused_when_it_is_declared() {
    Telemetry::new("kms", "").counters("signs-total", "Signs", &["alg"], 4);
}

#[test]
fn two_instances_share_nothing() {
    let (a, b) = (Telemetry::new("kms", ""), Telemetry::new("kms", ""));
    a.counter("signs_total", "Signs").inc();
    assert!(!b.render().contains("signs_total"));
    b.counter("signs_total", "Signs");
    assert_exports(&b, &["signs_total 0"]);
}
