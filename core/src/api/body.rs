//! Reading request bodies: once, fast, and with a refusal that says where and what, but repeats no value.
//!
//! A body that parses costs one pass; only one that does not is read again, to name the place.

use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use super::fields::Object;
use crate::problem::Problem;

pub(super) fn check_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.map_or(&b""[..], |value| value.as_bytes());
    match kind == b"application/json" || is_json(kind) {
        true => Ok(()),
        false => Err(
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type")
                .detail("the body must be application/json"),
        ),
    }
}

/// Parses a request, which is an object. Any bytes are one or are refused.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    match serde_json::from_slice(body) {
        Ok(Object(request)) => Ok(request),
        Err(_) => explain(body),
    }
}

/// Parameters are not json, but media types with them or with a `+json` suffix are.
fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|b| *b == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii().to_ascii_lowercase();
    essence == b"application/json"
        || (essence.starts_with(b"application/") && essence.ends_with(b"+json"))
}

#[cold]
fn explain<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut source = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut source);
    let Object(request) =
        parsed.map_err(|error| problem(error.inner(), &error.path().to_string()))?;
    source.end().map_err(|error| problem(&error, "."))?;
    Ok(request)
}

fn problem(error: &serde_json::Error, path: &str) -> Problem {
    let text = without_value(&error.to_string());
    let path: String = path.chars().take(MAX_ECHO).collect();
    if !error.is_data() {
        return Problem::new(StatusCode::BAD_REQUEST, "json_syntax")
            .detail(text)
            .with("line", error.line())
            .with("column", error.column());
    }
    let (status, code) = kind(&text);
    let detail = format!("{path}: {text}");
    Problem::new(status, code).detail(detail).with("path", path)
}

/// serde reports all data errors alike; their wording is the only thing that tells them apart.
pub(super) const KINDS: [(&str, StatusCode, &str); 5] = [
    ("not base64", StatusCode::BAD_REQUEST, "base64_invalid"),
    (
        "unknown algorithm",
        StatusCode::UNPROCESSABLE_ENTITY,
        "alg_unknown",
    ),
    (
        "unknown field",
        StatusCode::UNPROCESSABLE_ENTITY,
        "unknown_field",
    ),
    (
        "missing field",
        StatusCode::UNPROCESSABLE_ENTITY,
        "missing_field",
    ),
    ("", StatusCode::UNPROCESSABLE_ENTITY, "invalid_field"),
];

fn kind(text: &str) -> (StatusCode, &'static str) {
    let known = KINDS.iter().find(|(start, ..)| text.starts_with(start));
    let (_, status, code) = known.unwrap_or(&KINDS[KINDS.len() - 1]);
    (*status, code)
}

/// serde repeats the text it did not expect: it could be a secret in the wrong field, or a megabyte.
fn without_value(text: &str) -> String {
    let quiet = match text.split_once(" \"") {
        Some((kind @ ("invalid type: string" | "invalid value: string"), rest)) => {
            let expected = rest.rfind("\", expected ").map_or("", |at| &rest[at + 1..]);
            format!("{kind}{expected}")
        }
        _ => text.to_owned(),
    };
    quiet.chars().take(MAX_DETAIL).collect()
}

const MAX_ECHO: usize = 100;
const MAX_DETAIL: usize = 300;
