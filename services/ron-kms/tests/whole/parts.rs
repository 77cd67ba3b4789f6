//! What the service declares of itself: names, capacities, timeouts, locks, metrics; and that it is so.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ron_core::{
    app,
    config::Settings,
    lock::{LockDecl, RankedMutex},
};
use ron_kms::{
    attester, auditor,
    config::Config,
    engine, journal, nonces, ring,
    topology::{self, declare},
};

use crate::clockwork::{backend::Mood, in_world, node::Node};

const GENERATED: &str = include_str!("../../../../docs/_generated/ron-kms.md");
const DOCUMENT: &str = include_str!("../../../../docs/ron-kms.md");

// proves: KMS-16.1, KMS-16.2
#[test]
fn the_documentation_lists_the_channels_as_they_are_declared() {
    let (name, page) = topology::page();
    assert_eq!(name, "ron-kms.md");
    assert_eq!(GENERATED, page, "run `cargo xtask docs`");
    for row in [
        "| `sign` | 512 (`queue_cap`) | listener, after the tenant's quota → signers | `RejectNew` |",
        "| `audit` | 2048 (`audit.queue_cap`) | signers → appender | `AuditPolicy { wait: 200ms }` |",
    ] {
        assert!(page.contains(row), "{row}");
    }
    assert!(DOCUMENT.contains("(_generated/ron-kms.md)"), "and is found");
    assert!(DOCUMENT.contains("512") && DOCUMENT.contains("2048"));
}

// proves: KMS-16.2
#[test]
fn the_queues_that_are_built_are_those_that_are_declared() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let mut built: Vec<_> = node
            .telemetry
            .queues()
            .iter()
            .map(|q| (q.name, q.cap))
            .collect();
        built.sort_unstable();
        assert_eq!(built, [("audit", 2048), ("sign", 512)]);
        let page = declare(&Config::default()).0.markdown(&[], &[]);
        for (name, cap) in built {
            assert!(page.contains(&format!("| `{name}` | {cap} (")), "{page}");
        }
        let status = node.view.status();
        for task in &status.tasks {
            assert!(
                page.contains(&format!("| `{}` | `{}` |", task.kind, task.kind)),
                "{task:?}"
            );
        }
        assert_eq!(status.tasks.len(), 4 + 6);
    });
}

const ALL: [LockDecl; 10] = [
    nonces::NONCE_LOCK,
    ring::RING_LOCK,
    auditor::AUDIT_LOCK,
    engine::OP_IDS_LOCK,
    auditor::NOTE_LOCK,
    engine::VERIFY_LOCK,
    attester::EVIDENCE_LOCK,
    journal::JOURNAL_LOCK,
    journal::PUBLISH_LOCK,
    app::CONFIG_LOCK,
];

// proves: KMS-4.5, KMS-4.6, KMS-4.7, KMS-4.8
#[test]
fn nonce_tracker_key_metadata_and_audit_state_are_taken_in_this_order_only() {
    let first: Vec<(&str, u16)> = ALL[..3].iter().map(|lock| (lock.name, lock.rank)).collect();
    assert_eq!(
        first,
        [
            ("nonce_tracker", 1),
            ("keymeta_local", 2),
            ("audit_state", 3)
        ]
    );
    assert!(
        ALL[3..].iter().all(|lock| lock.rank > 3),
        "after all of them"
    );
    let locks: Vec<RankedMutex<()>> = ALL.iter().map(|lock| RankedMutex::new(*lock, ())).collect();
    for (outer, a) in locks.iter().enumerate() {
        for (inner, b) in locks.iter().enumerate() {
            let nested = catch_unwind(AssertUnwindSafe(|| {
                let _a = a.lock();
                let _b = b.lock();
            }));
            assert_eq!(
                nested.is_ok(),
                outer < inner,
                "{} then {}",
                ALL[outer].name,
                ALL[inner].name
            );
        }
    }
}

// Each spawned task of this world is looked at after each of its polls, and so is each offloaded job.
// proves: KMS-1.1, KMS-4.1, KMS-4.4, KMS-10.3
#[test]
fn no_task_waits_with_a_lock_in_hand_whatever_it_waits_for() {
    for mood in [Mood::Well, Mood::Away, Mood::Hangs] {
        in_world(|world| async move {
            let node = Node::start(&world, |config| config.audit.checkpoint_interval_ms = 20);
            let node = std::sync::Arc::new(node.await);
            let kid = node.key("ed25519").await;
            let wrapping = node.key("chacha20-poly1305").await;
            node.backend.set("", mood);
            let ask = |n: u32| {
                let (node, kid, wrapping) = (node.clone(), kid.clone(), wrapping.clone());
                tokio::spawn(async move {
                    let path = format!("/keys/{kid}/rotate");
                    let body = serde_json::json!({ "kid": wrapping, "plaintext": "AA" });
                    match n % 3 {
                        0 => node.sign(&kid).await,
                        1 => node.post(&path, serde_json::json!({})).await,
                        _ => node.post("/wrap", body).await,
                    }
                })
            };
            let asks: Vec<_> = (0..60).map(ask).collect();
            world.stall_disk(true);
            world.pass(300).await;
            world.stall_disk(false);
            for ask in asks {
                ask.await.unwrap();
            }
            node.reload(1, |_| {});
            world.pass(2_000).await;
        });
    }
}

