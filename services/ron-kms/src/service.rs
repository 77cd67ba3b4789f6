//! Wiring: queues, tasks under the supervisor, drain phases. Nothing is decided here.
//!
//! Drain: new requests get 503 and the signers finish what was accepted; then the audit queue is closed and
//! written out; then a last checkpoint covers it; then the listener closes.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use axum::Router;
use ron_core::{
    admission::{Limits, Reject},
    app::{App, Serves, Start},
    auth::Mode,
    lifecycle::Escalate,
    lock::RankedMutex,
    queue::Queue,
    seam::Listener,
    shutdown::Shutdown,
    supervisor::{Report, SupervisorView, TaskSpec},
    telemetry::{Counters, Telemetry},
    view::QueueView,
};

use crate::{
    api, appender,
    attester::{self, Attester},
    auditor::{Auditor, Opening},
    backend::Backend,
    checkpointer,
    config::Config,
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
    pub start: Start<Config>,
    pub store: KeyStore,
    pub backend: Arc<dyn Backend>,
}

/// Opened and verified, not running yet.
pub struct Service {
    app: App<Config>,
    engine: Arc<Engine>,
    telemetry: Telemetry,
    store: KeyStore,
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
            start,
            store,
            backend,
        } = options;
        let refused = |error: ron_core::app::Refused| KmsError::Invalid(error.to_string());
        let (env, config) = (&start.env.clone(), &start.config.clone());
        let telemetry = Telemetry::new(NAME, "");
        let mut app = App::open(start).map_err(refused)?;
        app.authenticate(|| telemetry.clone()).map_err(refused)?;
        let readiness = &app.readiness;
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
        let ttl = Duration::from_millis(config.verify.cache_ttl_ms);
        let (_, parts) = topology::declare(config);
        let engine = Engine {
            env: env.clone(),
            config: app.config.clone(),
            backend,
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
            drain: app.drain.clone(),
            in_place: InPlace::default(),
        };
        Ok(Service {
            app,
            engine: Arc::new(engine),
            telemetry,
            store,
            found,
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
        mut self,
        listener: Box<dyn Listener>,
        shutdown: Shutdown,
        started: impl FnOnce(SupervisorView),
    ) -> Ended {
        let (engine, store) = (self.engine.clone(), self.store.clone());
        let (_, parts) = topology::declare(&self.app.config.load());
        let last_checkpoint = parts.checkpoint.after;
        self.app.views().watch(&self.telemetry, self.queues());
        self.app.begin(shutdown, started);
        self.wire(parts, listener);
        let ended = self.app.run().await;
        if ended.report.aborted == 0 {
            // A checkpointer that had died was not started again for the drain.
            let last = checkpointer::finish(&engine.auditor);
            let _ = engine.env.timeout(last_checkpoint, last).await;
        }
        let (records, covered) = engine.auditor.step(|log| (log.size(), log.covered()));
        // So that an older copy of the log is known for one. Nobody waits for a disk that hangs.
        let known = store.raise_log_size(records);
        let _ = engine.env.timeout(LAST_STORE, known).await;
        Ended {
            report: ended.report,
            records,
            covered,
            drained: ended.drained,
        }
    }

    /// Tasks and drain phases, in order.
    fn wire(&mut self, parts: Parts, listener: Box<dyn Listener>) {
        let (engine, config) = (self.engine.clone(), self.app.config.load());
        let supervisor = &mut self.app.supervisor;
        let hook = engine.clone();
        let signing = supervisor.phase("signers", parts.drain.after, move || {
            // New requests are refused, accepted ones are finished.
            hook.drain.begin();
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
            move |_| signer::run(shared.clone()),
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
        let shared = engine.clone();
        self.app.watch_config(signing, move |config, version| {
            reloaded(shared.clone(), config, version)
        });
        let site = Arc::new(Site {
            engine,
            telemetry: self.telemetry.clone(),
        });
        self.app.serve(
            &parts.listener,
            [listening, signing],
            listener,
            parts.serve,
            site,
        );
    }
}

/// What a reloaded configuration means for what is not read from it at each use; then the backend is asked again.
async fn reloaded(engine: Arc<Engine>, config: Arc<Config>, version: Option<u64>) {
    let ttl = Duration::from_millis(config.verify.cache_ttl_ms);
    engine.verify.lock().set_ttl(ttl);
    let Some(version) = version else { return };
    let up = engine.refresh().await;
    tracing::info!(version, backend_up = up, "configuration reloaded");
    engine.env.probe("kms.config", version, format_args!(""));
}

/// What is served over HTTP.
struct Site {
    engine: Arc<Engine>,
    telemetry: Telemetry,
}

impl Serves for Site {
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }

    fn limits(&self) -> Limits {
        self.engine.config.load().admission()
    }

    fn routes(&self, telemetry: &Telemetry, mode: &Mode) -> Router {
        api::router(Kms(self.engine.clone()), &self.engine.env, telemetry, mode)
    }

    fn refusals(&self, telemetry: &Telemetry) -> Counters {
        api::refused_counters(telemetry)
    }

    fn refused(&self, reject: Reject) {
        if reject == Reject::Draining {
            let env = &self.engine.env;
            env.probe("kms.draining_503", 0, format_args!(""));
        }
    }
}

/// What the store may take to learn how long the log was at the end.
const LAST_STORE: Duration = Duration::from_millis(500);
