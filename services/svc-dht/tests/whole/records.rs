//! What is stored: the newest wins, acknowledged is durable, time ends it, republishing keeps it.

use std::io;

use kit::disk::Op;
use svc_dht::{
    error::DhtError,
    id::Id,
    link::error::RpcError,
    record::Record,
    wire::message::{RefusalCode, Request, Response},
};

use crate::{
    clockwork::in_world,
    node::{Node, identity},
};

const HOUR: u64 = 3_600_000;

#[test]
fn of_two_values_the_newer_one_is_found_everywhere() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 6).await;
        let node = &nodes[2];
        let mut key = Id([0; 32]);
        for value in [b"one", b"two"] {
            let put = node.dht.put_value(b"name", value, None, node.deadline());
            key = put.await.unwrap().key;
        }
        for node in &nodes {
            let found = node.dht.get_value(key, node.deadline()).await.unwrap();
            assert_eq!(
                (found.value.as_slice(), found.name.as_slice()),
                (&b"two"[..], &b"name"[..])
            );
            assert_eq!(found.publisher, *nodes[2].dht.node().identity.public());
        }
    });
}

#[test]
fn providers_of_a_key_are_found() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 6).await;
        let key = Id([3; 32]);
        for node in &nodes[..3] {
            let provided = node.dht.provide(key, None, node.deadline()).await.unwrap();
            assert!(provided.replicas >= 3);
        }
        let found = nodes[5]
            .dht
            .providers(key, nodes[5].deadline())
            .await
            .unwrap();
        let mut found: Vec<_> = found.providers.iter().map(|p| p.contact).collect();
        let mut wanted: Vec<_> = nodes[..3].iter().map(Node::contact).collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
        let nobody = nodes[5]
            .dht
            .providers(Id([4; 32]), nodes[5].deadline())
            .await;
        assert!(nobody.unwrap().providers.is_empty());
    });
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        let put = node
            .dht
            .put_value(b"a", b"1", None, node.deadline())
            .await
            .unwrap();
        let machine = node.machine.again();
        node.machine.kill();
        world.pass(10).await;
        let node = Node::on(machine, 1, |_| {}).await.unwrap();
        assert_eq!(node.found.records, 1);
        node.until_ready().await;
        let found = node.dht.get_value(put.key, node.deadline()).await.unwrap();
        assert_eq!(found.value, b"1");
    });
}

#[test]
fn an_acknowledgement_waits_for_the_disk() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        node.machine.stall_disk(true);
        let dht = node.dht.clone();
        let deadline = node.deadline();
        let put = tokio::spawn(async move { dht.put_value(b"a", b"1", None, deadline).await });
        world.pass(3_000).await;
        assert!(!put.is_finished());
        node.machine.stall_disk(false);
        assert!(put.await.unwrap().is_ok());
        assert_eq!(world.told("dht.record_acked").len(), 1);
    });
}

// proves: DHT-2.5
#[test]
fn a_record_is_published_again_before_its_time_is_over() {
    in_world(|world| async move {
        let mut nodes = Node::network(&world, 5).await;
        let publisher = nodes.remove(2);
        let put = publisher
            .dht
            .put_value(b"kept", b"1", Some(3 * HOUR), publisher.deadline());
        let (put, key) = (put.await.unwrap(), Id([5; 32]));
        publisher
            .dht
            .provide(key, Some(3 * HOUR), publisher.deadline())
            .await
            .unwrap();
        // Twice its life later.
        world.pass(6 * HOUR).await;
        for node in &nodes {
            let found = node.dht.get_value(put.key, node.deadline()).await.unwrap();
            assert!(found.expires_ms > put.expires_ms);
            let found = node.dht.providers(key, node.deadline()).await.unwrap();
            assert_eq!(found.providers.len(), 1);
        }
        assert!(publisher.metric("republished_total").await >= 4.0);
        assert_eq!(publisher.metric("republish_lag_ms").await, 0.0);
        // Without its publisher it ends, wherever it lies.
        publisher.stop().await;
        world.pass(4 * HOUR).await;
        for node in &nodes {
            let found = node.dht.get_value(put.key, node.deadline()).await;
            assert_eq!(found, Err(DhtError::NotFound));
            let found = node.dht.providers(key, node.deadline()).await.unwrap();
            assert!(found.providers.is_empty());
        }
        assert!(!world.told("dht.record_expired").is_empty());
    });
}

