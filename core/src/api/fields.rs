//! What single fields of a request may hold. Each type is its own check and its own line in the document, and its
//! refusal says what is allowed but repeats no value: what a caller put into the wrong field may be a secret.

use std::{borrow::Cow, fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

/// A text field: what it is, and what it becomes.
pub trait Text: Sized {
    /// How the document names it.
    const NAME: &'static str;
    const EXPECTED: &'static str;

    fn read<E: Error>(text: &str) -> Result<Self, E>;

    /// As strict as [`read`](Self::read).
    fn schema() -> Schema;
}

pub struct TextVisitor<T>(pub PhantomData<T>);

impl<T: Text> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::read(text)
    }
}

/// Types that are [`Text`] become fields: read by serde, listed in the document.
#[macro_export]
macro_rules! text_fields {
    ($($name:ty),+ $(,)?) => {$(
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                let visitor = $crate::api::fields::TextVisitor(::std::marker::PhantomData);
                source.deserialize_str(visitor)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                <$name as $crate::api::fields::Text>::NAME.into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                <$name as $crate::api::fields::Text>::schema()
            }
        }
    )+};
}

pub const MAX_LABEL: usize = 128;

/// A tenant, a purpose: a name that logs can show.
#[derive(Debug, PartialEq, Eq)]
pub struct Label(pub String);

pub fn is_label(text: &str) -> bool {
    let printable = |b: u8| b.is_ascii_graphic() || b == b' ';
    (1..=MAX_LABEL).contains(&text.len()) && text.bytes().all(printable)
}

impl Text for Label {
    const NAME: &'static str = "Label";
    const EXPECTED: &'static str = "1 to 128 printable ASCII characters";

    fn read<E: Error>(text: &str) -> Result<Label, E> {
        match is_label(text) {
            true => Ok(Label(text.to_owned())),
            false => Err(E::custom("1 to 128 printable ASCII characters are allowed")),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_LABEL, "pattern": "^[ -~]*$" })
    }
}

text_fields!(Label);

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<const MIN: u64, const MAX: u64>(u64);

/// One that counts from 1 and fits 32 bits.
pub type Ordinal = Whole<1, { u32::MAX as u64 }>;

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    pub fn get(self) -> u64 {
        self.0
    }
}

impl Ordinal {
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(source)?;
        match (MIN..=MAX).contains(&number) {
            true => Ok(Whole(number)),
            false => Err(D::Error::custom(format_args!("{MIN} to {MAX} are allowed"))),
        }
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Whole<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Whole{MIN}To{MAX}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A list of at least one and at most `MAX`; a longer one is refused where it grows too long.
#[derive(Debug, PartialEq, Eq)]
pub struct Bounded<T, const MAX: usize>(pub Vec<T>);

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

impl<T: JsonSchema, const MAX: usize> JsonSchema for Bounded<T, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Bounded{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "minItems": 1, "maxItems": MAX, "items": items })
    }
}

/// A JSON object, and nothing else: left alone, serde would take a list of the fields' values for one.
#[derive(Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

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

impl<T: JsonSchema> JsonSchema for Object<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
