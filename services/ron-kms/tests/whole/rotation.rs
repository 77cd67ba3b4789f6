//! Rotation by policy: not more often than is allowed, and not beyond what a key can hold.

use serde_json::json;

use crate::clockwork::{in_world, node::Node};

#[test]
fn a_key_is_rotated_when_its_policy_says_and_one_that_is_full_is_left_alone() {
    in_world(|world| async move {
        let node = Node::start(&world, |config| {
            config.rotate_after_min_ms = 500;
            config.audit.checkpoint_interval_ms = 3_600_000;
        });
        let node = node.await;
        let create = |after: u64| {
            let policy = json!({ "rotate_after_ms": after });
            node.post(
                "/keys",
                json!({ "purpose": "p", "alg": "ed25519", "policy": policy }),
            )
        };
        assert_eq!(create(499).await.told(), (422, "rotate_after_too_short"));
        let made = create(500).await;
        assert_eq!(made.status, 201, "{}", made.json);
        let path = format!("/v1/kms/keys/{}", made.json["kid"].as_str().unwrap());
        world.pass(10_500).await;
        let head = node.get(&path).await.json["head"].as_u64().unwrap();
        assert!((8..=12).contains(&head), "one a second: {head}");
        assert_eq!(node.metric("kms_keys_full"), 0.0);

        world.pass(1_100_000).await;
        assert_eq!(node.get(&path).await.json["head"], 1024);
        assert_eq!(node.metric("kms_keys_full"), 1.0);
    });
}
