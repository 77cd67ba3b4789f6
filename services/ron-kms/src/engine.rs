//! The engine: the one handle through which the API reaches keys, queue and audit log.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    ask::{Ask, Caller, KeyRef, Reply, VerifyAsk, VerifyReply},
    audit::tiles::Tile,
    error::KmsError,
    index::KeyIndex,
};

/// A handle; clones share one engine.
#[derive(Clone)]
pub struct Kms(pub Arc<()>);

/// A signed statement about a key: what holds it, and whether it can be taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attestation {
    /// Canonical JSON; these bytes are signed.
    pub statement: String,
    pub signature: Vec<u8>,
    /// The Ed25519 public key that verifies it.
    pub public: Vec<u8>,
}

impl Kms {
    /// Through the tenant's quota and the sign queue; ends by the request's deadline at the latest.
    #[allow(clippy::unused_async)]
    pub async fn ask(&self, _caller: Caller, _ask: Ask) -> Result<Reply, KmsError> {
        Err(KmsError::Draining)
    }

    /// The keys as they are now.
    pub fn index(&self) -> Arc<KeyIndex> {
        Arc::default()
    }

    #[allow(clippy::unused_async)]
    pub async fn verify(&self, _caller: &Caller, _ask: VerifyAsk) -> Result<VerifyReply, KmsError> {
        Err(KmsError::Draining)
    }

    #[allow(clippy::unused_async)]
    pub async fn attest(
        &self,
        _caller: &Caller,
        _key: KeyRef,
        _nonce: Vec<u8>,
    ) -> Result<Attestation, KmsError> {
        Err(KmsError::Draining)
    }

    /// The newest signed checkpoint.
    pub fn checkpoint(&self) -> Result<Bytes, KmsError> {
        Err(KmsError::NoSuchRecord)
    }

    /// Only what a published checkpoint covers.
    #[allow(clippy::unused_async)]
    pub async fn tile(&self, _tile: Tile) -> Result<Bytes, KmsError> {
        Err(KmsError::NoSuchRecord)
    }

    /// The offline receipt of one record, as text.
    #[allow(clippy::unused_async)]
    pub async fn proof(&self, _index: u64) -> Result<String, KmsError> {
        Err(KmsError::NoSuchRecord)
    }
}
