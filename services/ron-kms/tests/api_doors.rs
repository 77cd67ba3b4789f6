//! Who may call what: each route asks for its scope and, where keys are touched, for a tenant.
#![allow(clippy::disallowed_methods, reason = "tests")]

mod api_support;

use api_support::{Answer, Bench, KID, caller, nobody, request};
use http::{Method, StatusCode, header};
use ron_core::api::{Endpoint, Need};
use ron_kms::api;
use serde_json::json;

const SCOPES: [&str; 7] = [
    api::SIGN,
    api::VERIFY,
    api::WRAP,
    api::UNWRAP,
    api::ROTATE,
    api::READ,
    api::AUDIT,
];

fn path(endpoint: &Endpoint) -> String {
    endpoint
        .path
        .replace("{kid}", KID)
        .replace("{n}", "1")
        .replace("{index}", "0")
        .replace("{*path}", "0/000")
}

/// The document's example for this route, or nothing.
fn body(endpoint: &Endpoint) -> String {
    let example = endpoint.examples().first();
    example.map_or(String::new(), ToString::to_string)
}

#[test]
fn each_route_needs_its_scopes_and_no_others_will_do() {
    let bench = Bench::new();
    for endpoint in api::endpoints() {
        let needed = endpoint.need.scopes();
        for missing in needed {
            // All others there are, even the route's own others.
            let others: Vec<&str> = SCOPES.into_iter().filter(|s| s != missing).collect();
            let answer = ask(&bench, &endpoint, &others);
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{endpoint:?}");
            assert_eq!(answer.code(), "missing_scope");
            assert_eq!(answer.json["scope"], *missing, "says which is missing");
        }
        let answer = ask(&bench, &endpoint, needed);
        // It went on to the engine, which knows no such key and can make none.
        assert!(
            !matches!(answer.status.as_u16(), 401 | 403),
            "{endpoint:?}: {}",
            answer.json
        );
        assert_ne!(answer.code(), "not_found", "{endpoint:?}");
        assert!(!answer.status.is_redirection());
        let unread = matches!(answer.status.as_u16(), 400 | 405 | 415 | 422);
        let reached = !unread || answer.code() == "alg_unsupported";
        assert!(reached, "{endpoint:?}: {}", answer.json);
    }
}

fn ask(bench: &Bench, endpoint: &Endpoint, scopes: &[&str]) -> Answer {
    bench.send(request(
        Some(caller(Some("default"), scopes)),
        endpoint.method.clone(),
        &path(endpoint),
        body(endpoint),
    ))
}

#[test]
fn scopes_of_the_routes_are_these() {
    let table = [
        ("POST", "/v1/kms/sign", "kms:sign"),
        ("POST", "/v1/kms/verify", "kms:verify"),
        ("POST", "/v1/kms/wrap", "kms:wrap"),
        ("POST", "/v1/kms/unwrap", "kms:unwrap"),
        ("POST", "/v1/kms/data-key", "kms:wrap"),
        ("POST", "/v1/kms/attest", "kms:read"),
        ("POST", "/v1/kms/keys", "kms:rotate"),
        ("GET", "/v1/kms/keys", "kms:read"),
        ("GET", "/v1/kms/keys/{kid}", "kms:read"),
        ("GET", "/v1/kms/keys/{kid}/versions/{n}", "kms:read"),
        (
            "POST",
            "/v1/kms/keys/{kid}/versions/{n}/disable",
            "kms:rotate",
        ),
        (
            "POST",
            "/v1/kms/keys/{kid}/versions/{n}/enable",
            "kms:rotate",
        ),
        ("POST", "/v1/kms/keys/{kid}/rotate", "kms:rotate"),
        ("POST", "/v1/kms/keys/{kid}/destroy", "kms:rotate"),
        ("POST", "/v1/kms/keys/{kid}/destroy/cancel", "kms:rotate"),
        ("PUT", "/v1/kms/keys/{kid}/policy", "kms:rotate"),
        ("POST", "/v1/kms/keys/{kid}/import", "kms:rotate kms:unwrap"),
        ("GET", "/v1/kms/jwks.json", "kms:read"),
        ("GET", "/v1/kms/audit/checkpoint", "kms:audit"),
        ("GET", "/v1/kms/audit/tile/{*path}", "kms:audit"),
        ("GET", "/v1/kms/audit/proof/{index}", "kms:audit"),
        ("GET", "/v1/kms/openapi.json", ""),
    ];
    let all = api::endpoints();
    let named = |endpoint: &Endpoint| {
        let scopes = endpoint.need.scopes().join(" ");
        (endpoint.method.to_string(), endpoint.path, scopes)
    };
    let all: Vec<_> = all.iter().map(named).collect();
    let table = table.map(|(method, path, scopes)| (method.to_owned(), path, scopes.to_owned()));
    assert_eq!(all, table);
}

