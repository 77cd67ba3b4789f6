//! The algorithms that keys have, by stable names, and what each can do.
//!
//! Names are stored and sent, so they never change meaning; a name not listed here is refused with the list.
//! Sizes are those of the standards, in bytes: nothing of another size is ever accepted.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Algorithm {
    Ed25519,
    /// With SHA-256; signatures are `r || s`, never DER, so that their size tells nothing.
    EcdsaP256,
    /// With SHA-384; `r || s` as well.
    EcdsaP384,
    /// With SHA-256, MGF1 with SHA-256 and a salt of 32 bytes.
    RsaPss3072,
    /// FIPS 204, pure, empty context.
    MlDsa65,
    /// Two standard signatures over the same message; both must verify.
    Ed25519MlDsa65,
    Aes256Gcm,
    ChaCha20Poly1305,
    /// X25519 and ML-KEM-768 in one key encapsulation.
    XWing,
}

/// What a key is for. A key is never used in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    Sign,
    Wrap,
}

/// The hash a caller may compute in our place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prehash {
    Sha256,
    Sha384,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown algorithm \"{name}\": allowed are {}", Algorithm::names())]
pub struct UnknownAlgorithm {
    /// What was asked for, cut to a printable length.
    pub name: String,
}

impl Algorithm {
    pub const ALL: [Algorithm; 9] = [
        Algorithm::Ed25519,
        Algorithm::EcdsaP256,
        Algorithm::EcdsaP384,
        Algorithm::RsaPss3072,
        Algorithm::MlDsa65,
        Algorithm::Ed25519MlDsa65,
        Algorithm::Aes256Gcm,
        Algorithm::ChaCha20Poly1305,
        Algorithm::XWing,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Ed25519 => "ed25519",
            Algorithm::EcdsaP256 => "ecdsa-p256",
            Algorithm::EcdsaP384 => "ecdsa-p384",
            Algorithm::RsaPss3072 => "rsa-pss-3072",
            Algorithm::MlDsa65 => "ml-dsa-65",
            Algorithm::Ed25519MlDsa65 => "ed25519+ml-dsa-65",
            Algorithm::Aes256Gcm => "aes-256-gcm",
            Algorithm::ChaCha20Poly1305 => "chacha20-poly1305",
            Algorithm::XWing => "x-wing",
        }
    }

    pub const fn key_use(self) -> Use {
        match self {
            Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 | Algorithm::XWing => Use::Wrap,
            _ => Use::Sign,
        }
    }

    /// Each sealing takes a number that was never used before; X-Wing makes a fresh key each time instead.
    pub const fn needs_nonce(self) -> bool {
        matches!(self, Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305)
    }

    /// The standard algorithms it consists of: two for a hybrid, else itself.
    pub const fn parts(self) -> &'static [Algorithm] {
        match self {
            Algorithm::Ed25519 => &[Algorithm::Ed25519],
            Algorithm::EcdsaP256 => &[Algorithm::EcdsaP256],
            Algorithm::EcdsaP384 => &[Algorithm::EcdsaP384],
            Algorithm::RsaPss3072 => &[Algorithm::RsaPss3072],
            Algorithm::MlDsa65 => &[Algorithm::MlDsa65],
            Algorithm::Ed25519MlDsa65 => &[Algorithm::Ed25519, Algorithm::MlDsa65],
            Algorithm::Aes256Gcm => &[Algorithm::Aes256Gcm],
            Algorithm::ChaCha20Poly1305 => &[Algorithm::ChaCha20Poly1305],
            Algorithm::XWing => &[Algorithm::XWing],
        }
    }

    /// Length of the secret as it is stored; `None` where it is PKCS#8.
    pub const fn secret_len(self) -> Option<usize> {
        match self {
            Algorithm::RsaPss3072 => None,
            Algorithm::EcdsaP384 => Some(48),
            Algorithm::Ed25519MlDsa65 => Some(64),
            _ => Some(32),
        }
    }

    /// Length of the raw public key; `None` where it is DER or there is none.
    pub const fn public_len(self) -> Option<usize> {
        match self {
            Algorithm::Ed25519 => Some(32),
            Algorithm::EcdsaP256 => Some(65),
            Algorithm::EcdsaP384 => Some(97),
            Algorithm::MlDsa65 => Some(1952),
            Algorithm::Ed25519MlDsa65 => Some(32 + 1952),
            Algorithm::XWing => Some(1184 + 32),
            Algorithm::RsaPss3072 | Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => None,
        }
    }

    /// Length of one signature; `None` for a hybrid, which has two, and for what does not sign.
    pub const fn signature_len(self) -> Option<usize> {
        match self {
            Algorithm::Ed25519 | Algorithm::EcdsaP256 => Some(64),
            Algorithm::EcdsaP384 => Some(96),
            Algorithm::RsaPss3072 => Some(384),
            Algorithm::MlDsa65 => Some(3309),
            _ => None,
        }
    }

    /// The hash that may be signed in place of the message, where the standard signs a hash anyway.
    pub const fn prehash(self) -> Option<Prehash> {
        match self {
            Algorithm::EcdsaP256 | Algorithm::RsaPss3072 => Some(Prehash::Sha256),
            Algorithm::EcdsaP384 => Some(Prehash::Sha384),
            _ => None,
        }
    }

    /// All names, as an error or a help text lists them.
    pub fn names() -> String {
        Algorithm::ALL.map(Algorithm::name).join(", ")
    }
}

