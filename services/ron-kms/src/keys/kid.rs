//! Names of keys: `kid`, and `kid#vN` for one version of it.
//!
//! A kid is opaque and URL-safe: 22 characters, the unpadded base64url of 16 random bytes. One name has one
//! spelling: leading zeros, a sign, or stray bits in the last character are refused.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::Fill;

const KID_BYTES: usize = 16;
pub const KID_LEN: usize = 22;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kid(String);

/// One version of a key; versions count from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VersionedKid {
    kid: Kid,
    version: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKid {
    #[error("not a kid: {KID_LEN} characters of base64url without padding are allowed")]
    Kid,
    #[error("not a key version: <kid>#v<number from 1> is allowed")]
    Version,
}

impl Kid {
    pub fn random(fill: Fill<'_>) -> Kid {
        let mut bytes = [0; KID_BYTES];
        fill(&mut bytes);
        Kid(URL_SAFE_NO_PAD.encode(bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` for version 0, which no key has.
    pub fn version(&self, version: u32) -> Option<VersionedKid> {
        (version > 0).then(|| VersionedKid {
            kid: self.clone(),
            version,
        })
    }
}

impl VersionedKid {
    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    pub fn version(&self) -> u32 {
        self.version
    }
}

impl FromStr for Kid {
    type Err = BadKid;

    fn from_str(text: &str) -> Result<Kid, BadKid> {
        // The decoder refuses stray bits, so that no second spelling names the same key.
        let mut bytes = [0; KID_LEN];
        let canonical =
            text.len() == KID_LEN && URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).is_ok();
        match canonical {
            true => Ok(Kid(text.to_owned())),
            false => Err(BadKid::Kid),
        }
    }
}

impl FromStr for VersionedKid {
    type Err = BadKid;

    fn from_str(text: &str) -> Result<VersionedKid, BadKid> {
        let (kid, number) = text.split_once("#v").ok_or(BadKid::Version)?;
        let canonical = number.starts_with(|c: char| ('1'..='9').contains(&c));
        let version = number.parse().ok().filter(|_| canonical);
        Ok(VersionedKid {
            kid: kid.parse()?,
            version: version.ok_or(BadKid::Version)?,
        })
    }
}

impl fmt::Display for Kid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for VersionedKid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#v{}", self.kid, self.version)
    }
}

impl TryFrom<String> for Kid {
    type Error = BadKid;

    fn try_from(text: String) -> Result<Kid, BadKid> {
        text.parse()
    }
}

impl From<Kid> for String {
    fn from(kid: Kid) -> String {
        kid.0
    }
}

impl TryFrom<String> for VersionedKid {
    type Error = BadKid;

    fn try_from(text: String) -> Result<VersionedKid, BadKid> {
        text.parse()
    }
}

impl From<VersionedKid> for String {
    fn from(id: VersionedKid) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kid(bytes: [u8; KID_BYTES]) -> Kid {
        Kid::random(&mut |buf: &mut [u8]| buf.copy_from_slice(&bytes))
    }

    #[test]
    fn only_the_one_spelling_is_a_key_version() {
        let kid = kid([7; KID_BYTES]);
        let one = kid.version(1).unwrap();
        assert_eq!(one.to_string(), format!("{kid}#v1"));
        assert_eq!(kid.version(0), None);
        for tail in [
            "",
            "#",
            "#v",
            "#v0",
            "#v01",
            "#v+1",
            "#v-1",
            "#v1 ",
            "#V1",
            "v1",
            "#v4294967296",
            "#v1#v1",
        ] {
            let text = format!("{kid}{tail}");
            assert_eq!(text.parse::<VersionedKid>(), Err(BadKid::Version), "{text}");
        }
    }

    #[test]
    fn only_22_url_safe_characters_without_stray_bits_are_a_kid() {
        let good = kid([0xFF; KID_BYTES]).to_string();
        assert_eq!(good, "_____________________w");
        let stray = good.replace('w', "x");
        let standard = good.replace('_', "/");
        for bad in [
            "",
            "abc",
            &good[1..],
            &format!("{good}A"),
            &stray,
            &standard,
        ] {
            assert_eq!(bad.parse::<Kid>(), Err(BadKid::Kid), "{bad}");
            let versioned = format!("{bad}#v1");
            assert_eq!(versioned.parse::<VersionedKid>(), Err(BadKid::Kid));
        }
    }

    proptest! {
        #[test]
        fn names_read_back(bytes: [u8; KID_BYTES], version in 1u32..) {
            let id = kid(bytes).version(version).unwrap();
            prop_assert_eq!(id.to_string().parse(), Ok(id.clone()));
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<VersionedKid>(&json).unwrap(), id);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Ok(id) = text.parse::<VersionedKid>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
