//! The way to a service's routes: each request gets its correlation id, and those to the API pass admission.
//!
//! One layer around a route does both, because axum clones and boxes every layer anew for each request.

use std::{
    convert::Infallible,
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    handler::Handler,
    response::{IntoResponse, Response},
};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    Env,
    admission::Admission,
    corr::{CorrId, CorrIds, identify},
    problem::{Problem, no_such_method, no_such_resource},
    seam::BoxFuture,
    telemetry::Counters,
};

/// What a process serves: its API behind admission, and beside it what tells how the process is, which
/// answers even while the API refuses. Every answer carries its id, every refusal is a problem.
pub fn front(env: &Env, api: Router, admission: &Arc<Admission>, ops: Router) -> Router {
    let door = Door::new(env).counting(admission.refused());
    let api = api.layer(door.clone().admitting(admission));
    api.merge(ops.layer(door.clone()))
        .fallback(no_such_resource.layer(door.clone()))
        .method_not_allowed_fallback(no_such_method.layer(door))
}

#[derive(Clone)]
pub(crate) struct Door {
    ids: CorrIds,
    admission: Option<Arc<Admission>>,
    refused: Option<Counters>,
}

impl Door {
    pub fn new(env: &Env) -> Self {
        Door {
            ids: CorrIds::new(env),
            admission: None,
            refused: None,
        }
    }

    pub fn counting(mut self, refused: Option<Counters>) -> Self {
        self.refused = refused;
        self
    }

    /// Every answer gets its id here, and every refusal is counted.
    fn leave(&self, answer: Response, id: &CorrId, route: Option<MatchedPath>) -> Response {
        if let (Some(refused), Some(problem)) =
            (&self.refused, answer.extensions().get::<Problem>())
        {
            let route = route.as_ref().map_or("", MatchedPath::as_str);
            refused.with(&[route, problem.code()]).inc();
        }
        identify(answer, id)
    }

    pub fn admitting(mut self, admission: &Arc<Admission>) -> Self {
        self.admission = Some(admission.clone());
        self
    }
}

/// A service behind the door.
#[derive(Clone)]
pub(crate) struct Behind<S> {
    door: Door,
    inner: S,
}

impl<S> Layer<S> for Door {
    type Service = Behind<S>;

    fn layer(&self, inner: S) -> Behind<S> {
        let door = self.clone();
        Behind { door, inner }
    }
}

impl<S> Service<Request> for Behind<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let door = self.door.clone();
        let (id, span) = door.ids.begin(&mut request);
        let route = request.extensions().get::<MatchedPath>().cloned();
        let entered = span.enter();
        let Some(admission) = door.admission.clone() else {
            let answer = self.inner.call(request);
            drop(entered);
            let answered = async move { Ok(door.leave(answer.await?, &id, route)) };
            return Box::pin(answered.instrument(span));
        };
        let (request, deadline, permit) = match admission.pass(request) {
            Ok(passed) => passed,
            Err(problem) => {
                let refusal = door.leave(problem.into_response(), &id, route);
                return Box::pin(ready(Ok(refusal)));
            }
        };
        let answer = self.inner.call(request);
        drop(entered);
        let carried_out = async move {
            let answer = admission.carry_out(deadline, permit, answer).await;
            Ok(door.leave(answer, &id, route))
        };
        Box::pin(carried_out.instrument(span))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::{body::Body, routing::get};
    use http::StatusCode;
    use tower::ServiceExt;

    use super::*;
    use crate::{admission::AdmissionConfig, telemetry::Telemetry, test_env::World};

    #[test]
    fn the_api_refuses_while_the_rest_answers_and_every_answer_has_its_id() {
        let world = World::new();
        let env = world.env();
        let draining = Arc::new(AtomicBool::new(false));
        let asked = draining.clone();
        let limits = AdmissionConfig::default().limits();
        let admission = Admission::new(&env, &Telemetry::new("x", ""), limits)
            .draining(move || asked.load(Ordering::Relaxed));
        let api = Router::new().route("/api", get(|| async { "api" }));
        let ops = Router::new().route("/ops", get(|| async { "ops" }));
        let app = front(&env, api, &Arc::new(admission), ops);
        for (drains, method, path, status) in [
            (false, "GET", "/api", StatusCode::OK),
            (false, "GET", "/ops", StatusCode::OK),
            (false, "PUT", "/api", StatusCode::METHOD_NOT_ALLOWED),
            (false, "GET", "/none", StatusCode::NOT_FOUND),
            (true, "GET", "/api", StatusCode::SERVICE_UNAVAILABLE),
            (true, "GET", "/ops", StatusCode::OK),
            (true, "PUT", "/ops", StatusCode::METHOD_NOT_ALLOWED),
            (true, "GET", "/none", StatusCode::NOT_FOUND),
        ] {
            draining.store(drains, Ordering::Relaxed);
            let request = Request::builder().method(method).uri(path);
            let request = request.header("x-corr-id", "mine").body(Body::empty());
            let answer = world.run(app.clone().oneshot(request.unwrap())).unwrap();
            assert_eq!(answer.status(), status, "{method} {path}");
            assert_eq!(answer.headers()["x-corr-id"], "mine", "{method} {path}");
        }
    }
}
