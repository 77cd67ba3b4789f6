//! The pool's routes; no logic.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, routing::put};
use ron_core::{
    admission::{Admission, AdmissionConfig, Limits, Reject},
    api::Path,
    front::front,
    ops::{self, Ops},
    problem::Problem,
    telemetry::Telemetry,
};

use super::{
    App,
    worker::{Done, Job},
};

pub fn router(app: Arc<App>, telemetry: &Telemetry) -> Router {
    let limits = Limits {
        timeout: Duration::from_millis(app.config.request_deadline_ms),
        rate_per_s: None,
        body_cap: app.config.body_bytes,
        max_in_flight: app.config.max_inflight,
        ..AdmissionConfig::default().limits()
    };
    let draining = {
        let app = app.clone();
        move || app.draining.load(Ordering::Relaxed)
    };
    let told = app.env.clone();
    let admission = Admission::new(&app.env, telemetry, limits)
        .draining(draining.clone())
        .on_reject(move |reject| {
            if reject == Reject::Draining {
                told.probe("pool.draining_503", 0, format_args!(""));
            }
        });
    let readiness = app.readiness.clone();
    let ops = Ops::new(
        &app.env,
        telemetry,
        env!("CARGO_PKG_VERSION"),
        move || readiness.status(),
        draining,
        None,
    );
    let items = Router::new()
        .route("/items/{key}", put(store))
        .with_state(app.clone());
    let ops = ops::router(ops);
    front(&app.env, items, &Arc::new(admission), ops)
}

async fn store(State(app): State<Arc<App>>, Path(key): Path<u64>) -> Result<&'static str, Problem> {
    let unavailable = |code| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code).retry_after(Duration::from_secs(1))
    };
    let (job, answer) = Job::new(&app.env, key);
    let pushed = app.queue.push(job);
    let accepted = pushed.is_ok();
    app.env
        .probe("spec.queue.push", key, format_args!("{accepted}"));
    if let Err(refused) = pushed {
        refused.item.refused();
        return Err(
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy").retry_after(Duration::from_secs(1))
        );
    }
    app.env.probe("job.accepted", key, format_args!(""));
    // The deadline is admission's: when it passes, this future goes and the job is finished all the same.
    match answer.await {
        Ok(Done::Stored) => Ok("stored"),
        Ok(Done::Failed) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "storage")),
        Err(_) => Err(unavailable("worker_lost")),
    }
}
