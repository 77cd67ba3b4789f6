//! When keys are fetched, and what a fetch does to the gate.

use std::{
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::body::Body;
use proptest::prelude::*;
use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::{
    Rng,
    auth::{AuthError, Mode, Passport, test_tokens::*},
    bus::Bus,
    readiness::Readiness,
    telemetry::Telemetry,
    test_env::{EPOCH_S, World},
};

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn start() -> (JwksCache, Instant, Rng) {
    let now = World::new().env().now();
    (
        JwksCache::new(JwksPolicy::default(), now),
        now,
        Rng::from_seed([0; 32]),
    )
}

#[test]
fn keys_are_fetched_at_once_and_again_before_they_grow_stale() {
    for (max_age, due) in [
        (None, 240),
        (Some(100), 80),
        (Some(1), 48),
        (Some(999_999), 2880),
    ] {
        let (mut cache, now, _) = start();
        assert_eq!(cache.poll_next(now), Next::Fetch);
        assert_eq!(cache.poll_next(now), Next::WaitForFetch);
        cache.handle_fetched(now, max_age.map(secs));
        assert_eq!(
            cache.poll_next(now),
            Next::Wait(now + secs(due)),
            "{max_age:?}"
        );
        assert_eq!(cache.poll_next(now + secs(due)), Next::Fetch);
    }
}

#[test]
fn failures_back_off_up_to_the_cap_and_a_success_forgets_them() {
    let (mut cache, mut now, mut rng) = start();
    for expected_ms in [
        250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000,
    ] {
        assert_eq!(cache.poll_next(now), Next::Fetch);
        cache.handle_failed(now, &mut rng);
        let Next::Wait(at) = cache.poll_next(now) else {
            panic!("waits")
        };
        let waits = (at - now).as_millis();
        assert!(
            (expected_ms..expected_ms + 250).contains(&waits),
            "{waits} for {expected_ms}"
        );
        now = at;
    }
    assert_eq!(cache.poll_next(now), Next::Fetch);
    cache.handle_fetched(now, None);
    now += secs(240);
    assert_eq!(cache.poll_next(now), Next::Fetch);
    cache.handle_failed(now, &mut rng);
    let Next::Wait(at) = cache.poll_next(now) else {
        panic!("waits")
    };
    assert!(at - now < Duration::from_millis(500));
}

#[test]
fn keys_that_cannot_be_renewed_are_dropped_once_too_old() {
    let (mut cache, now, mut rng) = start();
    cache.poll_next(now);
    cache.handle_fetched(now, None);
    let last = now + secs(3600);
    assert_eq!(
        cache.poll_next(last - Duration::from_millis(1)),
        Next::Fetch
    );
    cache.handle_failed(last - Duration::from_millis(1), &mut rng);
    assert_eq!(
        cache.poll_next(last - Duration::from_millis(1)),
        Next::Wait(last)
    );
    assert_eq!(cache.poll_next(last), Next::Drop);
    assert!(matches!(cache.poll_next(last), Next::Wait(_)));
}

proptest! {
    /// However tokens with unknown key ids arrive, two fetches they cause are a cool-down apart, none
    /// overlaps another, and one arriving after the cool-down always causes one.
    #[test]
    fn unknown_key_ids_cause_at_most_one_fetch_per_cooldown(
        steps in proptest::collection::vec((0u64..20_000, any::<bool>()), 1..80),
    ) {
        let (mut cache, start, _) = start();
        prop_assert_eq!(cache.poll_next(start), Next::Fetch);
        cache.handle_fetched(start, Some(secs(3600)));
        let (mut now, mut last, mut pending) = (start, start, false);
        for (wait_ms, ends) in steps {
            now += Duration::from_millis(wait_ms);
            if now >= start + secs(2800) {
                break;
            }
            if pending && ends {
                cache.handle_fetched(now, Some(secs(3600)));
                pending = false;
            }
            cache.handle_unknown_kid(now);
            let expected = !pending && now >= last + secs(30);
            let next = cache.poll_next(now);
            prop_assert_eq!(next == Next::Fetch, expected, "{:?}", next);
            if expected {
                (last, pending) = (now, true);
            }
        }
    }
}

struct Issuer {
    fetches: AtomicUsize,
    answer: Mutex<Box<dyn Fn() -> http::Response<Body> + Send>>,
    hang: std::sync::atomic::AtomicBool,
}

fn world(issuer: &Arc<Issuer>) -> World {
    let issuer = issuer.clone();
    World::with_upstream(Box::new(move |_| {
        issuer.fetches.fetch_add(1, Ordering::Relaxed);
        let answer = issuer.answer.lock().unwrap()();
        let hang = issuer.hang.load(Ordering::Relaxed);
        Box::pin(async move {
            if hang {
                std::future::pending::<()>().await;
            }
            Ok(answer)
        })
    }))
}

fn issuer(seeds: &'static [u8]) -> Arc<Issuer> {
    Arc::new(Issuer {
        fetches: AtomicUsize::new(0),
        answer: Mutex::new(Box::new(|| http::Response::new(Body::from(jwks(seeds))))),
        hang: Default::default(),
    })
}

fn gate(telemetry: &Telemetry) -> Arc<Gate> {
    let mode = Mode::Passport(Passport {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        leeway: secs(0),
        cookie: None,
    });
    Gate::new(mode, telemetry)
}

fn ask(gate: &Gate, env: &Env, seed: u8) -> Result<String, AuthError> {
    let token = format!("Bearer {}", good(seed, EPOCH_S + 100_000));
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, token.parse().unwrap())]);
    gate.check(&headers, None, env.wall()).map(|i| i.subject)
}

