//! The one way into a service's API: routes stand once, in a table that serves and documents itself.
//!
//! A route says who may call it; what it takes is said by the types of its handler's arguments, and so is what
//! the document lists. Always: a handler runs for an identified caller with every scope of its route; what it
//! was sent was read and found sound; each refusal is a problem, counted by route and code at the
//! [`front`](crate::front).

mod answer;
mod body;
#[cfg(feature = "check")]
pub mod check;
mod document;
mod error;
pub mod events;
pub mod fields;
mod take;

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};
use schemars::JsonSchema;

pub use answer::{JSON, json, with_type};
pub use body::parse;
pub use document::{About, Answer};
pub use error::{ApiError, COME_BACK_AFTER, comes_back};
pub use take::{Json, JsonOrNothing, JsonText, Path, Query, Raw, Take, Takes};

use crate::{
    Env,
    auth::{AuthError, Identity, Mode},
    deadline::Deadline,
    problem::Problem,
    telemetry::{Counters, Telemetry},
};

/// Requests that were refused, by route and code, wherever that was decided; `name` is the service's own.
pub fn refused_counters(telemetry: &Telemetry, name: &'static str) -> Counters {
    telemetry.counters(
        name,
        "Requests refused, by route (empty for none there is) and the problem's code.",
        &["route", "code"],
        MAX_REFUSALS,
    )
}

/// More pairs of route and code than a service meets; the bound only stops a mistake.
const MAX_REFUSALS: usize = 1024;

/// What a caller must bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To be identified, no more.
    Caller,
    /// All of these scopes.
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

/// A method of a path, what its caller needs, and what documents it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub method: Method,
    /// As the router spells it: `{*path}` takes the rest.
    pub path: &'static str,
    pub need: Need,
    about: &'static str,
    takes: fn(&mut Takes),
    examples: Vec<serde_json::Value>,
    answers: Vec<Answer>,
    codes: Vec<&'static str>,
}

impl Endpoint {
    /// Of its body.
    pub fn examples(&self) -> &[serde_json::Value] {
        &self.examples
    }
}

/// A line of the table.
pub struct Route<S> {
    endpoint: Endpoint,
    handler: MethodRouter<Arc<Entry<S>>>,
}

/// `handler` gets the call and what it takes.
pub fn route<S, I, F, Fut>(
    method: Method,
    path: &'static str,
    need: Need,
    handler: F,
    about: &'static str,
) -> Route<S>
where
    S: Send + Sync + 'static,
    I: Take,
    F: Fn(Call<S>, I) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, Problem>> + Send,
{
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
    let serve = move |State(api): State<Arc<Entry<S>>>, request: Request| async move {
        let (parts, mut body) = request.into_parts();
        let answer = match api.enter(need, parts) {
            Ok(mut call) => match I::take(&mut call.parts, &mut body).await {
                Ok(input) => handler(call, input).await,
                Err(problem) => Err(problem),
            },
            Err(problem) => Err(problem),
        };
        answer.unwrap_or_else(IntoResponse::into_response)
    };
    Route {
        endpoint: Endpoint {
            method,
            path,
            need,
            about,
            takes: I::document,
            examples: Vec::new(),
            answers: Vec::new(),
            codes: Vec::new(),
        },
        handler: on(filter, serve),
    }
}

impl<S> Route<S> {
    /// Of its body.
    pub fn example(mut self, body: serde_json::Value) -> Self {
        self.endpoint.examples.push(body);
        self
    }

    /// JSON of this shape.
    pub fn answers<T: JsonSchema>(self, status: StatusCode) -> Self {
        self.answers_as::<T>(status, "application/json", &[])
    }

    /// The same under another media type, with these headers.
    pub fn answers_as<T: JsonSchema>(
        mut self,
        status: StatusCode,
        kind: &'static str,
        headers: &'static [&'static str],
    ) -> Self {
        let answer = Answer::of::<T>(status, kind, headers);
        self.endpoint.answers.push(answer);
        self
    }

    /// Codes of the service's own errors; those of the kernel follow from the rest.
    pub fn refuses(mut self, codes: &[&'static str]) -> Self {
        self.endpoint.codes.extend(codes);
        self
    }
}

/// All routes of a service.
pub struct Api<S> {
    about: About,
    routes: Vec<Route<S>>,
}

