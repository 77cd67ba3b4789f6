//! What peers and callers send wrong: each has its code and its counter, and the node goes on.

use svc_dht::{
    id::Id,
    link::error::RpcError,
    record::Record,
    wire::message::{Request, Response},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use ron_core::seam::Net;

use crate::{
    clockwork::in_world,
    node::{Node, addr, identity},
};

const HOUR: u64 = 3_600_000;

/// One peer that asks one node, and what the node then has counted.
async fn refused(
    world: &crate::clockwork::World,
    change: impl FnOnce(&mut svc_dht::config::Config),
    records: Vec<Record>,
) -> (Vec<&'static str>, Node) {
    let node = Node::start(world, 1, change).await;
    let peer = Node::start(world, 2, |_| {}).await;
    peer.until_ready().await;
    let mut codes = Vec::new();
    for record in records {
        let request = match record.kind {
            svc_dht::record::RecordKind::Value => Request::Store { record },
            svc_dht::record::RecordKind::Provider => Request::Provide { record },
        };
        let asked = peer
            .peers()
            .request(node.contact(), &request, false, peer.deadline());
        codes.push(match asked.await {
            Ok(Response::Stored) => "stored",
            Err(RpcError::Refused(refusal)) => refusal.code.name(),
            other => panic!("{other:?}"),
        });
    }
    (codes, node)
}

#[test]
fn bad_records_are_refused_by_code_and_counted_and_not_one_is_returned() {
    in_world(|world| async move {
        let now = 1_700_000_000_000_u64;
        let good = Record::sign_value(&identity(9), b"good", b"1", 1, now, HOUR);
        let mut forged = Record::sign_value(&identity(9), b"forged", b"1", 1, now, HOUR);
        forged.signature[7] ^= 1;
        let mut moved = Record::sign_value(&identity(9), b"moved", b"1", 1, now, HOUR);
        moved.key = Id([1; 32]);
        let oversize =
            Record::sign_value(&identity(9), b"big", &vec![0; 16 * 1024 + 1], 1, now, HOUR);
        let expired = Record::sign_value(&identity(9), b"old", b"1", 1, now - 3 * HOUR, HOUR);
        let early = Record::sign_value(&identity(9), b"new", b"1", 1, now + 10 * HOUR, HOUR);
        let long = Record::sign_value(&identity(9), b"long", b"1", 1, now, 100 * 24 * HOUR);
        let keys: Vec<_> = [&forged, &moved, &oversize, &expired, &early]
            .map(|r| r.key)
            .to_vec();
        let all = vec![good.clone(), forged, moved, oversize, expired, early, long];
        let (codes, node) = refused(&world, |_| {}, all).await;
        assert_eq!(
            codes,
            [
                "stored",
                "bad_signature",
                "bad_request",
                "too_large",
                "expired",
                "expired",
                "bad_request"
            ]
        );
        for code in [
            "bad_signature",
            "wrong_key",
            "too_large",
            "expired",
            "early",
            "bad_ttl",
        ] {
            let counted = node
                .metric(&format!("records_rejected_total{{code=\"{code}\"}}"))
                .await;
            assert_eq!(counted, 1.0, "{code}");
        }
        for key in keys {
            let answer = node.get(&format!("/v1/dht/values/{key}")).await;
            assert_eq!((answer.status, answer.code()), (404, "key_not_found"));
        }
        assert_eq!(
            node.get(&format!("/v1/dht/values/{}", good.key)).await.body,
            b"1"
        );
        assert_eq!(
            node.metric("dht_refused_total{code=\"key_not_found\"}")
                .await,
            5.0
        );
    });
}

#[test]
fn a_quota_that_is_used_up_refuses_and_counts() {
    in_world(|world| async move {
        let now = 1_700_000_000_000_u64;
        let of = |n: u8| Record::sign_value(&identity(9), &[n], b"1", 1, now, HOUR);
        let (codes, node) = refused(
            &world,
            |config| config.records.per_publisher = 2,
            (0..4).map(of).collect(),
        )
        .await;
        assert_eq!(codes, ["stored", "stored", "quota", "quota"]);
        assert_eq!(
            node.metric("records_rejected_total{code=\"quota\"}").await,
            2.0
        );
        assert_eq!(node.metric("records ").await, 2.0);
    });
}

/// Sends bytes to the node's peer port and reads until it is closed.
async fn sent(node: &Node, bytes: &[u8]) -> Vec<u8> {
    let mut stream = node.machine.connect(addr(1)).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[test]
fn malformed_frames_close_their_stream_with_a_code_and_a_counter_and_nothing_else() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        for (bytes, metric) in [
            (&[0, 0, 0, 0][..], "frames_rejected_total{code=\"empty\"}"),
            (
                &[0xff, 0xff, 0xff, 0xff, 1],
                "frames_rejected_total{code=\"too_long\"}",
            ),
            (
                &[0, 16, 0, 1, 1, 1],
                "frames_rejected_total{code=\"too_long\"}",
            ),
            (
                &[0, 0, 0, 4, 1, 2, 3, 4],
                "handshakes_rejected_total{code=\"malformed\"}",
            ),
        ] {
            let before = match node.get("/metrics").await.body {
                text if String::from_utf8_lossy(&text).contains(metric) => {
                    node.metric(metric).await
                }
                _ => 0.0,
            };
            sent(&node, bytes).await;
            world.pass(10).await;
            assert_eq!(node.metric(metric).await, before + 1.0, "{metric}");
        }
        let peer = Node::start(&world, 2, |_| {}).await;
        peer.until_ready().await;
        let ping = peer
            .peers()
            .request(node.contact(), &Request::Ping, false, peer.deadline());
        assert_eq!(ping.await, Ok(Response::Pong));
    });
}

