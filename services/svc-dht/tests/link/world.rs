//! A world for connections: Tokio's paused clock, streams in memory, hosts that are silent or refuse.
//!
//! No wall time passes: the clock moves only when everybody waits, and then to the next timer. Always noted: who was
//! dialled how often, which stream was dropped without a shutdown, who waits with a ranked lock in hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
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
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::mpsc,
};

/// What a stream takes before its reader has read.
pub const WINDOW: usize = 64 * 1024;

#[derive(Clone)]
pub struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    doors: Mutex<BTreeMap<SocketAddr, mpsc::Sender<Stream>>>,
    /// Where no node listens: the streams given out there are not watched.
    raw: Mutex<BTreeSet<SocketAddr>>,
    /// Connects there hang.
    silent: Mutex<BTreeSet<SocketAddr>>,
    dials: Mutex<BTreeMap<SocketAddr, u64>>,
    wrongs: Mutex<Vec<String>>,
    fills: AtomicU64,
    /// Streams handed to nodes, shut down, and dropped without that.
    streams: AtomicU64,
    shut_down: AtomicU64,
    torn: AtomicU64,
    cpu_jobs: AtomicU64,
    timers: AtomicU64,
}

/// Runs `body` to its end in a world of its own.
pub fn in_world<F: Future<Output = ()>>(body: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built");
    runtime.block_on(async {
        let world = World(Arc::default());
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

    /// How long `work` took in milliseconds, and what came of it.
    pub async fn timed<T>(&self, work: impl Future<Output = T>) -> (u64, T) {
        let before = tokio::time::Instant::now();
        let value = work.await;
        (before.elapsed().as_millis() as u64, value)
    }

    /// Whoever connects there waits for ever.
    pub fn silence(&self, addr: SocketAddr) {
        self.0.silent.lock().unwrap().insert(addr);
    }

    pub fn unsilence(&self, addr: SocketAddr) {
        self.0.silent.lock().unwrap().remove(&addr);
    }

    /// How often somebody connected there, or tried.
    pub fn dials(&self, addr: SocketAddr) -> u64 {
        self.0
            .dials
            .lock()
            .unwrap()
            .get(&addr)
            .copied()
            .unwrap_or(0)
    }

    /// Streams that a node got, those it shut down, and those it dropped without that.
    pub fn streams(&self) -> (u64, u64, u64) {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (
            get(&self.0.streams),
            get(&self.0.shut_down),
            get(&self.0.torn),
        )
    }

    /// Jobs that the CPU pool was given.
    pub fn cpu_jobs(&self) -> u64 {
        self.0.cpu_jobs.load(Ordering::Relaxed)
    }

    /// Timers that nodes have set.
    pub fn timers(&self) -> u64 {
        self.0.timers.load(Ordering::Relaxed)
    }

    /// The other end of a stream that a node accepts: nothing is noted of it.
    pub async fn raw_connect(&self, addr: SocketAddr) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(WINDOW);
        let door = self.0.doors.lock().unwrap().get(&addr).cloned();
        let theirs = self.watched(theirs);
        door.expect("nobody listens").send(theirs).await.ok();
        ours
    }

    /// A peer that is no node: the streams that were dialled to it come out as they are.
    pub fn raw_listen(&self, addr: SocketAddr) -> mpsc::Receiver<Stream> {
        self.0.raw.lock().unwrap().insert(addr);
        self.open_door(addr)
    }

    fn open_door(&self, addr: SocketAddr) -> mpsc::Receiver<Stream> {
        let (knock, knocks) = mpsc::channel(4096);
        self.0.doors.lock().unwrap().insert(addr, knock);
        knocks
    }

    fn watched(&self, inner: DuplexStream) -> Stream {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        Stream {
            inner,
            watch: Some(self.clone()),
            shut_down: false,
        }
    }

    fn wrong(&self, what: String) {
        self.0.wrongs.lock().unwrap().push(what);
    }
}

/// One end of a stream; a node's end is watched.
pub struct Stream {
    inner: DuplexStream,
    watch: Option<World>,
    shut_down: bool,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(world) = self.watch.clone().filter(|_| !self.shut_down) {
            world.0.shut_down.fetch_add(1, Ordering::Relaxed);
            self.shut_down = true;
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(world) = self.watch.take().filter(|_| !self.shut_down) {
            world.0.torn.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Clock for World {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.0.timers.fetch_add(1, Ordering::Relaxed);
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
        if pool == Pool::CPU {
            self.0.cpu_jobs.fetch_add(1, Ordering::Relaxed);
        }
        let done = tokio::spawn(async move { job() });
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
            let digest = blake3::hash(&number);
            piece.copy_from_slice(&digest.as_bytes()[..piece.len()]);
        }
    }
}

impl Probe for World {}

struct Door {
    addr: SocketAddr,
    knocks: tokio::sync::Mutex<mpsc::Receiver<Stream>>,
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
        let knocks = tokio::sync::Mutex::new(self.open_door(addr));
        let door = Box::new(Door { addr, knocks }) as Box<dyn Listener>;
        Box::pin(std::future::ready(Ok(door)))
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(async move {
            *self.0.dials.lock().unwrap().entry(addr).or_default() += 1;
            if self.0.silent.lock().unwrap().contains(&addr) {
                std::future::pending::<()>().await;
            }
            let door = self.0.doors.lock().unwrap().get(&addr).cloned();
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let door = door.filter(|door| !door.is_closed()).ok_or_else(refused)?;
            let (ours, theirs) = tokio::io::duplex(WINDOW);
            let mut theirs = self.watched(theirs);
            if self.0.raw.lock().unwrap().contains(&addr) {
                theirs.watch = None;
                self.0.streams.fetch_sub(1, Ordering::Relaxed);
            }
            door.send(theirs).await.map_err(|_| refused())?;
            Ok(Box::new(self.watched(ours)) as Conn)
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
        let error = HttpError::Invalid("nobody sends requests here".into());
        Box::pin(std::future::ready(Err(error)))
    }
}

impl Runtime for World {
    fn disk(&self) -> Arc<dyn Disk> {
        panic!("connections have no files")
    }
}
