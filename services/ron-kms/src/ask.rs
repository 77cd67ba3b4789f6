//! What callers ask of the service and what they get, free of HTTP: the words between the API and the engine.
//!
//! An [`Ask`] goes through the tenant's quota and the one sign queue to the signer pool; everything else is
//! answered inline from snapshots.

use crate::{
    backend::Message,
    keys::{Algorithm, Kid, Secret, VersionedKid, key::Policy, signing::Signature},
};

/// Who asks. Scopes are checked at the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub actor: String,
    /// The only tenant the caller may touch; any if absent (authentication is off).
    pub tenant: Option<String>,
}

/// A key, with the version if the caller names one; else the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRef {
    pub kid: Kid,
    pub version: Option<u32>,
}

#[derive(Debug)]
pub enum Ask {
    Create {
        tenant: String,
        purpose: String,
        algorithm: Algorithm,
        policy: Policy,
    },
    /// A secret made elsewhere becomes the new head: `blob` was wrapped by `under` of this service, with
    /// `context`; it holds PKCS#8 or, for a key that wraps, the raw bytes.
    Import {
        kid: Kid,
        under: VersionedKid,
        blob: Vec<u8>,
        context: Vec<u8>,
    },
    Rotate {
        kid: Kid,
        /// The head the caller knows: another one is a conflict, so that a retry does not rotate twice.
        from: Option<u32>,
    },
    SetPolicy {
        kid: Kid,
        policy: Policy,
    },
    Disable(VersionedKid),
    Enable(VersionedKid),
    /// One version, or all of them.
    ScheduleDestroy {
        key: KeyRef,
        wait_ms: u64,
    },
    CancelDestroy {
        key: KeyRef,
    },
    Sign {
        key: KeyRef,
        messages: Vec<Message>,
        op_id: Option<OpIdAsk>,
        /// The answer carries the newest attestation evidence.
        attest: bool,
    },
    Wrap {
        key: KeyRef,
        plain: Secret,
        context: Vec<u8>,
        op_id: Option<OpIdAsk>,
    },
    Unwrap {
        key: VersionedKid,
        blob: Vec<u8>,
        context: Vec<u8>,
    },
    DataKey {
        key: KeyRef,
        context: Vec<u8>,
        op_id: Option<OpIdAsk>,
    },
}

/// The caller's name for this operation, and the digest of the request it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpIdAsk {
    pub id: String,
    /// SHA-256 over the request body as it came.
    pub request: [u8; 32],
}

#[derive(Debug)]
pub enum Reply {
    /// The key changed; its metadata is in the index.
    Key {
        kid: Kid,
        version: u32,
        receipt: Receipt,
    },
    Signed {
        key: VersionedKid,
        algorithm: Algorithm,
        /// One list of standard signatures per message.
        signatures: Vec<Vec<Signature>>,
        /// The newest evidence, if asked for and there is one.
        attestation: Option<String>,
        receipt: Receipt,
    },
    Wrapped {
        key: VersionedKid,
        blob: Vec<u8>,
        receipt: Receipt,
    },
    Unwrapped {
        key: VersionedKid,
        plain: Secret,
        receipt: Receipt,
    },
    DataKey {
        key: VersionedKid,
        plain: Secret,
        blob: Vec<u8>,
        receipt: Receipt,
    },
}

/// Where the operation stands in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The number of the operation.
    pub seq: u64,
    /// The record's place, if it was durable before the answer left: then its proof can be fetched once a
    /// checkpoint covers it. In policy `shed` without an `op_id`, the answer does not wait for that.
    pub index: Option<u64>,
}

#[derive(Debug)]
pub struct VerifyAsk {
    pub key: KeyRef,
    pub message: Message,
    pub signatures: Vec<Signature>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyReply {
    pub valid: bool,
    /// The version that was used (the newest if none was named).
    pub version: u32,
    /// How old the key index is, while it cannot be refreshed.
    pub cache_age_ms: Option<u64>,
}