// proves: ADM-2.22, ADM-2.34, ADM-2.35
#[test]
fn the_refresher_fetches_rotates_and_stops() {
    let (issuer, telemetry) = (issuer(&[1]), Telemetry::new("x", ""));
    let world = world(&issuer);
    let (env, gate) = (world.env(), gate(&telemetry));
    assert_eq!(ask(&gate, &env, 1), Err(AuthError::NoKeys));
    let script = async {
        env.sleep(secs(1)).await;
        assert_eq!(ask(&gate, &env, 1).as_deref(), Ok("ada"));
        *issuer.answer.lock().unwrap() =
            Box::new(|| http::Response::new(Body::from(jwks(&[1, 2]))));
        // Within the cool-down of the first fetch nothing happens, after it one fetch suffices.
        for _ in 0..5 {
            assert_eq!(ask(&gate, &env, 2), Err(AuthError::UnknownKid));
            env.sleep(secs(1)).await;
        }
        assert_eq!(issuer.fetches.load(Ordering::Relaxed), 1);
        env.sleep(secs(30)).await;
        assert_eq!(ask(&gate, &env, 2), Err(AuthError::UnknownKid));
        env.sleep(secs(1)).await;
        assert_eq!(ask(&gate, &env, 2).as_deref(), Ok("ada"));
        assert_eq!(issuer.fetches.load(Ordering::Relaxed), 2);
    };
    let url = http::Uri::from_static("https://issuer.test/keys");
    let kernel = telemetry.kernel().clone();
    world.run(refresh_loop(
        env.clone(),
        gate.clone(),
        url,
        JwksPolicy::default(),
        kernel,
        script,
    ));
}

