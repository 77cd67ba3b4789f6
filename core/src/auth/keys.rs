//! A snapshot of an issuer's public keys, read from its JWKS document.
//!
//! Always: a key knows which algorithms it may be used with, by its own type; symmetric keys are never
//! accepted (whoever can read them could sign); a set is bounded in keys, its document where it is [fetched](super::fetch).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use super::jwt::base64url;

#[derive(Clone, Default)]
pub struct KeySet {
    keys: BTreeMap<String, Key>,
    /// Which set this is, counted by the gate: tokens verified under another one do not count.
    pub(super) generation: u64,
    /// When they came from the issuer: a refresher that is started again must not trust them any longer than the first.
    pub(super) fetched_at: Option<Instant>,
}

#[derive(Clone)]
pub(super) struct Key {
    decoding: DecodingKey,
    algorithms: Vec<Algorithm>,
}

/// A key id, short enough to remember many that strangers made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KidHash([u8; 16]);

impl KidHash {
    pub fn of(kid: &str) -> Self {
        let mut short = [0; 16];
        let hash = blake3::hash(kid.as_bytes());
        short.copy_from_slice(&hash.as_bytes()[..16]);
        KidHash(short)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    #[error("not a JWKS document: {0}")]
    Malformed(String),
    #[error("more than {MAX_KEYS} keys")]
    TooManyKeys,
    #[error("key id `{0}` occurs twice")]
    DuplicateKid(String),
    #[error("no usable key among {0}")]
    NoUsableKey(usize),
}

const MAX_KEYS: usize = 32;
const MAX_KID_BYTES: usize = 256;

/// Fields beyond these are legion in the wild and mean nothing to us.
#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Keys of unknown kinds are passed over, as an issuer may add some for others.
    pub fn parse(document: &[u8]) -> Result<KeySet, JwksError> {
        let jwks: Jwks = serde_json::from_slice(document)
            .map_err(|error| JwksError::Malformed(error.to_string()))?;
        let total = jwks.keys.len();
        if total > MAX_KEYS {
            return Err(JwksError::TooManyKeys);
        }
        let mut keys = BTreeMap::new();
        for jwk in jwks.keys {
            let Some((kid, key)) = usable(&jwk) else {
                continue;
            };
            if keys.insert(kid.clone(), key).is_some() {
                return Err(JwksError::DuplicateKid(kid));
            }
        }
        if keys.is_empty() {
            return Err(JwksError::NoUsableKey(total));
        }
        Ok(KeySet {
            keys,
            ..KeySet::default()
        })
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    pub(super) fn hashes(&self) -> BTreeSet<KidHash> {
        self.kids().map(KidHash::of).collect()
    }

    pub(super) fn get(&self, kid: &str) -> Option<&Key> {
        self.keys.get(kid)
    }
}

impl Key {
    pub(super) fn allows(&self, alg: Algorithm) -> bool {
        self.algorithms.contains(&alg)
    }

    pub(super) fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }
}

fn usable(jwk: &Jwk) -> Option<(String, Key)> {
    let kid = jwk
        .kid
        .as_ref()
        .filter(|kid| (1..=MAX_KID_BYTES).contains(&kid.len()))?;
    if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
        return None;
    }
    let (decoding, mut algorithms) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => (rsa(jwk)?, RSA.to_vec()),
        ("EC", Some("P-256")) => (ec(jwk, 32)?, vec![Algorithm::ES256]),
        ("EC", Some("P-384")) => (ec(jwk, 48)?, vec![Algorithm::ES384]),
        ("OKP", Some("Ed25519")) => {
            let x = base64url(jwk.x.as_deref()?).filter(|x| x.len() == 32)?;
            (DecodingKey::from_ed_der(&x), vec![Algorithm::EdDSA])
        }
        _ => return None,
    };
    if let Some(only) = &jwk.alg {
        algorithms.retain(|alg| format!("{alg:?}") == *only);
    }
    let key = Key {
        decoding,
        algorithms,
    };
    (!key.algorithms.is_empty()).then(|| (kid.clone(), key))
}

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

