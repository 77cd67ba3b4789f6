//! `Env::serve`: who is let in, under which name, and what everybody else is told.

use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use ron_core::{
    problem::read_body,
    serve::{Refusal, ServeOptions, ServeStats},
};
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::AsyncWriteExt;

use crate::{
    Pair, list,
    serve::hello,
    serve_http2::{WINDOW, connect},
    support::{Answer, Raw, Server},
};

list!("serve_door":
    a_foreign_name_or_origin_is_refused_before_any_route,
    probes_answer_under_any_name,
    http2_names_are_checked_as_well,
    what_is_no_http_gets_a_problem_and_is_counted,
    a_transfer_coding_that_is_not_chunked_is_refused,
    bad_chunks_are_no_lost_connection,
    the_longest_idle_connection_makes_room,
    one_address_gets_its_share_and_no_more,
    http2_floods_are_told_to_calm_down,
    a_busy_http2_client_is_no_flood,
);

/// The code of a problem, which it must be.
fn code(answer: &Answer) -> String {
    let kind = answer
        .head
        .contains("content-type: application/problem+json");
    assert!(kind, "{}", answer.head);
    assert!(answer.head.contains("x-corr-id: "), "{}", answer.head);
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["status"], answer.status());
    assert_ne!(problem["corr_id"], "");
    problem["code"].as_str().unwrap().to_owned()
}

fn refused(stats: &ServeStats) -> u64 {
    Refusal::ALL
        .iter()
        .map(|refusal| stats.refused(*refusal))
        .sum()
}

async fn a_foreign_name_or_origin_is_refused_before_any_route(pair: Pair) {
    let server = Server::start(&pair, hello(), ServeOptions::default()).await;
    let own = server.addr;
    let page = format!("host: {own}\r\norigin: http://{own}\r\n");
    let cases = [
        (format!("host: {own}\r\n"), 200, ""),
        ("host: localhost\r\n".to_owned(), 200, ""),
        (page, 200, ""),
        ("host: evil.example\r\n".to_owned(), 421, "foreign_host"),
        (
            format!("host: {own}\r\norigin: http://evil.example\r\n"),
            403,
            "foreign_origin",
        ),
        (
            format!("host: {own}\r\norigin: null\r\n"),
            403,
            "foreign_origin",
        ),
        (format!("host: {own}\r\nhost: {own}\r\n"), 400, "bad_host"),
        ("host: a b\r\n".to_owned(), 400, "bad_host"),
        (String::new(), 400, "bad_host"),
    ];
    // Refusals cost no connection: the next request comes on the same.
    let mut client = Raw::connect(&pair.client, own).await;
    for (headers, status, expected) in cases {
        client
            .send(&format!(
                "GET / HTTP/1.1\r\n{headers}x-corr-id: mine\r\n\r\n"
            ))
            .await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), status, "{headers}");
        if status != 200 {
            assert_eq!(code(&answer), expected, "{headers}");
            assert!(answer.head.contains("x-corr-id: mine\r\n"));
        }
    }
    for (refusal, times) in [
        (Refusal::ForeignHost, 1),
        (Refusal::ForeignOrigin, 2),
        (Refusal::BadHost, 3),
    ] {
        assert_eq!(server.stats.refused(refusal), times, "{refusal:?}");
    }
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(
        client.answer().await.status(),
        200,
        "HTTP/1.0 knows no Host"
    );
}

async fn probes_answer_under_any_name(pair: Pair) {
    let app = hello().route("/metrics", get(async || "all is well"));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let foreign = "HTTP/1.1\r\nhost: prometheus.example\r\n";
    for (request, status) in [
        (format!("GET /metrics {foreign}\r\n"), 200),
        (format!("GET / {foreign}\r\n"), 421),
        (
            format!("GET /metrics {foreign}origin: http://evil.example\r\n\r\n"),
            403,
        ),
        ("GET /metrics HTTP/1.1\r\n\r\n".to_owned(), 400),
    ] {
        client.send(&request).await;
        assert_eq!(client.answer().await.status(), status, "{request}");
    }
}

