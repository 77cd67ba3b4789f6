//! One way to be a service: what each of them would otherwise write again.
//!
//! A service brings its settings ([`AppSettings`]), its topology, drain phases, tasks and routes ([`Serves`]). [`App`]
//! holds what the kernel keeps for it from `open` to the end of `run`: readiness, supervisor, the drain, the
//! configuration in force, who may call. Its command line is `ron_io::cli`.
//!
//! Always: settings under which callers could not be told apart are an error at the start, never an open door; the
//! listener, once lost, is bound again; a reloaded configuration is seen whole or not at all.

mod bound;
mod drain;
mod live;
mod settings;
mod site;
mod work;

use std::{
    fmt,
    future::Future,
    sync::{Arc, OnceLock},
};

use self::{
    bound::Bound,
    site::{Parts, Site},
};
pub use self::{
    drain::Drain,
    live::{Commit, Live, Source},
    settings::{AppSettings, ReloadConfig, TlsConfig, caller_rules},
    site::{Plain, Serves},
    work::work,
};
use crate::{
    Env, Shutdown, SnapshotReader, SnapshotWriter,
    auth::{self, Authenticator, KeySet, Mode},
    bus::{Bus, KernelEvent, Subscriber},
    config::Broken,
    lifecycle::Escalate,
    lock::{LockDecl, RankedMutex},
    ops::Reload,
    readiness::Readiness,
    seam::Listener,
    serve::{ServeOptions, TlsAccept},
    snapshot,
    supervisor::{PhaseId, Report, Supervisor, SupervisorView, TaskContext, TaskSpec},
    telemetry::Telemetry,
    topology::{TaskDecl, Topology},
    view::QueueView,
};

/// What a service is started with.
pub struct Start<C> {
    pub env: Env,
    pub bus: Bus,
    pub config: Arc<C>,
    /// Where a newer configuration is found once the bus has told of one.
    pub source: Option<Source<C>>,
    /// What `POST /api/v1/reload` does, if operators' actions are on.
    pub reload: Option<Reload>,
    pub tls: Option<Arc<dyn TlsAccept>>,
    /// Keys of the token issuer that are known from the start (tests and simulations).
    pub token_keys: Option<KeySet>,
}

impl<C: AppSettings> Start<C> {
    /// With a configuration that stays as it is.
    pub fn new(env: Env, bus: Bus, config: Arc<C>) -> Start<C> {
        Start {
            env,
            bus,
            config,
            source: None,
            reload: None,
            tls: None,
            token_keys: None,
        }
    }

    /// With one that can be read anew.
    pub fn live(env: Env, bus: Bus, live: &Arc<Live<C>>) -> Start<C> {
        Start {
            source: Some(live.source()),
            reload: Some(live.on_request()),
            ..Start::new(env, bus, live.current())
        }
    }
}

/// The settings do not say who may call.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(|b| format!("`{}`: {}", b.key, b.reason)).collect::<Vec<_>>().join("; "))]
pub struct Refused(pub Vec<Broken>);

/// What the kernel keeps for a service, from its opening to its end.
pub struct App<C> {
    pub env: Env,
    pub readiness: Readiness,
    pub drain: Arc<Drain>,
    pub supervisor: Supervisor,
    /// The configuration in force.
    pub config: SnapshotReader<Arc<C>>,
    writer: Option<SnapshotWriter<Arc<C>>>,
    start: Start<C>,
    mode: Mode,
    authenticator: Option<Authenticator>,
    shutdown: Shutdown,
}

/// The process as its telemetry sees it; cheap to keep until somebody asks.
pub struct Views {
    env: Env,
    tasks: SupervisorView,
    bus: Bus,
}

