//! Putting values and announcing providers.

use axum::extract::FromRequestParts;
use axum::{body::Body, http::StatusCode, response::Response};
use ron_core::problem::{ApiQuery, Problem, parse_json, read_body};
use serde::{Deserialize, Serialize};

use super::{Call, MAX_NAME, invalid, json, refusal};
use crate::publish::Published;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Life {
    ttl_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Acknowledged {
    key: String,
    seq: u64,
    replicas: usize,
    expires_ms: u64,
}

/// The body is the value, whatever its type; the path names it.
pub async fn put_value(mut call: Call) -> Result<Response, Problem> {
    let ApiQuery(life) = ApiQuery::<Life>::from_request_parts(&mut call.parts, &()).await?;
    let name = call.segment().await?;
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(invalid(format!("a name has 1 to {MAX_NAME} bytes")));
    }
    let value = read_body(std::mem::replace(&mut call.body, Body::empty())).await?;
    let dht = call.dht();
    let put = dht.put_value(name.as_bytes(), &value, life.ttl_ms, call.deadline);
    put.await.map(acknowledged).map_err(refusal)
}

/// This node provides what the key stands for.
pub async fn provide(mut call: Call) -> Result<Response, Problem> {
    let key = call.key().await?;
    let body = read_body(std::mem::replace(&mut call.body, Body::empty())).await?;
    let life: Life = match body.is_empty() {
        true => Life::default(),
        false => parse_json(&body)?,
    };
    let provide = call.dht().provide(key, life.ttl_ms, call.deadline);
    provide.await.map(acknowledged).map_err(refusal)
}

fn acknowledged(published: Published) -> Response {
    json(
        StatusCode::OK,
        Acknowledged {
            key: published.key.to_string(),
            seq: published.seq,
            replicas: published.replicas,
            expires_ms: published.expires_ms,
        },
    )
}
