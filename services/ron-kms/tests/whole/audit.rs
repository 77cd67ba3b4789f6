//! The audit log under pressure: what waits, what is dropped, what is checkpointed, and by when.

use std::sync::Arc;

use ron_core::seam::{Disk, Open};
use ron_kms::{
    audit::{
        frames,
        record::{Action, Event, KeyChange},
    },
    config::AuditPolicy,
    journal,
};
use serde_json::json;

use crate::clockwork::{World, in_world, node::Node};

/// What the durable records tell, in order.
fn events(world: &World) -> Vec<Event> {
    let file = world.disk().open(journal::LOG, Open::Existing).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let read = file.read_at(0, &mut bytes).unwrap();
    assert_eq!(read, bytes.len());
    let mut events = Vec::new();
    frames::scan(&bytes, |framed| events.push(framed.record.event)).unwrap();
    events
}

fn covered(node: &Node) -> u64 {
    let note = node
        .kms
        .checkpoint()
        .map_or(Vec::new(), |note| note.to_vec());
    let note = String::from_utf8(note).unwrap();
    note.lines().nth(1).map_or(0, |size| size.parse().unwrap())
}

// proves: KMS-2.2, KMS-2.4
#[test]
fn every_sign_unwrap_and_rotation_becomes_a_record_in_order() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let (kid, wrapping) = (node.key("ed25519").await, node.key("aes-256-gcm").await);
        node.sign(&kid).await;
        let body = json!({ "kid": wrapping, "plaintext": "AA" });
        let wrapped = node.post("/wrap", body).await.json;
        let body = json!({ "kid": wrapped["kid"], "wrapped": wrapped["wrapped"] });
        assert_eq!(node.post("/unwrap", body).await.status, 200);
        let path = format!("/keys/{kid}/rotate");
        assert_eq!(node.post(&path, json!({})).await.status, 200);
        node.sign(&kid).await;
        world.pass(5).await;
        let told: Vec<String> = events(&world)
            .iter()
            .filter_map(|event| match event {
                Event::Operation { operation, .. } => {
                    let action = match operation.action {
                        Action::Sign => "sign",
                        Action::Wrap => "wrap",
                        Action::Unwrap => "unwrap",
                        _ => "other",
                    };
                    Some(format!("{action} v{}", operation.version))
                }
                Event::Key {
                    version, change, ..
                } => match change {
                    KeyChange::Created { .. } => Some("created".to_owned()),
                    KeyChange::Rotated { from } => Some(format!("rotated {from} to {version}")),
                    _ => Some("changed".to_owned()),
                },
                _ => None,
            })
            .collect();
        let expected = [
            "created",
            "created",
            "sign v1",
            "wrap v1",
            "unwrap v1",
            "rotated 1 to 2",
            "sign v2",
        ];
        assert_eq!(told, expected);
    });
}

// proves: KMS-2.4, KMS-2.5
#[test]
fn the_appender_tells_the_checkpointer_when_enough_was_appended() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.audit.checkpoint_every_ops = 20;
            config.audit.checkpoint_interval_ms = 3_600_000;
        });
        let node = node.await;
        let kid = node.key("ed25519").await;
        for _ in 0..10 {
            node.sign(&kid).await;
        }
        world.pass(600_000).await;
        assert_eq!(covered(&node), 0, "neither enough nor long ago");
        for _ in 0..10 {
            node.sign(&kid).await;
        }
        // Records wait a few milliseconds for company; the tick is a quarter of an hour away.
        world.pass(30).await;
        assert!(covered(&node) >= 20, "at once, not at the next tick");
    });
}

// proves: KMS-2.5
#[test]
fn a_few_records_are_checkpointed_once_the_interval_has_passed() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.audit.checkpoint_every_ops = 1_000_000;
            config.audit.checkpoint_interval_ms = 8_000;
        });
        let node = node.await;
        let kid = node.key("ed25519").await;
        node.sign(&kid).await;
        world.pass(7_000).await;
        assert_eq!(covered(&node), 0);
        world.pass(3_100).await;
        let first = covered(&node);
        assert!(first >= 2);
        world.pass(60_000).await;
        assert!(
            covered(&node) <= first + 1,
            "nothing new: no endless checkpoints"
        );
    });
}

