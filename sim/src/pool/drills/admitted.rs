//! What passes the door and what the handler finds then: each request is drawn with several things wrong or none, and the
//! first of them, in the fixed order, is what it is refused for.
//!
//! No time passes between a request and its answer, so deadlines are compared to the nanosecond.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::Request, response::Response, routing::post};
use http::StatusCode;
use ron_core::{
    Shutdown,
    admission::{Admission, AdmissionConfig, Limits},
    auth::{Gate, Identity},
    corr::CorrId,
    deadline::Deadline,
    front::front,
    serve::Peer,
    telemetry::Telemetry,
};
use tower::ServiceExt;

use super::{
    Bench, Verdict, admitted_request::Asked, agree, demand, hands::Hand, ops_parts::ingress,
    problem::Told,
};
use crate::metrics_page;

pub async fn drill(bench: &mut Bench) -> Verdict {
    let mut house = House::draw(bench);
    for _ in 0..30 {
        if bench.one_in(8) {
            house.held.pop();
        }
        if bench.one_in(4) {
            house.hold()?;
        }
        let asked = Asked::draw(bench, house.limits.body_cap);
        let answered = house.ask(bench, &asked).await;
        answered.map_err(|why| format!("{asked:?}: {why}"))?;
    }
    drop(house.held);
    agree(
        "refusals told",
        &*house.told.lock().unwrap(),
        &house.refusals,
    )?;
    let page = metrics_page::all(&house.telemetry.render());
    let all = page.into_iter().filter(|(_, n)| *n > 0.0);
    let came: BTreeMap<String, u64> = all.map(|(name, n)| (name, n as u64)).collect();
    agree("what was counted", came, house.counted)
}

/// What the handler found in its request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    deadline: Option<Instant>,
    corr_id: Option<String>,
    identity: Option<Identity>,
}

struct House {
    router: Router,
    telemetry: Telemetry,
    limits: Limits,
    draining: Arc<Mutex<bool>>,
    seen: Arc<Mutex<Option<Seen>>>,
    /// What was told of refusals, by their reasons.
    told: Arc<Mutex<Vec<&'static str>>>,
    refusals: Vec<&'static str>,
    counted: BTreeMap<String, u64>,
    /// Requests in hand.
    held: Vec<Hand<Response>>,
    /// How many more the rate lets through at this moment.
    tokens: Option<u32>,
}

