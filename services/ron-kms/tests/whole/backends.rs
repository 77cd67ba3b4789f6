//! The backend is slow, hangs, goes away and comes back: deadlines, retries, the verify cache, attestation.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clockwork::{
    World,
    backend::Mood,
    in_world,
    node::{Answer, Node},
};

/// One ask of each kind that reaches the backend.
struct Asks {
    signing: String,
    wrapping: String,
    wrapped: Value,
}

impl Asks {
    async fn new(node: &Node) -> Asks {
        let (signing, wrapping) = (node.key("ed25519").await, node.key("aes-256-gcm").await);
        let body = json!({ "kid": wrapping, "plaintext": "AA" });
        let wrapped = node.post("/wrap", body).await.json;
        Asks {
            signing,
            wrapping,
            wrapped,
        }
    }

    async fn ask(&self, node: &Node, what: &str) -> Answer {
        let wrapping = &self.wrapping;
        match what {
            "sign" => node.sign(&self.signing).await,
            "wrap" => {
                let body = json!({ "kid": wrapping, "plaintext": "AA" });
                node.post("/wrap", body).await
            }
            "unwrap" => {
                let kid = format!("{wrapping}#v1");
                let body = json!({ "kid": kid, "wrapped": self.wrapped["wrapped"] });
                node.post("/unwrap", body).await
            }
            "generate" => {
                let path = format!("/keys/{}/rotate", self.signing);
                node.post(&path, json!({})).await
            }
            _ => unreachable!("{what}"),
        }
    }
}

/// What hangs, what is counted, and by when it must have ended.
async fn hang_each(world: &World, node: &Node, table: [(&'static str, &str, u64); 4]) {
    let asks = Asks::new(node).await;
    for (call, op, limit) in table {
        let before = node.backend.calls(call).len();
        node.backend.set(call, Mood::Hangs);
        let (took, answer) = world.timed(asks.ask(node, call)).await;
        assert_eq!(answer.told(), (504, "timeout"), "{call}");
        assert_eq!(took, limit, "{call}");
        let counted = format!("io_timeouts_total{{op=\"{op}\"}}");
        assert_eq!(node.metric(&counted), 1.0, "{call}");
        node.backend.set(call, Mood::Well);
        world.pass(5_000).await;
        assert_eq!(
            node.backend.calls(call).len(),
            before + 1,
            "{call}: tried once"
        );
        assert_eq!(asks.ask(node, call).await.status, 200, "{call}");
    }
}

// proves: KMS-1.4, KMS-5.2, KMS-8.2, KMS-10.2
#[test]
fn whatever_hangs_at_the_backend_is_answered_at_its_deadline_and_never_tried_again() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.ingress.timeout_secs = 60);
        let node = node.await;
        let table = [
            ("sign", "sign", 2_000),
            ("wrap", "wrap", 2_000),
            ("unwrap", "unwrap", 2_000),
            ("generate", "rotate", 10_000),
        ];
        hang_each(&world, &node, table).await;
    });
}

// proves: KMS-12.4
#[test]
fn each_deadline_is_configured_by_itself() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.deadline.sign_ms = 110;
            config.deadline.wrap_ms = 220;
            config.deadline.unwrap_ms = 330;
            config.deadline.rotate_ms = 440;
        });
        let node = node.await;
        let table = [
            ("sign", "sign", 110),
            ("wrap", "wrap", 220),
            ("unwrap", "unwrap", 330),
            ("generate", "rotate", 440),
        ];
        hang_each(&world, &node, table).await;
    });
}

// proves: KMS-10.2
#[test]
fn a_backend_slower_than_the_deadline_costs_the_deadline_and_one_just_faster_is_waited_for() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ed25519").await;
        for (slow, status, limit) in [
            (1_999, 200, 1_999),
            (2_001, 504, 2_000),
            (4_000, 504, 2_000),
        ] {
            node.backend
                .set("sign", Mood::Slow(Duration::from_millis(slow)));
            let (took, answer) = world.timed(node.sign(&kid)).await;
            assert_eq!((answer.status, took), (status, limit));
        }
    });
}

