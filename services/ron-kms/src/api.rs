//! The HTTP surface, `/v1/kms`: who may call what, how requests are read and answers written. No logic.
//!
//! Each route names the scopes it needs, once, in [`routes`]; a caller is identified by the admission layer
//! before, and one without an [`Identity`] is refused. Every refusal is a problem and counted by its code.

mod answer;
mod audit;
mod body;
pub mod fields;
mod keys;
pub mod requests;
mod use_keys;

use std::{
    future::{Future, Ready, ready},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Method, StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use bytes::Bytes;
use ron_core::{
    Env,
    auth::{AuthError, Identity},
    problem::Problem,
    telemetry::{Counters, Telemetry},
};
use serde::de::DeserializeOwned;

pub use body::parse;

use crate::{ask::Caller, audit::record::MAX_NAME, engine::Kms, error::KmsError};

/// The description of this API, as served.
pub const OPENAPI: &str = include_str!("api/openapi.json");

/// Everything below `/v1/kms`. Admission, correlation ids and the fallbacks go around it.
pub fn router(kms: Kms, env: &Env, telemetry: &Telemetry) -> Router {
    let api = Api(Arc::new(Inner {
        kms,
        env: env.clone(),
        refused: refused_counters(telemetry),
        auth_failures: telemetry.kernel().auth_failures.clone(),
    }));
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
    /// As the router spells it: `{*path}` takes the rest.
    pub path: &'static str,
    pub need: Need,
}

/// What a caller must bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To be identified, no more.
    Caller,
    /// All of these scopes; the log is everybody's.
    Scope(&'static [&'static str]),
    /// All of these scopes and, unless nobody is identified, a tenant.
    Tenant(&'static [&'static str]),
}

impl Need {
    pub fn scopes(self) -> &'static [&'static str] {
        match self {
            Need::Caller => &[],
            Need::Scope(scopes) | Need::Tenant(scopes) => scopes,
        }
    }
}

pub const SIGN: &str = "kms:sign";
pub const VERIFY: &str = "kms:verify";
pub const WRAP: &str = "kms:wrap";
pub const UNWRAP: &str = "kms:unwrap";
pub const ROTATE: &str = "kms:rotate";
pub const READ: &str = "kms:read";
pub const AUDIT: &str = "kms:audit";

/// All routes, as the router has them.
pub fn endpoints() -> Vec<Endpoint> {
    routes().into_iter().map(|(endpoint, _)| endpoint).collect()
}

#[rustfmt::skip]
fn routes() -> Vec<(Endpoint, MethodRouter<Api>)> {
    use Need::{Scope, Tenant};
    const GET: Method = Method::GET;
    const POST: Method = Method::POST;
    vec![
        route(POST, "/v1/kms/sign", Tenant(&[SIGN]), use_keys::sign),
        route(POST, "/v1/kms/verify", Tenant(&[VERIFY]), use_keys::verify),
        route(POST, "/v1/kms/wrap", Tenant(&[WRAP]), use_keys::wrap),
        route(POST, "/v1/kms/unwrap", Tenant(&[UNWRAP]), use_keys::unwrap),
        route(POST, "/v1/kms/data-key", Tenant(&[WRAP]), use_keys::data_key),
        route(POST, "/v1/kms/attest", Tenant(&[READ]), use_keys::attest),
        route(POST, "/v1/kms/keys", Tenant(&[ROTATE]), keys::create),
        route(GET, "/v1/kms/keys", Tenant(&[READ]), keys::list),
        route(GET, "/v1/kms/keys/{kid}", Tenant(&[READ]), keys::show),
        route(GET, "/v1/kms/keys/{kid}/versions/{n}", Tenant(&[READ]), keys::show_version),
        route(POST, "/v1/kms/keys/{kid}/versions/{n}/disable", Tenant(&[ROTATE]), keys::disable),
        route(POST, "/v1/kms/keys/{kid}/versions/{n}/enable", Tenant(&[ROTATE]), keys::enable),
        route(POST, "/v1/kms/keys/{kid}/rotate", Tenant(&[ROTATE]), keys::rotate),
        route(POST, "/v1/kms/keys/{kid}/destroy", Tenant(&[ROTATE]), keys::destroy),
        route(POST, "/v1/kms/keys/{kid}/destroy/cancel", Tenant(&[ROTATE]), keys::cancel_destroy),
        route(Method::PUT, "/v1/kms/keys/{kid}/policy", Tenant(&[ROTATE]), keys::set_policy),
        // It opens what was wrapped: who may not unwrap must not learn from its refusals what is inside.
        route(POST, "/v1/kms/keys/{kid}/import", Tenant(&[ROTATE, UNWRAP]), keys::import),
        route(GET, "/v1/kms/jwks.json", Tenant(&[READ]), keys::jwks),
        route(GET, "/v1/kms/audit/checkpoint", Scope(&[AUDIT]), audit::checkpoint),
        route(GET, "/v1/kms/audit/tile/{*path}", Scope(&[AUDIT]), audit::tile),
        route(GET, "/v1/kms/audit/proof/{index}", Scope(&[AUDIT]), audit::proof),
        route(GET, "/v1/kms/openapi.json", Need::Caller, openapi),
    ]
}

