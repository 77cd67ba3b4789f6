//! `Env::http`: one request out, nothing of its own accord, errors that say what is known.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, response::Redirect, routing::get};
use bytes::Bytes;
use http_body_util::BodyExt;
use ron_core::{
    Env,
    seam::{Conn, HttpError, Listener},
    serve::ServeOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    Pair, list,
    serve_close::stuck,
    support::{SHORT, Server},
};

list!("http":
    the_deadline_bounds_the_answer_and_never_fires_early,
    a_passed_deadline_sends_nothing,
    a_refused_connection_was_certainly_not_seen,
    a_connection_lost_before_the_answer_leaves_the_outcome_unknown,
    a_body_cut_short_is_an_error_of_the_body,
    a_body_read_to_its_end_leaves_its_connection_to_the_next_request,
    a_body_dropped_before_its_end_takes_its_connection_along,
    a_wait_for_the_answer_given_up_takes_its_connection_along,
    redirects_are_answers_like_any_other,
    status_codes_and_headers_pass_both_ways,
    addresses_that_are_no_urls_are_invalid,
);

fn post(url: &str) -> http::Request<Bytes> {
    http::Request::post(url).body(Bytes::from("x")).unwrap()
}

fn soon(env: &Env) -> std::time::Instant {
    env.now() + Duration::from_secs(30)
}

fn get_request(url: &str) -> http::Request<Bytes> {
    http::Request::get(url).body(Bytes::new()).unwrap()
}

async fn listen(pair: &Pair) -> (Box<dyn Listener>, String) {
    let addr = (pair.server_ip, 0).into();
    let listener = pair.server.listen(addr).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

/// Reads one request without a body.
async fn read_head(conn: &mut Conn) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let n = conn.read_buf(&mut head).await.unwrap();
        assert_ne!(n, 0, "closed before a request came");
    }
}

/// Waits for the other side to be gone; it may leave in any way, but must not say more.
async fn until_closed(conn: &mut Conn) {
    let mut more = Vec::new();
    let _ = conn.read_to_end(&mut more).await;
    assert!(more.is_empty(), "{more:?}");
}

async fn the_deadline_bounds_the_answer_and_never_fires_early(pair: Pair) {
    let (app, _, _dropped) = stuck();
    let app = app.route("/post", axum::routing::post(std::future::pending::<()>));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let start = pair.client.now();
    let deadline = start + SHORT;
    let error = pair.client.http(post(&server.url("/post")), deadline).await;
    assert!(pair.client.now() >= deadline);
    let error = error.unwrap_err();
    assert!(
        matches!(error, HttpError::Timeout { sent: true }),
        "{error:?}"
    );
    assert!(error.outcome_unknown());
}

async fn a_passed_deadline_sends_nothing(pair: Pair) {
    let hits = Arc::new(AtomicUsize::new(0));
    let count = hits.clone();
    let handler = move || {
        count.fetch_add(1, Relaxed);
        std::future::ready("seen")
    };
    let app = Router::new().route("/", axum::routing::post(handler));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let error = pair
        .client
        .http(post(&server.url("/")), pair.client.now())
        .await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, HttpError::Timeout { sent: false }),
        "{error:?}"
    );
    assert!(!error.outcome_unknown());
    pair.client.sleep(SHORT).await;
    assert_eq!(hits.load(Relaxed), 0);
}

async fn a_refused_connection_was_certainly_not_seen(pair: Pair) {
    let listener = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error = pair
        .client
        .http(post(&url), soon(&pair.client))
        .await
        .unwrap_err();
    assert!(!error.outcome_unknown());
    let HttpError::Connect { to, source } = error else {
        panic!("{error:?}");
    };
    assert!(url.contains(&to));
    assert_eq!(source.kind(), io::ErrorKind::ConnectionRefused);
}

async fn a_connection_lost_before_the_answer_leaves_the_outcome_unknown(pair: Pair) {
    let listener = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let lose = async {
        let (mut conn, _) = listener.accept().await.unwrap();
        conn.read_exact(&mut [0; 10]).await.unwrap();
        drop(conn);
        listener
    };
    let request = pair.client.http(post(&url), soon(&pair.client));
    let (result, _listener) = tokio::join!(biased; request, lose);
    let error = result.unwrap_err();
    assert!(matches!(error, HttpError::Lost { .. }), "{error:?}");
    assert!(error.outcome_unknown());
}