/// A checkpoint meets a disk that stalls for longer than this.
fn miss_a_checkpoint(limit: u64) {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.audit.checkpoint_deadline_ms = limit;
            config.audit.checkpoint_interval_ms = 4_000;
        });
        let node = node.await;
        let kid = node.key("ed25519").await;
        assert_eq!(node.sign(&kid).await.status, 200);
        // The record is durable; its checkpoint begins at four seconds.
        world.pass(3_500).await;
        world.stall_disk(true);
        world.pass(500 + limit - 20).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        assert_eq!(node.metric("kms_audit_integrity_failed_total"), 0.0);
        world.pass(40).await;
        assert_eq!(node.missing().await, ["checkpoint_recent"]);
        assert_eq!(node.metric("kms_audit_integrity_failed_total"), 1.0);
        assert_eq!(node.metric("io_timeouts_total{op=\"checkpoint\"}"), 1.0);
        assert_eq!(node.sign(&kid).await.status, 200, "signing goes on");
        world.stall_disk(false);
        world.pass(1).await;
        assert_eq!(node.missing().await, Vec::<String>::new(), "on again");
        assert_eq!(node.metric("kms_audit_integrity_failed_total"), 1.0);
        assert!(covered(&node) >= 2);
    });
}

// proves: KMS-5.5, KMS-8.2, KMS-8.5, KMS-9.8, KMS-2.5
#[test]
fn a_checkpoint_that_takes_over_a_second_turns_readiness_off_until_it_is_there() {
    miss_a_checkpoint(1_000);
}

// proves: KMS-12.3
#[test]
fn the_deadline_of_a_checkpoint_is_configurable() {
    miss_a_checkpoint(250);
}

// proves: KMS-1.3, KMS-3.2, KMS-3.7, KMS-3.8, KMS-5.4, KMS-9.2, KMS-13.1
#[test]
fn a_full_audit_queue_waits_and_then_gives_up_its_oldest_event_that_is_no_key_change() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.audit.queue_cap = 4);
        let node = Arc::new(node.await);
        let kid = node.key("ed25519").await;
        world.pass(2_000).await;
        world.stall_disk(true);
        // One is in the appender's hands, three operations and a key change wait.
        node.sign(&kid).await;
        world.pass(190).await;
        assert_eq!(node.metric("io_timeouts_total{op=\"append\"}"), 0.0);
        world.pass(20).await;
        assert_eq!(node.metric("io_timeouts_total{op=\"append\"}"), 1.0);
        let rotating = tokio::spawn({
            let (node, path) = (node.clone(), format!("/keys/{kid}/rotate"));
            async move { node.post(&path, json!({})).await }
        });
        world.pass(1).await;
        for _ in 0..3 {
            let (took, signed) = world.timed(node.sign(&kid)).await;
            assert_eq!((took, signed.status), (0, 200));
        }
        assert_eq!(node.metric("queue_depth{queue=\"audit\"}"), 4.0);
        assert_eq!(node.metric("audit_dropped_total"), 0.0);
        for dropped in [1.0, 2.0] {
            let (took, signed) = world.timed(node.sign(&kid)).await;
            assert_eq!((took, signed.status), (200, 200));
            assert_eq!(node.metric("audit_dropped_total"), dropped);
            assert_eq!(node.metric("queue_dropped_total{queue=\"audit\"}"), dropped);
            assert_eq!(node.metric("queue_depth{queue=\"audit\"}"), 4.0);
        }
        world.stall_disk(false);
        assert_eq!(
            rotating.await.unwrap().status,
            200,
            "a key change is never dropped"
        );
        world.pass(1_000).await;
        let (mut gone, mut kept) = (0, 0);
        for event in events(&world) {
            match event {
                Event::Gap { count, .. } => gone += count,
                Event::Operation { .. } => kept += 1,
                _ => {}
            }
        }
        assert_eq!(
            (gone, kept),
            (2, 4),
            "exactly what was dropped is told as missing"
        );
    });
}

