//! `Env::serve`: requests and answers.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, atomic::Ordering::Relaxed},
};

use axum::{
    Json, Router,
    body::Body,
    extract::Extension,
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use ron_core::{
    Shutdown,
    seam::{BoxFuture, Conn, Listener},
    serve::{Peer, ServeOptions},
};
use serde_json::{Value, json};

use crate::{
    Pair, list,
    support::{Raw, Server},
};

list!("serve":
    one_connection_carries_many_requests,
    pipelined_requests_are_answered_in_order,
    json_goes_in_and_out,
    large_bodies_stream_both_ways,
    a_request_knows_its_peer,
    a_panicking_handler_costs_its_request_only,
    malformed_requests_are_answered_and_closed,
    accept_errors_never_end_the_server,
);

pub(crate) fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

async fn one_connection_carries_many_requests(pair: Pair) {
    let server = Server::start(&pair, hello(), ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    for _ in 0..10 {
        let answer = client.get("/").await;
        assert_eq!((answer.status(), answer.body), (200, b"hello".to_vec()));
    }
    assert_eq!(client.get("/none").await.status(), 404);
    assert_eq!(server.stats.accepted.load(Relaxed), 1);
    assert_eq!(server.stats.open.load(Relaxed), 1);
    drop(client);
    server.until_open(&pair.client, 0).await;
}

async fn pipelined_requests_are_answered_in_order(pair: Pair) {
    let echo = |path: axum::extract::Path<String>| async move { path.0 };
    let app = Router::new().route("/{name}", get(echo));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let names = ["a", "b", "c"];
    let requests = names.map(|n| format!("GET /{n} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
    client.send(&requests.concat()).await;
    for name in names {
        assert_eq!(client.answer().await.body, name.as_bytes());
    }
}

async fn json_goes_in_and_out(pair: Pair) {
    let double = |Json(n): Json<u64>| async move { Json(json!({ "double": n * 2 })) };
    let app = Router::new().route("/double", post(double));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let request = http::Request::post(server.url("/double"))
        .header("content-type", "application/json")
        .body(Bytes::from("21"))
        .unwrap();
    let deadline = pair.client.now() + std::time::Duration::from_secs(30);
    let response = pair.client.http(request, deadline).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer, json!({ "double": 42 }));
}

async fn large_bodies_stream_both_ways(pair: Pair) {
    const PIECES: u32 = 100;
    const PIECE_BYTES: usize = 30_011;
    fn piece(i: u32) -> Vec<u8> {
        [i as u8].repeat(PIECE_BYTES)
    }
    async fn download() -> Body {
        let pieces = (0..PIECES).map(|i| Ok::<_, io::Error>(piece(i)));
        Body::from_stream(stream::iter(pieces))
    }
    async fn upload(body: Bytes) -> String {
        assert!(body.chunks(PIECE_BYTES).eq((0..PIECES).map(piece)));
        body.len().to_string()
    }
    let app = Router::new()
        .route("/", get(download).post(upload))
        .layer(axum::extract::DefaultBodyLimit::disable());
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let deadline = pair.client.now() + std::time::Duration::from_secs(30);

    let request = http::Request::get(server.url("/")).body(Bytes::new());
    let response = pair.client.http(request.unwrap(), deadline).await.unwrap();
    let whole = response.into_body().collect().await.unwrap().to_bytes();
    assert!(whole.chunks(PIECE_BYTES).eq((0..PIECES).map(piece)));

    let request = http::Request::post(server.url("/")).body(whole.clone());
    let response = pair.client.http(request.unwrap(), deadline).await.unwrap();
    let told = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(told, whole.len().to_string());
}

async fn a_request_knows_its_peer(pair: Pair) {
    let tell = |Extension(peer): Extension<Peer>| async move {
        assert!(peer.cert.is_none());
        peer.addr.to_string()
    };
    let server = Server::start(
        &pair,
        Router::new().route("/", get(tell)),
        ServeOptions::default(),
    );
    let server = server.await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    let told = String::from_utf8(client.get("/").await.body).unwrap();
    assert_ne!(told.parse::<SocketAddr>().unwrap().port(), 0);
}

async fn a_panicking_handler_costs_its_request_only(pair: Pair) {
    async fn broken() -> &'static str {
        panic!("a handler's own")
    }
    let app = hello().route("/panic", get(broken));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    assert_eq!(client.get("/panic").await.status(), 500);
    assert_eq!(client.get("/").await.status(), 200);
    assert_eq!(server.stats.panics.load(Relaxed), 1);
}

async fn malformed_requests_are_answered_and_closed(pair: Pair) {
    let server = Server::start(&pair, hello(), ServeOptions::default()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    client.send("this is not HTTP\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 400);
    assert!(client.closed().await.is_empty());
    drop(client);
    server.until_open(&pair.client, 0).await;
    // proves: KMS-7.3, DHT-7.2
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn accept_errors_never_end_the_server(pair: Pair) {
    /// Fails as often as it has errors left, then accepts.
    struct Failing(Box<dyn Listener>, Mutex<Vec<io::ErrorKind>>);
    impl Listener for Failing {
        fn accept(&self) -> BoxFuture<'_, io::Result<(Conn, SocketAddr)>> {
            Box::pin(async {
                if let Some(kind) = { self.1.lock().unwrap().pop() } {
                    return Err(kind.into());
                }
                self.0.accept().await
            })
        }
        fn local_addr(&self) -> io::Result<SocketAddr> {
            self.0.local_addr()
        }
    }
    let inner = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let addr = inner.local_addr().unwrap();
    let errors = vec![
        io::ErrorKind::Other,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::OutOfMemory,
    ];
    let failing = Failing(inner, Mutex::new(errors));
    let options = ServeOptions::default();
    let (env, stop, stats) = (pair.server.clone(), Shutdown::new(), options.stats.clone());
    let until = stop.clone();
    let task = pair.server.spawn("case-server", async move {
        env.serve(Box::new(failing), hello(), options, until).await
    });
    let mut client = Raw::connect(&pair.client, addr).await;
    assert_eq!(client.get("/").await.status(), 200);
    // A connection that was gone before it was accepted is no failure of the listener.
    assert_eq!(stats.accept_errors.load(Relaxed), 2);
    stop.trigger();
    assert_eq!(task.await.unwrap().accepted, 1);
}
