//! A bench for the API: the router alone, a caller of one's choice, and the answer as JSON.
#![allow(dead_code, reason = "each test file uses its part of it")]

#[path = "../../../../core/tests/world/mod.rs"]
pub mod world;

pub mod schema;

use std::{collections::BTreeSet, sync::Arc};

use axum::{Router, body::Body, http::Request};
use http::{HeaderMap, Method, StatusCode};
use ron_core::{
    auth::{Identity, Via},
    problem::{read_body, with_fallbacks},
    telemetry::Telemetry,
};
use ron_kms::{api, engine::Kms};
use serde_json::Value;
use tower::ServiceExt;
use world::World;

pub const KID: &str = "q83vASNFZ4mrze8BI0VniQ";

pub struct Bench {
    pub world: World,
    pub telemetry: Telemetry,
    pub app: Router,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub json: Value,
}

impl Bench {
    /// The routes before an engine that does nothing yet.
    pub fn new() -> Bench {
        let (world, telemetry) = (World::new(), Telemetry::new("ron-kms", ""));
        let api = api::router(Kms(Arc::new(())), &world.env(), &telemetry);
        let app = with_fallbacks(api);
        Bench {
            world,
            telemetry,
            app,
        }
    }

    pub fn send(&self, request: Request<Body>) -> Answer {
        self.world.run(async {
            let response = self.app.clone().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let bytes = read_body(body).await.unwrap();
            Answer {
                status: parts.status,
                headers: parts.headers,
                json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            }
        })
    }

    /// A line of `/metrics`, by its beginning.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.telemetry.render();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }
}

impl Answer {
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or("")
    }
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
