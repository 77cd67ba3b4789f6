//! Requests become asks: what was sent is what is asked, for the caller's own tenant, with the defaults told.

use ron_core::api::{fields, parse};
use ron_kms::{
    api::requests,
    ask::{Ask, Caller},
    backend::Message,
    keys::{Algorithm, algorithm::Prehash},
};
use serde_json::json;

const KID: &str = "q83vASNFZ4mrze8BI0VniQ";

#[test]
fn what_is_asked_is_what_was_sent() {
    let body = json!({
        "kid": format!("{KID}#v3"), "op_id": "order-17", "attest": true,
        "messages": [{ "message": "aGVsbG8" }, { "prehash": { "alg": "sha-384", "digest": "AQI" } }],
    });
    let body = body.to_string();
    let request: requests::Sign = parse(body.as_bytes()).unwrap();
    assert!(request.is_batch());
    let Ok(Ask::Sign {
        key,
        messages,
        op_id,
        attest: true,
    }) = request.into_ask(body.as_bytes())
    else {
        panic!("not a sign ask");
    };
    assert_eq!((key.kid.as_str(), key.version), (KID, Some(3)));
    let hash = Prehash::Sha384;
    let digest = vec![1, 2];
    assert_eq!(
        messages,
        [
            Message::Whole(b"hello".to_vec()),
            Message::Prehashed { hash, digest }
        ]
    );
    let op_id = op_id.unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body.as_bytes());
    assert_eq!(op_id.id, "order-17");
    assert_eq!(op_id.request, digest.as_ref(), "over the body as it came");
}

#[test]
fn a_key_is_made_for_the_callers_tenant_and_no_other() {
    let caller = |tenant: Option<&str>| Caller {
        actor: "ada".to_owned(),
        tenant: tenant.map(str::to_owned),
    };
    let table = [
        (None, None, Ok("default")),
        (None, Some("t2"), Ok("t2")),
        (Some("t1"), None, Ok("t1")),
        (Some("t1"), Some("t1"), Ok("t1")),
        (Some("t1"), Some("t2"), Err("tenant_forbidden")),
        (Some("t1"), Some("T1"), Err("tenant_forbidden")),
        (Some("t1"), Some("default"), Err("tenant_forbidden")),
    ];
    for (own, named, expected) in table {
        let mut body = json!({ "purpose": "p", "alg": "ml-dsa-65" });
        if let Some(named) = named {
            body["tenant"] = named.into();
        }
        let request: requests::Create = parse(body.to_string().as_bytes()).unwrap();
        match (request.into_ask(&caller(own)), expected) {
            (
                Ok(Ask::Create {
                    tenant,
                    algorithm,
                    policy,
                    ..
                }),
                Ok(wanted),
            ) => {
                assert_eq!(tenant, wanted, "{own:?} {named:?}");
                assert_eq!(algorithm, Algorithm::MlDsa65);
                assert_eq!((policy.min_version, policy.rotate_after_ms), (1, None));
            }
            (Err(problem), Err(code)) => assert_eq!(problem.code(), code),
            (got, wanted) => panic!("{own:?} {named:?}: {got:?}, not {wanted:?}"),
        }
    }
}

#[test]
fn a_destruction_waits_a_week_unless_told() {
    let kid = || KID.parse().unwrap();
    let wait = |body: &[u8]| match parse::<requests::Destroy>(body).unwrap().into_ask(kid()) {
        Ask::ScheduleDestroy { key, wait_ms } => (key.version, wait_ms),
        other => panic!("{other:?}"),
    };
    assert_eq!(wait(b"{}"), (None, 7 * 24 * 3600 * 1000));
    let told = wait(br#"{"version":2,"wait_ms":86400000}"#);
    assert_eq!(told, (Some(2), 86_400_000));
}

#[test]
fn labels_are_printable_ascii_of_bounded_length() {
    for good in ["a", " ", "a b", "~", &"x".repeat(128)] {
        assert!(fields::is_label(good), "{good:?}");
    }
    for bad in ["", "\t", "a\nb", "\u{7f}", "ü", &"x".repeat(129)] {
        assert!(!fields::is_label(bad), "{bad:?}");
    }
}
