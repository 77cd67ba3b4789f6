//! One connection after the other on a small server: every limit on its own, at the first request and at later ones, and
//! what is counted of it.
//!
//! Each limit is short and the next one far away, so that it is known which of them ended a connection. Never too early,
//! by the client's own clock; not much too late either, unless the node was held up.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use http::StatusCode;
use ron_core::{
    admission::{Admission, AdmissionConfig},
    front::front,
    problem::read_body,
    seam::BoxFuture,
    serve::{Phase, Refusal, ServeOptions, ServeReport},
    telemetry::Telemetry,
};

use super::{
    Bench, Verdict, agree, connection_cases as cases,
    serve::{Server, router},
    supervisor_script::Pulse,
};
use crate::metrics_page;

/// What a server is to have counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub accepted: u64,
    pub refused: u64,
    pub made_room: u64,
    pub malformed: u64,
    pub panics: u64,
    pub header_read: u64,
    pub body_read: u64,
    pub idle: u64,
    pub write: u64,
}

/// A server and what is known of it.
pub struct House<'a> {
    pub bench: &'a mut Bench,
    pub server: &'a Server,
    pub pulse: &'a Pulse,
    pub expected: Counted,
}

type Case = for<'a, 'b> fn(&'a mut House<'b>) -> BoxFuture<'a, Verdict>;

const CASES: &[Case] = &[
    |house| Box::pin(cases::kept_alive(house)),
    |house| Box::pin(cases::slow_head(house)),
    |house| Box::pin(cases::slow_body(house)),
    |house| Box::pin(cases::refused_body(house)),
    |house| Box::pin(cases::crowd(house)),
    |house| Box::pin(cases::in_a_row(house)),
    |house| Box::pin(cases::unsound(house)),
    |house| Box::pin(super::connection_http2::streams(house)),
];

pub async fn drill(bench: &mut Bench) -> Verdict {
    for case in bench.shuffled(CASES).into_iter().take(2) {
        play(bench, case).await?;
    }
    Ok(())
}

async fn play(bench: &mut Bench, case: Case) -> Verdict {
    let (env, pulse) = (bench.env.clone(), Pulse::new());
    let beating = env.spawn("drill", pulse.clone().beat(env.clone()));
    let options = ServeOptions {
        max_conns: bench.pick(1, 3) as usize,
        header_read: bench.ms(40, 60),
        body_read: bench.ms(40, 60),
        idle: bench.ms(200, 260),
        close_grace: Duration::from_millis(50),
        ..ServeOptions::default()
    };
    let telemetry = Telemetry::new("drill", "");
    let server = Server::serving(bench, options, app(bench, &telemetry)).await?;
    let stats = server.options.stats.clone();
    let mut house = House {
        bench,
        server: &server,
        pulse: &pulse,
        expected: Counted::default(),
    };
    let verdict = case(&mut house).await;
    let expected = house.expected;
    server.stop.trigger();
    let (report, _) = server.ended().await?;
    for _ in 0..3 {
        env.sleep(Duration::from_millis(2)).await;
    }
    beating.abort();
    // Whoever was held up may have been too slow after all.
    if pulse.missed() > Duration::from_millis(5) {
        return Ok(());
    }
    verdict?;
    let came = Counted {
        accepted: stats.accepted.load(Relaxed),
        refused: stats.refused(Refusal::Connections),
        made_room: stats.made_room.load(Relaxed),
        malformed: stats.refused(Refusal::Malformed),
        panics: stats.panics.load(Relaxed),
        header_read: stats.timeouts(Phase::HeaderRead),
        body_read: stats.timeouts(Phase::BodyRead),
        idle: stats.timeouts(Phase::Idle),
        write: stats.timeouts(Phase::Write),
    };
    let told = ServeReport {
        accepted: expected.accepted,
        refused_over_limit: expected.refused,
        aborted_at_close: 0,
    };
    agree("the server's report", report, told)?;
    let read = metrics_page::value(&telemetry.render(), "io_timeouts_total", &["op=\"read\""]);
    agree(
        "bodies that took too long",
        read.unwrap_or(0),
        expected.body_read,
    )?;
    agree("what the server counted", came, expected)?;
    agree("connections still open", stats.open.load(Relaxed), 0)?;
    agree("accept errors", stats.accept_errors.load(Relaxed), 0)
}

/// What the drilled server answers.
fn app(bench: &Bench, telemetry: &Telemetry) -> Router {
    let limits = AdmissionConfig::default().limits();
    let admission = Arc::new(Admission::new(&bench.env, telemetry, limits));
    let api = Router::new()
        .route("/echo", post(|body: Body| read_body(body)))
        .route("/refuse", post(|| async { StatusCode::PAYLOAD_TOO_LARGE }));
    let plain = router(&bench.env).route("/panics", get(panics));
    front(&bench.env, api, &admission, Router::new()).merge(plain)
}

async fn panics() -> &'static str {
    // Without the hook that would print it: it is meant.
    std::panic::resume_unwind(Box::new("on purpose"))
}
