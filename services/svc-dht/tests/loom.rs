//! Every interleaving (up to a bound of preemptions) of producer, work queue, worker, route queue, bucket writer
//! and shutdown.
//!
//! Run with `cargo test -p svc-dht --features loom --test loom --release`. The shipped bucket and table and the
//! kernel's queues, snapshot and shutdown are stepped on loom's primitives; the tasks around them are loom's
//! threads, since Tokio's are not. A missed wake-up is a deadlock, which loom reports.
#![cfg(feature = "loom")]

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
    time::{Duration, Instant, SystemTime},
};

use axum::body::Body;
use loom::{sync::Notify, thread};
use ron_core::{
    Env, Queue, RejectNew, Shutdown, WaitFor,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};
use svc_dht::{
    contact::Contact,
    id::Id,
    routing::{BucketAction, Rules, Table, Update},
};

/// Tries every schedule with at most this many preemptions: enough for every known race of this kind.
fn check(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(test);
}

struct Sleeper(Notify);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let sleeper = Arc::new(Sleeper(Notify::new()));
    let waker = sleeper.clone().into();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        sleeper.0.wait();
    }
}

/// A world in which time stands still: only room, or closing, ends a wait.
struct Still;

impl Clock for Still {
    #[allow(
        clippy::disallowed_methods,
        reason = "an Instant can be had from nowhere else; its value plays no part"
    )]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Net for Still {
    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(std::future::pending())
    }

    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(std::future::pending())
    }

    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(std::future::pending())
    }
}

impl Http for Still {
    fn request(
        &self,
        _: http::Request<Body>,
        _: ron_core::outbound::Egress,
        _: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        Box::pin(std::future::pending())
    }
}

impl Tasks for Still {
    fn spawn(&self, name: &'static str, _: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        panic!("{name}: the tasks are loom's threads");
    }

    fn offload(&self, _: Pool, _: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Entropy for Still {
    fn fill(&self, buf: &mut [u8]) {
        buf.fill(0);
    }
}

impl Probe for Still {}

impl Runtime for Still {
    fn disk(&self) -> Arc<dyn Disk> {
        panic!("nobody writes");
    }
}

const ME: Id = Id([0; 32]);

/// Peers of one bucket, each in a network of its own.
fn peer(n: u8) -> Contact {
    let mut id = [n; 32];
    id[0] = 0x80;
    Contact {
        id: Id(id),
        addr: SocketAddr::from((Ipv4Addr::new(10, 0, n, 1), 1)).into(),
    }
}

// proves: DHT-10.4, DHT-10.5, DHT-6.2, DHT-1.2
#[test]
fn what_is_accepted_reaches_the_bucket_in_order_and_all_see_the_stop() {
    check(2, || {
        let env = Env::new(Still);
        let work = Queue::new("work", 1, RejectNew);
        let route = Queue::new("route", 1, WaitFor(Duration::from_millis(100)));
        let (shutdown, table) = (Shutdown::new(), Table::new(ME, Rules::default()));
        let index = table.bucket_of(&peer(1).id).unwrap();

        // As a worker does: what it finds out goes to the bucket; at the end the queue behind it is closed.
        let worker = thread::spawn({
            let (work, route, env) = (work.clone(), route.clone(), env.clone());
            move || {
                while let Some(contact) = block_on(work.pop()) {
                    let update = Update::Verified {
                        contact,
                        rtt_ms: None,
                    };
                    block_on(route.push(&env, update)).unwrap();
                }
                route.close();
            }
        });
        // As a bucket writer does, and it is the only one.
        let writer = thread::spawn({
            let (route, table, shutdown) = (route.clone(), table.clone(), shutdown.clone());
            move || {
                let mut half = table.claim(index).unwrap();
                assert!(table.claim(index).is_none(), "a second writer");
                let mut added = Vec::new();
                while let Some(update) = block_on(route.pop()) {
                    let actions = half.handle(update, 0);
                    let one = |action: &BucketAction| match action {
                        BucketAction::Added(contact) => Some(*contact),
                        _ => None,
                    };
                    added.extend(actions.iter().filter_map(one));
                    assert_eq!(table.view(index).len(), added.len(), "published at once");
                }
                block_on(shutdown.wait());
                added
            }
        });
        let accepted: Vec<_> = (1..=3)
            .map(peer)
            .filter(|p| work.push(*p).is_ok())
            .collect();
        assert!(!accepted.is_empty() && work.stats().high_water <= 1);
        assert!(shutdown.trigger());
        work.close();
        worker.join().unwrap();
        assert_eq!(
            writer.join().unwrap(),
            accepted,
            "none lost, none twice, in order"
        );
        let view: Vec<_> = table.view(index).iter().map(|e| e.contact).collect();
        assert_eq!(view, accepted);
        let (offered, refused) = (work.stats().offered, work.stats().refused);
        assert_eq!(
            offered - refused,
            accepted.len() as u64,
            "every refusal is counted"
        );
    });
}

// proves: DHT-4.2
#[test]
fn a_reader_sees_whole_buckets_that_only_grow_while_one_writes() {
    check(3, || {
        let table = Table::new(ME, Rules::default());
        let index = table.bucket_of(&peer(1).id).unwrap();
        let mut half = table.claim(index).unwrap();
        let readers = [(); 2].map(|()| {
            let table = table.clone();
            thread::spawn(move || {
                let (first, second) = (table.view(index), table.view(index));
                assert!(second.len() >= first.len());
                for view in [&first, &second] {
                    let ids: Vec<_> = view.iter().map(|e| e.contact).collect();
                    assert!([&[][..], &[peer(1)], &[peer(1), peer(2)]].contains(&&ids[..]));
                }
            })
        });
        for n in 1..=2 {
            let contact = peer(n);
            half.handle(
                Update::Verified {
                    contact,
                    rtt_ms: None,
                },
                0,
            );
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}
