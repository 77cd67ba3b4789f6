//! One token against one key-set: form, algorithm, signature, issuer and audience; then its times.
//!
//! The library checks the signature alone. Times are ours because it would read the system clock, the
//! algorithm because a token must never choose how it is checked: its key does.

use std::{
    str::FromStr,
    time::{Duration, SystemTime},
};

use jsonwebtoken::Algorithm;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use super::{
    AuthError, Identity, KeySet, KidHash, MAX_LEEWAY, MAX_SCOPES, Passport, TokenType, Via,
};

/// A token whose signature, issuer and audience are right; its times are checked at every use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verified {
    pub identity: Identity,
    /// Unix time.
    pub expires_ms: u64,
    /// Neither before its `nbf` nor before it was issued.
    pub not_before_ms: u64,
}

impl Verified {
    pub fn check_time(&self, now: SystemTime, leeway: Duration) -> Result<(), AuthError> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis() as u64;
        let leeway = leeway.min(MAX_LEEWAY).as_millis() as u64;
        if now >= self.expires_ms + leeway {
            return Err(AuthError::Expired);
        }
        if now + leeway < self.not_before_ms {
            return Err(AuthError::NotYetValid);
        }
        Ok(())
    }
}

/// Longer tokens are refused before anything looks into them.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// What else a header says about keys (`jwk`, `jku`, `x5u`, `x5c`) is the sender's word, and is not read.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iss: String,
    aud: OneOrMany,
    exp: NumericDate,
    nbf: Option<NumericDate>,
    iat: Option<NumericDate>,
    tenant: Option<String>,
    scope: Option<OneOrMany>,
    /// Claims that only tokens for other ends carry: ID tokens, logout tokens, refresh tokens.
    at_hash: Option<IgnoredAny>,
    c_hash: Option<IgnoredAny>,
    events: Option<IgnoredAny>,
    typ: Option<String>,
    token_use: Option<String>,
}

/// Seconds since 1970, fractions allowed (RFC 7519), within the years that people write.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct NumericDate {
    ms: u64,
}

/// The end of the year 9999.
const LAST_SECOND: f64 = 253_402_300_799.0;

impl TryFrom<f64> for NumericDate {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        let sane = (0.0..=LAST_SECOND).contains(&seconds);
        let ms = (seconds * 1000.0) as u64;
        sane.then_some(NumericDate { ms }).ok_or("no date")
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

pub(super) fn verify(token: &str, p: &Passport, keys: &KeySet) -> Result<Verified, AuthError> {
    let (message, signature) = token.rsplit_once('.').ok_or(AuthError::MalformedToken)?;
    let header = header(token)?;
    let (_, claims) = message.split_once('.').ok_or(AuthError::MalformedToken)?;
    // Four parts are an encrypted token or a trick; neither is ours.
    if claims.contains('.') {
        return Err(AuthError::MalformedToken);
    }
    // An extension that must be understood, and is not.
    if header.crit.is_some() {
        return Err(AuthError::MalformedToken);
    }
    if header.alg.eq_ignore_ascii_case("none") {
        return Err(AuthError::AlgNone);
    }
    let alg = Algorithm::from_str(&header.alg).map_err(|_| AuthError::AlgUnknown)?;
    if !p.types.iter().any(|t| t.fits(header.typ.as_deref())) {
        return Err(AuthError::WrongType);
    }
    if keys.is_empty() {
        return Err(AuthError::NoKeys);
    }
    let kid = header.kid.ok_or(AuthError::UnknownKid)?;
    let key = keys.get(&kid).ok_or(AuthError::UnknownKid)?;
    if !key.allows(alg) {
        return Err(AuthError::AlgKeyMismatch);
    }
    if !p.algorithms.iter().any(|a| a.name() == header.alg) {
        return Err(AuthError::AlgUnknown);
    }
    match jsonwebtoken::crypto::verify(signature, message.as_bytes(), key.decoding(), alg) {
        Ok(true) => {}
        _ => return Err(AuthError::BadSignature),
    }
    accept(part(claims)?, p)
}

/// The key that the token names, for one that was refused because nobody knew it.
pub(super) fn named_kid(token: &str) -> Option<KidHash> {
    header(token).ok()?.kid.map(|kid| KidHash::of(&kid))
}

fn header(token: &str) -> Result<Header, AuthError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(AuthError::MalformedToken);
    }
    let (header, _) = token.split_once('.').ok_or(AuthError::MalformedToken)?;
    part(header)
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
    if claims.is_for_another_end() {
        return Err(AuthError::WrongType);
    }
    if claims.sub.is_empty() {
        return Err(AuthError::MalformedToken);
    }
    let scopes = match claims.scope {
        None => Vec::new(),
        Some(OneOrMany::Many(all)) => all,
        Some(OneOrMany::One(text)) => text.split_whitespace().map(str::to_owned).collect(),
    };
    let begins = claims.nbf.iter().chain(&claims.iat).map(|date| date.ms);
    Ok(Verified {
        identity: Identity {
            subject: claims.sub,
            tenant: claims.tenant,
            scopes: scopes.into_iter().take(MAX_SCOPES).collect(),
            via: Via::Passport,
        },
        expires_ms: claims.exp.ms,
        not_before_ms: begins.max().unwrap_or(0),
    })
}

impl Claims {
    /// Issuers sign ID, logout and refresh tokens with the same keys, and not all say so in the header.
    fn is_for_another_end(&self) -> bool {
        let said = |claim: &Option<String>, words: &[&str]| {
            let said = claim.as_deref().unwrap_or_default();
            words.iter().any(|word| said.eq_ignore_ascii_case(word))
        };
        self.at_hash.is_some()
            || self.c_hash.is_some()
            || self.events.is_some()
            || said(&self.typ, &["ID", "Refresh", "Logout"])
            || said(&self.token_use, &["id"])
    }
}

impl TokenType {
    fn fits(self, typ: Option<&str>) -> bool {
        let Some(typ) = typ else {
            return self == TokenType::Absent;
        };
        // RFC 7515 allows a media type's `application/` to be left out.
        let (place, short) = typ.split_once('/').unwrap_or(("application", typ));
        self != TokenType::Absent
            && place.eq_ignore_ascii_case("application")
            && short.eq_ignore_ascii_case(self.name())
    }
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
