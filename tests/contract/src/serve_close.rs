//! `Env::serve`: the stop. What is in hand is finished, what is idle is closed, what is late is cut.

use std::{
    future::pending,
    io,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get, routing::post};
use ron_core::{
    seam::BoxFuture,
    seam::Conn,
    serve::{ClientCert, ServeOptions, TlsAccept},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, oneshot},
};

use crate::{
    Pair, list,
    serve::hello,
    support::{Raw, SHORT, Server},
};

list!("serve_close":
    idle_connections_close_and_requests_in_hand_are_finished,
    nothing_is_accepted_after_the_stop,
    a_stop_before_the_start_serves_nothing,
    requests_that_outlive_the_grace_are_cut_and_counted,
    a_dropped_server_cuts_its_connections,
    a_handshake_that_fails_or_hangs_is_shut_down,
    a_client_still_sending_a_refused_body_gets_its_answer,
    a_client_that_never_stops_sending_is_cut,
    a_stop_does_not_wait_for_a_client_that_still_sends,
    a_small_body_that_nobody_reads_costs_no_connection,
);

/// A handler that waits to be released, and tells when it has begun.
pub(crate) struct Gate {
    pub begun: Arc<Notify>,
    pub release: Arc<Notify>,
    pub app: Router,
}

impl Gate {
    pub fn new() -> Self {
        let (begun, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (begun.clone(), release.clone());
        let handler = move || {
            let (tell, wait) = (tell.clone(), wait.clone());
            async move {
                tell.notify_one();
                wait.notified().await;
                "finished"
            }
        };
        Gate {
            begun,
            release,
            app: hello().route("/gate", get(handler)),
        }
    }
}

/// A handler that never answers; the receiver tells when it is dropped.
pub(crate) fn stuck() -> (Router, Arc<Notify>, oneshot::Receiver<()>) {
    let (held, dropped) = oneshot::channel::<()>();
    let held = Arc::new(Mutex::new(Some(held)));
    let begun = Arc::new(Notify::new());
    let tell = begun.clone();
    let handler = move || {
        let (held, tell) = (held.lock().unwrap().take(), tell.clone());
        async move {
            let _held = held;
            tell.notify_one();
            pending::<&'static str>().await
        }
    };
    (Router::new().route("/", get(handler)), begun, dropped)
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn idle_connections_close_and_requests_in_hand_are_finished(pair: Pair) {
    let gate = Gate::new();
    let options = ServeOptions {
        close_grace: Duration::from_secs(60),
        // So that nothing but the stop itself can close an idle connection.
        write: Duration::from_secs(600),
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, gate.app, options).await;
    let mut idle = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(idle.get("/").await.status(), 200);
    let mut silent = Raw::connect(&pair.client, server.addr).await;
    let mut busy = Raw::connect(&pair.client, server.addr).await;
    busy.send("GET /gate HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    gate.begun.notified().await;
    server.until_open(&pair.client, 3).await;

    server.stop.trigger();
    assert!(idle.closed().await.is_empty());
    assert!(silent.closed().await.is_empty());
    server.until_open(&pair.client, 1).await;

    // proves: ADM-1.18
    gate.release.notify_one();
    let answer = busy.answer().await;
    assert_eq!((answer.status(), answer.body), (200, b"finished".to_vec()));
    assert!(busy.closed().await.is_empty());
    let report = server.task.await.unwrap();
    assert_eq!((report.accepted, report.aborted_at_close), (3, 0));
    assert_eq!(server.stats.open.load(Relaxed), 0);
    // proves: KMS-7.3, DHT-7.2
    assert_eq!(server.shutdowns.counts(), [1, 1, 1]);
}

async fn nothing_is_accepted_after_the_stop(pair: Pair) {
    let server = Server::start(&pair, hello(), ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(client.get("/").await.status(), 200);
    server.stop.trigger();
    server.stop.trigger();
    server.task.await.unwrap();
    // proves: ADM-1.17, ADM-6.10
    let error = pair
        .client
        .connect(server.addr)
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

async fn a_stop_before_the_start_serves_nothing(pair: Pair) {
    let listener = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let stop = ron_core::Shutdown::new();
    stop.trigger();
    let options = ServeOptions::default();
    let report = pair.server.serve(listener, hello(), options, stop).await;
    assert_eq!(report, Default::default());
}

async fn requests_that_outlive_the_grace_are_cut_and_counted(pair: Pair) {
    let (app, begun, dropped) = stuck();
    let options = ServeOptions {
        close_grace: SHORT,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, app, options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    client.send(REQUEST).await;
    begun.notified().await;
    let start = pair.client.now();
    server.stop.trigger();
    assert_eq!(server.task.await.unwrap().aborted_at_close, 1);
    assert!(pair.client.now() - start >= SHORT);
    assert!(dropped.await.is_err(), "the handler is gone");
    assert!(client.closed().await.is_empty());
    assert_eq!(server.stats.aborted_at_close.load(Relaxed), 1);
    assert_eq!(server.stats.open.load(Relaxed), 0);
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_dropped_server_cuts_its_connections(pair: Pair) {
    let (app, begun, dropped) = stuck();
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    client.send(REQUEST).await;
    begun.notified().await;
    server.task.abort();
    assert!(dropped.await.is_err(), "the handler is gone");
    assert!(client.closed().await.is_empty());
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_handshake_that_fails_or_hangs_is_shut_down(pair: Pair) {
    struct Handshake {
        hangs: bool,
    }
    impl TlsAccept for Handshake {
        fn accept(&self, conn: Conn) -> BoxFuture<'static, io::Result<(Conn, Option<ClientCert>)>> {
            let hangs = self.hangs;
            Box::pin(async move {
                let _conn = conn;
                if hangs {
                    pending::<()>().await;
                }
                Err(io::ErrorKind::InvalidData.into())
            })
        }
    }
    for hangs in [false, true] {
        let options = ServeOptions {
            header_read: SHORT,
            tls: Some(Arc::new(Handshake { hangs })),
            ..ServeOptions::default()
        };
        let server = Server::start(&pair, hello(), options).await;
        let mut client = Raw::connect(&pair.client, server.addr).await;
        assert!(client.closed().await.is_empty());
        server.until_open(&pair.client, 0).await;
        // proves: KMS-7.3, DHT-7.2
        assert_eq!(server.shutdowns.counts(), [1]);
        let failed = server.stats.handshakes_failed.load(Relaxed);
        let timed_out = server.stats.timeouts(ron_core::serve::Phase::HeaderRead);
        assert_eq!((failed, timed_out), if hangs { (0, 1) } else { (1, 0) });
    }
}

/// Refuses whatever is sent without reading it.
fn refuses() -> Router {
    hello().route("/refuses", post(|| async { StatusCode::PAYLOAD_TOO_LARGE }))
}

const PIECE: usize = 64 * 1024;

async fn begin_a_body_of(client: &mut Raw, bytes: usize) {
    let head =
        format!("POST /refuses HTTP/1.1\r\nhost: localhost\r\ncontent-length: {bytes}\r\n\r\n");
    client.send(&head).await;
    client.send(&"x".repeat(PIECE)).await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 413);
    // Or its next request would go to a connection that is being closed.
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
}

async fn a_client_still_sending_a_refused_body_gets_its_answer(pair: Pair) {
    const PIECES: usize = 64;
    let server = Server::start(&pair, refuses(), ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    begin_a_body_of(&mut client, PIECES * PIECE).await;
    let piece = "x".repeat(PIECE);
    for _ in 1..PIECES {
        // Fails if the server closed while there was something to read.
        client.send(&piece).await;
    }
    let mut rest = Vec::new();
    client.conn.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"", "no reset and no second answer");
    drop(client);
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_client_that_never_stops_sending_is_cut(pair: Pair) {
    let server = Server::start(&pair, refuses(), ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    begin_a_body_of(&mut client, 1 << 40).await;
    let piece = "x".repeat(PIECE);
    while client.conn.write_all(piece.as_bytes()).await.is_ok() {}
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.shutdowns.counts(), [1]);

    // One that is silent, without ever closing, is not waited for either.
    let mut client = Raw::connect(&pair.client, server.addr).await;
    begin_a_body_of(&mut client, 1 << 40).await;
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.shutdowns.counts(), [1, 1]);
}

async fn a_stop_does_not_wait_for_a_client_that_still_sends(pair: Pair) {
    let options = ServeOptions {
        close_grace: Duration::ZERO,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, refuses(), options).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    begin_a_body_of(&mut client, 1 << 40).await;
    server.stop.trigger();
    server.task.await.unwrap();
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_small_body_that_nobody_reads_costs_no_connection(pair: Pair) {
    let server = Server::start(&pair, refuses(), ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let request = "POST /refuses HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nsmall";
    client.send(request).await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 413);
    assert!(
        !answer.head.contains("connection: close"),
        "{}",
        answer.head
    );
    assert_eq!(client.get("/").await.status(), 200);
}
