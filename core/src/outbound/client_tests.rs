//! The client against a scripted upstream: what it sends, when, and what it counts.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;

use super::*;
use crate::{
    backoff::Backoff,
    deadline::{DEADLINE, REQUEST_TIMEOUT},
    outbound::{AddressPolicy, ErrorRate, Forbidden, Scope},
    test_env::World,
};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const RULES: ClientRules = ClientRules {
    retry: RetryRules {
        attempts: 3,
        backoff: Backoff::band(ms(100), ms(250), ms(1000)),
        attempt_timeout: Some(ms(1000)),
    },
    breaker: BreakerRules {
        failures: 4,
        rate: None,
        open: ms(5000),
        open_max: ms(20_000),
        probes: 1,
    },
    limits: OutboundLimits {
        in_flight: 2,
        per_s: None,
        destinations: 4,
    },
};

/// What the upstream does with one request.
#[derive(Clone, Copy, Debug)]
enum Does {
    Answer(u16),
    AnswerRetryAfter(u16, u64),
    Refuse,
    Lose,
    Hang,
    Forbid,
}
use Does::{Answer as A, AnswerRetryAfter as After, Forbid, Hang, Lose, Refuse};

struct Bench {
    world: World,
    client: Client,
    telemetry: Telemetry,
    seen: Arc<Mutex<Vec<(Duration, HeaderMap)>>>,
}

impl Bench {
    /// The last of the script goes on for ever.
    fn new(rules: ClientRules, script: &[Does]) -> Bench {
        let script = Mutex::new(VecDeque::from(script.to_vec()));
        let seen: Arc<Mutex<Vec<(Duration, HeaderMap)>>> = Arc::default();
        let (note, clock) = (seen.clone(), Arc::new(Mutex::new(None::<World>)));
        let time = clock.clone();
        let world = World::with_upstream(Box::new(move |request| {
            let at = time.lock().unwrap().as_ref().unwrap().elapsed();
            note.lock().unwrap().push((at, request.headers().clone()));
            let mut script = script.lock().unwrap();
            let does = script[0];
            if script.len() > 1 {
                script.pop_front();
            }
            Box::pin(act(does))
        }));
        *clock.lock().unwrap() = Some(world.clone());
        let telemetry = Telemetry::new("bench", "");
        let egress = Egress::to(AddressPolicy::public());
        let client = Client::new(&world.env(), &telemetry, "node_call", egress, rules);
        Bench {
            world,
            client,
            telemetry,
            seen,
        }
    }

    fn call(&self, method: &str, limit: Duration) -> Result<StatusCode, CallError> {
        self.world
            .run(self.answer(method, limit))
            .map(|answer| answer.status())
    }

    fn answer(
        &self,
        method: &str,
        limit: Duration,
    ) -> impl Future<Output = Result<Answer, CallError>> {
        let (method, key) = method.split_once('+').unwrap_or((method, ""));
        let mut request = http::Request::builder()
            .method(method)
            .uri("http://node.example/x");
        if !key.is_empty() {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Bytes::from_static(b"body")).unwrap();
        let deadline = Deadline::after(self.world.env().now(), limit);
        let client = self.client.clone();
        async move { client.call(request, deadline).await }
    }

