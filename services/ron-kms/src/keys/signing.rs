//! Signing keys: from secret bytes to signatures.
//!
//! A hybrid key signs once per part, and a signature says which standard algorithm made it. Messages are
//! signed; a hash in place of the message only where the standard hashes first. No error carries key bytes.

use std::fmt;

use aws_lc_rs::{
    digest::{self, Digest},
    encoding::{AsBigEndian, AsDer, EcPrivateKeyBin, Pkcs8V1Der},
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, ML_DSA_65_SIGNING,
        PqdsaKeyPair, RSA_PSS_SHA256, RsaKeyPair,
    },
};
use zeroize::Zeroizing;

use super::{Algorithm, Fill, Secret, Use, algorithm::Prehash, public::PublicKey};

/// What is signed or verified.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    Message(&'a [u8]),
    /// The hash of the message, computed by the caller.
    Prehashed {
        hash: Prehash,
        digest: &'a [u8],
    },
}

/// One standard signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub algorithm: Algorithm,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    #[error("{0} does not sign: a key for signing is needed")]
    NotForSigning(Algorithm),
    #[error("these bytes are no secret key of {0}")]
    BadSecret(Algorithm),
    #[error("these bytes are no public key of {0}")]
    BadPublicKey(Algorithm),
    #[error("{0} has no PKCS#8 form here: import its parts as keys of their own")]
    NoPkcs8(Algorithm),
    #[error("{0} keys come from PKCS#8 or the key generator, not from random bytes")]
    NotFromRandom(Algorithm),
    #[error("{0} signs messages only: send the message, not its hash")]
    PrehashRefused(Algorithm),
    #[error("{algorithm} takes a {} hash of {} bytes", .wanted.name(), .wanted.digest_len())]
    WrongPrehash {
        algorithm: Algorithm,
        wanted: Prehash,
    },
    #[error("signing with {0} failed")]
    Failed(Algorithm),
    #[error("{0} takes exactly one signature of each of its parts")]
    WrongParts(Algorithm),
    #[error("the {0} signature does not verify")]
    BadSignature(Algorithm),
}

/// A key pair ready to sign. It shows its algorithm and public key, never its secret.
pub struct SigningKey {
    algorithm: Algorithm,
    pairs: Vec<Pair>,
    public: PublicKey,
}

impl SigningKey {
    /// A new secret from the caller's random bytes; the same bytes make the same key.
    pub fn generate(algorithm: Algorithm, fill: Fill<'_>) -> Result<Secret, SigningError> {
        if algorithm.key_use() != Use::Sign {
            return Err(SigningError::NotForSigning(algorithm));
        }
        let len = algorithm.secret_len();
        let len = len.ok_or(SigningError::NotFromRandom(algorithm))?;
        // A scalar is refused with a chance of 2^-32 at most: the bound only stops a broken generator.
        for _ in 0..MAX_DRAWS {
            let secret = Secret::random(len, fill);
            if SigningKey::from_secret(algorithm, &secret).is_ok() {
                return Ok(secret);
            }
        }
        Err(SigningError::BadSecret(algorithm))
    }

    /// A new RSA secret. It draws from the library's own generator, which no seed reaches: simulations
    /// use a stored key instead.
    pub fn generate_rsa() -> Result<Secret, SigningError> {
        let failed = |_| SigningError::Failed(Algorithm::RsaPss3072);
        let pair = RsaKeyPair::generate(KeySize::Rsa3072).map_err(failed)?;
        let der: Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
        Ok(Secret::copy_of(der.as_ref()))
    }

