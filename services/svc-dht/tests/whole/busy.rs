//! More than there is room for: refused at once and counted, and the rest goes on.

use std::sync::Arc;

use svc_dht::{
    error::DhtError,
    id::Id,
    link::error::RpcError,
    record::Record,
    routes::Route,
    routing::Update,
    wire::message::{RefusalCode, Request, Response},
};

use crate::{
    clockwork::in_world,
    node::{Node, identity, ip},
};

// proves: DHT-3.1, DHT-1.9, DHT-3.6, DHT-8.1, DHT-9.1, DHT-3.7, DHT-1.3, DHT-10.1
#[test]
fn lookups_beyond_the_work_queue_are_refused_at_once_and_the_queue_does_not_grow() {
    in_world(|world| async move {
        let first = Node::start(&world, 1, |_| {}).await;
        let node = Node::start(&world, 2, |config| {
            config.workers = 1;
            config.work_cap = 8;
        });
        let node = Arc::new(node.await);
        node.until_ready().await;
        first.machine.kill();
        world.silence(ip(1), true);
        world.pass(120_000).await;
        let ask = |n: u8| {
            let node = node.clone();
            tokio::spawn(async move { node.dht.closest(Id([n; 32]), node.deadline()).await })
        };
        // The one worker carries some, eight wait, the others hear it at once.
        let asks: Vec<_> = (0..60).map(ask).collect();
        world.pass(1).await;
        let refused = asks.iter().filter(|ask| ask.is_finished()).count();
        assert!(refused >= 60 - 16 - 8, "{refused}");
        let work = node.dht.node().work.stats();
        assert!(work.high_water <= 8 && work.depth <= 8);
        assert_eq!(
            node.metric("queue_depth{queue=\"work\"}").await,
            work.depth as f64
        );
        let mut busy = 0;
        for ask in asks {
            busy += u64::from(ask.await.unwrap() == Err(DhtError::Busy("work")));
        }
        assert_eq!(busy as usize, refused);
        let name = "busy_rejections_total{endpoint=\"\",queue=\"work\"}";
        assert_eq!(node.metric(name).await, busy as f64);
        let name = "busy_rejections_total{endpoint=\"lookup\",queue=\"\"}";
        assert_eq!(node.metric(name).await, busy as f64);
        // Who comes later is served.
        world.pass(10_000).await;
        assert_ne!(
            node.dht.closest(Id([1; 32]), node.deadline()).await,
            Err(DhtError::Busy("work"))
        );
    });
}

// proves: DHT-2.2
#[test]
fn a_record_that_finds_no_room_is_refused_as_busy_while_reads_are_answered() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |config| {
            config.workers = 1;
            config.work_cap = 1;
            config.records_cap = 1;
        });
        let node = node.await;
        let peer = Node::start(&world, 2, |_| {}).await;
        peer.until_ready().await;
        node.machine.stall_disk(true);
        let now = node.dht.node().env.wall_ms();
        let store = |n: u64| {
            let name = n.to_string();
            let record = Record::sign_value(&identity(9), name.as_bytes(), b"1", 1, now, 60_000);
            let (peers, to, until) = (peer.peers().clone(), node.contact(), peer.deadline());
            tokio::spawn(async move {
                peers
                    .request(to, &Request::Store { record }, false, until)
                    .await
            })
        };
        let stores: Vec<_> = (0..30).map(store).collect();
        world.pass(100).await;
        let ping = peer
            .peers()
            .request(node.contact(), &Request::Ping, false, peer.deadline());
        assert_eq!(
            ping.await,
            Ok(Response::Pong),
            "inbound reads wait for nobody"
        );
        node.machine.stall_disk(false);
        let (mut stored, mut busy) = (0, 0);
        for store in stores {
            match store.await.unwrap() {
                Ok(Response::Stored) => stored += 1,
                Err(RpcError::Refused(refusal)) if refusal.code == RefusalCode::Busy => busy += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(stored >= 1 && busy >= 1, "{stored} {busy}");
        assert!(
            node.metric("busy_rejections_total{endpoint=\"store\",queue=\"\"}")
                .await
                >= 1.0
        );
    });
}

// proves: DHT-3.2, DHT-3.8, DHT-5.5
#[test]
fn a_change_that_finds_no_room_in_its_buckets_queue_waits_100_ms_and_is_dropped_and_counted() {
    in_world(|world| async move {
        let node = Node::start(&world, 1, |config| config.route_cap = 4).await;
        node.until_ready().await;
        let mut far = node.contact().id;
        far.0[0] ^= 0x80;
        let route = Route::Tell(Update::Failed { id: far });
        // Queues without a writer: nobody ever empties them.
        let parts = svc_dht::topology::declare(&node.dht.node().config()).1;
        let stuck = svc_dht::routes::Routes::new(
            node.dht.node().env.clone(),
            node.contact().id,
            parts.route,
            &parts.bucket_starts,
            node.dht.node().metrics.clone(),
        );
        for _ in 0..4 {
            assert_eq!(stuck.send(&far, route).await, Ok(()));
        }
        let (took, sent) = world.timed(stuck.send(&far, route)).await;
        assert_eq!(sent, Err(DhtError::Timeout("route")));
        assert!((100..=105).contains(&took), "{took}");
        stuck.tell(&far, route);
        world.pass(200).await;
        assert_eq!(node.metric("route_dropped_total").await, 2.0);
        assert_eq!(node.metric("io_timeouts_total{op=\"route\"}").await, 2.0);
        let stats = ron_core::view::QueueView::stats(&stuck);
        assert_eq!((stats.depth, stats.high_water), (4, 4));
    });
}
