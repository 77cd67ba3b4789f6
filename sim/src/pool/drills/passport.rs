//! Signed tokens at the gate: one that is right in all is let in, and one that is wrong in a single thing is refused for
//! just that; new keys end the tokens of the old.

use std::time::{Duration, SystemTime};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header};
use ron_core::{
    auth::{AuthError, Gate, KeySet, Mode, Passport},
    telemetry::Telemetry,
};
use serde_json::{Value, json};

use super::{Bench, Verdict, agree};

const ISSUER: &str = "https://issuer.drill";
const AUDIENCE: &str = "pool";
const LEEWAY: u64 = 30;

/// What is wrong with a token, if anything.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    None,
    Expired,
    NotYet,
    Issuer,
    Audience,
    Signature,
    Unsigned,
    Algorithm,
    OtherKey,
    Nobody,
    Torn,
}

const FLAWS: [(Flaw, Option<AuthError>); 11] = [
    (Flaw::None, None),
    (Flaw::Expired, Some(AuthError::Expired)),
    (Flaw::NotYet, Some(AuthError::NotYetValid)),
    (Flaw::Issuer, Some(AuthError::IssuerMismatch)),
    (Flaw::Audience, Some(AuthError::AudienceMismatch)),
    (Flaw::Signature, Some(AuthError::BadSignature)),
    (Flaw::Unsigned, Some(AuthError::AlgNone)),
    (Flaw::Algorithm, Some(AuthError::AlgKeyMismatch)),
    (Flaw::OtherKey, Some(AuthError::UnknownKid)),
    (Flaw::Nobody, Some(AuthError::MalformedToken)),
    (Flaw::Torn, Some(AuthError::MalformedToken)),
];

pub fn drill(bench: &mut Bench) -> Verdict {
    let passport = Passport {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        leeway: Duration::from_secs(LEEWAY),
        ..Passport::default()
    };
    let gate = Gate::new(Mode::Passport(passport), &Telemetry::new("drill", ""));
    let (first, second) = (Key::draw(bench, "k1"), Key::draw(bench, "k2"));
    let wall = bench.env.wall();
    let good = first.token(Flaw::None, seconds(wall));
    let check = |token: &str, wall| {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        headers.insert(header::AUTHORIZATION, value.expect("tokens are text"));
        gate.check(&headers, None, wall).map(|who| who.subject)
    };
    agree("without keys", check(&good, wall), Err(AuthError::NoKeys))?;
    gate.set_keys(first.set()?);
    agree("a good token", check(&good, wall), Ok("ada".to_owned()))?;
    // A signature costs more than a whole other drill.
    for (flaw, refusal) in bench.shuffled(&FLAWS).into_iter().take(4) {
        let token = first.token(flaw, seconds(wall));
        let expected = refusal.map_or(Ok("ada".to_owned()), Err);
        agree(&format!("{flaw:?}"), check(&token, wall), expected)?;
    }
    let nobody = gate.check(&HeaderMap::new(), None, wall);
    let nobody = nobody.map(|who| who.subject);
    agree("no token", nobody, Err(AuthError::MissingCredentials))?;
    // It is known by now, and still judged by its time at every use.
    let (last, over) = (LIFE + LEEWAY - 1, LIFE + LEEWAY);
    let later = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds(wall) + s);
    agree(
        "in its last second",
        check(&good, later(last)),
        Ok("ada".to_owned()),
    )?;
    agree(
        "after it",
        check(&good, later(over)),
        Err(AuthError::Expired),
    )?;
    gate.set_keys(second.set()?);
    agree(
        "under new keys",
        check(&good, wall),
        Err(AuthError::UnknownKid),
    )?;
    let new = second.token(Flaw::None, seconds(wall));
    agree("by the new key", check(&new, wall), Ok("ada".to_owned()))?;
    gate.set_keys(KeySet::default());
    agree("keys taken away", check(&new, wall), Err(AuthError::NoKeys))
}

fn seconds(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// A token is good for so long from its issue on.
const LIFE: u64 = 100;

struct Key {
    pair: Ed25519KeyPair,
    kid: &'static str,
}

impl Key {
    fn draw(bench: &mut Bench, kid: &'static str) -> Key {
        let seed = [(); 32].map(|()| bench.pick(0, 255) as u8);
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a seed");
        Key { pair, kid }
    }

    fn set(&self) -> Result<KeySet, String> {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": x});
        let set = json!({ "keys": [jwk] }).to_string();
        KeySet::parse(set.as_bytes()).map_err(|error| format!("keys: {error}"))
    }

    fn token(&self, flaw: Flaw, now: u64) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut header = json!({"alg": "EdDSA", "kid": self.kid});
        let mut claims = json!({"sub": "ada", "iss": ISSUER, "aud": AUDIENCE, "exp": now + LIFE});
        match flaw {
            Flaw::Expired => claims["exp"] = json!(now - LEEWAY),
            Flaw::NotYet => claims["nbf"] = json!(now + LEEWAY + 2),
            Flaw::Issuer => claims["iss"] = json!("https://other.drill"),
            Flaw::Audience => claims["aud"] = json!(["other"]),
            Flaw::Unsigned => header["alg"] = json!("none"),
            Flaw::Algorithm => header["alg"] = json!("ES256"),
            Flaw::OtherKey => header["kid"] = json!("k9"),
            Flaw::Nobody => claims["sub"] = json!(""),
            Flaw::None | Flaw::Signature | Flaw::Torn => {}
        }
        let message = format!("{}.{}", part(header), part(claims));
        let mut signature = self.pair.sign(message.as_bytes()).as_ref().to_vec();
        if matches!(flaw, Flaw::Signature) {
            signature[5] ^= 1;
        }
        match flaw {
            Flaw::Torn => message,
            _ => format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)),
        }
    }
}
