//! Verifying: signatures that were answered, right and wrong in one way.
//!
//! A signature that does not verify is no error; a version that may not be asked any more is. Always: a signature counts
//! for its message, its version and its algorithm alone, and a hybrid's for both halves.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use super::{
    Session, binary,
    reference::Signed,
    reference_to,
    refusal::refusal,
    signing::{Input, hash},
    wire::{Ask, Verdict},
};

/// What is asked of a signature, and whether it is to hold as far as that goes.
struct Asked {
    kid: String,
    version: Option<u32>,
    input: Input,
    sigs: Value,
    holds: bool,
}

pub async fn verify(s: &mut Session<'_>) -> Verdict {
    let Some(last) = (s.it.signed.len() as u64).checked_sub(1) else {
        return Ok(());
    };
    let at = s.pick(0, last) as usize;
    let signed = s.it.signed[at].clone();
    let asked = draw(s, &signed);
    check(s, &asked, &signed).await
}

/// A version as it was named when it signed.
pub async fn verify_named(s: &mut Session<'_>, signed: &Signed) -> Verdict {
    let asked = Asked::right(signed);
    check(s, &asked, signed).await
}

impl Asked {
    fn right(signed: &Signed) -> Asked {
        Asked {
            kid: signed.kid.clone(),
            version: Some(signed.version),
            input: Input {
                message: signed.message.clone(),
                prehash: None,
            },
            sigs: signed.sigs.clone(),
            holds: true,
        }
    }

    fn wrong(mut self) -> Asked {
        self.holds = false;
        self
    }
}

fn draw(s: &mut Session<'_>, signed: &Signed) -> Asked {
    let mut asked = Asked::right(signed);
    let parts = signed.sigs.as_array().map_or(0, Vec::len) as u64;
    let at = s.pick(0, parts.max(1) - 1) as usize;
    match s.pick(0, 15) {
        0..4 => asked,
        4 => {
            asked.version = s.draw_version(&signed.kid);
            asked
        }
        5 => {
            asked.kid = s.draw_key(|_| true);
            asked.holds = asked.kid == signed.kid;
            asked
        }
        6 => {
            asked.input.message.push(0);
            asked.wrong()
        }
        7 => with_sig(asked, at, |bytes| bytes.truncate(bytes.len() - 1)).wrong(),
        8 => with_sig(asked, at, |bytes| bytes.push(0)).wrong(),
        9 => {
            let bit = s.pick(0, 400);
            let flip = |bytes: &mut Vec<u8>| {
                let place = (bit / 8) as usize % bytes.len().max(1);
                bytes[place] ^= 1 << (bit % 8);
            };
            with_sig(asked, at, flip).wrong()
        }
        10 => {
            let labels = [
                "ed25519",
                "ecdsa-p256",
                "rsa-pss-3072",
                "aes-256-gcm",
                "x-wing",
            ];
            let label = s.one_of(&labels);
            asked.holds = asked.sigs[at]["alg"] == label;
            asked.sigs[at]["alg"] = json!(label);
            asked
        }
        11 if parts == 2 => {
            asked.sigs = json!([asked.sigs[at]]);
            asked.wrong()
        }
        12 if parts == 2 => {
            asked.sigs = json!([asked.sigs[at], asked.sigs[at]]);
            asked.wrong()
        }
        // Their order says nothing.
        13 if parts == 2 => {
            asked.sigs = json!([asked.sigs[1], asked.sigs[0]]);
            asked
        }
        11 | 12 => {
            asked.sigs = json!([asked.sigs[0], asked.sigs[0]]);
            asked.wrong()
        }
        13 => with_sig(asked, at, Vec::clear).wrong(),
        _ => {
            let name = s.one_of(&["sha-256", "sha-384"]);
            let digest = hash(name, &asked.input.message);
            asked.input.prehash = Some((name, digest));
            asked
        }
    }
}

fn with_sig(mut asked: Asked, at: usize, change: impl FnOnce(&mut Vec<u8>)) -> Asked {
    let mut bytes = binary(&asked.sigs[at]["sig"]).unwrap_or_default();
    change(&mut bytes);
    asked.sigs[at]["sig"] = json!(B64.encode(&bytes));
    asked
}

async fn check(s: &mut Session<'_>, asked: &Asked, signed: &Signed) -> Verdict {
    let mut body = asked.input.json();
    body["kid"] = json!(reference_to(&asked.kid, asked.version));
    body["sigs"] = asked.sigs.clone();
    let now = s.wire.now_ms();
    let plan = s.it.find(&s.caller, &asked.kid).and_then(|key| {
        let version = key.meant(asked.version);
        key.may_verify("sign", version, now)?;
        match asked.input.is_taken_by(key.alg) {
            true => Ok(version),
            false => Err(refusal("prehash_invalid")),
        }
    });
    let answer = s
        .send(Ask::post("/v1/kms/verify", &body), plan.is_ok())
        .await?;
    let version = match plan {
        Err(refused) => return s.refuse(&answer, Some("verify"), &refused),
        Ok(version) => version,
    };
    s.it.counts.operation("verify", "ok");
    let valid = asked.holds && version == signed.version;
    let name = reference_to(&asked.kid, Some(version));
    answer.done(200, &json!({ "valid": valid, "kid": name }), &[])
}
