//! The local HTTP surface, `/v1/dht`: who may call what, how requests are read and answers written. No logic.
//!
//! Each route names the scope it needs, once, in [`routes`]; a caller is identified by the admission layer
//! before, and one without an [`Identity`] is refused. Every refusal is a problem and counted by its code.

mod events;
mod find;
mod publish;

use std::{
    future::{Future, Ready, ready},
    sync::Arc,
    time::Instant,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{FromRequestParts, Path, Request, State},
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use ron_core::{
    Shutdown,
    auth::{AuthError, Identity},
    deadline::Deadline,
    problem::Problem,
};
use serde::Serialize;

use crate::{dht::Dht, error::DhtError, id::Id, metrics::Family};

/// The description of this API, as served.
pub const OPENAPI: &str = include_str!("api/openapi.json");

/// Longest name of a value.
pub const MAX_NAME: usize = 255;

/// Everything below `/v1/dht`. Admission, correlation ids and the fallbacks go around it. Streams of events end
/// with `stop`.
pub fn router(dht: Dht, stop: Shutdown) -> Router {
    let api = Api(Arc::new(Inner { dht, stop }));
    let mut router = Router::new();
    for (endpoint, handler) in routes() {
        router = router.route(endpoint.path, handler);
    }
    router.with_state(api)
}

/// A method of a path, and what its caller needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub method: Method,
    pub path: &'static str,
    /// None: to be identified is enough.
    pub scope: Option<&'static str>,
}

pub const READ: &str = "dht:read";
pub const WRITE: &str = "dht:write";

/// All routes, as the router has them.
pub fn endpoints() -> Vec<Endpoint> {
    routes().into_iter().map(|(endpoint, _)| endpoint).collect()
}

#[rustfmt::skip]
fn routes() -> Vec<(Endpoint, MethodRouter<Api>)> {
    const GET: Method = Method::GET;
    let (read, write) = (Some(READ), Some(WRITE));
    vec![
        route(Method::PUT, "/v1/dht/values/{key}", write, publish::put_value),
        route(GET, "/v1/dht/values/{key}", read, find::value),
        route(GET, "/v1/dht/values", read, find::value_by_name),
        route(Method::POST, "/v1/dht/providers/{key}", write, publish::provide),
        route(GET, "/v1/dht/providers/{key}", read, find::providers),
        route(GET, "/v1/dht/closest/{key}", read, find::closest),
        route(GET, "/v1/dht/routing", read, find::routing),
        route(GET, "/v1/dht/lookups/{id}", read, find::lookup),
        route(GET, "/v1/dht/events", read, events::stream),
        route(GET, "/v1/dht/openapi.json", None, openapi),
    ]
}

/// What all handlers share.
#[derive(Clone)]
struct Api(Arc<Inner>);

struct Inner {
    dht: Dht,
    stop: Shutdown,
}

/// A request that may go on.
struct Call {
    api: Api,
    deadline: Instant,
    parts: Parts,
    body: Body,
}

fn route<F, Fut>(
    method: Method,
    path: &'static str,
    scope: Option<&'static str>,
    handler: F,
) -> (Endpoint, MethodRouter<Api>)
where
    F: Fn(Call) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, Problem>> + Send,
{
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
    let serve = move |State(api): State<Api>, request: Request| async move {
        let answer = match api.enter(scope, request) {
            Ok(call) => handler(call).await,
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(|problem| api.refuse(problem))
    };
    let endpoint = Endpoint {
        method,
        path,
        scope,
    };
    (endpoint, on(filter, serve))
}

impl Api {
    fn enter(&self, scope: Option<&'static str>, request: Request) -> Result<Call, Problem> {
        let (mut parts, body) = request.into_parts();
        let identity = parts.extensions.remove::<Identity>();
        let identity = identity.ok_or_else(|| AuthError::MissingCredentials.problem())?;
        if let Some(scope) = scope {
            let allowed = identity.require(scope);
            allowed.map_err(|error| error.problem().with("scope", scope))?;
        }
        let node = self.0.dht.node();
        let granted = node.env.now() + node.config().lookup_deadline();
        let asked = parts.extensions.get::<Deadline>().map(|d| d.instant());
        Ok(Call {
            api: self.clone(),
            deadline: asked.unwrap_or(granted),
            parts,
            body,
        })
    }

    #[cold]
    fn refuse(&self, problem: Problem) -> Response {
        let metrics = &self.0.dht.node().metrics;
        metrics.count(Family::ApiRefused, problem.code());
        problem.into_response()
    }
}

impl Call {
    fn dht(&self) -> &Dht {
        &self.api.0.dht
    }

    /// The last segment of the path, decoded.
    async fn segment(&mut self) -> Result<String, Problem> {
        let path = Path::<String>::from_request_parts(&mut self.parts, &()).await;
        let Path(segment) = path.map_err(|_| invalid("the path is not valid UTF-8"))?;
        Ok(segment)
    }

    async fn key(&mut self) -> Result<Id, Problem> {
        let segment = self.segment().await?;
        Id::parse(&segment).ok_or_else(|| invalid("a key is 64 hexadecimal digits"))
    }
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::from(&DhtError::Invalid(why.into()))
}

fn refusal(error: DhtError) -> Problem {
    Problem::from(&error)
}

fn json(status: StatusCode, body: impl Serialize) -> Response {
    (status, Json(body)).into_response()
}

fn openapi(_: Call) -> Ready<Result<Response, Problem>> {
    let mut response = Response::new(Body::from(OPENAPI));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    ready(Ok(response))
}
