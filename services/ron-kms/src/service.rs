//! Wiring: queues, tasks under the supervisor, drain phases. Nothing is decided here.
//!
//! Drain: new requests get 503 and the signers finish what was accepted; then the audit queue is closed and
//! written out; then a last checkpoint covers it; then the listener closes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::Router;
use ron_core::{
    Env,
    admission::{Admission, Reject},
    auth::{Authenticator, KeySet},
    bus::Bus,
    front::front,
    lifecycle::Escalate,
    lock::RankedMutex,
    ops::{self, Admin, Ops, Reload},
    queue::Queue,
    readiness::Readiness,
    seam::Listener,
    serve::{ServeOptions, TlsAccept},
    shutdown::Shutdown,
    snapshot::{SnapshotWriter, snapshot},
    supervisor::{PhaseId, Report, Supervisor, SupervisorView, TaskSpec},
    telemetry::Telemetry,
    view::QueueView,
};

use crate::{
    api, appender,
    attester::{self, Attester},
    auditor::{Auditor, Opening},
    backend::Backend,
    checkpointer,
    config::Config,
    config_watch::{CONFIG_LOCK, ConfigWatch, Source},
    engine::{Engine, Kms, OP_IDS_LOCK, VERIFY_LOCK},
    error::KmsError,
    in_place::InPlace,
    keeper,
    keystore::KeyStore,
    metrics::Metrics,
    nonces::Nonces,
    quota::TenantQuota,
    ring::KeyRing,
    signer,
    topology::{self, NAME, Parts},
    verify_cache::VerifyCache,
};

/// What the service is made from.
pub struct Options {
    pub env: Env,
    pub bus: Bus,
    pub config: Arc<Config>,
    /// Asked again whenever the bus says that the configuration changed.
    pub config_source: Source,
    pub store: KeyStore,
    pub backend: Arc<dyn Backend>,
    pub tls: Option<Arc<dyn TlsAccept>>,
    /// What `POST /api/v1/reload` does, if the operator allowed it.
    pub reload: Option<Reload>,
    /// Keys of the token issuer that are known from the start (tests and simulations).
    pub token_keys: Option<KeySet>,
}

/// Opened and verified, not running yet.
pub struct Service {
    options: Options,
    engine: Arc<Engine>,
    readiness: Readiness,
    telemetry: Telemetry,
    auth: Authenticator,
    config_writer: SnapshotWriter<Config>,
    /// What the start found, for the operator.
    pub found: Found,
}

/// What the start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub keys: usize,
    pub records: u64,
    /// How many operations of an unclean end could be missing from the log.
    pub missing_at_most: u64,
    /// Why no key is used, if none is.
    pub mismatch: Option<String>,
    /// Keys whose stored state followed the log.
    pub followed: usize,
    pub verifier_keys: Vec<String>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Ended {
    pub report: Report,
    /// Records in the log, and how many of them the last checkpoint covers.
    pub records: u64,
    pub covered: u64,
    /// Operations finished after the stop was asked for.
    pub drained: u64,
}

impl Service {
    /// Reads the store and the whole audit log; nothing listens yet.
    pub async fn open(options: Options) -> Result<Service, KmsError> {
        let Options {
            env,
            bus,
            config,
            store,
            backend,
            ..
        } = &options;
        let telemetry = Telemetry::new(NAME, "");
        let readiness = Readiness::new(env.clone(), bus.clone());
        let metrics = Metrics::new(&telemetry);
        let contents = store.load().await;
        let contents = contents.map_err(|error| KmsError::Store(error.to_string()))?;
        let recovered = Auditor::open(Opening {
            env,
            config,
            identity: store.identity(),
            metrics: metrics.clone(),
            gate: readiness.gate("checkpoint_recent"),
            fresh: contents.keys.is_empty(),
            log_size: contents.log_size,
        })
        .await?;
        let auditor = recovered.auditor;
        let nonces = Nonces::new(
            config.nonce_range,
            contents.nonces.clone(),
            recovered.nonces,
            store.clone(),
            auditor.clone(),
        );
        let (ring, followed) = KeyRing::open(
            env,
            store.clone(),
            auditor.clone(),
            contents,
            &recovered.history,
        )
        .await?;
        if recovered.mismatch.is_none() {
            // On a disk that is full already, the service still starts.
            let _ = store.raise_log_size(recovered.records).await;
        }
        let found = Found {
            keys: ring.index().len(),
            records: recovered.records,
            missing_at_most: recovered.missing.map_or(0, |missing| missing.at_most),
            mismatch: recovered.mismatch,
            followed: followed.len(),
            verifier_keys: auditor.verifier_keys()?,
        };
        let (config_writer, config_reader) = snapshot((**config).clone());
        let ttl = Duration::from_millis(config.verify.cache_ttl_ms);
        let (_, parts) = topology::declare(config);
        let engine = Engine {
            env: env.clone(),
            config: config_reader,
            backend: backend.clone(),
            backend_gate: readiness.gate("backend"),
            backend_up: AtomicBool::new(true),
            queue: Queue::new(parts.sign.name, parts.sign.cap, parts.sign.policy),
            quota: TenantQuota::new(config.tenant_inflight),
            auditor,
            ring,
            nonces,
            op_ids: RankedMutex::new(OP_IDS_LOCK, recovered.op_ids),
            verify: RankedMutex::new(VERIFY_LOCK, VerifyCache::new(ttl, env.now())),
            attester: Attester::new(store.identity(), readiness.gate("attestation"))?,
            metrics,
            draining: AtomicBool::new(false),
            in_place: InPlace::default(),
            finished: AtomicU64::new(0),
        };
        let auth = Authenticator::open(&config.auth, &telemetry, &readiness);
        let mut auth = auth.map_err(|_| KmsError::Invalid("auth.* is not valid".into()))?;
        if let Some(keys) = options.token_keys.clone() {
            auth = auth.with_keys(keys);
        }
        if config.admin {
            auth = auth.with_operators(&config.auth);
        }
        Ok(Service {
            engine: Arc::new(engine),
            readiness,
            telemetry,
            auth,
            config_writer,
            found,
            options,
        })
    }

