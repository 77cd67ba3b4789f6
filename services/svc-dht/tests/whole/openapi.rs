//! The API's document against the router, the answers and the problems: neither says more than the other.

use std::collections::BTreeSet;

use serde_json::Value;
use svc_dht::{api, error, id::Id};

use crate::{
    clockwork::in_world,
    node::{Answer, Node},
};

struct Document(Value);

struct Operation {
    method: String,
    path: String,
    about: Value,
}

impl Document {
    fn new() -> Document {
        Document(serde_json::from_str(api::OPENAPI).expect("the document is JSON"))
    }

    fn operations(&self) -> Vec<Operation> {
        let mut all = Vec::new();
        for (path, methods) in self.0["paths"].as_object().unwrap() {
            for (method, about) in methods.as_object().unwrap() {
                all.push(Operation {
                    method: method.to_uppercase(),
                    path: path.clone(),
                    about: about.clone(),
                });
            }
        }
        all
    }

    /// Whether the value is what the schema says: types, members and what must be there.
    fn check(&self, schema: &Value, value: &Value, at: &str) {
        if let Some(reference) = schema["$ref"].as_str() {
            let schema = self.0.pointer(&reference[1..]).expect("it leads somewhere");
            return self.check(schema, value, at);
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(any) => any.iter().filter_map(Value::as_str).collect(),
            Value::String(one) => vec![one],
            _ => return,
        };
        let is = match value {
            Value::Object(_) => "object",
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "integer",
            Value::Bool(_) => "boolean",
            Value::Null => "null",
        };
        assert!(types.contains(&is), "{at}: {is} is not of {types:?}");
        match value {
            Value::Object(members) => {
                for name in schema["required"].as_array().into_iter().flatten() {
                    assert!(
                        members.contains_key(name.as_str().unwrap()),
                        "{at}: no {name}"
                    );
                }
                for (name, member) in members {
                    let listed = &schema["properties"][name];
                    assert!(!listed.is_null(), "{at}.{name} is not listed");
                    self.check(listed, member, &format!("{at}.{name}"));
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.check(&schema["items"], item, &format!("{at}[]"));
                }
            }
            Value::String(text) if schema["pattern"] == "^[0-9a-f]{64}$" => {
                assert!(Id::parse(text).is_some(), "{at}: {text}");
            }
            _ => {}
        }
    }
}

fn check_answer(document: &Document, operation: &Operation, answer: &Answer) {
    let at = format!("{} {}", operation.method, operation.path);
    let about = &operation.about["responses"][answer.status.to_string()];
    assert!(
        about.is_object(),
        "{at} answers {} {}",
        answer.status,
        answer.code()
    );
    let kind = answer.header("content-type").unwrap();
    let content = &about["content"][kind];
    assert!(
        content.is_object(),
        "{at} answers {} as {kind}",
        answer.status
    );
    if kind.ends_with("json") {
        document.check(&content["schema"], &answer.json, &at);
    }
    if kind == "application/problem+json" {
        let codes = about["x-codes"].as_array().unwrap();
        assert!(
            codes.contains(&answer.json["code"]),
            "{at}: {}",
            answer.json
        );
    }
}

#[test]
fn the_document_and_the_router_have_the_same_routes_and_scopes() {
    let operations = Document::new().operations();
    let documented: BTreeSet<_> = operations
        .iter()
        .map(|o| {
            (
                o.method.clone(),
                o.path.clone(),
                o.about["security"][0]["bearer"].to_string(),
            )
        })
        .collect();
    let routed: BTreeSet<_> = api::endpoints()
        .into_iter()
        .map(|e| {
            let scopes = e
                .scope
                .map_or("[]".to_owned(), |scope| format!("[\"{scope}\"]"));
            (e.method.to_string(), e.path.to_owned(), scopes)
        })
        .collect();
    assert_eq!(documented, routed);
}

#[test]
fn every_route_answers_as_the_document_says_well_and_badly() {
    in_world(|world| async move {
        let (document, nodes) = (Document::new(), Node::network(&world, 3).await);
        let node = &nodes[1];
        node.http("PUT", "/v1/dht/values/a", b"1").await;
        let key = Id::of_value(node.dht.node().identity.public(), b"a").to_string();
        node.get(&format!("/v1/dht/closest/{key}")).await;
        for operation in document.operations() {
            if operation.path.ends_with("/events") {
                continue;
            }
            let (name, number) = (
                operation.path.contains("{key}"),
                operation.path.contains("{id}"),
            );
            let mut paths = vec![operation.path.replace("{key}", &key).replace("{id}", "1")];
            if name {
                paths.push(operation.path.replace("{key}", "not-a-key"));
                paths.push(operation.path.replace("{key}", &Id([7; 32]).to_string()));
            }
            if number {
                paths.push(operation.path.replace("{id}", "999"));
                paths.push(operation.path.replace("{id}", "one"));
            }
            if operation.path.ends_with("/values") {
                paths.push("/v1/dht/values?name=a".into());
                paths.push("/v1/dht/values?name=unknown".into());
            }
            for path in paths {
                let answer = node.http(&operation.method, &path, b"").await;
                check_answer(&document, &operation, &answer);
            }
            if operation.method == "POST" {
                let path = operation.path.replace("{key}", &key);
                for body in ["{", "{\"x\":1}", "{\"ttl_ms\":0}"] {
                    let answer = node.http("POST", &path, body.as_bytes()).await;
                    assert!(answer.status >= 400);
                    check_answer(&document, &operation, &answer);
                }
            }
        }
        let served = node.get("/v1/dht/openapi.json").await;
        assert_eq!(served.json, document.0);
        // The value in the form that was asked for.
        let operation = document
            .operations()
            .into_iter()
            .find(|o| o.path.ends_with("/values"));
        let json = "accept: application/json\r\n";
        let answer = node
            .http_with("GET", "/v1/dht/values?name=a", json, b"")
            .await;
        check_answer(&document, &operation.unwrap(), &answer);
    });
}

#[test]
fn every_error_of_the_service_is_in_the_document() {
    let document = Document::new();
    let mut listed = BTreeSet::new();
    for operation in document.operations() {
        for (status, about) in operation.about["responses"].as_object().unwrap() {
            for code in about["x-codes"].as_array().into_iter().flatten() {
                listed.insert((status.clone(), code.as_str().unwrap().to_owned()));
            }
        }
    }
    // What only peers or listeners of events are told.
    let elsewhere = ["lagging", "bad_signature", "expired"];
    for error in error::examples() {
        let told = (error.status().as_str().to_owned(), error.code().to_owned());
        assert!(
            listed.contains(&told) || elsewhere.contains(&error.code()),
            "{told:?}"
        );
    }
}
