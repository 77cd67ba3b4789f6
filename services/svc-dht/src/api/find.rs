//! Finding values, providers and nodes, and showing how.

use std::future::{Ready, ready};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use ron_core::{
    api::{Path, Query, json, with_type},
    problem::Problem,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{By, Call, Key, Name};
use crate::{contact::Contact, dht::FoundValue, id::Id};

#[derive(Debug, Serialize, JsonSchema)]
pub struct Node {
    #[schemars(with = "Key")]
    id: String,
    addr: String,
}

impl From<Contact> for Node {
    fn from(contact: Contact) -> Node {
        Node {
            id: contact.id.to_string(),
            addr: contact.addr.to_string(),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Value {
    #[schemars(with = "Key")]
    key: String,
    name: String,
    /// Base64.
    value: String,
    #[schemars(with = "Key")]
    publisher: String,
    seq: u64,
    expires_ms: u64,
    lookup: u64,
}

pub async fn value(call: Call, Path(Key(key)): Path<Key>) -> Result<Response, Problem> {
    find_value(call, key).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByName {
    name: Name,
    /// The publisher's public key; this node's if absent.
    publisher: Option<Key>,
}

pub async fn value_by_name(call: Call, Query(by): Query<ByName>) -> Result<Response, Problem> {
    let own = || *call.state().dht.node().identity.public();
    let publisher = by.publisher.map_or_else(own, |Key(Id(key))| key);
    let key = Id::of_value(&publisher, by.name.0.as_bytes());
    find_value(call, key).await
}

async fn find_value(call: Call, key: Id) -> Result<Response, Problem> {
    let found = call.state().dht.get_value(key, call.by()).await?;
    Ok(match wants_json(&call.parts.headers) {
        true => json(StatusCode::OK, &described(&found)),
        false => raw(found),
    })
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/json"))
}

fn described(found: &FoundValue) -> Value {
    Value {
        key: found.key.to_string(),
        name: String::from_utf8_lossy(&found.name).into_owned(),
        value: STANDARD.encode(&found.value),
        publisher: Id(found.publisher).to_string(),
        seq: found.seq,
        expires_ms: found.expires_ms,
        lookup: found.lookup,
    }
}

/// What is known about a value that is answered as it was put.
pub const VALUE_HEADERS: &[&str] = &[
    "x-dht-publisher",
    "x-dht-seq",
    "x-dht-expires-ms",
    "x-dht-lookup",
];

fn raw(found: FoundValue) -> Response {
    let about = [
        Id(found.publisher).to_string(),
        found.seq.to_string(),
        found.expires_ms.to_string(),
        found.lookup.to_string(),
    ];
    let kind = HeaderValue::from_static("application/octet-stream");
    let mut response = with_type(kind, Body::from(found.value));
    let headers = response.headers_mut();
    for (name, value) in VALUE_HEADERS.iter().copied().zip(about) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Providers {
    #[schemars(with = "Key")]
    key: String,
    providers: Vec<Provider>,
    lookup: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Provider {
    #[schemars(with = "Key")]
    id: String,
    addr: String,
    #[schemars(with = "Key")]
    publisher: String,
    seq: u64,
    expires_ms: u64,
}

pub async fn providers(call: Call, Path(Key(key)): Path<Key>) -> Result<Response, Problem> {
    let found = call.state().dht.providers(key, call.by()).await?;
    let providers = found.providers.iter().map(|p| Provider {
        id: p.contact.id.to_string(),
        addr: p.contact.addr.to_string(),
        publisher: Id(p.publisher).to_string(),
        seq: p.seq,
        expires_ms: p.expires_ms,
    });
    Ok(json(
        StatusCode::OK,
        &Providers {
            key: key.to_string(),
            providers: providers.collect(),
            lookup: found.lookup,
        },
    ))
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Closest {
    #[schemars(with = "Key")]
    key: String,
    closest: Vec<Node>,
    hops: u32,
    lookup: u64,
}

pub async fn closest(call: Call, Path(Key(key)): Path<Key>) -> Result<Response, Problem> {
    let found = call.state().dht.closest(key, call.by()).await?;
    Ok(json(
        StatusCode::OK,
        &Closest {
            key: key.to_string(),
            closest: found.closest.into_iter().map(Node::from).collect(),
            hops: found.hops.into(),
            lookup: found.lookup,
        },
    ))
}

pub fn routing(call: Call, (): ()) -> Ready<Result<Response, Problem>> {
    let view = call.state().dht.routing();
    ready(Ok(json(StatusCode::OK, &view)))
}

pub fn lookup(call: Call, Path(id): Path<u64>) -> Ready<Result<Response, Problem>> {
    let explained = call.state().dht.node().courses.get(id);
    let explained = explained.ok_or_else(unknown_lookup);
    ready(explained.map(|explained| json(StatusCode::OK, &explained)))
}

pub fn unknown_lookup() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "lookup_not_found")
}
