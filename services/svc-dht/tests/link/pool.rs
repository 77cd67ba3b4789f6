//! Which connections are made, kept and given up.

use std::sync::Arc;

use svc_dht::{
    link::error::RpcError,
    wire::message::{Op, RefusalCode, Request, Response},
};

use crate::{
    node::{Node, Raw, addr, contact},
    world::in_world,
};

#[test]
fn two_requests_to_one_cold_peer_dial_once() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        let both = tokio::join!(a.ping(2), a.ping(2));
        assert_eq!(both, (Ok(Response::Pong), Ok(Response::Pong)));
        assert_eq!(world.dials(addr(2)), 1);
        assert_eq!(a.peers.stats().dialled.get(), 1);
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn the_41st_connection_closes_the_one_that_was_idle_longest() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut others = Vec::new();
        for n in 2..=42 {
            others.push(Node::start(&world.env(), n).await);
        }
        for n in 2..=41 {
            assert_eq!(a.ping(n).await, Ok(Response::Pong));
            world.pass(10).await;
        }
        assert_eq!(a.peers.open(), (40, 0));
        // 2 was the first, but 3 is now the one that was not asked for longest.
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        assert_eq!(a.ping(42).await, Ok(Response::Pong));
        world.pass(10).await;
        assert_eq!(a.peers.open(), (40, 0));
        assert_eq!(a.peers.stats().evicted.get(), 1);
        let gone: Vec<u8> = others
            .iter()
            .filter(|o| o.peers.alive() == 0)
            .map(|o| o.n)
            .collect();
        assert_eq!(gone, [3]);
        assert!(a.heard.failed.lock().unwrap().is_empty());
        a.finish().await;
        for other in others {
            other.finish().await;
        }
        let (streams, shut_down, torn) = world.streams();
        assert_eq!((shut_down, torn), (streams, 0));
    });
}

#[test]
fn connections_in_use_are_not_given_up_and_the_newcomer_is_told_busy() {
    in_world(|world| async move {
        let a = Node::with(&world.env(), 1, |rules| rules.max_outbound = 2).await;
        let _doors = [world.raw_listen(addr(2)), world.raw_listen(addr(3))];
        let asked: Vec<_> = [2, 3]
            .map(|n| {
                let (peers, deadline) = (a.peers.clone(), a.in_ms(1000));
                a.env.spawn("ask", async move {
                    peers
                        .request(contact(n), &Request::Ping, false, deadline)
                        .await
                })
            })
            .into();
        world.pass(10).await;
        assert_eq!(a.ping(4).await, Err(RpcError::Busy));
        assert_eq!(world.dials(addr(4)), 0);
        for asked in asked {
            assert!(asked.await.unwrap().is_err());
        }
        // Nobody waits for them any more: now they may go.
        assert_eq!(a.ping(4).await, Err(RpcError::Connect));
        a.finish().await;
    });
}

#[test]
fn requests_on_one_connection_are_bounded() {
    in_world(|world| async move {
        let a = Node::with(&world.env(), 1, |rules| rules.max_in_flight = 4).await;
        let _door = world.raw_listen(addr(2));
        let all: Vec<_> = (0..6)
            .map(|_| {
                let (peers, deadline) = (a.peers.clone(), a.in_ms(1000));
                a.env.spawn("ask", async move {
                    peers
                        .request(contact(2), &Request::Ping, false, deadline)
                        .await
                })
            })
            .collect();
        let mut busy = 0;
        for asked in all {
            busy += usize::from(asked.await.unwrap() == Err(RpcError::Busy));
        }
        assert_eq!(busy, 2);
        a.finish().await;
    });
}

// proves: DHT-1.5
#[test]
fn a_request_that_is_dropped_leaves_nothing_and_its_answer_is_discarded() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut door = world.raw_listen(addr(2));
        let (peers, deadline) = (a.peers.clone(), a.in_ms(1000));
        let warm = a.env.spawn("ask", async move {
            peers
                .request(contact(2), &Request::Ping, false, deadline)
                .await
        });
        let mut raw = Raw::new(door.recv().await.unwrap());
        raw.welcome(2).await;
        raw.answer(0, Op::Ping, &Response::Pong).await;
        assert_eq!(warm.await.unwrap(), Ok(Response::Pong));
        world.pass(1).await;
        let before = crate::heap::live_bytes();
        for round in 0..1000 {
            {
                let mut asked = Box::pin(a.ping(2));
                let request = tokio::select! {
                    biased;
                    answer = &mut asked => panic!("{answer:?}"),
                    request = raw.request() => request,
                };
                assert_eq!(request.0, round + 1);
            }
            // Its caller is gone; now the answer comes.
            world.pass(1).await;
            raw.answer(round + 1, Op::Ping, &Response::Pong).await;
            world.pass(1).await;
        }
        let left = crate::heap::live_bytes() - before;
        assert!(left < 2048, "{left} bytes are left");
        let stats = a.peers.stats();
        assert_eq!(
            (stats.canceled.get(), stats.late_answers.get()),
            (1000, 1000)
        );
        assert_eq!(
            a.peers.open(),
            (1, 0),
            "the connection is as good as before"
        );
        a.finish().await;
    });
}

#[test]
fn requests_dropped_before_they_were_sent_are_not_sent() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        world.silence(addr(2));
        for _ in 0..100 {
            let mut asked = Box::pin(a.ping(2));
            tokio::select! {
                biased;
                answer = &mut asked => panic!("{answer:?}"),
                () = world.pass(1) => {}
            }
        }
        world.pass(1).await;
        assert_eq!(a.peers.stats().canceled.get(), 100);
        assert_eq!(world.dials(addr(2)), 1, "they all waited for one dial");
        a.finish().await;
    });
}

#[test]
fn a_connection_that_ended_while_it_was_idle_is_made_anew() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        // The peer closes, and at the same moment it is asked: it never sees the request.
        let closing = b.peers.clone();
        let (answer, ()) = tokio::join!(a.ping(2), closing.shutdown());
        match answer {
            Err(RpcError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::NotReady),
            other => panic!("{other:?}"),
        }
        assert!(
            a.heard.failed.lock().unwrap().is_empty(),
            "it said so itself"
        );
        assert_eq!(world.dials(addr(2)), 2);
        a.finish().await;
        b.finish().await;
    });
}

// proves: DHT-4.3
#[test]
fn many_callers_share_connections_and_each_gets_its_own_answer() {
    in_world(|world| async move {
        let a = Arc::new(Node::start(&world.env(), 1).await);
        let mut others = Vec::new();
        for n in 2..8 {
            let other = Node::start(&world.env(), n).await;
            *other.heard.closer.lock().unwrap() = vec![contact(n)];
            others.push(other);
        }
        let mut asked = Vec::new();
        for round in 0..20_u8 {
            for n in 2..8 {
                let (peers, deadline) = (a.peers.clone(), a.in_ms(1000));
                let request = Request::FindNode {
                    target: contact(round).id,
                };
                let ask = async move { peers.request(contact(n), &request, false, deadline).await };
                asked.push((n, a.env.spawn("ask", ask)));
            }
        }
        for (n, asked) in asked {
            let closer = vec![contact(n)];
            assert_eq!(asked.await.unwrap(), Ok(Response::Nodes { closer }));
        }
        assert_eq!(a.peers.stats().dialled.get(), 6);
        Arc::into_inner(a).unwrap().finish().await;
        for other in others {
            other.finish().await;
        }
    });
}
