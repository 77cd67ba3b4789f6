//! The seam in simulation: what one process of one simulated node sees of its world.
//!
//! Everything here belongs to one incarnation. When the node dies, this stays behind in whatever still
//! holds it, and all it answers is errors.

use std::{
    fmt, io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use axum::body::Body;
use rand_core::Rng;
use ron_core::{
    outbound::Egress,
    seam::{
        Abort, BoxFuture, Clock, Conn, Disk, Entropy, Http, HttpError, Listener, Net, Pool, Probe,
        Runtime, Tasks,
    },
};
use tokio::sync::oneshot;

use crate::{
    chaos::Chaos,
    clock::NodeClock,
    disk::{self, Death, SimDisk},
    executor::{AbortTask, Crew},
    felt::Felt,
    http_client::HttpClient,
    net::{Incarnation, Network, NodeId},
    offload::OffloadPools,
    seed::SimRng,
    service::SettingsFile,
    timer,
};

/// Takes a node's probes.
pub type Observer = Arc<dyn Fn(NodeId, &'static str, u64, fmt::Arguments<'_>) + Send + Sync>;

/// What the world lends to each incarnation of a node.
#[derive(Clone)]
pub struct NodeParts {
    pub id: NodeId,
    pub clock: Arc<NodeClock>,
    pub disk: SimDisk,
    pub chaos: Arc<Chaos>,
    pub settings: Arc<SettingsFile>,
    pub net: Network,
    /// The faults that took effect on this node.
    pub felt: Arc<Felt>,
    /// Told of every probe.
    pub observer: Observer,
    /// Told when the disk decided that the node dies here.
    pub on_disk_crash: OnDiskCrash,
}

pub type OnDiskCrash = Arc<dyn Fn(NodeId, Incarnation, Death) + Send + Sync>;

#[derive(Clone)]
pub struct SimRuntime {
    process: Arc<Process>,
}

pub struct Process {
    pub parts: NodeParts,
    pub incarnation: Incarnation,
    crew: Arc<Crew>,
    entropy: Mutex<SimRng>,
    disk: Arc<dyn Disk>,
    http: HttpClient,
    pools: OffloadPools,
}

impl SimRuntime {
    pub fn new(
        parts: NodeParts,
        incarnation: Incarnation,
        crew: Arc<Crew>,
        entropy: SimRng,
    ) -> Self {
        let disk = parts.disk.mount();
        let process = Process {
            parts,
            incarnation,
            crew,
            entropy: Mutex::new(entropy),
            disk,
            http: HttpClient::default(),
            pools: OffloadPools::default(),
        };
        SimRuntime {
            process: Arc::new(process),
        }
    }

    /// The process has ended: connections that wait for a next request are the runtime's own and go with it. One with
    /// a request under way was left behind by the service.
    pub fn close_idle(&self) {
        self.process.http.close_idle();
    }
}

impl Clock for SimRuntime {
    fn now(&self) -> Instant {
        self.process.parts.clock.now()
    }

    fn wall(&self) -> SystemTime {
        self.process.parts.clock.wall()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let clock = self.process.parts.clock.clone();
        Box::pin(async move {
            // Again if the clock was slowed meanwhile: a sleep never ends early on its own clock.
            while clock.now() < at {
                timer::sleep_until(clock.world_instant(at)).await;
            }
        })
    }
}

impl Net for SimRuntime {
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        let Process {
            parts, incarnation, ..
        } = &*self.process;
        Box::pin(async move { parts.net.listen(parts.id, *incarnation, addr) })
    }

    fn connect(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Conn>> {
        let Process {
            parts, incarnation, ..
        } = &*self.process;
        Box::pin(parts.net.connect(parts.id, *incarnation, addr))
    }

    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let found = self.process.parts.net.resolve(host);
        Box::pin(async move {
            if found.is_empty() {
                let unknown = format!("no host named {host}");
                return Err(io::Error::new(io::ErrorKind::NotFound, unknown));
            }
            Ok(found.into_iter().map(|ip| (ip, port).into()).collect())
        })
    }
}

impl Http for SimRuntime {
    fn request(
        &self,
        request: http::Request<Body>,
        egress: Egress,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<http::Response<Body>, HttpError>> {
        let client = &self.process.http;
        Box::pin(client.request(self, request, egress, deadline))
    }
}

impl Tasks for SimRuntime {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        Box::new(AbortTask(self.process.crew.spawn_live(name, task)))
    }

    fn offload(&self, pool: Pool, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let (done, finished) = oneshot::channel::<()>();
        let process = self.process.clone();
        let ticket = process.pools.queue(pool);
        let job = async move {
            ticket.turn().await;
            process.run_offloaded(pool, job).await;
            drop(ticket);
            let _ = done.send(());
        };
        self.process.crew.spawn("offload", Box::pin(job));
        // An incarnation that died in the middle never answers, as a dead process would not.
        Box::pin(async move {
            if finished.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

impl Process {
    async fn run_offloaded(&self, pool: Pool, job: Box<dyn FnOnce() + Send>) {
        let on_disk = pool == Pool::DISK;
        if on_disk {
            self.parts.chaos.disk_stall_over().await;
        }
        let guard = on_disk.then(disk::enter_offload);
        // A panicking job drops its result sender: its caller sees that it is lost.
        let _ = catch_unwind(AssertUnwindSafe(job));
        drop(guard);
        if let Some(how) = self.parts.disk.crashed().filter(|_| on_disk) {
            (self.parts.on_disk_crash)(self.parts.id, self.incarnation, how);
            return std::future::pending().await;
        }
        let cost = if on_disk {
            self.parts.disk.take_accrued()
        } else {
            CPU_JOB
        };
        timer::sleep(cost * self.parts.chaos.slowness()).await;
    }
}

/// What a closure on a CPU pool costs; its real running time must not matter.
const CPU_JOB: Duration = Duration::from_micros(20);

impl Entropy for SimRuntime {
    fn fill(&self, buf: &mut [u8]) {
        self.process.entropy.lock().unwrap().fill_bytes(buf);
    }
}

impl Probe for SimRuntime {
    fn probe(&self, event: &'static str, id: u64, detail: fmt::Arguments<'_>) {
        let Process {
            parts, incarnation, ..
        } = &*self.process;
        // A dead process tells nothing, though its futures may still be falling apart.
        if parts.net.is_up(parts.id, *incarnation) {
            (parts.observer)(parts.id, event, id, detail);
        }
    }
}

impl Runtime for SimRuntime {
    fn disk(&self) -> Arc<dyn Disk> {
        self.process.disk.clone()
    }
}
