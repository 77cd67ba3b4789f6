//! Answers: JSON through serde, and a body under its media type.

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub fn with_type(kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // No answer has a map with keys that are no text, or a value that refuses.
    let body = serde_json::to_string(value).unwrap_or_default();
    let mut response = with_type(JSON, Body::from(body));
    *response.status_mut() = status;
    response
}