#[test]
fn a_record_whose_time_is_over_is_given_to_nobody_even_if_it_still_lies_there() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 3).await;
        let (node, now) = (&nodes[0], nodes[0].dht.node().env.wall_ms());
        let record = Record::sign_value(&identity(9), b"x", b"1", 1, now, 1_000);
        let key = record.key;
        let store = Request::Store { record };
        let asked = nodes[1]
            .peers()
            .request(node.contact(), &store, false, nodes[1].deadline());
        assert_eq!(asked.await, Ok(Response::Stored));
        let find = Request::FindValue { key };
        let ask = |find: Request| {
            let (peers, to, until) = (
                nodes[1].peers().clone(),
                node.contact(),
                nodes[1].deadline(),
            );
            async move { peers.request(to, &find, false, until).await }
        };
        assert!(matches!(
            ask(find.clone()).await,
            Ok(Response::Value { value: Some(_), .. })
        ));
        world.jump_wall(1_000 + 60_000);
        assert!(matches!(
            ask(find).await,
            Ok(Response::Value { value: None, .. })
        ));
    });
}

#[test]
fn a_record_of_somebody_who_is_gone_is_handed_on_to_who_is_closest_now() {
    in_world(|world| async move {
        let mut nodes = Node::network(&world, 3).await;
        let publisher = nodes.remove(1);
        let put = publisher
            .dht
            .put_value(b"left", b"1", Some(8 * HOUR), publisher.deadline());
        let put = put.await.unwrap();
        publisher.stop().await;
        let late = Node::start(&world, 9, |_| {}).await;
        late.until_ready().await;
        assert!(
            late.dht
                .node()
                .shelf
                .value(&put.key, late.dht.node().env.wall_ms())
                .is_none()
        );
        world.pass(5 * HOUR).await;
        assert!(
            late.dht
                .node()
                .shelf
                .value(&put.key, late.dht.node().env.wall_ms())
                .is_some()
        );
    });
}

#[test]
fn the_journal_is_written_anew_when_most_of_it_is_old() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        let value = vec![7; 16_000];
        for _ in 0..60 {
            node.dht
                .put_value(b"same", &value, None, node.deadline())
                .await
                .unwrap();
            world.pass(5).await;
        }
        let machine = node.machine.again();
        node.stop().await;
        let bytes = machine.env().disk(|disk| {
            disk.open("records.journal", ron_core::seam::Open::Existing)?
                .len()
        });
        let bytes = bytes.await.unwrap().unwrap();
        assert!(bytes < 300_000, "{bytes}");
        let node = Node::on(machine, 1, |_| {}).await.unwrap();
        assert_eq!(node.found.records, 1);
    });
}

#[test]
fn a_journal_that_lost_its_name_to_another_acknowledges_nothing() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |_| {}).await;
        node.until_ready().await;
        // The last of these makes the journal long enough to be written anew; the new one takes its name, and then
        // its directory cannot be synced.
        for n in 0..17 {
            node.machine.disk().tell(move |_, op| match op {
                Op::SyncDir if n == 16 => Err(io::Error::other("on purpose")),
                _ => Ok(()),
            });
            let put = node
                .dht
                .put_value(b"same", &[7; 16_000], None, node.deadline());
            assert!(put.await.is_ok());
            world.pass(5).await;
        }
        assert_eq!(node.metric("journal_errors_total").await, 1.0);
        node.machine.disk().tell(|path, op| match op {
            Op::Open if path.ends_with(".new") => Err(io::Error::other("on purpose")),
            _ => Ok(()),
        });
        let lost = node.dht.put_value(b"lost", b"1", None, node.deadline());
        assert!(lost.await.is_err());
        node.machine.disk().behave();
        let kept = node.dht.put_value(b"kept", b"2", None, node.deadline());
        let key = kept.await.unwrap().key;
        let machine = node.machine.again();
        node.machine.kill();
        world.pass(10).await;
        let node = Node::on(machine, 1, |_| {}).await.unwrap();
        node.until_ready().await;
        let found = node.dht.get_value(key, node.deadline()).await.unwrap();
        assert_eq!(found.value, b"2");
    });
}

#[test]
fn an_older_record_is_refused_as_stale() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 2).await;
        let now = nodes[0].dht.node().env.wall_ms();
        let mut answers = Vec::new();
        for seq in [5, 4, 5] {
            let record = Record::sign_value(&identity(9), b"x", b"1", seq, now, HOUR);
            let store = Request::Store { record };
            let to = nodes[0].contact();
            let asked = nodes[1]
                .peers()
                .request(to, &store, false, nodes[1].deadline());
            answers.push(match asked.await {
                Ok(Response::Stored) => "stored",
                Err(RpcError::Refused(refusal)) if refusal.code == RefusalCode::Stale => "stale",
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(answers, ["stored", "stale", "stored"]);
    });
}