/// Requests that were refused, by code.
pub fn refused_counters(telemetry: &Telemetry) -> Counters {
    telemetry.counters(
        "kms_refused_total",
        "Requests refused, by the problem's code.",
        &["code"],
        MAX_CODES,
    )
}

/// More codes than the service has; the bound only stops a mistake.
const MAX_CODES: usize = 128;

/// What all handlers share.
#[derive(Clone)]
struct Api(Arc<Inner>);

struct Inner {
    kms: Kms,
    env: Env,
    refused: Counters,
    auth_failures: Counters,
}

/// A request that may go on.
struct Call {
    api: Api,
    caller: Caller,
    parts: Parts,
    body: Body,
}

fn route<F, Fut>(
    method: Method,
    path: &'static str,
    need: Need,
    handler: F,
) -> (Endpoint, MethodRouter<Api>)
where
    F: Fn(Call) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, Problem>> + Send,
{
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
    let serve = move |State(api): State<Api>, request: Request| async move {
        let answer = match api.enter(need, request) {
            Ok(call) => handler(call).await,
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(|problem| api.refuse(problem))
    };
    let endpoint = Endpoint { method, path, need };
    (endpoint, on(filter, serve))
}

impl Api {
    fn enter(&self, need: Need, request: Request) -> Result<Call, Problem> {
        let (mut parts, body) = request.into_parts();
        let identity = parts.extensions.remove::<Identity>();
        let identity = identity.ok_or_else(|| self.unauthorised(AuthError::MissingCredentials))?;
        for scope in need.scopes() {
            let allowed = identity.require(scope);
            allowed.map_err(|error| self.unauthorised(error).with("scope", *scope))?;
        }
        if let Need::Tenant(_) = need {
            check_tenant(&identity)?;
        }
        // What the audit log could not name may not act.
        if identity.subject.len() > MAX_NAME {
            return Err(Problem::new(StatusCode::FORBIDDEN, "subject_too_long")
                .detail(format_args!("a subject has at most {MAX_NAME} bytes")));
        }
        Ok(Call {
            api: self.clone(),
            caller: Caller {
                actor: identity.subject,
                tenant: identity.tenant,
            },
            parts,
            body,
        })
    }

    fn unauthorised(&self, error: AuthError) -> Problem {
        self.0.auth_failures.with(&[error.reason()]).inc();
        error.problem()
    }

    #[cold]
    fn refuse(&self, problem: Problem) -> Response {
        self.0.refused.with(&[problem.code()]).inc();
        problem.into_response()
    }
}

impl Call {
    fn kms(&self) -> &Kms {
        &self.api.0.kms
    }

    fn now_ms(&self) -> u64 {
        self.api.0.env.wall_ms()
    }

    /// The body as it came. It is taken out: a second call finds it empty.
    async fn bytes(&mut self) -> Result<Bytes, Problem> {
        body::read(&self.parts.headers, std::mem::take(&mut self.body)).await
    }

    async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        parse(&self.bytes().await?)
    }

    /// For requests whose fields are all optional: no body is as good as an empty object.
    async fn json_or_nothing<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let body = body::read_any(std::mem::take(&mut self.body)).await?;
        if body.is_empty() {
            return parse(b"{}");
        }
        body::check_json(&self.parts.headers)?;
        parse(&body)
    }
}

/// Somebody who is identified acts for one tenant.
fn check_tenant(identity: &Identity) -> Result<(), Problem> {
    match &identity.tenant {
        None if !identity.is_authenticated() => Ok(()),
        Some(tenant) if fields::is_label(tenant) => Ok(()),
        _ => Err(Problem::from(&KmsError::ForeignTenant)),
    }
}

fn refusal(error: KmsError) -> Problem {
    Problem::from(&error)
}

/// The engine answered another question than was asked.
fn misanswered() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal")
        .detail("the engine's answer does not fit the request")
}

fn openapi(_: Call) -> Ready<Result<Response, Problem>> {
    ready(Ok(answer::with_type(answer::JSON, Body::from(OPENAPI))))
}
