//! The worker pool: a small real service on which the kernel is proven.
//!
//! listener → Queue (RejectNew) → N workers → Disk. It is wired like every service of the project; it
//! lives here because nobody runs it in production.

mod api;
mod calls;
pub mod config;
pub mod conformance;
mod drills;
pub mod log;
mod oracle;
mod store;
pub mod topology;
mod worker;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ron_core::{
    bus::Bus,
    config::ConfigErrors,
    points::Points,
    queue::{Queue, RejectNew},
    readiness::Readiness,
    seam::BoxFuture,
    supervisor::{Supervisor, TaskSpec},
    telemetry::Telemetry,
    view::{QueueStats, QueueView},
};

pub use self::worker::FLOOD;
use self::{config::PoolConfig, store::Store, topology::Parts, worker::Job};
use crate::{
    calls::CallKind,
    conformance::Followed,
    oracle::OracleKind,
    service::{Condition, ProcessContext, SimService, read_config},
    trace::StopReport,
    workload::WorkloadKind,
};

pub const NAME: &str = "pool";
pub const LOG_FILE: &str = "items.log";
pub const PORT: u16 = 7000;

pub struct PoolService;

const CONDITIONS: &[Condition] = &[Condition {
    name: "serves",
    patience: Duration::from_millis(500),
    check: |q| Box::pin(async move { calls::serves(&q.clients, &q.on, q.patience).await }),
}];

impl SimService for PoolService {
    fn name(&self) -> &'static str {
        NAME
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn check_config(&self, config: &toml::Table) -> Result<(), ConfigErrors> {
        read_config::<PoolConfig>(config).map(|_| ())
    }

    fn page(&self) -> Option<(&'static str, String)> {
        Some(topology::page())
    }

    fn points(&self) -> Points {
        crate::POINTS
    }

    fn laws(&self) -> &'static [OracleKind] {
        oracle::LAWS
    }

    fn workloads(&self) -> &'static [WorkloadKind] {
        calls::WORKLOADS
    }

    fn calls(&self) -> &'static [CallKind] {
        calls::CALLS
    }

    fn conditions(&self) -> &'static [Condition] {
        CONDITIONS
    }

    fn followed(&self) -> &'static [Followed] {
        conformance::FOLLOWED
    }

    fn run(&self, process: ProcessContext) -> BoxFuture<'static, StopReport> {
        Box::pin(run(process))
    }
}

/// What handlers and workers share.
pub(crate) struct App {
    pub env: ron_core::Env,
    pub config: PoolConfig,
    pub queue: Queue<Job, RejectNew>,
    pub store: Store,
    pub readiness: Readiness,
    pub draining: AtomicBool,
    pub incarnation: u32,
}

async fn run(process: ProcessContext) -> StopReport {
    let env = process.env.clone();
    let config: PoolConfig = read_config(&process.config).expect("checked before the start");
    let bus = Bus::new();
    let readiness = Readiness::new(env.clone(), bus.clone());
    let (_, parts) = topology::declare(&config);
    let queue = Queue::new(parts.work.name, parts.work.cap, parts.work.policy);
    env.probe("spec.queue.began", parts.work.cap as u64, format_args!(""));
    let store = Store::open(&env).await;
    env.probe("pool.body_cap", config.body_bytes, format_args!(""));
    process.inspector.show_queue(Arc::new(Declared {
        queue: queue.clone(),
        cap: parts.work.cap,
    }));
    let app = Arc::new(App {
        env: env.clone(),
        config,
        queue,
        store,
        readiness: readiness.clone(),
        draining: AtomicBool::new(false),
        incarnation: process.incarnation,
    });

    let mut supervisor = Supervisor::new(env.clone(), bus.clone(), readiness);
    let telemetry = Telemetry::new(NAME, "");
    telemetry.watch_env(&env);
    telemetry.watch_queue(Arc::new(app.queue.clone()));
    telemetry.watch_tasks(Arc::new(supervisor.view()));
    telemetry.watch_bus("events", move || bus.lagged());
    let allowed = wire(&mut supervisor, &app, &telemetry, &parts);
    process.inspector.show_supervisor(supervisor.view());
    let report = supervisor.run(process.shutdown.clone()).await;
    StopReport {
        alive: Vec::new(),
        aborted: report.aborted,
        allowed,
    }
}

/// Tasks and drain phases; returns how long a drain may take in all.
fn wire(
    supervisor: &mut Supervisor,
    app: &Arc<App>,
    telemetry: &Telemetry,
    parts: &Parts,
) -> Duration {
    let config = &app.config;
    let (drain, closing) = (parts.drain.after, parts.close.after);
    let hook = app.clone();
    let work = supervisor.phase("work", drain, move || {
        // New requests are refused, queued jobs are finished.
        hook.draining.store(true, Ordering::Relaxed);
        hook.queue.close();
        hook.env.probe("spec.queue.close", 0, format_args!(""));
    });
    let hook = app.clone();
    let listening = supervisor.phase("listener", closing, move || {
        let thrown = hook.queue.clear().len() as u64;
        hook.env.probe("spec.queue.clear", thrown, format_args!(""));
    });

    let spec = TaskSpec {
        ready_while_restarting: config.ready_while_restarting,
        ..TaskSpec::new(parts.worker.name, parts.worker.kind, work)
    };
    let shared = app.clone();
    app.readiness.gate("store").open();
    supervisor.workers(config.workers, spec, move |_| worker::run(shared.clone()));
    if config.ticker {
        let shared = app.clone();
        supervisor.task(
            TaskSpec::new(parts.ticker.name, parts.ticker.kind, work),
            move |context| worker::tick(shared.clone(), context.stop),
        );
    }
    if config.drills {
        let shared = app.clone();
        supervisor.task(
            TaskSpec::new(parts.drills.name, parts.drills.kind, work),
            move |context| drills::run(shared.clone(), context.stop),
        );
    }
    if config.drills || config.drills_of_disk {
        let shared = app.clone();
        supervisor.task(
            TaskSpec::new(parts.drills_disk.name, parts.drills_disk.kind, work),
            move |context| drills::disk::run(shared.clone(), context.stop),
        );
    }
    if config.late_ms > 0 {
        let (shared, late) = (app.clone(), Duration::from_millis(config.late_ms));
        supervisor.task(
            TaskSpec::new(parts.late.name, parts.late.kind, work),
            move |context| worker::subscribe_late(shared.clone(), late, context.stop),
        );
    }
    let (shared, telemetry, options) = (app.clone(), telemetry.clone(), parts.serve.clone());
    supervisor.task(
        TaskSpec::new(parts.listener.name, parts.listener.kind, listening),
        move |context| {
            let (app, telemetry, options) = (shared.clone(), telemetry.clone(), options.clone());
            async move {
                let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
                let listener = app.env.listen(addr).await.expect("the port is free");
                let router = api::router(app.clone(), &telemetry);
                app.env
                    .clone()
                    .serve(listener, router, options, context.stop)
                    .await;
            }
        },
    );
    drain + closing
}

/// The queue as it was declared, whatever was built.
struct Declared {
    queue: Queue<Job, RejectNew>,
    cap: usize,
}

impl QueueView for Declared {
    fn stats(&self) -> QueueStats {
        QueueStats {
            cap: self.cap,
            ..self.queue.stats()
        }
    }
}
