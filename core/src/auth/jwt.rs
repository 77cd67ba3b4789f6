//! One token against one key-set: form, algorithm, signature, issuer and audience; then its times.
//!
//! The library checks the signature alone. Times are ours because it would read the system clock, the
//! algorithm because a token must never choose how it is checked: its key does.

use std::{
    str::FromStr,
    time::{Duration, SystemTime},
};

use jsonwebtoken::Algorithm;
use serde::{Deserialize, de::DeserializeOwned};

use super::{AuthError, Identity, KeySet, MAX_LEEWAY, MAX_SCOPES, Passport, Via};

/// A token whose signature, issuer and audience are right; its times are checked at every use.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    pub identity: Identity,
    /// Unix seconds.
    pub expires: f64,
    pub not_before: Option<f64>,
}

impl Verified {
    pub fn check_time(&self, now: SystemTime, leeway: Duration) -> Result<(), AuthError> {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let leeway = leeway.min(MAX_LEEWAY).as_secs_f64();
        if now >= self.expires + leeway {
            return Err(AuthError::Expired);
        }
        if self.not_before.is_some_and(|from| now + leeway < from) {
            return Err(AuthError::NotYetValid);
        }
        Ok(())
    }
}

/// Longer tokens are refused before anything looks into them.
const MAX_TOKEN_BYTES: usize = 8 << 10;

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iss: String,
    aud: OneOrMany,
    exp: f64,
    nbf: Option<f64>,
    tenant: Option<String>,
    scope: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

pub(super) fn verify(token: &str, p: &Passport, keys: &KeySet) -> Result<Verified, AuthError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(AuthError::MalformedToken);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(AuthError::MalformedToken)?;
    let (header, claims) = message.split_once('.').ok_or(AuthError::MalformedToken)?;
    // Four parts are an encrypted token or a trick; neither is ours.
    if claims.contains('.') {
        return Err(AuthError::MalformedToken);
    }
    let header: Header = part(header)?;
    // An extension that must be understood, and is not.
    if header.crit.is_some() {
        return Err(AuthError::MalformedToken);
    }
    if header.alg.eq_ignore_ascii_case("none") {
        return Err(AuthError::AlgNone);
    }
    let alg = Algorithm::from_str(&header.alg).map_err(|_| AuthError::AlgUnknown)?;
    if keys.is_empty() {
        return Err(AuthError::NoKeys);
    }
    let kid = header.kid.ok_or(AuthError::UnknownKid)?;
    let key = keys.get(&kid).ok_or(AuthError::UnknownKid)?;
    if !key.allows(alg) {
        return Err(AuthError::AlgKeyMismatch);
    }
    match jsonwebtoken::crypto::verify(signature, message.as_bytes(), key.decoding(), alg) {
        Ok(true) => {}
        _ => return Err(AuthError::BadSignature),
    }
    accept(part(claims)?, p)
}

fn accept(claims: Claims, p: &Passport) -> Result<Verified, AuthError> {
    if claims.iss != p.issuer {
        return Err(AuthError::IssuerMismatch);
    }
    let for_us = match &claims.aud {
        OneOrMany::One(aud) => *aud == p.audience,
        OneOrMany::Many(all) => all.contains(&p.audience),
    };
    if !for_us {
        return Err(AuthError::AudienceMismatch);
    }
    let finite = claims.exp.is_finite() && claims.nbf.is_none_or(f64::is_finite);
    if claims.sub.is_empty() || !finite {
        return Err(AuthError::MalformedToken);
    }
    let scopes = match claims.scope {
        None => Vec::new(),
        Some(OneOrMany::Many(all)) => all,
        Some(OneOrMany::One(text)) => text.split_whitespace().map(str::to_owned).collect(),
    };
    Ok(Verified {
        identity: Identity {
            subject: claims.sub,
            tenant: claims.tenant,
            scopes: scopes.into_iter().take(MAX_SCOPES).collect(),
            via: Via::Passport,
        },
        expires: claims.exp,
        not_before: claims.nbf,
    })
}

fn part<T: DeserializeOwned>(text: &str) -> Result<T, AuthError> {
    let bytes = base64url(text).ok_or(AuthError::MalformedToken)?;
    serde_json::from_slice(&bytes).map_err(|_| AuthError::MalformedToken)
}

/// Base64url without padding. Bits that encode nothing must be zero: one value, one text.
pub(super) fn base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0u32, 0);
    for c in text.bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (held < 6 && bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_has_one_text_per_value() {
        let cases: [(&str, Option<&[u8]>); 10] = [
            ("", Some(b"")),
            ("Zg", Some(b"f")),
            ("Zm8", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("-_8", Some(&[0xfb, 0xff])),
            ("Zg==", None),
            ("Zh", None),
            ("Z", None),
            ("Zm9vZ", None),
            ("+/8", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(base64url(text).as_deref(), bytes, "{text}");
        }
    }
}
