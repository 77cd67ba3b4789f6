//! The API's document against the router, the requests and the problems: neither says more than the other.
#![allow(clippy::disallowed_methods, reason = "tests")]

mod api_support;

use std::collections::BTreeSet;

use api_support::{Bench, KID, nobody, request, schema::Document};
use http::{Method, StatusCode, header};
use ron_core::problem::Problem;
use ron_kms::{
    api::{self, parse, requests},
    audit::log,
    error::KmsError,
    keys::{
        Algorithm, key::Refusal, nonce::NonceError, sealing::SealingError, signing::SigningError,
    },
};
use serde_json::Value;

struct Operation {
    method: Method,
    path: String,
    about: Value,
}

fn operations(document: &Document) -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, methods) in document.0["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            all.push(Operation {
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                about: about.clone(),
            });
        }
    }
    all
}

/// What a request's schema is parsed by.
fn parser(schema: &str) -> fn(&[u8]) -> Result<(), Problem> {
    match schema {
        "CreateRequest" => |b| parse::<requests::Create>(b).map(drop),
        "RotateRequest" => |b| parse::<requests::Rotate>(b).map(drop),
        "DestroyRequest" => |b| parse::<requests::Destroy>(b).map(drop),
        "CancelDestroyRequest" => |b| parse::<requests::CancelDestroy>(b).map(drop),
        "Policy" => |b| parse::<requests::SetPolicy>(b).map(drop),
        "ImportRequest" => |b| parse::<requests::Import>(b).map(drop),
        "Nothing" => |b| parse::<requests::Nothing>(b).map(drop),
        "SignRequest" => |b| parse::<requests::Sign>(b)?.into_ask(b).map(drop),
        "VerifyRequest" => |b| parse::<requests::Verify>(b)?.into_ask().map(drop),
        "WrapRequest" => |b| parse::<requests::Wrap>(b).map(drop),
        "UnwrapRequest" => |b| parse::<requests::Unwrap>(b).map(drop),
        "DataKeyRequest" => |b| parse::<requests::DataKey>(b).map(drop),
        "AttestRequest" => |b| parse::<requests::Attest>(b)?.into_parts().map(drop),
        other => panic!("no request is {other}"),
    }
}

/// Every request of the document: its schema's name and its examples.
fn examples(document: &Document) -> Vec<(String, Vec<Value>)> {
    let bodies = operations(document).into_iter().filter_map(|operation| {
        let body = &operation.about["requestBody"]["content"]["application/json"];
        let name = body["schema"]["$ref"].as_str()?;
        let name = name.rsplit('/').next()?.to_owned();
        let examples = body["examples"].as_object().expect("examples").values();
        Some((name, examples.map(|e| e["value"].clone()).collect()))
    });
    bodies.collect()
}

#[test]
fn the_document_and_the_router_have_the_same_routes_and_scopes() {
    let document = Document::new();
    let mut documented = BTreeSet::new();
    for operation in operations(&document) {
        let scopes = &operation.about["security"][0]["bearer"];
        documented.insert((
            operation.method.to_string(),
            operation.path,
            scopes.to_string(),
        ));
    }
    let routed = api::endpoints().into_iter().map(|endpoint| {
        let scopes = Value::from(endpoint.need.scopes()).to_string();
        let path = endpoint.path.replace("{*path}", "{path}");
        (endpoint.method.to_string(), path, scopes)
    });
    let mut routed: BTreeSet<_> = routed.collect();
    // Bundles lie below the tiles; the document names them for themselves.
    let bundles = (
        "GET".to_owned(),
        "/v1/kms/audit/tile/entries/{path}".to_owned(),
        "[\"kms:audit\"]".to_owned(),
    );
    routed.insert(bundles);
    assert_eq!(documented, routed);
}

#[test]
fn every_documented_route_is_there() {
    let (document, bench) = (Document::new(), Bench::new());
    for operation in operations(&document) {
        let path = operation.path.replace("{kid}", KID);
        let path = path.replace("{n}", "1").replace("{index}", "0");
        let path = path
            .replace("/tile/{path}", "/tile/0/000")
            .replace("{path}", "000.p/1");
        let answer = bench.send(request(Some(nobody()), operation.method.clone(), &path, ""));
        assert_ne!(answer.code(), "not_found", "{path}");
        assert_ne!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let status = answer.status.as_str();
        assert!(
            operation.about["responses"][status].is_object(),
            "{path} answers {status}"
        );
        let kind = answer.headers[header::CONTENT_TYPE].to_str().unwrap();
        let about = document.resolve(&operation.about["responses"][status]);
        assert!(
            about["content"][kind].is_object(),
            "{path} answers {status} as {kind}"
        );
        if kind == "application/problem+json" {
            document.check("Problem", &answer.json);
            let codes = about["x-codes"].as_array().unwrap();
            assert!(
                codes.contains(&answer.json["code"]),
                "{path}: {}",
                answer.json
            );
        }
    }
}

