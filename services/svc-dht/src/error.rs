//! What can go wrong with a request: each case with its status, code, and whether to try again.
//!
//! One table, so that the documentation, the metrics and the answers tell the same.

use std::time::Duration;

use axum::http::StatusCode;
use ron_core::{
    api::{ApiError, comes_back, events::Lagging},
    problem::Problem,
};

use crate::wire::message::{Refusal, RefusalCode};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DhtError {
    /// A queue or a limit is exhausted.
    #[error("{0} is full")]
    Busy(&'static str),
    /// A lookup, a request to a peer or a send to a bucket ran out of time.
    #[error("{0} did not end in time")]
    Timeout(&'static str),
    /// The stop came while it waited.
    #[error("the node stopped before the request was done")]
    Canceled,
    /// A subscriber of events fell behind.
    #[error("{lost} events were lost: read faster")]
    Lagging { lost: u64 },
    /// Still looking for the network, or leaving it.
    #[error("the node is not ready: {0}")]
    NotReady(&'static str),
    #[error("nobody who was asked holds it")]
    NotFound,
    /// A lookup that ended before it was done.
    #[error("the lookup was cut short: {0}")]
    CutShort(&'static str),
    #[error("the record's signature is not its publisher's")]
    BadSignature,
    #[error("the record's time is over, or not yet come")]
    Expired,
    #[error("a newer record is held")]
    Stale,
    #[error("the record is larger than is kept")]
    TooLarge,
    #[error("there is no room for more records of this kind")]
    Quota,
    #[error("{stored} of the {wanted} nodes that are needed hold it")]
    NotStored { stored: usize, wanted: usize },
    #[error("storage: {0}")]
    Storage(String),
    #[error("{0}")]
    Invalid(String),
}

impl ApiError for DhtError {
    fn status(&self) -> StatusCode {
        match self {
            DhtError::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            DhtError::Timeout(_) | DhtError::CutShort(_) => StatusCode::GATEWAY_TIMEOUT,
            DhtError::Canceled
            | DhtError::Lagging { .. }
            | DhtError::NotReady(_)
            | DhtError::NotStored { .. }
            | DhtError::Storage(_) => StatusCode::SERVICE_UNAVAILABLE,
            DhtError::NotFound => StatusCode::NOT_FOUND,
            DhtError::BadSignature | DhtError::Expired => StatusCode::UNPROCESSABLE_ENTITY,
            DhtError::Stale => StatusCode::CONFLICT,
            DhtError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            DhtError::Quota => StatusCode::INSUFFICIENT_STORAGE,
            DhtError::Invalid(_) => StatusCode::BAD_REQUEST,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            DhtError::Busy(_) => "busy",
            DhtError::Timeout(_) => "timeout",
            DhtError::Canceled => "canceled",
            DhtError::Lagging { .. } => "lagging",
            DhtError::NotReady(_) => "not_ready",
            DhtError::NotFound => "key_not_found",
            DhtError::CutShort(_) => "cut_short",
            DhtError::BadSignature => "bad_signature",
            DhtError::Expired => "expired",
            DhtError::Stale => "stale",
            DhtError::TooLarge => "too_large",
            DhtError::Quota => "quota",
            DhtError::NotStored { .. } => "not_stored",
            DhtError::Storage(_) => "storage",
            DhtError::Invalid(_) => "invalid_request",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            // Of this node and this listener nothing more is to be had.
            DhtError::Canceled | DhtError::Lagging { .. } => None,
            _ => comes_back(self.status()),
        }
    }

    fn tell(&self, problem: Problem) -> Problem {
        match self {
            DhtError::NotReady(phase) => problem.with("phase", *phase),
            DhtError::NotStored { stored, wanted } => {
                problem.with("replicas", *stored).with("wanted", *wanted)
            }
            _ => problem,
        }
    }
}

impl From<Lagging> for DhtError {
    fn from(Lagging { lost }: Lagging) -> DhtError {
        DhtError::Lagging { lost }
    }
}

impl DhtError {
    /// What a peer is told instead of an answer.
    pub fn refusal(&self) -> Refusal {
        let code = match self {
            DhtError::Busy(_) => RefusalCode::Busy,
            DhtError::BadSignature => RefusalCode::BadSignature,
            DhtError::Expired => RefusalCode::Expired,
            DhtError::Stale => RefusalCode::Stale,
            DhtError::TooLarge => RefusalCode::TooLarge,
            DhtError::Quota => RefusalCode::Quota,
            DhtError::Invalid(_) | DhtError::NotFound => RefusalCode::BadRequest,
            DhtError::Timeout(_)
            | DhtError::CutShort(_)
            | DhtError::Canceled
            | DhtError::Lagging { .. }
            | DhtError::NotReady(_)
            | DhtError::NotStored { .. }
            | DhtError::Storage(_) => RefusalCode::NotReady,
        };
        let after = self.retry_after().map_or(0, |d| d.as_millis() as u32);
        Refusal {
            code,
            retry_after_ms: after,
        }
    }
}

/// One of each, for tests and documents that go through them all.
pub fn examples() -> Vec<DhtError> {
    vec![
        DhtError::Busy("work"),
        DhtError::Timeout("lookup"),
        DhtError::Canceled,
        DhtError::Lagging { lost: 1 },
        DhtError::NotReady("bootstrap"),
        DhtError::NotFound,
        DhtError::CutShort("the hop budget was spent"),
        DhtError::BadSignature,
        DhtError::Expired,
        DhtError::Stale,
        DhtError::TooLarge,
        DhtError::Quota,
        DhtError::NotStored {
            stored: 1,
            wanted: 3,
        },
        DhtError::Storage("no space".into()),
        DhtError::Invalid("why".into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: DHT-8.1, DHT-8.2, DHT-8.3, DHT-8.4, DHT-8.5
    #[test]
    fn whether_to_try_again_is_what_the_source_says() {
        for (error, code, again) in [
            (DhtError::Busy("work"), "busy", true),
            (DhtError::Timeout("lookup"), "timeout", true),
            (DhtError::Canceled, "canceled", false),
            (DhtError::Lagging { lost: 1 }, "lagging", false),
            (DhtError::NotReady("draining"), "not_ready", true),
        ] {
            assert_eq!(error.code(), code);
            assert_eq!(error.retry_after().is_some(), again, "{error:?}");
            assert_eq!(error.refusal().retry_after_ms > 0, again, "{error:?}");
        }
    }

    #[test]
    fn every_error_has_a_code_of_its_own() {
        let codes: std::collections::BTreeSet<_> = examples().iter().map(DhtError::code).collect();
        assert_eq!(codes.len(), examples().len());
    }
}
