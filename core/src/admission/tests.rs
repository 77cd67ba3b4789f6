//! What passes the layer, what does not, and in which order it is asked.

use std::{
    io::Write,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use axum::{Extension, Router, routing::post};
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::{
    auth::{Identity, Ingress, Mode},
    front::Door,
    problem::{Problem, read_body},
    test_env::{EPOCH_S, World},
};

struct Bench {
    world: World,
    telemetry: Telemetry,
    admission: Arc<Admission>,
    app: Router,
    draining: Arc<AtomicBool>,
    rejects: Arc<Mutex<Vec<&'static str>>>,
    handled: Arc<AtomicUsize>,
}

fn limits() -> Limits {
    Limits {
        body_cap: 1000,
        inflate: InflateLimits {
            max_ratio: 10,
            max_bytes: 5000,
        },
        rate_per_s: None,
        ..AdmissionConfig::default().limits()
    }
}

fn bench(limits: Limits) -> Bench {
    let (world, telemetry) = (World::new(), Telemetry::new("x", ""));
    let env = world.env();
    let draining = Arc::new(AtomicBool::new(false));
    let rejects = Arc::new(Mutex::new(Vec::new()));
    let handled = Arc::new(AtomicUsize::new(0));
    let gate = Gate::new(
        Mode::Ingress(Ingress {
            user_header: "x-user".parse().unwrap(),
            groups_header: "x-groups".parse().unwrap(),
            tenant_header: "x-tenant".parse().unwrap(),
            trusted: vec!["10.0.0.1".parse().unwrap()],
        }),
        &telemetry,
    );
    let (asked, told) = (draining.clone(), rejects.clone());
    let admission = Admission::new(&env, &telemetry, limits)
        .draining(move || asked.load(Ordering::Relaxed))
        .auth(gate)
        .on_reject(move |reject| told.lock().unwrap().push(reject.reason()));
    let admission = Arc::new(admission);
    let count = handled.clone();
    let echo = move |Extension(who): Extension<Identity>, body: Body| async move {
        let body = read_body(body).await?;
        count.fetch_add(1, Ordering::Relaxed);
        let body = String::from_utf8_lossy(&body);
        Ok::<_, Problem>(format!("{}:{body}", who.subject))
    };
    let clock = env.clone();
    let slow = move |Extension(deadline): Extension<Deadline>, now: HeaderMap| async move {
        let ms: u64 = now["x-work-ms"].to_str().unwrap().parse().unwrap();
        let left = deadline.instant() - clock.now();
        clock.sleep(Duration::from_millis(ms)).await;
        left.as_millis().to_string()
    };
    let stream = || async {
        Body::from_stream(stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(
            b"x",
        ))]))
    };
    let routes = Router::new()
        .route("/echo", post(echo))
        .route("/slow", post(slow))
        .route("/stream", post(stream));
    let app = routes.layer(Door::new(&env).admitting(&admission));
    Bench {
        world,
        telemetry,
        admission,
        app,
        draining,
        rejects,
        handled,
    }
}

