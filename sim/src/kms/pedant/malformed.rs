//! Requests that are wrong in one way: each with the code that tells it, and the place it names.
//!
//! Most are decided before any key is looked at, so they name one that is not there. Always: such a request changes
//! nothing and leaves no record.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use super::{
    Session,
    algorithm::BATCH,
    refusal::{Refusal, refusal},
    wire::{Ask, Verdict},
};
use crate::kms::calls::doors::{ADMIN, DOORS};

const KID: &str = "q83vASNFZ4mrze8BI0VniQ";
const BODY_CAP: usize = 1024 * 1024;

pub async fn ask(s: &mut Session<'_>) -> Verdict {
    match s.pick(0, 19) {
        0..11 => body(s).await,
        11 | 12 => path(s).await,
        13 | 14 => nowhere(s).await,
        15 => kind(s).await,
        16 => encoding(s).await,
        17 if s.it.settings.ingress => scope(s).await,
        18 if s.one_in(10) => large(s).await,
        19 if s.one_in(6) => long_list(s).await,
        _ => body(s).await,
    }
}

/// A wrong body: path, body, code, the place that is named.
type Wrong = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const BODIES: &[Wrong] = &[
    ("sign", r#"{"kid":"KID","message":"""#, "json_syntax", ""),
    ("sign", r#"{"kid":"KID","message":""} x"#, "json_syntax", ""),
    ("sign", "", "json_syntax", ""),
    ("sign", "[]", "invalid_field", "."),
    ("sign", "null", "invalid_field", "."),
    ("sign", r#"{"kid":"KID"}"#, "invalid_field", "."),
    ("sign", r#"{"message":""}"#, "missing_field", "."),
    ("sign", r#"{"kid":"KID","message":"","prehash":{"alg":"sha-256","digest":""}}"#, "invalid_field", "."),
    ("sign", r#"{"kid":"KID","message":"","messages":[{"message":""}]}"#, "invalid_field", "."),
    ("sign", r#"{"kid":"KID","messages":[]}"#, "invalid_field", "messages"),
    ("sign", r#"{"kid":"KID","messages":[{"message":""},{}]}"#, "invalid_field", "messages[1]"),
    ("sign", r#"{"kid":"KID","messages":[{"message":"","prehash":{"alg":"sha-256","digest":""}}]}"#, "invalid_field", "messages[0]"),
    ("sign", r#"{"kid":"KID","messages":[{"mesage":""}]}"#, "unknown_field", "messages[0].mesage"),
    ("sign", r#"{"kid":"KID","message":"a"}"#, "base64_invalid", "message"),
    ("sign", r#"{"kid":"KID","message":"aGVsbG8="}"#, "base64_invalid", "message"),
    ("sign", r#"{"kid":"KID","message":"+/8"}"#, "base64_invalid", "message"),
    ("sign", r#"{"kid":"KID","message":"aGVsbG9"}"#, "base64_invalid", "message"),
    ("sign", r#"{"kid":"KID","message":5}"#, "invalid_field", "message"),
    ("sign", r#"{"kid":"KID","mesage":""}"#, "unknown_field", "mesage"),
    ("sign", r#"{"kid":"KID","message":"","op_id":""}"#, "invalid_field", "op_id"),
    ("sign", r#"{"kid":"KID","message":"","op_id":"a b"}"#, "invalid_field", "op_id"),
    ("sign", r#"{"kid":"KID","message":"","op_id":"LONG"}"#, "invalid_field", "op_id"),
    ("sign", r#"{"kid":"KID","message":"","attest":"yes"}"#, "invalid_field", "attest"),
    ("sign", r#"{"kid":"KIDx","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"q83vASNFZ4mrze8BI0Vni","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"q83vASNFZ4mrze8BI0VniR","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"KID#v0","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"KID#v01","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"KID#v","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"KID#1","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"KID#v4294967296","message":""}"#, "invalid_field", "kid"),
    ("sign", r#"{"kid":"KID","prehash":{"alg":"md5","digest":""}}"#, "invalid_field", "prehash.alg"),
    ("sign", r#"{"kid":"KID","prehash":{"alg":"sha-256"}}"#, "missing_field", "prehash"),
    ("sign", r#"{"kid":"KID","prehash":{"alg":"sha-256","digest":"","x":1}}"#, "unknown_field", "prehash.x"),
    ("verify", r#"{"kid":"KID","message":""}"#, "missing_field", "."),
    ("verify", r#"{"kid":"KID","message":"","sigs":[]}"#, "invalid_field", "sigs"),
    ("verify", r#"{"kid":"KID","message":"","sigs":[{"alg":"ed448","sig":""}]}"#, "alg_unknown", "sigs[0].alg"),
    ("verify", r#"{"kid":"KID","message":"","sigs":[{"alg":"ed25519"}]}"#, "missing_field", "sigs[0]"),
    ("verify", r#"{"kid":"KID","sigs":[{"alg":"ed25519","sig":""}]}"#, "invalid_field", "."),
    ("verify", r#"{"kid":"KID","message":"","messages":[],"sigs":[{"alg":"ed25519","sig":""}]}"#, "unknown_field", "messages"),
    ("wrap", r#"{"kid":"KID"}"#, "missing_field", "."),
    ("wrap", r#"{"kid":"KID","plaintext":"?"}"#, "base64_invalid", "plaintext"),
    ("wrap", r#"{"kid":"KID","plaintext":"","context":"="}"#, "base64_invalid", "context"),
    ("wrap", r#"{"kid":"KID","plaintext":"","version":1}"#, "unknown_field", "version"),
    ("unwrap", r#"{"kid":"KID","wrapped":""}"#, "invalid_field", "kid"),
    ("unwrap", r#"{"kid":"KID#v1"}"#, "missing_field", "."),
    ("unwrap", r#"{"kid":"KID#v1","wrapped":"","op_id":"x"}"#, "unknown_field", "op_id"),
    ("data-key", r#"{"kid":"KID","plaintext":""}"#, "unknown_field", "plaintext"),
    ("data-key", "{}", "missing_field", "."),
    ("attest", r#"{"kid":"KID"}"#, "missing_field", "."),
    ("attest", r#"{"kid":"KID","nonce":""}"#, "invalid_field", "nonce"),
    ("keys", r#"{"purpose":"p","alg":"rsa"}"#, "alg_unknown", "alg"),
    ("keys", r#"{"purpose":"p","alg":"Ed25519"}"#, "alg_unknown", "alg"),
    ("keys", r#"{"purpose":"p"}"#, "missing_field", "."),
    ("keys", r#"{"alg":"ed25519"}"#, "missing_field", "."),
    ("keys", r#"{"purpose":"","alg":"ed25519"}"#, "invalid_field", "purpose"),
    ("keys", r#"{"purpose":"LONG","alg":"ed25519"}"#, "invalid_field", "purpose"),
    ("keys", r#"{"purpose":"é","alg":"ed25519"}"#, "invalid_field", "purpose"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","tenant":""}"#, "invalid_field", "tenant"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","tenant":"LONG"}"#, "invalid_field", "tenant"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","policy":[]}"#, "invalid_field", "policy"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","policy":{"min":1}}"#, "unknown_field", "policy.min"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","policy":{"min_version":-1}}"#, "invalid_field", "policy.min_version"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","policy":{"rotate_after_ms":1.5}}"#, "invalid_field", "policy.rotate_after_ms"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","kid":"KID"}"#, "unknown_field", "kid"),
    ("keys/KID/rotate", r#"{"from":"1"}"#, "invalid_field", "from"),
    ("keys/KID/rotate", r#"{"form":1}"#, "unknown_field", "form"),
    ("keys/KID/rotate", r#"{"from":-1}"#, "invalid_field", "from"),
    ("keys/KID/destroy", r#"{"wait":1}"#, "unknown_field", "wait"),
    ("keys/KID/destroy", r#"{"wait_ms":"1"}"#, "invalid_field", "wait_ms"),
    ("keys/KID/destroy/cancel", r#"{"wait_ms":1}"#, "unknown_field", "wait_ms"),
    ("keys/KID/versions/1/disable", r#"{"why":1}"#, "unknown_field", "why"),
    ("keys/KID/versions/1/enable", "[]", "invalid_field", "."),
    ("keys/KID/import", r#"{"wrapped":"","under":"KID"}"#, "invalid_field", "under"),
    ("keys/KID/import", r#"{"secret":"","under":"KID#v1"}"#, "unknown_field", "secret"),
    ("keys/KID/import", r#"{"under":"KID#v1"}"#, "missing_field", "."),
    // Something that nobody may read, in the wrong place.
    ("sign", r#"{"kid":"KID","messages":"SECRET"}"#, "invalid_field", "messages"),
    ("sign", r#"{"kid":"KID","message":"","attest":"SECRET"}"#, "invalid_field", "attest"),
    ("verify", r#"{"kid":"KID","message":"","sigs":"SECRET"}"#, "invalid_field", "sigs"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","policy":"SECRET"}"#, "invalid_field", "policy"),
    ("keys", r#"{"purpose":"p","alg":"ed25519","policy":{"min_version":"SECRET"}}"#, "invalid_field", "policy.min_version"),
    ("keys/KID/rotate", r#"{"from":"SECRET"}"#, "invalid_field", "from"),
    ("keys/KID/destroy", r#"{"wait_ms":"SECRET"}"#, "invalid_field", "wait_ms"),
];

/// Not to be seen again.
const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQ";

async fn body(s: &mut Session<'_>) -> Verdict {
    let (path, body, code, place) = s.one_of(BODIES);
    let path = format!("/v1/kms/{}", path.replace("KID", KID));
    let body = body.replace("KID", KID).replace("LONG", &"x".repeat(129));
    let body = body.replace("SECRET", SECRET);
    let answer = s.send(Ask::raw("POST", path, body), false).await?;
    if String::from_utf8_lossy(&answer.bytes).contains(SECRET) {
        return Err(format!(
            "a refusal repeats what was in the wrong place: {}",
            answer.json
        ));
    }
    let refused = match place {
        "" => refusal(code),
        place => Refusal::at(code, place),
    };
    s.refuse(&answer, None, &refused)
}

async fn path(s: &mut Session<'_>) -> Verdict {
    let (method, path, code) = s.one_of(&[
        ("GET", "keys/short", "invalid_path"),
        ("GET", "keys/q83vASNFZ4mrze8BI0VniR", "invalid_path"),
        ("GET", "keys/KID", "key_not_found"),
        ("GET", "keys/KID/versions/x", "invalid_path"),
        ("GET", "keys/KID/versions/-1", "invalid_path"),
        ("GET", "keys/KID/versions/4294967296", "invalid_path"),
        ("POST", "keys/short/rotate", "invalid_path"),
        ("POST", "keys/KID/versions/x/disable", "invalid_path"),
        ("PUT", "keys/short/policy", "invalid_path"),
        ("GET", "audit/proof/x", "invalid_path"),
        ("GET", "audit/proof/-1", "invalid_path"),
        (
            "GET",
            "audit/proof/18446744073709551615",
            "record_not_found",
        ),
        ("GET", "audit/tile/0/1", "record_not_found"),
        ("GET", "audit/tile/0/999", "record_not_found"),
        ("GET", "audit/tile/63/000", "record_not_found"),
        ("GET", "audit/tile/entries/x", "record_not_found"),
        ("GET", "audit/tile/entries/000.p/0", "record_not_found"),
        ("GET", "audit/tile/entries/000.p/256", "record_not_found"),
    ]);
    let path = format!("/v1/kms/{}", path.replace("KID", KID));
    let ask = match method {
        "GET" => Ask::get(path),
        method => Ask::raw(method, path, "{}"),
    };
    let answer = s.send(ask, false).await?;
    s.refuse(&answer, None, &refusal(code))
}

/// Where nothing is, and where something is that is asked for in another way.
async fn nowhere(s: &mut Session<'_>) -> Verdict {
    let (method, path, code) = s.one_of(&[
        ("GET", "/v1/kms", "not_found"),
        ("GET", "/v1/kms/", "not_found"),
        ("GET", "/v1/kms/key", "not_found"),
        ("POST", "/v2/kms/sign", "not_found"),
        ("POST", "/v1/kms/sign/", "not_found"),
        ("GET", "/v1/kms/keys/KID/versions", "not_found"),
        ("POST", "/api/v1/shutdown", "not_found"),
        ("POST", "/api/v1/reload", "not_found"),
        ("GET", "/v1/kms/sign", "method_not_allowed"),
        ("PUT", "/v1/kms/keys", "method_not_allowed"),
        ("DELETE", "/v1/kms/keys/KID", "method_not_allowed"),
        ("POST", "/v1/kms/keys/KID/policy", "method_not_allowed"),
        ("GET", "/v1/kms/keys/KID/rotate", "method_not_allowed"),
        ("POST", "/v1/kms/jwks.json", "method_not_allowed"),
        ("POST", "/metrics", "method_not_allowed"),
    ]);
    let path = path.replace("KID", KID);
    let ask = match method {
        "GET" => Ask::get(path),
        method => Ask::raw(method, path, "{}"),
    };
    let answer = s.send(ask, false).await?;
    s.refuse(&answer, None, &refusal(code))
}

/// What a body is called.
async fn kind(s: &mut Session<'_>) -> Verdict {
    let body = json!({ "kid": KID, "message": "" });
    let kinds = [
        ("text/plain", false),
        ("", false),
        ("application/jsonx", false),
        ("text/json", false),
        ("application/json; charset=utf-8", true),
        ("Application/JSON", true),
        ("application/vnd.x+json", true),
    ];
    let (kind, taken) = s.one_of(&kinds);
    let ask = Ask::post("/v1/kms/sign", &body);
    let ask = match kind {
        "" => ask.bare(),
        kind => ask.with("content-type", kind),
    };
    let ask = ask.with("x-corr-id", "the-pedant.1");
    let answer = s.send(ask, false).await?;
    match taken {
        true => s.refuse(&answer, Some("sign"), &refusal("key_not_found")),
        false => s.refuse(&answer, None, &refusal("unsupported_media_type")),
    }
}

/// How a body is packed.
async fn encoding(s: &mut Session<'_>) -> Verdict {
    let body = json!({ "kid": KID, "message": "" }).to_string();
    let encoding = s.one_of(&["gzip", "br", "identity"]);
    let bytes = match encoding {
        "gzip" => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            let _ = packed.write_all(body.as_bytes());
            packed.finish().unwrap_or_default()
        }
        _ => body.into_bytes(),
    };
    let ask = Ask::raw("POST", "/v1/kms/sign", bytes).with("content-encoding", encoding);
    let answer = s.send(ask, false).await?;
    match encoding {
        "br" => s.refuse(&answer, None, &refusal("unsupported_encoding")),
        _ => s.refuse(&answer, Some("sign"), &refusal("key_not_found")),
    }
}

/// Without one of the scopes that it takes.
async fn scope(s: &mut Session<'_>) -> Verdict {
    let doors = DOORS.iter();
    let doors: Vec<_> = doors
        .filter(|door| !door.scopes.is_empty() && !door.scopes.contains(&ADMIN))
        .collect();
    let door = doors[s.pick(0, doors.len() as u64 - 1) as usize];
    let missing = s.one_of(door.scopes);
    let held: Vec<&str> = super::SCOPES
        .split(',')
        .filter(|scope| *scope != missing)
        .collect();
    let tenant = s.caller.tenant.clone().unwrap_or_default();
    let ask = Ask::raw(door.method, door.path.replace("{kid}", KID), "{}")
        .with("x-user", s.caller.actor.clone())
        .with("x-groups", held.join(","))
        .with("x-tenant", tenant);
    let answer = s.wire.send(&ask, false).await?;
    s.it.counts.missing_scope += 1;
    let refused = Refusal {
        scope: Some(missing),
        ..refusal("missing_scope")
    };
    s.refuse(&answer, None, &refused)
}

/// As large as a body may be, and one byte larger, which is refused at the door.
async fn large(s: &mut Session<'_>) -> Verdict {
    let mut body = json!({ "kid": KID, "message": "" })
        .to_string()
        .into_bytes();
    let over = s.one_in(2);
    body.resize(BODY_CAP + usize::from(over), b' ');
    let answer = s
        .send(Ask::raw("POST", "/v1/kms/sign", body), false)
        .await?;
    match over {
        true => s.refuse(&answer, None, &refusal("body_too_large")),
        false => s.refuse(&answer, Some("sign"), &refusal("key_not_found")),
    }
}

/// One more than a batch, or a list of signatures, may have.
async fn long_list(s: &mut Session<'_>) -> Verdict {
    let (path, field, item, most) = s.one_of(&[
        ("/v1/kms/sign", "messages", r#"{"message":""}"#, BATCH),
        ("/v1/kms/verify", "sigs", r#"{"alg":"ed25519","sig":""}"#, 8),
    ]);
    let item: Value = serde_json::from_str(item).unwrap_or_default();
    let mut body = json!({ "kid": KID });
    body[field] = json!(vec![item; most + 1]);
    if field == "sigs" {
        body["message"] = json!("");
    }
    let answer = s.send(Ask::post(path, &body), false).await?;
    s.refuse(&answer, None, &Refusal::at("invalid_field", field))
}
