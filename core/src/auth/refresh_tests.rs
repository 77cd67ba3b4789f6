//! When keys are fetched, and what a fetch does to the gate.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::body::Body;
use http::{HeaderMap, StatusCode, header};
use proptest::prelude::*;
use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::{
    Rng,
    auth::{AuthError, MAX_ANSWER_BYTES, Mode, test_tokens::*},
    bus::Bus,
    readiness::Readiness,
    telemetry::Telemetry,
    test_env::{EPOCH_S, World},
};

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A machine to step, its clock and its generator.
struct Bench {
    cache: JwksCache,
    now: Instant,
    rng: Rng,
}

fn bench() -> Bench {
    let now = World::new().env().now();
    Bench {
        cache: JwksCache::new(JwksPolicy::default(), now),
        now,
        rng: Rng::from_seed([0; 32]),
    }
}

impl Bench {
    fn next(&mut self) -> Next {
        self.cache.poll_next(self.now)
    }

    fn fetched(&mut self, max_age: Option<u64>, known: &[&str]) {
        let known = known.iter().map(|kid| KidHash::of(kid)).collect();
        let (now, max_age) = (self.now, max_age.map(secs));
        self.cache
            .handle_fetched(now, max_age, &known, &mut self.rng);
    }

    fn ask(&mut self, kid: &str) {
        self.cache.handle_unknown_kid(self.now, KidHash::of(kid));
    }

    fn waits(&mut self) -> Duration {
        match self.next() {
            Next::Wait(at) => at - self.now,
            other => panic!("waits, not {other:?}"),
        }
    }
}

#[test]
fn keys_are_fetched_at_once_and_again_some_time_before_they_grow_stale() {
    for (max_age, fresh) in [
        (None, 300),
        (Some(100), 100),
        (Some(1), 60),
        (Some(999_999), 3600),
    ] {
        let mut waits = BTreeSet::new();
        let mut bench = bench();
        for _ in 0..20 {
            assert_eq!(bench.next(), Next::Fetch);
            assert_eq!(bench.next(), Next::WaitForFetch);
            bench.fetched(max_age, &[]);
            let wait = bench.waits();
            let window = secs(fresh) * 7 / 10..=secs(fresh) * 8 / 10;
            assert!(window.contains(&wait), "{max_age:?}: {wait:?}");
            waits.insert(wait);
            bench.now += wait;
        }
        assert!(
            waits.len() > 10,
            "services that started together drift apart"
        );
    }
}

#[test]
fn failures_back_off_up_to_the_cap_and_a_success_forgets_them() {
    let mut bench = bench();
    let fail = |bench: &mut Bench, expected_ms: u128| {
        assert_eq!(bench.next(), Next::Fetch);
        let now = bench.now;
        bench.cache.handle_failed(now, &mut bench.rng);
        let wait = bench.waits();
        let window = expected_ms..=expected_ms + 250;
        assert!(window.contains(&wait.as_millis()), "{wait:?}");
        bench.now += wait;
    };
    for expected_ms in [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        fail(&mut bench, expected_ms);
    }
    assert_eq!(bench.next(), Next::Fetch);
    bench.fetched(None, &[]);
    bench.now += secs(240);
    fail(&mut bench, 250);
}

#[test]
fn keys_that_cannot_be_renewed_are_dropped_once_too_old() {
    let mut bench = bench();
    bench.next();
    bench.fetched(None, &[]);
    bench.now += secs(3600) - Duration::from_millis(1);
    assert_eq!(bench.next(), Next::Fetch);
    bench.cache.handle_failed(bench.now, &mut bench.rng);
    assert_eq!(bench.waits(), Duration::from_millis(1));
    bench.now += Duration::from_millis(1);
    assert_eq!(bench.next(), Next::Drop);
    assert!(matches!(bench.next(), Next::Wait(_)));
}

// proves: ADM-3.8
#[test]
fn an_unknown_key_id_leads_to_one_fetch_and_then_to_none_while_it_is_known_to_be_absent() {
    let mut bench = bench();
    bench.next();
    bench.fetched(Some(3600), &["old"]);
    bench.now += secs(10);
    bench.ask("new");
    bench.ask("made-up");
    assert_eq!(bench.waits(), secs(20), "the cool-down ends first");
    bench.now += secs(20);
    assert_eq!(bench.next(), Next::Fetch);
    bench.now += secs(1);
    bench.ask("late");
    bench.fetched(Some(3600), &["old", "new"]);
    assert_eq!(
        bench.waits(),
        secs(29),
        "named while the answer was on its way"
    );
    bench.now += secs(29);
    assert_eq!(bench.next(), Next::Fetch);
    bench.fetched(Some(3600), &["old", "new"]);
    bench.now += secs(100);
    bench.ask("late");
    bench.ask("late");
    assert!(bench.waits() > secs(2000), "it was not there just now");
    bench.ask("made-up");
    assert!(bench.waits() > secs(2000), "nor was this one, 129 s ago");
    bench.now += secs(21);
    bench.ask("made-up");
    assert_eq!(bench.next(), Next::Fetch, "it may be there by now");
}

