//! svc-dht in a simulated world: the shipped wiring on a simulated Env.
//!
//! Table, lookups, records, connections and HTTP are the service's own code, as its binary puts them together. The
//! node's key lies on the simulated disk: whoever restarts is who it was.

pub mod adversary;
pub mod calls;
mod models;
pub mod oracle;
mod workloads;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ron_core::{
    Env,
    config::ConfigErrors,
    durable,
    points::Points,
    seam::{BoxFuture, Disk, Open},
};
use svc_dht::{
    config::Config,
    identity::Identity,
    service::{Options, Service},
    topology,
};

use crate::{
    calls::CallKind,
    models::ModelKind,
    oracle::OracleKind,
    service::{Condition, ProcessContext, SimService, read_config},
    trace::StopReport,
    workload::WorkloadKind,
};

/// Of the local API.
pub const PORT: u16 = 7491;
/// Where other nodes come in; what seeds are named with.
pub const PEER_PORT: u16 = 7490;

/// Where the node's key lies: 32 bytes.
pub const IDENTITY: &str = "identity.key";

pub struct DhtService;

const CONDITIONS: &[Condition] = &[
    Condition {
        name: "serves",
        patience: Duration::from_millis(500),
        check: |q| Box::pin(async move { calls::serves(&q.clients, &q.on, q.patience).await }),
    },
    Condition {
        name: "finds",
        // A lookup may have to go around the dead.
        patience: Duration::from_secs(5),
        check: |q| {
            Box::pin(async move { calls::finds(&q.clients, &q.on, q.share, q.patience).await })
        },
    },
];

impl SimService for DhtService {
    fn name(&self) -> &'static str {
        topology::NAME
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn check_config(&self, config: &toml::Table) -> Result<(), ConfigErrors> {
        read_config::<Config>(config).map(|_| ())
    }

    fn page(&self) -> Option<(&'static str, String)> {
        Some(topology::page())
    }

    fn points(&self) -> Points {
        svc_dht::POINTS
    }

    fn laws(&self) -> &'static [OracleKind] {
        oracle::LAWS
    }

    fn workloads(&self) -> &'static [WorkloadKind] {
        workloads::WORKLOADS
    }

    fn calls(&self) -> &'static [CallKind] {
        calls::CALLS
    }

    fn conditions(&self) -> &'static [Condition] {
        CONDITIONS
    }

    fn models(&self) -> &'static [ModelKind] {
        models::MODELS
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(async move {
            let mut config: Config =
                read_config(&process.config).expect("checked before the start");
            // Clients ask by the names of nodes, which are the simulated network's own.
            config.http.hosts = vec!["*".to_owned()];
            run(process, Arc::new(config), |_| {}).await
        })
    }
}

/// How long a process waits before it tries again to open what a disk fault keeps it from opening: what its
/// supervisor outside would do.
const REOPEN: Duration = Duration::from_millis(100);

/// One process of a node, whole; `opened` is shown the service before it runs.
pub async fn run(
    process: ProcessContext,
    config: Arc<Config>,
    opened: impl FnOnce(&Service),
) -> StopReport {
    let env = process.env.clone();
    let allowed = {
        let (_, parts) = topology::declare(&config);
        // The table is saved in a phase of its own, as long as the flush.
        parts.drain.after + 2 * parts.flush.after + parts.close.after
    };
    let service = loop {
        if process.shutdown.is_triggered() {
            return StopReport {
                allowed,
                ..StopReport::default()
            };
        }
        // Boxed: what opening needs is not kept for as long as the service runs.
        match Box::pin(open(&env, &config)).await {
            Ok(service) => break service,
            Err(error) => {
                env.probe("dht.cannot_start", 0, format_args!("{error}"));
                env.sleep(REOPEN).await;
            }
        }
    };
    tell_opened(&env, &service);
    opened(&service);
    for queue in service.queues() {
        process.inspector.show_queue(queue);
    }
    let inspector = process.inspector.clone();
    let shutdown = process.shutdown.clone();
    let ended = service
        .run(shutdown, |view| inspector.show_supervisor(view))
        .await;
    env.probe("dht.ended", ended.records, format_args!("{}", ended.peers));
    StopReport {
        alive: Vec::new(),
        aborted: ended.report.aborted,
        allowed,
    }
}

/// Who begins here and by which rules it plays; see [`oracle::Opened`].
fn tell_opened(env: &Env, service: &Service) {
    let (node, config) = (service.dht().node().clone(), service.config());
    let (lookup, routing) = (&config.lookup, &config.routing);
    env.probe(
        "dht.opened",
        node.id().short(),
        format_args!(
            "{} {} {} {} {} {} {} {} {} {}",
            node.id(),
            node.contact.addr,
            config.network,
            lookup.k,
            lookup.hop_budget,
            lookup.beta,
            lookup.hedge_budget_percent,
            routing.diversity_bucket,
            routing.diversity_table,
            config.records.clock_skew_ms,
        ),
    );
    let found = &service.found;
    env.probe(
        "dht.found_at_start",
        found.peers as u64,
        format_args!("{} records", found.records),
    );
}

async fn open(env: &Env, config: &Arc<Config>) -> Result<Box<Service>, String> {
    let seed = identity(env).await.map_err(|error| error.to_string())?;
    let listen = async |port| {
        let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        env.listen(addr).await.map_err(|error| error.to_string())
    };
    let listener = listen(PEER_PORT).await?;
    let api = match config.api.enabled {
        true => Some(listen(PORT).await?),
        false => None,
    };
    let identity = Identity::from_seed(&seed);
    let options = Options::new(env.clone(), config.clone(), identity, listener, api);
    Service::open(options)
        .await
        .map_err(|error| error.to_string())
}

/// The key of this node, made at its first start.
pub(crate) async fn identity(env: &Env) -> io::Result<[u8; 32]> {
    let mut fresh = [0; 32];
    env.fill_random(&mut fresh);
    let read = env.disk(move |disk| read_or_make(disk, fresh)).await;
    read.map_err(io::Error::other)?
}

fn read_or_make(disk: &Arc<dyn Disk>, fresh: [u8; 32]) -> io::Result<[u8; 32]> {
    match disk.open(IDENTITY, Open::Existing) {
        Ok(file) => {
            let mut seed = [0; 32];
            let mut at = 0;
            while at < seed.len() {
                match file.read_at(at as u64, &mut seed[at..])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => at += n,
                }
            }
            Ok(seed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            durable::replace(&**disk, IDENTITY, &fresh)?;
            Ok(fresh)
        }
        Err(error) => Err(error),
    }
}
