//! Putting values and announcing providers.

use axum::{http::StatusCode, response::Response};
use ron_core::{
    api::{JsonOrNothing, Path, Query, Raw, fields::Whole, json},
    problem::Problem,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{By, Call, Key, Name};
use crate::publish::Published;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// How long it outlives its publisher, in milliseconds; the configuration says how long at most.
    ttl_ms: Option<Whole<1, { u64::MAX }>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Published")]
pub struct Acknowledged {
    #[schemars(with = "Key")]
    key: String,
    seq: u64,
    replicas: usize,
    expires_ms: u64,
}

/// The body is the value, whatever its type; the path names it.
pub async fn put_value(
    call: Call,
    (Path(Name(name)), Query(life), Raw(value)): (Path<Name>, Query<Life>, Raw),
) -> Result<Response, Problem> {
    let ttl_ms = life.ttl_ms.map(Whole::get);
    let dht = &call.state().dht;
    let put = dht.put_value(name.as_bytes(), &value, ttl_ms, call.by());
    Ok(acknowledged(put.await?))
}

/// This node provides what the key stands for.
pub async fn provide(
    call: Call,
    (Path(Key(key)), JsonOrNothing(life)): (Path<Key>, JsonOrNothing<Life>),
) -> Result<Response, Problem> {
    let ttl_ms = life.ttl_ms.map(Whole::get);
    let provide = call.state().dht.provide(key, ttl_ms, call.by());
    Ok(acknowledged(provide.await?))
}

fn acknowledged(published: Published) -> Response {
    json(
        StatusCode::OK,
        &Acknowledged {
            key: published.key.to_string(),
            seq: published.seq,
            replicas: published.replicas,
            expires_ms: published.expires_ms,
        },
    )
}
