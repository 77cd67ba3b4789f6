//! The API of a whole service, over HTTP on loopback: every answer fits the document, and what it says holds.
//!
//! Every case runs on every backend, for what the backend offers. Those on a token run in a child process
//! each, with a token of their own.
#![allow(
    clippy::disallowed_methods,
    reason = "the bench starts its own runtime"
)]

mod api_support;

use api_support::running::{Keeping, Running};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Method;
use libtest_mimic::{Arguments, Trial};
use ron_kms::{
    audit::receipt::Receipt,
    keys::{
        Algorithm,
        public::PublicKey,
        signing::{Input, Signature},
    },
};
use serde_json::{Value, json};

type Body = fn(Running);

const CASES: &[(&str, Body)] = &[
    (
        "every_signing_algorithm_signs_what_it_verifies_and_nothing_else",
        every_signing_algorithm_signs_what_it_verifies_and_nothing_else,
    ),
    (
        "a_batch_answers_in_order_and_takes_messages_and_hashes",
        a_batch_answers_in_order_and_takes_messages_and_hashes,
    ),
    (
        "what_was_wrapped_comes_back_under_the_same_version_and_context_only",
        what_was_wrapped_comes_back_under_the_same_version_and_context_only,
    ),
    (
        "the_life_of_a_key_is_told_and_obeyed",
        the_life_of_a_key_is_told_and_obeyed,
    ),
    (
        "a_secret_made_elsewhere_is_taken_wrapped_and_then_signs",
        a_secret_made_elsewhere_is_taken_wrapped_and_then_signs,
    ),
    (
        "an_op_id_answers_the_same_again_and_refuses_another_body",
        an_op_id_answers_the_same_again_and_refuses_another_body,
    ),
    (
        "lists_come_in_pages_and_the_jwk_set_holds_what_is_enabled",
        lists_come_in_pages_and_the_jwk_set_holds_what_is_enabled,
    ),
    (
        "a_statement_about_a_key_is_signed_over_the_nonce",
        a_statement_about_a_key_is_signed_over_the_nonce,
    ),
    (
        "the_log_is_served_as_tiles_bundles_checkpoint_and_receipts",
        the_log_is_served_as_tiles_bundles_checkpoint_and_receipts,
    ),
];

