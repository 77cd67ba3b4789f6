//! Wrapping: secrets sealed under a key version, in a versioned blob that names what it belongs to.
//!
//! A blob is `format | algorithm | nonce | ciphertext and tag`; everything before the ciphertext, the
//! `kid#vN` and the caller's context are authenticated, so a blob opens only under the version, the
//! algorithm and the context that sealed it. A newer format is refused with what to do.

use std::fmt;

use aws_lc_rs::{
    aead::{self, Aad, LessSafeKey, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use zeroize::Zeroizing;

use super::{
    Algorithm, Fill, Secret, VersionedKid,
    nonce::{NONCE_LEN, Nonce},
};

/// The format written; every one up to it is read.
pub const BLOB_FORMAT: u8 = 1;
pub const TAG_LEN: usize = 16;
/// What may be wrapped at once: keys and small secrets, not files.
pub const MAX_PLAIN: usize = 64 * 1024;
pub const MAX_CONTEXT: usize = 4 * 1024;
pub const DATA_KEY_LEN: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealingError {
    #[error("{0} does not wrap: a key for wrapping is needed")]
    NotForWrapping(Algorithm),
    #[error(
        "{0} wraps without a counted nonce: keys for that are aes-256-gcm and chacha20-poly1305"
    )]
    NotOffered(Algorithm),
    #[error("these bytes are no secret key of {0}")]
    BadSecret(Algorithm),
    #[error("at most {MAX_PLAIN} bytes can be wrapped, with at most {MAX_CONTEXT} of context")]
    TooLong,
    #[error("the blob is truncated: at least {least} bytes are needed, {got} are there")]
    Truncated { least: usize, got: usize },
    #[error("the blob has format {0}, this program reads up to {BLOB_FORMAT}: use a newer one")]
    NewerFormat(u8),
    #[error("not a wrapped blob: it begins with no known format")]
    NotABlob,
    #[error("the blob was sealed with another algorithm than {0}")]
    OtherAlgorithm(Algorithm),
    #[error("the blob does not open: another key version or context sealed it, or it was changed")]
    DoesNotOpen,
    #[error("wrapping with {0} failed")]
    Failed(Algorithm),
}

/// A key version ready to wrap. It shows its name, never its secret.
pub struct SealingKey {
    id: VersionedKid,
    algorithm: Algorithm,
    aead: LessSafeKey,
}

/// A fresh data key: the plain one for the caller, the wrapped one to keep.
pub struct DataKey {
    pub plain: Secret,
    pub wrapped: Vec<u8>,
}

/// The secret of a version that was made elsewhere. Nonces are counted by version, so two versions must never
/// have the same key, nor one that somebody uses outside: what is used here is derived for this version alone.
pub fn imported_secret(
    id: &VersionedKid,
    algorithm: Algorithm,
    plain: &Secret,
) -> Result<Secret, SealingError> {
    if algorithm == Algorithm::XWing {
        // It counts no nonces: each blob has a key of its own.
        return Ok(Secret::copy_of(plain.expose()));
    }
    let bad = || SealingError::BadSecret(algorithm);
    if plain.len() != aead_of(algorithm)?.key_len() {
        return Err(bad());
    }
    let version = id.to_string();
    let info = [version.as_bytes()];
    let derived = Salt::new(HKDF_SHA256, b"ron-kms imported key v1").extract(plain.expose());
    let derived = derived.expand(&info, HKDF_SHA256).map_err(|_| bad())?;
    let mut secret = Zeroizing::new([0; 32]);
    derived.fill(&mut secret[..]).map_err(|_| bad())?;
    Ok(Secret::copy_of(&secret[..]))
}

impl SealingKey {
    pub fn generate(algorithm: Algorithm, fill: Fill<'_>) -> Result<Secret, SealingError> {
        aead_of(algorithm)?;
        Ok(Secret::random(KEY_LEN, fill))
    }

    pub fn from_secret(
        id: VersionedKid,
        algorithm: Algorithm,
        secret: &Secret,
    ) -> Result<SealingKey, SealingError> {
        let key = UnboundKey::new(aead_of(algorithm)?, secret.expose());
        let key = key.map_err(|_| SealingError::BadSecret(algorithm))?;
        Ok(SealingKey {
            id,
            algorithm,
            aead: LessSafeKey::new(key),
        })
    }

