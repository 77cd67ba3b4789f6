//! One id per request, from the caller if it sent a sound one, else drawn here.
//!
//! It is found in the request's extensions, the tracing span around its handling, the response header and
//! the body of every problem, so that a client's complaint leads to the log line.

use std::sync::Arc;

use axum::{extract::Request, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue};
use rand_core::Rng as _;
use tracing::Span;

use crate::{
    Env, Rng,
    lock::{LEAF, LockDecl, RankedMutex},
    problem::Problem,
};

pub const CORR_ID: HeaderName = HeaderName::from_static("x-corr-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The id of the request at hand; in its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrId(HeaderValue);

impl CorrId {
    pub fn as_str(&self) -> &str {
        // Only what is sound gets in, and that is visible ASCII.
        self.0.to_str().unwrap_or_default()
    }

    /// What the caller sent: `x-corr-id`, else the trace id of `traceparent`. Only sound values count,
    /// since the id ends up in logs and headers.
    pub fn from_headers(headers: &HeaderMap) -> Option<CorrId> {
        let text = |name: &HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
        let own = text(&CORR_ID).filter(|id| is_sound(id));
        let id = own.or_else(|| text(&TRACEPARENT).and_then(trace_id))?;
        HeaderValue::from_str(id).ok().map(CorrId)
    }

    fn draw(ids: &RankedMutex<Rng>) -> CorrId {
        let mut bytes = [0; 16];
        ids.lock().fill_bytes(&mut bytes);
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(bytes) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        CorrId(HeaderValue::from_bytes(&hex).unwrap_or(NO_ID))
    }
}

/// Where ids are drawn. They are no secrets: a generator of their own is cheaper than the system's for each
/// request.
#[derive(Clone)]
pub(crate) struct CorrIds(Arc<RankedMutex<Rng>>);

impl CorrIds {
    pub fn new(env: &Env) -> Self {
        CorrIds(Arc::new(RankedMutex::new(IDS, env.rng())))
    }

    /// What the caller sent, else a new one.
    pub fn of(&self, sent: Option<&HeaderMap>) -> CorrId {
        let sent = sent.and_then(CorrId::from_headers);
        sent.unwrap_or_else(|| CorrId::draw(&self.0))
    }

    /// The request's id, now in its extensions, and the span around its handling.
    pub fn begin(&self, request: &mut Request) -> (CorrId, Span) {
        let id = self.of(Some(request.headers()));
        let span = tracing::info_span!(
            "request", corr_id = id.as_str(), method = %request.method(), path = request.uri().path()
        );
        request.extensions_mut().insert(id.clone());
        (id, span)
    }
}

const IDS: LockDecl = LockDecl {
    name: "corr_ids",
    rank: LEAF,
    guards: "the generator of correlation ids",
};

/// Every answer names its request.
pub(crate) fn identify(mut response: Response, id: &CorrId) -> Response {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let (parts, _) = response.into_parts();
        response = problem.into_response_with(id.as_str());
        // Layers in between may have added headers of their own.
        for (name, value) in &parts.headers {
            if !response.headers().contains_key(name) && name != http::header::CONTENT_LENGTH {
                response.headers_mut().append(name, value.clone());
            }
        }
    }
    response.headers_mut().insert(CORR_ID, id.0.clone());
    response
}

/// Never seen: hex digits are a header value.
const NO_ID: HeaderValue = HeaderValue::from_static("none");
const HEX: &[u8; 16] = b"0123456789abcdef";

fn is_sound(id: &str) -> bool {
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&id.len()) && id.bytes().all(sound)
}

/// W3C trace context: `00-<32 hex>-<16 hex>-<2 hex>`, lower case, neither id all zero.
fn trace_id(text: &str) -> Option<&str> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let sound = version == "00"
        && hex(trace, 32)
        && !zero(trace)
        && hex(span, 16)
        && !zero(span)
        && hex(flags, 2)
        && parts.next().is_none();
    sound.then_some(trace)
}

#[cfg(test)]
mod tests {
    use axum::{Extension, Router, body::Body, routing::get};
    use http::StatusCode;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;
    use crate::{
        front::Door,
        problem::{read_body, with_fallbacks},
        test_env::World,
    };

    type Sent<'a> = &'a [(&'a str, &'a str)];

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn ask(uri: &str, headers: &[(&str, &str)]) -> (Response<()>, Vec<u8>) {
        let world = World::new();
        let echo = |Extension(id): Extension<CorrId>| async move { id.as_str().to_owned() };
        let fail = || async {
            let problem = Problem::new(StatusCode::CONFLICT, "conflict");
            problem
                .with("kid", "k")
                .retry_after(std::time::Duration::from_secs(3))
        };
        let routes = Router::new()
            .route("/echo", get(echo))
            .route("/fail", get(fail));
        let app = with_fallbacks(routes).layer(Door::new(&world.env()));
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        world.run(async {
            let response = app
                .oneshot(request.body(Body::empty()).unwrap())
                .await
                .unwrap();
            let (parts, body) = response.into_parts();
            let body = read_body(body).await.unwrap();
            (Response::from_parts(parts, ()), body.to_vec())
        })
    }

    #[test]
    fn a_sound_id_of_the_caller_is_kept_and_any_other_replaced() {
        let traced = format!("00-{TRACE}-b7ad6b7169203331-01");
        let long = "x".repeat(65);
        let zero = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let cases: &[(Sent<'_>, Option<&str>)] = &[
            (&[("x-corr-id", "a.B_9-c")], Some("a.B_9-c")),
            (&[("traceparent", &traced)], Some(TRACE)),
            (
                &[("x-corr-id", "mine"), ("traceparent", &traced)],
                Some("mine"),
            ),
            (
                &[("x-corr-id", "not sound"), ("traceparent", &traced)],
                Some(TRACE),
            ),
            (&[("x-corr-id", "")], None),
            (&[("x-corr-id", &long)], None),
            (&[("traceparent", &zero)], None),
            (&[("traceparent", &traced.to_uppercase())], None),
            (&[("traceparent", "00-0af7-b7ad6b7169203331-01")], None),
            (&[], None),
        ];
        for (headers, expected) in cases {
            let (response, body) = ask("/echo", headers);
            let echoed = String::from_utf8(body).unwrap();
            assert_eq!(response.headers()[CORR_ID], echoed, "{headers:?}");
            match expected {
                Some(id) => assert_eq!(echoed, *id, "{headers:?}"),
                None if echoed.bytes().all(|b| b == b'0') => panic!("{headers:?} was believed"),
                None => assert!(
                    echoed.len() == 32 && is_sound(&echoed),
                    "{headers:?}: {echoed}"
                ),
            }
        }
    }

    #[test]
    fn every_problem_carries_the_id_and_keeps_the_rest() {
        for (uri, status, code) in [("/fail", 409, "conflict"), ("/none", 404, "not_found")] {
            let (response, body) = ask(uri, &[("x-corr-id", "c-7")]);
            let problem: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(
                (&problem["corr_id"], &problem["code"]),
                (&"c-7".into(), &code.into())
            );
            assert_eq!(response.headers()[CORR_ID], "c-7");
        }
        let (response, body) = ask("/fail", &[]);
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (
                response.headers()["retry-after"].as_bytes(),
                &problem["kid"]
            ),
            (&b"3"[..], &"k".into())
        );
    }
}