fn main() {
    #[cfg(feature = "pkcs11")]
    if let Some(name) = case_for_the_child() {
        let case = CASES.iter().find(|(own, _)| *own == name);
        let (_, body) = case.expect("a case of this name");
        return body(Running::on(Keeping::Pkcs11));
    }
    let mut trials = Vec::new();
    for (name, body) in CASES {
        for keeping in [Keeping::Memory, Keeping::Software] {
            let named = format!("{}::{name}", keeping.name());
            trials.push(Trial::test(named, move || {
                body(Running::on(keeping));
                Ok(())
            }));
        }
        #[cfg(feature = "pkcs11")]
        trials.push(Trial::test(format!("pkcs11::{name}"), move || {
            use api_support::support::token::in_child;
            Ok(in_child(&[ON_TOKEN, name])?)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

#[cfg(feature = "pkcs11")]
const ON_TOKEN: &str = "--on-token";

#[cfg(feature = "pkcs11")]
fn case_for_the_child() -> Option<String> {
    let mut arguments = std::env::args().skip(1);
    let told = arguments
        .next()
        .is_some_and(|argument| argument == ON_TOKEN);
    told.then(|| arguments.next().unwrap_or_default())
}

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn unb64(value: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(value.as_str().unwrap()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn every_signing_algorithm_signs_what_it_verifies_and_nothing_else(kms: Running) {
    for alg in kms.offered(&[
        "ed25519",
        "ecdsa-p256",
        "ecdsa-p384",
        "rsa-pss-3072",
        "ml-dsa-65",
        "ed25519+ml-dsa-65",
    ]) {
        let kid = kms.key(alg);
        let signed = kms.post("/sign", &json!({ "kid": kid, "message": b64(b"hello") }));
        assert_eq!(signed.status, 200, "{alg}: {}", signed.json);
        assert_eq!(signed.kind(), "application/json");
        assert_eq!(signed.json["kid"], format!("{kid}#v1"));
        assert_eq!(signed.json["alg"], alg);
        let algorithm: Algorithm = alg.parse().unwrap();
        let sigs = signed.json["sigs"].as_array().unwrap();
        assert_eq!(sigs.len(), algorithm.parts().len());

        let version = kms.get(&format!("/keys/{kid}/versions/1"));
        let public = &version.json["public"];
        let public = PublicKey::from_raw(algorithm, &unb64(&public["raw"])).unwrap();
        let of = |sig: &Value| Signature {
            algorithm: text(&sig["alg"]).parse().unwrap(),
            bytes: unb64(&sig["sig"]),
        };
        let all: Vec<Signature> = sigs.iter().map(of).collect();
        assert_eq!(public.verify(Input::Message(b"hello"), &all), Ok(()));

        let verify = |message: &[u8], sigs: &Value| {
            let body = json!({ "kid": kid, "message": b64(message), "sigs": sigs });
            let answer = kms.post("/verify", &body);
            assert_eq!(answer.status, 200, "{alg}: {}", answer.json);
            assert_eq!(answer.json["kid"], format!("{kid}#v1"));
            answer.json["valid"].as_bool().unwrap()
        };
        let sigs = &signed.json["sigs"];
        assert!(verify(b"hello", sigs), "{alg}");
        assert!(!verify(b"hallo", sigs), "{alg}: another message");
        let mut short = sigs.clone();
        short[0]["sig"] = "AAAA".into();
        assert!(!verify(b"hello", &short), "{alg}: a malformed signature");
        let doubled = json!([sigs[0], sigs[0]]);
        assert!(!verify(b"hello", &doubled), "{alg}: a doubled signature");
    }
}

fn a_batch_answers_in_order_and_takes_messages_and_hashes(kms: Running) {
    let kid = kms.key("ecdsa-p256");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"two");
    let prehash = json!({ "alg": "sha-256", "digest": b64(digest.as_ref()) });
    let messages = json!([{ "message": b64(b"one") }, { "prehash": prehash }, { "message": "" }]);
    let batch = kms.post("/sign", &json!({ "kid": kid, "messages": messages }));
    assert_eq!(batch.status, 200, "{}", batch.json);
    let results = batch.json["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for (message, result) in [&b"one"[..], b"two", b""].iter().zip(results) {
        let body = json!({ "kid": kid, "message": b64(message), "sigs": result["sigs"] });
        assert_eq!(kms.post("/verify", &body).json["valid"], true);
    }
    let one = kms.post(
        "/sign",
        &json!({ "kid": kid, "messages": [{ "message": "" }] }),
    );
    assert_eq!(one.json["results"].as_array().map(Vec::len), Some(1));
    let single = kms.post("/sign", &json!({ "kid": kid, "prehash": prehash }));
    let body = json!({ "kid": kid, "prehash": prehash, "sigs": single.json["sigs"] });
    assert_eq!(kms.post("/verify", &body).json["valid"], true);
}

fn what_was_wrapped_comes_back_under_the_same_version_and_context_only(kms: Running) {
    for alg in kms.offered(&["aes-256-gcm", "chacha20-poly1305", "x-wing"]) {
        let kid = kms.key(alg);
        let context = b64(b"db");
        let body = json!({ "kid": kid, "plaintext": b64(b"secret"), "context": context });
        let wrapped = kms.post("/wrap", &body);
        assert_eq!(wrapped.status, 200, "{alg}: {}", wrapped.json);
        let id = text(&wrapped.json["kid"]).to_owned();
        let body = json!({ "kid": id, "wrapped": wrapped.json["wrapped"], "context": context });
        let back = kms.post("/unwrap", &body);
        assert_eq!(unb64(&back.json["plaintext"]), b"secret");
        assert_eq!(back.headers["cache-control"], "no-store");
        let other = json!({ "kid": id, "wrapped": wrapped.json["wrapped"] });
        let other = kms.post("/unwrap", &other);
        assert_eq!((other.status.as_u16(), other.code()), (422, "blob_invalid"));

        let data = kms.post("/data-key", &json!({ "kid": kid }));
        assert_eq!(data.headers["cache-control"], "no-store");
        assert_eq!(unb64(&data.json["plaintext"]).len(), 32);
        let body = json!({ "kid": data.json["kid"], "wrapped": data.json["wrapped"] });
        let back = kms.post("/unwrap", &body);
        assert_eq!(back.json["plaintext"], data.json["plaintext"]);
    }
}

fn the_life_of_a_key_is_told_and_obeyed(kms: Running) {
    let made = kms.post(
        "/keys",
        &json!({ "purpose": "p", "alg": "ed25519", "tenant": "t9" }),
    );
    assert_eq!(made.status, 201);
    let kid = text(&made.json["kid"]).to_owned();
    assert_eq!(
        made.headers["location"],
        format!("/v1/kms/keys/{kid}").as_str()
    );
    assert_eq!(made.json["tenant"], "t9");
    assert_eq!(made.json["versions"][0]["state"], "enabled");
    assert!(made.json["receipt"]["seq"].is_u64());

    let at = |path: &str| format!("/keys/{kid}{path}");
    let sign = |version: u32| {
        let id = format!("{kid}#v{version}");
        let answer = kms.post("/sign", &json!({ "kid": id, "message": "" }));
        (answer.status.as_u16(), answer.code().to_owned())
    };
    let refused = |code: &str| (409, code.to_owned());
    let change = |path: &str, body: Value| {
        let answer = kms.post(&at(path), &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.json);
        answer.json
    };
    assert_eq!(change("/rotate", json!({ "from": 1 }))["head"], 2);
    let moved = kms.post(&at("/rotate"), &json!({ "from": 1 }));
    assert_eq!((moved.status.as_u16(), moved.code()), (409, "head_moved"));
    assert_eq!(sign(1).0, 200, "earlier versions still sign");

    let disabled = change("/versions/1/disable", json!({}));
    assert_eq!(disabled["versions"][0]["state"], "disabled");
    assert_eq!(sign(1), refused("version_disabled"));
    change("/versions/1/enable", json!({}));
    assert_eq!(sign(1).0, 200);

    let policy = kms.put(
        &at("/policy"),
        &json!({ "min_version": 2, "rotate_after_ms": 90_000 }),
    );
    assert_eq!(
        policy.json["policy"],
        json!({ "min_version": 2, "rotate_after_ms": 90_000 })
    );
    assert_eq!(sign(1), refused("below_min_version"));

    let gone = change("/destroy", json!({ "version": 2 }));
    assert_eq!(gone["versions"][1]["state"], "scheduled");
    assert_eq!(sign(2), refused("destroy_scheduled"));
    let hidden = kms.get(&at("/versions/2"));
    assert!(hidden.json["public"].is_null(), "no longer shown");
    change("/destroy/cancel", json!({ "version": 2 }));
    let early = kms.post(&at("/destroy"), &json!({ "wait_ms": 5 }));
    assert_eq!(
        (early.status.as_u16(), early.code()),
        (422, "invalid_field")
    );

    let shown = kms.get(&at(""));
    assert!(shown.json["receipt"].is_null());
    let missing = kms.get(&at("/versions/3"));
    assert_eq!(
        (missing.status.as_u16(), missing.code()),
        (404, "version_not_found")
    );
}

fn a_secret_made_elsewhere_is_taken_wrapped_and_then_signs(kms: Running) {
    let (kid, under) = (kms.key("ed25519"), kms.key("aes-256-gcm"));
    // PKCS#8 around a raw Ed25519 seed.
    let mut pkcs8 = vec![
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    pkcs8.extend([9; 32]);
    let wrapped = kms
        .post("/wrap", &json!({ "kid": under, "plaintext": b64(&pkcs8) }))
        .json;
    let import = json!({ "wrapped": wrapped["wrapped"], "under": wrapped["kid"] });
    let imported = kms.post(&format!("/keys/{kid}/import"), &import);
    assert_eq!(imported.status, 200, "{}", imported.json);
    assert_eq!(imported.json["head"], 2);
    let signed = kms.post("/sign", &json!({ "kid": kid, "message": b64(b"m") }));
    assert_eq!(signed.json["kid"], format!("{kid}#v2"));
    let pair = aws_lc_rs::signature::Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    assert_eq!(
        unb64(&signed.json["sigs"][0]["sig"]),
        pair.sign(b"m").as_ref()
    );
}

fn an_op_id_answers_the_same_again_and_refuses_another_body(kms: Running) {
    let (kid, wrapping) = (kms.key("ecdsa-p256"), kms.key("aes-256-gcm"));
    // Signatures and blobs differ at each making: the same bytes are the stored answer.
    for (path, body, other) in [
        (
            "/sign",
            json!({ "kid": kid, "message": "AA", "op_id": "s" }),
            json!({ "kid": kid, "message": "AQ", "op_id": "s" }),
        ),
        (
            "/wrap",
            json!({ "kid": wrapping, "plaintext": "AA", "op_id": "w" }),
            json!({ "kid": wrapping, "plaintext": "AQ", "op_id": "w" }),
        ),
        (
            "/data-key",
            json!({ "kid": wrapping, "op_id": "d" }),
            json!({ "kid": wrapping, "op_id": "d", "context": "AA" }),
        ),
    ] {
        let first = kms.post(path, &body);
        assert_eq!(first.status, 200, "{path}: {}", first.json);
        assert!(
            first.json["receipt"]["index"].is_u64(),
            "durable before the answer"
        );
        let again = kms.post(path, &body);
        assert_eq!(again.json, first.json, "{path}");
        let conflict = kms.post(path, &other);
        assert_eq!(
            (conflict.status.as_u16(), conflict.code()),
            (409, "op_id_conflict"),
            "{path}"
        );
    }
}

fn lists_come_in_pages_and_the_jwk_set_holds_what_is_enabled(kms: Running) {
    let mut kids: Vec<String> = (0..5).map(|_| kms.key("ed25519")).collect();
    // The first that is offered, with the names of its parts.
    let parts = [
        ("ed25519+ml-dsa-65", &["EdDSA", "ML-DSA-65"][..]),
        ("ecdsa-p256", &["ES256"]),
    ];
    let alg = kms.offered(&parts.map(|(alg, _)| alg))[0];
    let parts = parts.iter().find(|(own, _)| *own == alg).unwrap().1;
    let special = kms.key(alg);
    let wrapping = kms.key("aes-256-gcm");
    kids.extend([special.clone(), wrapping.clone()]);
    kids.sort();
    let (mut listed, mut sizes) = (Vec::new(), Vec::new());
    let mut next = Some("/keys?limit=3".to_owned());
    while let Some(path) = next {
        let page = kms.get(&path);
        let keys = page.json["keys"].as_array().unwrap();
        sizes.push(keys.len());
        listed.extend(keys.iter().map(|key| text(&key["kid"]).to_owned()));
        let after = page.json["next"].as_str();
        next = after.map(|after| format!("/keys?limit=3&after={after}"));
    }
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(listed, kids);

    let plain = kids
        .iter()
        .find(|kid| **kid != special && **kid != wrapping);
    let disable = format!("/keys/{}/versions/1/disable", plain.unwrap());
    assert_eq!(
        kms.send(Method::POST, &disable, "").status,
        200,
        "a body is not needed"
    );
    let set = kms.get("/jwks.json");
    assert_eq!(set.kind(), "application/jwk-set+json");
    let keys = set.json["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 4 + parts.len(), "a hybrid has two halves");
    let halves = keys.iter().filter(|k| k["kid"] == format!("{special}#v1"));
    let halves: Vec<&str> = halves.map(|k| text(&k["alg"])).collect();
    assert_eq!(halves, parts);
    assert!(keys.iter().all(|k| k["use"] == "sig"));
}

fn a_statement_about_a_key_is_signed_over_the_nonce(kms: Running) {
    let kid = kms.key("ed25519");
    let nonce = b64(&[5; 16]);
    let attested = kms.post("/attest", &json!({ "kid": kid, "nonce": nonce }));
    assert_eq!(attested.status, 200, "{}", attested.json);
    let statement = text(&attested.json["statement"]);
    let public = unb64(&attested.json["public"]);
    let signature = unb64(&attested.json["sig"]);
    let verified =
        UnparsedPublicKey::new(&ED25519, public).verify(statement.as_bytes(), &signature);
    assert!(verified.is_ok());
    let counted = |code: &str| {
        let name = format!("kms_operations_total{{action=\"attest\",code=\"{code}\"}}");
        kms.metric(&name)
    };
    assert_eq!(counted("ok"), 1.0);
    let missing = kms.post(
        "/attest",
        &json!({ "kid": format!("{kid}#v9"), "nonce": nonce }),
    );
    assert_eq!(missing.code(), "version_not_found");
    assert_eq!(counted("version_not_found"), 1.0);
    let statement: Value = serde_json::from_str(statement).unwrap();
    assert_eq!(statement["key"]["nonce"], nonce);
    assert_eq!(statement["key"]["kid"], format!("{kid}#v1"));

    let signed = kms.post(
        "/sign",
        &json!({ "kid": kid, "message": "", "attest": true }),
    );
    assert!(signed.json["sigs"].is_array(), "{}", signed.json);
}

fn the_log_is_served_as_tiles_bundles_checkpoint_and_receipts(kms: Running) {
    let kid = kms.key("ed25519");
    let mut last = 0;
    for n in 0..260 {
        let body = json!({ "kid": kid, "message": "", "op_id": format!("o{n}") });
        let signed = kms.post("/sign", &body);
        last = signed.json["receipt"]["index"].as_u64().unwrap();
    }
    let proof = kms.get_covered(&format!("/audit/proof/{last}"));
    assert_eq!(
        (proof.status.as_u16(), proof.kind()),
        (200, "text/plain; charset=utf-8")
    );
    let receipt = Receipt::parse(&proof.bytes).unwrap();
    assert_eq!(receipt.index, last);

    let checkpoint = kms.get("/audit/checkpoint");
    assert_eq!(
        (checkpoint.status.as_u16(), checkpoint.kind()),
        (200, "text/plain; charset=utf-8")
    );
    assert_eq!(checkpoint.headers["cache-control"], "no-cache");
    let note = String::from_utf8(checkpoint.bytes).unwrap();
    let size: u64 = note.lines().nth(1).unwrap().parse().unwrap();
    assert!(size > last && size > 256, "{note}");

    let full = "private, max-age=31536000, immutable";
    let partial = format!("001.p/{}", size - 256);
    for (path, len, keep) in [
        ("0/000".to_owned(), Some(256 * 32), full),
        ("entries/000".to_owned(), None, full),
        (
            format!("0/{partial}"),
            Some((size - 256) * 32),
            "private, max-age=60",
        ),
        (format!("entries/{partial}"), None, "private, max-age=60"),
        ("1/000.p/1".to_owned(), Some(32), "private, max-age=60"),
    ] {
        let tile = kms.get(&format!("/audit/tile/{path}"));
        assert_eq!(
            (tile.status.as_u16(), tile.kind()),
            (200, "application/octet-stream"),
            "{path}"
        );
        assert_eq!(tile.headers["cache-control"], keep, "{path}");
        assert!(
            len.is_none_or(|len| len == tile.bytes.len() as u64),
            "{path}"
        );
    }
    for path in ["tile/0/009", "tile/7/000", "tile/x", "proof/99999999"] {
        let missing = kms.get(&format!("/audit/{path}"));
        let got = (missing.status.as_u16(), missing.code());
        let fine = [(404, "record_not_found"), (409, "not_covered")];
        assert!(fine.contains(&got), "{path}: {got:?}");
    }
    let ended = kms.stop();
    assert_eq!(
        ended.covered, ended.records,
        "the last checkpoint covers all"
    );
}
