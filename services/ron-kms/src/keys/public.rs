//! Public keys: checked once, then they verify and are shown to the world.
//!
//! The raw form is stored; SPKI and JWK are derived from it. A hybrid's raw form is its parts' in order, and
//! it verifies only if every part does: neither a missing nor a doubled nor a foreign signature passes.

use std::{collections::BTreeMap, fmt};

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    signature::{self, ParsedPublicKey, VerificationAlgorithm},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{
    Algorithm, Use,
    signing::{Checked, Input, Signature, SigningError},
};

pub struct PublicKey {
    algorithm: Algorithm,
    raw: Vec<u8>,
    parts: Vec<Part>,
}

/// Members of a JSON Web Key, without those that the key's name and state add.
pub type Jwk = BTreeMap<&'static str, String>;

impl PublicKey {
    /// Raw: the point or encoding of the standard; for RSA the PKCS#1 `RSAPublicKey`.
    pub fn from_raw(algorithm: Algorithm, raw: &[u8]) -> Result<PublicKey, SigningError> {
        if algorithm.key_use() != Use::Sign {
            return Err(SigningError::NotForSigning(algorithm));
        }
        let bad = SigningError::BadPublicKey(algorithm);
        if algorithm.public_len().is_some_and(|n| n != raw.len()) {
            return Err(bad);
        }
        let mut rest = raw;
        let mut parts = Vec::new();
        for &part in algorithm.parts() {
            let (own, others) = rest.split_at(part.public_len().unwrap_or(rest.len()));
            parts.push(Part::new(part, own).ok_or(bad)?);
            rest = others;
        }
        Ok(PublicKey {
            algorithm,
            raw: raw.to_vec(),
            parts,
        })
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// `SubjectPublicKeyInfo` in DER, one per part.
    pub fn spki(&self) -> Result<Vec<Vec<u8>>, SigningError> {
        let der = |part: &Part| {
            let der: PublicKeyX509Der<'_> = part
                .parsed
                .as_der()
                .map_err(|_| SigningError::BadPublicKey(part.algorithm))?;
            Ok(der.as_ref().to_vec())
        };
        self.parts.iter().map(der).collect()
    }

    /// One JSON Web Key per part.
    pub fn jwks(&self) -> Vec<Jwk> {
        self.parts.iter().map(Part::jwk).collect()
    }

    /// Every part must have signed, once.
    pub fn verify(&self, input: Input<'_>, signatures: &[Signature]) -> Result<(), SigningError> {
        let input = Checked::new(self.algorithm, input)?;
        if signatures.len() != self.parts.len() {
            return Err(SigningError::WrongParts(self.algorithm));
        }
        for part in &self.parts {
            let own = signatures.iter().find(|s| s.algorithm == part.algorithm);
            let own = own.ok_or(SigningError::WrongParts(self.algorithm))?;
            part.verify(&input, &own.bytes)?;
        }
        Ok(())
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &PublicKey) -> bool {
        (self.algorithm, &self.raw) == (other.algorithm, &other.raw)
    }
}

impl Eq for PublicKey {}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = URL_SAFE_NO_PAD.encode(&self.raw);
        write!(f, "PublicKey({} {raw})", self.algorithm)
    }
}

/// The uncompressed form of a point; the library would take others too.
const UNCOMPRESSED: u8 = 4;
const RSA_MODULUS: usize = 384;

struct Part {
    algorithm: Algorithm,
    raw: Vec<u8>,
    parsed: ParsedPublicKey,
}

impl Part {
    fn new(algorithm: Algorithm, raw: &[u8]) -> Option<Part> {
        let verification: &'static dyn VerificationAlgorithm = match algorithm {
            Algorithm::Ed25519 => &signature::ED25519,
            Algorithm::EcdsaP256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::EcdsaP384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::RsaPss3072 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::MlDsa65 => &signature::ML_DSA_65,
            _ => return None,
        };
        let shaped = match algorithm {
            Algorithm::EcdsaP256 | Algorithm::EcdsaP384 => raw.first() == Some(&UNCOMPRESSED),
            Algorithm::RsaPss3072 => rsa_numbers(raw).is_some_and(|(n, _)| n.len() == RSA_MODULUS),
            _ => true,
        };
        let parsed = shaped.then(|| ParsedPublicKey::new(verification, raw))?;
        Some(Part {
            algorithm,
            raw: raw.to_vec(),
            parsed: parsed.ok()?,
        })
    }

    fn verify(&self, input: &Checked<'_>, bytes: &[u8]) -> Result<(), SigningError> {
        let sized = self.algorithm.signature_len() == Some(bytes.len());
        let verified = match input {
            _ if !sized => false,
            Checked::Message(message) => self.parsed.verify_sig(message, bytes).is_ok(),
            Checked::Digest(digest) => self.parsed.verify_digest_sig(digest, bytes).is_ok(),
        };
        if verified {
            Ok(())
        } else {
            Err(SigningError::BadSignature(self.algorithm))
        }
    }

    fn jwk(&self) -> Jwk {
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let point = |curve: &str, alg: &str| {
            let (x, y) = self.raw[1..].split_at(self.raw.len() / 2);
            vec![
                ("kty", "EC".into()),
                ("crv", curve.into()),
                ("alg", alg.into()),
                ("x", b64(x)),
                ("y", b64(y)),
            ]
        };
        let members = match self.algorithm {
            Algorithm::Ed25519 => vec![
                ("kty", "OKP".into()),
                ("crv", "Ed25519".into()),
                ("alg", "EdDSA".into()),
                ("x", b64(&self.raw)),
            ],
            Algorithm::EcdsaP256 => point("P-256", "ES256"),
            Algorithm::EcdsaP384 => point("P-384", "ES384"),
            Algorithm::RsaPss3072 => {
                let (n, e) = rsa_numbers(&self.raw).unwrap_or_default();
                vec![
                    ("kty", "RSA".into()),
                    ("alg", "PS256".into()),
                    ("n", b64(n)),
                    ("e", b64(e)),
                ]
            }
            _ => vec![
                ("kty", "AKP".into()),
                ("alg", "ML-DSA-65".into()),
                ("pub", b64(&self.raw)),
            ],
        };
        let sig = [("use", "sig".to_owned())];
        members.into_iter().chain(sig).collect()
    }
}

/// Modulus and exponent, big-endian without leading zeros, of a PKCS#1 `RSAPublicKey`.
fn rsa_numbers(der: &[u8]) -> Option<(&[u8], &[u8])> {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    let (body, after) = der_value(der, SEQUENCE)?;
    let (n, rest) = der_value(body, INTEGER)?;
    let (e, end) = der_value(rest, INTEGER)?;
    let bare = |number: &'_ [u8]| number.iter().take_while(|b| **b == 0).count();
    (after.is_empty() && end.is_empty()).then(|| (&n[bare(n)..], &e[bare(e)..]))
}

/// The contents of the first value, which must have this tag, and what follows it.
pub(crate) fn der_value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (head, rest) = der.split_first_chunk::<2>()?;
    let (len, rest) = match head[1] {
        short @ 0..=0x7F => (usize::from(short), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    (head[0] == tag).then_some(())?;
    rest.split_at_checked(len)
}