// proves: KMS-1.4
#[test]
fn destroying_what_is_due_ends_by_its_deadline_too_and_the_keeper_goes_on() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.verify.refresh_ms = 60_000;
            config.attest_interval_ms = 3_600_000;
            config.audit.checkpoint_interval_ms = 600_000;
        });
        let node = node.await;
        let kid = node.key("ed25519").await;
        let day = 24 * 3600 * 1000;
        let path = format!("/keys/{kid}/destroy");
        assert_eq!(
            node.post(&path, json!({ "wait_ms": day })).await.status,
            200
        );
        node.backend.set("destroy", Mood::Hangs);
        world.pass(day + 300_000).await;
        // One that failed is tried again: nothing else remembers where the secret is.
        assert!(node.backend.calls("destroy").len() > 1);
        let sealed = || async {
            let stored = node.store.load().await.unwrap();
            stored.keys[0].versions[&1].sealed.len()
        };
        assert_ne!(sealed().await, 0, "still known");
        let last = node.backend.calls("check").last().copied().unwrap();
        assert!(last > day + 200_000, "the keeper hangs with it");
        assert_eq!(node.missing().await, Vec::<String>::new());
        assert_eq!(node.sign(&kid).await.told(), (409, "version_destroyed"));

        node.backend.set("destroy", Mood::Well);
        world.pass(120_000).await;
        assert_eq!(
            sealed().await,
            0,
            "given up by the backend, then by the store"
        );
        let calls = node.backend.calls("destroy").len();
        world.pass(300_000).await;
        assert_eq!(node.backend.calls("destroy").len(), calls, "once is enough");
    });
}

// proves: KMS-10.10, KMS-2.3, KMS-8.6, KMS-9.9, KMS-12.6
#[test]
fn in_an_outage_verifying_goes_on_with_its_age_until_the_limit_and_signing_is_refused() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.verify.cache_ttl_ms = 5_000);
        let node = node.await;
        let kid = node.key("ed25519").await;
        let signed = node.sign(&kid).await.json;
        let body = json!({ "kid": kid, "message": "aGVsbG8", "sigs": signed["sigs"] });
        let verify = || node.post("/verify", body.clone());
        assert_eq!(verify().await.json["cache_age_ms"], Value::Null);
        assert_eq!(node.metric("verify_cache_age_ms"), 0.0);

        node.backend.set("", Mood::Away);
        world.pass(3_000).await;
        let refused = node.sign(&kid).await;
        assert_eq!(refused.told(), (503, "backend_unavailable"));
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(node.missing().await, ["backend"]);
        let stale = verify().await;
        assert_eq!((stale.status, &stale.json["valid"]), (200, &json!(true)));
        let age = stale.json["cache_age_ms"].as_u64().unwrap();
        assert!((2_000..=4_100).contains(&age), "{age}");
        assert!(node.metric("verify_cache_age_ms") >= 1_500.0);
        assert_eq!(node.metric("verify_cache_expired_total"), 0.0);

        world.pass(3_000).await;
        let expired = verify().await;
        assert_eq!(expired.told(), (503, "verify_cache_expired"));
        assert!(expired.json["cache_age_ms"].as_u64().unwrap() > 5_000);
        assert_eq!(node.metric("verify_cache_expired_total"), 1.0);

        node.backend.set("", Mood::Well);
        world.pass(5_100).await;
        assert_eq!(verify().await.json["cache_age_ms"], Value::Null);
        assert_eq!(node.metric("verify_cache_age_ms"), 0.0);
        assert_eq!(node.sign(&kid).await.status, 200);
        assert_eq!(node.missing().await, Vec::<String>::new());
    });
}

// proves: KMS-2.3
#[test]
fn while_the_backend_is_there_the_cache_is_kept_fresh_for_ever() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.verify.cache_ttl_ms = 2_000);
        let node = node.await;
        let kid = node.key("ed25519").await;
        let signed = node.sign(&kid).await.json;
        let body = json!({ "kid": kid, "message": "aGVsbG8", "sigs": signed["sigs"] });
        for _ in 0..20 {
            world.pass(1_900).await;
            let checks = node.backend.calls("check").len();
            assert_eq!(node.post("/verify", body.clone()).await.status, 200);
            assert_eq!(
                node.backend.calls("check").len(),
                checks,
                "by the keeper alone"
            );
        }
    });
}

