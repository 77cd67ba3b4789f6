//! Operation ids: what is promised under one is kept, and what could not be kept is not begun.

use serde_json::json;

use crate::clockwork::{backend::Mood, in_world, node::Node};

#[test]
fn a_batch_whose_result_could_not_be_kept_is_refused_before_the_key_is_used() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let kid = node.key("ml-dsa-65").await;
        let number = async || node.sign(&kid).await.json["receipt"]["seq"].as_u64();
        let batch = |count| {
            let messages = vec![json!({ "message": "" }); count];
            json!({ "kid": kid, "messages": messages, "op_id": "b" })
        };
        let before = number().await.unwrap();
        let uses = node.backend.calls("sign").len();

        let refused = node.post("/sign", batch(300)).await;
        assert_eq!(refused.told(), (413, "batch_too_large"));
        assert_eq!(refused.json["retryable"], false);
        let counted =
            node.metric("kms_refused_total{code=\"batch_too_large\",route=\"/v1/kms/sign\"}");
        assert_eq!(counted, 1.0);
        assert_eq!(
            node.backend.calls("sign").len(),
            uses,
            "the key was not used"
        );
        assert_eq!(number().await, Some(before + 1), "nothing is recorded");

        let mut body = batch(300);
        body.as_object_mut().unwrap().remove("op_id");
        assert_eq!(node.post("/sign", body).await.status, 200, "without an id");
        let kept = node.post("/sign", batch(200)).await;
        assert_eq!(kept.status, 200, "what fits, under the same id");
        assert_eq!(node.post("/sign", batch(200)).await.json, kept.json);
    });
}

#[test]
fn what_was_promised_comes_back_whatever_became_of_key_and_backend() {
    in_world(|world| async move {
        let node = Node::start(&world, |_| {}).await;
        let (signs, wraps) = (node.key("ed25519").await, node.key("aes-256-gcm").await);
        let asks = [
            (
                "/sign",
                json!({ "kid": signs, "message": "", "op_id": "s", "attest": true }),
            ),
            (
                "/wrap",
                json!({ "kid": wraps, "plaintext": "AA", "op_id": "w" }),
            ),
        ];
        let mut first = Vec::new();
        for (path, body) in &asks {
            let answer = node.post(path, body.clone()).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.json);
            first.push(answer.json);
        }
        assert!(first[0]["att"].is_object(), "{}", first[0]);
        for kid in [&signs, &wraps] {
            let path = format!("/keys/{kid}/versions/1/disable");
            assert_eq!(node.post(&path, json!({})).await.status, 200);
        }
        let refused = node.sign(&signs).await;
        assert_eq!(refused.told(), (409, "version_disabled"), "nothing new");
        node.backend.set("", Mood::Away);
        world.pass(2_000).await;
        for ((path, body), first) in asks.iter().zip(&first) {
            let again = node.post(path, body.clone()).await;
            assert_eq!(again.status, 200, "{path}: {}", again.json);
            assert_eq!(again.json, *first, "{path}");
        }
        let body = json!({ "kid": signs, "message": "", "op_id": "new" });
        let refused = node.post("/sign", body.clone()).await;
        assert_eq!(refused.told(), (409, "version_disabled"));
        let path = format!("/keys/{signs}/versions/1/enable");
        node.backend.set("", Mood::Well);
        world.pass(10_000).await;
        assert_eq!(node.post(&path, json!({})).await.status, 200);
        let done = node.post("/sign", body).await;
        assert_eq!(done.status, 200, "an id that came to nothing is free");
    });
}
