//! The bad input table: each mistake has its status and code, is counted, and changes nothing.
#![allow(
    clippy::disallowed_methods,
    reason = "the bench starts its own runtime"
)]

mod api_support;

use api_support::running::{Running, claims, issuer, signed, token};
use aws_lc_rs::{hmac, signature::KeyPair};
use http::Method;
use serde_json::{Value, json};

const ALL: &str = "kms:sign kms:verify kms:wrap kms:unwrap kms:rotate kms:read kms:audit";

#[test]
fn each_mistake_has_its_status_and_code_is_counted_and_changes_nothing() {
    let mut kms = Running::guarded();
    kms.token = Some(token(&claims(kms.now_s(), "t1", ALL)));
    let signing = kms.key("ed25519");
    let disabled = kms.key("ed25519");
    let path = format!("/keys/{disabled}/versions/1/disable");
    assert_eq!(kms.post(&path, &json!({})).status, 200);
    let wrapping = kms.key("aes-256-gcm");
    let blob = kms
        .post("/wrap", &json!({ "kid": wrapping, "plaintext": "AA" }))
        .json;
    let cut = blob["wrapped"].as_str().unwrap()[..20].to_owned();
    let short = json!({ "kid": wrapping, "plaintext": "A".repeat(42) });
    let short = kms.post("/wrap", &short).json;
    let import = json!({ "wrapped": short["wrapped"], "under": short["kid"] });
    let [import_wrapping, import_signing] =
        [&wrapping, &signing].map(|kid| format!("/keys/{kid}/import"));
    let before = kms.get("/keys?limit=1000").json;

    let create = |more: Value| {
        let mut body = json!({ "purpose": "p", "alg": "ed25519" });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    let table = [
        (
            "/keys",
            create(json!({ "alg": "rot13" })),
            422,
            "alg_unknown",
        ),
        (
            "/keys",
            create(json!({ "color": "red" })),
            422,
            "unknown_field",
        ),
        (
            "/keys",
            create(json!({ "tenant": "t2" })),
            403,
            "tenant_forbidden",
        ),
        (
            "/keys",
            create(json!({ "policy": { "min_version": 2 } })),
            400,
            "min_version_out_of_range",
        ),
        (
            "/keys",
            create(json!({ "policy": { "rotate_after_ms": 59_999 } })),
            422,
            "rotate_after_too_short",
        ),
        (
            "/sign",
            json!({ "kid": signing, "message": "a+/=" }),
            400,
            "base64_invalid",
        ),
        (
            "/sign",
            json!({ "kid": signing, "prehash": { "alg": "sha-256", "digest": "AA" } }),
            400,
            "prehash_invalid",
        ),
        (
            "/sign",
            json!({ "kid": wrapping, "message": "" }),
            409,
            "wrong_use",
        ),
        (
            "/sign",
            json!({ "kid": disabled, "message": "" }),
            409,
            "version_disabled",
        ),
        (
            "/sign",
            json!({ "kid": format!("{signing}#v9"), "message": "" }),
            404,
            "version_not_found",
        ),
        (
            "/sign",
            json!({ "kid": "q83vASNFZ4mrze8BI0VniQ", "message": "" }),
            404,
            "key_not_found",
        ),
        (
            "/wrap",
            json!({ "kid": signing, "plaintext": "" }),
            409,
            "wrong_use",
        ),
        (
            "/wrap",
            json!({ "kid": wrapping, "plaintext": "A".repeat(87_388) }),
            413,
            "too_long",
        ),
        (
            "/unwrap",
            json!({ "kid": blob["kid"], "wrapped": cut }),
            422,
            "blob_invalid",
        ),
        (
            "/unwrap",
            json!({ "kid": blob["kid"], "wrapped": "" }),
            422,
            "blob_invalid",
        ),
        // 31 bytes
        (&*import_wrapping, import.clone(), 422, "secret_invalid"),
        (&*import_signing, import, 422, "secret_invalid"),
    ];
    for (path, body, status, code) in table {
        let route = match path.ends_with("/import") {
            true => "/keys/{kid}/import",
            false => path,
        };
        let counter = format!("kms_refused_total{{code=\"{code}\",route=\"/v1/kms{route}\"}}");
        let counted = kms.metric(&counter);
        let answer = kms.post(path, &body);
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (status, code),
            "{path} {}",
            answer.json
        );
        assert_eq!(answer.kind(), "application/problem+json");
        assert_eq!(kms.metric(&counter), counted + 1.0, "{code} is counted");
    }
    let oversize = kms.send(Method::POST, "/sign", vec![b' '; (1 << 20) + 1]);
    assert_eq!(
        (oversize.status.as_u16(), oversize.code()),
        (413, "body_too_large")
    );
    let counter = "kms_refused_total{code=\"body_too_large\",route=\"/v1/kms/sign\"}";
    assert_eq!(kms.metric(counter), 1.0, "what the door refuses is counted");
    assert_eq!(
        kms.get("/keys?limit=1000").json,
        before,
        "nothing was made or changed"
    );
}

