//! Wiring only: opens what the node keeps, builds its parts, runs them under the supervisor, drains in order.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use ron_core::{
    Env, Queue,
    app::{App, Start},
    bus::Bus,
    lifecycle::Escalate,
    lock::RankedMutex,
    readiness::Readiness,
    seam::{DiskLock, Listener},
    shutdown::Shutdown,
    supervisor::{Report, SupervisorView, TaskSpec},
    view::QueueView,
};

use crate::{
    answerer::Answerer,
    bootstrapper::{self, Gates},
    config::{Config, rules},
    contact::Contact,
    dht::Dht,
    error::DhtError,
    events::{Event, Events},
    explained::Courses,
    hedge::HedgeBudget,
    id::Id,
    identity::{Identity, NetworkId},
    listener,
    metrics::Metrics,
    node::{Node, PEER_STATS_LOCK, PEER_STATS_MAX},
    peer_stats::PeerStats,
    peers::Peers,
    record_keeper::{self, Keeper, KeeperSlot},
    refresher::{self, Starter},
    republisher,
    routes::{Route, Routes},
    routing::{Table, saved::SavedPeer},
    site::{self, Site},
    topology, worker,
};

/// Hedges before the first request.
const HEDGE_BURST: u32 = 4;

/// News of the kernel that a task may fall behind; small, since a node is.
const KERNEL_BUS: usize = 16;

/// What the service is made from.
pub struct Options {
    pub start: Start<Config>,
    pub identity: Identity,
    /// Where other nodes come in.
    pub listener: Box<dyn Listener>,
    /// Where the local API is served, if it is.
    pub api: Option<Box<dyn Listener>>,
}

impl Options {
    /// With a configuration that stays as it is.
    pub fn new(
        env: Env,
        config: Arc<Config>,
        identity: Identity,
        listener: Box<dyn Listener>,
        api: Option<Box<dyn Listener>>,
    ) -> Options {
        Options {
            start: Start::new(env, Bus::with_capacity(KERNEL_BUS), config),
            identity,
            listener,
            api,
        }
    }
}

/// Opened, not running yet.
pub struct Service {
    app: App<Config>,
    dht: Dht,
    keeper: Arc<KeeperSlot>,
    saved: Vec<SavedPeer>,
    listener: Box<dyn Listener>,
    api: Option<Box<dyn Listener>>,
    /// Held while it runs: the data is this process's alone.
    lock: Box<dyn DiskLock>,
    /// What the start found, for the operator.
    pub found: Found,
}

/// What the start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub records: usize,
    pub peers: usize,
    /// What was lost or cannot be used.
    pub notes: Vec<String>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Ended {
    pub report: Report,
    /// Lookups finished after the stop was asked for.
    pub drained: u64,
    pub records: u64,
    pub peers: usize,
}

