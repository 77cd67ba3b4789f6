//! The API's document against the parsers, the router and the errors: neither says more than the other.
#![allow(clippy::disallowed_methods, reason = "tests")]

mod api_support;

use std::collections::{BTreeMap, BTreeSet};

use api_support::{Bench, KID, nobody, passport, request};
use http::{Method, StatusCode};
use ron_core::{
    api::{ApiError, check::Checker, parse},
    auth::Mode,
    problem::Problem,
};
use ron_kms::{
    api::{self, requests},
    error,
};
use serde_json::{Value, json};

/// What a request is parsed by.
fn parser(schema: &str) -> fn(&[u8]) -> Result<(), Problem> {
    match schema {
        "CreateRequest" => |b| parse::<requests::Create>(b).map(drop),
        "RotateRequest" => |b| parse::<requests::Rotate>(b).map(drop),
        "DestroyRequest" => |b| parse::<requests::Destroy>(b).map(drop),
        "CancelDestroyRequest" => |b| parse::<requests::CancelDestroy>(b).map(drop),
        "PolicyRequest" => |b| parse::<requests::SetPolicy>(b).map(drop),
        "ImportRequest" => |b| parse::<requests::Import>(b).map(drop),
        "Nothing" => |b| parse::<requests::Nothing>(b).map(drop),
        "SignRequest" => |b| parse::<requests::Sign>(b)?.into_ask(b).map(drop),
        "VerifyRequest" => |b| parse::<requests::Verify>(b)?.into_ask().map(drop),
        "WrapRequest" => |b| parse::<requests::Wrap>(b).map(drop),
        "UnwrapRequest" => |b| parse::<requests::Unwrap>(b).map(drop),
        "DataKeyRequest" => |b| parse::<requests::DataKey>(b).map(drop),
        "AttestRequest" => |b| parse::<requests::Attest>(b).map(drop),
        other => panic!("no request is {other}"),
    }
}

fn document() -> Checker {
    Checker::new(api::document(&passport()))
}

#[test]
fn the_document_is_sound_and_served_as_it_is() {
    for mode in [Mode::None, passport()] {
        Checker::new(api::document(&mode)).sound().unwrap();
    }
    let bench = Bench::new();
    let path = "/v1/kms/openapi.json";
    let answer = bench.send(request(Some(nobody()), Method::GET, path, ""));
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.kind(), "application/json");
    assert_eq!(answer.json, bench.document.document);
    assert_eq!(answer.json["openapi"], "3.1.0");
}

#[test]
fn the_document_allows_exactly_what_is_taken() {
    let document = document();
    let mut seen = BTreeMap::new();
    for operation in document.operations() {
        let content = &operation.about["requestBody"]["content"]["application/json"];
        let Some(name) = content["schema"]["$ref"].as_str() else {
            continue;
        };
        let name = name.rsplit('/').next().unwrap();
        let examples = content["examples"].as_object().into_iter().flatten();
        let examples = examples.map(|(_, example)| example["value"].clone());
        for body in examples
            .chain([json!({})])
            .flat_map(|example| variants(&example))
        {
            let (allowed, taken) = (
                document.request(&operation, &body),
                parser(name)(body.to_string().as_bytes()),
            );
            // The engine's own bounds: too long is 413, not 422.
            let long = allowed
                .as_ref()
                .is_err_and(|why| why.contains("breaks maxLength"));
            let same = allowed.is_ok() == taken.is_ok() || (long && taken.is_ok());
            assert!(same, "{name} {body}\n{allowed:?}\n{taken:?}");
            let counts: &mut (u32, u32) = seen.entry(name.to_owned()).or_default();
            match taken {
                Ok(()) => counts.0 += 1,
                Err(problem) => {
                    assert!(matches!(problem.status().as_u16(), 400 | 422), "{problem}");
                    counts.1 += 1;
                }
            }
        }
    }
    assert_eq!(seen.len(), 13);
    assert!(
        seen.values()
            .all(|(taken, refused)| *taken > 0 && *refused > 10),
        "{seen:?}"
    );
}

