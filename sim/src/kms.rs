//! ron-kms in a simulated world: the shipped wiring on a simulated Env, with a backend that can fail.
//!
//! Keys, queue, audit log and HTTP are the service's own code. What is bent here: the key-encryption key is
//! fixed, RSA keys come from fixtures, and a use of a key takes simulated time.

pub mod backend;
pub mod calls;
pub mod oracle;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ron_core::{bus::Bus, config::ConfigErrors, db::Db, points::Points, seam::BoxFuture};
use ron_kms::{
    config::Config,
    keys::Secret,
    keystore::{KeyStore, Unlock},
    service::{Options, Service},
    topology,
};

use self::backend::SimBackend;
use crate::{
    disk::{Image, SimDisk},
    service::{ProcessContext, SimService, read_config},
    trace::StopReport,
};

pub const PORT: u16 = 7480;
pub const STORE_FILE: &str = "keys.redb";

pub struct KmsService;

impl SimService for KmsService {
    fn name(&self) -> &'static str {
        topology::NAME
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn check_config(&self, config: &toml::Table) -> Result<(), ConfigErrors> {
        sized_for_a_world(config).map(|_| ())
    }

    fn prepare(&self, disk: &SimDisk) {
        // An empty database costs a millisecond to make and is always the same.
        if let Ok(bytes) = Db::template() {
            let _ = disk.preload(STORE_FILE, &Image::from(bytes));
        }
    }

    fn points(&self) -> Points {
        ron_kms::POINTS
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(run(process))
    }
}

/// How long a process waits before it tries again to open what a disk fault keeps it from opening: what its
/// supervisor outside would do.
const REOPEN: Duration = Duration::from_millis(100);

/// A simulated second has hundreds of records, not tens of thousands: so much less room is set aside.
fn sized_for_a_world(given: &toml::Table) -> Result<Config, ConfigErrors> {
    let mut config: Config = read_config(given)?;
    if config.audit.disk_reserve_bytes == Config::default().audit.disk_reserve_bytes {
        config.audit.disk_reserve_bytes = 256 * 1024;
    }
    Ok(config)
}

async fn run(process: ProcessContext) -> StopReport {
    let env = process.env.clone();
    let config = sized_for_a_world(&process.config).expect("checked before the start");
    let config = Arc::new(config);
    let (_, parts) = topology::declare(&config);
    let allowed =
        parts.drain.after + parts.flush.after + parts.checkpoint.after + parts.close.after;
    let service = loop {
        if process.shutdown.is_triggered() {
            return StopReport {
                allowed,
                ..StopReport::default()
            };
        }
        match open(&process, &config).await {
            Ok(service) => break service,
            Err(error) => {
                env.probe("kms.cannot_start", 0, format_args!("{error}"));
                env.sleep(REOPEN).await;
            }
        }
    };
    let found = &service.found;
    env.probe("kms.opened", found.records, format_args!(""));
    env.probe(
        "kms.verify_limit",
        config.verify.cache_ttl_ms,
        format_args!(""),
    );
    if found.mismatch.is_some() {
        env.probe("kms.refuses_to_sign", found.records, format_args!(""));
    }
    if found.missing_at_most > 0 {
        env.probe("kms.restart_gap", found.missing_at_most, format_args!(""));
    }
    let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = env.listen(addr).await.expect("the port is free");
    for queue in service.queues() {
        process.inspector.show_queue(queue);
    }
    let inspector = process.inspector.clone();
    let shutdown = process.shutdown.clone();
    let ended = service
        .run(listener, shutdown, |view| inspector.show_supervisor(view))
        .await;
    env.probe(
        "kms.ended",
        ended.records,
        format_args!("{}", ended.covered),
    );
    StopReport {
        alive: 0,
        aborted: ended.report.aborted,
        allowed,
    }
}

async fn open(process: &ProcessContext, config: &Arc<Config>) -> Result<Service, String> {
    let env = &process.env;
    let unlock = Unlock::Key(Secret::copy_of(&[7; 32]));
    let store = KeyStore::open(env, unlock).await;
    let store = store.map_err(|error| error.to_string())?;
    let backend = SimBackend::new(env, store.kek(), process.chaos.clone());
    let source = config.clone();
    let options = Options {
        env: env.clone(),
        bus: Bus::with_capacity(64),
        config: config.clone(),
        config_source: Arc::new(move || source.clone()),
        store,
        backend: Arc::new(backend),
        tls: None,
        reload: None,
        token_keys: None,
    };
    Service::open(options)
        .await
        .map_err(|error| error.to_string())
}