// proves: KMS-1.4
#[test]
fn a_disk_that_hangs_holds_nobody_beyond_a_deadline() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.audit.policy = AuditPolicy::Strict;
            config.audit.checkpoint_interval_ms = 10;
            config.ingress.timeout_secs = 60;
            config.deadline.rotate_ms = 700;
            config.deadline.attest_ms = 500;
        });
        let node = node.await;
        let kid = node.key("ed25519").await;
        world.pass(1_000).await;
        let signs = node.backend.calls("sign").len();
        world.stall_disk(true);
        let (took, signed) = world.timed(node.sign(&kid)).await;
        assert_eq!((took, signed.told()), (2_000, (504, "timeout")));
        assert_eq!(
            node.backend.calls("sign").len(),
            signs,
            "no key was used without its intent"
        );
        assert_eq!(node.metric("io_timeouts_total{op=\"audit\"}"), 1.0);
        let path = format!("/keys/{kid}/rotate");
        let (took, rotated) = world.timed(node.post(&path, json!({}))).await;
        assert_eq!((took, rotated.told()), (700, (504, "timeout")));
        let body = json!({ "kid": kid, "nonce": "AAAAAAAAAAAAAAAAAAAAAA" });
        let (took, attested) = world.timed(node.post("/attest", body)).await;
        assert_eq!((took, attested.told()), (500, (504, "timeout")));
        world.stall_disk(false);
        world.pass(1_000).await;
        assert_eq!(node.sign(&kid).await.status, 200);
        let head = node.get(&format!("/v1/kms/keys/{kid}")).await.json["head"].clone();
        assert_eq!(head, 2, "a change that the log had begun was finished");
    });
}

// proves: KMS-1.4
#[test]
fn reading_from_a_disk_that_hangs_ends_with_the_request() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.audit.checkpoint_interval_ms = 10);
        let node = node.await;
        node.key("ed25519").await;
        world.pass(1_000).await;
        assert_eq!(node.get("/v1/kms/audit/proof/0").await.status, 200);
        world.stall_disk(true);
        for path in ["proof/0", "tile/0/000.p/1"] {
            let (took, answer) = world
                .timed(node.get(&format!("/v1/kms/audit/{path}")))
                .await;
            assert_eq!(took, 5_000, "{path}");
            assert!(
                matches!(answer.status, 503 | 504),
                "{path}: {}",
                answer.status
            );
        }
    });
}

#[test]
fn a_sign_that_comes_before_the_first_numbers_are_reserved_waits_for_them() {
    for (stalled_ms, status) in [(500, 200), (5_000, 503)] {
        in_world(|world| async move {
            let node = Node::start(&world, |_| {}).await;
            let kid = node.key("ed25519").await;
            let (store, backend) = (node.store.clone(), node.backend.clone());
            node.finish().await;
            let stall = || world.stall_disk(true);
            let node = Node::again_then(&world, store, backend, |_| {}, stall).await;
            let node = Arc::new(node);
            let asked = tokio::spawn({
                let (node, kid) = (node.clone(), kid.clone());
                async move { node.sign(&kid).await }
            });
            world.pass(stalled_ms).await;
            world.stall_disk(false);
            let answer = asked.await.unwrap();
            assert_eq!(answer.status, status, "{}", answer.json);
            assert_eq!(node.sign(&kid).await.status, 200);
        });
    }
}