    pub fn kms(&self) -> Kms {
        Kms(self.engine.clone())
    }

    pub fn queues(&self) -> Vec<Arc<dyn QueueView>> {
        vec![
            Arc::new(self.engine.queue.clone()),
            Arc::new(self.engine.auditor.queue.clone()),
        ]
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Runs until `shutdown` fires and the drain has ended. `started` is told the tasks' view once.
    pub async fn run(
        self,
        listener: Box<dyn Listener>,
        shutdown: Shutdown,
        started: impl FnOnce(SupervisorView),
    ) -> Ended {
        let engine = self.engine.clone();
        let (_, parts) = topology::declare(&self.options.config);
        let last_checkpoint = parts.checkpoint.after;
        let bus = self.options.bus.clone();
        let store = self.options.store.clone();
        let mut supervisor =
            Supervisor::new(engine.env.clone(), bus.clone(), self.readiness.clone());
        self.telemetry.watch_env(&engine.env);
        for queue in self.queues() {
            self.telemetry.watch_queue(queue);
        }
        self.telemetry.watch_tasks(Arc::new(supervisor.view()));
        self.telemetry.watch_bus("events", move || bus.lagged());
        started(supervisor.view());
        let before = self.wire(&mut supervisor, parts, listener, shutdown.clone());
        let report = supervisor.run(shutdown).await;
        if report.aborted == 0 {
            // A checkpointer that had died was not started again for the drain.
            let last = checkpointer::finish(&engine.auditor);
            let _ = engine.env.timeout(last_checkpoint, last).await;
        }
        let (records, covered) = engine.auditor.step(|log| (log.size(), log.covered()));
        // So that an older copy of the log is known for one. Nobody waits for a disk that hangs.
        let known = store.raise_log_size(records);
        let _ = engine.env.timeout(LAST_STORE, known).await;
        let finished = engine.finished.load(Ordering::Relaxed);
        Ended {
            report,
            records,
            covered,
            drained: finished.saturating_sub(before.load(Ordering::Relaxed)),
        }
    }

    /// Tasks and drain phases, in order.
    fn wire(
        self,
        supervisor: &mut Supervisor,
        parts: Parts,
        listener: Box<dyn Listener>,
        shutdown: Shutdown,
    ) -> Arc<AtomicU64> {
        let engine = self.engine.clone();
        let config = self.options.config.clone();
        let before = Arc::new(AtomicU64::new(0));
        let (hook, told) = (engine.clone(), before.clone());
        let signing = supervisor.phase("signers", parts.drain.after, move || {
            // New requests are refused, accepted ones are finished.
            let finished = hook.finished.load(Ordering::Relaxed);
            told.store(finished, Ordering::Relaxed);
            hook.draining.store(true, Ordering::Relaxed);
            hook.queue.close();
            hook.auditor.drain();
        });
        let hook = engine.clone();
        let flushing = supervisor.phase("audit", parts.flush.after, move || {
            drop(hook.queue.clear());
            hook.auditor.queue.close();
            hook.auditor.hurry.notify_one();
        });
        let covering = supervisor.phase("checkpoint", parts.checkpoint.after, || {});
        let listening = supervisor.phase("listener", parts.close.after, || {});

        let shared = engine.clone();
        supervisor.workers(
            config.signers,
            TaskSpec::new(parts.signer.name, parts.signer.kind, signing),
            move |context| signer::run(shared.clone(), context),
        );
        let shared = engine.auditor.clone();
        supervisor.task(
            TaskSpec {
                escalate: Escalate::Exit,
                ..TaskSpec::new(parts.appender.name, parts.appender.kind, flushing)
            },
            move |context| appender::run(shared.clone(), context),
        );
        let shared = engine.auditor.clone();
        let tick = Duration::from_millis(config.audit.checkpoint_interval_ms);
        let tick = (tick / 4).max(Duration::from_millis(5));
        supervisor.task(
            TaskSpec::new(parts.checkpointer.name, parts.checkpointer.kind, covering),
            move |context| checkpointer::run(shared.clone(), tick, context),
        );
        let shared = engine.clone();
        let interval = Duration::from_millis(config.attest_interval_ms);
        supervisor.task(
            TaskSpec::new(parts.attester.name, parts.attester.kind, signing),
            move |context| attester::run(shared.clone(), interval, context),
        );
        let shared = engine.clone();
        let pace = Duration::from_millis(config.verify.refresh_ms);
        supervisor.task(
            TaskSpec::new(parts.keeper.name, parts.keeper.kind, signing),
            move |context| keeper::run(shared.clone(), pace, context),
        );
        let router = self.router(shutdown);
        self.auth.start(supervisor, signing);
        let watch = Arc::new(ConfigWatch {
            engine: engine.clone(),
            writer: RankedMutex::new(CONFIG_LOCK, self.config_writer),
            source: self.options.config_source.clone(),
        });
        let bus = self.options.bus.clone();
        supervisor.task(
            TaskSpec::new(parts.config_watch.name, parts.config_watch.kind, signing),
            move |context| watch.clone().run(bus.subscribe(), context),
        );
        let options = ServeOptions {
            tls: self.options.tls.clone(),
            ..parts.serve.clone()
        };
        listen(
            supervisor, &parts, listening, engine, listener, router, options,
        );
        before
    }

    fn router(&self, shutdown: Shutdown) -> Router {
        let engine = &self.engine;
        let draining = {
            let engine = engine.clone();
            move || engine.draining.load(Ordering::Relaxed)
        };
        let told = engine.env.clone();
        let limits = self.options.config.admission();
        let admission = Admission::new(&engine.env, &self.telemetry, limits)
            .draining(draining.clone())
            .auth(self.auth.gate.clone())
            .on_reject(move |reject| {
                if reject == Reject::Draining {
                    told.probe("kms.draining_503", 0, format_args!(""));
                }
            });
        let admin = self.options.config.admin.then(|| Admin {
            gate: self.auth.gate.clone(),
            reload: self.options.reload.clone(),
            shutdown: Some(Arc::new(move || {
                shutdown.trigger();
            })),
        });
        let readiness = self.readiness.clone();
        let ops = Ops::new(
            &engine.env,
            &self.telemetry,
            env!("CARGO_PKG_VERSION"),
            move || readiness.status(),
            draining,
            admin,
        );
        let api = api::router(self.kms(), &engine.env, &self.telemetry);
        front(&engine.env, api, &Arc::new(admission), ops::router(ops))
    }
}

/// What the store may take to learn how long the log was at the end.
const LAST_STORE: Duration = Duration::from_millis(500);

/// The first incarnation takes the listener that was bound before the start; a later one binds again.
fn listen(
    supervisor: &mut Supervisor,
    parts: &Parts,
    phase: PhaseId,
    engine: Arc<Engine>,
    listener: Box<dyn Listener>,
    router: Router,
    options: ServeOptions,
) {
    let addr = listener.local_addr();
    let first = Arc::new(std::sync::Mutex::new(Some(listener)));
    supervisor.task(
        TaskSpec {
            escalate: Escalate::Exit,
            ..TaskSpec::new(parts.listener.name, parts.listener.kind, phase)
        },
        move |context| {
            let (engine, router, options) = (engine.clone(), router.clone(), options.clone());
            let bound = first
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take();
            let addr = addr.as_ref().ok().copied();
            async move {
                let env = engine.env.clone();
                let listener = match (bound, addr) {
                    (Some(listener), _) => listener,
                    (None, Some(addr)) => match env.listen(addr).await {
                        Ok(listener) => listener,
                        Err(error) => {
                            tracing::error!(%error, %addr, "cannot listen again");
                            return;
                        }
                    },
                    (None, None) => return,
                };
                env.serve(listener, router, options, context.stop).await;
            }
        },
    );
}
