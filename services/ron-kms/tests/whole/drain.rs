//! The stop: who is refused, what is finished, what is aborted and counted, what is on the disk at the end.

use std::{sync::Arc, time::Duration};

use ron_core::{bus::KernelEvent, supervisor::Exit};
use ron_kms::service::Ended;

use crate::clockwork::{backend::Mood, in_world, node::Node};

const KINDS: [&str; 7] = [
    "appender",
    "attester",
    "checkpointer",
    "config_watch",
    "keeper",
    "listener",
    "signer",
];

fn phases(ended: &Ended) -> Vec<(&str, u64)> {
    let phases = ended.report.phases.iter();
    phases
        .map(|p| (p.name, p.took.as_millis() as u64))
        .collect()
}

// proves: KMS-1.5, KMS-1.11, KMS-3.3, KMS-6.2, KMS-8.3, KMS-1.8
#[test]
fn every_task_ends_at_once_when_asked_whatever_it_was_waiting_for() {
    for mood in [Mood::Well, Mood::Away, Mood::Hangs] {
        in_world(|world| async move {
            let node = Node::start(&world, |config| {
                config.deadline.check_ms = 60_000;
                config.deadline.attest_ms = 60_000;
            });
            let node = node.await;
            node.key("ed25519").await;
            node.backend.set("", mood);
            world.pass(70_000).await;
            let telemetry = node.telemetry.clone();
            assert!(node.stop.trigger());
            assert!(!node.stop.trigger(), "asked twice is asked once");
            let ended = node.ended.await.unwrap();
            assert_eq!(ended.report.aborted_tasks, Vec::<String>::new(), "{mood:?}");
            assert_eq!(ended.report.exit, Exit::Clean);
            let took: u64 = phases(&ended).iter().map(|(_, ms)| ms).sum();
            assert!(took <= 5, "{mood:?}: {:?}", phases(&ended));
            let text = telemetry.render();
            for kind in KINDS {
                let count = if kind == "signer" { 4 } else { 1 };
                let line = format!("tasks_canceled_total{{kind=\"{kind}\"}} {count}");
                assert!(text.contains(&line), "{line}: {text}");
            }
        });
    }
}

// proves: KMS-6.1
#[test]
fn the_shutdown_event_on_the_bus_stops_it_as_a_signal_does() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        node.bus.publish(KernelEvent::Shutdown {
            reason: "asked".to_owned(),
        });
        let ended = node.ended.await.unwrap();
        assert_eq!(ended.report.exit, Exit::Clean);
        assert_eq!(ended.report.aborted, 0);
    });
}

// proves: KMS-6.4, KMS-6.5, KMS-6.6, KMS-1.6
#[test]
fn a_stop_refuses_newcomers_finishes_what_was_accepted_and_checkpoints_all_of_it() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.signers = 1;
            config.audit.checkpoint_interval_ms = 3_600_000;
        });
        let node = Arc::new(node.await);
        let kid = node.key("ed25519").await;
        node.backend
            .set("sign", Mood::Slow(Duration::from_millis(900)));
        // More than one signer carries: some are in its hands, some wait in the queue.
        let accepted: Vec<_> = (0..100)
            .map(|_| {
                let (node, kid) = (node.clone(), kid.clone());
                tokio::spawn(async move { node.sign(&kid).await })
            })
            .collect();
        world.pass(10).await;
        node.stop.trigger();
        world.pass(1).await;
        let refused = node.sign(&kid).await;
        assert_eq!(refused.told(), (503, "draining"));
        assert!(refused.header("retry-after").is_some());
        let refused = node.get("/v1/kms/keys").await;
        assert_eq!(
            refused.told(),
            (503, "draining"),
            "also what needs no queue"
        );
        assert!(refused.header("retry-after").is_some());
        assert_eq!(node.get("/readyz").await.status, 503);
        let mut ok = 0;
        for job in accepted {
            let answer = job.await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.json);
            ok += 1;
        }
        assert_eq!(ok, 100);
        let node = Arc::into_inner(node).unwrap();
        let ended = node.ended.await.unwrap();
        assert_eq!(ended.report.aborted, 0);
        assert_eq!(ended.drained, 100, "those in hand and those still queued");
        assert!(ended.records > 100, "{}", ended.records);
        assert_eq!(ended.covered, ended.records);
        assert!((1_700..=1_800).contains(&phases(&ended)[0].1));
    });
}

/// A signer that never ends.
fn hang_through_a_drain(limit: u64) {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.drain_deadline_ms = limit;
            config.deadline.sign_ms = 60_000;
            config.ingress.timeout_secs = 60;
        });
        let node = Arc::new(node.await);
        let kid = node.key("ed25519").await;
        node.backend.set("sign", Mood::Hangs);
        let stuck = tokio::spawn({
            let (node, kid) = (node.clone(), kid.clone());
            async move { node.sign(&kid).await }
        });
        world.pass(1).await;
        node.stop.trigger();
        let stuck = stuck.await.unwrap();
        assert_eq!((stuck.status, stuck.code()), (503, "worker_lost"));
        let telemetry = node.telemetry.clone();
        let node = Arc::into_inner(node).unwrap();
        let ended = node.ended.await.unwrap();
        assert_eq!(phases(&ended)[0], ("signers", limit));
        assert_eq!(ended.report.aborted, 1);
        assert!(ended.report.aborted_tasks[0].starts_with("signer"));
        let text = telemetry.render();
        assert!(
            text.contains("tasks_aborted_total{kind=\"signer\"} 1"),
            "{text}"
        );
        assert_eq!(
            ended.covered, ended.records,
            "the log is closed all the same"
        );
    });
}

// proves: KMS-6.5, KMS-6.7, KMS-1.6
#[test]
fn a_signer_that_does_not_end_is_aborted_at_three_seconds_and_counted() {
    hang_through_a_drain(3_000);
}

// proves: KMS-12.3
#[test]
fn the_drain_deadline_is_configurable() {
    hang_through_a_drain(450);
}

// proves: KMS-6.6
#[test]
fn the_queue_is_written_out_and_covered_if_the_disk_comes_back_within_a_second() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ed25519").await;
        world.pass(2_000).await;
        world.stall_disk(true);
        for _ in 0..30 {
            assert_eq!(node.sign(&kid).await.status, 200);
        }
        node.stop.trigger();
        world.pass(900).await;
        world.stall_disk(false);
        let ended = node.ended.await.unwrap();
        assert_eq!(ended.report.aborted, 0);
        assert!(ended.records >= 31, "{}", ended.records);
        assert_eq!(ended.covered, ended.records);
    });
}

// proves: KMS-6.6, KMS-6.7
#[test]
fn a_disk_that_never_comes_back_costs_one_second_each_and_the_next_start_tells_a_gap() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ed25519").await;
        node.sign(&kid).await;
        world.stall_disk(true);
        node.sign(&kid).await;
        let (store, backend) = (node.store.clone(), node.backend.clone());
        let ended = node.finish().await;
        let took = phases(&ended);
        assert_eq!(took[1], ("audit", 1_000), "{took:?}");
        assert_eq!(took[2].0, "checkpoint");
        assert!(took[2].1 <= 1_000, "{took:?}");
        assert!(ended.report.aborted_tasks.contains(&"appender".to_owned()));
        world.stall_disk(false);
        world.pass(1_000).await;
        let node = Node::again(&world, store, backend, |_| {}).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        assert_eq!(node.sign(&kid).await.status, 200);
        let ended = node.finish().await;
        assert_eq!(ended.covered, ended.records);
    });
}