    fn sent(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn counted(&self, outcome: &str) -> u64 {
        let counters = &self.telemetry.kernel().outbound_requests;
        counters.with(&["node_call", outcome]).get()
    }
}

async fn act(does: Does) -> Result<Answer, HttpError> {
    let to = "node.example".to_owned();
    let mut answer = http::Response::new(Body::from("answer"));
    match does {
        Does::Answer(status) => *answer.status_mut() = StatusCode::from_u16(status).unwrap(),
        After(status, seconds) => {
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            answer.headers_mut().insert("retry-after", seconds.into());
        }
        Refuse => {
            let source = std::io::ErrorKind::ConnectionRefused.into();
            return Err(HttpError::Connect { to, source });
        }
        Lose => {
            let source = "cut".into();
            return Err(HttpError::Lost { source });
        }
        Hang => std::future::pending().await,
        Forbid => {
            let source = Forbidden {
                address: [127, 0, 0, 1].into(),
                scope: Scope::Loopback,
            };
            return Err(HttpError::Forbidden { to, source });
        }
    }
    Ok(answer)
}

/// What came of it: a status, or whether the outcome is unknown.
fn told(result: &Result<StatusCode, CallError>) -> Result<u16, bool> {
    match result {
        Ok(status) => Ok(status.as_u16()),
        Err(error) => Err(error.outcome_unknown()),
    }
}

/// A call, what the upstream does with it, what came of it, and how often it was sent.
type Case = (&'static str, &'static [Does], Result<u16, bool>, usize);

#[test]
fn a_call_is_made_again_only_where_that_does_no_harm() {
    let cases: &[Case] = &[
        ("GET", &[A(200)], Ok(200), 1),
        ("GET", &[Lose, A(503), A(200)], Ok(200), 3),
        ("GET", &[Hang, A(204)], Ok(204), 2),
        ("GET", &[Lose, Lose, Lose, A(200)], Err(true), 3),
        ("GET", &[A(503)], Ok(503), 3),
        ("GET", &[A(500), A(200)], Ok(500), 1),
        ("GET", &[A(404), A(200)], Ok(404), 1),
        ("PUT", &[Lose, A(200)], Ok(200), 2),
        // Once it may have been acted on, it stays so.
        ("GET", &[Lose, Refuse], Err(true), 3),
        ("GET", &[Refuse], Err(false), 3),
        ("GET", &[Forbid, A(200)], Err(false), 1),
        ("POST", &[Lose, A(200)], Err(true), 1),
        ("POST", &[Hang, A(200)], Err(true), 1),
        ("POST", &[A(503), A(200)], Ok(503), 1),
        ("POST", &[Refuse, A(200)], Ok(200), 2),
        ("POST", &[Refuse, Lose, A(200)], Err(true), 2),
        ("POST+key", &[Lose, A(503), A(200)], Ok(200), 3),
    ];
    for (method, script, expected, sent) in cases {
        let bench = Bench::new(RULES, script);
        let result = bench.call(method, ms(10_000));
        assert_eq!(told(&result), *expected, "{method} {script:?}: {result:?}");
        assert_eq!(bench.sent(), *sent, "{method} {script:?}");
        let retries = bench
            .telemetry
            .kernel()
            .backoff_retries
            .with(&["node_call"]);
        assert_eq!(retries.get(), *sent as u64 - 1, "{method} {script:?}");
    }
}

#[test]
fn waits_are_as_long_as_asked_for_and_never_lead_past_the_deadline() {
    // Asked for 2 s: with 3 s to go it waits, with 2 s it is told at once.
    let bench = Bench::new(RULES, &[After(503, 2), A(200)]);
    assert_eq!(told(&bench.call("GET", ms(3000))), Ok(200));
    assert!(bench.seen.lock().unwrap()[1].0 >= ms(2000));
    let bench = Bench::new(RULES, &[After(503, 2), A(200)]);
    assert_eq!(told(&bench.call("GET", ms(2000))), Ok(503));
    assert_eq!((bench.sent(), bench.world.elapsed()), (1, ms(0)));

    // An attempt ends with its own limit, the last with the call's.
    let bench = Bench::new(RULES, &[Hang]);
    let error = bench.call("GET", ms(1500)).unwrap_err();
    assert!(
        matches!(error, CallError::Failed { attempts: 2, .. }),
        "{error:?}"
    );
    assert_eq!((bench.sent(), bench.world.elapsed()), (2, ms(1500)));
    assert_eq!(bench.counted("timeout"), 2);

    // Nothing is sent when there is no time left.
    let bench = Bench::new(RULES, &[A(200)]);
    assert_eq!(told(&bench.call("GET", ms(0))), Err(false));
    assert_eq!(bench.sent(), 0);
}

#[test]
fn the_deadline_travels_and_only_shrinks() {
    let bench = Bench::new(RULES, &[Refuse]);
    let _ = bench.call("GET", ms(900));
    let left = |headers: &HeaderMap| -> f64 {
        headers[REQUEST_TIMEOUT].to_str().unwrap().parse().unwrap()
    };
    let seen = bench.seen.lock().unwrap().clone();
    assert!(seen.len() > 1);
    for (at, headers) in &seen {
        let expected = (ms(900) - *at).as_secs_f64();
        assert!(
            (left(headers) - expected).abs() < 0.002,
            "{at:?} {headers:?}"
        );
        assert!(headers.contains_key(DEADLINE));
    }
    // What the caller was told itself is not lengthened; nor is an attempt's own limit passed on as more.
    for (given, expected) in [("0.250", 0.25), ("9", 1.0)] {
        let bench = Bench::new(RULES, &[A(200)]);
        let request = http::Request::get("http://node.example/").header(REQUEST_TIMEOUT, given);
        let request = request.body(Bytes::new()).unwrap();
        let deadline = Deadline::after(bench.world.env().now(), ms(5000));
        bench
            .world
            .run(bench.client.call(request, deadline))
            .unwrap();
        let sent = left(&bench.seen.lock().unwrap()[0].1);
        assert!((sent - expected).abs() < 0.002, "{given}: {sent}");
    }
}

#[test]
fn a_destination_in_trouble_is_left_alone_and_found_again() {
    let once = ClientRules {
        retry: RetryRules::NEVER,
        ..RULES
    };
    let by_rate = ClientRules {
        breaker: BreakerRules {
            failures: 0,
            rate: Some(ErrorRate {
                percent: 50,
                window: ms(10_000),
                at_least: 4,
            }),
            ..RULES.breaker
        },
        ..once
    };
    let cases: &[(ClientRules, &[Does])] = &[
        (once, &[Refuse, Lose, A(500), A(503), A(500), A(200)]),
        (by_rate, &[A(200), Refuse, A(200), A(500), A(500), A(200)]),
    ];
    for (rules, script) in cases {
        let bench = Bench::new(*rules, script);
        for _ in 0..4 {
            let _ = bench.call("GET", ms(1000));
        }
        let refused = |bench: &Bench| match bench.call("GET", ms(1000)) {
            Err(CallError::Refused {
                by: Refusal::Breaker,
                retry_after,
                unknown: false,
            }) => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&bench), ms(5000));
        bench.world.advance(ms(4999));
        assert_eq!(refused(&bench), ms(1));
        bench.world.advance(ms(1));
        // A probe that fails: twice as long. One that is answered: all is well.
        assert_eq!(told(&bench.call("GET", ms(1000))), Ok(500));
        assert_eq!(refused(&bench), ms(10_000));
        bench.world.advance(ms(10_000));
        for _ in 0..5 {
            assert_eq!(told(&bench.call("GET", ms(1000))), Ok(200));
        }
        assert_eq!(bench.counted("breaker"), 3);
        let opened = &bench.telemetry.kernel().outbound_breaker_opened;
        assert_eq!(opened.with(&["node_call"]).get(), 2);
    }
}

