//! Requests and answers over connections that work.

use svc_dht::{
    contact::Contact,
    link::error::RpcError,
    wire::message::{Op, RefusalCode, Request, Response},
};

use crate::{
    node::{Node, Raw, addr, contact, identity, record},
    world::in_world,
};

#[test]
fn a_cold_request_is_answered_and_both_ends_learn_who_is_there() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        world.pass(1).await;
        let proven = a.heard.proven.lock().unwrap().clone();
        assert_eq!(proven.len(), 1);
        assert_eq!((proven[0].0, proven[0].1), (contact(2), true));
        assert!(proven[0].2.is_some(), "the handshake tells a round trip");
        let proven = b.heard.proven.lock().unwrap().clone();
        assert_eq!(
            proven,
            [(
                Contact {
                    id: identity(1).id(),
                    // The world gives the address that was dialled as the peer's; the port is the one that it said.
                    addr: addr(2).into(),
                },
                false,
                None
            )]
        );
        assert!(a.heard.failed.lock().unwrap().is_empty());
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn reads_travel_with_the_hello() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut door = world.raw_listen(addr(2));
        let asked = a.env.spawn("ask", {
            let peers = a.peers.clone();
            let deadline = a.in_ms(1000);
            async move {
                peers
                    .request(contact(2), &Request::Ping, false, deadline)
                    .await
            }
        });
        let mut raw = Raw::new(door.recv().await.unwrap());
        let hello = raw.frame().await.unwrap();
        // Before a word was said here.
        let (corr_id, request) = raw.request().await;
        assert_eq!(request, Request::Ping);
        let me = identity(2);
        let network = crate::node::network();
        let accepter =
            svc_dht::wire::handshake::Accepter::handle_hello(&hello, &me, network, [7; 32]);
        raw.send_frame(&accepter.unwrap().welcome(&me)).await;
        raw.answer(corr_id, Op::Ping, &Response::Pong).await;
        assert_eq!(asked.await.unwrap(), Ok(Response::Pong));
        a.finish().await;
    });
}

#[test]
fn writes_wait_for_the_proof_and_are_answered_when_the_worker_is_done() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        let record = record(1);
        let asked = a.env.spawn("ask", {
            let peers = a.peers.clone();
            let request = Request::Store {
                record: record.clone(),
            };
            let deadline = a.in_ms(1000);
            async move { peers.request(contact(2), &request, false, deadline).await }
        });
        world.pass(10).await;
        let (from, request, reply) = b.heard.writes.lock().unwrap().pop().unwrap();
        assert!(from.proven && from.contact.id == identity(1).id());
        assert_eq!(request, Request::Store { record });
        assert!(reply.deadline() > a.env.now());
        reply.reply(Response::Stored);
        assert_eq!(asked.await.unwrap(), Ok(Response::Stored));
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn a_write_that_its_worker_drops_is_answered_busy() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        let request = Request::Store { record: record(1) };
        let (peers, deadline) = (a.peers.clone(), a.in_ms(1000));
        let asked = a.env.spawn("ask", async move {
            peers.request(contact(2), &request, false, deadline).await
        });
        world.pass(10).await;
        b.heard.writes.lock().unwrap().clear();
        match asked.await.unwrap() {
            Err(RpcError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Busy),
            other => panic!("{other:?}"),
        }
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn a_peer_that_dialled_us_is_asked_over_its_own_connection() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        world.pass(1).await;
        assert_eq!(b.ping(1).await, Ok(Response::Pong));
        assert_eq!((world.dials(addr(1)), world.dials(addr(2))), (0, 1));
        // That does not show where it listens: to reach it there, it is dialled.
        assert_eq!(b.peers.reach(contact(1), b.in_ms(1000)).await, Ok(()));
        assert_eq!(b.peers.reach(contact(1), b.in_ms(1000)).await, Ok(()));
        assert_eq!(world.dials(addr(1)), 1);
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn an_address_alone_is_enough_to_meet_who_is_there() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        let met = a.peers.meet(addr(2), a.in_ms(1000)).await;
        assert_eq!(met, Ok(contact(2)));
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        assert_eq!(world.dials(addr(2)), 1);
        let nobody = a.peers.meet(addr(3), a.in_ms(1000)).await;
        assert_eq!(nobody, Err(RpcError::Connect));
        assert!(
            a.heard.failed.lock().unwrap().is_empty(),
            "nobody can be blamed"
        );
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn answers_find_their_requests_in_any_order() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut door = world.raw_listen(addr(2));
        let ask = |target: u8| {
            let request = Request::FindNode {
                target: identity(target).id(),
            };
            let (peers, deadline) = (a.peers.clone(), a.in_ms(1000));
            a.env.spawn("ask", async move {
                peers.request(contact(2), &request, false, deadline).await
            })
        };
        let asked: Vec<_> = (10..14).map(ask).collect();
        let mut raw = Raw::new(door.recv().await.unwrap());
        let hello = raw.frame().await.unwrap();
        let me = identity(2);
        let network = crate::node::network();
        let accepter =
            svc_dht::wire::handshake::Accepter::handle_hello(&hello, &me, network, [7; 32]);
        let mut requests = Vec::new();
        for _ in 10..14 {
            requests.push(raw.request().await);
        }
        raw.send_frame(&accepter.unwrap().welcome(&me)).await;
        for (corr_id, request) in requests.into_iter().rev() {
            let Request::FindNode { target } = request else {
                panic!("{request:?}");
            };
            let addr = addr(99).into();
            let closer = vec![Contact { id: target, addr }];
            raw.answer(corr_id, Op::FindNode, &Response::Nodes { closer })
                .await;
        }
        for (n, asked) in (10..14).zip(asked) {
            let closer = vec![Contact {
                id: identity(n).id(),
                addr: addr(99).into(),
            }];
            assert_eq!(asked.await.unwrap(), Ok(Response::Nodes { closer }));
        }
        a.finish().await;
    });
}