async fn http2_names_are_checked_as_well(pair: Pair) {
    let server = Server::start(&pair, hello(), ServeOptions::default()).await;
    let mut client = connect(&pair.client, server.addr, WINDOW).await;
    for (authority, host, status) in [
        ("localhost", None, 200),
        ("localhost", Some("localhost"), 200),
        ("localhost", Some("evil.example"), 400),
        ("evil.example", None, 421),
    ] {
        let mut request = http::Request::get(format!("http://{authority}/"));
        if let Some(host) = host {
            request = request.header("host", host);
        }
        client.ready().await.unwrap();
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.status(), status, "{authority} {host:?}");
        drop(answer.into_body().collect().await);
    }
}

async fn what_is_no_http_gets_a_problem_and_is_counted(pair: Pair) {
    let server = Server::start(&pair, hello(), ServeOptions::default()).await;
    let many = "x: y\r\n".repeat(200);
    let huge = format!("x: {}\r\n", "y".repeat(300_000));
    let head = "GET / HTTP/1.1\r\nhost: localhost\r\n";
    let cases = [
        ("no request\r\n\r\n".to_owned(), 400, "malformed_request"),
        (
            format!("{head}bad name: x\r\n\r\n"),
            400,
            "malformed_request",
        ),
        (
            format!("{head}content-length: x\r\n\r\n"),
            400,
            "malformed_request",
        ),
        (format!("{head}{many}\r\n"), 431, "head_too_large"),
        (format!("{head}{huge}\r\n"), 431, "head_too_large"),
    ];
    for (n, (request, status, expected)) in cases.iter().enumerate() {
        for after in [0, 3] {
            let mut client = Raw::connect(&pair.client, server.addr).await;
            for _ in 0..after {
                assert_eq!(client.get("/").await.status(), 200);
            }
            let before = refused(&server.stats);
            client.send(request).await;
            let answer = client.answer().await;
            assert_eq!(
                (answer.status(), code(&answer).as_str()),
                (*status, *expected),
                "case {n}"
            );
            assert!(
                answer.head.contains("connection: close\r\n"),
                "{}",
                answer.head
            );
            assert!(client.closed().await.is_empty(), "case {n}");
            assert_eq!(refused(&server.stats), before + 1, "case {n}");
        }
    }
    // Behind an answer that was asked for in the same breath, which stays as it is.
    let mut client = Raw::connect(&pair.client, server.addr).await;
    client.send(&format!("{head}\r\nno request\r\n\r\n")).await;
    assert_eq!(client.answer().await.body, b"hello");
    assert_eq!(code(&client.answer().await), "malformed_request");
    drop(client);
    server.until_open(&pair.client, 0).await;
}

async fn a_transfer_coding_that_is_not_chunked_is_refused(pair: Pair) {
    let app = Router::new().route("/", post(async |body: Body| read_body(body).await));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    for (coding, status) in [
        ("transfer-encoding: chunked\r\n", 200),
        ("transfer-encoding: Chunked\r\n", 200),
        ("transfer-encoding: gzip, chunked\r\n", 501),
        (
            "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
            501,
        ),
        ("transfer-encoding: chunked, chunked\r\n", 501),
        ("transfer-encoding: gzip\r\n", 400),
    ] {
        let mut client = Raw::connect(&pair.client, server.addr).await;
        let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\n{coding}\r\n");
        client.send(&format!("{head}3\r\nabc\r\n0\r\n\r\n")).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), status, "{coding}");
        match status {
            200 => assert_eq!(answer.body, b"abc"),
            501 => assert_eq!(code(&answer), "unsupported_transfer_encoding"),
            _ => assert_eq!(code(&answer), "malformed_request"),
        }
    }
}

async fn bad_chunks_are_no_lost_connection(pair: Pair) {
    let app = Router::new().route("/", post(async |body: Body| read_body(body).await));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunks in [
        "zz\r\nabc\r\n",
        "3\r\nabcd\r\n",
        "ffffffffffffffffff\r\n",
        "3\r\nabc\r\n-1\r\n",
    ] {
        let mut client = Raw::connect(&pair.client, server.addr).await;
        client.send(&format!("{head}{chunks}")).await;
        let answer = client.answer().await;
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let told = (answer.status(), &problem["code"]);
        assert_eq!(told, (400, &"malformed_chunks".into()), "{chunks:?}");
    }
    let mut client = Raw::connect(&pair.client, server.addr).await;
    client.send(&format!("{head}3\r\nab")).await;
    client.conn.shutdown().await.unwrap();
    let broken = client.answer().await;
    assert_eq!(broken.status(), StatusCode::BAD_REQUEST.as_u16());
    let problem: serde_json::Value = serde_json::from_slice(&broken.body).unwrap();
    assert_eq!(problem["code"], "body_lost");
}

