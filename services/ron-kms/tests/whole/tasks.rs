//! Supervision: what is restarted, what ends the process, what a killed signer costs.

use std::sync::Arc;

use ron_core::supervisor::Exit;

use crate::clockwork::{World, backend::Mood, in_world, node::Node};

/// Kills this task whenever it lives, until the process ends or it has happened often enough.
async fn kill_again_and_again(world: &World, node: &Node, kind: &str) -> u32 {
    let mut killed = 0;
    for _ in 0..2_000 {
        let status = node.view.status();
        if status.state != "running" || killed == 14 {
            break;
        }
        let mut alive = status
            .tasks
            .iter()
            .filter(|t| t.kind == kind && t.state == "alive");
        if let Some(task) = alive.next() {
            node.view.kill(task.id);
            killed += 1;
        }
        world.pass(20).await;
    }
    killed
}

// proves: KMS-2.1, KMS-2.4
#[test]
fn a_listener_or_appender_that_keeps_failing_ends_the_process() {
    for kind in ["listener", "appender"] {
        in_world(|world| async move {
            let node = Node::start(&world, |_| {}).await;
            let killed = kill_again_and_again(&world, &node, kind).await;
            assert_eq!(killed, 11, "ten restarts a minute are allowed");
            let ended = node.ended.await.unwrap();
            assert_eq!(ended.report.exit, Exit::Escalated(kind.to_owned()));
            assert_eq!(ended.report.exit_code(), 1);
        });
    }
}

// proves: KMS-2.5, KMS-2.6, KMS-2.7, KMS-2.8
#[test]
fn any_other_task_that_keeps_failing_turns_readiness_off_and_no_more() {
    for kind in ["checkpointer", "attester", "keeper", "config_watch"] {
        in_world(|world| async move {
            let node = Node::start(&world, |_| {}).await;
            let kid = node.key("ed25519").await;
            let killed = kill_again_and_again(&world, &node, kind).await;
            assert_eq!(killed, 14);
            assert_eq!(node.view.status().state, "running", "{kind}");
            assert_eq!(node.missing().await, [format!("task:{kind}")]);
            assert_eq!(node.sign(&kid).await.status, 200, "{kind}");
            world.pass(30_000).await;
            assert_eq!(
                node.missing().await,
                Vec::<String>::new(),
                "{kind}: well again"
            );
        });
    }
}

// proves: KMS-2.1
#[test]
fn a_listener_that_dies_listens_again_at_the_same_address() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ed25519").await;
        node.kill("listener");
        world.pass(500).await;
        assert_eq!(node.sign(&kid).await.status, 200);
        assert_eq!(
            node.metric("service_restarts_total{task=\"listener\"}"),
            1.0
        );
    });
}

// proves: KMS-10.9, KMS-2.2
#[test]
fn killing_signers_under_load_refills_the_pool_keeps_p95_and_readiness() {
    in_world(|world| async move {
        let node = Arc::new(Node::start(&world, |config| config.signers = 3).await);
        let kid = node.key("ed25519").await;
        let took = std::time::Duration::from_millis(4);
        node.backend
            .set("sign", crate::clockwork::backend::Mood::Slow(took));
        let caller = |n: u64| {
            let (node, kid, world) = (node.clone(), kid.clone(), world.clone());
            tokio::spawn(async move {
                world.pass(n * 10).await;
                let (took, answer) = world.timed(node.sign(&kid)).await;
                (took, answer.told().0, answer.code().to_owned())
            })
        };
        let callers: Vec<_> = (0..500).map(caller).collect();
        for kill in 0..8 {
            world.pass(600).await;
            let status = node.view.status();
            let mut signers = status
                .tasks
                .iter()
                .filter(|t| t.kind == "signer" && t.state == "alive");
            let signer = signers.nth(kill % 2).expect("the pool was refilled");
            assert!(node.view.kill(signer.id));
            assert_eq!(node.missing().await, Vec::<String>::new());
        }
        let mut times = Vec::new();
        let mut lost = 0;
        for caller in callers {
            match caller.await.unwrap() {
                (took, 200, _) => times.push(took),
                (_, 503, code) => {
                    assert_eq!(code, "worker_lost");
                    lost += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        times.sort_unstable();
        let p95 = times[times.len() * 95 / 100];
        assert!(p95 <= 50, "{p95} ms");
        assert!(lost <= 8 * 2, "only what was in hand: {lost}");
        world.pass(10_000).await;
        let status = node.view.status();
        let alive = status
            .tasks
            .iter()
            .filter(|t| t.kind == "signer" && t.state == "alive");
        assert_eq!(alive.count(), 3);
        assert_eq!(node.metric("service_restarts_total{task=\"signer\"}"), 8.0);
        assert_eq!(node.metric("tasks_spawned_total{kind=\"signer\"}"), 11.0);
    });
}

#[test]
fn a_short_sign_needs_no_signer_while_nobody_waits_and_is_recorded_all_the_same() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.signers = 1).await;
        let kid = node.key("ed25519").await;
        node.backend.set("sign", Mood::Quick);
        node.kill("signer");
        for _ in 0..3 {
            let (took, answer) = world.timed(node.sign(&kid)).await;
            assert_eq!((took, answer.status), (0, 200), "{}", answer.json);
        }
        // Who needs the queue waits for the signer that is restarted.
        node.backend.set("sign", Mood::Well);
        let (took, answer) = world.timed(node.sign(&kid)).await;
        assert_eq!(answer.status, 200);
        assert!(took >= 50, "{took}");
        let ended = node.finish().await;
        // The start's reservation, the key, four signatures and the end.
        assert_eq!(ended.records, 7);
    });
}
