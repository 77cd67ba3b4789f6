//! `Env::serve` over HTTP/2: the same limits and the same stop, with many requests on one connection.

use std::{
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use futures_util::{future::join_all, stream};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use ron_core::{
    Env,
    hyper_seam::{EnvExecutor, EnvTimer},
    serve::{Phase, ServeOptions},
};

use crate::{
    Pair, list,
    serve::hello,
    serve_close::Gate,
    support::{Raw, SHORT, Server},
};

list!("serve_http2":
    many_requests_share_one_connection,
    an_idle_connection_is_closed_but_not_early,
    a_dripped_header_block_does_not_keep_a_connection,
    a_slow_handler_is_no_idle_connection,
    a_client_that_opens_no_window_is_cut,
    a_request_in_hand_is_finished_after_the_stop,
    requests_that_outlive_the_grace_are_cut_and_counted,
);

pub(crate) type Client = SendRequest<Empty<Bytes>>;

pub(crate) async fn connect(env: &Env, addr: SocketAddr, window_bytes: u32) -> Client {
    let conn = env.connect(addr).await.unwrap();
    let (client, connection) = http2::Builder::new(EnvExecutor(env.clone()))
        .timer(EnvTimer(env.clone()))
        .initial_stream_window_size(window_bytes)
        .handshake(TokioIo::new(conn))
        .await
        .unwrap();
    drop(env.spawn("case-client", async move {
        // How it ends shows in the answers.
        let _ = connection.await;
    }));
    client
}

async fn send(client: &mut Client, path: &str) -> hyper::Result<(http::Version, Bytes)> {
    client.ready().await?;
    let request = http::Request::get(format!("http://localhost{path}")).body(Empty::new());
    let response = client.send_request(request.unwrap()).await?;
    let version = response.version();
    Ok((version, response.into_body().collect().await?.to_bytes()))
}

pub(crate) const WINDOW: u32 = 1 << 16;

async fn many_requests_share_one_connection(pair: Pair) {
    let server = Server::start(&pair, hello(), ServeOptions::default()).await;
    let client = connect(&pair.client, server.addr, WINDOW).await;
    let requests = (0..50).map(|_| {
        let mut client = client.clone();
        async move { send(&mut client, "/").await.unwrap() }
    });
    for (version, body) in join_all(requests).await {
        // proves: ADM-7.1
        assert_eq!(version, http::Version::HTTP_2);
        assert_eq!(body, "hello");
    }
    assert_eq!(server.stats.accepted.load(Relaxed), 1);
}

fn short() -> ServeOptions {
    ServeOptions {
        header_read: SHORT,
        idle: SHORT * 2,
        write: SHORT,
        ..ServeOptions::default()
    }
}

async fn an_idle_connection_is_closed_but_not_early(pair: Pair) {
    let server = Server::start(&pair, hello(), short()).await;
    let mut client = connect(&pair.client, server.addr, WINDOW).await;
    let start = pair.client.now();
    send(&mut client, "/").await.unwrap();
    server.until_open(&pair.client, 0).await;
    assert!(pair.client.now() - start >= SHORT * 2);
    assert_eq!(server.stats.timeouts(Phase::Idle), 1);
    assert_eq!(server.stats.timeouts(Phase::HeaderRead), 0);
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_dripped_header_block_does_not_keep_a_connection(pair: Pair) {
    let server = Server::start(&pair, hello(), short()).await;
    let mut client = Raw::connect(&pair.client, server.addr).await;
    // The preface, empty settings, and a header block that its end flag never closes.
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.send("\0\0\0\x04\0\0\0\0\0").await;
    client.send("\0\0\x01\x01\0\0\0\0\x01\x02").await;
    server
        .until(&pair.client, |stats| stats.timeouts(Phase::Idle) == 1)
        .await;
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_slow_handler_is_no_idle_connection(pair: Pair) {
    let env = pair.server.clone();
    let slow = move || {
        let env = env.clone();
        async move {
            env.sleep(SHORT * 5).await;
            "at last"
        }
    };
    let server = Server::start(&pair, Router::new().route("/", get(slow)), short()).await;
    let mut client = connect(&pair.client, server.addr, WINDOW).await;
    assert_eq!(send(&mut client, "/").await.unwrap().1, "at last");
}

async fn a_client_that_opens_no_window_is_cut(pair: Pair) {
    async fn pieces() -> Body {
        let piece = Bytes::from_static(&[7; 1000]);
        Body::from_stream(stream::repeat_with(move || {
            Ok::<_, Infallible>(piece.clone())
        }))
    }
    let options = ServeOptions {
        idle: Duration::from_secs(600),
        ..short()
    };
    let server = Server::start(&pair, Router::new().route("/", get(pieces)), options).await;
    let mut client = connect(&pair.client, server.addr, 0).await;
    client.ready().await.unwrap();
    let request = http::Request::get("http://localhost/").body(Empty::new());
    let response = client.send_request(request.unwrap()).await.unwrap();
    server.until_open(&pair.client, 0).await;
    assert_eq!(server.stats.timeouts(Phase::Write), 1);
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn a_request_in_hand_is_finished_after_the_stop(pair: Pair) {
    let gate = Gate::new();
    let options = ServeOptions {
        close_grace: Duration::from_secs(60),
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, gate.app, options).await;
    let mut client = connect(&pair.client, server.addr, WINDOW).await;
    let release = async {
        gate.begun.notified().await;
        server.stop.trigger();
        pair.client.sleep(SHORT).await;
        gate.release.notify_one();
    };
    let (answer, ()) = tokio::join!(biased; send(&mut client, "/gate"), release);
    assert_eq!(answer.unwrap().1, "finished");
    assert_eq!(server.task.await.unwrap().aborted_at_close, 0);
    assert_eq!(server.shutdowns.counts(), [1]);
}

async fn requests_that_outlive_the_grace_are_cut_and_counted(pair: Pair) {
    const REQUESTS: usize = 50;
    let alive = Arc::new(AtomicUsize::new(0));
    let count = alive.clone();
    let handler = move || {
        let here = Here::new(count.clone());
        async move {
            let _here = here;
            pending::<&'static str>().await
        }
    };
    let options = ServeOptions {
        close_grace: SHORT,
        ..ServeOptions::default()
    };
    let server = Server::start(&pair, Router::new().route("/", get(handler)), options).await;
    let client = connect(&pair.client, server.addr, WINDOW).await;
    let requests = join_all((0..REQUESTS).map(|_| {
        let mut client = client.clone();
        async move { send(&mut client, "/").await }
    }));
    let cut = async {
        while alive.load(Relaxed) < REQUESTS {
            pair.client.sleep(SHORT / 10).await;
        }
        server.stop.trigger();
        let report = server.task.await.unwrap();
        // Each stream is a task of its own: all must be gone when the server is.
        (report.aborted_at_close, alive.load(Relaxed))
    };
    let (answers, (aborted, left)) = tokio::join!(biased; requests, cut);
    assert!(answers.iter().all(Result::is_err));
    assert_eq!((aborted, left), (1, 0));
}

/// A handler at work. It takes its time to go, so that one who does not wait for it is found out.
struct Here(Arc<AtomicUsize>);

impl Here {
    fn new(alive: Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Relaxed);
        Here(alive)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let work = (0..300_000_u64).fold(0, |a: u64, b| a.wrapping_mul(31) ^ b);
        std::hint::black_box(work);
        self.0.fetch_sub(1, Relaxed);
    }
}
