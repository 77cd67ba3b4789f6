//! What single fields of a request may hold, read straight into the form that the engine takes.
//!
//! Each type is its own check, and its refusal says what is allowed. No refusal repeats a value: what a
//! caller put into the wrong field may be a secret.

use std::{fmt, marker::PhantomData};

use base64::{DecodeSliceError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use zeroize::Zeroizing;

use crate::{
    ask::KeyRef,
    backend::Message,
    keys::{Algorithm, Secret, VersionedKid, algorithm::Prehash},
};

pub const MAX_LABEL: usize = 128;
pub const MAX_OP_ID: usize = 128;
/// How a refusal of binary text begins; the problem's code follows from it.
pub const NOT_BASE64: &str = "not base64url without padding";

/// Bytes, as base64url without padding: the one spelling.
#[derive(Debug, PartialEq, Eq)]
pub struct Binary(pub Vec<u8>);

/// Bytes that nobody else may see.
#[derive(Debug)]
pub struct SecretBinary(pub Secret);

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

/// A tenant or a purpose.
#[derive(Debug, PartialEq, Eq)]
pub struct Label(pub String);

#[derive(Debug, PartialEq, Eq)]
pub struct OpId(pub String);

/// A list of at least one and at most `MAX`; a longer one is refused where it grows too long.
#[derive(Debug, PartialEq, Eq)]
pub struct Bounded<T, const MAX: usize>(pub Vec<T>);

/// A JSON object, and nothing else: left alone, serde would take a list of the fields' values for one.
#[derive(Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

pub fn is_label(text: &str) -> bool {
    let printable = |b: u8| b.is_ascii_graphic() || b == b' ';
    (1..=MAX_LABEL).contains(&text.len()) && text.bytes().all(printable)
}

/// A text field: what it is, and what it becomes.
trait Text: Sized {
    const EXPECTED: &'static str;
    fn read<E: Error>(text: &str) -> Result<Self, E>;
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Text> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::read(text)
    }
}

macro_rules! texts {
    ($($name:ty),+) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                source.deserialize_str(TextVisitor(PhantomData))
            }
        }
    )+};
}

texts!(
    Binary,
    SecretBinary,
    KeyName,
    VersionName,
    AlgName,
    HashName,
    Label,
    OpId
);

impl Text for Binary {
    const EXPECTED: &'static str = "base64url without padding";

    fn read<E: Error>(text: &str) -> Result<Binary, E> {
        let bytes = URL_SAFE_NO_PAD.decode(text);
        bytes.map(Binary).map_err(|_| E::custom(NOT_BASE64))
    }
}

impl Text for SecretBinary {
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
}

impl Text for KeyName {
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
}

impl Text for VersionName {
    const EXPECTED: &'static str = "a key version: <kid>#v<number from 1>";

    fn read<E: Error>(text: &str) -> Result<VersionName, E> {
        text.parse().map(VersionName).map_err(E::custom)
    }
}

impl Text for AlgName {
    const EXPECTED: &'static str = "the name of an algorithm";

    fn read<E: Error>(text: &str) -> Result<AlgName, E> {
        text.parse().map(AlgName).map_err(E::custom)
    }
}

impl Text for HashName {
    const EXPECTED: &'static str = "the name of a hash: sha-256 or sha-384";

    fn read<E: Error>(text: &str) -> Result<HashName, E> {
        let known = [Prehash::Sha256, Prehash::Sha384];
        let hash = known.into_iter().find(|hash| hash.name() == text);
        hash.map(HashName)
            .ok_or_else(|| E::custom("unknown hash: allowed are sha-256, sha-384"))
    }
}

impl Text for Label {
    const EXPECTED: &'static str = "1 to 128 printable ASCII characters";

    fn read<E: Error>(text: &str) -> Result<Label, E> {
        match is_label(text) {
            true => Ok(Label(text.to_owned())),
            false => Err(E::custom("1 to 128 printable ASCII characters are allowed")),
        }
    }
}

impl Text for OpId {
    const EXPECTED: &'static str = "1 to 128 visible ASCII characters";

    fn read<E: Error>(text: &str) -> Result<OpId, E> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        match visible && (1..=MAX_OP_ID).contains(&text.len()) {
            true => Ok(OpId(text.to_owned())),
            false => Err(E::custom("1 to 128 visible ASCII characters are allowed")),
        }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format_args!("at most {MAX} are allowed")));
            }
            list.push(item);
        }
        match list.is_empty() {
            true => Err(A::Error::custom(format_args!("1 to {MAX} are allowed"))),
            false => Ok(Bounded(list)),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// What is signed or verified: a message, or its hash where the algorithm hashes first.
#[derive(Debug, Deserialize)]
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
