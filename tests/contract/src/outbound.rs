//! `Env::http`: one request out, nothing of its own accord, errors that say what is known.

use std::{
    convert::Infallible,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, body::Body, response::Redirect, routing::get};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use ron_core::{
    Env,
    backoff::Backoff,
    deadline::Deadline,
    outbound::{
        AddressPolicy, BreakerRules, CallError, Client, ClientPem, ClientRules, Egress, Exactly,
        OutboundLimits, RetryRules, TlsIdentity, WrongLength,
    },
    seam::{Conn, HttpError, Listener},
    serve::ServeOptions,
    telemetry::Telemetry,
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
    a_forbidden_address_is_not_dialled_whether_literal_or_resolved,
    of_several_addresses_only_the_allowed_are_dialled,
    ways_out_share_no_connection,
    an_identity_that_is_no_certificate_is_refused_when_it_is_configured,
    a_streamed_body_arrives_whole_with_its_length_if_that_is_known,
    a_streamed_body_is_asked_for_no_faster_than_it_is_taken,
    a_streamed_body_that_breaks_off_is_never_seen_as_whole,
    a_client_asks_again_until_the_server_is_there,
    a_client_leaves_a_dead_server_alone_and_finds_it_when_it_is_back,
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

fn only(ip: std::net::IpAddr) -> Egress {
    Egress::to(AddressPolicy::none().allow([ip.into()]))
}

async fn a_forbidden_address_is_not_dialled_whether_literal_or_resolved(pair: Pair) {
    let (listener, literal) = listen(&pair).await;
    let addr = listener.local_addr().unwrap();
    let named = format!("http://{}:{}/", pair.server_name, addr.port());
    let mapped = match addr.ip() {
        IpAddr::V4(v4) => format!("http://[{}]:{}/", v4.to_ipv6_mapped(), addr.port()),
        IpAddr::V6(_) => literal.clone(),
    };
    let public = Egress::to(AddressPolicy::public());
    let none = Egress::to(AddressPolicy::none());
    let refused = Egress::to(AddressPolicy::any().refuse([
        addr.ip().into(),
        "::1".parse().unwrap(),
        "169.254.0.0/16".parse().unwrap(),
        "10.0.0.0/8".parse().unwrap(),
    ]));
    for egress in [public, none, refused] {
        for url in [&literal, &named, &mapped] {
            let answer = pair.client.http_via(&egress, post(url), soon(&pair.client));
            let error = answer.await.unwrap_err();
            assert!(!error.outcome_unknown());
            let HttpError::Forbidden { to, source } = error else {
                panic!("{url}: {error:?}");
            };
            assert!(url.contains(&to), "{to}");
            assert!(!source.to_string().contains('\n'));
        }
    }
    let silence = pair.server.timeout(SHORT, listener.accept()).await;
    assert!(silence.is_err(), "somebody was dialled");
}

async fn of_several_addresses_only_the_allowed_are_dialled(pair: Pair) {
    let app = Router::new().route("/", get(async || "here"));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let found = pair.client.resolve(pair.server_name, 80).await.unwrap();
    assert!(found.iter().any(|addr| addr.ip() == pair.server_ip));
    let url = format!("http://{}:{}/", pair.server_name, server.addr.port());
    for _ in 0..3 {
        let egress = only(pair.server_ip);
        let mut request = get_request(&url);
        // The name is the resolver's; whether the server goes by it is not the question here.
        let host = server.addr.to_string().parse().unwrap();
        request.headers_mut().insert("host", host);
        let answer = pair.client.http_via(&egress, request, soon(&pair.client));
        let body = answer.await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "here");
    }
}

