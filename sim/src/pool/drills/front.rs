//! The way in: drain, deadline, rate and places in flight, as requests to a router behind admission.
//!
//! Requests are held in hand, so that each ends, is dropped or runs into its deadline just when the drill says so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::Request, response::Response, routing::get};
use http::StatusCode;
use ron_core::{
    Env, Shutdown,
    admission::{Admission, AdmissionConfig, Limits},
    front::front,
    telemetry::Telemetry,
};
use tower::ServiceExt;

use super::{Bench, Verdict, agree, demand, hands::Hand, problem::Told, slack};

pub async fn drill(bench: &mut Bench) -> Verdict {
    places(bench).await?;
    deadlines(bench).await?;
    rate(bench).await
}

/// A service whose handler answers once it is let.
struct House {
    router: Router,
    admission: Arc<Admission>,
    draining: Arc<AtomicBool>,
    let_go: Shutdown,
}

impl House {
    fn new(env: &Env, limits: Limits) -> Self {
        let draining = Arc::new(AtomicBool::new(false));
        let (asked, let_go) = (draining.clone(), Shutdown::new());
        let admission = Admission::new(env, &Telemetry::new("drill", ""), limits)
            .draining(move || asked.load(Ordering::Relaxed));
        let admission = Arc::new(admission);
        let waits = let_go.clone();
        let api = Router::new()
            .route("/now", get(|| async { "now" }))
            .route("/wait", get(move || async move { waits.wait().await }));
        House {
            router: front(env, api, &admission, Router::new()),
            admission,
            draining,
            let_go,
        }
    }

    fn ask(&self, path: &str, timeout: Option<Duration>) -> Hand<Response> {
        let mut request = Request::builder().uri(path).header("x-corr-id", "mine");
        if let Some(timeout) = timeout {
            let seconds = timeout.as_secs_f64();
            request = request.header("request-timeout", format!("{seconds:.3}"));
        }
        let request = request.body(Body::empty()).expect("a sound request");
        let router = self.router.clone();
        Hand::new(async move {
            match router.oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        })
    }
}

fn limits() -> Limits {
    Limits {
        rate_per_s: None,
        timeout: Duration::from_secs(3600),
        ..AdmissionConfig::default().limits()
    }
}

fn at_once(mut asked: Hand<Response>) -> Result<Response, String> {
    asked
        .look()
        .ok_or_else(|| "expected an answer at once, came none".to_owned())
}

/// One place each, from admission until the answer has been sent or the request is gone.
async fn places(bench: &mut Bench) -> Verdict {
    let max = bench.pick(0, 4) as usize;
    let house = House::new(
        &bench.env,
        Limits {
            max_in_flight: max,
            ..limits()
        },
    );
    let (mut open, mut answered): (Vec<Hand<Response>>, Vec<Response>) = (Vec::new(), Vec::new());
    for _ in 0..24 {
        match bench.pick(0, 5) {
            0..=2 => {
                let mut asked = house.ask("/wait", None);
                let full = open.len() + answered.len() >= max;
                match asked.look() {
                    None if !full => open.push(asked),
                    Some(refused) if full => {
                        let busy = Told::new(StatusCode::TOO_MANY_REQUESTS, "busy");
                        let busy = busy.again_after(Duration::from_secs(1));
                        busy.check(refused, "mine").await?;
                    }
                    came => {
                        let came = came.map(|answer| answer.status());
                        return Err(format!("places: {max} places, full {full}, came {came:?}"));
                    }
                }
            }
            3 if !open.is_empty() => drop(open.remove(bench.index(open.len()))),
            4 if !answered.is_empty() => drop(answered.remove(bench.index(answered.len()))),
            5 if open.len() + answered.len() < max => {
                // Answered, but its body not sent yet.
                let answer = at_once(house.ask("/now", None))?;
                agree("places: an answer", answer.status(), StatusCode::OK)?;
                answered.push(answer);
            }
            _ => {}
        }
        let taken = open.len() + answered.len();
        agree("places: taken", house.admission.in_flight(), taken)?;
    }
    house.let_go.trigger();
    for mut asked in open {
        let ended = asked.look().map(|answer| answer.status());
        agree("places: let go", ended, Some(StatusCode::OK))?;
    }
    drop(answered);
    agree("places: taken at last", house.admission.in_flight(), 0)?;
    house.draining.store(true, Ordering::Relaxed);
    let refused = at_once(house.ask("/now", None))?;
    let draining = Told::new(StatusCode::SERVICE_UNAVAILABLE, "draining");
    let draining = draining.again_after(Duration::from_secs(1));
    draining.check(refused, "mine").await
}

/// The shorter of what is granted and what is asked for, and no longer.
async fn deadlines(bench: &mut Bench) -> Verdict {
    let granted = bench.ms(2, 20);
    let house = House::new(
        &bench.env,
        Limits {
            timeout: granted,
            ..limits()
        },
    );
    let exceeded = || Told::new(StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded");
    let late = at_once(house.ask("/now", Some(Duration::ZERO)))?;
    exceeded().check(late, "mine").await?;
    let began = bench.env.now();
    let mut open: Vec<(Duration, Hand<Response>)> = Vec::new();
    for _ in 0..4 {
        let asked = bench
            .one_in(2)
            .then(|| Duration::from_millis(bench.pick(1, 30)));
        let mut hand = house.ask("/wait", asked);
        let least = granted.min(asked.unwrap_or(granted));
        if hand.look().is_some() {
            return Err(format!(
                "deadlines: expected {least:?}, came an answer at once"
            ));
        }
        open.push((least, hand));
    }
    while !open.is_empty() {
        let span = bench.ms(1, 4);
        bench.env.sleep(span).await;
        let passed = bench.env.now() - began;
        let mut left = Vec::new();
        for (least, mut hand) in open {
            match hand.look() {
                Some(answer) => {
                    demand(passed >= least, || {
                        format!("deadlines: expected {least:?}, came an answer after {passed:?}")
                    })?;
                    exceeded().check(answer, "mine").await?;
                }
                None if passed > least + slack(least) => {
                    return Err(format!(
                        "deadlines: expected {least:?}, came none in {passed:?}"
                    ));
                }
                None => left.push((least, hand)),
            }
        }
        open = left;
    }
    agree("deadlines: places taken", house.admission.in_flight(), 0)
}

/// At one moment as many as a second brings, and then one for each that time brings.
async fn rate(bench: &mut Bench) -> Verdict {
    let rate = bench.pick(1, 30) as u32;
    let house = House::new(
        &bench.env,
        Limits {
            rate_per_s: Some(rate),
            ..limits()
        },
    );
    let began = bench.env.now();
    let mut passed = 0;
    for _ in 0..3 {
        let now = bench.env.now();
        let allowed = u64::from(rate) + whole_tokens(rate, now, began);
        // What was not taken while the bucket was full is not there later.
        let allowed = allowed.min(passed + u64::from(rate));
        while passed < allowed {
            let answer = at_once(house.ask("/now", None))?;
            let told = format!("rate: request {passed} of {allowed} at {rate}/s");
            agree(&told, answer.status(), StatusCode::OK)?;
            passed += 1;
        }
        let refused = at_once(house.ask("/now", None))?;
        let limited = Told::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited");
        let limited = limited.again_after(Duration::from_secs(1));
        limited.check(refused, "mine").await?;
        let span = bench.ms(1, 60);
        bench.env.sleep(span).await;
    }
    Ok(())
}

fn whole_tokens(rate: u32, now: Instant, began: Instant) -> u64 {
    ((now - began).as_nanos() * u128::from(rate) / 1_000_000_000) as u64
}
