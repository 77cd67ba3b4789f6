//! A world for services: Tokio's paused clock, connections and files in memory, machines with addresses of their own, a
//! network that can swallow what is sent, disks that can stall or do as they are told.
//!
//! No wall time passes: the clock moves only when everybody waits, and then to the next timer. Whoever
//! waits with a ranked lock in hand, or touches a file outside of the disk pool, is noted.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
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
    outbound::Egress,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};
use tokio::{
    io::DuplexStream,
    sync::{mpsc, watch},
};

use crate::disk::ToldDisk;

/// Where a machine is that has no other.
pub const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What the files of one machine may hold together, unless it is said otherwise.
const DISK_BYTES: u64 = 64 << 20;

/// What all machines share.
#[derive(Clone)]
pub struct World(Arc<Shared>);

struct Shared {
    started: tokio::time::Instant,
    doors: Mutex<BTreeMap<SocketAddr, mpsc::Sender<(DuplexStream, SocketAddr)>>>,
    /// Whoever connects there hears nothing.
    silent: Mutex<BTreeSet<IpAddr>>,
    wrongs: Mutex<Vec<String>>,
    told: Mutex<Vec<Told>>,
    fills: AtomicU64,
    /// Added to the wall clock of all machines.
    wall_ahead_ms: AtomicU64,
}

/// What a node told its observer.
#[derive(Clone, Debug)]
pub struct Told {
    pub ip: IpAddr,
    pub event: &'static str,
    pub id: u64,
    pub detail: String,
}

/// One computer: an address, a disk, and all tasks that run on it.
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

struct Inner {
    world: World,
    ip: IpAddr,
    disk: ToldDisk,
    stalled: watch::Sender<bool>,
    /// Jobs by the name of their pool.
    jobs: Mutex<BTreeMap<&'static str, u64>>,
    tasks: Mutex<Vec<tokio::task::AbortHandle>>,
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
        let world = World(Arc::new(Shared {
            started: tokio::time::Instant::now(),
            doors: Mutex::default(),
            silent: Mutex::default(),
            wrongs: Mutex::default(),
            told: Mutex::default(),
            fills: AtomicU64::new(1),
            wall_ahead_ms: AtomicU64::new(0),
        }));
        // The paused clock jumps there at once when nothing else can move: a hang is a failure, not a wait.
        let limit = Duration::from_secs(30 * 24 * 3600);
        let ended = tokio::time::timeout(limit, body(world.clone())).await;
        ended.expect("the test's world hangs");
        assert_eq!(*world.0.wrongs.lock().unwrap(), Vec::<String>::new());
    });
}

impl World {
    pub fn machine(&self, ip: impl Into<IpAddr>) -> Machine {
        self.machine_with(ip, DISK_BYTES)
    }