// proves: ADM-5.9, ADM-8.5, ADM-8.9
#[test]
fn a_hanging_or_broken_issuer_is_counted_and_cached_keys_go_on_working() {
    let (issuer, telemetry) = (issuer(&[1]), Telemetry::new("x", ""));
    let world = world(&issuer);
    let (env, gate) = (world.env(), gate(&telemetry));
    let readiness = Readiness::new(env.clone(), Bus::new());
    gate.tell(readiness.gate("auth_keys"));
    assert!(!readiness.is_ready(), "nobody could be let in");
    let script = async {
        env.sleep(secs(1)).await;
        assert!(readiness.is_ready());
        issuer.hang.store(true, Ordering::Relaxed);
        env.sleep(secs(243)).await;
        assert_eq!(ask(&gate, &env, 1).as_deref(), Ok("ada"));
        let text = telemetry.render();
        assert!(
            text.contains(r#"io_timeouts_total{op="auth_refresh"} 1"#),
            "{text}"
        );
        issuer.hang.store(false, Ordering::Relaxed);
        type Answer = fn() -> http::Response<Body>;
        let broken: [Answer; 3] = [
            || {
                http::Response::builder()
                    .status(500)
                    .body(Body::empty())
                    .unwrap()
            },
            || http::Response::new(Body::from(vec![b' '; MAX_JWKS_BYTES + 1])),
            || http::Response::new(Body::from("{}")),
        ];
        let before = issuer.fetches.load(Ordering::Relaxed);
        for answer in broken {
            *issuer.answer.lock().unwrap() = Box::new(answer);
            env.sleep(secs(31)).await;
            assert_eq!(ask(&gate, &env, 1).as_deref(), Ok("ada"));
            assert!(readiness.is_ready(), "a failed refresh changes nothing");
        }
        assert!(issuer.fetches.load(Ordering::Relaxed) >= before + 3);
        assert!(
            telemetry
                .render()
                .contains(r#"io_errors_total{kind="auth"}"#)
        );
        // An hour without renewal: the keys are dropped.
        env.sleep(secs(3600)).await;
        assert_eq!(ask(&gate, &env, 1), Err(AuthError::NoKeys));
        assert!(!readiness.is_ready());
    };
    let url = http::Uri::from_static("https://issuer.test/keys");
    let kernel = telemetry.kernel().clone();
    world.run(refresh_loop(
        env.clone(),
        gate.clone(),
        url,
        JwksPolicy::default(),
        kernel,
        script,
    ));
}

// proves: ADM-7.12
#[test]
fn an_oversized_answer_is_not_read_to_its_end() {
    static READ: AtomicUsize = AtomicUsize::new(0);
    let issuer = issuer(&[1]);
    *issuer.answer.lock().unwrap() = Box::new(|| {
        let chunk = |_| {
            READ.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; MAX_JWKS_BYTES]))
        };
        let chunks = futures_util::StreamExt::map(futures_util::stream::iter(0..100), chunk);
        http::Response::new(Body::from_stream(chunks))
    });
    let world = world(&issuer);
    let url = http::Uri::from_static("https://issuer.test/keys");
    let got = world.run(fetch(&world.env(), &url, secs(2)));
    assert!(matches!(got, Err(FetchError::Body)));
    assert_eq!(READ.load(Ordering::Relaxed), 2);
}

#[test]
fn a_body_that_never_ends_is_given_up_at_the_deadline() {
    let issuer = issuer(&[1]);
    *issuer.answer.lock().unwrap() = Box::new(|| {
        http::Response::new(Body::from_stream(futures_util::stream::pending::<
            Result<Bytes, std::io::Error>,
        >()))
    });
    let world = world(&issuer);
    let env = world.env();
    let url = http::Uri::from_static("https://issuer.test/keys");
    let got = world.run(fetch(&env, &url, secs(2)));
    assert!(matches!(got, Err(FetchError::Timeout)));
    assert_eq!(world.elapsed(), secs(2));
}

/// A refresher that failed and was started again finds keys that another one fetched.
#[test]
fn keys_that_a_refresher_inherits_are_dropped_as_late_as_its_own() {
    let (issuer, telemetry) = (issuer(&[1]), Telemetry::new("x", ""));
    let world = world(&issuer);
    let (env, gate) = (world.env(), gate(&telemetry));
    let run = |script: Pin<Box<dyn Future<Output = ()> + '_>>| {
        let url = http::Uri::from_static("https://issuer.test/keys");
        let (policy, kernel) = (JwksPolicy::default(), telemetry.kernel().clone());
        world.run(refresh_loop(
            env.clone(),
            gate.clone(),
            url,
            policy,
            kernel,
            script,
        ));
    };
    run(Box::pin(env.sleep(secs(1))));
    assert!(gate.has_keys());
    *issuer.answer.lock().unwrap() = Box::new(|| {
        let mut away = http::Response::new(Body::empty());
        *away.status_mut() = StatusCode::BAD_GATEWAY;
        away
    });
    for _ in 0..3 {
        run(Box::pin(env.sleep(secs(1000))));
        assert!(gate.has_keys());
    }
    run(Box::pin(env.sleep(secs(700))));
    assert!(!gate.has_keys(), "an hour is over");
}