async fn a_body_cut_short_is_an_error_of_the_body(pair: Pair) {
    let listener = pair
        .server
        .listen((pair.server_ip, 0).into())
        .await
        .unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let cut = async {
        let (mut conn, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        let _ = conn.read(&mut head).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
        conn.write_all(answer).await.unwrap();
        conn.shutdown().await.unwrap();
        conn
    };
    let request = http::Request::get(&url).body(Bytes::new()).unwrap();
    let request = pair.client.http(request, soon(&pair.client));
    let (response, _conn) = tokio::join!(biased; request, cut);
    assert!(response.unwrap().into_body().collect().await.is_err());
}

async fn a_body_read_to_its_end_leaves_its_connection_to_the_next_request(pair: Pair) {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let (listener, url) = listen(&pair).await;
        let serve = async {
            let (mut conn, _) = listener.accept().await.unwrap();
            for _ in 0..3 {
                tokio::select! {
                    biased;
                    () = read_head(&mut conn) => {}
                    _ = listener.accept() => panic!("a second connection"),
                }
                conn.write_all(answer.as_bytes()).await.unwrap();
            }
            conn
        };
        let ask = async {
            for _ in 0..3 {
                let response = pair.client.http(get_request(&url), soon(&pair.client));
                response.await.unwrap().into_body().collect().await.unwrap();
                // The connection may learn of the end a moment after the reader.
                pair.client.sleep(SHORT).await;
            }
        };
        let (_conn, ()) = tokio::join!(biased; serve, ask);
    }
}

/// Else a peer that stalls and keeps its end open would be left one more socket by each attempt.
async fn a_body_dropped_before_its_end_takes_its_connection_along(pair: Pair) {
    for start in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\n\r\nabc",
    ] {
        let (listener, url) = listen(&pair).await;
        let stall = async {
            let (mut conn, _) = listener.accept().await.unwrap();
            read_head(&mut conn).await;
            conn.write_all(start.as_bytes()).await.unwrap();
            until_closed(&mut conn).await;
        };
        let give_up = async {
            let response = pair.client.http(get_request(&url), soon(&pair.client));
            let mut body = response.await.unwrap().into_body();
            let first = body.frame().await.unwrap().unwrap();
            assert_eq!(first.into_data().unwrap(), "abc");
            // By now the connection waits for bytes, not for its reader.
            pair.client.sleep(SHORT).await;
        };
        tokio::join!(biased; stall, give_up);
    }
}

async fn a_wait_for_the_answer_given_up_takes_its_connection_along(pair: Pair) {
    for by_deadline in [true, false] {
        let (listener, url) = listen(&pair).await;
        let (tell, asked) = tokio::sync::oneshot::channel();
        let stall = async {
            let (mut conn, _) = listener.accept().await.unwrap();
            read_head(&mut conn).await;
            tell.send(()).unwrap();
            until_closed(&mut conn).await;
        };
        let give_up = async {
            if by_deadline {
                // Long enough for the request to arrive on a slow machine too.
                let deadline = pair.client.now() + 10 * SHORT;
                let answer = pair.client.http(get_request(&url), deadline).await;
                let error = answer.unwrap_err();
                assert!(
                    matches!(error, HttpError::Timeout { sent: true }),
                    "{error:?}"
                );
                asked.await.unwrap();
            } else {
                tokio::select! {
                    biased;
                    asked = asked => asked.unwrap(),
                    answer = pair.client.http(get_request(&url), soon(&pair.client)) => {
                        panic!("{answer:?}");
                    }
                }
            }
        };
        tokio::join!(biased; stall, give_up);
    }
}

async fn redirects_are_answers_like_any_other(pair: Pair) {
    let hits = Arc::new(AtomicUsize::new(0));
    let count = hits.clone();
    let landed = move || {
        count.fetch_add(1, Relaxed);
        std::future::ready("landed")
    };
    let app = Router::new()
        .route("/", get(async || Redirect::temporary("/there")))
        .route("/there", get(landed));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let request = http::Request::get(server.url("/"))
        .body(Bytes::new())
        .unwrap();
    let response = pair.client.http(request, soon(&pair.client)).await.unwrap();
    assert_eq!(response.status(), 307);
    assert_eq!(response.headers()["location"], "/there");
    assert_eq!(hits.load(Relaxed), 0);
}

async fn status_codes_and_headers_pass_both_ways(pair: Pair) {
    let echo = |headers: http::HeaderMap| async move {
        let mut back = http::HeaderMap::new();
        back.insert("x-back", headers["x-there"].clone());
        (http::StatusCode::IM_A_TEAPOT, back, "short")
    };
    let app = Router::new().route("/", get(echo));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let request = http::Request::get(server.url("/?q=1"))
        .header("x-there", "value")
        .body(Bytes::new())
        .unwrap();
    let response = pair.client.http(request, soon(&pair.client)).await.unwrap();
    assert_eq!(response.status(), 418);
    assert_eq!(response.headers()["x-back"], "value");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "short");
}

async fn addresses_that_are_no_urls_are_invalid(pair: Pair) {
    for address in ["/path", "case:1", "ftp://case/", "*"] {
        let error = pair.client.http(post(address), soon(&pair.client)).await;
        assert!(
            matches!(error, Err(HttpError::Invalid(_))),
            "{address}: {error:?}"
        );
    }
}
