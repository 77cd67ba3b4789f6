//! Operation ids: what is promised under one is kept, and what could not be kept is not begun.

use serde_json::json;

use crate::clockwork::{in_world, node::Node};

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
        let counted = node.metric("kms_refused_total{code=\"batch_too_large\"}");
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