#[test]
fn only_the_log_and_the_document_are_open_to_a_caller_without_a_tenant() {
    let bench = Bench::new();
    for endpoint in api::endpoints() {
        let keys = matches!(endpoint.need, Need::Tenant(_));
        let whole =
            endpoint.path.starts_with("/v1/kms/audit/") || endpoint.path.ends_with("openapi.json");
        assert_eq!(keys, !whole, "{endpoint:?}");
        for tenant in [None, Some(""), Some("a\nb"), Some(&*"x".repeat(129))] {
            let who = caller(tenant, &SCOPES);
            let (method, body) = (endpoint.method.clone(), body(&endpoint));
            let answer = bench.send(request(Some(who), method, &path(&endpoint), body));
            let refused = answer.code() == "tenant_missing";
            assert_eq!(refused, keys, "{endpoint:?} {tenant:?}");
            assert_eq!(answer.status == StatusCode::FORBIDDEN, keys);
        }
    }
}

#[test]
fn with_authentication_off_every_route_is_open_and_without_an_identity_none() {
    let bench = Bench::new();
    for endpoint in api::endpoints() {
        let send = |who| {
            let (method, body) = (endpoint.method.clone(), body(&endpoint));
            bench.send(request(who, method, &path(&endpoint), body))
        };
        let open = send(Some(nobody()));
        assert!(!matches!(open.status.as_u16(), 401 | 403), "{endpoint:?}");
        let closed = send(None);
        assert_eq!(closed.status, StatusCode::UNAUTHORIZED, "{endpoint:?}");
        assert_eq!(closed.code(), "missing_credentials");
        assert_eq!(closed.headers[header::WWW_AUTHENTICATE], "Bearer");
    }
}

#[test]
fn a_subject_that_the_log_cannot_name_is_refused() {
    let bench = Bench::new();
    for (len, refused) in [(256, false), (257, true)] {
        let mut who = caller(Some("t1"), &SCOPES);
        who.subject = "x".repeat(len);
        let answer = bench.send(request(Some(who), Method::GET, "/v1/kms/keys", ""));
        assert_eq!(answer.code() == "subject_too_long", refused, "{len}");
    }
}

