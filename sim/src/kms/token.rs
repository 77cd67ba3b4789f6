//! Tokens as clients bring them: good ones, and wrong in one way each, with the facts of what they are.
//!
//! They are put together by hand, not by the library that reads them. Always: the facts say all that a verdict
//! depends on; bytes of signatures stay in the token.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    issuer::schedule::{FOR_ENCRYPTION, SHARED, STRAY, Schedule, kid},
    seed::{self, SimRng},
};

/// What a token says and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub kind: String,
    /// As `Authorization` has it; no token at all if empty.
    pub scheme: String,
    pub alg: String,
    pub kid: Option<String>,
    /// Signed by the key it names, and whole since.
    pub sound: bool,
    /// Longer than anybody reads, or not in three parts, or with an extension that nobody knows.
    pub misshapen: bool,
    /// Its claims lack what every token has.
    pub senseless: bool,
    pub issuer: String,
    pub audience: Vec<String>,
    pub exp: Option<u64>,
    pub nbf: Option<u64>,
    pub tenant: Option<String>,
    pub scopes: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub facts: Facts,
    /// As `Authorization` has it.
    pub text: String,
}

/// The service that tokens are made for, and the moment.
pub struct Occasion<'a> {
    pub schedule: &'a Schedule,
    /// Of the world.
    pub at: Duration,
    /// By the service's own clock, in seconds.
    pub wall_s: u64,
    pub leeway_s: u64,
    pub issuer: &'a str,
    pub audience: &'a str,
    pub tenant: &'a str,
}

/// All but the last few are refused, each for a reason of its own.
pub const WRONG: &[&str] = &[
    "expired_long_ago",
    "beyond_leeway",
    "not_yet",
    "other_issuer",
    "other_audience",
    "unsigned",
    "unknown_algorithm",
    "signature_changed",
    "signature_missing",
    "claims_changed",
    "never_published",
    "withdrawn",
    "stray",
    "for_encryption",
    "shared_secret",
    "public_as_secret",
    "signed_by_another",
    "nameless",
    "without_expiry",
    "without_subject",
    "critical",
    "too_long",
    "two_parts",
    "no_token",
    "not_bearer",
    "withdrawn",
    "beyond_leeway",
    "not_yet",
    "within_leeway",
    "nearly_valid",
    "among_audiences",
    "newest",
    "in_any_case",
];

