//! Who keeps the secret bytes: one trait, three keepers.
//!
//! A backend makes, imports and uses secrets by name; what it hands out is [`Material`], opaque to everybody
//! else and stored beside the key's metadata. Nothing here decides whether a version may be used (that is
//! [`Key`](crate::keys::Key)'s) and no call returns a secret it keeps. Every call may hang or fail: the
//! caller brings the deadline.

mod local;
pub mod memory;
#[cfg(feature = "pkcs11")]
pub mod pkcs11;
pub mod software;

use std::{any::Any, fmt, sync::OnceLock};

use ron_core::seam::BoxFuture;

use crate::keys::{
    Algorithm, Secret, VersionedKid,
    algorithm::Prehash,
    nonce::Nonce,
    sealing::SealingError,
    signing::{Input, Signature, SigningError},
};

#[cfg(feature = "pkcs11")]
pub use self::pkcs11::{Pkcs11Backend, Pkcs11Config, TokenName};
pub use self::{
    local::{RsaSource, rsa_fixtures},
    memory::MemoryBackend,
    software::SoftwareBackend,
};

pub trait Backend: Send + Sync + 'static {
    fn info(&self) -> &Info;

    /// A new secret for this version. Refused with [`BackendError::Unsupported`] outside of the list.
    fn generate<'a>(
        &'a self,
        id: &'a VersionedKid,
        algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Made, BackendError>>;

    /// Takes a secret that was made elsewhere, in the form that [`crate::keys`] stores.
    fn import<'a>(
        &'a self,
        id: &'a VersionedKid,
        algorithm: Algorithm,
        secret: Secret,
    ) -> BoxFuture<'a, Result<Made, BackendError>>;

    /// One list of standard signatures per input, in order; all or none.
    fn sign<'a>(
        &'a self,
        key: &'a Material,
        inputs: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Vec<Signature>>, BackendError>>;

    /// Whether [`Backend::sign`] would be a short computation that waits for nothing.
    fn signs_at_once(&self, key: &Material, inputs: &[Message]) -> bool {
        let _ = (key, inputs);
        false
    }

    /// `nonce` is there exactly if [`Algorithm::needs_nonce`] says so, and is spent whatever happens.
    fn wrap<'a>(
        &'a self,
        key: &'a Material,
        nonce: Option<Nonce>,
        plain: &'a Secret,
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, BackendError>>;

    fn unwrap<'a>(
        &'a self,
        key: &'a Material,
        blob: &'a [u8],
        context: &'a [u8],
    ) -> BoxFuture<'a, Result<Secret, BackendError>>;

    /// Forgets the secret for good. A secret that is gone already is no error.
    fn destroy<'a>(&'a self, key: &'a Material) -> BoxFuture<'a, Result<(), BackendError>>;

    /// Is it there? Reconnects what can be reconnected; called by the backend keeper.
    fn check(&self) -> BoxFuture<'_, Result<(), BackendError>>;
}

/// What a backend is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// `software`, `memory` or `pkcs11`.
    pub name: &'static str,
    pub algorithms: Vec<Algorithm>,
    /// Whether whoever holds the machine could take the secret bytes out.
    pub extractable: bool,
}

impl Info {
    pub fn supports(&self, algorithm: Algorithm) -> Result<(), BackendError> {
        match self.algorithms.contains(&algorithm) {
            true => Ok(()),
            false => Err(BackendError::Unsupported(algorithm)),
        }
    }
}

/// What a new version consists of.
#[derive(Debug)]
pub struct Made {
    /// To be stored, and given back at every use: a sealed secret, or a reference to where it lies.
    pub sealed: Vec<u8>,
    /// Raw; empty for a key without a public half.
    pub public: Vec<u8>,
}

/// One version's secret as its backend left it.
pub struct Material {
    pub id: VersionedKid,
    pub algorithm: Algorithm,
    pub sealed: Vec<u8>,
    /// What the backend made of it at the first use: it lives and dies with this value.
    pub opened: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Material {
    pub fn new(id: VersionedKid, algorithm: Algorithm, sealed: Vec<u8>) -> Material {
        Material {
            id,
            algorithm,
            sealed,
            opened: OnceLock::new(),
        }
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Material({} {})", self.id, self.algorithm)
    }
}

/// What is signed, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Whole(Vec<u8>),
    Prehashed { hash: Prehash, digest: Vec<u8> },
}

impl Message {
    pub fn input(&self) -> Input<'_> {
        match self {
            Message::Whole(bytes) => Input::Message(bytes),
            Message::Prehashed { hash, digest } => Input::Prehashed {
                hash: *hash,
                digest,
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    #[error("this backend does not offer {0}")]
    Unsupported(Algorithm),
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error(transparent)]
    Sealing(#[from] SealingError),
    /// It may come back: the caller should try again later.
    #[error("the key backend is not available: {0}")]
    Unavailable(String),
    /// What is stored for this version is not what this backend wrote.
    #[error("the stored secret of {0} does not open: wrong key-encryption key, or damaged")]
    Damaged(VersionedKid),
}
