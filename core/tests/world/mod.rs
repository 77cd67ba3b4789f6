//! A world for unit tests: a clock that jumps to the next timer when nothing else can move, one scripted
//! HTTP upstream, a seeded entropy. [`World::run`] drives a future and everything it spawned to its end.
#![allow(dead_code, reason = "each test uses its part of it")]

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant, SystemTime},
};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;

use ron_core::{
    Env,
    outbound::Egress,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};

type Upstream = dyn Fn(http::Request<Bytes>) -> BoxFuture<'static, Result<http::Response<Body>, HttpError>>
    + Send
    + Sync;

#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    start: Instant,
    elapsed: Mutex<Duration>,
    timers: Mutex<BTreeMap<(Instant, u64), Waker>>,
    tasks: Mutex<Vec<BoxFuture<'static, ()>>>,
    drawn: Mutex<u64>,
    upstream: Box<Upstream>,
}

/// Wall time at the start of every test world.
pub const EPOCH_S: u64 = 1_700_000_000;

impl World {
    #[expect(clippy::disallowed_methods, reason = "an origin for the manual clock")]
    pub fn with_upstream(upstream: Box<Upstream>) -> World {
        World(Arc::new(Inner {
            start: Instant::now(),
            elapsed: Mutex::default(),
            timers: Mutex::default(),
            tasks: Mutex::default(),
            drawn: Mutex::default(),
            upstream,
        }))
    }

    pub fn new() -> World {
        Self::with_upstream(Box::new(|request| {
            let to = request.uri().to_string();
            Box::pin(async move {
                let source = io::ErrorKind::ConnectionRefused.into();
                Err(HttpError::Connect { to, source })
            })
        }))
    }

    pub fn env(&self) -> Env {
        Env::new(self.clone())
    }

    pub fn elapsed(&self) -> Duration {
        *self.0.elapsed.lock().unwrap()
    }

    /// Moves the clock by hand and wakes who waits for a time that has come.
    pub fn advance(&self, by: Duration) {
        *self.0.elapsed.lock().unwrap() += by;
        let now = self.now();
        let mut timers = self.0.timers.lock().unwrap();
        let later = timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut *timers, later);
        drop(timers);
        for waker in due.into_values() {
            waker.wake();
        }
    }

    /// Runs `work` to its end; panics if it waits for something that can never happen.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut work = pin!(work);
        loop {
            while woken.0.swap(false, Ordering::SeqCst) {
                if let Poll::Ready(value) = work.as_mut().poll(&mut cx) {
                    return value;
                }
                let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap());
                for mut task in tasks {
                    if task.as_mut().poll(&mut cx).is_pending() {
                        self.0.tasks.lock().unwrap().push(task);
                    }
                }
            }
            self.jump_to_next_timer();
        }
    }

    fn jump_to_next_timer(&self) {
        let next = self.0.timers.lock().unwrap().pop_first();
        let ((at, _), waker) = next.expect("the test waits for something that can never happen");
        let mut elapsed = self.0.elapsed.lock().unwrap();
        *elapsed = (*elapsed).max(at - self.0.start);
        waker.wake();
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Sleep {
    world: World,
    at: Instant,
    id: u64,
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.now() >= self.at {
            return Poll::Ready(());
        }
        let mut timers = self.world.0.timers.lock().unwrap();
        timers.insert((self.at, self.id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.world
            .0
            .timers
            .lock()
            .unwrap()
            .remove(&(self.at, self.id));
    }
}

impl Clock for World {
    fn now(&self) -> Instant {
        self.0.start + self.elapsed()
    }
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_S) + self.elapsed()
    }
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let id = self.draw();
        Box::pin(Sleep {
            world: self.clone(),
            at,
            id,
        })
    }
}

impl World {
    fn draw(&self) -> u64 {
        let mut drawn = self.0.drawn.lock().unwrap();
        *drawn += 1;
        *drawn
    }
}

impl Net for World {
    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

impl Http for World {
    fn request(
        &self,
        request: http::Request<Body>,
        _: Egress,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        let answer = async {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|error| HttpError::Lost {
                source: error.into(),
            })?;
            (self.0.upstream)(http::Request::from_parts(parts, body.to_bytes())).await
        };
        let timer = self.sleep_until(deadline);
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = answer => answer,
                () = timer => Err(HttpError::Timeout { sent: true }),
            }
        })
    }
}

struct NoAbort;
impl Abort for NoAbort {
    fn abort(&self) {}
}

impl Tasks for World {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        self.0.tasks.lock().unwrap().push(task);
        Box::new(NoAbort)
    }
    fn offload(&self, _: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        job();
        Box::pin(async {})
    }
}

impl Entropy for World {
    fn fill(&self, buf: &mut [u8]) {
        let drawn = self.draw();
        for (byte, value) in buf.iter_mut().zip(drawn.to_le_bytes().iter().cycle()) {
            *byte = *value;
        }
    }
}

impl Probe for World {}

impl Runtime for World {
    fn disk(&self) -> Arc<dyn Disk> {
        panic!("this world has no disk")
    }
}
