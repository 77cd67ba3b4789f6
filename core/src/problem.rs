//! One error shape for every service: RFC 9457 `application/problem+json`.
//!
//! A problem carries a stable `code`, says whether trying again can help (`retryable`, `Retry-After`), and
//! gets its `corr_id` from the correlation layer on the way out. Extractors here reject with problems only.

use std::{fmt, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// What went wrong, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    status: StatusCode,
    code: &'static str,
    detail: String,
    retryable: bool,
    retry_after: Option<Duration>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
    extra: Map<String, Value>,
}

impl Problem {
    /// `code` is snake_case and never changes once published. Whether the problem is retryable follows
    /// from the status until [`retryable`](Self::retryable) says otherwise.
    pub fn new(status: StatusCode, code: &'static str) -> Problem {
        let retryable = matches!(status.as_u16(), 408 | 425 | 429 | 502 | 503 | 504);
        Problem(Box::new(Inner {
            status,
            code,
            detail: String::new(),
            retryable,
            retry_after: None,
            headers: Vec::new(),
            extra: Map::new(),
        }))
    }

    pub fn detail(mut self, detail: impl fmt::Display) -> Problem {
        self.0.detail = detail.to_string();
        self
    }

    pub fn retryable(mut self, retryable: bool) -> Problem {
        self.0.retryable = retryable;
        self
    }

    /// Sent as `Retry-After` in whole seconds, rounded up and at least 1.
    pub fn retry_after(mut self, after: Duration) -> Problem {
        self.0.retry_after = Some(after);
        self
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
            "retryable": p.retryable,
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

// ------------------------------------------------------------------------------------- extractors

/// A JSON request body. Types declare `deny_unknown_fields`, so that a misspelt field is an error.
#[derive(Clone, Copy, Debug)]
pub struct ApiJson<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(
                Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type")
                    .detail("the body must be application/json"),
            );
        }
        let body = read_body(request.into_body()).await?;
        parse_json(&body).map(ApiJson)
    }
}

/// Parses a JSON document, naming the offending field or position.
pub fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut source = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut source).map_err(|error| {
        let path = error.path().to_string();
        json_problem(error.inner(), &path)
    })?;
    source.end().map_err(|error| json_problem(&error, "."))?;
    Ok(value)
}

fn json_problem(error: &serde_json::Error, path: &str) -> Problem {
    if !error.is_data() {
        return Problem::new(StatusCode::BAD_REQUEST, "json_syntax")
            .detail(error)
            .with("line", error.line())
            .with("column", error.column());
    }
    let text = error.to_string();
    // serde reports all data errors alike; its wording is the only thing that tells them apart.
    let code = if text.starts_with("unknown field") {
        "unknown_field"
    } else if text.starts_with("missing field") {
        "missing_field"
    } else {
        "invalid_field"
    };
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code)
        .detail(text)
        .with("path", path)
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let essence = value.unwrap_or("").split(';').next().unwrap_or("").trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Query parameters, refused with a problem.
#[derive(Clone, Copy, Debug)]
pub struct ApiQuery<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(ApiQuery(value)),
            Err(error) => {
                Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query")
                    .detail(error.body_text()))
            }
        }
    }
}

