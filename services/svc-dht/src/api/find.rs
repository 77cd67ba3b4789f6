//! Finding values, providers and nodes, and showing how.

use std::future::{Ready, ready};

use axum::{
    body::Body,
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use ron_core::problem::{ApiQuery, Problem};
use serde::{Deserialize, Serialize};

use super::{Call, MAX_NAME, invalid, json, refusal};
use crate::{
    contact::Contact,
    dht::{FoundValue, RoutingView},
    id::Id,
};

#[derive(Debug, Serialize)]
struct Node {
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

#[derive(Debug, Serialize)]
struct Value {
    key: String,
    name: String,
    /// Base64.
    value: String,
    publisher: String,
    seq: u64,
    expires_ms: u64,
    lookup: u64,
}

pub async fn value(mut call: Call) -> Result<Response, Problem> {
    let key = call.key().await?;
    find_value(call, key).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByName {
    name: String,
    /// The publisher's public key, 64 hexadecimal digits; this node's if absent.
    publisher: Option<String>,
}

pub async fn value_by_name(mut call: Call) -> Result<Response, Problem> {
    let ApiQuery(by) = ApiQuery::<ByName>::from_request_parts(&mut call.parts, &()).await?;
    if by.name.is_empty() || by.name.len() > MAX_NAME {
        return Err(invalid(format!("a name has 1 to {MAX_NAME} bytes")));
    }
    let publisher = match by.publisher.as_deref().map(Id::parse) {
        None => *call.dht().node().identity.public(),
        Some(Some(Id(key))) => key,
        Some(None) => return Err(invalid("a publisher is 64 hexadecimal digits")),
    };
    let key = Id::of_value(&publisher, by.name.as_bytes());
    find_value(call, key).await
}

async fn find_value(call: Call, key: Id) -> Result<Response, Problem> {
    let found = call.dht().get_value(key, call.deadline).await;
    let found = found.map_err(refusal)?;
    Ok(match wants_json(&call.parts.headers) {
        true => json(StatusCode::OK, described(&found)),
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

/// The value as it was put; what is known about it in headers.
fn raw(found: FoundValue) -> Response {
    let about = [
        ("x-dht-publisher", Id(found.publisher).to_string()),
        ("x-dht-seq", found.seq.to_string()),
        ("x-dht-expires-ms", found.expires_ms.to_string()),
        ("x-dht-lookup", found.lookup.to_string()),
    ];
    let mut response = Response::new(Body::from(found.value));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    for (name, value) in about {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

#[derive(Debug, Serialize)]
struct Providers {
    key: String,
    providers: Vec<Provider>,
    lookup: u64,
}

#[derive(Debug, Serialize)]
struct Provider {
    id: String,
    addr: String,
    publisher: String,
    seq: u64,
    expires_ms: u64,
}

pub async fn providers(mut call: Call) -> Result<Response, Problem> {
    let key = call.key().await?;
    let found = call.dht().providers(key, call.deadline).await;
    let found = found.map_err(refusal)?;
    let providers = found.providers.iter().map(|p| Provider {
        id: p.contact.id.to_string(),
        addr: p.contact.addr.to_string(),
        publisher: Id(p.publisher).to_string(),
        seq: p.seq,
        expires_ms: p.expires_ms,
    });
    Ok(json(
        StatusCode::OK,
        Providers {
            key: key.to_string(),
            providers: providers.collect(),
            lookup: found.lookup,
        },
    ))
}

#[derive(Debug, Serialize)]
struct Closest {
    key: String,
    closest: Vec<Node>,
    hops: u32,
    lookup: u64,
}

pub async fn closest(mut call: Call) -> Result<Response, Problem> {
    let key = call.key().await?;
    let found = call.dht().closest(key, call.deadline).await;
    let found = found.map_err(refusal)?;
    Ok(json(
        StatusCode::OK,
        Closest {
            key: key.to_string(),
            closest: found.closest.into_iter().map(Node::from).collect(),
            hops: found.hops.into(),
            lookup: found.lookup,
        },
    ))
}

pub fn routing(call: Call) -> Ready<Result<Response, Problem>> {
    let view: RoutingView = call.dht().routing();
    ready(Ok(json(StatusCode::OK, view)))
}

pub async fn lookup(mut call: Call) -> Result<Response, Problem> {
    let id = call.segment().await?;
    let id = id.parse().map_err(|_| invalid("a lookup is a number"))?;
    let explained = call.dht().node().courses.get(id);
    let explanation =
        explained.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "lookup_not_found"))?;
    Ok(json(StatusCode::OK, explanation))
}
