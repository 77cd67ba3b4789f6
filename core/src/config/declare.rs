//! How a key is declared: [`settings!`](crate::settings) for a group of keys, [`choices!`](crate::choices) for a
//! key with a few named values, [`Setting`] for what a value may be.
//!
//! The unit of a number is the end of its name (`drain_deadline_ms`); the docs derive it from there.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned};
use zeroize::Zeroize;

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// On reload.
    Live,
    /// Only when the process starts: binding, pools, capacities.
    Restart,
}

/// Everything there is to know about one key.
#[derive(Clone)]
pub struct KeyDecl {
    /// Dotted: `audit.checkpoint_every_ops`.
    pub name: String,
    pub kind: String,
    pub unit: &'static str,
    /// As it would be written in the file; empty if the key is absent by default.
    pub default: String,
    pub doc: String,
    /// Empty if the type says it all.
    pub allowed: String,
    pub apply: Apply,
    /// The value never appears in an error.
    pub secret: bool,
    check: Check,
}

type Check = std::sync::Arc<dyn Fn(&toml::Value) -> Result<(), String> + Send + Sync>;

impl KeyDecl {
    /// Whether a value is of the key's type and within its range; if not, what would be.
    pub fn check(&self, value: &toml::Value) -> Result<(), String> {
        (self.check)(value)
    }
}

impl fmt::Debug for KeyDecl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} = {}", self.name, self.kind, self.default)
    }
}

/// A group of keys. Implemented by [`settings!`](crate::settings).
pub trait Settings: Serialize + DeserializeOwned + Default {
    /// In the order of declaration.
    fn keys() -> Vec<KeyDecl>;
}

/// A type that a key may have.
pub trait Setting: Serialize + DeserializeOwned {
    const SECRET: bool = false;
    /// What a reader calls it: `integer`, `address`.
    fn kind() -> String;
    /// The values allowed, where they can be listed.
    fn allowed() -> String {
        String::new()
    }
}

macro_rules! plain_settings {
    ($($kind:literal: $($ty:ty),+;)+) => {$($(
        impl Setting for $ty {
            fn kind() -> String {
                $kind.to_owned()
            }
        }
    )+)+};
}

plain_settings! {
    "integer": u8, u16, u32, u64, usize, i64;
    "number": f64;
    "boolean": bool;
    "text": String;
    "address": SocketAddr;
    "IP address": IpAddr;
}

impl<T: Setting> Setting for Option<T> {
    const SECRET: bool = T::SECRET;
    fn kind() -> String {
        format!("{}, optional", T::kind())
    }
    fn allowed() -> String {
        T::allowed()
    }
}

impl<T: Setting> Setting for Vec<T> {
    const SECRET: bool = T::SECRET;
    fn kind() -> String {
        format!("list of {}", T::kind())
    }
    fn allowed() -> String {
        T::allowed()
    }
}

impl<T: Setting> Setting for BTreeMap<String, T> {
    const SECRET: bool = T::SECRET;
    fn kind() -> String {
        format!("table of {}", T::kind())
    }
    fn allowed() -> String {
        T::allowed()
    }
}

/// Text that is never shown: not in errors, not in logs, not in a dump of the configuration. Wiped when it
/// is dropped.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(secret)")
    }
}

impl Setting for Secret {
    const SECRET: bool = true;
    fn kind() -> String {
        "secret text".to_owned()
    }
}

/// Whether a value lies in the declared range.
pub type InRange<T> = fn(&T) -> bool;

/// Builds the declaration of one key. Called by [`settings!`](crate::settings).
pub fn key<T: Setting + 'static>(
    name: &str,
    doc: &[&str],
    default: &T,
    range: Option<(String, InRange<T>)>,
    apply: Apply,
) -> KeyDecl {
    let (allowed, in_range): (_, InRange<T>) = range.unwrap_or((T::allowed(), |_| true));
    let expected = match allowed.as_str() {
        "" => T::kind(),
        allowed => format!("{}: {allowed}", T::kind()),
    };
    let check = move |value: &toml::Value| match value.clone().try_into::<T>() {
        Ok(value) if in_range(&value) => Ok(()),
        Ok(_) => Err(format!("expected {expected}")),
        // serde's own words say which part of a compound value is wrong.
        Err(error) => {
            let why = error.message().lines().next().unwrap_or_default();
            Err(format!("expected {expected} ({why})"))
        }
    };
    KeyDecl {
        name: name.to_owned(),
        kind: T::kind(),
        unit: unit_of(name),
        default: match toml::Value::try_from(default) {
            Ok(value) => value.to_string(),
            Err(_) => String::new(),
        },
        doc: doc
            .iter()
            .map(|line| line.trim())
            .collect::<Vec<_>>()
            .join(" "),
        allowed,
        apply,
        secret: T::SECRET,
        check: std::sync::Arc::new(check),
    }
}