#[test]
fn the_document_is_served_as_it_is() {
    let bench = Bench::new();
    let answer = bench.send(request(
        Some(nobody()),
        Method::GET,
        "/v1/kms/openapi.json",
        "",
    ));
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(answer.json, Document::new().0);
    assert_eq!(answer.json["openapi"], "3.1.0");
}

#[test]
fn every_example_fits_its_schema_and_is_taken() {
    let document = Document::new();
    let all = examples(&document);
    assert_eq!(all.len(), 14, "requests with a body");
    for (name, examples) in all {
        for example in examples {
            document.check(&name, &example);
            let taken = parser(&name)(example.to_string().as_bytes());
            assert!(taken.is_ok(), "{name} {example}: {taken:?}");
        }
    }
}

#[test]
fn a_field_that_the_document_does_not_list_is_refused_at_every_depth() {
    for (name, examples) in examples(&Document::new()) {
        for example in examples {
            for place in objects(&example, String::new()) {
                let mut body = example.clone();
                body.pointer_mut(&place).unwrap()["surplus"] = 1.into();
                let problem = parser(&name)(body.to_string().as_bytes()).unwrap_err();
                assert_eq!(problem.code(), "unknown_field", "{name} {place}");
            }
        }
    }
}

#[test]
fn a_list_of_the_values_is_no_object_at_any_depth() {
    for (name, examples) in examples(&Document::new()) {
        for example in examples {
            for place in objects(&example, String::new()) {
                let mut body = example.clone();
                let object = body.pointer_mut(&place).unwrap();
                let values = object.as_object().unwrap().values().cloned();
                *object = Value::Array(values.collect());
                let problem = parser(&name)(body.to_string().as_bytes()).unwrap_err();
                let told = (problem.status(), problem.code());
                let expected = (StatusCode::UNPROCESSABLE_ENTITY, "invalid_field");
                assert_eq!(told, expected, "{name} {place}");
                assert!(problem.to_string().contains("an object"), "{problem}");
            }
        }
    }
    // As many values as the request has fields, in their order.
    let made = parse::<requests::Create>(br#"[null,"seq","ed25519",null]"#);
    assert_eq!(made.unwrap_err().code(), "invalid_field");
}

#[test]
fn requests_have_the_fields_that_the_document_lists_and_need_those_it_requires() {
    let document = Document::new();
    for (name, examples) in examples(&document) {
        let schema = document.named(&name);
        let listed: BTreeSet<&str> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        // serde lists what it would have taken.
        let said = parser(&name)(br#"{"surplus":1}"#).unwrap_err().to_string();
        let taken: BTreeSet<&str> = said
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|f| *f != "surplus")
            .collect();
        assert_eq!(taken, listed, "{name}: {said}");
        for example in &examples {
            for field in schema["required"].as_array().into_iter().flatten() {
                let mut body = example.clone();
                body.as_object_mut()
                    .unwrap()
                    .remove(field.as_str().unwrap());
                let problem = parser(&name)(body.to_string().as_bytes()).unwrap_err();
                assert_eq!(problem.code(), "missing_field", "{name} without {field}");
            }
        }
        for field in listed {
            let needed = schema["required"]
                .as_array()
                .is_some_and(|r| r.contains(&field.into()));
            let mut body = examples[0].clone();
            if !needed && body.as_object_mut().unwrap().remove(field).is_some() {
                let said = parser(&name)(body.to_string().as_bytes()).map_err(|p| p.to_string());
                let one_of = said
                    .as_ref()
                    .is_err_and(|said| said.contains("exactly one of"));
                assert!(said.is_ok() || one_of, "{name} without {field}: {said:?}");
            }
        }
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_used() {
    let document = Document::new();
    let mut used = BTreeSet::new();
    collect_references(&document.0, &mut used);
    for reference in &used {
        assert!(document.0.pointer(&reference[1..]).is_some(), "{reference}");
    }
    for kind in ["schemas", "responses"] {
        for name in document.0["components"][kind].as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(used.contains(&reference), "{reference} is not used");
        }
    }
}

#[test]
fn every_error_of_the_service_is_documented_under_its_status() {
    let document = Document::new();
    let codes = document.named("Problem")["properties"]["code"]["enum"].as_array();
    let codes = codes.expect("a list of all codes");
    let responses = document.0["components"]["responses"].as_object().unwrap();
    for error in errors() {
        let listed = responses.iter().find(|(_, about)| {
            let codes = about["x-codes"].as_array().unwrap();
            codes.contains(&error.code().into())
                && status(&document_status(about, responses)) == error.status()
        });
        assert!(listed.is_some(), "{} {}", error.status(), error.code());
        assert!(codes.contains(&error.code().into()), "{}", error.code());
    }
}

/// The status under which the paths refer to this response.
fn document_status(about: &Value, responses: &serde_json::Map<String, Value>) -> String {
    let name = responses
        .iter()
        .find(|(_, other)| *other == about)
        .unwrap()
        .0;
    let reference = format!("#/components/responses/{name}");
    for operation in operations(&Document::new()) {
        for (status, response) in operation.about["responses"].as_object().unwrap() {
            if response["$ref"] == reference {
                return status.clone();
            }
        }
    }
    panic!("{name} is not used")
}

fn status(text: &str) -> StatusCode {
    text.parse().unwrap()
}

/// One of each kind.
fn errors() -> Vec<KmsError> {
    let ed = Algorithm::Ed25519;
    let mut all = vec![
        KmsError::Busy,
        KmsError::TenantBusy,
        KmsError::Draining,
        KmsError::Timeout("sign"),
        KmsError::WorkerLost,
        KmsError::NoSuchKey,
        KmsError::ForeignTenant,
        KmsError::Unsupported(ed, "software"),
        KmsError::HeadMoved {
            expected: 1,
            head: 2,
        },
        KmsError::TooManyKeys { max: 1 },
        KmsError::RotateTooSoon { least: 1 },
        KmsError::Nonce(NonceError::Exhausted),
        KmsError::BackendUnavailable(String::new()),
        KmsError::BackendDamaged(String::new()),
        KmsError::Store(String::new()),
        KmsError::Audit(log::Refusal::Integrity),
        KmsError::Audit(log::Refusal::Closing),
        KmsError::Audit(log::Refusal::NotReserved),
        KmsError::OpIdConflict,
        KmsError::OpIdInFlight,
        KmsError::BatchTooLarge { max: 1 },
        KmsError::VerifyCacheExpired { age_ms: 1 },
        KmsError::NotCovered { index: 1 },
        KmsError::NoSuchRecord,
        KmsError::Invalid(String::new()),
    ];
    let refusals = [
        Refusal::NoSuchVersion(1),
        Refusal::Disabled(1),
        Refusal::Scheduled {
            version: 1,
            at_ms: 1,
        },
        Refusal::Destroyed(1),
        Refusal::BelowMinimum {
            version: 1,
            minimum: 2,
        },
        Refusal::WrongUse(ed.key_use()),
        Refusal::MinimumOutOfRange {
            asked: 1,
            from: 1,
            head: 1,
        },
        Refusal::WaitOutOfRange,
        Refusal::NotScheduled(1),
        Refusal::TooManyVersions,
        Refusal::RotateAfterZero,
    ];
    all.extend(refusals.map(KmsError::Refused));
    let signing = [
        SigningError::NotForSigning(ed),
        SigningError::BadSecret(ed),
        SigningError::PrehashRefused(ed),
        SigningError::BadSignature(ed),
        SigningError::Failed(ed),
    ];
    all.extend(signing.map(KmsError::Signing));
    let sealing = [
        SealingError::NotForWrapping(ed),
        SealingError::NotOffered(ed),
        SealingError::TooLong,
        SealingError::BadSecret(ed),
        SealingError::NotABlob,
        SealingError::DoesNotOpen,
        SealingError::Failed(ed),
    ];
    all.extend(sealing.map(KmsError::Sealing));
    all
}

/// Pointers to all objects within.
fn objects(value: &Value, at: String) -> Vec<String> {
    let mut all = Vec::new();
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                all.extend(objects(member, format!("{at}/{name}")));
            }
            all.push(at);
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                all.extend(objects(item, format!("{at}/{n}")));
            }
        }
        _ => {}
    }
    all
}

fn collect_references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(reference) if name == "$ref" => {
                        into.insert(reference.to_owned());
                    }
                    _ => collect_references(member, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        _ => {}
    }
}
