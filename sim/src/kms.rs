//! ron-kms in a simulated world: the shipped wiring on a simulated Env, with a backend that can fail.
//!
//! Keys, queue, audit log and HTTP are the service's own code. What is bent here: the key-encryption key is
//! fixed, RSA keys come from fixtures, and a use of a key takes simulated time.

pub mod backend;
pub mod calls;
pub mod conformance;
mod models;
pub mod oracle;
pub mod pedant;
pub mod plain_log;
pub mod token;
mod workloads;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ron_core::{
    app::{Live, Start},
    auth::AuthMode,
    bus::Bus,
    config::{ConfigErrors, Sources},
    db::Db,
    points::Points,
    seam::BoxFuture,
    telemetry::Telemetry,
};
use ron_kms::{
    config::Config,
    keys::Secret,
    keystore::{KeyStore, Unlock},
    service::{Options, Service},
    topology,
};

use self::backend::SimBackend;
use crate::{
    calls::CallKind,
    conformance::Followed,
    disk::{Image, SimDisk},
    metrics_page,
    models::ModelKind,
    oracle::OracleKind,
    service::{Condition, ProcessContext, SimService, as_flags},
    trace::StopReport,
    workload::WorkloadKind,
};

pub const PORT: u16 = 7480;
pub const STORE_FILE: &str = "keys.redb";

pub struct KmsService;

const CONDITIONS: &[Condition] = &[Condition {
    name: "serves",
    patience: Duration::from_millis(500),
    check: |q| Box::pin(async move { calls::serves(&q.clients, &q.on, q.patience).await }),
}];

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

    fn page(&self) -> Option<(&'static str, String)> {
        Some(topology::page())
    }

    fn points(&self) -> Points {
        ron_kms::POINTS
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

    fn followed(&self) -> &'static [Followed] {
        conformance::FOLLOWED
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(run(process))
    }
}

/// How long a process waits before it tries again to open what a disk fault keeps it from opening: what its
/// supervisor outside would do.
const REOPEN: Duration = Duration::from_millis(100);

pub fn sized_for_a_world(given: &toml::Table) -> Result<Config, ConfigErrors> {
    let sources = sources(given, String::new());
    sources.load("", |_| Vec::new()).map(|loaded| loaded.config)
}

/// The scenario's settings, which hold against the operator's file.
fn sources(given: &toml::Table, file: String) -> Sources {
    let mut cli = as_flags(given);
    // A simulated second has hundreds of records, not tens of thousands: so much less room is set aside.
    if !given.contains_key(RESERVE) {
        cli.push(format!("{RESERVE}={}", 256 * 1024));
    }
    // Clients ask by the names of nodes, which are the simulated network's own.
    cli.push("http.hosts=[\"*\"]".to_owned());
    Sources {
        file: Some(("ron-kms.toml".to_owned(), file)),
        cli,
        ..Sources::default()
    }
}

const RESERVE: &str = "audit.disk_reserve_bytes";

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
    let quota = config.tenant_inflight as u64;
    env.probe(
        "kms.tenant_quota",
        quota,
        format_args!("{}", config.queue_cap),
    );
    env.probe(
        "kms.verify_limit",
        config.verify.cache_ttl_ms,
        format_args!(""),
    );
    let deadline = &config.deadline;
    let (sign, wrap) = (deadline.sign_ms, deadline.wrap_ms);
    let (unwrap, rotate) = (deadline.unwrap_ms, deadline.rotate_ms);
    env.probe(
        "kms.deadlines",
        0,
        format_args!("{sign} {wrap} {unwrap} {rotate}"),
    );
    env.probe(
        "kms.checkpoint_interval",
        config.audit.checkpoint_interval_ms,
        format_args!(""),
    );
    if config.auth.mode == AuthMode::Passport {
        let passport = &config.auth.passport;
        let (issuer, audience) = (&passport.issuer, &passport.audience);
        let rules = format_args!("{issuer} {audience}");
        env.probe("kms.token_rules", passport.leeway_secs, rules);
    }
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
    let telemetry = service.telemetry().clone();
    let ended = service
        .run(listener, shutdown, |view| inspector.show_supervisor(view))
        .await;
    env.probe(
        "kms.ended",
        ended.records,
        format_args!("{}", ended.covered),
    );
    env.probe("kms.dropped", dropped(&telemetry), format_args!(""));
    StopReport {
        alive: Vec::new(),
        aborted: ended.report.aborted,
        allowed,
    }
}

/// As an operator reads it.
fn dropped(telemetry: &Telemetry) -> u64 {
    let value = metrics_page::value(&telemetry.render(), "audit_dropped_total", &[]);
    value.expect("ron-kms counts what it drops")
}

async fn open(process: &ProcessContext, config: &Arc<Config>) -> Result<Service, String> {
    let env = &process.env;
    let unlock = Unlock::Key(Secret::copy_of(&[7; 32]));
    let store = KeyStore::open(env, unlock).await;
    let store = store.map_err(|error| error.to_string())?;
    let backend = SimBackend::new(env, store.kek(), process.chaos.clone());
    let bus = Bus::with_capacity(64);
    // The operator's file is read anew at each reload, as the binary does.
    process.settings.write("");
    let (given, settings) = (process.config.clone(), process.settings.clone());
    let live = Live::load("", &bus, move || Ok(sources(&given, settings.read())));
    let live = Arc::new(live.map_err(|errors| errors.to_string())?);
    let start = Start {
        config: config.clone(),
        ..Start::live(env.clone(), bus, &live)
    };
    Service::open(Options {
        start,
        store,
        backend: Arc::new(backend),
    })
    .await
    .map_err(|error| error.to_string())
}