#[test]
fn what_strangers_make_up_is_remembered_within_bounds() {
    let mut bench = bench();
    bench.next();
    bench.fetched(Some(3600), &[]);
    for storm in 0..20 {
        bench.now += secs(30);
        (0..100).for_each(|n| bench.ask(&format!("{storm} {n}")));
        assert!(bench.cache.asked.len() <= MAX_ASKED);
        assert_eq!(
            bench.next(),
            Next::Fetch,
            "merged with those that were remembered"
        );
        bench.fetched(Some(3600), &[]);
        assert!(bench.cache.absent.len() <= MAX_ABSENT);
    }
    bench.cache.policy.unknown_kid_cooldown = secs(10_000);
    for n in 0..2 * MAX_ABSENT {
        let now = bench.now + secs(n as u64);
        bench
            .cache
            .remember_absent(now, KidHash::of(&n.to_string()));
    }
    assert_eq!(bench.cache.absent.len(), MAX_ABSENT);
    let newest = KidHash::of(&(2 * MAX_ABSENT - 1).to_string());
    assert!(bench.cache.absent.contains_key(&newest));
}

proptest! {
    /// However tokens with unknown key ids arrive, two fetches they cause are a cool-down apart and none overlaps
    /// another; each id leads to one within a cool-down.
    #[test]
    fn unknown_key_ids_cause_at_most_one_fetch_per_cooldown(
        steps in proptest::collection::vec((0u64..20_000, any::<bool>()), 1..80),
    ) {
        let mut bench = bench();
        prop_assert_eq!(bench.next(), Next::Fetch);
        bench.fetched(Some(3600), &[]);
        let (start, mut last, mut pending) = (bench.now, bench.now, false);
        for (n, (wait_ms, ends)) in steps.into_iter().enumerate() {
            bench.now += Duration::from_millis(wait_ms);
            if bench.now >= start + secs(2400) {
                break;
            }
            if pending && ends {
                bench.fetched(Some(3600), &[]);
                pending = false;
            }
            bench.ask(&n.to_string());
            let expected = !pending && bench.now >= last + secs(30);
            let next = bench.next();
            prop_assert_eq!(next == Next::Fetch, expected, "{:?}", next);
            if let (false, Next::Wait(at)) = (pending, next) {
                prop_assert_eq!(at, last + secs(30));
            }
            if expected {
                (last, pending) = (bench.now, true);
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
    Gate::new(Mode::Passport(passport()), telemetry)
}

async fn looped(
    env: &Env,
    gate: &Arc<Gate>,
    telemetry: &Telemetry,
    script: impl Future<Output = ()>,
) {
    let source = KeySource::Jwks(http::Uri::from_static("https://issuer.test/keys"));
    let (policy, kernel) = (JwksPolicy::default(), telemetry.kernel().clone());
    refresh_loop(env.clone(), gate.clone(), source, policy, kernel, script).await;
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
        // However many ask, there is one fetch for all of them, when the cool-down of the first is over.
        for _ in 0..5 {
            assert_eq!(ask(&gate, &env, 2), Err(AuthError::UnknownKid));
            env.sleep(secs(1)).await;
        }
        assert_eq!(issuer.fetches.load(Ordering::Relaxed), 1);
        env.sleep(secs(25)).await;
        assert_eq!(ask(&gate, &env, 2).as_deref(), Ok("ada"));
        assert_eq!(issuer.fetches.load(Ordering::Relaxed), 2);
    };
    world.run(looped(&env, &gate, &telemetry, script));
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
            text.contains(r#"io_timeouts_total{op="auth_refresh"}"#),
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
            || http::Response::new(Body::from(vec![b' '; MAX_ANSWER_BYTES + 1])),
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
        let text = telemetry.render();
        for line in [
            r#"io_errors_total{kind="auth"}"#,
            r#"auth_refreshes_total{result="ok"} 1"#,
            r#"auth_refreshes_total{result="status"}"#,
            r#"auth_refreshes_total{result="too_large"}"#,
            r#"auth_refreshes_total{result="malformed"}"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
        // An hour without renewal: the keys are dropped.
        env.sleep(secs(3600)).await;
        assert_eq!(ask(&gate, &env, 1), Err(AuthError::NoKeys));
        assert!(!readiness.is_ready());
    };
    world.run(looped(&env, &gate, &telemetry, script));
}

/// A refresher that failed and was started again finds keys that another one fetched.
#[test]
fn keys_that_a_refresher_inherits_are_dropped_as_late_as_its_own() {
    let (issuer, telemetry) = (issuer(&[1]), Telemetry::new("x", ""));
    let world = world(&issuer);
    let (env, gate) = (world.env(), gate(&telemetry));
    let run = |script| world.run(looped(&env, &gate, &telemetry, script));
    run(env.sleep(secs(1)));
    assert!(gate.has_keys());
    *issuer.answer.lock().unwrap() = Box::new(|| {
        let mut away = http::Response::new(Body::empty());
        *away.status_mut() = StatusCode::BAD_GATEWAY;
        away
    });
    for _ in 0..3 {
        run(env.sleep(secs(1000)));
        assert!(gate.has_keys());
    }
    run(env.sleep(secs(700)));
    assert!(!gate.has_keys(), "an hour is over");
}
