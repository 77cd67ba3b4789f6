//! How nodes find each other and what others have put: bootstrap, lookups, dead peers, other networks, restarts.

use std::collections::{BTreeMap, BTreeSet};

use svc_dht::{error::DhtError, id::Id, lookup::Goal};

use crate::{
    clockwork::{World, in_world},
    node::{Node, addr, ip},
};

/// No table holds its own node, anybody twice, anybody in the wrong bucket, or anybody who is not of this network.
fn assert_sound(nodes: &[Node]) {
    let all: BTreeSet<_> = nodes.iter().map(Node::contact).collect();
    for node in nodes {
        let table = &node.dht.node().table;
        let mut seen = BTreeSet::new();
        for (index, view) in table.buckets() {
            for entry in view.iter() {
                assert_ne!(entry.contact.id, node.contact().id, "itself");
                assert!(seen.insert(entry.contact.id), "twice");
                assert_eq!(table.bucket_of(&entry.contact.id), Some(index));
                assert!(all.contains(&entry.contact), "{:?}", entry.contact);
            }
        }
    }
}

/// The ids of this network, the closest to the target first.
fn closest(nodes: &[Node], target: &Id, but: Option<&Node>) -> Vec<Id> {
    let mut ids: Vec<Id> = nodes.iter().map(|n| n.contact().id).collect();
    ids.retain(|id| but.is_none_or(|but| but.contact().id != *id));
    ids.sort_by_key(|id| id.distance(target));
    ids
}

// proves: DHT-2.3, DHT-2.4, DHT-10.3, DHT-4.2
#[test]
fn nodes_find_each_other_and_agree_on_who_is_closest() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 12).await;
        assert_sound(&nodes);
        for (n, node) in nodes.iter().enumerate() {
            let target = Id([n as u8 * 17; 32]);
            let found = node.dht.closest(target, node.deadline()).await.unwrap();
            let found: Vec<Id> = found.closest.iter().map(|c| c.id).collect();
            assert_eq!(found, closest(&nodes, &target, Some(node)), "node {n}");
        }
        // One writer for each bucket in use, and each bucket is written by it alone.
        for node in &nodes {
            let tasks = node.view.status().tasks;
            let writers = tasks.iter().filter(|t| t.kind == "bucket_writer").count();
            assert_eq!(writers, node.dht.node().routes.in_use().len());
        }
        // One that rests ends, and another may come after it, but no two live at once.
        let told = |event| {
            let mut count: BTreeMap<_, usize> = BTreeMap::new();
            for told in world.told(event) {
                *count.entry((told.ip, told.id)).or_default() += 1;
            }
            count
        };
        let (begun, ended) = (told("dht.writer_begun"), told("dht.writer_ended"));
        for (bucket, begun) in begun {
            let ended = ended.get(&bucket).copied().unwrap_or(0);
            assert!(begun - ended <= 1, "{bucket:?} had two writers");
        }
    });
}

// proves: DHT-2.6, DHT-8.5, DHT-9.5
#[test]
fn a_node_is_ready_once_a_seed_has_answered_and_its_buckets_hold_somebody() {
    in_world(|world| async move {
        let first = Node::start(&world, 1, |_| {}).await;
        first.until_ready().await;
        world.silence(ip(1), true);
        let second = Node::start(&world, 2, |_| {}).await;
        world.pass(10_000).await;
        let status = second.get("/readyz").await;
        assert_eq!(status.status, 503);
        let missing = status.json["missing"].to_string();
        assert!(
            missing.contains("bootstrap_seeds") && missing.contains("buckets_filled"),
            "{missing}"
        );
        let refused = second
            .get(&format!("/v1/dht/closest/{}", Id([7; 32])))
            .await;
        assert_eq!((refused.status, refused.code()), (503, "not_ready"));
        assert!(refused.header("retry-after").is_some());
        assert!(second.metric("not_ready_total{phase=\"bootstrap\"}").await >= 1.0);
        assert!(
            second
                .metric("backoff_retries_total{op=\"bootstrap\"}")
                .await
                >= 2.0
        );
        world.silence(ip(1), false);
        second.until_ready().await;
        assert_eq!(second.get("/readyz").await.status, 200);
        assert_eq!(
            second
                .get(&format!("/v1/dht/closest/{}", Id([7; 32])))
                .await
                .status,
            200
        );
    });
}

#[test]
fn two_networks_never_merge() {
    in_world(|world| async move {
        let first = Node::start(&world, 1, |_| {}).await;
        let other = Node::start(&world, 2, |config| config.network = "other".into()).await;
        world.pass(20_000).await;
        assert!(!other.readiness.is_ready());
        for node in [&first, &other] {
            assert_eq!(node.dht.node().table.counts().peers, 0);
        }
        assert!(
            first
                .metric("handshakes_rejected_total{code=\"wrong_network\"}")
                .await
                >= 1.0
        );
    });
}