impl Prehash {
    pub const fn name(self) -> &'static str {
        match self {
            Prehash::Sha256 => "sha-256",
            Prehash::Sha384 => "sha-384",
        }
    }

    pub const fn digest_len(self) -> usize {
        match self {
            Prehash::Sha256 => 32,
            Prehash::Sha384 => 48,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Use::Sign => "sign",
            Use::Wrap => "wrap",
        })
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let known = Algorithm::ALL.into_iter().find(|a| a.name() == name);
        known.ok_or_else(|| UnknownAlgorithm {
            name: name.escape_debug().take(MAX_ECHO).collect(),
        })
    }
}

impl TryFrom<String> for Algorithm {
    type Error = UnknownAlgorithm;

    fn try_from(name: String) -> Result<Algorithm, UnknownAlgorithm> {
        name.parse()
    }
}

impl From<Algorithm> for String {
    fn from(algorithm: Algorithm) -> String {
        algorithm.name().to_owned()
    }
}

const MAX_ECHO: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_these_and_read_back() {
        assert_eq!(
            Algorithm::names(),
            "ed25519, ecdsa-p256, ecdsa-p384, rsa-pss-3072, ml-dsa-65, ed25519+ml-dsa-65, \
             aes-256-gcm, chacha20-poly1305, x-wing"
        );
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            let json = serde_json::to_string(&algorithm).unwrap();
            assert_eq!(json, format!("\"{algorithm}\""));
            assert_eq!(serde_json::from_str::<Algorithm>(&json).unwrap(), algorithm);
        }
    }

    #[test]
    fn unknown_name_is_refused_with_what_is_allowed_on_one_short_line() {
        for name in ["", "Ed25519", "rsa", "ed25519 ", "a\nb", &"x".repeat(5000)] {
            let refused = name.parse::<Algorithm>().unwrap_err().to_string();
            assert!(refused.ends_with(&Algorithm::names()), "{refused}");
            assert!(!refused.contains('\n') && refused.len() < 250, "{refused}");
        }
    }

    #[test]
    fn what_signs_has_signatures_and_what_wraps_has_none() {
        for algorithm in Algorithm::ALL {
            let signs = algorithm.key_use() == Use::Sign;
            for part in algorithm.parts() {
                assert_eq!(part.signature_len().is_some(), signs, "{algorithm}");
            }
            if algorithm.prehash().is_some() {
                assert!(signs, "{algorithm}");
            }
        }
    }

    #[test]
    fn only_algorithms_that_hash_first_take_a_hash() {
        let named = |a: Algorithm| a.prehash().map(|p| (a.name(), p.name(), p.digest_len()));
        assert_eq!(
            Algorithm::ALL
                .into_iter()
                .filter_map(named)
                .collect::<Vec<_>>(),
            [
                ("ecdsa-p256", "sha-256", 32),
                ("ecdsa-p384", "sha-384", 48),
                ("rsa-pss-3072", "sha-256", 32)
            ]
        );
    }
}