/// A connection was made under one policy and proved one identity: it is nobody else's.
async fn ways_out_share_no_connection(pair: Pair) {
    let app = Router::new().route("/", get(async || "here"));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let url = server.url("/");
    let wide = Egress::to(AddressPolicy::any().refuse(["192.0.2.1".parse().unwrap()]));
    let narrow = || only(pair.server_ip);
    // Connections that the server has seen after each request.
    let cases = [
        (Egress::default(), 1),
        (wide.clone(), 2),
        (narrow(), 3),
        (Egress::default(), 3),
        (wide, 3),
        (narrow(), 3),
    ];
    for (egress, connections) in cases {
        let answer = pair
            .client
            .http_via(&egress, get_request(&url), soon(&pair.client));
        answer.await.unwrap().into_body().collect().await.unwrap();
        // The connection may learn of the end a moment after the reader.
        pair.client.sleep(SHORT).await;
        assert_eq!(server.shutdowns.counts().len(), connections, "{egress:?}");
    }
}

async fn an_identity_that_is_no_certificate_is_refused_when_it_is_configured(pair: Pair) {
    let pem = |label: &str| format!("-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n");
    let (key, garbage) = (pem("PRIVATE KEY"), "no certificate".to_owned());
    let ca = |ca: &str| TlsIdentity {
        ca: Some(ca.into()),
        client: None,
    };
    let client = |cert: &str, key: &str| TlsIdentity {
        ca: None,
        client: Some(ClientPem {
            cert: cert.into(),
            key: key.as_bytes().to_vec().into(),
        }),
    };
    let cut = pem("CERTIFICATE").replace("-----END", "");
    for (identity, told) in [
        (ca(&garbage), "no certificate in the authority PEM"),
        (ca(""), "no certificate in the authority PEM"),
        (ca(&key), "no certificate in the authority PEM"),
        (ca(&cut), "malformed authority PEM"),
        (
            client(&garbage, &key),
            "no certificate in the client certificate PEM",
        ),
        (
            client(&pem("CERTIFICATE"), &garbage),
            "no private key in the key PEM",
        ),
        (client(&pem("CERTIFICATE"), &cut), "key PEM"),
    ] {
        let error = pair
            .client
            .egress(AddressPolicy::any(), identity)
            .unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(told) && !error.contains('\n'),
            "{told}: {error}"
        );
    }
    let none = TlsIdentity::default();
    let plain = pair.client.egress(AddressPolicy::any(), none).unwrap();
    assert_eq!(plain, Egress::default());
}

/// So many pieces of 16 KiB, and how many have been asked for.
fn pieces(most: usize) -> (Body, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let next = move |n: usize| {
        let count = count.clone();
        async move {
            count.fetch_add(1, Relaxed);
            let piece = Bytes::from(vec![n as u8; 16 << 10]);
            (n < most).then_some((Ok::<_, Infallible>(piece), n + 1))
        }
    };
    (Body::from_stream(stream::unfold(0, next)), asked)
}

async fn a_streamed_body_arrives_whole_with_its_length_if_that_is_known(pair: Pair) {
    let tell = |headers: http::HeaderMap, body: Body| async move {
        let length = headers
            .get("content-length")
            .map(|v| v.to_str().unwrap().to_owned());
        let body = body.collect().await.unwrap().to_bytes();
        let right = body
            .chunks(16 << 10)
            .enumerate()
            .all(|(n, piece)| piece.iter().all(|b| *b == n as u8));
        format!("{length:?} {} {right}", body.len())
    };
    let app = Router::new().route("/", axum::routing::post(tell));
    let server = Server::start(&pair, app, ServeOptions::default()).await;
    let length = 20 * (16 << 10);
    let known = Exactly::body(length, pieces(20).0);
    for (body, announced) in [
        (pieces(20).0, "None".into()),
        (known, format!("Some(\"{length}\")")),
    ] {
        let request = http::Request::post(server.url("/")).body(body).unwrap();
        let answer = pair.client.http(request, soon(&pair.client)).await.unwrap();
        let told = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(told, format!("{announced} {length} true"));
    }
}

async fn a_streamed_body_is_asked_for_no_faster_than_it_is_taken(pair: Pair) {
    let (listener, url) = listen(&pair).await;
    let (endless, asked) = pieces(usize::MAX);
    let request = http::Request::post(url).body(endless).unwrap();
    let stall = async {
        let accepted = listener.accept().await.unwrap();
        pair.server.sleep(5 * SHORT).await;
        accepted
    };
    let deadline = pair.client.now() + 5 * SHORT;
    let (answer, _conn) = tokio::join!(biased; pair.client.http(request, deadline), stall);
    assert!(
        matches!(answer, Err(HttpError::Timeout { sent: true })),
        "{answer:?}"
    );
    // What the buffers on the way hold: a few megabytes on a real machine.
    let held = asked.load(Relaxed) * (16 << 10);
    assert!(held < 64 << 20, "{held} bytes for nobody");
}