impl<S: Send + Sync + 'static> Api<S> {
    /// The routes and, at `about.path`, the document that lists them.
    pub fn new(about: About, mut routes: Vec<Route<S>>) -> Self {
        let document = route(
            Method::GET,
            about.path,
            Need::Caller,
            served,
            "This document",
        );
        routes.push(document.answers::<serde_json::Map<String, serde_json::Value>>(StatusCode::OK));
        Api { about, routes }
    }

    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.routes.iter().map(|route| &route.endpoint)
    }

    /// The document, as it is served while callers are identified in this mode.
    pub fn document(&self, mode: &Mode) -> serde_json::Value {
        let endpoints: Vec<Endpoint> = self.endpoints().cloned().collect();
        document::write(&self.about, &endpoints, mode)
    }

    /// Admission, correlation ids and the fallbacks go around it.
    pub fn router(self, state: S, env: &Env, telemetry: &Telemetry, mode: &Mode) -> Router {
        let entry = Arc::new(Entry {
            state,
            env: env.clone(),
            auth_failures: telemetry.kernel().auth_failures.clone(),
            endpoints: self.endpoints().cloned().collect(),
            about: self.about,
            mode: mode.clone(),
            document: OnceLock::new(),
        });
        let mut router = Router::new();
        for Route { endpoint, handler } in self.routes {
            router = router.route(endpoint.path, handler);
        }
        router.with_state(entry)
    }
}

/// What all handlers share.
pub struct Entry<S> {
    pub state: S,
    pub env: Env,
    auth_failures: Counters,
    about: About,
    endpoints: Vec<Endpoint>,
    mode: Mode,
    /// Written when it is first asked for.
    document: OnceLock<Bytes>,
}

/// A request that may go on.
pub struct Call<S> {
    pub api: Arc<Entry<S>>,
    pub identity: Identity,
    pub parts: Parts,
}

impl<S> Call<S> {
    pub fn state(&self) -> &S {
        &self.api.state
    }

    /// By when an answer is of use; `grant` from now where admission set nothing.
    pub fn deadline(&self, grant: Duration) -> Instant {
        let asked = self.parts.extensions.get::<Deadline>();
        asked.map_or_else(|| self.api.env.now() + grant, |asked| asked.instant())
    }
}

/// Longest name of a caller: what logs and audit records could not name may not act.
pub const MAX_SUBJECT: usize = 256;

impl<S> Entry<S> {
    fn enter(self: Arc<Self>, need: Need, mut parts: Parts) -> Result<Call<S>, Problem> {
        let identity = parts.extensions.remove::<Identity>();
        let identity = identity.ok_or_else(|| self.unauthorised(AuthError::MissingCredentials))?;
        for scope in need.scopes() {
            let allowed = identity.require(scope);
            allowed.map_err(|error| self.unauthorised(error).with("scope", *scope))?;
        }
        if let Need::Tenant(_) = need {
            check_tenant(&identity)?;
        }
        if identity.subject.len() > MAX_SUBJECT {
            return Err(subject_too_long());
        }
        Ok(Call {
            api: self,
            identity,
            parts,
        })
    }

    #[cold]
    fn unauthorised(&self, error: AuthError) -> Problem {
        self.auth_failures.with(&[error.reason()]).inc();
        error.problem()
    }
}

/// Somebody who is identified acts for one tenant, whose name can be written down.
fn check_tenant(identity: &Identity) -> Result<(), Problem> {
    match &identity.tenant {
        None if !identity.is_authenticated() => Ok(()),
        Some(tenant) if fields::is_label(tenant) => Ok(()),
        _ => Err(tenant_missing()),
    }
}

#[cold]
fn tenant_missing() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "tenant_missing").detail(format_args!(
        "the credentials name no tenant of 1 to {} printable ASCII characters",
        fields::MAX_LABEL
    ))
}

#[cold]
fn subject_too_long() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "subject_too_long")
        .detail(format_args!("a subject has at most {MAX_SUBJECT} bytes"))
}

fn served<S>(call: Call<S>, (): ()) -> std::future::Ready<Result<Response, Problem>> {
    let api = &call.api;
    let text = api.document.get_or_init(|| {
        let document = document::write(&api.about, &api.endpoints, &api.mode);
        Bytes::from(document.to_string())
    });
    std::future::ready(Ok(with_type(JSON, Body::from(text.clone()))))
}

#[cfg(test)]
mod tests;