    pub fn id(&self) -> &VersionedKid {
        &self.id
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The nonce comes from this version's tracker and is spent whatever happens.
    pub fn wrap(
        &self,
        nonce: Nonce,
        plain: &[u8],
        context: &[u8],
    ) -> Result<Vec<u8>, SealingError> {
        if plain.len() > MAX_PLAIN || context.len() > MAX_CONTEXT {
            return Err(SealingError::TooLong);
        }
        let mut blob = header(self.algorithm, &nonce.to_bytes());
        let aad = bound_data(&self.id, &blob, context);
        let sealed = self.seal(nonce.to_bytes(), &aad, plain)?;
        blob.extend_from_slice(&sealed);
        Ok(blob)
    }

    pub fn unwrap(&self, blob: &[u8], context: &[u8]) -> Result<Secret, SealingError> {
        if context.len() > MAX_CONTEXT || blob.len() > HEADER_LEN + MAX_PLAIN + TAG_LEN {
            return Err(SealingError::TooLong);
        }
        check_blob(self.algorithm, blob, HEADER_LEN + TAG_LEN)?;
        let (head, sealed) = blob.split_at(HEADER_LEN);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&head[HEADER_LEN - NONCE_LEN..]);
        self.open(nonce, &bound_data(&self.id, head, context), sealed)
    }

    /// A fresh random key, wrapped at once.
    pub fn data_key(
        &self,
        nonce: Nonce,
        context: &[u8],
        fill: Fill<'_>,
    ) -> Result<DataKey, SealingError> {
        let plain = Secret::random(DATA_KEY_LEN, fill);
        let wrapped = self.wrap(nonce, plain.expose(), context)?;
        Ok(DataKey { plain, wrapped })
    }

    /// In place and wiped, so that no second copy of the plain bytes is left behind.
    fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        plain: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealingError> {
        let mut sealed = Zeroizing::new(Vec::with_capacity(plain.len() + TAG_LEN));
        sealed.extend_from_slice(plain);
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        self.aead
            .seal_in_place_append_tag(nonce, Aad::from(aad), &mut *sealed)
            .map_err(|_| SealingError::Failed(self.algorithm))?;
        Ok(sealed)
    }

    fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        sealed: &[u8],
    ) -> Result<Secret, SealingError> {
        let mut plain = Zeroizing::new(sealed.to_vec());
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let opened = self.aead.open_in_place(nonce, Aad::from(aad), &mut plain);
        let len = opened.map_err(|_| SealingError::DoesNotOpen)?.len();
        Ok(Secret::copy_of(&plain[..len]))
    }
}

/// What a blob is bound to: header, name with its length, context; no two triples give the same bytes.
pub(crate) fn bound_data(id: &VersionedKid, head: &[u8], context: &[u8]) -> Vec<u8> {
    let id = id.to_string();
    let len = u32::try_from(id.len()).unwrap_or(u32::MAX).to_be_bytes();
    [head, &len, id.as_bytes(), context].concat()
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({} {})", self.id, self.algorithm)
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey({:?})", self.plain)
    }
}

const KEY_LEN: usize = 32;
pub(crate) const HEADER_LEN: usize = 2 + NONCE_LEN;

fn aead_of(algorithm: Algorithm) -> Result<&'static aead::Algorithm, SealingError> {
    match algorithm {
        Algorithm::Aes256Gcm => Ok(&aead::AES_256_GCM),
        Algorithm::ChaCha20Poly1305 => Ok(&aead::CHACHA20_POLY1305),
        Algorithm::XWing => Err(SealingError::NotOffered(algorithm)),
        _ => Err(SealingError::NotForWrapping(algorithm)),
    }
}

/// How a blob names its algorithm; numbers are never given twice.
pub(crate) const fn blob_number(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Aes256Gcm => 1,
        Algorithm::ChaCha20Poly1305 => 2,
        Algorithm::XWing => 3,
        _ => 0,
    }
}

pub(crate) fn header(algorithm: Algorithm, nonce: &[u8; NONCE_LEN]) -> Vec<u8> {
    [&[BLOB_FORMAT, blob_number(algorithm)], &nonce[..]].concat()
}

/// Format, then algorithm, then length: what is wrong first is said first.
pub(crate) fn check_blob(
    algorithm: Algorithm,
    blob: &[u8],
    least: usize,
) -> Result<(), SealingError> {
    let short = SealingError::Truncated {
        least,
        got: blob.len(),
    };
    match blob.first() {
        None => return Err(short),
        Some(0) => return Err(SealingError::NotABlob),
        Some(&BLOB_FORMAT) => {}
        Some(&newer) => return Err(SealingError::NewerFormat(newer)),
    }
    match blob.get(1) {
        Some(&number) if number != blob_number(algorithm) => {
            Err(SealingError::OtherAlgorithm(algorithm))
        }
        _ if blob.len() < least => Err(short),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