fn rsa(jwk: &Jwk) -> Option<DecodingKey> {
    let (n, e) = (base64url(jwk.n.as_deref()?)?, base64url(jwk.e.as_deref()?)?);
    // Shorter moduli can be factored; longer ones cost too much per check.
    let sound = (256..=1024).contains(&n.len()) && (1..=8).contains(&e.len());
    sound.then(|| DecodingKey::from_rsa_raw_components(&n, &e))
}

fn ec(jwk: &Jwk, bytes: usize) -> Option<DecodingKey> {
    let (x, y) = (jwk.x.as_deref()?, jwk.y.as_deref()?);
    let sound = |text: &str| base64url(text).is_some_and(|b| b.len() == bytes);
    if !(sound(x) && sound(y)) {
        return None;
    }
    DecodingKey::from_ec_components(x, y).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rsa_jwk(modulus_bytes: usize) -> Value {
        let n = "A".repeat(modulus_bytes.div_ceil(3) * 4);
        json!({"kty": "RSA", "kid": "r", "n": n, "e": "AQAB"})
    }

    fn ed(kid: &str) -> Value {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x})
    }

    fn with(mut jwk: Value, name: &str, value: &str) -> Value {
        jwk[name] = value.into();
        jwk
    }

    fn ec(curve: &str, bytes: usize) -> Value {
        let c = "A".repeat(bytes / 3 * 4) + ["", "AA", "AAA"][bytes % 3];
        json!({"kty": "EC", "crv": curve, "kid": "e", "x": c, "y": c})
    }

    fn parse(keys: Vec<Value>) -> Result<KeySet, JwksError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn a_key_is_bound_to_the_algorithms_of_its_own_type() {
        use Algorithm::*;
        let all = [
            HS256, HS384, HS512, ES256, ES384, RS256, RS384, RS512, PS256, PS384, PS512, EdDSA,
        ];
        let cases: [(Value, &[Algorithm]); 6] = [
            (rsa_jwk(258), &RSA),
            (with(rsa_jwk(258), "alg", "PS256"), &[PS256]),
            (ed("a"), &[EdDSA]),
            (with(ed("a"), "use", "sig"), &[EdDSA]),
            (ec("P-256", 32), &[ES256]),
            (ec("P-384", 48), &[ES384]),
        ];
        for (jwk, allowed) in cases {
            let set = parse(vec![jwk.clone()]).unwrap();
            let key = set.keys.values().next().unwrap();
            for alg in all {
                assert_eq!(key.allows(alg), allowed.contains(&alg), "{jwk} {alg:?}");
            }
        }
    }

    #[test]
    fn unusable_keys_are_passed_over() {
        let secret = json!({"kty": "oct", "kid": "s", "k": "c2VjcmV0"});
        let mut nameless = ed("a");
        nameless.as_object_mut().unwrap().remove("kid");
        let unusable = [
            secret,
            nameless,
            with(ed("a"), "use", "enc"),
            with(ed("a"), "alg", "HS256"),
            with(ed("a"), "x", "AAAA"),
            with(ed("a"), "kid", &"k".repeat(257)),
            with(ed("a"), "crv", "Ed448"),
            rsa_jwk(252),
            rsa_jwk(1026),
            ec("P-256", 48),
            ec("P-521", 32),
        ];
        for jwk in unusable {
            assert_eq!(
                parse(vec![jwk.clone()]).err(),
                Some(JwksError::NoUsableKey(1)),
                "{jwk}"
            );
            let both = parse(vec![jwk, ed("good")]).unwrap();
            assert_eq!(both.kids().collect::<Vec<_>>(), ["good"]);
        }
    }

    // proves: ADM-7.12
    #[test]
    fn a_set_is_bounded_and_has_each_key_once() {
        let many = |n: usize| parse((0..n).map(|i| ed(&i.to_string())).collect());
        assert_eq!(many(MAX_KEYS).unwrap().kids().count(), MAX_KEYS);
        assert_eq!(many(MAX_KEYS + 1).err(), Some(JwksError::TooManyKeys));
        assert_eq!(
            parse(vec![ed("a"), ed("a")]).err(),
            Some(JwksError::DuplicateKid("a".into()))
        );
        assert!(matches!(
            KeySet::parse(b"{}").err(),
            Some(JwksError::Malformed(_))
        ));
    }
}