#[test]
fn a_receipt_that_would_not_verify_is_refused_and_counted() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.audit.checkpoint_interval_ms = 10);
        let node = node.await;
        let kid = node.key("ed25519").await;
        node.sign(&kid).await;
        world.pass(1_000).await;
        let failures = || node.metric("kms_audit_integrity_failed_total");
        assert_eq!(node.get("/v1/kms/audit/proof/1").await.status, 200);
        assert_eq!(failures(), 0.0);
        let bundle = format!("audit/tile/entries/000.p/{}", covered(&node));
        let file = world.disk().open(&bundle, Open::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        // Within the text of an entry: all lengths stay sound.
        let at = bytes.windows(4).position(|word| word == b"sign").unwrap();
        file.write_at(at as u64, b"Sign").unwrap();
        let mut damaged = 0.0;
        for index in 0..covered(&node) {
            let answer = node.get(&format!("/v1/kms/audit/proof/{index}")).await;
            if answer.status != 200 {
                assert_eq!(answer.told(), (503, "audit_integrity"), "{index}");
                damaged += 1.0;
            }
        }
        assert_eq!((damaged, failures()), (1.0, 1.0), "one record was changed");
    });
}

#[test]
fn what_a_full_disk_did_not_take_is_counted_and_told_as_a_gap() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ed25519").await;
        world.pass(2_000).await;
        let filler = world.disk().open("filler", Open::Create).unwrap();
        let mut at = 0;
        for size in [1 << 16, 1] {
            while filler.write_at(at, &vec![0; size]).is_ok() {
                at += size as u64;
            }
        }
        assert_eq!(node.sign(&kid).await.status, 200);
        world.pass(100).await;
        assert_eq!(node.metric("audit_dropped_total"), 1.0);
        drop(filler);
        world.disk().remove("filler").unwrap();
        world.pass(5_000).await;
        let gone = events(&world).into_iter().map(|event| match event {
            Event::Gap { count, .. } => count,
            _ => 0,
        });
        assert_eq!(gone.sum::<u64>(), 1);
        assert_eq!(node.metric("audit_dropped_total"), 1.0, "told once");
    });
}

/// The bytes of the log and of its checkpoint.
fn copy(world: &World) -> Vec<(&'static str, Vec<u8>)> {
    let read = |path| {
        let file = world.disk().open(path, Open::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        (path, bytes)
    };
    vec![read(journal::LOG), read(journal::CHECKPOINT)]
}

#[test]
fn an_older_copy_of_the_log_is_known_for_one_and_what_was_disabled_stays_so() {
    for by_change in [true, false] {
        in_world(|world| async move {
            let node = Node::start(&world, |_| {}).await;
            let kid = node.key("ed25519").await;
            let (store, backend) = (node.store.clone(), node.backend.clone());
            node.stop.trigger();
            node.ended.await.unwrap();
            let old = copy(&world);

            let node = Node::again(&world, store.clone(), backend.clone(), |_| {}).await;
            match by_change {
                true => {
                    let path = format!("/keys/{kid}/versions/1/disable");
                    assert_eq!(node.post(&path, json!({})).await.status, 200);
                }
                // The store learns at the end how long the log was.
                false => assert_eq!(node.sign(&kid).await.status, 200),
            }
            node.stop.trigger();
            node.ended.await.unwrap();
            // A tile of the old tree is gone too: from a log that does not fit nothing is written anew.
            let covered = String::from_utf8(old[1].1.clone()).unwrap();
            let covered = covered.lines().nth(1).unwrap().to_owned();
            let tile = format!("audit/tile/0/000.p/{covered}");
            world.disk().remove(&tile).unwrap();
            for (path, bytes) in old {
                let file = world.disk().open(path, Open::Existing).unwrap();
                file.set_len(0).unwrap();
                file.write_at(0, &bytes).unwrap();
            }

            let node = Node::again(&world, store.clone(), backend, |_| {}).await;
            assert!(!node.missing().await.is_empty(), "it is not ready");
            assert!(world.disk().identity(&tile).unwrap().is_none(), "{tile}");
            let state = |stored: ron_kms::keystore::Contents| {
                format!("{:?}", stored.keys[0].key.versions()[&1].state)
            };
            let expected = if by_change { "Disabled" } else { "Enabled" };
            assert_eq!(state(store.load().await.unwrap()), expected);
            let refused = node.sign(&kid).await;
            assert_ne!(refused.status, 200);
            assert_eq!(node.metric("kms_audit_integrity_failed_total"), 1.0);
        });
    }
}
