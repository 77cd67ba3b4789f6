//! The audit log as anyone with the scope can read it: checkpoint, tiles, entry bundles, receipts.
//!
//! Paths and contents are those of C2SP tlog-tiles. A tile never changes once it is full, and a partial one
//! of a given width neither, but it may be gone once it is full: it is kept for a short time only.

use std::future::{Ready, ready};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use ron_core::{
    api::{Path, with_type},
    problem::Problem,
};

use super::{
    Call,
    answer::{OCTETS, TEXT},
};
use crate::{audit::tiles::Tile, error::KmsError};

/// What stands before a tile's path.
const PREFIX: &str = "/v1/kms/audit/";
/// Callers differ in what they may see, so only their own caches may keep it.
const FULL: HeaderValue = HeaderValue::from_static("private, max-age=31536000, immutable");
const PARTIAL: HeaderValue = HeaderValue::from_static("private, max-age=60");
const MOVING: HeaderValue = HeaderValue::from_static("no-cache");

pub fn checkpoint(call: Call, (): ()) -> Ready<Result<Response, Problem>> {
    let note = call.state().checkpoint().map_err(Problem::from);
    ready(note.map(|note| cached(MOVING, TEXT, Body::from(note))))
}

pub async fn tile(call: Call, (): ()) -> Result<Response, Problem> {
    // The path as sent: a tile has one spelling, and escapes are another.
    let path = call.parts.uri.path().strip_prefix(PREFIX);
    let tile = path.and_then(|path| Tile::parse(path).ok());
    let tile = tile.ok_or(KmsError::NoSuchRecord)?;
    let bytes = call.state().tile(tile).await?;
    let keep = match tile.is_partial() {
        true => PARTIAL,
        false => FULL,
    };
    Ok(cached(keep, OCTETS, Body::from(bytes)))
}

pub async fn proof(call: Call, Path(index): Path<u64>) -> Result<Response, Problem> {
    let receipt = call.state().proof(index).await?;
    Ok(cached(MOVING, TEXT, Body::from(receipt)))
}

fn cached(keep: HeaderValue, kind: HeaderValue, body: Body) -> Response {
    let mut response = with_type(kind, body);
    response.headers_mut().insert(header::CACHE_CONTROL, keep);
    response
}
