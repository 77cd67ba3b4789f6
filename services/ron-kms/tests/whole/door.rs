//! The HTTP door: how bytes may arrive, how long a connection may take, how many there are.

use std::{sync::Arc, time::Duration};

use ron_core::seam::Conn;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::clockwork::{
    World, in_world,
    node::{Node, read_answer, request},
};

/// When the other side closed, in milliseconds from now.
async fn closed_after(world: &World, conn: &mut Conn) -> u64 {
    let mut bytes = Vec::new();
    let (took, _) = world.timed(conn.read_to_end(&mut bytes)).await;
    took
}

// proves: KMS-1.10, KMS-7.1
#[test]
fn a_request_arrives_whole_however_it_is_cut_and_none_is_longer_than_the_cap() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ed25519").await;
        let body = json!({ "kid": kid, "message": "aGVsbG8" }).to_string();
        let text = request("POST", "/v1/kms/sign", &body);
        let whole = node.sign(&kid).await.json;
        for cut in [1, 2, 3, 7, 50] {
            let mut conn = node.connect().await;
            for piece in text.as_bytes().chunks(cut) {
                conn.write_all(piece).await.unwrap();
                world.pass(1).await;
            }
            let answer = read_answer(&mut conn).await;
            assert_eq!(answer.status, 200, "{cut}: {}", answer.json);
            assert_eq!(answer.json["sigs"], whole["sigs"]);
        }
        let mut conn = node.connect().await;
        let length = 1024 * 1024 + 1;
        let head = format!(
            "POST /v1/kms/sign HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        conn.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(
            read_answer(&mut conn).await.status,
            413,
            "before a byte of it was read"
        );
    });
}

// proves: KMS-4.3
#[test]
fn connections_share_nothing_each_caller_gets_the_answer_to_its_own_request() {
    in_world(|world| async move {
        let node = Arc::new(Node::start(&world, |_| {}).await);
        let kid = node.key("ed25519").await;
        let caller = |n: u8| {
            let (node, kid, world) = (node.clone(), kid.clone(), world.clone());
            tokio::spawn(async move {
                let message = format!("AA{}", ["AA", "AQ", "Ag", "Aw"][usize::from(n % 4)]);
                let body = json!({ "kid": kid, "message": message }).to_string();
                let text = request("POST", "/v1/kms/sign", &body);
                let (first, rest) = text.as_bytes().split_at(10 + usize::from(n));
                let mut conn = node.connect().await;
                conn.write_all(first).await.unwrap();
                world.pass(u64::from(n % 7)).await;
                conn.write_all(rest).await.unwrap();
                let signed = read_answer(&mut conn).await.json;
                let body = json!({ "kid": kid, "message": message, "sigs": signed["sigs"] });
                node.post("/verify", body).await.json["valid"].clone()
            })
        };
        let callers: Vec<_> = (0..60).map(caller).collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), true);
        }
    });
}

#[test]
fn without_keys_to_check_tokens_with_it_is_not_ready_and_asks_to_come_back() {
    in_world(|world| async move {
        // The issuer of this world is never reached.
        let node = Node::start(&world, |config| {
            config.auth.mode = ron_core::auth::AuthMode::Passport;
            config.auth.passport.issuer = "https://issuer.test".to_owned();
            config.auth.passport.audience = "ron-kms".to_owned();
            config.auth.passport.jwks_url = "https://issuer.test/jwks.json".to_owned();
        });
        let node = node.await;
        world.pass(10_000).await;
        assert_eq!(node.missing().await, ["auth_keys"]);
        let mut conn = node.connect().await;
        // {"alg":"EdDSA","kid":"k1"}, {}
        let token = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsxIn0.e30.AAAA";
        let text = request("GET", "/v1/kms/keys", "").replace(
            "host: localhost",
            &format!("host: localhost\r\nauthorization: Bearer {token}"),
        );
        conn.write_all(text.as_bytes()).await.unwrap();
        let answer = read_answer(&mut conn).await;
        assert_eq!(answer.told(), (503, "no_keys"), "{}", answer.json);
        assert_eq!(answer.json["retryable"], true);
        assert_eq!(answer.header("retry-after"), Some("1"));
    });
}

fn time_out(read: u64, write: u64, idle: u64, change: impl FnOnce(&mut ron_kms::config::Config)) {
    in_world(|world| async move {
        let node = Node::start(&world, change).await;
        let mut conn = node.connect().await;
        conn.write_all(b"GET /healthz HT").await.unwrap();
        assert_eq!(closed_after(&world, &mut conn).await, read, "half a head");

        let mut conn = node.connect().await;
        conn.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(closed_after(&world, &mut conn).await, idle, "nothing more");

        let mut conn = node.connect().await;
        let ask = "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(40);
        conn.write_all(ask.as_bytes()).await.unwrap();
        world.pass(write - 5).await;
        conn.write_all(b"G")
            .await
            .expect("its answers are not taken, but not for long");
        world.pass(10).await;
        let more = tokio::time::timeout(Duration::from_millis(1), conn.write_all(b"G")).await;
        assert!(more.expect("closed").is_err());
    });
}

// proves: KMS-7.3
#[test]
fn a_connection_ends_with_a_close_of_ours_after_an_answer_and_after_an_error() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        for (head, status) in [
            (
                "GET /healthz HTTP/1.1\r\nhost: kms\r\nconnection: close\r\n\r\n",
                "200",
            ),
            ("GET /healthz HTTP/0.7\r\nhost: kms\r\n\r\n", "400"),
        ] {
            let mut conn = node.connect().await;
            conn.write_all(head.as_bytes()).await.unwrap();
            let mut all = Vec::new();
            let (took, read) = world.timed(conn.read_to_end(&mut all)).await;
            read.expect("an orderly end, not a reset");
            assert!(took < 100, "{took} ms: it did not wait for a timeout");
            let text = String::from_utf8_lossy(&all);
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
        }
    });
}

// proves: KMS-5.1
#[test]
fn connections_time_out_after_5_s_of_reading_5_s_of_writing_and_60_s_of_idleness() {
    time_out(5_000, 5_000, 60_000, |_| {});
}

// proves: KMS-12.1
#[test]
fn the_timeouts_and_the_number_of_connections_are_configurable() {
    time_out(300, 800, 1_500, |config| {
        config.http.read_timeout_ms = 300;
        config.http.write_timeout_ms = 800;
        config.http.idle_timeout_ms = 1_500;
    });
    in_world(|world| async move {
        let node = Node::start(&world, |config| config.http.max_conns = 2).await;
        let (mut first, mut second) = (node.connect().await, node.connect().await);
        for conn in [&mut first, &mut second] {
            conn.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
        }
        world.pass(1).await;
        let third = node.get("/healthz").await;
        assert_eq!(third.status, 503);
        assert!(third.header("retry-after").is_some());
        assert_eq!(third.code(), "too_many_connections");
        drop((first, second));
        world.pass(1).await;
        assert_eq!(node.get("/healthz").await.status, 200);
    });
}
