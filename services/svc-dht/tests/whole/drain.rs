//! How a node stops: intake first, then what is in flight, then what is to be written, within deadlines.

use std::{collections::BTreeSet, sync::Arc};

use svc_dht::{
    error::DhtError,
    id::Id,
    link::error::RpcError,
    wire::message::{RefusalCode, Request, Response},
};

use crate::{
    clockwork::in_world,
    node::{Node, ip},
};

// proves: DHT-1.6, DHT-6.2, DHT-6.5, DHT-1.8, DHT-3.4, DHT-6.7, DHT-1.11
#[test]
fn a_stop_finishes_the_lookups_in_flight_and_leaves_no_task() {
    in_world(|world| async move {
        let mut nodes = Node::network(&world, 4).await;
        let node = nodes.remove(3);
        for other in &nodes[1..] {
            other.machine.kill();
            world.silence(other.machine.ip(), true);
        }
        let (dht, deadline) = (node.dht.clone(), node.deadline());
        let asked: Vec<_> = (0..4_u8)
            .map(|n| {
                let dht = dht.clone();
                tokio::spawn(async move { dht.closest(Id([n; 32]), deadline).await })
            })
            .collect();
        world.pass(20).await;
        let (view, peers) = (node.view.clone(), node.peers().clone());
        assert!(node.stop.trigger());
        assert!(!node.stop.trigger(), "the second time changes nothing");
        node.stop.trigger();
        let (took, ended) = world.timed(node.ended).await;
        let ended = ended.unwrap();
        assert!(took <= 5_000, "{took}");
        assert_eq!(ended.report.aborted, 0, "{}", ended.report);
        assert!(ended.drained >= 1);
        for asked in asked {
            assert!(asked.await.unwrap().is_ok());
        }
        assert!(view.status().tasks.is_empty(), "{:?}", view.status());
        assert_eq!((peers.alive(), peers.open()), (0, (0, 0)));
        let phases: Vec<_> = world.told("phase").into_iter().map(|t| t.detail).collect();
        assert_eq!(phases, ["lookups", "flush", "table", "close"]);
    });
}

// proves: DHT-6.4, DHT-8.5
#[test]
fn while_it_drains_peers_and_callers_are_told_not_ready() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 3).await;
        let (node, peer) = (&nodes[2], &nodes[1]);
        world.silence(ip(1), true);
        nodes[0].machine.kill();
        world.pass(70_000).await;
        let (dht, deadline) = (node.dht.clone(), node.deadline());
        let slow = tokio::spawn(async move { dht.closest(nodes_id(), deadline).await });
        // A connection that is there already stays.
        let to = node.contact();
        let ping = |until| {
            let peers = peer.peers().clone();
            async move { peers.request(to, &Request::Ping, false, until).await }
        };
        assert_eq!(ping(peer.deadline()).await, Ok(Response::Pong));
        let mut idle = node.connect_api().await;
        node.stop.trigger();
        world.pass(1).await;
        match ping(peer.deadline()).await {
            Err(RpcError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::NotReady),
            other => panic!("{other:?}"),
        }
        let put = node
            .dht
            .put_value(b"late", b"1", None, node.deadline())
            .await;
        assert_eq!(put, Err(DhtError::NotReady("draining")));
        let asked = node.dht.closest(Id([1; 32]), node.deadline()).await;
        assert_eq!(asked, Err(DhtError::NotReady("draining")));
        tokio::io::AsyncWriteExt::shutdown(&mut idle).await.unwrap();
        let _ = slow.await.unwrap();
    });
}

fn nodes_id() -> Id {
    Id([77; 32])
}

// proves: DHT-6.6, DHT-1.5, DHT-8.3
#[test]
fn what_outlasts_the_drain_deadline_is_aborted_and_counted_and_its_caller_hears_it() {
    in_world(|world| async move {
        let first = Node::start(&world, 1, |_| {}).await;
        let node = Node::start(&world, 2, |config| {
            config.drain_deadline_ms = 300;
            config.lookup.rpc_timeout_ms = 4_000;
            config.lookup.hedge_after_ms = 4_000;
            config.link.connect_timeout_ms = 10_000;
        });
        let node = Arc::new(node.await);
        node.until_ready().await;
        first.machine.kill();
        world.silence(ip(1), true);
        world.pass(70_000).await;
        let (dht, deadline) = (node.dht.clone(), node.deadline());
        let slow = tokio::spawn(async move { dht.closest(Id([1; 32]), deadline).await });
        world.pass(10).await;
        node.stop.trigger();
        assert_eq!(slow.await.unwrap(), Err(DhtError::Canceled));
        let Some(node) = Arc::into_inner(node) else {
            panic!("nobody else has it");
        };
        let view = node.view.clone();
        let ended = node.ended.await.unwrap();
        assert!(ended.report.aborted >= 1, "{}", ended.report);
        let counts = ron_core::view::TaskView::tasks(&view);
        assert!(counts["worker"].aborted >= 1);
        assert!(counts["record_keeper"].canceled >= 1 || counts["record_keeper"].alive == 0);
    });
}

// proves: DHT-6.1
#[test]
fn the_stop_saves_the_table_after_the_last_writer_has_ended() {
    in_world(|world| async move {
        let mut nodes = Node::network(&world, 5).await;
        let node = nodes.remove(2);
        let known: BTreeSet<_> = node
            .dht
            .node()
            .table
            .buckets()
            .flat_map(|(_, view)| view.iter().map(|e| e.contact).collect::<Vec<_>>())
            .collect();
        let (machine, network) = (node.machine.again(), node.dht.node().network);
        node.stop().await;
        let (saved, note) = svc_dht::refresher::load(&machine.env(), network).await;
        assert_eq!(note, None);
        let saved: BTreeSet<_> = saved.iter().map(|peer| peer.contact).collect();
        assert_eq!(saved, known);
    });
}

// proves: DHT-2.1, DHT-10.8
#[test]
fn workers_that_are_killed_under_load_come_back_and_lookups_succeed_again() {
    in_world(|world| async move {
        let nodes = Node::network(&world, 6).await;
        let node = &nodes[4];
        for _ in 0..3 {
            for task in node
                .view
                .status()
                .tasks
                .iter()
                .filter(|t| t.kind == "worker")
            {
                node.view.kill(task.id);
            }
            let _ = node.dht.closest(Id([3; 32]), node.deadline()).await;
            world.pass(2_000).await;
        }
        assert!(node.readiness.is_ready());
        for n in 0..10 {
            let found = node.dht.closest(Id([n; 32]), node.deadline()).await;
            assert_eq!(found.unwrap().closest.len(), 5);
        }
        assert!(node.metric("service_restarts_total{task=\"worker\"}").await >= 6.0);
        // Too often: readiness goes off, until they have been well for a while.
        for _ in 0..40 {
            for task in node
                .view
                .status()
                .tasks
                .iter()
                .filter(|t| t.kind == "worker")
            {
                node.view.kill(task.id);
            }
            world.pass(1_000).await;
        }
        assert!(!node.readiness.is_ready());
        world.pass(70_000).await;
        node.until_ready().await;
        assert!(node.dht.closest(Id([5; 32]), node.deadline()).await.is_ok());
    });
}