// proves: KMS-1.7
#[test]
fn files_are_reached_on_the_disk_pool_and_heavy_signatures_are_made_on_the_cpu_pool() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("rsa-pss-3072").await;
        let (disk, cpu) = (world.jobs("disk"), world.jobs("cpu"));
        assert!(disk > 0 && cpu > 0);
        assert_eq!(node.sign(&kid).await.status, 200);
        world.pass(2_000).await;
        assert!(world.jobs("cpu") > cpu, "the signature");
        assert!(world.jobs("disk") > disk, "its record and the checkpoint");
    });
}

// proves: KMS-1.7
#[cfg(feature = "pkcs11")]
#[test]
fn a_token_is_reached_on_a_pool_of_its_own() {
    use ron_kms::{
        backend::{BackendError, Pkcs11Backend, Pkcs11Config, TokenName},
        keys::Secret,
    };

    in_world(|world| async move {
        let config = Pkcs11Config {
            module: "no-such-module.so".into(),
            token: TokenName::Label("none".into()),
            pin: Secret::new(Vec::new()),
            sessions: 2,
        };
        let connected = Pkcs11Backend::connect(&world.env(), config).await;
        assert!(matches!(connected, Err(BackendError::Unavailable(_))));
        assert_eq!(world.jobs("pkcs11"), 1, "loading a module blocks");
    });
}

// proves: KMS-9.1, KMS-9.2, KMS-9.4, KMS-9.7, KMS-9.8, KMS-9.9
#[test]
fn metrics_have_the_names_that_operators_know() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let declared: Vec<String> = node
            .telemetry
            .declared()
            .into_iter()
            .map(|m| m.name)
            .collect();
        for name in [
            "queue_depth",
            "queue_dropped_total",
            "busy_rejections_total",
            "tasks_spawned_total",
            "tasks_aborted_total",
            "tasks_canceled_total",
            "io_timeouts_total",
            "backoff_retries_total",
            "bus_lagged_total",
            "kms_audit_integrity_failed_total",
            "audit_dropped_total",
            "verify_cache_age_ms",
            "verify_cache_expired_total",
        ] {
            assert!(declared.iter().any(|known| known == name), "{name}");
        }
        for name in &declared {
            assert!(GENERATED.contains(&format!("| `{name}` |")), "{name}");
        }
        let text = node.telemetry.render();
        for line in [
            "queue_depth{queue=\"sign\"} 0",
            "queue_depth{queue=\"audit\"} 0",
            "queue_dropped_total{queue=\"audit\"} 0",
            "tasks_spawned_total{kind=\"signer\"} 4",
            "kms_audit_integrity_failed_total 0",
            "verify_cache_age_ms 0",
            "bus_lagged_total{bus=\"kernel\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    });
}

// proves: KMS-12.1, KMS-12.2, KMS-12.3, KMS-12.4, KMS-12.5, KMS-12.6
#[test]
fn each_key_has_the_default_that_is_documented() {
    let keys = Config::keys();
    for (name, default) in [
        ("http.max_conns", "1024"),
        ("http.max_conns_per_peer", "512"),
        ("http.read_timeout_ms", "5000"),
        ("http.write_timeout_ms", "5000"),
        ("http.idle_timeout_ms", "60000"),
        ("queue_cap", "512"),
        ("audit.queue_cap", "2048"),
        ("audit.queue_wait_ms", "200"),
        ("audit.append_deadline_ms", "200"),
        ("audit.checkpoint_deadline_ms", "1000"),
        ("drain_deadline_ms", "3000"),
        ("deadline.sign_ms", "2000"),
        ("deadline.wrap_ms", "2000"),
        ("deadline.unwrap_ms", "2000"),
        ("deadline.attest_ms", "3000"),
        ("verify.retry_max", "2"),
        ("verify.retry_min_ms", "50"),
        ("verify.retry_max_ms", "100"),
        ("verify.retry_cap_ms", "1000"),
        ("verify.cache_ttl_ms", "300000"),
    ] {
        let key = keys.iter().find(|key| key.name == name);
        assert_eq!(key.map(|key| key.default.as_str()), Some(default), "{name}");
    }
}