async fn a_streamed_body_that_breaks_off_is_never_seen_as_whole(pair: Pair) {
    for announced in [None, Some(32 << 10), Some(8 << 10)] {
        let (listener, url) = listen(&pair).await;
        let (first, _) = pieces(1);
        let first = first.into_data_stream();
        let broken =
            Body::from_stream(first.chain(stream::iter([Err(axum::Error::new(WrongLength))])));
        let body = match announced {
            None => broken,
            Some(length) => Exactly::body(length, broken),
        };
        let request = http::Request::post(url).body(body).unwrap();
        let watch = async {
            let (mut conn, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            let _ = conn.read_to_end(&mut seen).await;
            seen
        };
        let ask = pair.client.http(request, soon(&pair.client));
        let (answer, seen) = tokio::join!(biased; ask, watch);
        let error = answer.unwrap_err();
        assert!(matches!(error, HttpError::Lost { .. }), "{error:?}");
        let head = seen.windows(4).position(|w| w == b"\r\n\r\n");
        let body = head.map_or(0, |at| seen.len() - at - 4) as u64;
        match announced {
            None => assert!(!seen.ends_with(b"0\r\n\r\n")),
            Some(length) => assert!(body < length, "{body} of {length}"),
        }
    }
}

fn client(env: &Env, attempts: u32) -> Client {
    let rules = ClientRules {
        retry: RetryRules {
            attempts,
            backoff: Backoff::band(SHORT / 2, SHORT, SHORT),
            attempt_timeout: None,
        },
        breaker: BreakerRules {
            failures: 20,
            open: 2 * SHORT,
            ..BreakerRules::default()
        },
        limits: OutboundLimits::default(),
    };
    let telemetry = Telemetry::new("case", "");
    Client::new(env, &telemetry, "case", Egress::default(), rules)
}

/// An address that nobody listens at, for now.
async fn nobody_at(pair: &Pair) -> (std::net::SocketAddr, String) {
    let (listener, url) = listen(pair).await;
    (listener.local_addr().unwrap(), url)
}

async fn answer_one(listener: Box<dyn Listener>) -> Conn {
    let (mut conn, _) = listener.accept().await.unwrap();
    read_head(&mut conn).await;
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    conn.write_all(answer).await.unwrap();
    conn
}

async fn a_client_asks_again_until_the_server_is_there(pair: Pair) {
    let (addr, url) = nobody_at(&pair).await;
    let client = client(&pair.client, 19);
    let late = async {
        pair.server.sleep(3 * SHORT).await;
        answer_one(pair.server.listen(addr).await.unwrap()).await
    };
    let deadline = Deadline::at(soon(&pair.client));
    let call = client.call(get_request(&url), deadline);
    let (answer, _conn) = tokio::join!(biased; call, late);
    assert_eq!(answer.unwrap().status(), 204);
}

async fn a_client_leaves_a_dead_server_alone_and_finds_it_when_it_is_back(pair: Pair) {
    let (addr, url) = nobody_at(&pair).await;
    let client = client(&pair.client, 1);
    let deadline = Deadline::at(soon(&pair.client));
    let call = || client.call(get_request(&url), deadline);
    for _ in 0..20 {
        let error = call().await.unwrap_err();
        assert!(!error.outcome_unknown());
        assert!(matches!(error, CallError::Failed { .. }), "{error:?}");
    }
    let listener = pair.server.listen(addr).await.unwrap();
    // It is back, and nobody knows yet.
    let CallError::Refused { retry_after, .. } = call().await.unwrap_err() else {
        panic!("the breaker is closed");
    };
    pair.client.sleep(retry_after).await;
    let (answer, _conn) = tokio::join!(biased; call(), answer_one(listener));
    assert_eq!(answer.unwrap().status(), 204);
}