    pub fn machine_with(&self, ip: impl Into<IpAddr>, disk_bytes: u64) -> Machine {
        Machine(Arc::new(Inner {
            world: self.clone(),
            ip: ip.into(),
            disk: ToldDisk::new(disk_bytes),
            stalled: watch::Sender::new(false),
            jobs: Mutex::default(),
            tasks: Mutex::default(),
        }))
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

    /// New connections to these machines hang, as to a host that is gone.
    pub fn silence(&self, ip: IpAddr, silent: bool) {
        let mut all = self.0.silent.lock().unwrap();
        match silent {
            true => all.insert(ip),
            false => all.remove(&ip),
        };
    }

    /// All wall clocks jump ahead; timers do not.
    pub fn jump_wall(&self, ms: u64) {
        self.0.wall_ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    pub fn told(&self, event: &str) -> Vec<Told> {
        let told = self.0.told.lock().unwrap();
        told.iter().filter(|t| t.event == event).cloned().collect()
    }

    fn wrong(&self, what: String) {
        self.0.wrongs.lock().unwrap().push(what);
    }
}

impl Machine {
    pub fn env(&self) -> Env {
        Env::new(self.clone())
    }

    pub fn world(&self) -> &World {
        &self.0.world
    }

    pub fn ip(&self) -> IpAddr {
        self.0.ip
    }

    pub async fn pass(&self, ms: u64) {
        self.0.world.pass(ms).await;
    }

    pub async fn timed<T>(&self, work: impl Future<Output = T>) -> (u64, T) {
        self.0.world.timed(work).await
    }

    /// File operations wait until the disk is let go.
    pub fn stall_disk(&self, stalled: bool) {
        self.0.stalled.send_replace(stalled);
    }

    pub fn disk(&self) -> &ToldDisk {
        &self.0.disk
    }

    pub fn jobs(&self, pool: &str) -> u64 {
        self.0.jobs.lock().unwrap().get(pool).copied().unwrap_or(0)
    }

    /// Everything that runs here ends where it is; the disk stays.
    pub fn kill(&self) {
        for task in self.0.tasks.lock().unwrap().drain(..) {
            task.abort();
        }
        let ip = self.0.ip;
        let mut doors = self.0.world.0.doors.lock().unwrap();
        doors.retain(|addr, _| addr.ip() != ip);
    }

    /// What is on its disk, for another life of it.
    pub fn again(&self) -> Machine {
        Machine(Arc::new(Inner {
            world: self.0.world.clone(),
            ip: self.0.ip,
            disk: self.0.disk.clone(),
            stalled: watch::Sender::new(false),
            jobs: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }

    fn shared(&self) -> &Shared {
        &self.0.world.0
    }
}

impl Clock for Machine {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        let base = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let ahead = self.shared().wall_ahead_ms.load(Ordering::Relaxed);
        base + self.shared().started.elapsed() + Duration::from_millis(ahead)
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

impl Tasks for Machine {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        let world = self.0.world.clone();
        let task = tokio::spawn(Watched { world, name, task });
        self.0.tasks.lock().unwrap().push(task.abort_handle());
        Box::new(Handle(task.abort_handle()))
    }

    fn offload(&self, pool: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        if holds_any() {
            let what = format!("a lock is held while {} works", pool.name);
            self.0.world.wrong(what);
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

impl Entropy for Machine {
    /// Always the same sequence, in which nothing repeats.
    fn fill(&self, buf: &mut [u8]) {
        for piece in buf.chunks_mut(32) {
            let number = self.shared().fills.fetch_add(1, Ordering::Relaxed);
            let digest = blake3::hash(&number.to_be_bytes());
            piece.copy_from_slice(&digest.as_bytes()[..piece.len()]);
        }
    }
}

impl Probe for Machine {
    fn probe(&self, event: &'static str, id: u64, detail: fmt::Arguments<'_>) {
        self.shared().told.lock().unwrap().push(Told {
            ip: self.0.ip,
            event,
            id,
            detail: detail.to_string(),
        });
    }
}

struct Door {
    addr: SocketAddr,
    knocks: tokio::sync::Mutex<mpsc::Receiver<(DuplexStream, SocketAddr)>>,
}

impl Listener for Door {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Conn, SocketAddr)>> {
        Box::pin(async move {
            match self.knocks.lock().await.recv().await {
                Some((conn, from)) => Ok((Box::new(conn) as Conn, from)),
                None => std::future::pending().await,
            }
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl Net for Machine {
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        let (knock, knocks) = mpsc::channel(4096);
        self.shared().doors.lock().unwrap().insert(addr, knock);
        let knocks = tokio::sync::Mutex::new(knocks);
        Box::pin(std::future::ready(Ok(
            Box::new(Door { addr, knocks }) as Box<dyn Listener>
        )))
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        Box::pin(async move {
            if addr.ip() != self.0.ip {
                // A millisecond there, so that time passes.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if self.shared().silent.lock().unwrap().contains(&addr.ip()) {
                return std::future::pending().await;
            }
            let door = self.shared().doors.lock().unwrap().get(&addr).cloned();
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let door = door.ok_or_else(refused)?;
            let from = SocketAddr::new(self.0.ip, 40_000);
            door.send((theirs, from)).await.map_err(|_| refused())?;
            Ok(Box::new(ours) as Conn)
        })
    }

    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let ip = host.parse::<IpAddr>().map_err(io::Error::other);
        Box::pin(std::future::ready(
            ip.map(|ip| vec![SocketAddr::new(ip, port)]),
        ))
    }
}

impl Http for Machine {
    fn request(
        &self,
        _: http::Request<Body>,
        _: Egress,
        _: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        let error = HttpError::Invalid("the service sends no requests".into());
        Box::pin(std::future::ready(Err(error)))
    }
}

impl Runtime for Machine {
    fn disk(&self) -> Arc<dyn Disk> {
        if IN_POOL.get() != Some(Pool::DISK.name) {
            let what = "a file was touched outside of the disk pool";
            self.0.world.wrong(what.into());
        }
        Arc::new(self.0.disk.clone())
    }
}