/// How long a verification past its limit takes, and how often it asked.
async fn expire(world: &World, node: &Node) -> (u64, usize) {
    let kid = node.key("ed25519").await;
    let signed = node.sign(&kid).await.json;
    let body = json!({ "kid": kid, "message": "aGVsbG8", "sigs": signed["sigs"] });
    node.backend.set("", Mood::Away);
    world.pass(3_600_000 * 2).await;
    let before = node.backend.calls("check").len();
    let (took, answer) = world.timed(node.post("/verify", body)).await;
    assert_eq!(answer.told(), (503, "verify_cache_expired"));
    (took, node.backend.calls("check").len() - before)
}

// proves: KMS-5.2, KMS-9.6, KMS-12.5
#[test]
fn only_verifying_is_tried_again_within_the_configured_window() {
    in_world(|world| async move {
        // So slow a keeper asks next to never.
        let rare = 3_600_000;
        let node = Node::start(&world, |config| {
            config.verify.cache_ttl_ms = 1_000;
            config.verify.refresh_ms = rare;
        });
        let (took, asked) = expire(&world, &node.await).await;
        assert!((50..=100).contains(&took), "{took}");
        assert_eq!(asked, 2);
    });
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.verify.cache_ttl_ms = 1_000;
            config.verify.refresh_ms = 3_600_000;
            config.verify.retry_max = 4;
            config.verify.retry_min_ms = 400;
            config.verify.retry_max_ms = 500;
            config.verify.retry_cap_ms = 600;
        });
        let node = node.await;
        let (took, asked) = expire(&world, &node).await;
        assert!(
            (400 + 480 + 480..=500 + 600 + 600).contains(&took),
            "{took}"
        );
        assert!(asked >= 4, "{asked}");
        assert_eq!(node.metric("backoff_retries_total{op=\"verify\"}"), 3.0);
    });
}

// proves: KMS-2.7
#[test]
fn the_keeper_asks_at_its_pace_and_after_an_error_with_a_growing_jittered_pause() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.verify.refresh_ms = 20_000;
            config.attest_interval_ms = 86_400_000;
        });
        let node = node.await;
        world.pass(60_500).await;
        let calls = node.backend.calls("check");
        // The first of the two at the start is the attester's or the keeper's.
        let paces: Vec<u64> = calls[1..].windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(paces, [20_000, 20_000, 20_000]);

        node.backend.set("check", Mood::Away);
        world.pass(60_000).await;
        let calls = node.backend.calls("check")[calls.len()..].to_vec();
        let gaps: Vec<u64> = calls.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps.len() >= 9, "{gaps:?}");
        for (n, gap) in gaps.iter().enumerate() {
            let (low, high) = ((100_u64 << n).min(2_500), (200_u64 << n).min(5_000));
            assert!((low..=high + 1).contains(gap), "{n}: {gaps:?}");
        }
        let doubled = |w: &[u64]| w[1] == 2 * w[0];
        assert!(!gaps[..5].windows(2).all(doubled), "no jitter: {gaps:?}");
        let retries = node.metric("backoff_retries_total{op=\"backend\"}");
        assert_eq!(retries, calls.len() as f64);
        assert_eq!(node.missing().await, ["backend"]);
        node.backend.set("check", Mood::Well);
        world.pass(5_001).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
    });
}

// proves: KMS-5.3, KMS-9.5, KMS-8.2
#[test]
fn attestation_that_is_not_renewed_in_three_seconds_shows_in_readiness() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.deadline.check_ms = 60_000);
        let node = node.await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        // It is renewed at 60 s; the keeper's own check hangs beside it and may do so for longer.
        world.pass(59_500).await;
        node.backend.set("check", Mood::Hangs);
        world.pass(500 + 2_980).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        assert_eq!(node.metric("io_timeouts_total{op=\"attest\"}"), 0.0);
        world.pass(20).await;
        assert_eq!(node.missing().await, ["attestation"]);
        assert_eq!(node.metric("io_timeouts_total{op=\"attest\"}"), 1.0);
    });
}

