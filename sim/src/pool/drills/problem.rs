//! Problems: what a client reads of each, field by field, and which statuses invite it to try again.

use std::{collections::BTreeMap, time::Duration};

use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use ron_core::{
    auth::AuthError,
    problem::{BodyFault, Problem},
};
use serde_json::{Value, json};

use super::{Bench, Verdict, agree};

/// Those that another try can help with.
const RETRYABLE: [u16; 6] = [408, 425, 429, 502, 503, 504];
const STATUSES: [u16; 16] = [
    400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 425, 429, 500, 502, 503, 504,
];

pub async fn drill(bench: &mut Bench) -> Verdict {
    for status in bench.shuffled(&STATUSES) {
        let status = StatusCode::from_u16(status).map_err(|e| e.to_string())?;
        let mut problem = Problem::new(status, "drilled").detail("on purpose");
        let mut expected = Told::new(status, "drilled");
        expected.detail = Some("on purpose".to_owned());
        if bench.one_in(3) {
            problem = problem.retrying(None);
            expected.retry_after = None;
        } else if bench.one_in(2) {
            let after = bench.ms(0, 3000);
            problem = problem.retry_after(after);
            // Whole seconds, never too early, never at once.
            let seconds = (after.as_nanos() as f64 / 1e9).ceil().max(1.0);
            expected.retry_after = Some(format!("{seconds}"));
        }
        if bench.one_in(2) {
            // A member of our own cannot take the place of a standard one.
            problem = problem.with("kid", "k").with("status", 1);
            expected.extra.insert("kid", json!("k"));
        }
        let corr_id = format!("c{}", bench.pick(0, 999));
        expected
            .check(problem.into_response_with(&corr_id), &corr_id)
            .await?;
    }
    faults().await
}

/// How the faults of a body and of credentials are answered.
async fn faults() -> Verdict {
    let bodies = [
        (BodyFault::TooLarge { cap: 9 }, 413, "body_too_large"),
        (BodyFault::Timeout { limit_ms: 9 }, 408, "body_timeout"),
        (BodyFault::Corrupt, 400, "body_corrupt"),
        (BodyFault::Ratio { ratio: 9 }, 413, "decompress_ratio"),
        (BodyFault::Expanded { cap: 9 }, 413, "decompress_too_large"),
        (BodyFault::Lost, 400, "body_lost"),
    ];
    for (fault, status, code) in bodies {
        let told = (fault.problem().status().as_u16(), fault.problem().code());
        agree("fault of a body", told, (status, code))?;
    }
    let callers = [
        (AuthError::MissingCredentials, 401, "missing_credentials"),
        (AuthError::Expired, 401, "expired"),
        (AuthError::MissingScope, 403, "missing_scope"),
        (AuthError::UntrustedPeer, 403, "untrusted_peer"),
        (AuthError::NoKeys, 503, "no_keys"),
    ];
    for (error, status, code) in callers {
        let status = StatusCode::from_u16(status).map_err(|e| e.to_string())?;
        let mut expected = Told::new(status, code);
        expected.challenge = (status == 401).then(|| "Bearer".to_owned());
        let answer = error.problem().into_response_with("c");
        expected.check(answer, "c").await?;
    }
    Ok(())
}

/// What a problem is to say.
pub struct Told {
    pub status: StatusCode,
    pub code: &'static str,
    pub retry_after: Option<String>,
    pub challenge: Option<String>,
    /// `None` if any will do.
    pub detail: Option<String>,
    pub extra: BTreeMap<&'static str, Value>,
}

impl Told {
    pub fn new(status: StatusCode, code: &'static str) -> Self {
        Told {
            status,
            code,
            retry_after: (RETRYABLE.contains(&status.as_u16())).then(|| "1".to_owned()),
            challenge: None,
            detail: None,
            extra: BTreeMap::new(),
        }
    }

    /// With an advice to come back after so long, in whole seconds.
    pub fn again_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after.as_secs().to_string());
        self
    }

    pub async fn check(self, answer: Response, corr_id: &str) -> Verdict {
        let Told { status, code, .. } = self;
        let told = |what: &str| format!("{what} of {} {code}", status.as_u16());
        let (parts, body) = answer.into_parts();
        agree(&told("status"), parts.status, status)?;
        let text = |name| text(&parts.headers, name);
        // It is worth another try exactly if it says when.
        let retryable = self.retry_after.is_some();
        let json = Some("application/problem+json".to_owned());
        agree(&told("content type"), text(header::CONTENT_TYPE), json)?;
        agree(
            &told("retry-after"),
            text(header::RETRY_AFTER),
            self.retry_after,
        )?;
        // Of 401 its scheme; what else it says of a token is for whoever wrote the token.
        let challenge =
            text(header::WWW_AUTHENTICATE).filter(|_| status == StatusCode::UNAUTHORIZED);
        let challenge = challenge.map(|told| told.split(' ').take(1).collect());
        agree(&told("challenge"), challenge, self.challenge)?;
        let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
        let body: Value = serde_json::from_slice(&body).map_err(|e| e.to_string())?;
        let mut fields = vec![
            ("type", json!(format!("urn:ron:problem:{code}"))),
            ("title", json!(status.canonical_reason())),
            ("status", json!(status.as_u16())),
            ("code", json!(code)),
            ("retryable", json!(retryable)),
            ("corr_id", json!(corr_id)),
        ];
        fields.extend(self.detail.map(|detail| ("detail", json!(detail))));
        fields.extend(self.extra);
        for (field, expected) in fields {
            agree(&told(field), body.get(field), Some(&expected))?;
        }
        Ok(())
    }
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}
