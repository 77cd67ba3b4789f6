//! `Env::serve`: what a slow or greedy client gets.

use std::{convert::Infallible, sync::atomic::Ordering::Relaxed, time::Duration};

use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http_body_util::BodyExt;
use ron_core::serve::{BodyReadTimeout, Phase, Refusal, ServeOptions};
use tokio::io::AsyncWriteExt;

use crate::{
    Pair, list,
    serve::hello,
    support::{Raw, SHORT, Server},
};

list!("serve_limits":
    defaults_are_the_documented_ones,
    a_silent_client_is_closed,
    a_half_sent_head_is_closed_but_not_early,
    a_dripped_head_is_closed_as_well,
    a_half_sent_second_head_is_closed_as_well,
    a_body_that_stops_coming_fails_in_the_handler,
    a_slow_but_steady_body_is_let_through,
    an_idle_connection_is_closed_but_not_early,
    requests_keep_a_connection_from_being_idle,
    a_slow_handler_is_no_idle_connection,
    a_client_that_reads_nothing_is_cut,
    a_client_that_reads_slowly_is_served,
    connections_over_the_limit_hear_busy,
);

async fn defaults_are_the_documented_ones(_: Pair) {
    let options = ServeOptions::default();
    // proves: KMS-5.1, DHT-5.1, EDG-5.3
    assert_eq!(options.header_read, Duration::from_secs(5));
    assert_eq!(options.body_read, Duration::from_secs(5));
    assert_eq!(options.write, Duration::from_secs(5));
    assert_eq!(options.idle, Duration::from_secs(60));
    assert_eq!(options.close_grace, Duration::from_secs(3));
    assert_eq!(options.max_conns, 1024);
}

fn short_head() -> ServeOptions {
    ServeOptions {
        header_read: SHORT,
        ..ServeOptions::default()
    }
}