#[test]
fn bad_requests_to_the_api_are_problems_with_codes() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        let long_name = "n".repeat(256);
        let cases: Vec<(&str, String, Vec<u8>, u16, &str)> = vec![
            (
                "GET",
                "/v1/dht/values/short".into(),
                vec![],
                400,
                "invalid_request",
            ),
            (
                "GET",
                format!("/v1/dht/values/{}", Id([1; 32])),
                vec![],
                404,
                "key_not_found",
            ),
            ("GET", "/v1/dht/values".into(), vec![], 400, "invalid_query"),
            (
                "GET",
                "/v1/dht/values?name=a&publisher=zz".into(),
                vec![],
                400,
                "invalid_request",
            ),
            (
                "GET",
                "/v1/dht/values?name=a&surplus=1".into(),
                vec![],
                400,
                "invalid_query",
            ),
            (
                "GET",
                "/v1/dht/providers/xyz".into(),
                vec![],
                400,
                "invalid_request",
            ),
            ("GET", "/v1/dht/closest/".into(), vec![], 404, "not_found"),
            (
                "GET",
                "/v1/dht/lookups/abc".into(),
                vec![],
                400,
                "invalid_request",
            ),
            (
                "GET",
                "/v1/dht/lookups/99".into(),
                vec![],
                404,
                "lookup_not_found",
            ),
            (
                "PUT",
                "/v1/dht/values/big".into(),
                vec![0; 16_385],
                413,
                "body_too_large",
            ),
            (
                "PUT",
                format!("/v1/dht/values/{long_name}"),
                vec![1],
                400,
                "invalid_request",
            ),
            (
                "PUT",
                "/v1/dht/values/a?ttl_ms=0".into(),
                vec![1],
                400,
                "invalid_request",
            ),
            (
                "PUT",
                "/v1/dht/values/a?ttl_ms=99999999999".into(),
                vec![1],
                400,
                "invalid_request",
            ),
            (
                "PUT",
                "/v1/dht/values/a?ttl_ms=soon".into(),
                vec![1],
                400,
                "invalid_query",
            ),
            (
                "POST",
                format!("/v1/dht/providers/{}", Id([1; 32])),
                b"{".to_vec(),
                400,
                "json_syntax",
            ),
            (
                "POST",
                format!("/v1/dht/providers/{}", Id([1; 32])),
                b"{\"x\":1}".to_vec(),
                422,
                "unknown_field",
            ),
            (
                "DELETE",
                "/v1/dht/routing".into(),
                vec![],
                405,
                "method_not_allowed",
            ),
        ];
        for (method, path, body, status, code) in cases {
            let answer = node.http(method, &path, &body).await;
            assert_eq!(
                (answer.status, answer.code()),
                (status, code),
                "{method} {path}"
            );
            assert_eq!(
                answer.header("content-type"),
                Some("application/problem+json")
            );
            assert_eq!(answer.json["retryable"], false, "{path}");
        }
    });
}
