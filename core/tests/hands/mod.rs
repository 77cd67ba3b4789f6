//! A world in which time moves only when the test says so, and nothing else exists.
//!
//! Always: a timer fires exactly when `advance` passes its instant, in order of time.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant, SystemTime},
};

use ron_core::{
    Env,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};

#[derive(Clone)]
pub struct Hands(Arc<Mutex<Time>>);

struct Time {
    now: Instant,
    sleepers: Vec<(Instant, Waker)>,
}

/// An `Env` and the hands of its clock.
pub fn world() -> (Env, Hands) {
    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant has no other beginning"
    )]
    let now = Instant::now();
    let hands = Hands(Arc::new(Mutex::new(Time {
        now,
        sleepers: Vec::new(),
    })));
    (Env::new(World(hands.clone())), hands)
}

impl Hands {
    pub fn advance(&self, by: Duration) {
        let due = {
            let mut time = self.0.lock().unwrap();
            time.now += by;
            let now = time.now;
            let (due, later) = std::mem::take(&mut time.sleepers)
                .into_iter()
                .partition::<Vec<_>, _>(|(at, _)| *at <= now);
            time.sleepers = later;
            due
        };
        for (_, waker) in due {
            waker.wake();
        }
    }
}

/// A future and how often it was woken.
pub struct Polled<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(Mutex<usize>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

impl<F: Future> Polled<F> {
    pub fn new(future: F) -> Self {
        Polled {
            future: Box::pin(future),
            wakes: Arc::default(),
        }
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = self.wakes.clone().into();
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub fn wakes(&self) -> usize {
        *self.wakes.0.lock().unwrap()
    }
}

struct World(Hands);

impl Clock for World {
    fn now(&self) -> Instant {
        self.0.0.lock().unwrap().now
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let hands = self.0.clone();
        Box::pin(poll_fn(move |cx| {
            let mut time = hands.0.lock().unwrap();
            if time.now >= at {
                return Poll::Ready(());
            }
            time.sleepers.push((at, cx.waker().clone()));
            Poll::Pending
        }))
    }
}

impl Net for World {
    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        unimplemented!("no network here")
    }

    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        unimplemented!("no network here")
    }

    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        unimplemented!("no network here")
    }
}

impl Http for World {
    fn request(
        &self,
        _: http::Request<bytes::Bytes>,
        _: Instant,
    ) -> BoxFuture<'_, Result<http::Response<axum::body::Body>, HttpError>> {
        unimplemented!("no network here")
    }
}

impl Tasks for World {
    fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        unimplemented!("no tasks here")
    }

    fn offload(&self, _: Pool, _: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        unimplemented!("no threads here")
    }
}

impl Entropy for World {
    fn fill(&self, buf: &mut [u8]) {
        buf.fill(7);
    }
}

impl Probe for World {
    fn probe(&self, _: &'static str, _: u64, _: fmt::Arguments<'_>) {}
}

impl Runtime for World {
    fn disk(&self) -> Arc<dyn Disk> {
        unimplemented!("no disk here")
    }
}
