//! Imports: a secret made elsewhere, wrapped by a key of the service, becomes the head of another.
//!
//! What comes in is known here, so that its public key and its blobs can be foretold. Always: the blob is opened first,
//! and that is told in the log, whatever becomes of the import.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::json;

use super::{
    Session,
    changing::{self, KEYS},
    key::{Change, Imported},
    refusal::refusal,
    wire::{Ask, Verdict},
    wrapping::{self, Asked},
};

/// PKCS#8 around the seed of an Ed25519 key.
const BEFORE_SEED: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

pub async fn import(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|key| !key.alg.dear || key.head() < 3);
    let under = s.draw_key(|key| !key.alg.signs());
    let right = !s.one_in(4);
    let (plain, known) = draw_secret(s, &kid, right);
    let length = s.one_of(&[0, 6, 20]);
    let context = s.bytes(length);
    let wrapped = Asked::plainly(&under, &plain, &context)
        .carry_out(s)
        .await?;
    let Some(mut wrapped) = wrapped else {
        return Ok(());
    };
    let opens = !s.one_in(8);
    if !opens {
        let last = wrapped.blob.len() - 1;
        wrapped.blob[last] ^= 4;
    }
    let mut body = json!({ "wrapped": B64.encode(&wrapped.blob), "under": format!("{}#v{}", wrapped.kid, wrapped.version) });
    if !context.is_empty() || s.one_in(2) {
        body["context"] = json!(B64.encode(&context));
    }
    let ask = Ask::post(format!("{KEYS}/{kid}/import"), &body);
    let plan = s.it.find(&s.caller, &kid).map(|_| ());
    let served = plan.is_ok() && opens && known.is_some();
    let answer = s.send(ask, served).await?;
    if let Err(refused) = plan {
        return s.refuse(&answer, Some("import"), &refused);
    }
    if !wrapping::open(s, &wrapped, opens, Some(&answer)).await? {
        return Ok(());
    }
    match known {
        None => s.refuse(&answer, Some("import"), &refusal("secret_invalid")),
        Some(known) => changing::changed(s, &answer, "import", &kid, Change::Imported(known)),
    }
}

/// A secret for this key, and what is known of it; nothing if it is none that the key takes.
fn draw_secret(s: &mut Session<'_>, kid: &str, right: bool) -> (Vec<u8>, Option<Imported>) {
    let alg = s.it.keys.get(kid).map(|key| key.alg);
    let name = alg.map_or("", |alg| alg.name);
    let secret = s.bytes(32);
    match (name, right) {
        ("ed25519", true) => {
            let pair = Ed25519KeyPair::from_seed_unchecked(&secret).expect("any seed will do");
            let known = Imported {
                public: Some(pair.public_key().as_ref().to_vec()),
                secret: None,
            };
            ([BEFORE_SEED, &secret].concat(), Some(known))
        }
        ("aes-256-gcm" | "chacha20-poly1305" | "x-wing", true) => {
            let known = Imported {
                public: None,
                secret: Some(secret.clone()),
            };
            (secret, Some(known))
        }
        // Of another algorithm, of another length, or of one that no document can hold.
        ("aes-256-gcm" | "chacha20-poly1305" | "x-wing", false) => {
            let length = s.one_of(&[0, 31, 33]);
            (s.bytes(length), None)
        }
        ("ed25519", false) => (secret, None),
        _ => ([BEFORE_SEED, &secret].concat(), None),
    }
}
