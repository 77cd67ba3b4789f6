//! Requests: what each may say, and how the rest is refused. Any bytes parse or are refused, never a panic.

use proptest::prelude::*;
use ron_core::{api::parse, problem::Problem};
use ron_kms::{api::requests, ask::Caller};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const KID: &str = "q83vASNFZ4mrze8BI0VniQ";

type Parse = fn(&[u8]) -> Result<(), Problem>;

/// Parses, and makes the ask out of it.
const ALL: [(&str, Parse); 13] = [
    ("create", |b| {
        let caller = Caller {
            actor: String::new(),
            tenant: None,
        };
        parse::<requests::Create>(b)?.into_ask(&caller).map(drop)
    }),
    ("rotate", only::<requests::Rotate>),
    ("destroy", only::<requests::Destroy>),
    ("cancel", only::<requests::CancelDestroy>),
    ("policy", only::<requests::SetPolicy>),
    ("import", only::<requests::Import>),
    ("nothing", only::<requests::Nothing>),
    ("sign", |b| {
        parse::<requests::Sign>(b)?.into_ask(b).map(drop)
    }),
    ("verify", |b| {
        parse::<requests::Verify>(b)?.into_ask().map(drop)
    }),
    ("wrap", only::<requests::Wrap>),
    ("unwrap", only::<requests::Unwrap>),
    ("data-key", only::<requests::DataKey>),
    ("attest", only::<requests::Attest>),
];

fn only<T: DeserializeOwned>(body: &[u8]) -> Result<(), Problem> {
    parse::<T>(body).map(drop)
}

fn parser(name: &str) -> Parse {
    ALL.iter().find(|(known, _)| *known == name).unwrap().1
}

/// What stands in a problem besides its status and code.
fn said(problem: &Problem) -> String {
    problem.to_string()
}