impl Occasion<'_> {
    /// A good token with these scopes, for so many seconds from now.
    pub fn good(&self, scopes: &[&str], lasts_s: u64, rng: &mut SimRng) -> Token {
        let published: Vec<usize> = self.schedule.published(self.at).collect();
        let key = published[seed::pick(rng, 0, published.len() as u64 - 1) as usize];
        let facts = self.facts("good", scopes, lasts_s, &kid(key));
        self.sealed(facts)
    }

    /// A good token that names no tenant.
    pub fn of_nobody(&self, scopes: &[&str], rng: &mut SimRng) -> Token {
        let Token { mut facts, .. } = self.good(scopes, 600, rng);
        facts.tenant = None;
        self.sealed(facts)
    }

    /// One of [`WRONG`].
    pub fn wrong(&self, kind: &str, scopes: &[&str], rng: &mut SimRng) -> Token {
        let newest = self.schedule.published(self.at).last().unwrap_or(0);
        let some_s = seed::pick(rng, 1, 4);
        let mut facts = self.facts(kind, scopes, 600, &kid(newest));
        if kind != "newest" {
            // An older one is known already, if there is one.
            let first = self.schedule.published(self.at).next();
            facts.kid = Some(kid(first.unwrap_or(newest)));
        }
        match kind {
            "expired_long_ago" => {
                facts.exp = Some(self.wall_s - self.leeway_s - seed::pick(rng, 100, 100_000));
            }
            "beyond_leeway" => facts.exp = Some(self.wall_s - self.leeway_s - some_s),
            "within_leeway" => facts.exp = Some(self.wall_s - self.leeway_s + 2 + some_s),
            "not_yet" => facts.nbf = Some(self.wall_s + self.leeway_s + 3 + some_s),
            "nearly_valid" => {
                facts.nbf = Some((self.wall_s + self.leeway_s).saturating_sub(some_s))
            }
            "other_issuer" => facts.issuer = "https://another.test".to_owned(),
            "other_audience" => facts.audience = vec!["another".to_owned()],
            "among_audiences" => facts.audience.insert(0, "another".to_owned()),
            "unsigned" => return self.unsigned(facts),
            "unknown_algorithm" => facts.alg = "XY1".to_owned(),
            "signature_changed" | "signature_missing" | "claims_changed" => {
                return self.tampered(facts, rng);
            }
            "never_published" => facts.kid = Some(kid(100_000 + some_s as usize)),
            "withdrawn" => {
                let gone: Vec<usize> = self.schedule.withdrawn(self.at).take(3).collect();
                let Some(last) = gone.len().checked_sub(1) else {
                    return self.wrong("never_published", scopes, rng);
                };
                facts.kid = Some(kid(gone[seed::pick(rng, 0, last as u64) as usize]));
            }
            "stray" => facts.kid = Some(STRAY.to_owned()),
            "for_encryption" => facts.kid = Some(FOR_ENCRYPTION.to_owned()),
            "shared_secret" | "public_as_secret" => return self.by_secret(facts),
            "signed_by_another" => return self.by_another(facts),
            "nameless" => facts.kid = None,
            "without_expiry" => (facts.exp, facts.senseless) = (None, true),
            "without_subject" => facts.senseless = true,
            "critical" | "too_long" => facts.misshapen = true,
            "two_parts" => return cut(self.sealed(facts)),
            "no_token" => facts.scheme = String::new(),
            "not_bearer" => facts.scheme = "Basic".to_owned(),
            "in_any_case" => facts.scheme = "BEARER".to_owned(),
            _ => {}
        }
        self.sealed(facts)
    }

    fn facts(&self, kind: &str, scopes: &[&str], lasts_s: u64, kid: &str) -> Facts {
        Facts {
            kind: kind.to_owned(),
            scheme: "Bearer".to_owned(),
            alg: "EdDSA".to_owned(),
            kid: Some(kid.to_owned()),
            sound: true,
            misshapen: false,
            senseless: false,
            issuer: self.issuer.to_owned(),
            audience: vec![self.audience.to_owned()],
            exp: Some(self.wall_s + lasts_s),
            nbf: None,
            tenant: Some(self.tenant.to_owned()),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        }
    }

    /// Signed by the key that it names.
    fn sealed(&self, facts: Facts) -> Token {
        let by = facts.kid.clone().unwrap_or_else(|| kid(0));
        let message = message(&facts);
        let signature = self.schedule.pair(&by).sign(message.as_bytes());
        token(facts, &message, signature.as_ref())
    }

    fn unsigned(&self, mut facts: Facts) -> Token {
        (facts.alg, facts.sound) = ("none".to_owned(), false);
        let message = message(&facts);
        token(facts, &message, b"")
    }

    fn by_another(&self, mut facts: Facts) -> Token {
        facts.sound = false;
        let message = message(&facts);
        let signature = self.schedule.pair(STRAY).sign(message.as_bytes());
        token(facts, &message, signature.as_ref())
    }

    /// As if a key that anybody can read were a secret between the two.
    fn by_secret(&self, mut facts: Facts) -> Token {
        let secret = match facts.kind.as_str() {
            "shared_secret" => {
                facts.kid = Some(SHARED.to_owned());
                self.schedule.secret(SHARED).to_vec()
            }
            _ => self
                .schedule
                .public(facts.kid.as_deref().unwrap_or_default()),
        };
        facts.alg = "HS256".to_owned();
        let message = message(&facts);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let tag = hmac::sign(&key, message.as_bytes());
        token(facts, &message, tag.as_ref())
    }

    /// Changed after it was signed.
    fn tampered(&self, mut facts: Facts, rng: &mut SimRng) -> Token {
        let mut signed = message(&facts);
        let signature = self.schedule.pair(facts.kid.as_deref().unwrap_or_default());
        let mut signature = signature.sign(signed.as_bytes()).as_ref().to_vec();
        facts.sound = false;
        match facts.kind.as_str() {
            "signature_changed" => {
                let at = seed::pick(rng, 0, signature.len() as u64 - 1) as usize;
                signature[at] ^= 1 << seed::pick(rng, 0, 7);
            }
            "signature_missing" => signature.clear(),
            _ => {
                facts.scopes.push("ops:admin".to_owned());
                signed = message(&facts);
            }
        }
        token(facts, &signed, &signature)
    }
}

/// Header and claims, as they are signed.
fn message(facts: &Facts) -> String {
    let mut header = json!({ "typ": "JWT", "alg": facts.alg });
    if let Some(kid) = &facts.kid {
        header["kid"] = kid.as_str().into();
    }
    if facts.kind == "critical" {
        header["crit"] = json!(["b64"]);
    }
    let mut claims = json!({ "sub": "sim", "iss": facts.issuer, "scope": facts.scopes.join(" ") });
    claims["aud"] = match &facts.audience[..] {
        [one] => one.as_str().into(),
        many => json!(many),
    };
    for (name, value) in [("exp", facts.exp), ("nbf", facts.nbf)] {
        if let Some(seconds) = value {
            claims[name] = seconds.into();
        }
    }
    if let Some(tenant) = &facts.tenant {
        claims["tenant"] = tenant.as_str().into();
    }
    match facts.kind.as_str() {
        "without_subject" => claims["sub"] = "".into(),
        "too_long" => claims["pad"] = "x".repeat(9000).into(),
        _ => {}
    }
    let part = |value: &Value| B64.encode(value.to_string());
    format!("{}.{}", part(&header), part(&claims))
}

fn token(facts: Facts, message: &str, signature: &[u8]) -> Token {
    let text = format!("{} {message}.{}", facts.scheme, B64.encode(signature));
    Token { facts, text }
}

/// Without its last part.
fn cut(mut token: Token) -> Token {
    let end = token.text.rfind('.').unwrap_or(0);
    token.text.truncate(end);
    token.facts.misshapen = true;
    token
}
