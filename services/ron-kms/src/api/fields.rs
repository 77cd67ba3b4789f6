//! What single fields of a request may hold, read straight into the form that the engine takes.
//!
//! Each type is its own check and says in the document what it takes, in a pattern that is as strict. No refusal
//! repeats a value: what a caller put into the wrong field may be a secret.

use std::borrow::Cow;

use base64::{DecodeSliceError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ron_core::{api::fields::Text, text_fields};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, de::Error};
use zeroize::Zeroizing;

use crate::{
    ask::KeyRef,
    backend::Message,
    keys::{Algorithm, Kid, Secret, Use, VersionedKid, algorithm::Prehash},
};

pub const MAX_OP_ID: usize = 128;
pub const NONCE_LEN: std::ops::RangeInclusive<usize> = 16..=64;
/// How a refusal of binary text begins; the problem's code follows from it.
const NOT_BASE64: &str = "not base64url without padding";

/// Bytes, as base64url without padding: the one spelling.
#[derive(Debug, PartialEq, Eq)]
pub struct Binary(pub Vec<u8>);

/// Bytes that nobody else may see.
#[derive(Debug)]
pub struct SecretBinary(pub Secret);

/// What an attestation is fresh by.
#[derive(Debug, PartialEq, Eq)]
pub struct Nonce(pub Vec<u8>);

/// `kid` or `kid#vN`.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyName(pub KeyRef);

/// `kid#vN`.
#[derive(Debug, PartialEq, Eq)]
pub struct VersionName(pub VersionedKid);

#[derive(Debug, PartialEq, Eq)]
pub struct AlgName(pub Algorithm);

#[derive(Debug, PartialEq, Eq)]
pub struct HashName(pub Prehash);

#[derive(Debug, PartialEq, Eq)]
pub struct OpId(pub String);

text_fields!(
    Binary,
    SecretBinary,
    Nonce,
    KeyName,
    VersionName,
    AlgName,
    HashName,
    OpId
);

/// Whole groups, and what is left with no stray bits.
const BASE64URL: &str =
    "^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw]|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048])?$";
const KID: &str = "[A-Za-z0-9_-]{21}[AQgw]";
/// A number from 1 that fits 32 bits.
const NUMBER: &str = "([1-9][0-9]{0,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|\
4294[0-8][0-9]{5}|42949[0-5][0-9]{4}|429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5])";

