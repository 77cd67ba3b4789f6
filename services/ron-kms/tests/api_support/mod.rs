//! A bench for the API: the router alone before an engine at rest, or a whole service on loopback; a caller
//! of one's choice, and the answer as JSON.
#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(
    clippy::disallowed_methods,
    reason = "it starts the runtime that the service runs on"
)]

pub mod nothing;
pub mod running;
#[path = "../support/mod.rs"]
pub mod support;

use std::{collections::BTreeSet, sync::Arc};

use axum::{Router, body::Body, http::Request};
use http::{HeaderMap, Method, StatusCode};
use nothing::NoBackend;
use ron_core::{
    Env,
    admission::{Admission, AdmissionConfig},
    api::check::{Came, Checker},
    app::Start,
    auth::{Identity, KeySet, Mode, Passport, Via},
    bus::Bus,
    front::front,
    problem::read_body,
    telemetry::Telemetry,
};
use ron_io::{Data, TokioOptions, TokioRuntime};
use ron_kms::{
    api,
    backend::Backend,
    config::Config,
    keystore::KeyStore,
    service::{Options, Service},
};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

pub const KID: &str = "q83vASNFZ4mrze8BI0VniQ";

/// The routes before an engine that has no keys, no tasks and no backend: what would take a place in its
/// queue is refused before.
pub struct Bench {
    runtime: Runtime,
    pub telemetry: Telemetry,
    app: Router,
    pub document: Checker,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    pub json: Value,
}

impl Bench {
    pub fn new() -> Bench {
        let runtime = runtime();
        let env = forgetful(&runtime);
        let options = options(&env, Config::default(), Arc::new(NoBackend::new()), None);
        let service = runtime.block_on(Service::open(options)).unwrap();
        let telemetry = Telemetry::new("ron-kms", "");
        let api = api::router(service.kms(), &env, &telemetry, &passport());
        let limits = AdmissionConfig::default().limits();
        let admission = Admission::new(&env, &telemetry, limits);
        let admission = admission.counting(api::refused_counters(&telemetry));
        Bench {
            runtime,
            telemetry,
            app: front(&env, api, &Arc::new(admission), Router::new()),
            document: Checker::new(api::document(&passport())),
        }
    }

    /// What comes back is as the document says.
    pub fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().to_string());
        let answer = self.runtime.block_on(async {
            let response = self.app.clone().oneshot(request).await.unwrap();
            Answer::of(response).await
        });
        answer.check(&self.document, &method, &path);
        answer
    }

    pub fn metric(&self, name: &str) -> f64 {
        metric(&self.telemetry.render(), name)
    }
}

impl Answer {
    pub async fn of(response: http::Response<Body>) -> Answer {
        let (parts, body) = response.into_parts();
        let bytes = read_body(body).await.unwrap();
        Answer {
            status: parts.status,
            headers: parts.headers,
            json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            bytes: bytes.to_vec(),
        }
    }

    pub fn check(&self, document: &Checker, method: &Method, path: &str) {
        let came = Came {
            status: self.status.as_u16(),
            kind: self.kind(),
            body: &self.bytes,
        };
        let found = document.answer(method.as_str(), path, came);
        found.unwrap_or_else(|why| panic!("{why}"));
    }

    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or("")
    }

    pub fn kind(&self) -> &str {
        self.headers["content-type"].to_str().unwrap()
    }
}

/// As services are that ask for tokens.
pub fn passport() -> Mode {
    Mode::Passport(Passport::default())
}

pub fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// A process that keeps its files in memory.
pub fn forgetful(runtime: &Runtime) -> Env {
    process(
        runtime,
        Data::Memory {
            limit_bytes: 64 << 20,
        },
    )
}

pub fn process(runtime: &Runtime, data: Data) -> Env {
    let options = TokioOptions {
        data,
        extra_ca_pem: None,
    };
    Env::new(TokioRuntime::new(runtime.handle().clone(), &options).unwrap())
}

pub fn options(
    env: &Env,
    config: Config,
    backend: Arc<dyn Backend>,
    token_keys: Option<KeySet>,
) -> Options {
    let store = KeyStore::memory(env).unwrap();
    stored(env, config, store, backend, token_keys)
}

pub fn stored(
    env: &Env,
    config: Config,
    store: KeyStore,
    backend: Arc<dyn Backend>,
    token_keys: Option<KeySet>,
) -> Options {
    let start = Start::new(env.clone(), Bus::new(), Arc::new(config));
    Options {
        start: Start {
            token_keys,
            ..start
        },
        store,
        backend,
    }
}

/// A line of `/metrics`, by its beginning; 0 if it is not there.
pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

pub fn caller(tenant: Option<&str>, scopes: &[&str]) -> Identity {
    Identity {
        subject: "ada".to_owned(),
        tenant: tenant.map(str::to_owned),
        scopes: scopes.iter().map(ToString::to_string).collect(),
        via: Via::Passport,
    }
}

/// As in mode `none`.
pub fn nobody() -> Identity {
    Identity {
        subject: "anonymous".to_owned(),
        tenant: None,
        scopes: BTreeSet::new(),
        via: Via::Nobody,
    }
}

pub fn request(
    who: Option<Identity>,
    method: Method,
    path: &str,
    body: impl Into<Body>,
) -> Request<Body> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json");
    let mut request = request.body(body.into()).unwrap();
    if let Some(who) = who {
        request.extensions_mut().insert(who);
    }
    request
}