impl Bench {
    fn request(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request {
        let mut request = Request::builder().method("POST").uri(path);
        for (name, value) in [("content-type", "application/json"), ("x-user", "ada")] {
            if !headers.iter().any(|(n, _)| *n == name) {
                request = request.header(name, value);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body.into()).unwrap();
        let addr = "10.0.0.1:9".parse().unwrap();
        request.extensions_mut().insert(Peer { addr, cert: None });
        request
    }

    fn send(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let request = self.request(path, headers, body);
        self.world.run(async {
            let response = self.app.clone().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let body = String::from_utf8(read_body(body).await.unwrap().to_vec()).unwrap();
            let problem: Value = serde_json::from_str(&body).unwrap_or_default();
            let code = problem["code"].as_str().unwrap_or_default().to_owned();
            Answer {
                status: parts.status.as_u16(),
                headers: parts.headers,
                body,
                code,
            }
        })
    }

    fn rejected(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.rejects.lock().unwrap())
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
    code: String,
}

impl Answer {
    fn told(&self) -> (u16, &str) {
        (self.status, &self.code)
    }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_sound_request_reaches_its_handler_with_identity_and_body() {
    let bench = bench(limits());
    let answer = bench.send("/echo", &[], r#"{"a":1}"#);
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, r#"ada:{"a":1}"#)
    );
    let answer = bench.send("/echo", &[("content-encoding", "GZIP")], gzip(b"[1,2]"));
    assert_eq!((answer.status, answer.body.as_str()), (200, "ada:[1,2]"));
    assert!(bench.rejected().is_empty());
    assert_eq!(bench.admission.in_flight(), 0);
}

#[test]
fn a_draining_service_refuses_at_once_and_says_when_to_come_back() {
    let bench = bench(limits());
    bench.draining.store(true, Ordering::Relaxed);
    let answer = bench.send("/echo", &[], "{}");
    assert_eq!(answer.told(), (503, "draining"));
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(bench.rejected(), ["draining"]);
    assert!(
        bench
            .telemetry
            .render()
            .contains(r#"not_ready_total{phase="draining"} 1"#)
    );
}

// proves: EDG-5.1, EDG-5.4, EDG-10.2, RWD-10.2
#[test]
fn the_smallest_deadline_wins_and_ends_the_handler() {
    let soon = (EPOCH_S * 1000 + 700).to_string();
    let past = (EPOCH_S * 1000 - 1).to_string();
    let cases: &[(&[(&str, &str)], u64)] = &[
        (&[], 5000),
        (&[("request-timeout", "2")], 2000),
        (&[("deadline", &soon)], 700),
        (&[("request-timeout", "2"), ("deadline", &soon)], 700),
        (&[("request-timeout", "60")], 5000),
        (&[("request-timeout", "soon")], 5000),
        (&[("deadline", &past)], 0),
    ];
    for (headers, limit) in cases {
        for (work, status) in [(limit.saturating_sub(1), 200), (limit + 1, 504)] {
            let bench = bench(limits());
            let work = work.to_string();
            let sent = [*headers, &[("x-work-ms", work.as_str())]].concat();
            let answer = bench.send("/slow", &sent, "");
            let status = if *limit == 0 { 504 } else { status };
            assert_eq!(answer.status, status, "{headers:?} {work}");
            if status == 200 {
                assert_eq!(answer.body, limit.to_string());
            } else {
                assert_eq!(answer.code, "deadline_exceeded");
                assert_eq!(bench.world.elapsed().as_millis() as u64, *limit);
                assert_eq!(bench.rejected(), ["timeout"]);
                assert!(
                    bench
                        .telemetry
                        .render()
                        .contains(r#"io_timeouts_total{op="request"} 1"#)
                );
            }
            assert_eq!(bench.admission.in_flight(), 0);
        }
    }
    let bench = bench(limits());
    bench.send(
        "/slow",
        &[("request-timeout", "soon"), ("x-work-ms", "0")],
        "",
    );
    assert!(
        bench
            .telemetry
            .render()
            .contains("deadline_header_malformed_total 1")
    );
}

#[test]
fn beyond_the_rate_requests_get_429_and_the_time_to_wait() {
    let bench = bench(Limits {
        rate_per_s: Some(2),
        ..limits()
    });
    let statuses: Vec<_> = (0..3)
        .map(|_| bench.send("/echo", &[], "{}").status)
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
    let refused = bench.send("/echo", &[], "{}");
    assert_eq!(
        (refused.told(), refused.headers["retry-after"].as_bytes()),
        ((429, "rate_limited"), &b"1"[..])
    );
    assert!(
        bench
            .telemetry
            .render()
            .contains(r#"quota_reject_total{kind="rate"} 2"#)
    );
    bench.world.advance(Duration::from_millis(500));
    assert_eq!(bench.send("/echo", &[], "{}").status, 200);
    assert_eq!(bench.rejected(), ["rate_limit", "rate_limit"]);
}

// proves: EDG-1.9, ADM-8.1
#[test]
fn a_full_house_answers_busy_until_a_response_body_has_ended() {
    let bench = bench(Limits {
        max_in_flight: 1,
        ..limits()
    });
    let first = bench.request("/stream", &[], "");
    let open = bench.world.run(bench.app.clone().oneshot(first)).unwrap();
    assert_eq!(bench.admission.in_flight(), 1);
    let busy = bench.send("/echo", &[], "{}");
    assert_eq!(busy.told(), (429, "busy"));
    assert_eq!(busy.headers["retry-after"], "1");
    let text = bench.telemetry.render();
    for line in [
        r#"busy_rejections_total{endpoint="/echo",queue=""} 1"#,
        r#"quota_reject_total{kind="in_flight"} 1"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
    let (parts, mut body) = open.into_parts();
    bench
        .world
        .run(async { while http_body_util::BodyExt::frame(&mut body).await.is_some() {} });
    assert_eq!(
        bench.admission.in_flight(),
        0,
        "ended, though the body is still there"
    );
    drop((parts, body));
    assert_eq!(bench.send("/echo", &[], "{}").status, 200);
    // One that is given up is gone as well.
    let second = bench.request("/stream", &[], "");
    drop(bench.world.run(bench.app.clone().oneshot(second)).unwrap());
    assert_eq!(bench.admission.in_flight(), 0);
}

// proves: EDG-5.1, KMS-7.1
#[test]
fn bodies_are_capped_whether_announced_or_streamed_compressed_or_not() {
    let json = |n: usize| format!("\"{}\"", "x".repeat(n - 2)).into_bytes();
    let mut noise = vec![0; 2000];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    let noise: Vec<u8> = noise.iter().map(|b| b'0' + b % 43).collect();
    let noise = [b"\"", &noise[..], b"\""].concat();
    let streamed = |data: Vec<u8>| {
        let parts: Vec<_> = data
            .chunks(300)
            .map(|c| Ok::<_, std::io::Error>(Bytes::copy_from_slice(c)))
            .collect();
        Body::from_stream(stream::iter(parts))
    };
    let length = |n: &'static str| vec![("content-length", n)];
    let gz = || vec![("content-encoding", "gzip")];
    let mut corrupt = gzip(b"[1,2]");
    corrupt[12] ^= 0xff;
    let cases = [
        (length("1000"), json(1000).into(), 200, "", ""),
        (
            length("1001"),
            json(1001).into(),
            413,
            "body_too_large",
            "body_cap",
        ),
        (vec![], streamed(json(1000)), 200, "", ""),
        (
            vec![],
            streamed(json(1001)),
            413,
            "body_too_large",
            "body_cap",
        ),
        (
            gz(),
            streamed(gzip(&noise)),
            413,
            "body_too_large",
            "body_cap",
        ),
        (gz(), gzip(&json(120)).into(), 200, "", ""),
        (
            gz(),
            gzip(&json(2000)).into(),
            413,
            "decompress_ratio",
            "decompress_cap",
        ),
        (gz(), corrupt.into(), 400, "body_corrupt", "body_corrupt"),
        (gz(), Body::from("{}"), 400, "body_corrupt", "body_corrupt"),
        (gz(), Body::empty(), 400, "body_corrupt", "body_corrupt"),
        (
            vec![("content-encoding", "identity")],
            "{}".into(),
            200,
            "",
            "",
        ),
        (
            vec![("content-encoding", "br")],
            "{}".into(),
            415,
            "unsupported_encoding",
            "encoding",
        ),
        (
            vec![("content-encoding", "gzip, gzip")],
            "{}".into(),
            415,
            "unsupported_encoding",
            "encoding",
        ),
        (
            [gz(), gz()].concat(),
            "{}".into(),
            415,
            "unsupported_encoding",
            "encoding",
        ),
    ];
    for (i, (headers, body, status, code, reason)) in cases.into_iter().enumerate() {
        let bench = bench(limits());
        let answer = bench.send("/echo", &headers, body);
        assert_eq!(answer.told(), (status, code), "case {i}: {}", answer.body);
        let expected: &[&str] = if reason.is_empty() { &[] } else { &[reason] };
        assert_eq!(bench.rejected(), expected, "case {i}");
        assert_eq!(
            bench.handled.load(Ordering::Relaxed),
            usize::from(status == 200)
        );
        if status == 415 {
            assert_eq!(answer.headers["accept-encoding"], "gzip");
        }
    }
}

#[test]
fn an_absolute_cap_holds_whatever_the_ratio() {
    let roomy = InflateLimits {
        max_ratio: 1000,
        max_bytes: 5000,
    };
    let bench = bench(Limits {
        inflate: roomy,
        ..limits()
    });
    let json = |n: usize| gzip(format!("\"{}\"", "x".repeat(n - 2)).as_bytes());
    let gz = [("content-encoding", "gzip")];
    assert_eq!(bench.send("/echo", &gz, json(5000)).status, 200);
    assert_eq!(
        bench.send("/echo", &gz, json(5001)).told(),
        (413, "decompress_too_large")
    );
}

#[test]
fn a_body_that_does_not_arrive_in_time_is_408() {
    let stalled = || {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
        Body::from_stream(futures_util::StreamExt::chain(first, stream::pending()))
    };
    let short = Limits {
        body_timeout: Duration::from_secs(2),
        ..limits()
    };
    for limits in [short, limits()] {
        let bench = bench(limits);
        let answer = bench.send("/echo", &[], stalled());
        assert_eq!(answer.told(), (408, "body_timeout"));
        assert_eq!(bench.world.elapsed(), limits.body_timeout);
        assert_eq!(bench.rejected(), ["timeout"]);
        assert!(
            bench
                .telemetry
                .render()
                .contains(r#"io_timeouts_total{op="read"} 1"#)
        );
    }
    // The server may have seen the stall first.
    let bench = bench(limits());
    let seen = stream::iter([Err::<Bytes, _>(crate::serve::BodyReadTimeout)]);
    assert_eq!(
        bench.send("/echo", &[], Body::from_stream(seen)).told(),
        (408, "body_timeout")
    );
    let lost = stream::iter([Err::<Bytes, _>(std::io::Error::other("reset"))]);
    assert_eq!(
        bench.send("/echo", &[], Body::from_stream(lost)).told(),
        (400, "body_lost")
    );
}

// proves: EDG-2.4
/// Everything is wrong at once; then one thing after the other is put right.
#[test]
fn stages_are_asked_in_their_order() {
    let bench = bench(Limits {
        max_in_flight: 1,
        rate_per_s: Some(1),
        ..limits()
    });
    let held = bench.request("/stream", &[], "");
    let held = bench.world.run(bench.app.clone().oneshot(held)).unwrap();
    bench.draining.store(true, Ordering::Relaxed);
    let mut headers = vec![
        ("deadline", "1"),
        ("x-user", ""),
        ("content-length", "1001"),
        ("content-encoding", "br"),
    ];
    let ask = |headers: &[(&str, &str)]| bench.send("/echo", headers, "{}").code;
    assert_eq!(ask(&headers), "draining");
    bench.draining.store(false, Ordering::Relaxed);
    assert_eq!(ask(&headers), "deadline_exceeded");
    headers.remove(0);
    assert_eq!(ask(&headers), "rate_limited");
    bench.world.advance(Duration::from_secs(1));
    assert_eq!(ask(&headers), "busy");
    drop(held);
    for code in [
        "missing_credentials",
        "body_too_large",
        "unsupported_encoding",
        "",
    ] {
        bench.world.advance(Duration::from_secs(1));
        assert_eq!(ask(&headers), code);
        if !headers.is_empty() {
            headers.remove(0);
        }
    }
}

// proves: EDG-12.1
#[test]
fn the_limits_come_from_the_documented_keys() {
    use crate::config::Settings;
    let names: Vec<_> = AdmissionConfig::keys()
        .into_iter()
        .map(|k| (k.name, k.default))
        .collect();
    let expected = [
        ("timeout_secs", "5"),
        ("max_inflight", "512"),
        ("rps_limit", "500"),
        ("body_bytes", "1048576"),
        ("decompress_max_ratio", "10"),
        ("decompress_abs_bytes", "10485760"),
    ];
    assert_eq!(names, expected.map(|(n, d)| (n.to_owned(), d.to_owned())));
    let config = AdmissionConfig {
        timeout_secs: 2,
        max_inflight: 3,
        rps_limit: 4,
        body_bytes: 5,
        decompress_max_ratio: 6,
        decompress_abs_bytes: 7,
    };
    let two = Duration::from_secs(2);
    let inflate = InflateLimits {
        max_ratio: 6,
        max_bytes: 7,
    };
    let expected = Limits {
        timeout: two,
        max_in_flight: 3,
        rate_per_s: Some(4),
        body_cap: 5,
        body_timeout: two,
        inflate,
    };
    assert_eq!(config.limits(), expected);
    assert_eq!(
        AdmissionConfig {
            rps_limit: 0,
            ..config
        }
        .limits()
        .rate_per_s,
        None
    );
}
