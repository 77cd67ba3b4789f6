//! Evidence: what the service says of itself and of its keys, and that it is signed.
//!
//! A statement is compared word by word, but for times and sizes, which must fit. Always: all evidence is by one key.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

use super::{
    Session, binary,
    log::hex,
    reference::Using,
    reference_to,
    refusal::{Refusal, refusal},
    wire::{Answer, Ask, Verdict},
};
use crate::kms::plain_log::sha256;

/// The evidence that goes with answers: about the service, not about a key.
pub fn general(s: &mut Session<'_>, answer: &Answer, evidence: &Value) -> Verdict {
    let bare = evidence.as_object().is_some_and(|e| e.len() == 3);
    answer.must(bare, "evidence with a statement, sig and public")?;
    statement(s, answer, evidence, None).map(|_| ())
}

pub async fn attest(s: &mut Session<'_>) -> Verdict {
    let kid = s.draw_key(|_| true);
    let version = s.draw_version(&kid);
    let length = s.one_of(&[15, 16, 16, 33, 64, 64, 65]);
    let nonce = s.bytes(length);
    let body = json!({ "kid": reference_to(&kid, version), "nonce": B64.encode(&nonce) });
    let ask = Ask::post("/v1/kms/attest", &body);
    if !(16..=64).contains(&length) {
        let answer = s.send(ask, false).await?;
        return s.refuse(&answer, None, &Refusal::at("invalid_field", "nonce"));
    }
    // Whatever became of a version, there is something to say of it.
    let plan = s.it.find(&s.caller, &kid).and_then(|key| {
        let version = key.meant(version);
        let known = key.version(version).map(|_| version);
        known.ok_or_else(|| refusal("version_not_found"))
    });
    let answer = s.send(ask, plan.is_ok()).await?;
    let version = match plan {
        Err(refused) => return s.refuse(&answer, Some("attest"), &refused),
        Ok(version) => version,
    };
    s.it.counts.operation("attest", "ok");
    let using = Using {
        caller: &s.caller,
        action: "attest",
        kid: &kid,
        version,
        digests: vec![sha256(&[&nonce])],
        op_id: None,
        failed: None,
        mark: None,
    };
    s.it.used(&using, (answer.began_ms, answer.ended_ms));
    let came = &answer.json;
    let expected = json!({ "statement": came["statement"], "alg": "ed25519", "sig": came["sig"], "public": came["public"] });
    answer.done(200, &expected, &[])?;
    let key = &s.it.keys[&kid];
    let about =
        json!({ "kid": key.name(version), "alg": key.alg.name, "nonce": B64.encode(&nonce) });
    let told = statement(s, &answer, came, Some(about))?;
    check_public(s, &answer, &kid, version, &told["key"]["public_sha256"])
}

/// What is signed, word by word but for times and sizes, which must fit.
fn statement(
    s: &mut Session<'_>,
    answer: &Answer,
    evidence: &Value,
    about: Option<Value>,
) -> Verdict<Value> {
    let text = evidence["statement"].as_str().unwrap_or_default();
    let (sig, public) = (binary(&evidence["sig"]), binary(&evidence["public"]));
    let key = UnparsedPublicKey::new(&ED25519, public.unwrap_or_default());
    let holds = key.verify(text.as_bytes(), &sig.unwrap_or_default());
    answer.must(holds.is_ok(), "a statement that is signed")?;
    let public = evidence["public"].as_str().unwrap_or_default().to_owned();
    let known = s.it.attester.get_or_insert_with(|| public.clone());
    answer.must(*known == public, "evidence by the same key as ever")?;
    let told: Value = serde_json::from_str(text).unwrap_or_default();
    let mut expected = json!({
        "type": "ron-kms/attestation@1", "at_ms": told["at_ms"], "backend": "software",
        "extractable": true, "log": s.it.settings.origin, "log_size": told["log_size"],
    });
    match about {
        Some(mut about) => {
            answer.at(&told["at_ms"], "at_ms of the statement")?;
            about["public_sha256"] = told["key"]["public_sha256"].clone();
            expected["key"] = about;
        }
        None => {
            let old = told["at_ms"]
                .as_u64()
                .is_some_and(|at| at <= answer.ended_ms);
            answer.must(old, "evidence of the past")?;
        }
    }
    answer.must(told["log_size"].is_u64(), "the size of the log")?;
    match super::wire::difference("statement", &expected, &told) {
        None => Ok(told),
        Some(found) => answer.differs("another statement", found),
    }
}

/// The hash of the public key: of the one that was shown, of none, or the same as ever.
fn check_public(
    s: &mut Session<'_>,
    answer: &Answer,
    kid: &str,
    number: u32,
    told: &Value,
) -> Verdict {
    let told = told.as_str().unwrap_or("?").to_owned();
    let key = s.it.keys.get_mut(kid).expect("it was found");
    let (signs, counts) = (key.alg.signs(), key.alg.counts_nonces);
    let version = key.version_mut(number).expect("it was found");
    let shown = version.public.as_ref().filter(|_| signs);
    let expected = match shown {
        Some(public) => hex(&sha256(&[public])),
        None if counts => String::new(),
        None => {
            answer.must(told.len() == 64, "the hash of a public key")?;
            version
                .public_sha256
                .get_or_insert_with(|| told.clone())
                .clone()
        }
    };
    match told == expected {
        true => Ok(()),
        false => answer.differs(format_args!("public_sha256 {expected:?}"), told),
    }
}