    /// The secret as it is stored, out of a PKCS#8 document: a seed, a scalar, or for RSA the document.
    pub fn import_pkcs8(algorithm: Algorithm, pkcs8: &[u8]) -> Result<Secret, SigningError> {
        let secret = match algorithm {
            Algorithm::Ed25519 => Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8)
                .ok()
                .and_then(|pair| pair.seed().ok())
                .and_then(|seed| {
                    let bytes = seed.as_be_bytes().ok()?;
                    Some(Secret::copy_of(bytes.as_ref()))
                }),
            Algorithm::EcdsaP256 => ecdsa_scalar(P256.signing, pkcs8),
            Algorithm::EcdsaP384 => ecdsa_scalar(P384.signing, pkcs8),
            Algorithm::RsaPss3072 => Some(Secret::copy_of(pkcs8)),
            Algorithm::MlDsa65 => ml_dsa_seed(pkcs8),
            Algorithm::Ed25519MlDsa65 => return Err(SigningError::NoPkcs8(algorithm)),
            _ => return Err(SigningError::NotForSigning(algorithm)),
        };
        let secret = secret.ok_or(SigningError::BadSecret(algorithm))?;
        SigningKey::from_secret(algorithm, &secret).map(|_| secret)
    }

    pub fn from_secret(algorithm: Algorithm, secret: &Secret) -> Result<SigningKey, SigningError> {
        if algorithm.key_use() != Use::Sign {
            return Err(SigningError::NotForSigning(algorithm));
        }
        let bad = SigningError::BadSecret(algorithm);
        if algorithm.secret_len().is_some_and(|n| n != secret.len()) {
            return Err(bad);
        }
        let mut rest = secret.expose();
        let mut pairs = Vec::new();
        let mut public = Vec::new();
        for &part in algorithm.parts() {
            let (own, others) = rest.split_at(part.secret_len().unwrap_or(rest.len()));
            let pair = Pair::new(part, own).ok_or(bad)?;
            public.extend_from_slice(pair.public());
            pairs.push(pair);
            rest = others;
        }
        Ok(SigningKey {
            algorithm,
            pairs,
            public: PublicKey::from_raw(algorithm, &public).map_err(|_| bad)?,
        })
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// One signature per part, in the order of [`Algorithm::parts`].
    pub fn sign(&self, input: Input<'_>) -> Result<Vec<Signature>, SigningError> {
        let input = Checked::new(self.algorithm, input)?;
        let parts = self.algorithm.parts().iter().zip(&self.pairs);
        parts
            .map(|(&algorithm, pair)| {
                let bytes = pair.sign(&input).ok_or(SigningError::Failed(algorithm))?;
                Ok(Signature { algorithm, bytes })
            })
            .collect()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.algorithm)
    }
}

/// Input that the algorithm takes.
pub(crate) enum Checked<'a> {
    Message(&'a [u8]),
    Digest(Digest),
}

impl<'a> Checked<'a> {
    pub(crate) fn new(algorithm: Algorithm, input: Input<'a>) -> Result<Checked<'a>, SigningError> {
        let (hash, bytes) = match input {
            Input::Message(message) => return Ok(Checked::Message(message)),
            Input::Prehashed { hash, digest } => (hash, digest),
        };
        let wanted = algorithm.prehash();
        let wanted = wanted.ok_or(SigningError::PrehashRefused(algorithm))?;
        let kind = match wanted {
            Prehash::Sha256 => &digest::SHA256,
            Prehash::Sha384 => &digest::SHA384,
        };
        Digest::import_less_safe(bytes, kind)
            .ok()
            .filter(|_| hash == wanted)
            .map(Checked::Digest)
            .ok_or(SigningError::WrongPrehash { algorithm, wanted })
    }
}

const MAX_DRAWS: usize = 64;
const ML_DSA_SEED: usize = 32;

enum Pair {
    Ed25519(Box<Ed25519KeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
    MlDsa(Box<PqdsaKeyPair>),
}

impl Pair {
    fn new(algorithm: Algorithm, secret: &[u8]) -> Option<Pair> {
        Some(match algorithm {
            Algorithm::Ed25519 => {
                Pair::Ed25519(Ed25519KeyPair::from_seed_unchecked(secret).ok()?.into())
            }
            Algorithm::EcdsaP256 => Pair::Ecdsa(P256.pair(secret)?.into()),
            Algorithm::EcdsaP384 => Pair::Ecdsa(P384.pair(secret)?.into()),
            // Its size is checked with the public key.
            Algorithm::RsaPss3072 => Pair::Rsa(RsaKeyPair::from_pkcs8(secret).ok()?.into()),
            Algorithm::MlDsa65 => Pair::MlDsa(
                PqdsaKeyPair::from_seed(&ML_DSA_65_SIGNING, secret)
                    .ok()?
                    .into(),
            ),
            _ => return None,
        })
    }

