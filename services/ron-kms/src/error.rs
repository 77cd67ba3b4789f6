//! What can go wrong with a request: each case with its status, code, and whether to try again.
//!
//! One table, so that the documentation, the metrics and the answers tell the same.

use std::time::Duration;

use axum::http::StatusCode;
use ron_core::{
    api::{ApiError, COME_BACK_AFTER, comes_back},
    problem::Problem,
};

use crate::{
    audit::log,
    backend::BackendError,
    keys::{Algorithm, key, nonce::NonceError, sealing::SealingError, signing::SigningError},
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KmsError {
    #[error("the sign queue is full")]
    Busy,
    #[error("the tenant has as many operations in flight as it may")]
    TenantBusy,
    #[error("the service is stopping")]
    Draining,
    #[error("{0} did not end in time")]
    Timeout(&'static str),
    #[error("whoever worked on the request is gone: its outcome is in the audit log")]
    WorkerLost,
    #[error("no such key")]
    NoSuchKey,
    #[error("the caller's tenant is another")]
    ForeignTenant,
    #[error("{0} is not offered by the {1} backend")]
    Unsupported(Algorithm, &'static str),
    #[error(transparent)]
    Refused(#[from] key::Refusal),
    #[error("the head is {head}, not {expected}")]
    HeadMoved { expected: u32, head: u32 },
    #[error("a key is rotated by its policy after {least} ms at the earliest")]
    RotateTooSoon { least: u64 },
    #[error("there are {max} keys: no more are kept")]
    TooManyKeys { max: usize },
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error(transparent)]
    Sealing(#[from] SealingError),
    #[error(transparent)]
    Nonce(#[from] NonceError),
    #[error("{0}")]
    BackendUnavailable(String),
    #[error("{0}")]
    BackendDamaged(String),
    #[error("the key store cannot be written: {0}")]
    Store(String),
    #[error(transparent)]
    Audit(#[from] log::Refusal),
    #[error("the audit record could not be made durable: {0}")]
    NotRecorded(log::Trouble),
    #[error("the op_id was used for another request")]
    OpIdConflict,
    #[error("an operation with this op_id is under way")]
    OpIdInFlight,
    #[error("with an op_id at most {max} messages are signed at once by this algorithm")]
    BatchTooLarge { max: usize },
    #[error("the key index is {age_ms} ms old and cannot be refreshed")]
    VerifyCacheExpired { age_ms: u64 },
    #[error("record {index} is not under a checkpoint yet")]
    NotCovered { index: u64 },
    #[error("no such record, tile or checkpoint")]
    NoSuchRecord,
    #[error("{0}")]
    Invalid(String),
}

impl ApiError for KmsError {
    fn status(&self) -> StatusCode {
        match self {
            KmsError::Busy | KmsError::TenantBusy => StatusCode::TOO_MANY_REQUESTS,
            KmsError::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
            KmsError::NoSuchKey | KmsError::NoSuchRecord => StatusCode::NOT_FOUND,
            KmsError::ForeignTenant => StatusCode::FORBIDDEN,
            KmsError::Unsupported(..) | KmsError::RotateTooSoon { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            KmsError::Refused(refusal) => refusal_status(refusal),
            KmsError::HeadMoved { .. }
            | KmsError::TooManyKeys { .. }
            | KmsError::OpIdConflict
            | KmsError::OpIdInFlight
            | KmsError::NotCovered { .. } => StatusCode::CONFLICT,
            KmsError::Signing(error) => signing_status(error),
            KmsError::Sealing(error) => sealing_status(error),
            KmsError::Nonce(NonceError::Exhausted) => StatusCode::CONFLICT,
            KmsError::BatchTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            KmsError::Invalid(_) => StatusCode::BAD_REQUEST,
            KmsError::BackendDamaged(_) => StatusCode::INTERNAL_SERVER_ERROR,
            KmsError::Draining
            | KmsError::WorkerLost
            | KmsError::Nonce(_)
            | KmsError::BackendUnavailable(_)
            | KmsError::Store(_)
            | KmsError::Audit(_)
            | KmsError::NotRecorded(_)
            | KmsError::VerifyCacheExpired { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The audit log records it too.
    fn code(&self) -> &'static str {
        match self {
            KmsError::Busy => "busy",
            KmsError::TenantBusy => "tenant_busy",
            KmsError::Draining => "draining",
            KmsError::Timeout(_) => "timeout",
            KmsError::WorkerLost => "worker_lost",
            KmsError::NoSuchKey => "key_not_found",
            KmsError::ForeignTenant => "tenant_forbidden",
            KmsError::Unsupported(..) => "alg_unsupported",
            KmsError::Refused(refusal) => refusal_code(refusal),
            KmsError::HeadMoved { .. } => "head_moved",
            KmsError::RotateTooSoon { .. } => "rotate_after_too_short",
            KmsError::TooManyKeys { .. } => "too_many_keys",
            KmsError::Signing(error) => signing_code(error),
            KmsError::Sealing(error) => sealing_code(error),
            KmsError::Nonce(NonceError::Exhausted) => "nonces_exhausted",
            KmsError::Nonce(NonceError::BehindLog { .. }) => "store_behind_log",
            KmsError::Nonce(_) => "nonce_unavailable",
            KmsError::BackendUnavailable(_) => "backend_unavailable",
            KmsError::BackendDamaged(_) => "secret_damaged",
            KmsError::Store(_) => "store_unavailable",
            KmsError::Audit(log::Refusal::Integrity) => "audit_integrity",
            KmsError::Audit(log::Refusal::Closing) => "draining",
            KmsError::Audit(log::Refusal::NotReserved | log::Refusal::Untold)
            | KmsError::NotRecorded(_) => "audit_unavailable",
            KmsError::OpIdConflict => "op_id_conflict",
            KmsError::OpIdInFlight => "op_id_in_flight",
            KmsError::BatchTooLarge { .. } => "batch_too_large",
            KmsError::VerifyCacheExpired { .. } => "verify_cache_expired",
            KmsError::NotCovered { .. } => "not_covered",
            KmsError::NoSuchRecord => "record_not_found",
            KmsError::Invalid(_) => "invalid_request",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            KmsError::OpIdInFlight | KmsError::NotCovered { .. } => Some(COME_BACK_AFTER),
            KmsError::Nonce(NonceError::BehindLog { .. })
            | KmsError::Audit(log::Refusal::Integrity) => None,
            _ => comes_back(self.status()),
        }
    }

    fn tell(&self, problem: Problem) -> Problem {
        match self {
            KmsError::VerifyCacheExpired { age_ms } => problem.with("cache_age_ms", *age_ms),
            _ => problem,
        }
    }
}

impl KmsError {
    /// What a backend said, in the words of the service.
    pub fn from_backend(error: BackendError, backend: &'static str) -> KmsError {
        match error {
            BackendError::Unsupported(algorithm) => KmsError::Unsupported(algorithm, backend),
            BackendError::Signing(error) => KmsError::Signing(error),
            BackendError::Sealing(error) => KmsError::Sealing(error),
            BackendError::Unavailable(_) => KmsError::BackendUnavailable(error.to_string()),
            BackendError::Damaged(_) => KmsError::BackendDamaged(error.to_string()),
        }
    }
}

fn refusal_status(refusal: &key::Refusal) -> StatusCode {
    match refusal {
        key::Refusal::NoSuchVersion(_) => StatusCode::NOT_FOUND,
        key::Refusal::MinimumOutOfRange { .. }
        | key::Refusal::WaitOutOfRange
        | key::Refusal::RotateAfterZero => StatusCode::BAD_REQUEST,
        key::Refusal::Disabled(_)
        | key::Refusal::Scheduled { .. }
        | key::Refusal::Destroyed(_)
        | key::Refusal::BelowMinimum { .. }
        | key::Refusal::WrongUse(_)
        | key::Refusal::NotScheduled(_)
        | key::Refusal::TooManyVersions => StatusCode::CONFLICT,
    }
}

fn refusal_code(refusal: &key::Refusal) -> &'static str {
    match refusal {
        key::Refusal::NoSuchVersion(_) => "version_not_found",
        key::Refusal::Disabled(_) => "version_disabled",
        key::Refusal::Scheduled { .. } => "destroy_scheduled",
        key::Refusal::Destroyed(_) => "version_destroyed",
        key::Refusal::BelowMinimum { .. } => "below_min_version",
        key::Refusal::WrongUse(_) => "wrong_use",
        key::Refusal::MinimumOutOfRange { .. } => "min_version_out_of_range",
        key::Refusal::WaitOutOfRange => "wait_out_of_range",
        key::Refusal::NotScheduled(_) => "not_scheduled",
        key::Refusal::TooManyVersions => "too_many_versions",
        key::Refusal::RotateAfterZero => "rotate_after_zero",
    }
}

fn signing_status(error: &SigningError) -> StatusCode {
    match error {
        SigningError::Failed(_)
        | SigningError::BadPublicKey(_)
        | SigningError::NotFromRandom(_) => StatusCode::INTERNAL_SERVER_ERROR,
        SigningError::NotForSigning(_) => StatusCode::CONFLICT,
        SigningError::BadSecret(_) | SigningError::NoPkcs8(_) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn signing_code(error: &SigningError) -> &'static str {
    match error {
        SigningError::NotForSigning(_) => "wrong_use",
        SigningError::BadSecret(_) | SigningError::NoPkcs8(_) => "secret_invalid",
        SigningError::PrehashRefused(_) | SigningError::WrongPrehash { .. } => "prehash_invalid",
        SigningError::WrongParts(_) | SigningError::BadSignature(_) => "signature_invalid",
        SigningError::BadPublicKey(_)
        | SigningError::NotFromRandom(_)
        | SigningError::Failed(_) => "signing_failed",
    }
}

fn sealing_status(error: &SealingError) -> StatusCode {
    match error {
        SealingError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        SealingError::NotForWrapping(_) => StatusCode::CONFLICT,
        SealingError::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

fn sealing_code(error: &SealingError) -> &'static str {
    match error {
        SealingError::NotForWrapping(_) => "wrong_use",
        SealingError::TooLong => "too_long",
        SealingError::Failed(_) => "wrapping_failed",
        SealingError::BadSecret(_) => "secret_invalid",
        SealingError::NotOffered(_) => "alg_unsupported",
        _ => "blob_invalid",
    }
}

/// One of each, for tests and the document.
pub fn examples() -> Vec<KmsError> {
    let ed = Algorithm::Ed25519;
    let mut all = vec![
        KmsError::Busy,
        KmsError::TenantBusy,
        KmsError::Draining,
        KmsError::Timeout("sign"),
        KmsError::WorkerLost,
        KmsError::NoSuchKey,
        KmsError::ForeignTenant,
        KmsError::Unsupported(ed, "software"),
        KmsError::HeadMoved {
            expected: 1,
            head: 2,
        },
        KmsError::TooManyKeys { max: 1 },
        KmsError::RotateTooSoon { least: 1 },
        KmsError::Nonce(NonceError::Exhausted),
        KmsError::Nonce(NonceError::BehindLog {
            stored: 1,
            logged: 2,
        }),
        KmsError::Nonce(NonceError::NeedsReserve),
        KmsError::BackendUnavailable(String::new()),
        KmsError::BackendDamaged(String::new()),
        KmsError::Store(String::new()),
        KmsError::Audit(log::Refusal::Integrity),
        KmsError::Audit(log::Refusal::Closing),
        KmsError::Audit(log::Refusal::NotReserved),
        KmsError::OpIdConflict,
        KmsError::OpIdInFlight,
        KmsError::BatchTooLarge { max: 1 },
        KmsError::VerifyCacheExpired { age_ms: 1 },
        KmsError::NotCovered { index: 1 },
        KmsError::NoSuchRecord,
        KmsError::Invalid(String::new()),
    ];
    let refusals = [
        key::Refusal::NoSuchVersion(1),
        key::Refusal::Disabled(1),
        key::Refusal::Scheduled {
            version: 1,
            at_ms: 1,
        },
        key::Refusal::Destroyed(1),
        key::Refusal::BelowMinimum {
            version: 1,
            minimum: 2,
        },
        key::Refusal::WrongUse(ed.key_use()),
        key::Refusal::MinimumOutOfRange {
            asked: 1,
            from: 1,
            head: 1,
        },
        key::Refusal::WaitOutOfRange,
        key::Refusal::NotScheduled(1),
        key::Refusal::TooManyVersions,
        key::Refusal::RotateAfterZero,
    ];
    all.extend(refusals.map(KmsError::Refused));
    let signing = [
        SigningError::NotForSigning(ed),
        SigningError::BadSecret(ed),
        SigningError::PrehashRefused(ed),
        SigningError::BadSignature(ed),
        SigningError::Failed(ed),
    ];
    all.extend(signing.map(KmsError::Signing));
    let sealing = [
        SealingError::NotForWrapping(ed),
        SealingError::NotOffered(ed),
        SealingError::TooLong,
        SealingError::BadSecret(ed),
        SealingError::NotABlob,
        SealingError::DoesNotOpen,
        SealingError::Failed(ed),
    ];
    all.extend(sealing.map(KmsError::Sealing));
    all
}