async fn a_silent_client_is_closed(pair: Pair) {
    let server = Server::start(&pair, hello(), short_head()).await;
    let start = pair.client.now();
    let mut client = Raw::connect(&pair.client, server.addr).await;
    assert!(client.closed().await.is_empty());
    assert!(pair.client.now() - start >= SHORT);
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.stats.timeouts(Phase::HeaderRead), 1);
    // proves: KMS-7.3, DHT-7.2
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_half_sent_head_is_closed_but_not_early(pair: Pair) {
    let server = Server::start(&pair, hello(), short_head()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let start = pair.client.now();
    client.send("GET / HTTP/1.1\r\nhost: ca").await;
    client.closed().await;
    // The silence before the first byte counts as well, so this may be a little less.
    assert!(pair.client.now() - start >= SHORT / 2);
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.stats.timeouts(Phase::HeaderRead), 1);
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_dripped_head_is_closed_as_well(pair: Pair) {
    let server = Server::start(&pair, hello(), short_head()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    // Never silent for as long as the limit, but never done.
    for byte in "GET / HTTP/1.1\r\nx: ".bytes().chain([b'a'].repeat(1000)) {
        if client.conn.write_all(&[byte]).await.is_err() {
            break;
        }
        pair.client.sleep(SHORT / 10).await;
        if server.stats.timeouts(Phase::HeaderRead) > 0 {
            break;
        }
    }
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.stats.timeouts(Phase::HeaderRead), 1);
}

async fn a_half_sent_second_head_is_closed_as_well(pair: Pair) {
    let server = Server::start(&pair, hello(), short_head()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(client.get("/").await.status(), 200);
    // Between requests only the idle limit counts.
    pair.client.sleep(SHORT * 2).await;
    assert_eq!(client.get("/").await.status(), 200);
    let start = pair.client.now();
    client.send("GET").await;
    assert!(client.closed().await.is_empty());
    assert!(pair.client.now() - start >= SHORT);
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.stats.timeouts(Phase::HeaderRead), 1);
}

/// Reads the body and says what came of it.
async fn read(body: Body) -> (StatusCode, String) {
    match body.collect().await {
        Ok(all) => (StatusCode::OK, all.to_bytes().len().to_string()),
        Err(error) if BodyReadTimeout::caused(&error) => {
            (StatusCode::REQUEST_TIMEOUT, error.to_string())
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
    }
}

async fn a_body_that_stops_coming_fails_in_the_handler(pair: Pair) {
    let options = ServeOptions {
        body_read: SHORT,
        ..ServeOptions::default()
    };
    let app = Router::new().route("/", post(read));
    let server = Server::start(&pair, app, options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let start = pair.client.now();
    client
        .send("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc")
        .await;
    assert_eq!(client.answer().await.status(), 408);
    assert!(pair.client.now() - start >= SHORT);
    client.closed().await;
    assert_eq!(server.stats.timeouts(Phase::BodyRead), 1);
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_slow_but_steady_body_is_let_through(pair: Pair) {
    let options = ServeOptions {
        body_read: SHORT * 5,
        ..short_head()
    };
    let app = Router::new().route("/", post(read));
    let server = Server::start(&pair, app, options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    client
        .send("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\n")
        .await;
    for _ in 0..8 {
        pair.client.sleep(SHORT).await;
        client.send("x").await;
    }
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.body), (200, b"8".to_vec()));
    assert_eq!(server.stats.timeouts(Phase::HeaderRead), 0);
}

fn short_idle() -> ServeOptions {
    ServeOptions {
        idle: SHORT * 2,
        ..ServeOptions::default()
    }
}

async fn an_idle_connection_is_closed_but_not_early(pair: Pair) {
    let server = Server::start(&pair, hello(), short_idle()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let start = pair.client.now();
    assert_eq!(client.get("/").await.status(), 200);
    assert!(client.closed().await.is_empty());
    // proves: EDG-5.3
    assert!(pair.client.now() - start >= SHORT * 2);
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.stats.timeouts(Phase::Idle), 1);
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn requests_keep_a_connection_from_being_idle(pair: Pair) {
    let options = ServeOptions {
        idle: SHORT * 10,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, hello(), options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let start = pair.client.now();
    while pair.client.now() - start < SHORT * 15 {
        assert_eq!(client.get("/").await.status(), 200);
        pair.client.sleep(SHORT).await;
    }
    assert_eq!(server.stats.accepted.load(Relaxed), 1);
    assert_eq!(server.stats.timeouts(Phase::Idle), 0);
}

async fn a_slow_handler_is_no_idle_connection(pair: Pair) {
    let env = pair.server.clone();
    let slow = move || {
        let env = env.clone();
        async move {
            env.sleep(SHORT * 4).await;
            "at last"
        }
    };
    let options = ServeOptions {
        header_read: SHORT,
        write: SHORT,
        idle: SHORT,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, Router::new().route("/", get(slow)), options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(client.get("/").await.body, b"at last");
}

/// A body without an end.
async fn flood() -> Body {
    let piece = Bytes::from_static(&[7; 16 * 1024]);
    Body::from_stream(stream::repeat_with(move || {
        Ok::<_, Infallible>(piece.clone())
    }))
}

async fn a_client_that_reads_nothing_is_cut(pair: Pair) {
    let options = ServeOptions {
        write: SHORT,
        idle: SHORT,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, Router::new().route("/", get(flood)), options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let start = pair.client.now();
    client
        .send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    server
        .until(&pair.client, |stats| stats.timeouts(Phase::Write) == 1)
        .await;
    assert!(pair.client.now() - start >= SHORT);
    server.until_open(&pair.client, 0).await;
    // proves: KMS-7.3, DHT-7.2
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_client_that_reads_slowly_is_served(pair: Pair) {
    const BYTES: usize = 1 << 20;
    let options = ServeOptions {
        write: SHORT * 5,
        idle: SHORT * 5,
        ..ServeOptions::default()
    };
    let app = Router::new().route("/", get(async || vec![7; 32 * BYTES]));
    let server = Server::start(&pair, app, options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    client
        .send("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await;
    let mut taken = 0;
    let mut buf = vec![0; BYTES];
    loop {
        // The whole takes several times the limits; each pause stays well below them.
        pair.client.sleep(SHORT / 2).await;
        let mut at = 0;
        while at < BYTES {
            match tokio::io::AsyncReadExt::read(&mut client.conn, &mut buf[at..]).await {
                Ok(0) => break,
                Ok(n) => at += n,
                Err(error) => panic!("cut after {} bytes: {error}", taken + at),
            }
        }
        taken += at;
        if at < BYTES {
            break;
        }
    }
    assert!(taken > 32 * BYTES, "only {taken} bytes");
    assert_eq!(server.stats.timeouts(Phase::Write), 0);
}

async fn connections_over_the_limit_hear_busy(pair: Pair) {
    let options = ServeOptions {
        max_conns: 2,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, hello(), options).await;
    let mut first = Raw::connect(&pair.client, server.addr).await;
    let mut second = Raw::connect(&pair.client, server.addr).await;
    // Half a request is no idle connection.
    for client in [&mut first, &mut second] {
        assert_eq!(client.get("/").await.status(), 200);
        client.send("GET / HTTP/1.1\r\n").await;
    }
    pair.client.sleep(SHORT).await;

    // proves: ADM-12.1
    let mut third = Raw::connect(&pair.client, server.addr).await;
    let answer = third.answer().await;
    assert_eq!(answer.status(), 503);
    assert!(answer.head.contains("retry-after: 1\r\n"));
    assert!(answer.head.contains("connection: close\r\n"));
    assert!(third.closed().await.is_empty());
    assert_eq!(server.stats.refused(Refusal::Connections), 1);
    assert_eq!(server.shutdowns.counts()[2], 1);

    first.send("host: localhost\r\n\r\n").await;
    assert_eq!(first.answer().await.status(), 200, "the others go on");
    drop(first);
    server.until_open(&pair.client, 1).await;
    let mut fourth = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(fourth.get("/").await.status(), 200);
}
