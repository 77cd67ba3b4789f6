//! What a node refuses: who asks too much of it, and who did not answer it again and again.

use std::time::Duration;

use svc_dht::{
    limiter::{Kind, Limits},
    link::{
        error::{RpcError, TimedOut},
        rules::LinkRules,
    },
    wire::message::{Op, RefusalCode, Request, Response},
};

use crate::{
    node::{Node, Raw, addr, contact, record},
    world::in_world,
};

fn limited(change: impl FnOnce(&mut Limits)) -> impl FnOnce(&mut LinkRules) {
    |rules: &mut LinkRules| {
        rules.limits.peer_share_percent = 50;
        change(&mut rules.limits);
    }
}

// proves: DHT-3.5, DHT-2.8, DHT-1.9
#[test]
fn a_peer_above_its_rate_is_answered_busy_and_others_are_not_hurt() {
    in_world(|world| async move {
        let limits = limited(|limits| limits.requests_per_s = 20);
        let a = Node::with(&world.env(), 1, limits).await;
        let mut greedy = Raw::new(world.raw_connect(addr(1)).await);
        greedy.greet(2).await;
        let mut modest = Raw::new(world.raw_connect(addr(1)).await);
        modest.greet(3).await;
        for n in 0..15 {
            greedy.ask(n, &Request::Ping).await;
        }
        let mut refused = 0;
        for n in 0..15 {
            match greedy.response().await {
                (id, Response::Pong) => assert_eq!((id, n < 10), (n, true)),
                (id, Response::Refused(refusal)) => {
                    assert_eq!((id, refusal.code), (n, RefusalCode::Busy));
                    assert!(refusal.retry_after_ms > 0);
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(refused, 5);
        assert_eq!(a.peers.stats().quota_rejected(Kind::PeerRequests), 5);
        modest.ask(1, &Request::Ping).await;
        assert_eq!(modest.response().await, (1, Response::Pong));
        world.pass(1000).await;
        greedy.ask(99, &Request::Ping).await;
        assert_eq!(greedy.response().await, (99, Response::Pong));
        a.finish().await;
    });
}

// proves: DHT-3.5, DHT-2.8
#[test]
fn bytes_count_both_ways() {
    in_world(|world| async move {
        let limits = limited(|limits| limits.bytes_per_s = 4000);
        let a = Node::with(&world.env(), 1, limits).await;
        *a.heard.closer.lock().unwrap() = vec![contact(7); 20];
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        let find = Request::FindNode {
            target: contact(9).id,
        };
        let mut refused = 0;
        for n in 0..10 {
            raw.ask(n, &find).await;
            refused += usize::from(matches!(raw.response().await.1, Response::Refused(_)));
        }
        assert!(
            (6..10).contains(&refused),
            "{refused}: an answer is about 1200 bytes long"
        );
        assert_eq!(
            a.peers.stats().quota_rejected(Kind::PeerBytes),
            refused as u64
        );
        a.finish().await;
    });
}

// proves: DHT-3.5, DHT-2.8
#[test]
fn writes_hold_their_place_until_they_are_answered() {
    in_world(|world| async move {
        let limits = limited(|limits| limits.in_flight = 4);
        let a = Node::with(&world.env(), 1, limits).await;
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        let store = Request::Store { record: record(2) };
        for n in 0..3 {
            raw.ask(n, &store).await;
        }
        match raw.response().await {
            (2, Response::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Busy),
            other => panic!("{other:?}"),
        }
        assert_eq!(a.peers.stats().quota_rejected(Kind::PeerInFlight), 1);
        let (_, _, reply) = a.heard.writes.lock().unwrap().remove(0);
        reply.reply(Response::Stored);
        assert_eq!(raw.response().await, (0, Response::Stored));
        raw.ask(3, &store).await;
        world.pass(1).await;
        assert_eq!(a.heard.writes.lock().unwrap().len(), 2);
        // A peer that goes away gives its places back when the workers are done.
        drop(raw);
        world.pass(1).await;
        a.heard.writes.lock().unwrap().clear();
        let mut again = Raw::new(world.raw_connect(addr(1)).await);
        again.greet(2).await;
        again.ask(1, &store).await;
        world.pass(1).await;
        assert_eq!(a.heard.writes.lock().unwrap().len(), 1);
        a.finish().await;
    });
}

#[test]
fn writes_of_one_connection_are_bounded_as_well() {
    in_world(|world| async move {
        let a = Node::with(&world.env(), 1, |rules| rules.max_in_flight = 2).await;
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        for n in 0..5 {
            raw.ask(n, &Request::Store { record: record(2) }).await;
        }
        for n in 2..5 {
            assert!(matches!(raw.response().await, (id, Response::Refused(_)) if id == n));
        }
        assert_eq!(a.peers.stats().refused_in_flight.get(), 3);
        a.heard
            .writes
            .lock()
            .unwrap()
            .drain(..)
            .for_each(|(_, _, reply)| {
                reply.reply(Response::Stored);
            });
        assert_eq!(raw.response().await, (0, Response::Stored));
        a.finish().await;
    });
}

// proves: DHT-5.6
#[test]
fn a_peer_that_times_out_again_and_again_is_left_alone_then_tried_with_care() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let rules = LinkRules::new(crate::node::network(), 0).breaker;
        world.silence(addr(2));
        let timeout = Err(RpcError::Timeout(TimedOut::Rpc(Op::Ping)));
        for _ in 0..rules.failures {
            assert_eq!(a.ask(contact(2), Request::Ping, 100).await, timeout);
        }
        assert_eq!(a.peers.stats().breaker_opened.get(), 1);
        let (took, answer) = world.timed(a.ask(contact(2), Request::Ping, 100)).await;
        assert_eq!((took, answer), (0, Err(RpcError::Busy)));
        assert_eq!(a.peers.stats().breaker_refused.get(), 1);
        // Half open: one finds out, the other is refused.
        world.pass(rules.open.as_millis() as u64).await;
        let both = tokio::join!(
            a.ask(contact(2), Request::Ping, 100),
            a.ask(contact(2), Request::Ping, 100)
        );
        assert_eq!(both, (timeout, Err(RpcError::Busy)));
        // It comes back, and a probe that its caller gave up does not keep it away.
        world.pass(2 * rules.open.as_millis() as u64).await;
        tokio::select! {
            biased;
            answer = a.ask(contact(2), Request::Ping, 100) => panic!("{answer:?}"),
            () = world.pass(1) => {}
        }
        world.pass(Duration::from_secs(5).as_millis() as u64).await;
        let b = Node::start(&world.env(), 2).await;
        world.unsilence(addr(2));
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        let both = tokio::join!(a.ping(2), a.ping(2));
        assert_eq!(both, (Ok(Response::Pong), Ok(Response::Pong)));
        a.finish().await;
        b.finish().await;
    });
}