    fn public(&self) -> &[u8] {
        match self {
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::MlDsa(pair) => pair.public_key().as_ref(),
        }
    }

    fn sign(&self, input: &Checked<'_>) -> Option<Vec<u8>> {
        // The library draws nonces and salts by itself; this argument is there for another library's sake.
        let rng = SystemRandom::new();
        match (self, input) {
            (Pair::Ed25519(pair), Checked::Message(m)) => {
                Some(pair.try_sign(m).ok()?.as_ref().to_vec())
            }
            (Pair::Ecdsa(pair), Checked::Message(m)) => {
                Some(pair.sign(&rng, m).ok()?.as_ref().to_vec())
            }
            (Pair::Ecdsa(pair), Checked::Digest(d)) => {
                Some(pair.sign_digest(d).ok()?.as_ref().to_vec())
            }
            (Pair::Rsa(pair), input) => {
                let mut bytes = vec![0; pair.public_modulus_len()];
                match input {
                    Checked::Message(m) => pair.sign(&RSA_PSS_SHA256, &rng, m, &mut bytes),
                    Checked::Digest(d) => pair.sign_digest(&RSA_PSS_SHA256, d, &mut bytes),
                }
                .ok()?;
                Some(bytes)
            }
            (Pair::MlDsa(pair), Checked::Message(m)) => {
                let mut bytes = vec![0; pair.algorithm().signature_len()];
                let len = pair.sign(m, &mut bytes).ok()?;
                (len == bytes.len()).then_some(bytes)
            }
            (Pair::Ed25519(_) | Pair::MlDsa(_), Checked::Digest(_)) => None,
        }
    }
}

struct Curve {
    signing: &'static EcdsaSigningAlgorithm,
    /// RFC 5915 around the scalar; without a public key, which is then computed.
    before: &'static [u8],
    after: &'static [u8],
}

const P256: Curve = Curve {
    signing: &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
    before: &[0x30, 0x31, 2, 1, 1, 4, 32],
    after: &[
        0xA0, 0x0A, 6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07,
    ],
};

const P384: Curve = Curve {
    signing: &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
    before: &[0x30, 0x3E, 2, 1, 1, 4, 48],
    after: &[0xA0, 0x07, 6, 5, 0x2B, 0x81, 0x04, 0x00, 0x22],
};

impl Curve {
    fn pair(&self, scalar: &[u8]) -> Option<EcdsaKeyPair> {
        let der = Zeroizing::new([self.before, scalar, self.after].concat());
        EcdsaKeyPair::from_private_key_der(self.signing, &der).ok()
    }
}

fn ecdsa_scalar(signing: &'static EcdsaSigningAlgorithm, pkcs8: &[u8]) -> Option<Secret> {
    let pair = EcdsaKeyPair::from_pkcs8(signing, pkcs8).ok()?;
    let scalar: EcPrivateKeyBin<'_> = pair.private_key().as_be_bytes().ok()?;
    Some(Secret::copy_of(scalar.as_ref()))
}

/// A document with the seed ends in it; one with the expanded key alone is refused.
fn ml_dsa_seed(pkcs8: &[u8]) -> Option<Secret> {
    let pair = PqdsaKeyPair::from_pkcs8(&ML_DSA_65_SIGNING, pkcs8).ok()?;
    let document = pair.to_pkcs8v1().ok()?;
    let (_, seed) = document.as_ref().split_last_chunk::<ML_DSA_SEED>()?;
    let again = PqdsaKeyPair::from_seed(&ML_DSA_65_SIGNING, seed).ok()?;
    let same = again.public_key().as_ref() == pair.public_key().as_ref();
    same.then(|| Secret::copy_of(seed))
}

#[cfg(test)]
mod tests;
