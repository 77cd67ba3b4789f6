//! One error shape for every service: RFC 9457 `application/problem+json`.
//!
//! A problem carries a stable `code`, says whether trying again can help (`retryable`, `Retry-After`), and
//! gets its `corr_id` from the correlation layer on the way out. Always: it is retryable exactly if it says when
//! to come back.

use std::{fmt, time::Duration};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value, json};

use crate::api::comes_back;

/// What went wrong, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    status: StatusCode,
    code: &'static str,
    detail: String,
    /// When to come back, if that helps.
    retry_after: Option<Duration>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
    extra: Map<String, Value>,
}

impl Problem {
    /// `code` is snake_case and never changes once published. Whether trying again helps follows from the
    /// status until [`retrying`](Self::retrying) says otherwise.
    pub fn new(status: StatusCode, code: &'static str) -> Problem {
        Problem(Box::new(Inner {
            status,
            code,
            detail: String::new(),
            retry_after: comes_back(status),
            headers: Vec::new(),
            extra: Map::new(),
        }))
    }

    pub fn detail(mut self, detail: impl fmt::Display) -> Problem {
        self.0.detail = detail.to_string();
        self
    }

    /// Sent as `Retry-After` in whole seconds, rounded up and at least 1.
    pub fn retry_after(self, after: Duration) -> Problem {
        self.retrying(Some(after))
    }

    /// When to come back, or that there is no use in it.
    pub fn retrying(mut self, after: Option<Duration>) -> Problem {
        self.0.retry_after = after;
        self
    }

    pub fn is_retryable(&self) -> bool {
        self.0.retry_after.is_some()
    }

    pub fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Problem {
        self.0.headers.push((name, value));
        self
    }

    /// An extension member. The standard members cannot be replaced.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Problem {
        self.0.extra.insert(name.to_owned(), value.into());
        self
    }

    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// The answer with a `corr_id` in it. [`IntoResponse`] leaves it empty: the correlation layer, which
    /// knows the id, renders again.
    pub fn into_response_with(self, corr_id: &str) -> Response {
        let mut response = Response::new(Body::from(self.body(corr_id)));
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        if let Some(after) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        headers.extend(self.0.headers.iter().cloned());
        response.extensions_mut().insert(self);
        response
    }

    pub(crate) fn body(&self, corr_id: &str) -> String {
        let p = &*self.0;
        let mut body = p.extra.clone();
        let standard = json!({
            "type": format!("urn:ron:problem:{}", p.code),
            "title": p.status.canonical_reason().unwrap_or("Error"),
            "status": p.status.as_u16(),
            "detail": p.detail,
            "code": p.code,
            "retryable": self.is_retryable(),
            "corr_id": corr_id,
        });
        if let Value::Object(standard) = standard {
            body.extend(standard);
        }
        Value::Object(body).to_string()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}",
            self.0.status.as_u16(),
            self.0.code,
            self.0.detail
        )
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.into_response_with("")
    }
}

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// `Retry-After` counts whole seconds; 0 would invite an immediate retry.
fn whole_seconds(d: Duration) -> u64 {
    (d.as_secs() + u64::from(d.subsec_nanos() > 0)).max(1)
}

// ------------------------------------------------------------------------------------- fallbacks

/// Makes a router answer unknown paths (404) and wrong methods (405) with problems.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .fallback(no_such_resource)
        .method_not_allowed_fallback(no_such_method)
}

pub(crate) async fn no_such_resource() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found").detail("no such resource")
}

pub(crate) async fn no_such_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed")
        .detail("this resource does not answer to that method")
}

// ------------------------------------------------------------------------------------ body faults

/// Why a request body could not be read to its end. The admission layer's body yields it as its error,
/// so that whoever reads the body, and however, the client gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    #[error("the body is larger than {cap} bytes")]
    TooLarge { cap: u64 },
    #[error("the body was not received within {limit_ms} ms")]
    Timeout { limit_ms: u64 },
    #[error("the body is not valid gzip")]
    Corrupt,
    #[error("the body expands to more than {ratio} times its size")]
    Ratio { ratio: u32 },
    #[error("the body expands to more than {cap} bytes")]
    Expanded { cap: u64 },
    #[error("the connection broke before the body ended")]
    Lost,
    #[error("the body's chunks are malformed")]
    Framing,
}

