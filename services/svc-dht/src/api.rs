//! The local HTTP surface, `/v1/dht`: who may call what, what each route takes, answers and refuses. No logic.
//!
//! One table: the router, the scopes and the OpenAPI document all come from it; the kernel's
//! [`api`](ron_core::api) is the way in.

mod find;
mod publish;

use std::future::{Ready, ready};

use axum::{
    Router,
    http::{Method, StatusCode},
    response::Response,
};
use ron_core::{
    Env, Shutdown,
    api::{About, Api, ApiError, Endpoint, Need, Route, fields::Text, route},
    auth::Mode,
    problem::Problem,
    telemetry::{Counters, Telemetry},
    text_fields,
};
use schemars::{Schema, json_schema};
use serde::de::Error;
use serde_json::{Value, json};

use crate::{dht::Dht, error, events::Event, id::Id};

/// Longest name of a value.
pub const MAX_NAME: usize = 255;

pub const READ: &str = "dht:read";
pub const WRITE: &str = "dht:write";

/// What all handlers share.
struct Shared {
    dht: Dht,
    stop: Shutdown,
}

type Call = ron_core::api::Call<Shared>;

/// Everything below `/v1/dht`. Admission, correlation ids and the fallbacks go around it. Streams of events end
/// with `stop`.
pub fn router(dht: Dht, stop: Shutdown, telemetry: &Telemetry, mode: &Mode) -> Router {
    let env: Env = dht.node().env.clone();
    api().router(Shared { dht, stop }, &env, telemetry, mode)
}

/// All routes, as the router has them.
pub fn endpoints() -> Vec<Endpoint> {
    api().endpoints().cloned().collect()
}

/// The description of this API, as served in this mode.
pub fn document(mode: &Mode) -> Value {
    api().document(mode)
}

/// Requests that were refused, by route and code.
pub fn refused_counters(telemetry: &Telemetry) -> Counters {
    ron_core::api::refused_counters(telemetry, "dht_refused_total")
}

fn api() -> Api<Shared> {
    let about = About {
        title: "svc-dht",
        description: "Values and providers in a Kademlia network. Keys are 64 hexadecimal digits; every error is \
            `application/problem+json` with a stable `code`.",
        path: "/v1/dht/openapi.json",
        errors: || {
            let own = error::examples()
                .into_iter()
                .map(|e| (e.status(), e.code()));
            own.chain([(
                find::unknown_lookup().status(),
                find::unknown_lookup().code(),
            )])
            .collect()
        },
    };
    Api::new(about, routes())
}

/// What may become of a lookup.
const LOOKUP: &[&str] = &[
    "busy",
    "timeout",
    "cut_short",
    "canceled",
    "not_ready",
    "storage",
];
/// Of a record that is put.
const PUT: &[&str] = &[
    "invalid_request",
    "expired",
    "stale",
    "too_large",
    "quota",
    "not_stored",
];

#[rustfmt::skip]
fn routes() -> Vec<Route<Shared>> {
    const GET: Method = Method::GET;
    const OK: StatusCode = StatusCode::OK;
    let (read, write) = (Need::Scope(&[READ]), Need::Scope(&[WRITE]));
    let value = |line: Route<Shared>| line
        .answers_as::<String>(OK, "application/octet-stream", find::VALUE_HEADERS)
        .answers::<find::Value>(OK)
        .refuses(LOOKUP).refuses(&["key_not_found"]);
    vec![
        route(Method::PUT, "/v1/dht/values/{key}", write, publish::put_value, "Put the body under a name, for all to find")
            .answers::<publish::Acknowledged>(OK)
            .refuses(LOOKUP).refuses(PUT),
        value(route(GET, "/v1/dht/values/{key}", read, find::value, "Get a value by its key, raw or as JSON")),
        value(route(GET, "/v1/dht/values", read, find::value_by_name, "Get a value by its name and publisher, raw or as JSON")),
        route(Method::POST, "/v1/dht/providers/{key}", write, publish::provide, "Announce that this node provides what the key stands for")
            .example(json!({}))
            .example(json!({ "ttl_ms": 3_600_000 }))
            .answers::<publish::Acknowledged>(OK)
            .refuses(LOOKUP).refuses(PUT),
        route(GET, "/v1/dht/providers/{key}", read, find::providers, "Find who provides what the key stands for")
            .answers::<find::Providers>(OK)
            .refuses(LOOKUP),
        route(GET, "/v1/dht/closest/{key}", read, find::closest, "Find the nodes that are closest to a key")
            .answers::<find::Closest>(OK)
            .refuses(LOOKUP),
        route(GET, "/v1/dht/routing", read, find::routing, "Show the routing table")
            .answers::<crate::dht::RoutingView>(OK),
        route(GET, "/v1/dht/lookups/{id}", read, find::lookup, "Show how a lookup that was asked for over this API went")
            .answers::<crate::explained::Explained>(OK)
            .refuses(&["lookup_not_found"]),
        route(GET, "/v1/dht/events", read, events, "Hear what happens in the node, as server-sent events; `lagging` if some were lost")
            .answers_as::<Event>(OK, "text/event-stream", &["Cache-Control"]),
    ]
}

fn events(call: Call, (): ()) -> Ready<Result<Response, Problem>> {
    let Shared { dht, stop } = call.state();
    ready(Ok(dht.node().events.stream(&call.api.env, stop)))
}

/// A key, or a public key: 64 hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Key(pub Id);

/// What a value is called.
#[derive(Debug)]
pub struct Name(pub String);

text_fields!(Key, Name);

impl Text for Key {
    const NAME: &'static str = "Key";
    const EXPECTED: &'static str = "64 hexadecimal digits";

    fn read<E: Error>(text: &str) -> Result<Key, E> {
        Id::parse(text)
            .map(Key)
            .ok_or_else(|| E::custom("64 hexadecimal digits are allowed"))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9A-Fa-f]{64}$" })
    }
}

impl Text for Name {
    const NAME: &'static str = "Name";
    const EXPECTED: &'static str = "a name of 1 to 255 bytes";

    fn read<E: Error>(text: &str) -> Result<Name, E> {
        match (1..=MAX_NAME).contains(&text.len()) {
            true => Ok(Name(text.to_owned())),
            false => Err(E::custom("1 to 255 bytes are allowed")),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME, "description": "At most 255 bytes." })
    }
}

/// By when a request is answered.
trait By {
    fn by(&self) -> std::time::Instant;
}

impl By for Call {
    fn by(&self) -> std::time::Instant {
        self.deadline(self.state().dht.node().config().lookup_deadline())
    }
}
