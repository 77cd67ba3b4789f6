//! X-Wing: wrapping to a public key that holds as long as either X25519 or ML-KEM-768 does.
//!
//! The key encapsulation is draft-connolly-cfrg-xwing-kem; each blob has a key of its own, so no nonce is
//! counted. A blob is `format | algorithm | version of the KEM | encapsulation | ciphertext and tag`;
//! everything before the ciphertext, the `kid#vN` and the caller's context are authenticated.

use std::fmt;

use aws_lc_rs::aead::{self, AES_256_GCM, Aad, LessSafeKey, UnboundKey};
use ml_kem::{
    array::Array,
    kem::{Decapsulate, KeyExport},
    ml_kem_768,
};
use sha3::{Digest, Sha3_256};
use shake::{ExtendableOutput, Shake256, Update, XofReader};
use x25519_dalek::{PublicKey, SharedSecret, StaticSecret};
use zeroize::Zeroizing;

use super::{
    Algorithm, Fill, Secret, VersionedKid,
    nonce::NONCE_LEN,
    sealing::{BLOB_FORMAT, MAX_CONTEXT, MAX_PLAIN, SealingError, TAG_LEN, bound_data, check_blob},
};

/// The KEM as of the draft's version 6 and later; another one would get another number.
pub const KEM_VERSION: u8 = 1;
pub const SEED_LEN: usize = 32;
pub const PUBLIC_LEN: usize = ML_KEM_PUBLIC + X25519_LEN;
pub const ENCAPSULATION_LEN: usize = ML_KEM_CIPHERTEXT + X25519_LEN;

/// A key version ready to unwrap, and to wrap as anybody with its public half could.
pub struct XWingKey {
    id: VersionedKid,
    ml_kem: ml_kem_768::DecapsulationKey,
    x25519: StaticSecret,
    public: Recipient,
}

/// Who a blob is for.
pub struct Recipient {
    ml_kem: ml_kem_768::EncapsulationKey,
    x25519: PublicKey,
}

impl XWingKey {
    pub fn generate(fill: Fill<'_>) -> Secret {
        Secret::random(SEED_LEN, fill)
    }

    pub fn from_secret(id: VersionedKid, seed: &Secret) -> Result<XWingKey, SealingError> {
        if seed.len() != SEED_LEN {
            return Err(SealingError::BadSecret(Algorithm::XWing));
        }
        let mut expanded = Zeroizing::new([0; EXPANDED_LEN]);
        let mut shake = Shake256::default();
        shake.update(seed.expose());
        shake.finalize_xof().read(&mut *expanded);
        let (ml_kem_seed, scalar) = expanded.split_at(ML_KEM_SEED);
        let bad = |_| SealingError::BadSecret(Algorithm::XWing);
        let ml_kem_seed = Array::try_from(ml_kem_seed).map_err(bad)?;
        let ml_kem = ml_kem_768::DecapsulationKey::from_seed(ml_kem_seed);
        let x25519 = StaticSecret::from(<[u8; X25519_LEN]>::try_from(scalar).map_err(bad)?);
        let public = Recipient {
            ml_kem: ml_kem.encapsulation_key().clone(),
            x25519: PublicKey::from(&x25519),
        };
        Ok(XWingKey {
            id,
            ml_kem,
            x25519,
            public,
        })
    }

    pub fn id(&self) -> &VersionedKid {
        &self.id
    }

    pub fn public(&self) -> &Recipient {
        &self.public
    }

    pub fn wrap(
        &self,
        plain: &[u8],
        context: &[u8],
        fill: Fill<'_>,
    ) -> Result<Vec<u8>, SealingError> {
        self.public.wrap(&self.id, plain, context, fill)
    }

    pub fn unwrap(&self, blob: &[u8], context: &[u8]) -> Result<Secret, SealingError> {
        if context.len() > MAX_CONTEXT || blob.len() > HEADER_LEN + MAX_PLAIN + TAG_LEN {
            return Err(SealingError::TooLong);
        }
        check_blob(Algorithm::XWing, blob, HEADER_LEN + TAG_LEN)?;
        let (head, sealed) = blob.split_at(HEADER_LEN);
        if head[2] != KEM_VERSION {
            return Err(SealingError::NewerFormat(head[2]));
        }
        let shared = self.decapsulate(&head[3..])?;
        let aad = bound_data(&self.id, head, context);
        let mut plain = Zeroizing::new(sealed.to_vec());
        let opened = blob_key(&shared)?.open_in_place(only_nonce(), Aad::from(&aad), &mut plain);
        let len = opened.map_err(|_| SealingError::DoesNotOpen)?.len();
        Ok(Secret::copy_of(&plain[..len]))
    }

    /// The shared secret of an encapsulation. Any bytes of the right length give one, of no use if they
    /// were not made for this key; points that would fix the X25519 half are refused.
    pub fn decapsulate(&self, encapsulation: &[u8]) -> Result<Secret, SealingError> {
        let broken = |_| SealingError::DoesNotOpen;
        let (ml_kem, point) = encapsulation
            .split_at_checked(ML_KEM_CIPHERTEXT)
            .ok_or(SealingError::DoesNotOpen)?;
        let point = PublicKey::from(<[u8; X25519_LEN]>::try_from(point).map_err(broken)?);
        let ml_kem = self
            .ml_kem
            .decapsulate(&Array::try_from(ml_kem).map_err(broken)?);
        let x25519 = self.x25519.diffie_hellman(&point);
        if !x25519.was_contributory() {
            return Err(SealingError::DoesNotOpen);
        }
        let ml_kem = Zeroizing::new(ml_kem);
        Ok(combine(&ml_kem[..], &x25519, &point, &self.public.x25519))
    }
}

