//! The pool's routes; no logic.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, put},
};
use ron_core::problem::Problem;

use super::{
    App,
    worker::{Done, Job},
};

pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/items/{key}", put(store))
        .route("/readyz", get(ready))
        .with_state(app)
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let status = app.readiness.status();
    if status.ready {
        return Json(status).into_response();
    }
    if app.planted("mute_readyz") {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, Json(status)).into_response()
}

async fn store(State(app): State<Arc<App>>, Path(key): Path<u64>) -> Result<&'static str, Problem> {
    let unavailable = |code| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code).retry_after(Duration::from_secs(1))
    };
    if app.draining.load(Ordering::Relaxed) {
        app.env.probe("pool.draining_503", key, format_args!(""));
        return Err(unavailable("draining"));
    }
    if app.planted("never_recovers") && app.incarnation > 1 {
        return Err(unavailable("broken"));
    }
    let (job, answer) = Job::new(&app.env, key);
    if let Err(refused) = app.queue.push(job) {
        refused.item.refused();
        return Err(
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy").retry_after(Duration::from_secs(1))
        );
    }
    app.env.probe("job.accepted", key, format_args!(""));
    let limit = Duration::from_millis(app.config.request_deadline_ms);
    match app.env.timeout(limit, answer).await {
        Ok(Ok(Done::Stored)) => Ok("stored"),
        Ok(Ok(Done::Failed)) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "storage")),
        Ok(Err(_)) => Err(unavailable("worker_lost")),
        Err(_) => Err(Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "deadline_exceeded",
        )),
    }
}
