//! Nothing lasts longer than it may: requests, dials, reads, writes, idleness.

use std::time::Duration;

use svc_dht::{
    link::error::{RpcError, TimedOut},
    wire::message::{Op, Request, Response},
};

use crate::{
    node::{Node, Raw, addr, contact, identity, record, request_frame},
    world::{WINDOW, in_world},
};

/// 5 % of what was allowed.
fn within(ms: u64, allowed: u64) -> bool {
    ms >= allowed && ms <= allowed + allowed / 20
}

// proves: DHT-1.4, DHT-10.2, DHT-9.4
#[test]
fn no_request_outlives_its_deadline_whatever_the_peer_does_not_do() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        // 2 does not even accept, 3 says no word, 4 welcomes and says nothing more.
        world.silence(addr(2));
        let mut third = world.raw_listen(addr(3));
        let mut fourth = world.raw_listen(addr(4));
        drop(a.env.spawn("third", async move {
            let raw = third.recv().await;
            std::future::pending::<()>().await;
            drop(raw);
        }));
        drop(a.env.spawn("fourth", async move {
            let mut raw = Raw::new(fourth.recv().await.unwrap());
            raw.welcome(4).await;
            std::future::pending::<()>().await;
        }));
        let find = Request::FindNode {
            target: identity(9).id(),
        };
        let find_value = Request::FindValue {
            key: identity(9).id(),
        };
        for (n, (request, allowed)) in (2..5).flat_map(|n| {
            let cases = [(find.clone(), 1500), (find_value.clone(), 100)];
            cases.into_iter().map(move |case| (n, case))
        }) {
            let op = request.op();
            let asked = a.ask(contact(n), request, allowed);
            let (took, answer) = world.timed(asked).await;
            let expected = RpcError::Timeout(TimedOut::Rpc(op));
            assert_eq!(answer, Err(expected), "{n}");
            assert!(within(took, allowed), "{n}: {took} ms of {allowed}");
        }
        let stats = a.peers.stats();
        assert_eq!(stats.timeouts(TimedOut::Rpc(Op::FindNode)), 3);
        assert_eq!(stats.timeouts(TimedOut::Rpc(Op::FindValue)), 3);
        a.finish().await;
    });
}

// proves: DHT-1.4, DHT-5.1, DHT-9.4
#[test]
fn a_dial_that_hangs_ends_by_itself_though_nobody_waits_for_it() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        world.silence(addr(2));
        let (took, answer) = world.timed(a.ask(contact(2), Request::Ping, 60_000)).await;
        assert_eq!(answer, Err(RpcError::Timeout(TimedOut::Connect)));
        assert!(within(took, 5000), "{took}");
        // Now one that its caller gives up early: it was told once, and ends all the same.
        assert!(a.ask(contact(2), Request::Ping, 100).await.is_err());
        assert_eq!(a.peers.alive(), 1);
        world.pass(4950).await;
        assert_eq!(a.peers.alive(), 0);
        assert_eq!(a.heard.failed.lock().unwrap().len(), 2);
        assert_eq!(a.peers.stats().timeouts(TimedOut::Connect), 2);
        a.finish().await;
    });
}

// proves: DHT-1.4, DHT-5.1, DHT-9.4
#[test]
fn whoever_begins_to_speak_has_so_long_to_finish() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        // No hello, no proof, half a frame, and a frame that dribbles in for ever.
        let mut mute = Raw::new(world.raw_connect(addr(1)).await);
        let mut unproven = Raw::new(world.raw_connect(addr(1)).await);
        let (_, hello) = svc_dht::wire::handshake::Dialler::new(
            &identity(2),
            crate::node::network(),
            7000,
            [2; 32],
        );
        unproven.send_frame(&hello).await;
        assert!(unproven.frame().await.is_some());
        let mut half = Raw::new(world.raw_connect(addr(1)).await);
        half.greet(3).await;
        let ping = request_frame(1, &Request::Ping);
        half.send(&ping[..7]).await;
        let mut slow = Raw::new(world.raw_connect(addr(1)).await);
        slow.greet(4).await;
        drop(a.env.spawn("slow", {
            let env = a.env.clone();
            async move {
                slow.send(&[0, 0, 0, 200]).await;
                for _ in 0..7 {
                    env.sleep(Duration::from_secs(1)).await;
                    if tokio::io::AsyncWriteExt::write_all(&mut slow.stream, &[1])
                        .await
                        .is_err()
                    {
                        break;
                    }
                }
            }
        }));
        let (took, _) = world
            .timed(async { (mute.rest().await, unproven.rest().await, half.rest().await) })
            .await;
        assert!(within(took, 5000), "{took}");
        world.pass(1).await;
        assert_eq!(a.peers.alive(), 0);
        assert_eq!(a.peers.stats().timeouts(TimedOut::Read), 4);
        a.finish().await;
    });
}

// proves: DHT-5.1, DHT-1.4
#[test]
fn a_peer_that_went_silent_is_dropped_though_its_callers_have_gone() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut door = world.raw_listen(addr(2));
        drop(a.env.spawn("peer", async move {
            let mut raw = Raw::new(door.recv().await.unwrap());
            raw.welcome(2).await;
            raw.rest().await;
        }));
        assert!(a.ask(contact(2), Request::Ping, 100).await.is_err());
        assert_eq!(a.peers.alive(), 1);
        world.pass(4850).await;
        assert_eq!(a.peers.alive(), 1);
        world.pass(200).await;
        assert_eq!(a.peers.alive(), 0);
        assert_eq!(a.peers.stats().timeouts(TimedOut::Read), 1);
        a.finish().await;
    });
}

