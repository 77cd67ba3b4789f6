//! More is asked than can be done: who is refused, how fast, and what is counted.

use std::{sync::Arc, time::Duration};

use ron_core::view::QueueStats;
use serde_json::json;

use crate::clockwork::{
    backend::Mood,
    in_world,
    node::{Answer, Node},
};

/// What one signer carries besides what waits in the queue.
const IN_HAND: usize = 64;

fn stats(node: &Node, name: &str) -> QueueStats {
    let all = node.telemetry.queues();
    all.into_iter().find(|q| q.name == name).unwrap()
}

/// As many callers as that, who sign and wait.
fn callers(node: &Arc<Node>, kid: &str, count: usize) -> Vec<tokio::task::JoinHandle<Answer>> {
    let call = |_| {
        let (node, kid) = (node.clone(), kid.to_owned());
        tokio::spawn(async move { node.sign(&kid).await })
    };
    (0..count).map(call).collect()
}

// proves: KMS-1.9, KMS-3.1, KMS-3.6, KMS-8.1, KMS-9.3, KMS-10.1, KMS-13.2
#[test]
fn a_full_sign_queue_refuses_the_newcomer_at_once_and_serves_every_older_job() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.signers = 1;
            config.tenant_inflight = 60_000;
            config.http.max_conns_per_peer = 0;
        });
        let node = Arc::new(node.await);
        let kid = node.key("ed25519").await;
        node.backend.set("sign", Mood::Hangs);
        let mut older = callers(&node, &kid, IN_HAND);
        world.pass(1).await;
        older.extend(callers(&node, &kid, 512));
        world.pass(1).await;
        assert_eq!(stats(&node, "sign").depth, 512);
        assert_eq!(node.metric("queue_depth{queue=\"sign\"}"), 512.0);
        assert_eq!(
            node.metric("busy_rejections_total{endpoint=\"\",queue=\"sign\"}"),
            0.0
        );

        let (took, newcomer) = world.timed(node.sign(&kid)).await;
        assert_eq!(newcomer.told(), (429, "busy"));
        assert_eq!(newcomer.json["retryable"], true);
        assert_eq!(newcomer.header("retry-after"), Some("1"));
        assert_eq!(took, 0, "it fails fast");
        assert_eq!(
            node.metric("busy_rejections_total{endpoint=\"\",queue=\"sign\"}"),
            1.0
        );
        assert_eq!(stats(&node, "sign").depth, 512);

        node.backend.set("sign", Mood::Well);
        for job in older {
            assert_eq!(job.await.unwrap().status, 200);
        }
        assert_eq!(stats(&node, "sign").dropped, 0);
        assert_eq!(
            node.sign(&kid).await.status,
            200,
            "the caller may try again"
        );
    });
}

// proves: KMS-3.1, KMS-3.2, KMS-12.2
#[test]
fn queues_have_the_capacities_of_the_configuration() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        assert_eq!(
            (stats(&node, "sign").cap, stats(&node, "audit").cap),
            (512, 2048)
        );
        node.finish().await;
        let node = Node::start(&world, |config| {
            config.queue_cap = 7;
            config.audit.queue_cap = 9;
        });
        let node = node.await;
        assert_eq!(
            (stats(&node, "sign").cap, stats(&node, "audit").cap),
            (7, 9)
        );
    });
}