async fn the_longest_idle_connection_makes_room(pair: Pair) {
    let options = ServeOptions {
        max_conns: 2,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, hello(), options).await;
    let mut first = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(first.get("/").await.status(), 200);
    let mut second = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(second.get("/").await.status(), 200);
    pair.client.sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(
        first.get("/").await.status(),
        200,
        "now the second is idle for longest"
    );

    let mut third = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(third.get("/").await.status(), 200);
    assert!(second.closed().await.is_empty());
    assert_eq!(first.get("/").await.status(), 200);
    assert_eq!(server.stats.made_room.load(Relaxed), 1);
    assert_eq!(refused(&server.stats), 0);
    assert_eq!(server.stats.open.load(Relaxed), 2);
    assert_eq!(server.shutdowns.counts(), [0, 1, 0]);
}

async fn one_address_gets_its_share_and_no_more(pair: Pair) {
    let options = ServeOptions {
        max_conns: 9,
        max_conns_per_peer: 2,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, hello(), options).await;
    let mut idle = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(idle.get("/").await.status(), 200);
    let mut halves = Vec::new();
    for _ in 0..2 {
        let mut half = Raw::connect(&pair.client, server.addr).await;
        assert_eq!(half.get("/").await.status(), 200);
        half.send("GET / HTTP/1.1\r\n").await;
        halves.push(half);
        server
            .until(&pair.client, |stats| stats.open.load(Relaxed) <= 2)
            .await;
    }
    assert!(idle.closed().await.is_empty(), "its own idle one made room");
    pair.client
        .sleep(std::time::Duration::from_millis(20))
        .await;
    let mut over = Raw::connect(&pair.client, server.addr).await;
    let answer = over.answer().await;
    assert_eq!(
        (answer.status(), code(&answer).as_str()),
        (429, "too_many_connections_of_peer")
    );
    assert!(answer.head.contains("retry-after: 1\r\n"));
    assert!(over.closed().await.is_empty());
    assert_eq!(server.stats.refused(Refusal::PeerConnections), 1);
    for mut half in halves {
        half.send("host: localhost\r\n\r\n").await;
        assert_eq!(half.answer().await.status(), 200);
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// GOAWAY, for no stream, ENHANCE_YOUR_CALM.
const CALM: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];

async fn http2_floods_are_told_to_calm_down(pair: Pair) {
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingpong";
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    const PRIORITY: &[u8] = b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\x03\x10";
    const UNKNOWN: &[u8] = b"\0\0\x01\x77\0\0\0\0\0?";
    let options = ServeOptions {
        http2_frames_per_s: 100,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, hello(), options).await;
    for (n, frame) in (1..).zip([PING, SETTINGS, PRIORITY, UNKNOWN]) {
        let mut client = Raw::connect(&pair.client, server.addr).await;
        client.conn.write_all(PREFACE).await.unwrap();
        for _ in 0..20 {
            // The server may be through with it already.
            let _ = client.conn.write_all(&frame.repeat(100)).await;
        }
        server
            .until(&pair.client, |stats| stats.refused(Refusal::Flood) == n)
            .await;
        let said = client.closed().await;
        assert!(said.ends_with(CALM), "{frame:?}: {said:?}");
        drop(client);
        server.until_open(&pair.client, 0).await;
    }
}

async fn a_busy_http2_client_is_no_flood(pair: Pair) {
    let options = ServeOptions {
        http2_frames_per_s: 10,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, hello(), options).await;
    let mut client = connect(&pair.client, server.addr, WINDOW).await;
    for _ in 0..200 {
        client.ready().await.unwrap();
        let request = http::Request::get("http://localhost/").body(Empty::<Bytes>::new());
        let answer = client.send_request(request.unwrap()).await.unwrap();
        assert_eq!(
            answer.into_body().collect().await.unwrap().to_bytes(),
            "hello"
        );
    }
    assert_eq!(refused(&server.stats), 0);
}
