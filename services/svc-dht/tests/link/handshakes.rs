//! Who may come in, and who is turned away.

use svc_dht::{
    contact::Contact,
    identity::NetworkId,
    link::error::RpcError,
    wire::{
        handshake::{Dialler, HandshakeError, RejectCode},
        message::{Refusal, RefusalCode, Request, Response},
    },
};

use crate::{
    node::{Node, Raw, addr, contact, identity, network, record},
    world::in_world,
};

#[test]
fn nodes_of_two_networks_never_meet_and_both_say_so() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let b = Node::with(&world.env(), 2, |rules| {
            rules.network = NetworkId::of_name("another");
        })
        .await;
        let rejected = HandshakeError::Rejected(RejectCode::WrongNetwork);
        assert_eq!(a.ping(2).await, Err(RpcError::Handshake(rejected)));
        assert_eq!(b.peers.stats().handshakes_rejected("wrong_network"), 1);
        assert_eq!(
            a.peers
                .stats()
                .handshakes_rejected("rejected_wrong_network"),
            1
        );
        world.pass(2000).await;
        assert_eq!((a.peers.alive(), b.peers.alive()), (0, 0));
        assert!(
            b.heard.reads.lock().unwrap().is_empty(),
            "its early request was not looked at"
        );
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn who_is_not_whom_we_wanted_is_told_nothing_and_not_kept() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        let wrong = Contact {
            id: identity(3).id(),
            addr: addr(2).into(),
        };
        let error = RpcError::Handshake(HandshakeError::WrongId);
        assert_eq!(a.ask(wrong, Request::Ping, 1000).await, Err(error));
        assert_eq!(*a.heard.failed.lock().unwrap(), [(wrong, error)]);
        assert_eq!(a.peers.stats().handshakes_rejected("wrong_id"), 1);
        world.pass(2000).await;
        assert_eq!((a.peers.alive(), b.peers.alive()), (0, 0));
        assert!(b.heard.proven.lock().unwrap().is_empty());
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn a_node_does_not_talk_to_itself() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let itself = RpcError::Handshake(HandshakeError::SelfDial);
        assert_eq!(a.ping(1).await, Err(itself));
        assert_eq!(world.dials(addr(1)), 0);
        // By its address alone it finds out in the handshake.
        let rejected = HandshakeError::Rejected(RejectCode::SelfDial);
        let met = a.peers.meet(addr(1), a.in_ms(1000)).await;
        assert_eq!(met, Err(RpcError::Handshake(rejected)));
        assert_eq!(a.peers.stats().handshakes_rejected("self_dial"), 1);
        a.finish().await;
    });
}

#[test]
fn without_a_proof_reads_are_answered_and_writes_are_not() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        let me = identity(2);
        let (dialler, hello) = Dialler::new(&me, network(), 7000, [2; 32]);
        raw.send_frame(&hello).await;
        let record = record(2);
        let store = Request::Store { record };
        raw.ask(1, &Request::Ping).await;
        raw.ask(2, &store).await;
        let welcome = raw.frame().await.unwrap();
        assert_eq!(raw.response().await, (1, Response::Pong));
        let refused = Response::Refused(Refusal {
            code: RefusalCode::NotVerified,
            retry_after_ms: 0,
        });
        assert_eq!(raw.response().await, (2, refused));
        assert!(a.heard.writes.lock().unwrap().is_empty());
        assert!(!a.heard.reads.lock().unwrap()[0].0.proven);
        assert_eq!(a.peers.stats().refused_not_verified.get(), 1);
        // With it, in the same breath, they are.
        let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
        let (_, proof) = welcomed.check(&me).unwrap();
        raw.send_frame(&proof).await;
        raw.ask(3, &store).await;
        world.pass(10).await;
        let (from, _, reply) = a.heard.writes.lock().unwrap().pop().unwrap();
        assert!(from.proven);
        reply.reply(Response::Stored);
        assert_eq!(raw.response().await, (3, Response::Stored));
        a.finish().await;
    });
}

#[test]
fn a_proof_by_another_key_closes_the_stream() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        let (dialler, hello) = Dialler::new(&identity(2), network(), 7000, [2; 32]);
        raw.send_frame(&hello).await;
        let welcome = raw.frame().await.unwrap();
        let welcomed = dialler.handle_welcome(&welcome, None).unwrap();
        let (_, forged) = welcomed.check(&identity(3)).unwrap();
        raw.send_frame(&forged).await;
        assert_eq!(raw.rest().await, 0);
        assert_eq!(a.peers.stats().handshakes_rejected("bad_proof"), 1);
        assert!(a.heard.proven.lock().unwrap().is_empty());
        a.finish().await;
    });
}

// proves: DHT-1.7
#[test]
fn signatures_are_checked_on_the_cpu_pool_and_not_in_the_connections_task() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        world.pass(1).await;
        let cold = world.cpu_jobs();
        assert!(cold >= 2, "each end verified the other");
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        assert_eq!(world.cpu_jobs(), cold, "a warm connection needs none");
        a.finish().await;
        b.finish().await;
    });
}

#[test]
fn beyond_the_cap_and_while_draining_nobody_is_let_in_and_each_is_told_why() {
    in_world(|world| async move {
        let a = Node::with(&world.env(), 1, |rules| rules.max_inbound = 2).await;
        let mut held = Vec::new();
        for n in 2..4 {
            let mut raw = Raw::new(world.raw_connect(addr(1)).await);
            raw.greet(n).await;
            held.push(raw);
        }
        let mut third = Raw::new(world.raw_connect(addr(1)).await);
        let reject = third.frame().await.unwrap();
        assert_eq!(reject[..], RejectCode::Busy.frame());
        assert_eq!(third.rest().await, 0);
        assert_eq!(a.peers.stats().inbound_refused.get(), 1);
        drop(held.pop());
        world.pass(10).await;
        let mut fourth = Raw::new(world.raw_connect(addr(1)).await);
        fourth.greet(5).await;
        drop(fourth);
        a.peers.drain();
        let mut fifth = Raw::new(world.raw_connect(addr(1)).await);
        let reject = fifth.frame().await.unwrap();
        assert_eq!(reject[..], RejectCode::NotReady.frame());
        // Those who are in are refused as well.
        held[0].ask(1, &Request::Ping).await;
        match held[0].response().await {
            (1, Response::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::NotReady),
            other => panic!("{other:?}"),
        }
        assert_eq!(a.peers.stats().refused_not_ready.get(), 1);
        // Others may still be asked.
        assert_eq!(a.ping(7).await, Err(RpcError::Connect));
        drop(held);
        a.finish().await;
    });
}

#[test]
fn a_refused_dial_is_told_once_for_all_who_wait() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let both = tokio::join!(a.ping(2), a.ping(2));
        assert_eq!(both, (Err(RpcError::Connect), Err(RpcError::Connect)));
        let told = a.heard.failed.lock().unwrap().clone();
        assert_eq!(told, [(contact(2), RpcError::Connect)]);
        assert_eq!(world.dials(addr(2)), 1);
        a.finish().await;
    });
}