#[test]
fn each_bad_field_has_its_status_code_and_a_line_that_says_what_is_allowed() {
    let long = "x".repeat(129);
    let versioned = format!("{KID}#v1");
    let sign = |more: Value| merged(json!({ "kid": KID }), more);
    let wrap = |more: Value| merged(json!({ "kid": KID, "plaintext": "AA" }), more);
    let create = |more: Value| merged(json!({ "purpose": "p", "alg": "ed25519" }), more);
    let sig = json!({ "alg": "ed25519", "sig": "AA" });
    let table: Vec<(&str, Value, u16, &str, &str)> = vec![
        // binary
        (
            "sign",
            sign(json!({ "message": "a+b/" })),
            400,
            "base64_invalid",
            "message: not base64url",
        ),
        (
            "sign",
            sign(json!({ "message": "AA==" })),
            400,
            "base64_invalid",
            "message: not base64url",
        ),
        (
            "sign",
            sign(json!({ "message": "AB" })),
            400,
            "base64_invalid",
            "message: not base64url",
        ),
        (
            "sign",
            sign(json!({ "message": "A" })),
            400,
            "base64_invalid",
            "message",
        ),
        (
            "sign",
            sign(json!({ "message": "AA\n" })),
            400,
            "base64_invalid",
            "message",
        ),
        (
            "sign",
            sign(json!({ "messages": [{ "message": "AA" }, { "message": "?" }] })),
            400,
            "base64_invalid",
            "messages[1].message",
        ),
        (
            "sign",
            sign(json!({ "prehash": { "alg": "sha-256", "digest": "=" } })),
            400,
            "base64_invalid",
            "prehash.digest",
        ),
        (
            "verify",
            sign(
                json!({ "message": "AA", "sigs": [sig.clone(), { "alg": "ed25519", "sig": "*" }] }),
            ),
            400,
            "base64_invalid",
            "sigs[1].sig",
        ),
        (
            "wrap",
            wrap(json!({ "plaintext": "a+b/" })),
            400,
            "base64_invalid",
            "plaintext",
        ),
        (
            "wrap",
            wrap(json!({ "context": "a+b/" })),
            400,
            "base64_invalid",
            "context",
        ),
        (
            "unwrap",
            json!({ "kid": versioned, "wrapped": "A" }),
            400,
            "base64_invalid",
            "wrapped",
        ),
        (
            "import",
            json!({ "under": versioned, "wrapped": "%" }),
            400,
            "base64_invalid",
            "wrapped",
        ),
        (
            "attest",
            json!({ "kid": KID, "nonce": "%" }),
            400,
            "base64_invalid",
            "nonce",
        ),
        // names of algorithms and hashes
        (
            "create",
            create(json!({ "alg": "rsa" })),
            422,
            "alg_unknown",
            "allowed are ed25519",
        ),
        (
            "create",
            create(json!({ "alg": "Ed25519" })),
            422,
            "alg_unknown",
            "alg: unknown algorithm",
        ),
        (
            "create",
            create(json!({ "alg": 5 })),
            422,
            "invalid_field",
            "the name of an algorithm",
        ),
        (
            "verify",
            sign(json!({ "message": "AA", "sigs": [{ "alg": "none", "sig": "AA" }] })),
            422,
            "alg_unknown",
            "sigs[0].alg",
        ),
        (
            "sign",
            sign(json!({ "prehash": { "alg": "sha-1", "digest": "AA" } })),
            422,
            "invalid_field",
            "allowed are sha-256, sha-384",
        ),
        // fields that are not there, or should not be
        (
            "sign",
            sign(json!({ "mesage": "AA" })),
            422,
            "unknown_field",
            "mesage",
        ),
        (
            "sign",
            sign(json!({ "messages": [{ "message": "AA", "op_id": "1" }] })),
            422,
            "unknown_field",
            "messages[0].op_id",
        ),
        (
            "import",
            json!({ "under": versioned, "plaintext": "AA" }),
            422,
            "unknown_field",
            "plaintext",
        ),
        (
            "import",
            json!({ "under": versioned, "wrapped": "AA", "pkcs8": "AA" }),
            422,
            "unknown_field",
            "pkcs8",
        ),
        ("nothing", json!({ "x": 1 }), 422, "unknown_field", "x"),
        (
            "create",
            create(json!({ "policy": { "min_versions": 1 } })),
            422,
            "unknown_field",
            "policy.min_versions",
        ),
        (
            "sign",
            json!({ "message": "AA" }),
            422,
            "missing_field",
            "kid",
        ),
        (
            "verify",
            sign(json!({ "message": "AA" })),
            422,
            "missing_field",
            "sigs",
        ),
        (
            "policy",
            json!({ "rotate_after_ms": 5 }),
            422,
            "missing_field",
            "min_version",
        ),
        // exactly one of
        (
            "sign",
            sign(json!({})),
            422,
            "invalid_field",
            "exactly one of message, prehash, messages",
        ),
        (
            "sign",
            sign(json!({ "message": "AA", "messages": [{ "message": "AA" }] })),
            422,
            "invalid_field",
            "exactly one",
        ),
        (
            "sign",
            sign(json!({ "message": "AA", "prehash": { "alg": "sha-256", "digest": "AA" } })),
            422,
            "invalid_field",
            "exactly one",
        ),
        (
            "sign",
            sign(
                json!({ "prehash": { "alg": "sha-256", "digest": "AA" }, "messages": [{ "message": "AA" }] }),
            ),
            422,
            "invalid_field",
            "exactly one",
        ),
        (
            "sign",
            sign(json!({ "messages": [{ "message": "AA" }, {}] })),
            422,
            "invalid_field",
            "messages[1]: exactly one",
        ),
        (
            "verify",
            sign(json!({ "sigs": [sig.clone()] })),
            422,
            "invalid_field",
            "exactly one",
        ),
        // sizes
        (
            "sign",
            sign(json!({ "messages": [] })),
            422,
            "invalid_field",
            "1 to 512",
        ),
        (
            "sign",
            sign(json!({ "messages": vec![json!({ "message": "AA" }); 513] })),
            422,
            "invalid_field",
            "at most 512",
        ),
        (
            "verify",
            sign(json!({ "message": "AA", "sigs": [] })),
            422,
            "invalid_field",
            "1 to 8",
        ),
        (
            "verify",
            sign(json!({ "message": "AA", "sigs": vec![sig; 9] })),
            422,
            "invalid_field",
            "at most 8",
        ),
        (
            "sign",
            sign(json!({ "message": "AA", "op_id": long })),
            422,
            "invalid_field",
            "1 to 128 visible",
        ),
        (
            "sign",
            sign(json!({ "message": "AA", "op_id": "" })),
            422,
            "invalid_field",
            "1 to 128 visible",
        ),
        (
            "sign",
            sign(json!({ "message": "AA", "op_id": "a b" })),
            422,
            "invalid_field",
            "1 to 128 visible",
        ),
        (
            "sign",
            sign(json!({ "message": "AA", "op_id": "ü" })),
            422,
            "invalid_field",
            "1 to 128 visible",
        ),
        (
            "create",
            create(json!({ "purpose": "" })),
            422,
            "invalid_field",
            "1 to 128 printable",
        ),
        (
            "create",
            create(json!({ "purpose": long })),
            422,
            "invalid_field",
            "1 to 128 printable",
        ),
        (
            "create",
            create(json!({ "purpose": "a\u{7f}" })),
            422,
            "invalid_field",
            "1 to 128 printable",
        ),
        (
            "create",
            create(json!({ "tenant": "a\nb" })),
            422,
            "invalid_field",
            "tenant: 1 to 128 printable",
        ),
        (
            "attest",
            json!({ "kid": KID, "nonce": "AAECAwQFBgcICQoLDA0O" }),
            422,
            "invalid_field",
            "16 to 64 bytes",
        ),
        (
            "attest",
            json!({ "kid": KID, "nonce": "A".repeat(88) }),
            422,
            "invalid_field",
            "16 to 64 bytes",
        ),
        // names of keys
        (
            "sign",
            json!({ "kid": "", "message": "AA" }),
            422,
            "invalid_field",
            "22 characters",
        ),
        (
            "sign",
            json!({ "kid": format!("{KID}#v0"), "message": "AA" }),
            422,
            "invalid_field",
            "<kid>#v<number from 1>",
        ),
        (
            "sign",
            json!({ "kid": format!("{KID}#v01"), "message": "AA" }),
            422,
            "invalid_field",
            "<kid>#v<number from 1>",
        ),
        (
            "sign",
            json!({ "kid": format!("{KID}#1"), "message": "AA" }),
            422,
            "invalid_field",
            "<kid>#v<number from 1>",
        ),
        (
            "sign",
            json!({ "kid": format!("{KID}#v4294967296"), "message": "AA" }),
            422,
            "invalid_field",
            "<kid>#v<number from 1>",
        ),
        (
            "sign",
            json!({ "kid": 7, "message": "AA" }),
            422,
            "invalid_field",
            "<kid> or <kid>#v",
        ),
        (
            "unwrap",
            json!({ "kid": KID, "wrapped": "AA" }),
            422,
            "invalid_field",
            "<kid>#v<number from 1>",
        ),
        (
            "import",
            json!({ "under": KID, "wrapped": "AA" }),
            422,
            "invalid_field",
            "<kid>#v<number from 1>",
        ),
        // numbers
        (
            "rotate",
            json!({ "from": -1 }),
            422,
            "invalid_field",
            "from",
        ),
        (
            "rotate",
            json!({ "from": 4_294_967_296_u64 }),
            422,
            "invalid_field",
            "from",
        ),
        (
            "destroy",
            json!({ "wait_ms": 1.5 }),
            422,
            "invalid_field",
            "wait_ms",
        ),
        (
            "destroy",
            json!({ "version": "1" }),
            422,
            "invalid_field",
            "version",
        ),
        (
            "sign",
            sign(json!({ "message": "AA", "attest": 1 })),
            422,
            "invalid_field",
            "attest",
        ),
    ];
    for (name, body, status, code, part) in table {
        let refused = parser(name)(body.to_string().as_bytes());
        let problem = refused.expect_err(&format!("{name} took {body}"));
        let got = (problem.status().as_u16(), problem.code());
        assert_eq!(got, (status, code), "{name} {body}: {problem}");
        assert!(said(&problem).contains(part), "{name} {body}: {problem}");
        assert_eq!(said(&problem).lines().count(), 1, "{problem}");
    }
}

