//! A world for tests of the kernel's shells: Tokio's paused clock, tasks and a recorded probe; no network
//! and no disk. No wall time passes, and time moves only when every task waits.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the seam for these tests, as `io` and `sim` are for the rest"
)]
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::{
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use axum::body::Body;
use ron_core::{
    Env,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};

/// What was probed, as `event detail`.
pub type Trace = Arc<Mutex<Vec<String>>>;

/// Runs `body` to its end in a world of its own.
pub fn in_world<F: Future<Output = ()>>(body: impl FnOnce(Env, Trace) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built");
    let trace = Trace::default();
    let env = Env::new(PausedTokio {
        trace: trace.clone(),
        fills: AtomicU8::new(0),
    });
    // The paused clock jumps there at once when nothing else can move: a hang is a failure, not a wait.
    let limit = Duration::from_secs(24 * 3600);
    runtime
        .block_on(async { tokio::time::timeout(limit, body(env, trace)).await })
        .expect("the test's world hangs");
}

/// Lets the clock run for that long, and with it whatever is due.
pub async fn pass(env: &Env, ms: u64) {
    env.sleep(Duration::from_millis(ms)).await;
}

struct PausedTokio {
    trace: Trace,
    fills: AtomicU8,
}

impl Clock for PausedTokio {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep_until(at.into()))
    }
}

impl Tasks for PausedTokio {
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        Box::new(Handle(tokio::spawn(task).abort_handle()))
    }

    fn offload(&self, _pool: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        job();
        Box::pin(std::future::ready(()))
    }
}

struct Handle(tokio::task::AbortHandle);

impl Abort for Handle {
    fn abort(&self) {
        self.0.abort();
    }
}

impl Entropy for PausedTokio {
    /// A new, but always the same, sequence for each caller in turn.
    fn fill(&self, buf: &mut [u8]) {
        buf.fill(self.fills.fetch_add(1, Ordering::Relaxed));
    }
}

impl Probe for PausedTokio {
    fn probe(&self, event: &'static str, _id: u64, detail: fmt::Arguments<'_>) {
        self.trace.lock().unwrap().push(format!("{event} {detail}"));
    }
}

fn absent<T>() -> io::Result<T> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

impl Net for PausedTokio {
    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(std::future::ready(absent()))
    }

    fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(std::future::ready(absent()))
    }

    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(std::future::ready(absent()))
    }
}

impl Http for PausedTokio {
    fn request(
        &self,
        _: http::Request<Body>,
        _: ron_core::outbound::Egress,
        _: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        let error = HttpError::Invalid("this world has no network".into());
        Box::pin(std::future::ready(Err(error)))
    }
}

impl Runtime for PausedTokio {
    fn disk(&self) -> Arc<dyn Disk> {
        panic!("this world has no disk")
    }
}