impl House {
    fn draw(bench: &mut Bench) -> Self {
        let limits = Limits {
            timeout: Duration::from_millis(bench.pick(100, 3000)),
            max_in_flight: bench.pick(1, 3) as usize,
            rate_per_s: bench.one_in(3).then(|| bench.pick(5, 40) as u32),
            body_cap: bench.pick(0, 99),
            ..AdmissionConfig::default().limits()
        };
        let (telemetry, env) = (Telemetry::new("drill", ""), bench.env.clone());
        let (draining, seen) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(None)));
        let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let (asked, tell) = (draining.clone(), told.clone());
        let admission = Admission::new(&env, &telemetry, limits)
            .draining(move || *asked.lock().unwrap())
            .auth(Gate::new(ingress(), &telemetry))
            .on_reject(move |reject| tell.lock().unwrap().push(reject.reason()));
        let (notes, waits) = (seen.clone(), Shutdown::new());
        let see = move |request: Request| {
            *notes.lock().unwrap() = Some(Seen::of(&request));
            std::future::ready("seen")
        };
        let api = Router::new()
            .route("/see", post(see))
            .route("/wait", post(move || async move { waits.wait().await }));
        House {
            router: front(&env, api, &Arc::new(admission), Router::new()),
            telemetry,
            limits,
            draining,
            seen,
            told,
            refusals: Vec::new(),
            counted: BTreeMap::new(),
            held: Vec::new(),
            tokens: limits.rate_per_s,
        }
    }

    fn send(&self, request: Request) -> Hand<Response> {
        let router = self.router.clone();
        Hand::new(async move {
            match router.oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        })
    }

    /// A place is taken by one who waits.
    fn hold(&mut self) -> Verdict {
        if self.held.len() == self.limits.max_in_flight || self.tokens == Some(0) {
            return Ok(());
        }
        self.tokens = self.tokens.map(|left| left - 1);
        *self.draining.lock().unwrap() = false;
        let mut request = Request::post("/wait").header("x-user", "ada");
        request = request.header("x-corr-id", "held");
        let mut request = request.body(Body::empty()).expect("a sound request");
        request.extensions_mut().insert(peer([10, 0, 0, 1]));
        let mut hand = self.send(request);
        let answer = hand.look().map(|answer| answer.status());
        agree("one who waits", answer, None)?;
        self.held.push(hand);
        Ok(())
    }

    fn count(&mut self, metric: &str, labels: &[(&str, &str)], n: u64) {
        if n > 0 {
            *self
                .counted
                .entry(metrics_page::key(metric, labels))
                .or_default() += n;
        }
    }

    async fn ask(&mut self, bench: &Bench, asked: &Asked) -> Verdict {
        *self.draining.lock().unwrap() = asked.draining;
        let mut request = Request::post("/see");
        for (name, value) in &asked.headers {
            request = request.header(*name, value);
        }
        let mut request = request.body(Body::empty()).expect("a sound request");
        if let Some(ip) = asked.peer {
            request.extensions_mut().insert(peer(ip));
        }
        self.seen.lock().unwrap().take();
        let now = bench.env.now();
        let answer = self.send(request).look();
        let answer = answer.ok_or("expected an answer at once, came none")?;
        let id = answer.headers().get("x-corr-id");
        let id = id.and_then(|id| id.to_str().ok()).unwrap_or("").to_owned();
        self.same_id(asked, &id)?;
        let seen = self.seen.lock().unwrap().take();
        match self.refusal(asked) {
            Some(told) => {
                agree("what a refused one's handler saw", seen, None)?;
                told.check(answer, &id).await
            }
            None => {
                agree("status", answer.status(), StatusCode::OK)?;
                let left = self
                    .limits
                    .timeout
                    .min(asked.within.unwrap_or(Duration::MAX));
                let expected = Seen {
                    deadline: Some(now + left),
                    corr_id: Some(id),
                    identity: asked.caller.clone().ok(),
                };
                agree("what the handler saw", seen, Some(expected))
            }
        }
    }

    fn same_id(&self, asked: &Asked, id: &str) -> Verdict {
        match &asked.corr_id {
            Some(own) => agree("the id", id, own),
            None => {
                let hex = id.bytes().all(|b| b.is_ascii_hexdigit());
                demand(hex && id.len() == 32, || format!("the drawn id {id:?}"))
            }
        }
    }

    /// The first thing that is wrong, in the order in which they are asked; counted.
    fn refusal(&mut self, asked: &Asked) -> Option<Told> {
        let again = Duration::from_secs(1);
        let told =
            |status: u16, code| Told::new(StatusCode::from_u16(status).unwrap_or_default(), code);
        if asked.draining {
            self.refusals.push("draining");
            self.count("not_ready_total", &[("phase", "draining")], 1);
            return Some(told(503, "draining").again_after(again));
        }
        self.count("deadline_header_malformed_total", &[], asked.malformed);
        if asked.within == Some(Duration::ZERO) {
            self.refusals.push("timeout");
            self.count("io_timeouts_total", &[("op", "request")], 1);
            return Some(told(504, "deadline_exceeded"));
        }
        if self.tokens == Some(0) {
            self.refusals.push("rate_limit");
            self.count("quota_reject_total", &[("kind", "rate")], 1);
            return Some(told(429, "rate_limited").again_after(again));
        }
        self.tokens = self.tokens.map(|left| left - 1);
        if self.held.len() == self.limits.max_in_flight {
            self.refusals.push("busy");
            self.count("quota_reject_total", &[("kind", "in_flight")], 1);
            let labels = [("endpoint", "/see"), ("queue", "")];
            self.count("busy_rejections_total", &labels, 1);
            return Some(told(429, "busy").again_after(again));
        }
        if let Err((status, reason)) = asked.caller {
            self.refusals.push("auth");
            self.count("auth_failures_total", &[("reason", reason)], 1);
            let mut told = told(status, reason);
            told.challenge = (status == 401).then(|| "Bearer".to_owned());
            return Some(told);
        }
        if asked.too_large {
            self.refusals.push("body_cap");
            return Some(told(413, "body_too_large"));
        }
        asked.encoded.then(|| {
            self.refusals.push("encoding");
            told(415, "unsupported_encoding")
        })
    }
}

impl Seen {
    fn of(request: &Request) -> Self {
        let found = request.extensions();
        Seen {
            deadline: found.get::<Deadline>().map(|deadline| deadline.instant()),
            corr_id: found.get::<CorrId>().map(|id| id.as_str().to_owned()),
            identity: found.get::<Identity>().cloned(),
        }
    }
}

fn peer(ip: [u8; 4]) -> Peer {
    Peer {
        addr: (ip, 5).into(),
        cert: None,
    }
}