/// How many characters so many bytes are.
pub const fn text_len(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

impl Text for Binary {
    const NAME: &'static str = "Binary";
    const EXPECTED: &'static str = "base64url without padding";

    fn read<E: Error>(text: &str) -> Result<Binary, E> {
        let bytes = URL_SAFE_NO_PAD.decode(text);
        bytes.map(Binary).map_err(|_| E::custom(NOT_BASE64))
    }

    fn schema() -> Schema {
        json_schema!({
            "type": "string", "pattern": BASE64URL, "x-code": "base64_invalid",
            "description": "Bytes as base64url without padding; no other spelling is taken.",
        })
    }
}

impl Text for SecretBinary {
    const NAME: &'static str = Binary::NAME;
    const EXPECTED: &'static str = Binary::EXPECTED;

    fn read<E: Error>(text: &str) -> Result<SecretBinary, E> {
        // Sized once, so that no copy is left behind; wiped also where the text turns out wrong.
        let room = base64::decoded_len_estimate(text.len());
        let mut bytes = Zeroizing::new(vec![0; room]);
        let written: Result<usize, DecodeSliceError> =
            URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
        let len = written.map_err(|_| E::custom(NOT_BASE64))?;
        bytes.truncate(len);
        Ok(SecretBinary(Secret::new(std::mem::take(&mut *bytes))))
    }

    fn schema() -> Schema {
        Binary::schema()
    }
}

impl Text for Nonce {
    const NAME: &'static str = "Nonce";
    const EXPECTED: &'static str = Binary::EXPECTED;

    fn read<E: Error>(text: &str) -> Result<Nonce, E> {
        let Binary(bytes) = Binary::read(text)?;
        match NONCE_LEN.contains(&bytes.len()) {
            true => Ok(Nonce(bytes)),
            false => Err(E::custom("16 to 64 bytes are allowed")),
        }
    }

    fn schema() -> Schema {
        let mut schema = Binary::schema();
        schema.insert("minLength".into(), text_len(*NONCE_LEN.start()).into());
        schema.insert("maxLength".into(), text_len(*NONCE_LEN.end()).into());
        schema
    }
}

impl Text for KeyName {
    const NAME: &'static str = "KeyRef";
    const EXPECTED: &'static str = "a key: <kid> or <kid>#v<number from 1>";

    fn read<E: Error>(text: &str) -> Result<KeyName, E> {
        let key = match text.contains('#') {
            true => text.parse().map(|id: VersionedKid| KeyRef {
                version: Some(id.version()),
                kid: id.kid().clone(),
            }),
            false => text.parse().map(|kid| KeyRef { kid, version: None }),
        };
        key.map(KeyName).map_err(E::custom)
    }

    fn schema() -> Schema {
        json_schema!({
            "type": "string", "pattern": format!("^{KID}(#v{NUMBER})?$"),
            "description": "A key, which stands for its newest version, or one version of it.",
        })
    }
}

impl Text for VersionName {
    const NAME: &'static str = "VersionedKid";
    const EXPECTED: &'static str = "a key version: <kid>#v<number from 1>";

    fn read<E: Error>(text: &str) -> Result<VersionName, E> {
        text.parse().map(VersionName).map_err(E::custom)
    }

    fn schema() -> Schema {
        json_schema!({
            "type": "string", "pattern": format!("^{KID}#v{NUMBER}$"),
            "description": "One version of a key.",
        })
    }
}

impl Text for AlgName {
    const NAME: &'static str = "Alg";
    const EXPECTED: &'static str = "the name of an algorithm";

    fn read<E: Error>(text: &str) -> Result<AlgName, E> {
        let unknown = |_| {
            let known = Algorithm::names();
            E::custom(format_args!("unknown algorithm: allowed are {known}"))
        };
        text.parse().map(AlgName).map_err(unknown)
    }

    fn schema() -> Schema {
        let names = Algorithm::ALL.map(Algorithm::name);
        json_schema!({ "type": "string", "enum": names, "x-code": "alg_unknown" })
    }
}

impl Text for HashName {
    const NAME: &'static str = "Hash";
    const EXPECTED: &'static str = "the name of a hash: sha-256 or sha-384";

    fn read<E: Error>(text: &str) -> Result<HashName, E> {
        let hash = HASHES.into_iter().find(|hash| hash.name() == text);
        hash.map(HashName)
            .ok_or_else(|| E::custom("unknown hash: allowed are sha-256, sha-384"))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "enum": HASHES.map(|hash| hash.name()) })
    }
}

const HASHES: [Prehash; 2] = [Prehash::Sha256, Prehash::Sha384];

impl Text for OpId {
    const NAME: &'static str = "OpId";
    const EXPECTED: &'static str = "1 to 128 visible ASCII characters";

    fn read<E: Error>(text: &str) -> Result<OpId, E> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        match visible && (1..=MAX_OP_ID).contains(&text.len()) {
            true => Ok(OpId(text.to_owned())),
            false => Err(E::custom("1 to 128 visible ASCII characters are allowed")),
        }
    }

    fn schema() -> Schema {
        json_schema!({
            "type": "string", "minLength": 1, "maxLength": MAX_OP_ID, "pattern": "^[!-~]*$",
            "description": "The caller's name for this operation. The same id with the same body gets the stored \
                answer for 24 h; with another body it is refused with `op_id_conflict`.",
        })
    }
}

/// Names that are answered as they are read.
macro_rules! shapes {
    ($($name:ty => $text:literal, $schema:expr;)+) => {$(
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $text.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

shapes! {
    Kid => "Kid", json_schema!({ "type": "string", "pattern": format!("^{KID}$"), "description": "The opaque name of a key." });
    VersionedKid => "VersionedKid", VersionName::schema();
    Algorithm => "Alg", AlgName::schema();
    Use => "Use", json_schema!({ "type": "string", "enum": ["sign", "wrap"] });
}

/// The hash of the message, where the algorithm hashes first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prehashed {
    pub alg: HashName,
    pub digest: Binary,
}

impl From<Prehashed> for Message {
    fn from(prehashed: Prehashed) -> Message {
        Message::Prehashed {
            hash: prehashed.alg.0,
            digest: prehashed.digest.0,
        }
    }
}
