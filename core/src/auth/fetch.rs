//! One fetch of the issuer's keys: where they are, asked of the issuer itself if nobody said, and then what they are.
//!
//! Always: one deadline for all of it, a cap on every answer, no redirect followed. What is wrong with an answer has
//! a name; none of it is believed in part.

use std::{
    fmt,
    net::IpAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;

use super::{JwksError, KeySet};
use crate::{Env, seam::HttpError};

/// Where the keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    Jwks(Uri),
    /// The issuer's metadata names the place, and may name another one next time.
    Discovery {
        issuer: String,
        metadata: Uri,
        /// The keys may come over plain HTTP from other machines, too.
        allow_http: bool,
    },
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Jwks(url) | KeySource::Discovery { metadata: url, .. } => url.fmt(f),
        }
    }
}

/// More is not read.
pub const MAX_ANSWER_BYTES: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("no answer in time")]
    Timeout,
    #[error("the request failed: {0}")]
    Http(HttpError),
    #[error("the issuer answered {0}")]
    Status(StatusCode),
    #[error("the answer is larger than {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
    #[error("the answer broke off")]
    Torn,
    #[error("the answer is no metadata of an issuer: {0}")]
    Metadata(String),
    #[error("the metadata is of another issuer, `{0}`")]
    Issuer(String),
    #[error("keys over plain HTTP are not believed: {0}")]
    Insecure(String),
    #[error("the answer is unusable: {0}")]
    Keys(JwksError),
}

impl FetchError {
    /// The `result` label.
    pub fn reason(&self) -> &'static str {
        match self {
            FetchError::Timeout => "timeout",
            FetchError::Http(HttpError::Connect { .. }) => "connect",
            FetchError::Http(_) => "request",
            FetchError::Status(_) => "status",
            FetchError::TooLarge => "too_large",
            FetchError::Torn => "torn",
            FetchError::Metadata(_) | FetchError::Keys(JwksError::Malformed(_)) => "malformed",
            FetchError::Issuer(_) => "issuer_mismatch",
            FetchError::Insecure(_) => "insecure",
            FetchError::Keys(JwksError::TooManyKeys) => "too_many_keys",
            FetchError::Keys(JwksError::DuplicateKid(_)) => "duplicate_kid",
            FetchError::Keys(JwksError::NoUsableKey(_)) => "no_usable_key",
        }
    }
}

/// Of the many fields of OpenID Connect Discovery, those that matter here.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

/// The keys, and for how long the issuer calls them fresh.
pub(super) async fn fetch(
    env: &Env,
    source: &KeySource,
    timeout: Duration,
) -> Result<(KeySet, Option<Duration>), FetchError> {
    let deadline = env.now() + timeout;
    let url = match source {
        KeySource::Jwks(url) => url.clone(),
        KeySource::Discovery {
            issuer,
            metadata,
            allow_http,
        } => {
            let (_, answer) = get(env, metadata, deadline).await?;
            keys_of(issuer, &answer, *allow_http)?
        }
    };
    let (headers, answer) = get(env, &url, deadline).await?;
    let keys = KeySet::parse(&answer).map_err(FetchError::Keys)?;
    Ok((keys, max_age(&headers)))
}

/// Where the metadata says the keys are. Another issuer's metadata would let that one sign for ours.
fn keys_of(issuer: &str, answer: &[u8], allow_http: bool) -> Result<Uri, FetchError> {
    let metadata: Metadata =
        serde_json::from_slice(answer).map_err(|error| FetchError::Metadata(error.to_string()))?;
    if metadata.issuer != issuer {
        return Err(FetchError::Issuer(
            metadata.issuer.chars().take(200).collect(),
        ));
    }
    let url = metadata.jwks_uri.parse();
    let url: Uri = url.map_err(|_| FetchError::Metadata("`jwks_uri` is no address".to_owned()))?;
    match is_safe(&url, allow_http) {
        true => Ok(url),
        false => Err(FetchError::Insecure(url.to_string())),
    }
}

/// Who can change what is on the way can sign tokens: HTTPS, unless it stays on this machine or is allowed.
pub(super) fn is_safe(url: &Uri, allow_http: bool) -> bool {
    let Some(host) = url.host() else {
        return false;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let here = host.eq_ignore_ascii_case("localhost")
        || host
            .parse()
            .is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    match url.scheme_str() {
        Some("https") => true,
        Some("http") => here || allow_http,
        _ => false,
    }
}

async fn get(env: &Env, url: &Uri, deadline: Instant) -> Result<(HeaderMap, Bytes), FetchError> {
    let mut request = http::Request::new(Bytes::new());
    *request.uri_mut() = url.clone();
    let response = env.http(request, deadline).await;
    let response = response.map_err(|error| match error {
        HttpError::Timeout { .. } => FetchError::Timeout,
        other => FetchError::Http(other),
    })?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect();
    let body = env.timeout_at(deadline, body).await;
    let body = body.map_err(|_| FetchError::Timeout)?;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => FetchError::TooLarge,
        false => FetchError::Torn,
    })?;
    Ok((parts.headers, body.to_bytes()))
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::CACHE_CONTROL)?.to_str().ok()?;
    let seconds = value
        .split(',')
        .find_map(|d| d.trim().strip_prefix("max-age="))?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