#[test]
fn refusals_are_counted_by_their_route_and_code() {
    let bench = Bench::new();
    let send =
        |who, path: &str, body: &str| bench.send(request(who, Method::POST, path, body.to_owned()));
    let all = || Some(caller(Some("t1"), &SCOPES));
    send(all(), "/v1/kms/sign", "{");
    send(all(), "/v1/kms/sign", r#"{"kid":"x"}"#);
    send(all(), "/v1/kms/sign", r#"{"kid":"x"}"#);
    send(Some(caller(Some("t1"), &[])), "/v1/kms/sign", "{}");
    send(Some(caller(None, &SCOPES)), "/v1/kms/sign", "{}");
    send(None, "/v1/kms/sign", "{}");
    let foreign = r#"{"purpose":"p","alg":"ed25519","tenant":"t2"}"#;
    assert_eq!(
        send(all(), "/v1/kms/keys", foreign).code(),
        "tenant_forbidden"
    );
    assert_eq!(send(all(), "/v1/kms/nothing", "").code(), "not_found");
    for (code, route, count) in [
        ("json_syntax", "/v1/kms/sign", 1.0),
        ("invalid_field", "/v1/kms/sign", 2.0),
        ("missing_scope", "/v1/kms/sign", 1.0),
        ("tenant_missing", "/v1/kms/sign", 1.0),
        ("missing_credentials", "/v1/kms/sign", 1.0),
        ("tenant_forbidden", "/v1/kms/keys", 1.0),
        ("not_found", "", 1.0),
    ] {
        let name = format!("kms_refused_total{{code=\"{code}\",route=\"{route}\"}}");
        assert_eq!(bench.metric(&name), count, "{code}");
    }
    for reason in ["missing_scope", "missing_credentials"] {
        let name = format!("auth_failures_total{{reason=\"{reason}\"}}");
        assert_eq!(bench.metric(&name), 1.0, "{reason}");
    }
}

#[test]
fn a_body_must_say_it_is_json_unless_there_is_none() {
    let bench = Bench::new();
    let rotate = format!("/v1/kms/keys/{KID}/rotate");
    let sign = json!({ "kid": KID, "message": "AA" }).to_string();
    let wrong = |status: StatusCode| status == StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let table = [
        ("/v1/kms/sign", &*sign, "application/json", false),
        (
            "/v1/kms/sign",
            &*sign,
            "application/json; charset=utf-8",
            false,
        ),
        ("/v1/kms/sign", &*sign, "Application/JSON", false),
        ("/v1/kms/sign", &*sign, "application/vnd.kms+json", false),
        ("/v1/kms/sign", &*sign, "text/plain", true),
        ("/v1/kms/sign", &*sign, "text/json", true),
        ("/v1/kms/sign", &*sign, "application/jsonx", true),
        ("/v1/kms/sign", &*sign, "", true),
        ("/v1/kms/sign", "", "", true),
        (&*rotate, "{}", "text/plain", true),
        (&*rotate, "{}", "application/json", false),
        (&*rotate, "", "", false),
    ];
    for (path, body, kind, refused) in table {
        let mut asked = request(Some(nobody()), Method::POST, path, body.to_owned());
        asked.headers_mut().remove(header::CONTENT_TYPE);
        if !kind.is_empty() {
            let value = kind.parse().unwrap();
            asked.headers_mut().insert(header::CONTENT_TYPE, value);
        }
        let answer = bench.send(asked);
        assert_eq!(wrong(answer.status), refused, "{path} {body} {kind:?}");
        assert_eq!(
            answer.headers[header::CONTENT_TYPE],
            "application/problem+json"
        );
    }
}

#[test]
fn paths_and_queries_that_name_nothing_are_refused() {
    let bench = Bench::new();
    let keys = format!("/v1/kms/keys/{KID}");
    let table = [
        ("GET", "/v1/kms/keys/short".to_owned(), 400, "invalid_path"),
        ("GET", format!("{keys}%23v1"), 400, "invalid_path"),
        ("GET", format!("{keys}/versions/x"), 400, "invalid_path"),
        ("GET", format!("{keys}/versions/-1"), 400, "invalid_path"),
        (
            "POST",
            format!("{keys}/versions/0/disable"),
            400,
            "invalid_path",
        ),
        (
            "GET",
            "/v1/kms/keys?limit=0".to_owned(),
            400,
            "invalid_query",
        ),
        (
            "GET",
            "/v1/kms/keys?limit=1001".to_owned(),
            400,
            "invalid_query",
        ),
        (
            "GET",
            "/v1/kms/keys?limit=x".to_owned(),
            400,
            "invalid_query",
        ),
        (
            "GET",
            "/v1/kms/keys?after=x".to_owned(),
            400,
            "invalid_query",
        ),
        (
            "GET",
            "/v1/kms/keys?page=2".to_owned(),
            400,
            "invalid_query",
        ),
        (
            "GET",
            "/v1/kms/audit/proof/x".to_owned(),
            400,
            "invalid_path",
        ),
        (
            "GET",
            "/v1/kms/audit/tile/0/0".to_owned(),
            404,
            "record_not_found",
        ),
        (
            "GET",
            "/v1/kms/audit/tile/%30/000".to_owned(),
            404,
            "record_not_found",
        ),
        (
            "GET",
            "/v1/kms/audit/tile/0/000/../001".to_owned(),
            404,
            "record_not_found",
        ),
        ("GET", "/v1/kms/nothing".to_owned(), 404, "not_found"),
        ("GET", "/v1/kms/sign".to_owned(), 405, "method_not_allowed"),
        ("DELETE", keys.clone(), 405, "method_not_allowed"),
    ];
    for (method, path, status, code) in table {
        let method = method.parse().unwrap();
        let answer = bench.send(request(Some(nobody()), method, &path, ""));
        let got = (answer.status.as_u16(), answer.code());
        assert_eq!(got, (status, code), "{path}");
    }
}