#[test]
fn answers_of_any_kind_and_what_was_never_sent_keep_the_breaker_closed() {
    for does in [A(404), A(429), A(301), A(501), Forbid] {
        let bench = Bench::new(RULES, &[does]);
        for _ in 0..20 {
            let result = bench.call("POST", ms(1000));
            assert!(
                !matches!(result, Err(CallError::Refused { .. })),
                "{does:?}"
            );
        }
        assert_eq!(bench.sent(), 20);
    }
    let bench = Bench::new(RULES, &[Forbid]);
    let error = bench.call("GET", ms(1000)).unwrap_err();
    assert_eq!(bench.counted("forbidden"), 1);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "node.example must not be asked");
}

#[test]
fn a_place_is_held_until_the_answer_is_read_or_given_up() {
    let bench = Bench::new(RULES, &[A(200), A(200), A(200), A(200), A(200), Hang]);
    let ask = || bench.answer("GET", ms(5000));
    bench.world.run(async {
        let (first, second) = (ask().await.unwrap(), ask().await.unwrap());
        let full = ask().await.unwrap_err();
        assert!(
            matches!(
                full,
                CallError::Refused {
                    by: Refusal::InFlight,
                    ..
                }
            ),
            "{full:?}"
        );
        first.into_body().collect().await.unwrap();
        let third = ask().await.unwrap();
        assert!(ask().await.is_err());
        drop((second, third));
        let both = (ask().await.unwrap(), ask().await.unwrap());
        drop(both);
        // Given up while it waits for the answer.
        let env = bench.world.env();
        for _ in 0..3 {
            assert!(env.timeout(ms(10), ask()).await.is_err());
        }
    });
    assert_eq!(
        (bench.counted("in_flight"), bench.counted("cancelled")),
        (2, 3)
    );
    assert_eq!(bench.counted("2xx"), 5);
}

#[test]
fn a_probe_whose_caller_went_away_does_not_keep_others_from_probing() {
    let rules = ClientRules {
        retry: RetryRules::NEVER,
        breaker: BreakerRules {
            failures: 1,
            ..RULES.breaker
        },
        ..RULES
    };
    let bench = Bench::new(rules, &[A(500), Hang, A(200)]);
    let _ = bench.call("GET", ms(1000));
    bench.world.advance(ms(5000));
    let env = bench.world.env();
    let given_up = bench
        .world
        .run(env.timeout(ms(10), bench.answer("GET", ms(1000))));
    assert!(given_up.is_err());
    assert_eq!(told(&bench.call("GET", ms(1000))), Ok(200));
}

#[test]
fn a_streamed_call_is_made_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new(RULES, &[A(503), A(200)]);
    let count = asked.clone();
    let body = futures_util::stream::once(async move {
        count.fetch_add(1, Relaxed);
        Ok::<_, std::convert::Infallible>(Bytes::from_static(b"piece"))
    });
    let request = http::Request::put("http://node.example/")
        .body(Body::from_stream(body))
        .unwrap();
    let deadline = Deadline::after(bench.world.env().now(), ms(1000));
    let answer = bench
        .world
        .run(bench.client.stream(request, deadline))
        .unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!((bench.sent(), asked.load(Relaxed)), (1, 1));
}