// proves: KMS-13.3, KMS-12.4
#[test]
fn evidence_that_failed_is_renewed_long_before_the_next_period() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.deadline.check_ms = 60_000;
            config.deadline.attest_ms = 700;
        });
        let node = node.await;
        world.pass(59_500).await;
        node.backend.set("check", Mood::Hangs);
        world.pass(500 + 680).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        world.pass(20).await;
        assert_eq!(node.missing().await, ["attestation"]);
        node.backend.set("check", Mood::Well);
        world.pass(510).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        assert_eq!(node.metric("backoff_retries_total{op=\"attest\"}"), 1.0);
    });
}

// proves: KMS-2.6
#[test]
fn evidence_is_renewed_on_its_period_and_a_statement_is_made_on_demand() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.attest_interval_ms = 30_000);
        let node = node.await;
        let kid = node.key("ed25519").await;
        let evidence = async || {
            let body = json!({ "kid": kid, "message": "AA", "attest": true });
            let signed = node.post("/sign", body).await.json;
            let att = match &signed["att"] {
                Value::String(text) => serde_json::from_str(text).unwrap(),
                other => other.clone(),
            };
            at_ms(&att)
        };
        let first = evidence().await;
        world.pass(29_000).await;
        assert_eq!(evidence().await, first, "from the cache");
        world.pass(1_000).await;
        assert_eq!(evidence().await, first + 30_000);
        let body = json!({ "kid": kid, "nonce": "AAAAAAAAAAAAAAAAAAAAAA" });
        let now = node.world.env().wall_ms();
        let attested = node.post("/attest", body).await;
        assert_eq!(attested.status, 200, "{}", attested.json);
        assert_eq!(at_ms(&attested.json), now);
    });
}

fn at_ms(attestation: &Value) -> u64 {
    let statement = attestation["statement"].as_str().unwrap();
    let statement: Value = serde_json::from_str(statement).unwrap();
    statement["at_ms"].as_u64().unwrap()
}

// proves: KMS-3.4, KMS-8.4, KMS-9.7
#[test]
fn a_task_that_falls_behind_the_bus_loses_the_oldest_events_which_is_counted_and_acts_on_the_last()
{
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ed25519").await;
        let lagged = "bus_lagged_total{bus=\"kernel\"}";
        for version in 1..=1_024 {
            node.reload(version, |_| {});
        }
        world.pass(1).await;
        assert_eq!(node.metric(lagged), 0.0, "as many as the bus holds");
        for version in 1_025..=2_055 {
            node.reload(version, |config| config.deadline.sign_ms = version);
        }
        world.pass(1).await;
        assert!(node.metric(lagged) >= 7.0, "{}", node.metric(lagged));
        node.backend.set("sign", Mood::Hangs);
        let (took, answer) = world.timed(node.sign(&kid)).await;
        assert_eq!((answer.status, took), (504, 2_055));
    });
}

// proves: KMS-2.8, KMS-3.5
#[test]
fn a_reloaded_configuration_is_in_force_as_a_whole_and_the_backend_is_asked_anew() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.verify.refresh_ms = 3_600_000;
            config.attest_interval_ms = 86_400_000;
        });
        let node = node.await;
        let kid = node.key("ed25519").await;
        let signed = node.sign(&kid).await.json;
        let body = json!({ "kid": kid, "message": "aGVsbG8", "sigs": signed["sigs"] });
        let checks = node.backend.calls("check").len();
        node.backend.set("check", Mood::Away);
        // Nobody asks the backend by itself for an hour.
        world.pass(10_000).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        node.reload(1, |config| config.verify.cache_ttl_ms = 60_000);
        node.reload(2, |config| config.verify.cache_ttl_ms = 9_000);
        world.pass(1).await;
        assert!(node.backend.calls("check").len() > checks);
        assert_eq!(node.missing().await, ["backend"]);
        let expired = node.post("/verify", body.clone()).await;
        assert_eq!(
            expired.told(),
            (503, "verify_cache_expired"),
            "the last one counts"
        );
        node.backend.set("check", Mood::Well);
        node.reload(3, |config| config.deadline.sign_ms = 40);
        world.pass(1).await;
        assert_eq!(node.missing().await, Vec::<String>::new());
        node.backend.set("sign", Mood::Hangs);
        let (took, answer) = world.timed(node.sign(&kid)).await;
        assert_eq!((answer.status, took), (504, 40));
    });
}
