//! The end of connections: nothing is left open, unanswered or unread.

use svc_dht::{
    link::error::RpcError,
    wire::message::{Request, Response},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    node::{Node, Raw, addr, contact, record},
    world::in_world,
};

// proves: DHT-7.2, DHT-1.11, DHT-1.8
#[test]
fn a_stop_shuts_every_stream_down_and_waits_for_every_task() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut others = Vec::new();
        for n in 2..10 {
            let other = Node::start(&world.env(), n).await;
            // Some dialled us, we dialled the rest.
            match n % 2 {
                0 => assert_eq!(a.ping(n).await, Ok(Response::Pong)),
                _ => assert_eq!(other.ping(1).await, Ok(Response::Pong)),
            }
            others.push(other);
        }
        world.pass(1).await;
        assert_eq!(a.peers.open(), (4, 4));
        a.finish().await;
        world.pass(1).await;
        for other in &others {
            assert_eq!(other.peers.alive(), 0, "{} saw the end", other.n);
        }
        for other in others {
            other.finish().await;
        }
        let (streams, shut_down, torn) = world.streams();
        assert_eq!((streams, shut_down, torn), (16, 16, 0));
    });
}

// proves: DHT-1.5
#[test]
fn a_stop_cancels_who_waits_for_a_peer() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        world.silence(addr(2));
        let mut door = world.raw_listen(addr(3));
        let ask = |n| {
            let (peers, deadline) = (a.peers.clone(), a.in_ms(10_000));
            a.env.spawn("ask", async move {
                peers
                    .request(contact(n), &Request::Ping, false, deadline)
                    .await
            })
        };
        let asked = [ask(2), ask(3)];
        let mut raw = Raw::new(door.recv().await.unwrap());
        raw.welcome(3).await;
        let (took, ()) = world.timed(a.peers.shutdown()).await;
        assert!(took <= 1000, "{took}");
        for asked in asked {
            assert_eq!(asked.await.unwrap(), Err(RpcError::Canceled));
        }
        assert_eq!(
            a.ping(4).await,
            Err(RpcError::Canceled),
            "and nobody is dialled any more"
        );
        a.peers.shutdown().await;
        a.finish().await;
    });
}

#[test]
fn a_stop_does_not_wait_for_a_peer_that_reads_nothing() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut door = world.raw_listen(addr(2));
        drop(a.env.spawn("peer", async move {
            let mut raw = Raw::new(door.recv().await.unwrap());
            raw.welcome(2).await;
            std::future::pending::<()>().await;
        }));
        let mut record = record(1);
        record.body = vec![0; 200_000];
        let (peers, deadline) = (a.peers.clone(), a.in_ms(60_000));
        let asked = a.env.spawn("ask", async move {
            let request = Request::Store { record };
            peers.request(contact(2), &request, false, deadline).await
        });
        world.pass(10).await;
        let (took, ()) = world.timed(a.peers.shutdown()).await;
        assert_eq!(took, 1000);
        assert_eq!(asked.await.unwrap(), Err(RpcError::Canceled));
        a.finish().await;
        assert_eq!(world.streams().2, 0, "it was shut down all the same");
    });
}

#[test]
fn an_answer_in_the_hands_of_a_worker_is_written_after_others_came_and_went() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        raw.ask(1, &Request::Store { record: record(2) }).await;
        raw.ask(2, &Request::Ping).await;
        assert_eq!(raw.response().await, (2, Response::Pong));
        // A connection is not idle while a worker has something of it in hand.
        world.pass(70_000).await;
        let (_, _, reply) = a.heard.writes.lock().unwrap().pop().unwrap();
        reply.reply(Response::Stored);
        assert_eq!(raw.response().await, (1, Response::Stored));
        // One that comes too late for its peer is dropped with it.
        raw.ask(3, &Request::Store { record: record(2) }).await;
        world.pass(1).await;
        drop(raw);
        world.pass(1).await;
        assert_eq!(a.peers.alive(), 0);
        let (_, _, reply) = a.heard.writes.lock().unwrap().pop().unwrap();
        reply.reply(Response::Stored);
        a.finish().await;
    });
}

/// What the test's own stream holds after it was used: not what is measured.
async fn used_stream_bytes() -> isize {
    let before = crate::heap::live_bytes();
    let mut used = Vec::with_capacity(64);
    let vec = crate::heap::live_bytes() - before;
    for _ in 0..64 {
        let (mut a, mut b) = tokio::io::duplex(crate::world::WINDOW);
        // About what a handshake and a ping take.
        for (end, other) in [(0, 1), (1, 0)] {
            let ends = [&mut a, &mut b];
            let [a, b] = ends;
            let (from, to) = if end < other { (a, b) } else { (b, a) };
            for len in [100, 80, 60] {
                from.write_all(&vec![0; len]).await.unwrap();
                to.read_exact(&mut vec![0; len]).await.unwrap();
            }
        }
        used.push((a, b));
    }
    (crate::heap::live_bytes() - before - vec) / 64
}

#[test]
fn an_idle_connection_is_small() {
    in_world(|world| async move {
        let a = Node::with(&world.env(), 1, |rules| rules.max_inbound = 10_000).await;
        let stream = used_stream_bytes().await;
        let mut raws = Vec::with_capacity(128);
        let before = crate::heap::live_bytes();
        for n in 10..138 {
            let mut raw = Raw::new(world.raw_connect(addr(1)).await);
            raw.greet(n).await;
            raw.ask(1, &Request::Ping).await;
            raw.response().await;
            raws.push(raw.stream);
        }
        *a.heard.reads.lock().unwrap() = Vec::new();
        *a.heard.proven.lock().unwrap() = Vec::new();
        world.pass(10_000).await;
        let each = (crate::heap::live_bytes() - before) / 128 - stream;
        println!("an idle connection: {each} bytes besides its stream ({stream} bytes here)");
        println!("its task alone: {} bytes", svc_dht::connection::TASK_BYTES);
        assert!(each <= 3 * 1024, "{each}");
        assert_eq!(a.peers.open(), (0, 128));
        drop(raws);
        a.finish().await;
    });
}
