//! The local API, as a caller meets it.

use serde_json::json;
use svc_dht::id::Id;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{clockwork::in_world, node::Node};

#[test]
fn a_value_is_put_by_name_and_got_by_key_and_by_name_and_publisher() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 4).await;
        let put = nodes[1]
            .http(
                "PUT",
                "/v1/dht/values/my%20name?ttl_ms=60000",
                b"\x00\xffvalue",
            )
            .await;
        assert_eq!(put.status, 200, "{}", put.json);
        let key = put.json["key"].as_str().unwrap().to_owned();
        assert!(put.json["replicas"].as_u64().unwrap() >= 3);
        let publisher = Id(*nodes[1].dht.node().identity.public()).to_string();
        assert_eq!(
            key,
            Id::of_value(nodes[1].dht.node().identity.public(), b"my name").to_string()
        );
        let by_name = format!("/v1/dht/values?name=my%20name&publisher={publisher}");
        for path in [format!("/v1/dht/values/{key}"), by_name] {
            let got = nodes[3].get(&path).await;
            assert_eq!(
                (got.status, got.body.as_slice()),
                (200, &b"\x00\xffvalue"[..])
            );
            assert_eq!(got.header("content-type"), Some("application/octet-stream"));
            assert_eq!(got.header("x-dht-publisher"), Some(publisher.as_str()));
            assert_eq!(
                got.header("x-dht-seq"),
                Some(put.json["seq"].to_string().as_str())
            );
        }
        let path = format!("/v1/dht/values/{key}");
        let told = nodes[2]
            .http_with("GET", &path, "accept: application/json\r\n", b"")
            .await;
        assert_eq!(told.json["value"], "AP92YWx1ZQ==");
        assert_eq!(told.json["name"], "my name");
        assert_eq!(told.json["publisher"], publisher);
        // Its own values need no publisher.
        let own = nodes[1].get("/v1/dht/values?name=my%20name").await;
        assert_eq!(own.body, b"\x00\xffvalue");
    });
}

#[test]
fn providers_closest_nodes_routing_and_the_course_of_a_lookup_are_told() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 5).await;
        let key = Id([8; 32]);
        let path = format!("/v1/dht/providers/{key}");
        let provided = nodes[0].http("POST", &path, b"{\"ttl_ms\":60000}").await;
        assert_eq!(provided.status, 200, "{}", provided.json);
        assert_eq!(nodes[1].http("POST", &path, b"").await.status, 200);
        let found = nodes[4].get(&path).await.json;
        let ids: Vec<_> = found["providers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["id"].clone())
            .collect();
        for node in &nodes[..2] {
            assert!(
                ids.contains(&json!(node.contact().id.to_string())),
                "{found}"
            );
        }
        let closest = nodes[4].get(&format!("/v1/dht/closest/{key}")).await.json;
        assert_eq!(closest["closest"].as_array().unwrap().len(), 4);
        let lookup = nodes[4]
            .get(&format!("/v1/dht/lookups/{}", closest["lookup"]))
            .await
            .json;
        assert_eq!(lookup["target"], key.to_string());
        assert_eq!(
            (&lookup["goal"], &lookup["outcome"]),
            (&json!("closest"), &json!("closest"))
        );
        let asked = lookup["asked"].as_array().unwrap();
        assert_eq!(asked.len() as u64, lookup["requests"].as_u64().unwrap());
        assert!(asked.iter().all(|a| a["outcome"] == "answered"), "{lookup}");
        let routing = nodes[4].get("/v1/dht/routing").await.json;
        assert_eq!(routing["id"], nodes[4].contact().id.to_string());
        assert_eq!(routing["peers"], 4);
        let entries = routing["buckets"].as_array().unwrap().iter();
        let entries = entries
            .map(|b| b["entries"].as_array().unwrap().len())
            .sum::<usize>();
        assert_eq!(entries, 4);
    });
}

#[test]
fn events_are_streamed_until_the_node_stops() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 3).await;
        let node = &nodes[0];
        let mut stream = node.connect_api().await;
        let request = "GET /v1/dht/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let reading = tokio::spawn(async move {
            let mut told = Vec::new();
            let _ = stream.read_to_end(&mut told).await;
            String::from_utf8_lossy(&told).into_owned()
        });
        world.pass(10).await;
        node.http("PUT", "/v1/dht/values/a", b"1").await;
        world.pass(40_000).await;
        node.stop.trigger();
        let told = reading.await.unwrap();
        assert!(told.contains("content-type: text/event-stream"), "{told}");
        for event in ["lookup_done", "record_stored", "published", "draining"] {
            assert!(
                told.contains(&format!("event: {event}\ndata: {{")),
                "{event}\n{told}"
            );
        }
        assert!(told.contains(": still here"), "{told}");
    });
}

#[test]
fn health_version_and_status_are_served() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        assert_eq!(node.get("/healthz").await.status, 200);
        assert_eq!(node.get("/readyz").await.status, 200);
        assert_eq!(node.get("/version").await.json["service"], "svc-dht");
        let status = node.get("/api/v1/status").await.json;
        assert_eq!(status["state"], "running");
        let queues: Vec<_> = status["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|q| q["name"].clone())
            .collect();
        assert_eq!(queues, ["work", "records", "route"]);
        assert_eq!(node.http("POST", "/api/v1/shutdown", b"").await.status, 404);
    });
}