// proves: KMS-2.1
#[test]
fn the_listener_applies_quota_and_limits_before_anything_is_queued() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.tenant_inflight = 3;
            config.ingress.max_inflight = 5;
            config.ingress.body_bytes = 2_000;
        });
        let node = Arc::new(node.await);
        let kid = node.key("ed25519").await;
        let body = json!({ "purpose": "test", "alg": "ed25519", "tenant": "other" });
        let other = node.post("/keys", body).await.json;
        let other = other["kid"].as_str().unwrap().to_owned();

        let long = "A".repeat(3_000);
        let long = node
            .post("/sign", json!({ "kid": kid, "message": long }))
            .await;
        assert_eq!(long.status, 413);

        node.backend.set("sign", Mood::Hangs);
        let mut waiting = callers(&node, &kid, 3);
        world.pass(1).await;
        assert_eq!(node.sign(&kid).await.told(), (429, "tenant_busy"));
        assert_eq!(node.metric("quota_reject_total{kind=\"tenant\"}"), 1.0);
        waiting.extend(callers(&node, &other, 2));
        world.pass(1).await;
        assert_eq!(
            stats(&node, "sign").delivered,
            2 + 5,
            "of another tenant, and taken"
        );
        let beyond = node.sign(&other).await;
        assert_eq!(beyond.status, 429, "six at once");
        assert_eq!(stats(&node, "sign").offered, 2 + 5, "it was never queued");
        assert_eq!(
            node.get("/healthz").await.status,
            200,
            "not held up by that"
        );
        node.backend.set("sign", Mood::Well);
        for job in waiting {
            assert_eq!(job.await.unwrap().status, 200);
        }
        let missing = node.get("/v1/kms/nothing").await;
        assert_eq!(missing.status, 404);
    });
}

// proves: KMS-2.3
#[test]
fn verifying_waits_for_no_queue_no_signer_and_no_backend() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.signers = 1;
            config.queue_cap = IN_HAND;
        });
        let node = Arc::new(node.await);
        let kid = node.key("ed25519").await;
        let signed = node.sign(&kid).await.json;
        node.backend.set("sign", Mood::Hangs);
        let _in_hand = callers(&node, &kid, IN_HAND);
        world.pass(1).await;
        let _waiting = callers(&node, &kid, IN_HAND);
        world.pass(1).await;
        assert_eq!(node.sign(&kid).await.told(), (429, "busy"));
        let calls = node.backend.calls("check").len();
        let offered = stats(&node, "sign").offered;
        let body = json!({ "kid": kid, "message": "aGVsbG8", "sigs": signed["sigs"] });
        let (took, verified) = world.timed(node.post("/verify", body)).await;
        assert_eq!((took, verified.status), (0, 200));
        assert_eq!(verified.json["valid"], true);
        assert_eq!(node.backend.calls("check").len(), calls);
        assert_eq!(stats(&node, "sign").offered, offered);
    });
}

// proves: KMS-1.2
#[test]
fn many_who_rotate_one_key_at_once_each_make_a_version_of_their_own() {
    in_world(|world| async move {
        let node = Arc::new(Node::start(&world, |_| {}).await);
        let (kid, wrapping) = (node.key("ed25519").await, node.key("aes-256-gcm").await);
        node.backend
            .set("generate", Mood::Slow(Duration::from_millis(3)));
        let rotate = |_| {
            let (node, path) = (node.clone(), format!("/keys/{kid}/rotate"));
            tokio::spawn(async move { node.post(&path, json!({})).await })
        };
        let rotating: Vec<_> = (0..20).map(rotate).collect();
        let wrap = |_| {
            let (node, kid) = (node.clone(), wrapping.clone());
            let body = json!({ "kid": kid, "plaintext": "AA" });
            tokio::spawn(async move { node.post("/wrap", body).await })
        };
        let wrapping: Vec<_> = (0..200).map(wrap).collect();
        let mut heads = Vec::new();
        for rotated in rotating {
            let rotated = rotated.await.unwrap();
            assert_eq!(rotated.status, 200, "{}", rotated.json);
            heads.push(rotated.json["head"].as_u64().unwrap());
        }
        heads.sort_unstable();
        assert_eq!(heads, (2..=21).collect::<Vec<u64>>());
        let mut blobs = std::collections::BTreeSet::new();
        for wrapped in wrapping {
            let wrapped = wrapped.await.unwrap();
            assert_eq!(wrapped.status, 200, "{}", wrapped.json);
            // Equal plain bytes under one nonce would be equal blobs.
            assert!(blobs.insert(wrapped.json["wrapped"].as_str().unwrap().to_owned()));
        }
    });
}
