//! A world for a whole service: Tokio's paused clock, connections and files in memory, a disk that can stall.
//!
//! No wall time passes: the clock moves only when everybody waits, and then to the next timer. Whoever
//! waits with a ranked lock in hand, or touches a file outside of the disk pool, is noted.

pub mod backend;
pub mod node;

use std::{
    cell::Cell,
    collections::BTreeMap,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime},
};

use axum::body::Body;
use ron_core::{
    Env,
    lock::holds_any,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};
use ron_io::MemoryDisk;
use tokio::{
    io::DuplexStream,
    sync::{mpsc, watch},
};

/// Where a node listens.
pub const ADDR: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1)),
    7480,
);

#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    started: tokio::time::Instant,
    disk: Arc<MemoryDisk>,
    stalled: watch::Sender<bool>,
    doors: Mutex<BTreeMap<SocketAddr, mpsc::Sender<DuplexStream>>>,
    /// Jobs by the name of their pool.
    jobs: Mutex<BTreeMap<&'static str, u64>>,
    wrongs: Mutex<Vec<String>>,
    fills: AtomicU64,
}

thread_local! {
    static IN_POOL: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `body` to its end in a world of its own.
pub fn in_world<F: Future<Output = ()>>(body: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built");
    runtime.block_on(async {
        let world = World(Arc::new(Inner {
            started: tokio::time::Instant::now(),
            disk: Arc::new(MemoryDisk::new(64 << 20)),
            stalled: watch::Sender::new(false),
            doors: Mutex::default(),
            jobs: Mutex::default(),
            wrongs: Mutex::default(),
            fills: AtomicU64::new(1),
        }));
        // The paused clock jumps there at once when nothing else can move: a hang is a failure, not a wait.
        let limit = Duration::from_secs(10 * 24 * 3600);
        let ended = tokio::time::timeout(limit, body(world.clone())).await;
        ended.expect("the test's world hangs");
        assert_eq!(*world.0.wrongs.lock().unwrap(), Vec::<String>::new());
    });
}

impl World {
    pub fn env(&self) -> Env {
        Env::new(self.clone())
    }

    /// Lets the clock run for that long, and with it whatever is due.
    pub async fn pass(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// How long `work` took, and what came of it.
    pub async fn timed<T>(&self, work: impl Future<Output = T>) -> (u64, T) {
        let before = tokio::time::Instant::now();
        let value = work.await;
        (before.elapsed().as_millis() as u64, value)
    }

    /// File operations wait until the disk is let go.
    pub fn stall_disk(&self, stalled: bool) {
        self.0.stalled.send_replace(stalled);
    }

    pub fn disk(&self) -> Arc<MemoryDisk> {
        self.0.disk.clone()
    }

    pub fn jobs(&self, pool: &str) -> u64 {
        self.0.jobs.lock().unwrap().get(pool).copied().unwrap_or(0)
    }

    fn wrong(&self, what: String) {
        self.0.wrongs.lock().unwrap().push(what);
    }
}

impl Clock for World {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        let base = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        base + self.0.started.elapsed()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep_until(at.into()))
    }
}

/// A task that must not hold a lock while it waits.
struct Watched {
    world: World,
    name: &'static str,
    task: BoxFuture<'static, ()>,
}

impl Future for Watched {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.task.as_mut().poll(cx);
        if holds_any() {
            let name = self.name;
            self.world.wrong(format!("{name} waits with a lock held"));
        }
        polled
    }
}

impl Tasks for World {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        let world = self.clone();
        let task = tokio::spawn(Watched { world, name, task });
        Box::new(Handle(task.abort_handle()))
    }

    fn offload(&self, pool: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        if holds_any() {
            self.wrong(format!("a lock is held while {} works", pool.name));
        }
        *self.0.jobs.lock().unwrap().entry(pool.name).or_default() += 1;
        let mut stalled = self.0.stalled.subscribe();
        let done = tokio::spawn(async move {
            if pool == Pool::DISK {
                let _ = stalled.wait_for(|stalled| !stalled).await;
            }
            IN_POOL.set(Some(pool.name));
            let _ = catch_unwind(AssertUnwindSafe(job));
            IN_POOL.set(None);
        });
        Box::pin(async move {
            let _ = done.await;
        })
    }
}

struct Handle(tokio::task::AbortHandle);

impl Abort for Handle {
    fn abort(&self) {
        self.0.abort();
    }
}

impl Entropy for World {
    /// Always the same sequence, in which nothing repeats.
    fn fill(&self, buf: &mut [u8]) {
        for piece in buf.chunks_mut(32) {
            let number = self.0.fills.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &number);
            piece.copy_from_slice(&digest.as_ref()[..piece.len()]);
        }
    }
}

impl Probe for World {}

struct Door {
    addr: SocketAddr,
    knocks: tokio::sync::Mutex<mpsc::Receiver<DuplexStream>>,
}

impl Listener for Door {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Conn, SocketAddr)>> {
        Box::pin(async move {
            match self.knocks.lock().await.recv().await {
                Some(conn) => Ok((Box::new(conn) as Conn, self.addr)),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            }
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl Net for World {
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        let (knock, knocks) = mpsc::channel(4096);
        self.0.doors.lock().unwrap().insert(addr, knock);
        let knocks = tokio::sync::Mutex::new(knocks);
        Box::pin(std::future::ready(Ok(
            Box::new(Door { addr, knocks }) as Box<dyn Listener>
        )))
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(async move {
            let door = self.0.doors.lock().unwrap().get(&addr).cloned();
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let door = door.ok_or_else(refused)?;
            door.send(theirs).await.map_err(|_| refused())?;
            Ok(Box::new(ours) as Conn)
        })
    }

    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}

impl Http for World {
    fn request(
        &self,
        _: http::Request<Body>,
        _: ron_core::outbound::Egress,
        _: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        let error = HttpError::Invalid("the service sends no requests".into());
        Box::pin(std::future::ready(Err(error)))
    }
}

impl Runtime for World {
    fn disk(&self) -> Arc<dyn Disk> {
        if IN_POOL.get() != Some(Pool::DISK.name) {
            self.wrong("a file was touched outside of the disk pool".into());
        }
        self.0.disk.clone()
    }
}