impl Service {
    /// Reads the record journal and the saved table; nothing is dialled yet.
    pub async fn open(options: Options) -> Result<Box<Service>, DhtError> {
        let Options {
            start,
            identity,
            listener,
            api,
        } = options;
        let (env, config) = (start.env.clone(), start.config.clone());
        let refused = |error: ron_core::app::Refused| DhtError::Invalid(error.to_string());
        let mut app = App::open(start).map_err(refused)?;
        let locked = env.disk(|disk| disk.lock("svc-dht.lock")).await;
        let lock = locked.map_err(|_| DhtError::Canceled)?.map_err(|error| {
            let dir = &config.data_dir;
            DhtError::Storage(match error.kind() {
                std::io::ErrorKind::WouldBlock => format!("another process uses {dir}"),
                _ => format!("{dir}: {error}"),
            })
        })?;
        let me = identity.id();
        let network = NetworkId::of_name(&config.network);
        let (keeper, recovered) = Keeper::open(&env, me, rules::quotas(&config)).await?;
        let (saved, note) = refresher::load(&env, network).await;
        let mut found = Found {
            records: recovered.records,
            peers: saved.len(),
            notes: note.into_iter().collect(),
        };
        if recovered.torn > 0 || recovered.damaged > 0 {
            found.notes.push(format!(
                "the record journal had {} damaged entries and a torn end of {} bytes",
                recovered.damaged, recovered.torn
            ));
        }
        let bound = listener.local_addr().unwrap_or(config.bind);
        let addr = match config.advertise_ip {
            Some(ip) => (ip, bound.port()).into(),
            None => bound,
        };
        let contact = Contact {
            id: me,
            addr: addr.into(),
        };
        let link = rules::link(&config, network, contact.addr.port());
        let node = Arc::new(node(&app, &config, identity, network, contact, &keeper));
        let views = app.views();
        let telemetry = || site::telemetry(&node, &views);
        app.authenticate(telemetry).map_err(refused)?;
        let answer = Arc::new(Answerer(node.clone()));
        let peers = Peers::new(env.clone(), node.identity.clone(), link, answer);
        Ok(Box::new(Service {
            app,
            dht: Dht::new(node, peers),
            keeper: keeper.into_slot(),
            saved,
            listener,
            api,
            lock,
            found,
        }))
    }

    pub fn dht(&self) -> Dht {
        self.dht.clone()
    }

    pub fn config(&self) -> Arc<Config> {
        self.dht.node().config()
    }

    pub fn id(&self) -> Id {
        self.dht.node().id()
    }

    /// Of the node's values: who published them.
    pub fn public_key(&self) -> Id {
        Id(*self.dht.node().identity.public())
    }

    pub fn readiness(&self) -> Readiness {
        self.app.readiness.clone()
    }

    pub fn queues(&self) -> Vec<Arc<dyn QueueView>> {
        let node = self.dht.node();
        vec![
            Arc::new(node.work.clone()),
            Arc::new(node.routes.clone()),
            Arc::new(node.records.clone()),
        ]
    }

    /// Runs until `shutdown` fires and the drain has ended. `started` is told the tasks' view once.
    ///
    /// Boxed, so that what it was opened with is not kept for as long as it runs.
    pub async fn run(
        self: Box<Self>,
        shutdown: Shutdown,
        started: impl FnOnce(SupervisorView),
    ) -> Ended {
        let node = self.dht.node().clone();
        let (app, _lock) = self.wire(shutdown, started);
        let ended = app.run().await;
        Ended {
            report: ended.report,
            drained: ended.drained,
            records: node.record_count.load(Relaxed),
            peers: node.table.counts().peers,
        }
    }

