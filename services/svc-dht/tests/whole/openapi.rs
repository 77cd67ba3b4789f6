//! The API's document against the router, the answers and the errors: neither says more than the other.
//!
//! Every answer of every test in this crate is held against it, see `Node::http_with`.

use std::collections::BTreeSet;

use ron_core::{
    api::{ApiError, check::Checker},
    auth::Mode,
};
use svc_dht::{api, error, id::Id};

use crate::{clockwork::in_world, node::Node};

#[test]
fn the_document_is_sound_and_asks_for_credentials_only_where_callers_are_identified() {
    let document = Checker::new(api::document(&Mode::None));
    document.sound().unwrap();
    let secured = document
        .operations()
        .iter()
        .any(|o| o.about["security"].is_array());
    assert!(
        !secured
            && !document
                .document
                .to_string()
                .contains("missing_credentials")
    );
}

#[test]
fn every_route_answers_as_the_document_says_well_and_badly() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 3).await;
        let node = &nodes[1];
        node.http("PUT", "/v1/dht/values/a", b"1").await;
        let key = Id::of_value(node.dht.node().identity.public(), b"a").to_string();
        let unknown = Id([7; 32]).to_string();
        node.get(&format!("/v1/dht/closest/{key}")).await;
        for endpoint in api::endpoints() {
            if endpoint.path.ends_with("/events") {
                continue;
            }
            let paths = [(&*key, "1"), ("not-a-key", "999"), (&unknown, "one")];
            let paths =
                paths.map(|(key, id)| endpoint.path.replace("{key}", key).replace("{id}", id));
            let queries = [
                "",
                "?name=a",
                "?name=unknown",
                "?name=",
                "?publisher=x",
                "?ttl_ms=0",
            ];
            for path in paths {
                for query in queries {
                    for body in [
                        "",
                        "{",
                        "{\"x\":1}",
                        "{\"ttl_ms\":0}",
                        "{\"ttl_ms\":3600000}",
                    ] {
                        let path = format!("{path}{query}");
                        node.http(endpoint.method.as_str(), &path, body.as_bytes())
                            .await;
                    }
                }
            }
        }
        // The value in the form that was asked for.
        let json = "accept: application/json\r\n";
        let found = node
            .http_with("GET", "/v1/dht/values?name=a", json, b"")
            .await;
        assert_eq!(
            (found.status, &found.json["name"]),
            (200, &"a".into()),
            "{}",
            found.json
        );
        let served = node.get("/v1/dht/openapi.json").await;
        assert_eq!(served.json, api::document(&Mode::None));
    });
}

#[test]
fn every_error_of_the_service_is_in_the_document() {
    let document = Checker::new(api::document(&Mode::None));
    let mut listed = BTreeSet::new();
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
    // What only peers or listeners of events are told.
    let elsewhere = ["lagging", "bad_signature"];
    for error in error::examples() {
        let told = (error.status().as_str().to_owned(), error.code().to_owned());
        assert_eq!(
            listed.contains(&told),
            !elsewhere.contains(&error.code()),
            "{told:?}"
        );
    }
}
