//! The worker pool: a small real service on which the kernel is proven.
//!
//! listener → Queue (RejectNew) → N workers → Disk. It is wired like every service of the project; it
//! lives here because nobody runs it in production. `plant` makes it misbehave in one named way, so
//! that each oracle can be seen to notice.

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
    backoff::Backoff,
    bus::Bus,
    config::ConfigErrors,
    lifecycle::Restart,
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
    pub plant: Option<String>,
}

impl App {
    pub fn planted(&self, bug: &str) -> bool {
        self.plant.as_deref() == Some(bug)
    }
}

async fn run(process: ProcessContext) -> StopReport {
    let env = process.env.clone();
    let config: PoolConfig = read_config(&process.config).expect("checked before the start");
    let bus = Bus::new();
    let readiness = Readiness::new(env.clone(), bus.clone());
    let (_, parts) = topology::declare(&config);
    let cap = parts.work.cap + usize::from(process.planted("cap_off_by_one"));
    let queue = Queue::new(parts.work.name, cap, parts.work.policy);
    env.probe("spec.queue.began", parts.work.cap as u64, format_args!(""));
    let store = Store::open(&env).await;
    env.probe("pool.body_cap", config.body_bytes, format_args!(""));
    process.inspector.show_queue(Arc::new(Declared {
        queue: queue.clone(),
        cap: parts.work.cap,
        miscounts: process.planted("miscount"),
    }));
    let app = Arc::new(App {
        env: env.clone(),
        config,
        queue,
        store,
        readiness: readiness.clone(),
        draining: AtomicBool::new(false),
        incarnation: process.incarnation,
        plant: process.plant.clone(),
    });

    let mut supervisor = Supervisor::new(env.clone(), bus.clone(), readiness);
    let telemetry = Telemetry::new(NAME, "");
    telemetry.watch_env(&env);
    telemetry.watch_queue(Arc::new(app.queue.clone()));
    telemetry.watch_tasks(Arc::new(supervisor.view()));
    telemetry.watch_bus("events", move || bus.lagged());
    let allowed = wire(&mut supervisor, &app, &telemetry, &parts);
    process.inspector.show_supervisor(supervisor.view());
    if process.planted("leak_task") {
        drop(env.spawn("leaked", std::future::pending::<()>()));
    }
    let report = supervisor.run(process.shutdown.clone()).await;
    let aborted = if process.planted("uncounted_abort") {
        0
    } else {
        report.aborted
    };
    StopReport {
        alive: Vec::new(),
        aborted,
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
    let honest = if app.planted("ignore_drain_deadline") {
        drain * 20
    } else {
        drain
    };
    let hook = app.clone();
    let work = supervisor.phase("work", honest, move || {
        // New requests are refused, queued jobs are finished.
        hook.draining.store(true, Ordering::Relaxed);
        hook.queue.close();
        hook.env.probe("spec.queue.close", 0, format_args!(""));
        if hook.planted("starts_while_draining") {
            hook.env.probe("spec.lifecycle.start", 0, format_args!("1"));
        }
    });
    let hook = app.clone();
    let listening = supervisor.phase("listener", closing, move || {
        let thrown = hook.queue.clear().len() as u64;
        hook.env.probe("spec.queue.clear", thrown, format_args!(""));
    });

    let mut spec = TaskSpec {
        ready_while_restarting: (config.ready_while_restarting && !app.planted("unready_on_panic"))
            || app.planted("ready_while_down"),
        ..TaskSpec::new(parts.worker.name, parts.worker.kind, work)
    };
    if app.planted("no_restart_budget") {
        let backoff = Backoff::plus(Duration::from_millis(1), Duration::from_millis(1));
        spec.restart = Restart {
            backoff,
            max_restarts: u32::MAX,
            ..spec.restart
        };
    }
    let shared = app.clone();
    let gate = app.readiness.gate("store");
    gate.open();
    supervisor.workers(config.workers, spec, move |context| {
        if context.incarnation > 0 && shared.planted("gate_stuck") {
            gate.close("stuck");
        }
        worker::run(shared.clone())
    });
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
    miscounts: bool,
}

impl QueueView for Declared {
    fn stats(&self) -> QueueStats {
        let stats = self.queue.stats();
        let refused = if self.miscounts {
            stats.refused / 2
        } else {
            stats.refused
        };
        QueueStats {
            cap: self.cap,
            refused,
            ..stats
        }
    }
}