impl BodyFault {
    /// One of each.
    pub const ALL: [BodyFault; 7] = [
        BodyFault::TooLarge { cap: 0 },
        BodyFault::Timeout { limit_ms: 0 },
        BodyFault::Corrupt,
        BodyFault::Framing,
        BodyFault::Ratio { ratio: 0 },
        BodyFault::Expanded { cap: 0 },
        BodyFault::Lost,
    ];

    /// Finds the fault in an error's chain; anything else means the connection broke.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> BodyFault {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(fault) = error.downcast_ref::<BodyFault>() {
                return *fault;
            }
            if error.is::<crate::serve::BadFraming>() {
                return BodyFault::Framing;
            }
            next = error.source();
        }
        BodyFault::Lost
    }

    pub fn code(&self) -> &'static str {
        match self {
            BodyFault::TooLarge { .. } => "body_too_large",
            BodyFault::Timeout { .. } => "body_timeout",
            BodyFault::Corrupt => "body_corrupt",
            BodyFault::Ratio { .. } => "decompress_ratio",
            BodyFault::Expanded { .. } => "decompress_too_large",
            BodyFault::Lost => "body_lost",
            BodyFault::Framing => "malformed_chunks",
        }
    }

    pub fn problem(&self) -> Problem {
        let status = match self {
            BodyFault::Timeout { .. } => StatusCode::REQUEST_TIMEOUT,
            BodyFault::Corrupt | BodyFault::Lost | BodyFault::Framing => StatusCode::BAD_REQUEST,
            _ => StatusCode::PAYLOAD_TOO_LARGE,
        };
        Problem::new(status, self.code()).detail(self)
    }
}

/// Nothing reads more than this into memory, whatever the admission layer allows.
pub const MAX_BUFFERED_BODY: usize = 10 << 20;

/// The whole body, or the problem that says why not.
pub async fn read_body(body: Body) -> Result<Bytes, Problem> {
    let mut body = Limited::new(body, MAX_BUFFERED_BODY);
    // Most bodies come in one piece, which then is the body.
    let first = match body.frame().await.transpose() {
        Ok(frame) => frame.and_then(|frame| frame.into_data().ok()),
        Err(error) => return Err(unread(&*error)),
    };
    let first = first.unwrap_or_default();
    if http_body::Body::is_end_stream(&body) {
        return Ok(first);
    }
    match body.collect().await {
        Ok(rest) => Ok(joined(first, rest.to_bytes())),
        Err(error) => Err(unread(&*error)),
    }
}

fn joined(first: Bytes, rest: Bytes) -> Bytes {
    match (first.is_empty(), rest.is_empty()) {
        (_, true) => first,
        (true, false) => rest,
        (false, false) => [first, rest].concat().into(),
    }
}

#[cold]
fn unread(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Problem {
    let fault = match error.is::<LengthLimitError>() {
        true => BodyFault::TooLarge {
            cap: MAX_BUFFERED_BODY as u64,
        },
        false => BodyFault::of(error),
    };
    fault.problem()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_env::World;

    #[test]
    fn body_faults_keep_their_meaning_through_any_reader() {
        for (fault, status) in BodyFault::ALL
            .into_iter()
            .zip([413, 408, 400, 400, 413, 413, 400])
        {
            let body = Body::from_stream(futures_util::stream::iter([Err::<Bytes, _>(fault)]));
            let problem = World::new().run(read_body(body)).unwrap_err();
            assert_eq!(
                (problem.status().as_u16(), problem.code()),
                (status, fault.code())
            );
            assert_eq!(problem.is_retryable(), status == 408);
        }
    }

    #[test]
    fn nobody_buffers_a_body_beyond_the_hard_cap() {
        for (len, taken) in [(MAX_BUFFERED_BODY, true), (MAX_BUFFERED_BODY + 1, false)] {
            let read = World::new().run(read_body(Body::from(vec![b'x'; len])));
            assert_eq!(read.is_ok(), taken);
            assert!(taken || read.unwrap_err().code() == "body_too_large");
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_rounded_up() {
        for (ms, seconds) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2")] {
            let response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy")
                .retry_after(Duration::from_millis(ms))
                .into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], seconds, "{ms}");
        }
    }

    #[test]
    fn extra_members_are_added_and_cannot_replace_the_standard_ones() {
        let problem = Problem::new(StatusCode::CONFLICT, "conflict")
            .with("kid", "k1")
            .with("status", 1);
        let body: Value = serde_json::from_str(&problem.body("c-1")).unwrap();
        assert_eq!(body["kid"], "k1");
        assert_eq!(body["status"], 409);
        assert_eq!(body["corr_id"], "c-1");
        assert_eq!(body["title"], "Conflict");
    }
}