/// The keys of a group, under the name of the section it sits in. Called by [`settings!`](crate::settings).
pub fn section<T: Settings>(name: &str) -> Vec<KeyDecl> {
    let mut keys = T::keys();
    for key in &mut keys {
        key.name = format!("{name}.{}", key.name);
    }
    keys
}

fn unit_of(name: &str) -> &'static str {
    const UNITS: [(&str, &str); 7] = [
        ("_ms", "milliseconds"),
        ("_secs", "seconds"),
        ("_bytes", "bytes"),
        ("_ratio", "times"),
        ("rps_limit", "requests per second"),
        ("_ops", "operations"),
        ("_percent", "percent"),
    ];
    let unit = UNITS.iter().find(|(end, _)| name.ends_with(end));
    unit.map_or("", |(_, unit)| unit)
}

/// Declares a group of keys: a serde struct with its defaults, ranges and docs.
///
/// ```
/// ron_core::settings! {
///     /// How the audit log is kept.
///     pub struct AuditConfig {
///         /// Operations between two checkpoints.
///         checkpoint_every_ops: u64 = 1_000 => 1..=1_000_000;
///         /// Events that may wait to be written.
///         queue_cap: usize = 2_048 => 1..=65_536, restart;
///     }
/// }
/// ron_core::settings! {
///     pub struct Config {
///         /// Where to listen.
///         bind: std::net::SocketAddr = ([127, 0, 0, 1], 7000).into(), restart;
///         audit: AuditConfig;
///     }
/// }
/// ```
/// `name: Type = default => range, restart;` — the range and `restart` are optional; a field without a
/// default is a section, whose own keys follow after a dot.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident : $ty:ty $(= $default:expr $(=> $range:expr)? $(, $flag:ident)? )? ;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $name {
            $( $(#[doc = $doc])* pub $field: $ty, )+
        }

        impl ::core::default::Default for $name {
            fn default() -> Self {
                $name {
                    $( $field: $crate::__settings_default!($ty $(, $default)?), )+
                }
            }
        }

        impl $crate::config::Settings for $name {
            fn keys() -> ::std::vec::Vec<$crate::config::KeyDecl> {
                let mut keys = ::std::vec::Vec::new();
                $( $crate::__settings_key!(
                    keys, $field, $ty, [$($doc),*]
                    $(, $default, [$($range)?], [$($flag)?])?
                ); )+
                keys
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __settings_default {
    ($ty:ty) => {
        <$ty as ::core::default::Default>::default()
    };
    ($ty:ty, $default:expr) => {
        $default
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __settings_key {
    ($keys:ident, $field:ident, $ty:ty, [$($doc:literal),*]) => {
        $keys.extend($crate::config::section::<$ty>(stringify!($field)))
    };
    ($keys:ident, $field:ident, $ty:ty, [$($doc:literal),*], $default:expr, [], [$($flag:ident)?]) => {
        $crate::__settings_key!(
            $keys, $field, $ty, [$($doc),*], $default,
            [::core::option::Option::None; ], [$($flag)?]
        )
    };
    ($keys:ident, $field:ident, $ty:ty, [$($doc:literal),*], $default:expr, [$range:expr], [$($flag:ident)?]) => {
        $crate::__settings_key!(
            $keys, $field, $ty, [$($doc),*], $default,
            [::core::option::Option::Some((
                ::std::format!("{:?}", $range),
                |value: &$ty| ($range).contains(value),
            )); ], [$($flag)?]
        )
    };
    ($keys:ident, $field:ident, $ty:ty, [$($doc:literal),*], $default:expr, [$range:expr; ], [$($flag:ident)?]) => {{
        let default: $ty = $default;
        $keys.push($crate::config::key::<$ty>(
            stringify!($field),
            &[$($doc),*],
            &default,
            $range,
            $crate::__settings_apply!($($flag)?),
        ))
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __settings_apply {
    () => {
        $crate::config::Apply::Live
    };
    (restart) => {
        $crate::config::Apply::Restart
    };
}

/// Declares a key type with a few named values.
///
/// ```
/// ron_core::choices! {
///     /// What happens when the audit log cannot keep up.
///     pub enum AuditPolicy { Bounded = "bounded", Strict = "strict" }
/// }
/// ```
#[macro_export]
macro_rules! choices {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $( $(#[$doc:meta])* $variant:ident = $text:literal ),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ::serde::Serialize, ::serde::Deserialize
        )]
        $vis enum $name {
            $( $(#[$doc])* #[serde(rename = $text)] $variant, )+
        }

        #[allow(dead_code, reason = "not every choice is shown")]
        impl $name {
            /// As it is written in a configuration.
            pub const fn name(self) -> &'static str {
                match self {
                    $( $name::$variant => $text, )+
                }
            }
        }

        impl $crate::config::Setting for $name {
            fn kind() -> ::std::string::String {
                "choice".to_owned()
            }
            fn allowed() -> ::std::string::String {
                [$($text),+].join(" | ")
            }
        }
    };
}