/// Path parameters, refused with a problem.
#[derive(Clone, Copy, Debug)]
pub struct ApiPath<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(ApiPath(value)),
            Err(error) => {
                Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_path").detail(error.body_text()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use serde::Deserialize;
    use tower::ServiceExt;

    use super::*;
    use crate::test_env::World;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        #[expect(dead_code, reason = "only its parsing is under test")]
        items: Vec<Item>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its parsing is under test")]
    struct Item {
        count: u8,
    }

    fn app() -> Router {
        let order = |ApiJson(_): ApiJson<Order>| async { StatusCode::NO_CONTENT };
        let list = |ApiQuery(page): ApiQuery<std::collections::BTreeMap<String, u8>>| async move {
            page.len().to_string()
        };
        let one = |ApiPath(id): ApiPath<u8>| async move { id.to_string() };
        with_fallbacks(
            Router::new()
                .route("/orders", post(order).get(list))
                .route("/orders/{id}", axum::routing::get(one)),
        )
    }

    fn send(
        method: &str,
        uri: &str,
        kind: &str,
        body: impl Into<Body>,
    ) -> (StatusCode, HeaderMap, Value) {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", kind)
            .body(body.into())
            .unwrap();
        World::new().run(async {
            let response = app().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let bytes = read_body(body).await.unwrap();
            let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            (parts.status, parts.headers, json)
        })
    }

    #[test]
    fn bad_bodies_are_refused_with_a_problem_that_names_the_place() {
        let json = "application/json; charset=utf-8";
        let cases = [
            (json, r#"{"items":[{"count":1}]}"#, 204, "", ""),
            ("application/vnd.x+json", r#"{"items":[]}"#, 204, "", ""),
            (json, r#"{"items":[{"count":1}"#, 400, "json_syntax", ""),
            (json, r#"{"items":[]} x"#, 400, "json_syntax", ""),
            (
                json,
                r#"{"items":[{"count":1,"cuont":2}]}"#,
                422,
                "unknown_field",
                "items[0].cuont",
            ),
            (
                json,
                r#"{"items":[{"count":1},{"count":"2"}]}"#,
                422,
                "invalid_field",
                "items[1].count",
            ),
            (
                json,
                r#"{"items":[{"count":300}]}"#,
                422,
                "invalid_field",
                "items[0].count",
            ),
            (json, r#"{}"#, 422, "missing_field", "."),
            (
                "text/plain",
                r#"{"items":[]}"#,
                415,
                "unsupported_media_type",
                "",
            ),
            ("", r#"{"items":[]}"#, 415, "unsupported_media_type", ""),
        ];
        for (kind, body, status, code, path) in cases {
            let (got, headers, problem) = send("POST", "/orders", kind, body);
            assert_eq!(got.as_u16(), status, "{body}");
            if status == 204 {
                continue;
            }
            assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
            assert_eq!(problem["code"], code, "{body}: {problem}");
            assert_eq!(problem["status"], status);
            assert_eq!(problem["type"], format!("urn:ron:problem:{code}"));
            assert_eq!(problem["retryable"], false);
            if !path.is_empty() {
                assert_eq!(problem["path"], path, "{body}");
            }
        }
    }

    #[test]
    fn unknown_paths_wrong_methods_and_bad_parameters_are_problems() {
        let cases = [
            ("GET", "/nowhere", 404, "not_found"),
            ("DELETE", "/orders", 405, "method_not_allowed"),
            ("GET", "/orders?page=x", 400, "invalid_query"),
            ("GET", "/orders/300", 400, "invalid_path"),
        ];
        for (method, uri, status, code) in cases {
            let (got, _, problem) = send(method, uri, "", "");
            assert_eq!(
                (got.as_u16(), &problem["code"]),
                (status, &json!(code)),
                "{uri}"
            );
        }
    }

    #[test]
    fn body_faults_keep_their_meaning_through_any_reader() {
        let cases = [
            (BodyFault::TooLarge { cap: 9 }, 413, false),
            (BodyFault::Timeout { limit_ms: 5 }, 408, true),
            (BodyFault::Corrupt, 400, false),
            (BodyFault::Framing, 400, false),
            (BodyFault::Ratio { ratio: 10 }, 413, false),
            (BodyFault::Expanded { cap: 9 }, 413, false),
        ];
        for (fault, status, retryable) in cases {
            let body = Body::from_stream(futures_util::stream::iter([Err::<Bytes, _>(fault)]));
            let (got, _, problem) = send("POST", "/orders", "application/json", body);
            assert_eq!(got.as_u16(), status);
            assert_eq!(problem["code"], fault.code());
            assert_eq!(problem["retryable"], retryable);
        }
    }

    #[test]
    fn nobody_buffers_a_body_beyond_the_hard_cap() {
        for (len, status) in [(MAX_BUFFERED_BODY, 400), (MAX_BUFFERED_BODY + 1, 413)] {
            let (got, ..) = send("POST", "/orders", "application/json", vec![b'x'; len]);
            assert_eq!(got.as_u16(), status);
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