// proves: DHT-5.2, DHT-13.3, DHT-9.7, DHT-5.3
#[test]
fn what_was_put_is_found_although_a_third_of_the_nodes_is_silent() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 15).await;
        let put = nodes[3]
            .dht
            .put_value(b"greeting", b"hello", None, nodes[3].deadline());
        let put = put.await.unwrap();
        assert!(put.replicas >= 3);
        for node in &nodes[10..] {
            // Who is connected hears nothing any more, either.
            node.machine.kill();
            world.silence(node.machine.ip(), true);
        }
        for node in &nodes[..10] {
            let get = node.dht.get_value(put.key, node.deadline());
            let (took, found) = world.timed(get).await;
            assert_eq!(found.unwrap().value, b"hello");
            assert!(took < 1_500, "{took} ms");
            let look = node
                .dht
                .ask(Goal::Closest, Id([took as u8; 32]), node.deadline(), false);
            let (took, found) = world.timed(look).await;
            assert!(found.unwrap().hops <= 5);
            assert!(took < 1_500, "{took} ms");
        }
        let done = world.told("dht.lookup_done");
        for told in &done {
            let number = |word: &str| {
                let at = told.detail.split(&format!(" {word}=")).nth(1).unwrap();
                at.split(' ').next().unwrap().parse::<u32>().unwrap()
            };
            assert!(number("hops") <= 5, "{}", told.detail);
            assert!(number("hedges_canceled") <= number("hedges"));
        }
    });
}

// proves: DHT-10.2, DHT-1.4, DHT-8.2
#[test]
fn no_lookup_and_no_request_outlives_its_deadline() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 4).await;
        for node in &nodes[1..] {
            node.machine.kill();
            world.silence(node.machine.ip(), true);
        }
        world.pass(120_000).await;
        for limit in [100_u64, 700, 1_500, 4_000] {
            let (env, target) = (&nodes[0].dht.node().env, Id([limit as u8; 32]));
            let deadline = env.now() + std::time::Duration::from_millis(limit);
            let (took, _) = world.timed(nodes[0].dht.closest(target, deadline)).await;
            assert!(took <= limit + limit / 20, "{took} of {limit}");
            let ping = svc_dht::wire::message::Request::Ping;
            let deadline = env.now() + std::time::Duration::from_millis(limit);
            let to = nodes[1].contact();
            let (took, answer) = world
                .timed(nodes[0].peers().request(to, &ping, false, deadline))
                .await;
            assert!(answer.is_err());
            assert!(took <= limit + limit / 20, "{took} of {limit}");
        }
    });
}

async fn restart(world: &World, node: Node, n: u8) -> Node {
    let machine = node.machine.again();
    node.stop().await;
    world.pass(100).await;
    let warm = Node::on(machine, n, |config| config.bootstrap.seeds = Vec::new());
    warm.await.unwrap()
}

#[test]
fn a_restart_is_warm() {
    in_world(|world| async move {
        let mut nodes = Node::network(&world, 8).await;
        let node = nodes.remove(4);
        let known = node.dht.node().table.counts().peers;
        assert!(known >= 4, "{known} {:?}", world.told("dht.bucket_removed"));
        let node = restart(&world, node, 5).await;
        assert_eq!(node.found.peers, known);
        // Without a single seed.
        node.until_ready().await;
        let target = Id([9; 32]);
        let found = node.dht.closest(target, node.deadline()).await.unwrap();
        let found: Vec<Id> = found.closest.iter().map(|c| c.id).collect();
        assert_eq!(found, closest(&nodes, &target, None));
    });
}

// proves: DHT-13.2
#[test]
fn a_peer_that_the_table_lost_comes_back_with_a_refresh() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 3).await;
        let (a, b) = (&nodes[1], nodes[2].contact());
        let evict = svc_dht::routing::Update::Evict { id: b.id };
        let routes = &a.dht.node().routes;
        routes.tell(&b.id, svc_dht::routes::Route::Tell(evict));
        world.pass(10).await;
        assert!(a.dht.node().table.get(&b.id).is_none());
        world.pass(2 * 3_600_000).await;
        assert!(a.dht.node().table.get(&b.id).is_some());
        assert_sound(&nodes);
    });
}

#[test]
fn a_lookup_while_the_node_is_alone_finds_nobody_and_nothing() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        let found = node
            .dht
            .closest(Id([1; 32]), node.deadline())
            .await
            .unwrap();
        assert!(found.closest.is_empty());
        let value = node.dht.get_value(Id([1; 32]), node.deadline()).await;
        assert_eq!(value, Err(DhtError::NotFound));
        let put = node
            .dht
            .put_value(b"alone", b"1", None, node.deadline())
            .await;
        let put = put.unwrap();
        assert_eq!(put.replicas, 1);
        let value = node.dht.get_value(put.key, node.deadline()).await.unwrap();
        assert_eq!(value.value, b"1");
        let _ = addr(1);
    });
}
