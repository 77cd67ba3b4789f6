//! Algorithms by their standards: what signs, what a public key looks like, whether a signature holds.
//!
//! Cryptography is aws-lc-rs alone; encodings are spelt out here byte by byte. Always: a hybrid's signature is one of
//! each part, in the order of its name.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ML_DSA_65, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as B64},
};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alg {
    pub name: &'static str,
    /// Empty for what wraps.
    pub parts: &'static [Part],
    /// The hash that may be sent in place of the message, and its length.
    pub prehash: Option<(&'static str, usize)>,
    /// How a blob names it, if it wraps.
    pub blob: u8,
    /// Each sealing takes the next number.
    pub counts_nonces: bool,
    /// Messages whose signatures fit beside one record.
    pub most_kept: usize,
    /// Signing costs so much that it is drawn rarely.
    pub dear: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Ed25519,
    P256,
    P384,
    MlDsa65,
}

const fn signs(
    name: &'static str,
    parts: &'static [Part],
    prehash: Option<(&'static str, usize)>,
    most_kept: usize,
) -> Alg {
    Alg {
        name,
        parts,
        prehash,
        blob: 0,
        counts_nonces: false,
        most_kept,
        dear: most_kept < BATCH,
    }
}

const fn wraps(name: &'static str, blob: u8, counts_nonces: bool) -> Alg {
    Alg {
        name,
        parts: &[],
        prehash: None,
        blob,
        counts_nonces,
        most_kept: 0,
        dear: false,
    }
}

/// Messages that are signed at once, at most.
pub const BATCH: usize = 512;

pub const ALGS: &[Alg] = &[
    signs("ed25519", &[Part::Ed25519], None, BATCH),
    signs("ecdsa-p256", &[Part::P256], Some(("sha-256", 32)), BATCH),
    signs("ecdsa-p384", &[Part::P384], Some(("sha-384", 48)), BATCH),
    wraps("aes-256-gcm", 1, true),
    wraps("chacha20-poly1305", 2, true),
    wraps("x-wing", 3, false),
    signs("ml-dsa-65", &[Part::MlDsa65], None, 236),
    signs(
        "ed25519+ml-dsa-65",
        &[Part::Ed25519, Part::MlDsa65],
        None,
        231,
    ),
];

/// Those that are cheap come first.
pub const CHEAP: usize = 6;

impl Alg {
    pub fn signs(&self) -> bool {
        !self.parts.is_empty()
    }

    pub fn used_to(&self) -> &'static str {
        match self.signs() {
            true => "sign",
            false => "wrap",
        }
    }

    pub fn public_len(&self) -> usize {
        self.parts.iter().map(|part| part.public_len()).sum()
    }

    /// A public key as one version shows it.
    pub fn shown(&self, raw: &[u8]) -> Value {
        let parts = self.split(raw).into_iter().map(|(part, raw)| {
            let der = part.spki(raw);
            json!({ "alg": part.name(), "spki": B64.encode(&der), "pem": pem(&der), "jwk": part.jwk(raw) })
        });
        json!({ "raw": B64.encode(raw), "parts": parts.collect::<Vec<Value>>() })
    }

    /// The same as the set of public keys has it.
    pub fn named_jwks(&self, raw: &[u8], version: &str) -> Vec<Value> {
        let parts = self.split(raw).into_iter();
        let named = parts.map(|(part, raw)| {
            let mut jwk = part.jwk(raw);
            jwk["kid"] = json!(version);
            jwk
        });
        named.collect()
    }

    /// Whether these are the signatures of a message: one of each part, in order, each of its size.
    pub fn signed(&self, raw: &[u8], message: &[u8], sigs: &Value) -> bool {
        let Some(sigs) = sigs.as_array().filter(|s| s.len() == self.parts.len()) else {
            return false;
        };
        let parts = self.split(raw).into_iter().zip(sigs);
        parts.into_iter().all(|((part, raw), sig)| {
            let bytes = B64.decode(sig["sig"].as_str().unwrap_or("?"));
            let fields = sig.as_object().map_or(0, serde_json::Map::len);
            let holds = |bytes: Vec<u8>| {
                bytes.len() == part.signature_len() && part.verifies(raw, message, &bytes)
            };
            fields == 2 && sig["alg"] == part.name() && bytes.is_ok_and(holds)
        })
    }

    fn split<'a>(&self, raw: &'a [u8]) -> Vec<(Part, &'a [u8])> {
        let mut rest = raw;
        let parts = self.parts.iter().map(|part| {
            let (own, others) = rest.split_at(part.public_len().min(rest.len()));
            rest = others;
            (*part, own)
        });
        parts.collect()
    }
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Ed25519 => "ed25519",
            Part::P256 => "ecdsa-p256",
            Part::P384 => "ecdsa-p384",
            Part::MlDsa65 => "ml-dsa-65",
        }
    }

    fn public_len(self) -> usize {
        match self {
            Part::Ed25519 => 32,
            Part::P256 => 65,
            Part::P384 => 97,
            Part::MlDsa65 => 1952,
        }
    }

    fn signature_len(self) -> usize {
        match self {
            Part::Ed25519 | Part::P256 => 64,
            Part::P384 => 96,
            Part::MlDsa65 => 3309,
        }
    }

    fn verifies(self, raw: &[u8], message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self {
            Part::Ed25519 => &ED25519,
            Part::P256 => &ECDSA_P256_SHA256_FIXED,
            Part::P384 => &ECDSA_P384_SHA384_FIXED,
            Part::MlDsa65 => &ML_DSA_65,
        };
        let key = UnparsedPublicKey::new(algorithm, raw);
        key.verify(message, signature).is_ok()
    }

    /// What stands before the raw key in a SubjectPublicKeyInfo.
    fn spki(self, raw: &[u8]) -> Vec<u8> {
        let before: &[u8] = match self {
            Part::Ed25519 => b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00",
            Part::P256 => {
                b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00"
            }
            Part::P384 => {
                b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00"
            }
            Part::MlDsa65 => {
                b"\x30\x82\x07\xb2\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x12\x03\x82\x07\xa1\x00"
            }
        };
        [before, raw].concat()
    }

    fn jwk(self, raw: &[u8]) -> Value {
        let point = |curve: &str, alg: &str| {
            let (x, y) = raw.get(1..).unwrap_or_default().split_at(raw.len() / 2);
            let (x, y) = (B64.encode(x), B64.encode(y));
            json!({ "kty": "EC", "crv": curve, "alg": alg, "use": "sig", "x": x, "y": y })
        };
        match self {
            Part::Ed25519 => {
                json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "x": B64.encode(raw) })
            }
            Part::P256 => point("P-256", "ES256"),
            Part::P384 => point("P-384", "ES384"),
            Part::MlDsa65 => {
                json!({ "kty": "AKP", "alg": "ML-DSA-65", "use": "sig", "pub": B64.encode(raw) })
            }
        }
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines = lines.collect::<Vec<_>>().join("\n");
    format!("-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n")
}