/// The value, and all that differ from it in one place.
fn variants(value: &Value) -> Vec<Value> {
    let mut all = vec![value.clone()];
    for place in places(value, String::new()) {
        let mut change = |with: Value| {
            let mut body = value.clone();
            *body.pointer_mut(&place).unwrap() = with;
            all.push(body);
        };
        let long = "x".repeat(129);
        let palette = json!([
            null,
            true,
            -1,
            0,
            1,
            2,
            1.5,
            86_399_999,
            86_400_000,
            7_776_000_000_u64,
            7_776_000_001_u64,
            u32::MAX,
            u64::from(u32::MAX) + 1,
            u64::MAX,
            "",
            "A",
            "AA",
            "AB",
            "AAA",
            "AAE",
            "AAF",
            "a+b/",
            "AA==",
            "a b",
            "ü",
            "A".repeat(21),
            "A".repeat(22),
            "A".repeat(86),
            "A".repeat(87),
            long,
            &long[1..],
            KID,
            "ed25519",
            "sha-256",
            "none",
            format!("{KID}#v1"),
            format!("{KID}#v0"),
            format!("{KID}#v01"),
            format!("{KID}#v4294967295"),
            format!("{KID}#v4294967296"),
            format!("{}R", &KID[..21]),
            [],
            {},
            [1],
        ]);
        palette
            .as_array()
            .unwrap()
            .iter()
            .cloned()
            .for_each(&mut change);
        let here = value.pointer(&place).unwrap();
        if let Value::Object(members) = here {
            change(members.values().cloned().collect());
            let more = |name: &str| {
                let mut more = members.clone();
                more.insert(name.to_owned(), 1.into());
                Value::Object(more)
            };
            [
                "surplus", "message", "prehash", "messages", "version", "from",
            ]
            .into_iter()
            .filter(|name| !members.contains_key(*name))
            .for_each(|name| change(more(name)));
            for name in members.keys() {
                let mut fewer = members.clone();
                fewer.remove(name);
                change(Value::Object(fewer));
            }
        }
        if let Value::Array(items) = here {
            for len in [8, 9, 512, 513] {
                change(vec![items[0].clone(); len].into());
            }
        }
    }
    all
}

/// Pointers to all values within.
fn places(value: &Value, at: String) -> Vec<String> {
    let within: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(n, v)| (format!("{at}/{n}"), v))
            .collect(),
        Value::Array(items) => (items.iter().enumerate())
            .map(|(n, v)| (format!("{at}/{n}"), v))
            .collect(),
        _ => Vec::new(),
    };
    let within = within.into_iter().flat_map(|(at, value)| places(value, at));
    [at.clone()].into_iter().chain(within).collect()
}

#[test]
fn every_route_of_the_document_is_there_and_answers_as_it_says() {
    let bench = Bench::new();
    for endpoint in api::endpoints() {
        let path = endpoint.path.replace("{kid}", KID).replace("{n}", "1");
        let path = path
            .replace("{index}", "0")
            .replace("{*path}", "entries/000.p/1");
        // The bench holds each answer against the document.
        let answer = bench.send(request(Some(nobody()), endpoint.method.clone(), &path, ""));
        assert_ne!(answer.code(), "not_found", "{path}");
        assert_ne!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
}

#[test]
fn every_error_of_the_service_is_documented_and_has_one_status() {
    let document = document();
    let mut listed: BTreeSet<(String, String)> = BTreeSet::new();
    for operation in document.operations() {
        for (status, about) in operation.about["responses"].as_object().unwrap() {
            let schema = &about["content"]["application/problem+json"]["schema"];
            for code in schema["properties"]["code"]["enum"]
                .as_array()
                .into_iter()
                .flatten()
            {
                listed.insert((status.clone(), code.as_str().unwrap().to_owned()));
            }
        }
    }
    // What the types of the API refuse before.
    let elsewhere = ["wait_out_of_range", "rotate_after_zero"];
    for error in error::examples() {
        let told = (error.status().as_str().to_owned(), error.code().to_owned());
        let there = listed.contains(&told);
        assert_eq!(there, !elsewhere.contains(&error.code()), "{told:?}");
    }
    // Of a token and of a key.
    listed.remove(&("401".to_owned(), "alg_unknown".to_owned()));
    let codes: BTreeSet<&String> = listed.iter().map(|(_, code)| code).collect();
    assert_eq!(
        codes.len(),
        listed.len(),
        "a code has one status: {listed:?}"
    );
}