#[test]
fn a_key_of_another_tenant_is_as_good_as_absent() {
    let mut kms = Running::guarded();
    kms.token = Some(token(&claims(kms.now_s(), "t1", ALL)));
    let (kid, wrapping) = (kms.key("ed25519"), kms.key("aes-256-gcm"));
    kms.token = Some(token(&claims(kms.now_s(), "t2", ALL)));
    let version = format!("{wrapping}#v1");
    let table = [
        (
            Method::POST,
            "/sign".to_owned(),
            json!({ "kid": kid, "message": "" }),
        ),
        (
            Method::POST,
            "/verify".to_owned(),
            json!({ "kid": kid, "message": "", "sigs": [{ "alg": "ed25519", "sig": "" }] }),
        ),
        (
            Method::POST,
            "/wrap".to_owned(),
            json!({ "kid": wrapping, "plaintext": "" }),
        ),
        (
            Method::POST,
            "/unwrap".to_owned(),
            json!({ "kid": version, "wrapped": "" }),
        ),
        (
            Method::POST,
            "/data-key".to_owned(),
            json!({ "kid": wrapping }),
        ),
        (
            Method::POST,
            "/attest".to_owned(),
            json!({ "kid": kid, "nonce": "A".repeat(32) }),
        ),
        (Method::GET, format!("/keys/{kid}"), json!({})),
        (Method::GET, format!("/keys/{kid}/versions/1"), json!({})),
        (Method::POST, format!("/keys/{kid}/rotate"), json!({})),
        (
            Method::POST,
            format!("/keys/{kid}/versions/1/disable"),
            json!({}),
        ),
        (
            Method::POST,
            format!("/keys/{kid}/versions/1/enable"),
            json!({}),
        ),
        (Method::POST, format!("/keys/{kid}/destroy"), json!({})),
        (
            Method::POST,
            format!("/keys/{kid}/destroy/cancel"),
            json!({}),
        ),
        (
            Method::PUT,
            format!("/keys/{kid}/policy"),
            json!({ "min_version": 1 }),
        ),
        (
            Method::POST,
            format!("/keys/{kid}/import"),
            json!({ "wrapped": "", "under": version }),
        ),
    ];
    for (method, path, body) in table {
        let answer = kms.send(method, &path, body.to_string());
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "key_not_found"),
            "{path}"
        );
    }
    assert_eq!(kms.get("/keys").json["keys"], json!([]));
    assert_eq!(kms.get("/jwks.json").json["keys"], json!([]));
}

#[test]
fn a_bad_token_is_refused_with_its_reason_and_counted() {
    let mut kms = Running::guarded();
    let now = kms.now_s();
    let good = claims(now, "t1", ALL);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let header = |alg: &str| json!({ "alg": alg, "kid": "k1" });
    // The public key as the secret of a symmetric algorithm.
    let confused = signed(&header("HS256"), &good, |text| {
        let pair = issuer();
        let key = hmac::Key::new(hmac::HMAC_SHA256, pair.public_key().as_ref());
        hmac::sign(&key, text).as_ref().to_vec()
    });
    let unsigned = signed(&header("none"), &good, |_| Vec::new());
    let other_kind = signed(&header("ES256"), &good, |text| {
        issuer().sign(text).as_ref().to_vec()
    });
    let tampered = format!("{}AAAA", &token(&good)[..token(&good).len() - 4]);
    let table = [
        (None, 401, "missing_credentials"),
        (Some("x".to_owned()), 401, "malformed_token"),
        (Some(token(&with("exp", json!(now - 3600)))), 401, "expired"),
        (
            Some(token(&with("iss", json!("https://other.test")))),
            401,
            "issuer_mismatch",
        ),
        (
            Some(token(&with("aud", json!("other")))),
            401,
            "audience_mismatch",
        ),
        (Some(unsigned), 401, "alg_none"),
        (Some(confused), 401, "alg_key_mismatch"),
        (Some(other_kind), 401, "alg_key_mismatch"),
        (Some(tampered), 401, "bad_signature"),
        (
            Some(token(&with("scope", json!("kms:read")))),
            403,
            "missing_scope",
        ),
    ];
    for (bearer, status, code) in table {
        let counter = format!("auth_failures_total{{reason=\"{code}\"}}");
        let refused = format!("kms_refused_total{{code=\"{code}\",route=\"/v1/kms/keys\"}}");
        let (counted, were_refused) = (kms.metric(&counter), kms.metric(&refused));
        kms.token = bearer;
        let answer = kms.post("/keys", &json!({ "purpose": "p", "alg": "ed25519" }));
        let got = (answer.status.as_u16(), answer.code());
        assert_eq!(got, (status, code), "{}", answer.json);
        assert_eq!(kms.metric(&counter), counted + 1.0, "{code} is counted");
        assert_eq!(
            kms.metric(&refused),
            were_refused + 1.0,
            "{code} is counted"
        );
    }
    kms.token = Some(token(&json!({
        "iss": good["iss"], "aud": good["aud"], "sub": "ada", "exp": good["exp"], "scope": ALL,
    })));
    let answer = kms.get("/keys");
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (403, "tenant_missing")
    );
    kms.token = Some(token(&good));
    assert_eq!(
        kms.get("/keys").json["keys"],
        json!([]),
        "none of them made a key"
    );
}
