//! An issuer for tests: one Ed25519 and one P-256 key, and tokens signed, or mis-signed, with them.

use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use serde_json::{Value, json};

use super::{Passport, jwt::base64url};

pub const ISSUER: &str = "https://issuer.test";
pub const AUDIENCE: &str = "svc";

/// What this issuer's tokens are for; no leeway.
pub fn passport() -> Passport {
    Passport {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        leeway: std::time::Duration::ZERO,
        ..Passport::default()
    }
}

pub fn ed_key(seed: u8) -> EncodingKey {
    // PKCS#8 around a raw Ed25519 seed.
    let mut der = vec![
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    der.extend([seed; 32]);
    EncodingKey::from_ed_der(&der)
}

pub fn ec_key() -> EncodingKey {
    // PKCS#8 of a P-256 key that was made for these tests.
    let der = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgLCjaWPuZhAWJ2JJHVjMwW0g0LZH7JKMFLvvuzrY6rzuhRANCAATahdlLmPxJB0SO4M-bDFSKACJSfXcXCzCdlh8Ux5MN85z7DkSXIwlL4DgX2Sh_AfWU7IcqvTtA-6hUBMmyFoVI";
    EncodingKey::from_ec_der(&base64url(der).unwrap())
}

/// A JWKS document with the given Ed25519 keys (kid `k<seed>`) and the P-256 one (kid `ec`).
pub fn jwks(seeds: &[u8]) -> Vec<u8> {
    let mut keys: Vec<Value> = Vec::new();
    let mut add = |key: &EncodingKey, alg, kid: &str| {
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(key, alg).unwrap()).unwrap();
        jwk["kid"] = kid.into();
        keys.push(jwk);
    };
    for seed in seeds {
        add(&ed_key(*seed), Algorithm::EdDSA, &format!("k{seed}"));
    }
    add(&ec_key(), Algorithm::ES256, "ec");
    json!({ "keys": keys }).to_string().into_bytes()
}

pub fn claims(exp: u64) -> Value {
    json!({
        "sub": "ada", "iss": ISSUER, "aud": AUDIENCE, "exp": exp,
        "tenant": "t1", "scope": "kms:sign ops:admin",
    })
}

pub fn token(alg: Algorithm, kid: &str, key: &EncodingKey, claims: &Value) -> String {
    let mut header = Header::new(alg);
    header.kid = Some(kid.to_owned());
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

/// A good token of the Ed25519 key with this seed.
pub fn good(seed: u8, exp: u64) -> String {
    token(
        Algorithm::EdDSA,
        &format!("k{seed}"),
        &ed_key(seed),
        &claims(exp),
    )
}