impl Views {
    /// Shows telemetry the process, its tasks, its bus and these queues.
    pub fn watch(&self, telemetry: &Telemetry, queues: Vec<Arc<dyn QueueView>>) {
        telemetry.watch_env(&self.env);
        queues
            .into_iter()
            .for_each(|queue| telemetry.watch_queue(queue));
        telemetry.watch_tasks(Arc::new(self.tasks.clone()));
        let bus = self.bus.clone();
        telemetry.watch_bus("kernel", move || bus.lagged());
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Ended {
    pub report: Report,
    /// What callers waited for and was finished after the stop was asked for.
    pub drained: u64,
}

pub const RESTARTED: &str = "restarted with backoff, 10 times a minute; then readiness off";
pub const VITAL: &str = "restarted with backoff, 10 times a minute; then the process ends";

const CONFIG_WATCH: TaskDecl = TaskDecl {
    name: "config_watch",
    kind: "config_watch",
    count: "1 if the configuration can be reloaded",
    does: "puts a reloaded configuration in force",
    on_failure: RESTARTED,
};

/// Declares what [`App`] may start, and its lock.
pub fn declare(topology: &mut Topology) {
    auth::declare(topology);
    topology.task(CONFIG_WATCH);
    topology.lock(CONFIG_LOCK);
}

impl<C: AppSettings> App<C> {
    /// Checks who may call; nothing runs yet.
    pub fn open(start: Start<C>) -> Result<App<C>, Refused> {
        let mode = start.config.auth().to_mode().map_err(Refused)?;
        let (env, bus) = (start.env.clone(), start.bus.clone());
        let readiness = Readiness::new(env.clone(), bus.clone());
        let (writer, config) = snapshot(start.config.clone());
        Ok(App {
            supervisor: Supervisor::new(env.clone(), bus, readiness.clone()),
            env,
            readiness,
            drain: Arc::default(),
            config,
            writer: start.source.is_some().then_some(writer),
            start,
            mode,
            authenticator: None,
            shutdown: Shutdown::new(),
        })
    }

    /// For tokens and for operators there is more to keep than a mode: keys, and what an operator proves himself
    /// with. Whoever needs neither pays for neither, `telemetry` included.
    pub fn authenticate(&mut self, telemetry: impl FnOnce() -> Telemetry) -> Result<(), Refused> {
        let (auth, admin) = (self.start.config.auth(), self.start.config.admin());
        if !admin && !matches!(self.mode, Mode::Passport(_)) {
            return Ok(());
        }
        let open = Authenticator::open(auth, &telemetry(), &self.readiness).map_err(Refused)?;
        let open = match self.start.token_keys.take() {
            Some(keys) => open.with_keys(keys),
            None => open,
        };
        self.authenticator = Some(match admin {
            true => open.with_operators(auth),
            false => open,
        });
        Ok(())
    }

    /// What runs ends with `shutdown`; `started` is told the tasks' view.
    pub fn begin(&mut self, shutdown: Shutdown, started: impl FnOnce(SupervisorView)) {
        self.shutdown = shutdown;
        started(self.supervisor.view());
    }

    /// What telemetry is shown of the process.
    pub fn views(&self) -> Views {
        Views {
            env: self.env.clone(),
            tasks: self.supervisor.view(),
            bus: self.start.bus.clone(),
        }
    }

    /// Serves `service` on `listener`, which closes in the first phase; what keeps callers identified ends in the
    /// second.
    pub fn serve(
        &mut self,
        decl: &TaskDecl,
        phases: [PhaseId; 2],
        listener: Box<dyn Listener>,
        options: ServeOptions,
        service: Arc<dyn Serves>,
    ) {
        let config = &self.start.config;
        let admin = config
            .admin()
            .then(|| (self.start.reload.clone(), self.shutdown.clone()));
        let site = Site(Arc::new(Parts {
            env: self.env.clone(),
            service,
            stats: options.stats.clone(),
            mode: self.mode.clone(),
            readiness: self.readiness.clone(),
            drain: self.drain.clone(),
            admin,
            gate: OnceLock::new(),
            router: OnceLock::new(),
        }));
        if let Some(authenticator) = self.authenticator.take() {
            let _ = site.0.gate.set(authenticator.gate.clone());
            authenticator.start(&mut self.supervisor, phases[1]);
        }
        let options = Arc::new(ServeOptions {
            tls: self.start.tls.clone(),
            ..options
        });
        self.listen(decl, phases[0], listener, move |listener, context| {
            let (site, options) = (site.clone(), options.clone());
            async move {
                let env = context.env.clone();
                env.serve_with(listener, move || site.router(), options, context.stop)
                    .await;
            }
        });
    }

    /// A vital task on a listener that is bound again whenever it was lost.
    pub fn listen<F>(
        &mut self,
        decl: &TaskDecl,
        phase: PhaseId,
        listener: Box<dyn Listener>,
        accept: impl Fn(Box<dyn Listener>, TaskContext) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (bound, accept) = (Arc::new(Bound::new(listener)), Arc::new(accept));
        let spec = TaskSpec {
            escalate: Escalate::Exit,
            ..TaskSpec::new(decl.name, decl.kind, phase)
        };
        self.supervisor.task(spec, move |context| {
            let (bound, accept) = (bound.clone(), accept.clone());
            async move {
                if let Some(listener) = bound.take(&context.env).await {
                    accept(listener, context).await;
                }
            }
        });
    }

    /// Puts each reloaded configuration in force, then calls `changed` with its version.
    pub fn watch_config<F>(
        &mut self,
        phase: PhaseId,
        changed: impl Fn(Arc<C>, Option<u64>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (Some(writer), Some(source)) = (self.writer.take(), self.start.source.clone()) else {
            return;
        };
        let watch = Arc::new(ConfigWatch {
            writer: RankedMutex::new(CONFIG_LOCK, writer),
            source,
            changed,
        });
        let bus = self.start.bus.clone();
        let spec = TaskSpec::new(CONFIG_WATCH.name, CONFIG_WATCH.kind, phase);
        self.supervisor.task(spec, move |context| {
            watch.clone().run(bus.subscribe(), context)
        });
    }

    /// Until `shutdown` has fired and the drain has ended. What was only needed to start is let go.
    pub fn run(self) -> impl Future<Output = Ended> + Send {
        let running = self.supervisor.run(self.shutdown);
        let drain = self.drain;
        async move {
            let report = running.await;
            Ended {
                report,
                drained: drain.drained(),
            }
        }
    }
}

impl<C> fmt::Debug for App<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

pub const CONFIG_LOCK: LockDecl = LockDecl {
    name: "config",
    rank: 60_000,
    guards: "the writer of the configuration in force",
};

struct ConfigWatch<C, F> {
    writer: RankedMutex<SnapshotWriter<Arc<C>>>,
    source: Source<C>,
    changed: F,
}

impl<C: Send + Sync, F> ConfigWatch<C, F> {
    async fn run<G: Future<Output = ()>>(
        self: Arc<Self>,
        mut events: Subscriber,
        context: TaskContext,
    ) where
        F: Fn(Arc<C>, Option<u64>) -> G,
    {
        // What was published before this incarnation listened is in force already, or is put so now.
        let mut version = None;
        loop {
            let config = (self.source)();
            self.writer.lock().publish(config.clone());
            tokio::select! {
                biased;
                () = context.stop.wait() => return,
                () = (self.changed)(config, version) => {}
            }
            version = tokio::select! {
                biased;
                () = context.stop.wait() => return,
                newer = newer(&mut events) => match newer {
                    Some(version) => Some(version),
                    // Nobody is left who could tell.
                    None => return context.stop.wait().await,
                },
            };
        }
    }
}

async fn newer(events: &mut Subscriber) -> Option<u64> {
    loop {
        if let KernelEvent::ConfigUpdated { version } = events.recv().await? {
            return Some(version);
        }
    }
}

#[cfg(test)]
mod tests;