    /// Tasks and drain phases, in order.
    fn wire(
        self,
        shutdown: Shutdown,
        started: impl FnOnce(SupervisorView),
    ) -> (App<Config>, Box<dyn DiskLock>) {
        let (mut app, dht) = (self.app, self.dht);
        app.begin(shutdown.clone(), started);
        let node = dht.node().clone();
        let config = node.config();
        let (_, parts) = topology::declare(&config);
        let supervisor = &mut app.supervisor;
        let (hook, peers) = (node.clone(), dht.peers().clone());
        let lookups = supervisor.phase("lookups", parts.drain.after, move || {
            // New requests are refused, accepted ones are finished.
            hook.drain.begin();
            peers.drain();
            hook.work.close();
            hook.events.tell(|| Event::Draining);
        });
        let hook = node.clone();
        let flush = supervisor.phase("flush", parts.flush.after, move || {
            hook.routes.close();
            hook.records.close();
        });
        let table = supervisor.phase("table", parts.flush.after, || {});
        let close = supervisor.phase("close", parts.close.after, || {});

        for peer in &self.saved {
            let route = Route::Tell(peer.update());
            node.routes.tell(&peer.contact.id, route);
        }
        let shared = dht.clone();
        supervisor.workers(
            config.workers,
            TaskSpec::new(parts.worker.name, parts.worker.kind, lookups),
            move |_| worker::run(shared.node().clone(), shared.peers().clone()),
        );
        let (shared, slot) = (node.clone(), self.keeper.clone());
        supervisor.task(
            TaskSpec {
                escalate: Escalate::Exit,
                ..TaskSpec::new(parts.record_keeper.name, parts.record_keeper.kind, flush)
            },
            move |context| record_keeper::run(shared.clone(), slot.clone(), context),
        );
        let shared = dht.clone();
        supervisor.task(
            TaskSpec::new(parts.republisher.name, parts.republisher.kind, lookups),
            move |context| republisher::run(shared.clone(), context),
        );
        let starter = Starter {
            handle: supervisor.handle(),
            spec: TaskSpec {
                long_lived: false,
                escalate: Escalate::Exit,
                ..TaskSpec::new(parts.bucket_writer.name, parts.bucket_writer.kind, flush)
            },
        };
        let shared = dht.clone();
        supervisor.task(
            TaskSpec::new(parts.refresher.name, parts.refresher.kind, table),
            move |context| refresher::run(shared.clone(), starter.clone(), context),
        );
        let gates = Gates {
            seeds: app.readiness.gate("bootstrap_seeds"),
            buckets: app.readiness.gate("buckets_filled"),
        };
        let shared = dht.clone();
        supervisor.task(
            TaskSpec {
                long_lived: false,
                ..TaskSpec::new(parts.bootstrapper.name, parts.bootstrapper.kind, lookups)
            },
            move |context| bootstrapper::run(shared.clone(), gates.clone(), context),
        );
        app.watch_config(lookups, |_, version| {
            if let Some(version) = version {
                tracing::info!(version, "configuration reloaded");
            }
            ready(())
        });
        let peers = dht.peers().clone();
        app.listen(
            &parts.listener,
            close,
            self.listener,
            move |listener, context| {
                // Other nodes. At the end every connection is shut down.
                let peers = peers.clone();
                async move {
                    listener::listen(&peers, &*listener, &context.stop).await;
                    if context.stop.is_triggered() {
                        peers.shutdown().await;
                    }
                }
            },
        );
        if let Some(api) = self.api {
            let site = Arc::new(Site {
                dht,
                views: app.views(),
                shutdown,
            });
            app.serve(&parts.http, [close, lookups], api, parts.serve, site);
        }
        (app, self.lock)
    }
}

fn node(
    app: &App<Config>,
    config: &Config,
    identity: Identity,
    network: NetworkId,
    contact: Contact,
    keeper: &Keeper,
) -> Node {
    let env = &app.env;
    let (_, parts) = topology::declare(config);
    let metrics = Arc::new(Metrics::new());
    let routes = Routes::new(
        env.clone(),
        contact.id,
        parts.route,
        &parts.bucket_starts,
        metrics.clone(),
    );
    Node {
        table: Table::new(contact.id, rules::routing(config)),
        routes,
        work: Queue::new(parts.work.name, parts.work.cap, parts.work.policy),
        records: Queue::new(parts.records.name, parts.records.cap, parts.records.policy),
        shelf: keeper.reader(),
        record_count: AtomicU64::new(0),
        record_bytes: AtomicU64::new(0),
        hedges: HedgeBudget::new(config.lookup.hedge_budget_percent, HEDGE_BURST),
        peer_stats: RankedMutex::new(PEER_STATS_LOCK, PeerStats::new(PEER_STATS_MAX)),
        metrics,
        events: Events::new(config.bus_cap),
        courses: Courses::new(config.api.explained),
        started: env.now(),
        bootstrapped: AtomicBool::new(false),
        drain: app.drain.clone(),
        lookups: AtomicU64::new(0),
        republish_lag_ms: AtomicU64::new(0),
        env: env.clone(),
        identity: Arc::new(identity),
        network,
        contact,
        settings: app.config.clone(),
    }
}