// proves: DHT-5.1, DHT-9.4, DHT-1.9
#[test]
fn a_peer_that_asks_and_never_reads_is_dropped_and_costs_little_until_then() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        *a.heard.closer.lock().unwrap() = vec![contact(7); 20];
        let mut raw = Raw::new(world.raw_connect(addr(1)).await);
        raw.greet(2).await;
        let find = request_frame(
            1,
            &Request::FindNode {
                target: identity(9).id(),
            },
        );
        let before = crate::heap::live_bytes();
        let mut most = 0;
        let flood = async {
            for _ in 0..20_000 {
                let sent = tokio::io::AsyncWriteExt::write_all(&mut raw.stream, &find).await;
                if sent.is_err() {
                    break;
                }
                a.heard.reads.lock().unwrap().clear();
                most = most.max(crate::heap::live_bytes() - before);
            }
            world.pass(100_000).await;
        };
        tokio::select! {
            biased;
            () = flood => {}
            () = async { while a.peers.alive() > 0 { world.pass(100).await; } } => {}
        }
        assert_eq!(a.peers.alive(), 0);
        let stats = a.peers.stats();
        assert!(
            stats.refused_outbox.get() > 0,
            "it was refused before it was dropped"
        );
        let dropped = stats.timeouts(TimedOut::Write) + stats.frames_rejected("unread");
        assert_eq!(dropped, 1);
        // 256 KiB of answers, twice that while a buffer grows, and the windows of the stream.
        assert!(most < 5 * 256 * 1024, "{most} bytes");
        a.finish().await;
    });
}

// proves: DHT-5.1, DHT-1.4, DHT-9.4
#[test]
fn a_peer_that_takes_nothing_runs_into_the_write_timeout() {
    in_world(|world| async move {
        let a = Node::start(&world.env(), 1).await;
        let mut door = world.raw_listen(addr(2));
        drop(a.env.spawn("peer", async move {
            let mut raw = Raw::new(door.recv().await.unwrap());
            raw.welcome(2).await;
            std::future::pending::<()>().await;
        }));
        let mut record = record(1);
        record.body = vec![0; 40_000];
        let request = Request::Store { record };
        let before = a.env.now();
        let asks = (0..(3 * WINDOW / 40_000 + 1)).map(|_| {
            let (peers, request, deadline) = (a.peers.clone(), request.clone(), a.in_ms(60_000));
            a.env.spawn("ask", async move {
                peers.request(contact(2), &request, false, deadline).await
            })
        });
        let asks: Vec<_> = asks.collect();
        for asked in asks {
            let answer = asked.await.unwrap();
            let expected =
                [TimedOut::Write, TimedOut::Read].map(|what| Err(RpcError::Timeout(what)));
            assert!(expected.contains(&answer), "{answer:?}");
        }
        let took = (a.env.now() - before).as_millis() as u64;
        assert!(within(took, 5000), "{took}");
        let stats = a.peers.stats();
        let timeouts = stats.timeouts(TimedOut::Write) + stats.timeouts(TimedOut::Read);
        assert_eq!(timeouts, 1);
        world.pass(2000).await;
        assert_eq!(a.peers.alive(), 0);
        a.finish().await;
    });
}

// proves: DHT-5.1
#[test]
fn an_idle_connection_closes_after_60_seconds_and_not_while_it_is_used() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::with(&world.env(), 2, |rules| {
                rules.idle = Duration::from_secs(600)
            })
            .await,
        );
        for _ in 0..5 {
            assert_eq!(a.ping(2).await, Ok(Response::Pong));
            world.pass(50_000).await;
            assert_eq!(a.peers.open(), (1, 0));
        }
        world.pass(9_900).await;
        assert_eq!(a.peers.open(), (1, 0));
        world.pass(200).await;
        assert_eq!((a.peers.alive(), b.peers.alive()), (0, 0));
        assert_eq!(a.peers.stats().closed_idle.get(), 1);
        assert_eq!(world.dials(addr(2)), 1);
        assert!(
            a.heard.failed.lock().unwrap().is_empty(),
            "that is nobody's fault"
        );
        // The next request makes a new one.
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        let (streams, shut_down, torn) = world.streams();
        assert_eq!((streams, shut_down, torn), (4, 2, 0));
        a.finish().await;
        b.finish().await;
    });
}

// proves: DHT-5.1
#[test]
fn the_limits_are_those_of_the_rules() {
    in_world(|world| async move {
        let a = Node::with(&world.env(), 1, |rules| {
            rules.connect = Duration::from_millis(300);
            rules.read = Duration::from_millis(700);
        })
        .await;
        world.silence(addr(2));
        let (took, _) = world.timed(a.ask(contact(2), Request::Ping, 60_000)).await;
        assert!(within(took, 300), "{took}");
        let _door = world.raw_listen(addr(3));
        let (took, answer) = world.timed(a.ask(contact(3), Request::Ping, 60_000)).await;
        assert_eq!(answer, Err(RpcError::Timeout(TimedOut::Read)));
        assert!(within(took, 700), "{took}");
        a.finish().await;
    });
}

#[test]
fn the_deadlines_of_many_requests_share_few_timers() {
    in_world(|world| async move {
        let (a, b) = (
            Node::start(&world.env(), 1).await,
            Node::start(&world.env(), 2).await,
        );
        assert_eq!(a.ping(2).await, Ok(Response::Pong));
        let before = world.timers();
        for _ in 0..1000 {
            assert_eq!(a.ping(2).await, Ok(Response::Pong));
            world.pass(10).await;
        }
        // In ten seconds, one each second for the requests, and now and then one for idleness.
        let set = world.timers() - before;
        assert!(set < 30, "{set}");
        a.finish().await;
        b.finish().await;
    });
}