#[test]
fn what_is_no_json_is_refused_with_its_place() {
    for body in [
        "",
        "{",
        "[]x",
        "{\"kid\":}",
        "\u{0}",
        "{} {}",
        "nul",
        "{\"a\":1e999}",
    ] {
        for (name, parse) in ALL {
            let problem = parse(body.as_bytes()).expect_err(name);
            let status = problem.status().as_u16();
            assert!(matches!(status, 400 | 422), "{name} {body:?}: {problem}");
        }
    }
    let problem = parser("sign")(b"{\n  \"kid\" 1}").unwrap_err();
    assert_eq!(problem.code(), "json_syntax");
    assert!(said(&problem).contains("line 2 column 9"), "{problem}");
    assert_eq!(
        parser("nothing")(b"{} x").unwrap_err().code(),
        "json_syntax"
    );
    let twice = format!(r#"{{"kid":"{KID}","message":"AA","message":"AA"}}"#);
    assert_eq!(
        parser("sign")(twice.as_bytes()).unwrap_err().code(),
        "invalid_field"
    );
}

#[test]
fn a_refusal_repeats_no_value_and_stays_short() {
    let secret = "MIGHAgEAMBMGByqGSM49";
    let table = [
        ("rotate", json!({ "from": secret })),
        ("destroy", json!({ "wait_ms": secret })),
        (
            "sign",
            json!({ "kid": KID, "message": "AA", "attest": secret }),
        ),
        ("sign", json!({ "kid": KID, "messages": secret })),
        ("sign", json!({ "kid": KID, "prehash": secret })),
        ("sign", json!({ "kid": secret, "message": "AA" })),
        (
            "wrap",
            json!({ "kid": KID, "plaintext": format!("{secret}=") }),
        ),
        (
            "wrap",
            json!({ "kid": KID, "plaintext": "AA", "op_id": format!("{secret} ") }),
        ),
        ("sign", json!(secret)),
        ("sign", json!(format!("\", expected {secret}"))),
        (
            "create",
            json!({ "purpose": format!("{secret}\n"), "alg": "ed25519" }),
        ),
    ];
    for (name, body) in table {
        let problem = parser(name)(body.to_string().as_bytes()).unwrap_err();
        let said = format!("{problem:?}");
        assert!(!said.contains(secret), "{name}: {said}");
    }
    let names = [
        json!({ "x".repeat(100_000): 1 }),
        json!({ "from": "x".repeat(100_000) }),
    ];
    for body in names {
        let problem = parser("rotate")(body.to_string().as_bytes()).unwrap_err();
        assert!(said(&problem).len() < 600, "{}", said(&problem).len());
    }
}

fn merged(mut base: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    base.as_object_mut().unwrap().extend(more);
    base
}

/// JSON made of the words that requests use, so that it gets past the first check.
fn json_like() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "kid",
        "message",
        "prehash",
        "messages",
        "op_id",
        "alg",
        "digest",
        "sigs",
        "sig",
        "purpose",
        "tenant",
        "policy",
        "min_version",
        "wrapped",
        "under",
        "context",
        "plaintext",
        "nonce",
        "from",
        "version",
        "wait_ms",
        "ed25519",
        "sha-256",
        KID,
        "q83vASNFZ4mrze8BI0VniQ#v1",
        "AA",
        "",
    ]);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    // proves: KMS-10.8
    #[test]
    fn any_bytes_are_a_request_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for (_, parse) in ALL {
            if let Err(problem) = parse(&body) {
                prop_assert!(problem.status().is_client_error());
            }
        }
    }

    #[test]
    fn any_json_is_a_request_or_refused_on_one_line(body in json_like()) {
        let body = body.to_string();
        for (_, parse) in ALL {
            if let Err(problem) = parse(body.as_bytes()) {
                prop_assert!(problem.status().is_client_error());
                prop_assert_eq!(problem.to_string().lines().count(), 1);
            }
        }
    }
}
