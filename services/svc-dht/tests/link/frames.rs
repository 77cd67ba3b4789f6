//! What peers send wrong, and how little that matters.

use svc_dht::wire::message::{Op, Request, Response};
use tokio::io::AsyncWriteExt;

use crate::{
    node::{Node, Raw, addr, contact, framed, request_frame},
    world::in_world,
};

// proves: DHT-1.10, DHT-7.3
#[test]
fn requests_that_come_byte_by_byte_are_answered() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        for byte in request_frame(5, &Request::Ping) {
            raw.send(&[byte]).await;
            world.pass(1).await;
        }
        assert_eq!(raw.response().await, (5, Response::Pong));
        // Two and a half at once, and the rest later.
        let two = [
            request_frame(6, &Request::Ping),
            request_frame(7, &Request::Ping),
        ]
        .concat();
        let last = request_frame(8, &Request::Ping);
        raw.send(&[&two[..], &last[..9]].concat()).await;
        assert_eq!(raw.response().await.0, 6);
        assert_eq!(raw.response().await.0, 7);
        raw.send(&last[9..]).await;
        assert_eq!(raw.response().await.0, 8);
        a.finish().await;
    });
}

// proves: DHT-1.10, DHT-7.1, DHT-7.2, DHT-7.3
#[test]
fn a_bad_frame_closes_its_stream_alone_and_is_counted_by_its_code() {
    let ping = request_frame(1, &Request::Ping);
    let mut other_network = ping.clone();
    other_network[8] ^= 1;
    let mut unknown_op = ping.clone();
    // Length 4, array 1, network 17, version 1: then the operation.
    unknown_op[23] = 23;
    let mut trailing = ping.clone();
    trailing.push(0);
    trailing[3] += 1;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", vec![0, 0, 0, 0]),
        ("too_long", vec![0, 0x10, 0, 1]),
        ("too_long", vec![0xff; 4]),
        ("malformed", framed(b"\xff\xfe garbage")),
        ("malformed", trailing),
        ("wrong_network", other_network),
        ("unknown_op", unknown_op),
    ];
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut bystander = Raw::new(world.raw_connect(addr(1)).await);
        bystander.greet(9).await;
        for (n, (code, bytes)) in cases.into_iter().enumerate() {
            let before = a.peers.stats().frames_rejected(code);
            let mut raw = Raw::new(world.raw_connect(addr(1)).await);
            raw.greet(2).await;
            raw.send(&bytes).await;
            assert_eq!(raw.rest().await, 0, "case {n}: nothing is answered");
            assert_eq!(
                a.peers.stats().frames_rejected(code),
                before + 1,
                "case {n}: {code}"
            );
            bystander.ask(n as u64, &Request::Ping).await;
            assert_eq!(bystander.response().await, (n as u64, Response::Pong));
        }
        // The end of the stream within a frame.
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        raw.send(&ping[..ping.len() - 1]).await;
        raw.stream.shutdown().await.unwrap();
        assert_eq!(raw.rest().await, 0);
        assert_eq!(a.peers.stats().frames_rejected("truncated"), 1);
        drop(bystander);
        a.finish().await;
        let (streams, shut_down, torn) = world.streams();
        assert_eq!(
            (shut_down, torn),
            (streams, 0),
            "each is shut down, whatever came"
        );
    });
}

#[test]
fn an_answer_that_nobody_asked_for_closes_the_stream() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        raw.answer(0, Op::Ping, &Response::Pong).await;
        assert_eq!(raw.rest().await, 0);
        assert_eq!(a.peers.stats().frames_rejected("unasked"), 1);
        a.finish().await;
    });
}

#[test]
fn an_answer_to_another_operation_fails_the_request_and_closes_the_stream() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut door = world.raw_listen(addr(2));
        let (peers, deadline) = (a.peers.clone(), a.in_ms(1000));
        let asked = a.env.spawn("ask", async move {
            peers
                .request(contact(2), &Request::Ping, false, deadline)
                .await
        });
        let mut raw = Raw::new(door.recv().await.unwrap());
        raw.welcome(2).await;
        raw.answer(0, Op::Store, &Response::Stored).await;
        let error = asked.await.unwrap().unwrap_err();
        assert_eq!(error, svc_dht::link::error::RpcError::Wire("wrong_answer"));
        assert_eq!(*a.heard.failed.lock().unwrap(), [(contact(2), error)]);
        a.finish().await;
    });
}

// proves: DHT-7.1
#[test]
fn an_announced_length_allocates_nothing() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut raws = Vec::new();
        for n in 0..100 {
            let mut raw = Raw::new(world.raw_connect(addr(1)).await);
            raw.greet(n + 10).await;
            raws.push(raw);
        }
        let before = crate::heap::live_bytes();
        for raw in &mut raws {
            raw.send(&[0, 0x10, 0, 0, 1, 2, 3]).await;
        }
        world.pass(100).await;
        let grown = crate::heap::live_bytes() - before;
        assert!(grown < 100 * 1024, "{grown} bytes for 700 that came");
        drop(raws);
        a.finish().await;
    });
}

// proves: DHT-7.3
#[test]
fn a_million_garbage_frames_leave_memory_flat() {
    const FRAMES: usize = 1_000_000;
    const EACH: usize = 1_000;
    let garbage: Vec<u8> = framed(b"\x00\x01garbage").repeat(EACH);
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let before = crate::heap::live_bytes();
        let mut most = 0;
        for _ in 0..FRAMES / EACH {
            let mut raw = Raw::new(world.raw_connect(addr(1)).await);
            // The first is one too many; nobody waits for the others to be read.
            let _ = raw.stream.write_all(&garbage).await;
            raw.rest().await;
            most = most.max(crate::heap::live_bytes() - before);
        }
        world.pass(2000).await;
        let stats = a.peers.stats();
        assert_eq!(
            stats.handshakes_rejected("malformed"),
            (FRAMES / EACH) as u64
        );
        assert_eq!(a.peers.alive(), 0);
        let left = crate::heap::live_bytes() - before;
        // The test's own stream and its window are in it.
        assert!(most < 256 * 1024, "{most} bytes were held at once");
        assert!(left < 16 * 1024, "{left} bytes were left");
        a.finish().await;
    });
}