impl Recipient {
    pub fn from_raw(raw: &[u8]) -> Result<Recipient, SealingError> {
        let bad = SealingError::BadSecret(Algorithm::XWing);
        let (ml_kem, point) = raw.split_at_checked(ML_KEM_PUBLIC).ok_or(bad)?;
        let ml_kem = Array::try_from(ml_kem).map_err(|_| bad)?;
        let point = <[u8; X25519_LEN]>::try_from(point).map_err(|_| bad)?;
        Ok(Recipient {
            ml_kem: ml_kem_768::EncapsulationKey::new(&ml_kem).map_err(|_| bad)?,
            x25519: PublicKey::from(point),
        })
    }

    pub fn raw(&self) -> Vec<u8> {
        [&self.ml_kem.to_bytes()[..], self.x25519.as_bytes()].concat()
    }

    /// Opens only under this key version and with this context.
    pub fn wrap(
        &self,
        id: &VersionedKid,
        plain: &[u8],
        context: &[u8],
        fill: Fill<'_>,
    ) -> Result<Vec<u8>, SealingError> {
        if plain.len() > MAX_PLAIN || context.len() > MAX_CONTEXT {
            return Err(SealingError::TooLong);
        }
        let mut randomness = Zeroizing::new([0; RANDOMNESS_LEN]);
        fill(&mut *randomness);
        let (encapsulation, shared) = self.encapsulate(&randomness);
        let mut blob = vec![BLOB_FORMAT, XWING_NUMBER, KEM_VERSION];
        blob.extend_from_slice(&encapsulation);
        let aad = bound_data(id, &blob, context);
        let mut sealed = Zeroizing::new(Vec::with_capacity(plain.len() + TAG_LEN));
        sealed.extend_from_slice(plain);
        blob_key(&shared)?
            .seal_in_place_append_tag(only_nonce(), Aad::from(&aad), &mut *sealed)
            .map_err(|_| SealingError::Failed(Algorithm::XWing))?;
        blob.extend_from_slice(&sealed);
        Ok(blob)
    }

    /// Encapsulation and shared secret, from uniformly random bytes that are used once.
    pub fn encapsulate(&self, randomness: &[u8; RANDOMNESS_LEN]) -> (Vec<u8>, Secret) {
        let (message, scalar) = halves(randomness);
        let (ciphertext, ml_kem) = self.ml_kem.encapsulate_deterministic(&(*message).into());
        let ephemeral = StaticSecret::from(*scalar);
        let point = PublicKey::from(&ephemeral);
        let x25519 = ephemeral.diffie_hellman(&self.x25519);
        let ml_kem = Zeroizing::new(ml_kem);
        let shared = combine(&ml_kem[..], &x25519, &point, &self.x25519);
        ([&ciphertext[..], point.as_bytes()].concat(), shared)
    }
}

impl fmt::Debug for XWingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XWingKey({})", self.id)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recipient(x-wing)")
    }
}

pub const RANDOMNESS_LEN: usize = 64;
const ML_KEM_SEED: usize = 64;
const ML_KEM_PUBLIC: usize = 1184;
const ML_KEM_CIPHERTEXT: usize = 1088;
const X25519_LEN: usize = 32;
const EXPANDED_LEN: usize = ML_KEM_SEED + X25519_LEN;
const XWING_NUMBER: u8 = super::sealing::blob_number(Algorithm::XWing);
const HEADER_LEN: usize = 3 + ENCAPSULATION_LEN;
/// What the draft puts at the end of the combiner's input.
const LABEL: &[u8; 6] = br"\.//^\";

fn halves(randomness: &[u8; RANDOMNESS_LEN]) -> (Zeroizing<[u8; 32]>, Zeroizing<[u8; 32]>) {
    let mut message = Zeroizing::new([0; 32]);
    let mut scalar = Zeroizing::new([0; 32]);
    message.copy_from_slice(&randomness[..32]);
    scalar.copy_from_slice(&randomness[32..]);
    (message, scalar)
}

fn combine(
    ml_kem: &[u8],
    x25519: &SharedSecret,
    sent: &PublicKey,
    recipient: &PublicKey,
) -> Secret {
    let mut hash = Sha3_256::new();
    Digest::update(&mut hash, ml_kem);
    Digest::update(&mut hash, x25519.as_bytes());
    Digest::update(&mut hash, sent.as_bytes());
    Digest::update(&mut hash, recipient.as_bytes());
    Digest::update(&mut hash, LABEL);
    let shared = Zeroizing::new(<[u8; 32]>::from(hash.finalize()));
    Secret::copy_of(&*shared)
}

fn blob_key(shared: &Secret) -> Result<LessSafeKey, SealingError> {
    let key = UnboundKey::new(&AES_256_GCM, shared.expose());
    let key = key.map_err(|_| SealingError::Failed(Algorithm::XWing))?;
    Ok(LessSafeKey::new(key))
}

/// A shared secret seals one blob, so one nonce is enough.
fn only_nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests;
