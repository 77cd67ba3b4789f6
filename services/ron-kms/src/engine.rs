//! The engine: the one handle through which the API reaches keys, queue and audit log.
//!
//! What uses or changes a key goes through the tenant's quota and the one queue to the signer pool; what
//! only reads is answered here, from snapshots.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use ron_core::{
    Env,
    api::ApiError,
    app::Drain,
    backoff::Backoff,
    lock::{LockDecl, RankedMutex},
    queue::{Queue, Refusal, Refused, RejectNew},
    readiness::Gate,
    snapshot::SnapshotReader,
};
use tokio::sync::oneshot;

use crate::{
    ask::{Ask, Caller, KeyRef, OpIdAsk, Reply, VerifyAsk, VerifyReply},
    attester::Attester,
    audit::{record::OpId, tiles::Tile},
    auditor::Auditor,
    backend::Backend,
    config::Config,
    error::KmsError,
    in_place::{InPlace, Place},
    index::{Held, KeyIndex},
    keys::{Kid, key::Policy},
    metrics::Metrics,
    nonces::Nonces,
    op_ids::{self, Begin, OpIds},
    quota::{Permit, TenantQuota},
    replay,
    ring::KeyRing,
    signer,
    verify_cache::{Freshness, VerifyCache},
};

pub use crate::attester::Attestation;

pub const OP_IDS_LOCK: LockDecl = LockDecl {
    name: "op_ids",
    rank: 4,
    guards: "results kept for callers who repeat an operation id",
};
pub const VERIFY_LOCK: LockDecl = LockDecl {
    name: "verify_cache",
    rank: 6,
    guards: "when the key index was refreshed",
};

/// The most messages in one batch.
pub const MAX_BATCH: usize = crate::audit::record::MAX_DIGESTS;

/// A handle; clones share one engine.
#[derive(Clone)]
pub struct Kms(pub(crate) Arc<Engine>);

/// What the signer pool, the keeper and the API share.
pub(crate) struct Engine {
    pub env: Env,
    pub config: SnapshotReader<Arc<Config>>,
    pub backend: Arc<dyn Backend>,
    pub backend_gate: Gate,
    pub backend_up: AtomicBool,
    pub queue: Queue<Job, RejectNew>,
    pub quota: TenantQuota,
    pub auditor: Arc<Auditor>,
    pub ring: KeyRing,
    pub nonces: Nonces,
    pub op_ids: RankedMutex<OpIds>,
    pub verify: RankedMutex<VerifyCache>,
    pub attester: Attester,
    pub metrics: Metrics,
    /// Counts operations that were brought to an end, by signers or in place.
    pub drain: Arc<Drain>,
    pub in_place: InPlace,
}

/// One operation on its way to a signer.
pub(crate) struct Job {
    pub caller: Caller,
    pub ask: Ask,
    pub deadline: Instant,
    pub op_id: Option<OpGuard>,
    pub reply: oneshot::Sender<Result<Reply, KmsError>>,
    pub permit: Permit,
}

/// An operation id under way: freed if its operation comes to nothing.
pub(crate) struct OpGuard {
    /// Weak: a job waits in the engine's own queue, and must not keep it alive.
    engine: Weak<Engine>,
    tenant: Arc<str>,
    pub id: Option<OpId>,
}

impl Kms {
    /// Waits until what the log has can be verified, for `limit` at most; how many records it has then.
    pub async fn first_checkpoint(&self, limit: Duration) -> u64 {
        let (env, auditor) = (&self.0.env, &self.0.auditor);
        let covered = async {
            while auditor.note().size == 0 && auditor.mismatch().is_none() {
                env.sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = env.timeout(limit, covered).await;
        auditor.size()
    }

    /// Through the tenant's quota and the sign queue; ends by the operation's deadline at the latest.
    pub async fn ask(&self, caller: Caller, ask: Ask) -> Result<Reply, KmsError> {
        let action = ask.action();
        let result = self.queue_up(caller, ask).await;
        let failed = result.as_ref().err().map(KmsError::code);
        self.0.metrics.count(action, failed);
        result
    }

    async fn queue_up(&self, caller: Caller, ask: Ask) -> Result<Reply, KmsError> {
        let engine = &self.0;
        if engine.drain.is_begun() {
            ron_core::sometimes!("kms.draining_refused");
            return Err(KmsError::Draining);
        }
        // What was promised before is given again, whatever became of the key or the backend since.
        let op_id = match ask.op_id() {
            None => None,
            Some((kid, op_id)) => {
                let tenant = engine.ring.index().find(&caller, kid)?.tenant.clone();
                match engine.begin_op(&tenant, op_id)? {
                    Ok(guard) => Some(guard),
                    Err(done) => return Box::pin(self.replay(caller, ask, done)).await,
                }
            }
        };
        let Checked { tenant, at_once } = engine.check_ask(&caller, &ask)?;
        if !engine.backend_up.load(Ordering::Relaxed) {
            return Err(KmsError::BackendUnavailable(
                "the key backend is not available".into(),
            ));
        }
        let permit = engine.enter_quota(&tenant)?;
        if at_once && let Some(place) = engine.in_place.enter(&engine.queue) {
            return engine.serve_in_place(&caller, ask, permit, place).await;
        }
        // What takes longer is boxed, so that every request is small to move.
        Box::pin(self.enqueue(caller, ask, permit, op_id)).await
    }

    async fn enqueue(
        &self,
        caller: Caller,
        ask: Ask,
        permit: Permit,
        op_id: Option<OpGuard>,
    ) -> Result<Reply, KmsError> {
        let engine = &self.0;
        let (reply, answer) = oneshot::channel();
        let job = Job {
            deadline: engine.deadline_of(&ask),
            caller,
            ask,
            op_id,
            reply,
            permit,
        };
        if let Err(Refused { why, .. }) = engine.queue.push(job) {
            return Err(match why {
                Refusal::Full => {
                    ron_core::sometimes!("kms.queue_full");
                    KmsError::Busy
                }
                Refusal::Closed => KmsError::Draining,
            });
        }
        answer.await.unwrap_or(Err(KmsError::WorkerLost))
    }

    /// The answer that was given before, with the newest evidence if evidence is asked for. A data key is
    /// opened again, which its version must still allow: plain bytes are never kept.
    async fn replay(
        &self,
        caller: Caller,
        ask: Ask,
        done: op_ids::Done,
    ) -> Result<Reply, KmsError> {
        let (kid, context, attest) = match ask {
            Ask::Sign { key, attest, .. } => (key.kid, Vec::new(), attest),
            Ask::Wrap { key, .. } => (key.kid, Vec::new(), false),
            Ask::DataKey { key, context, .. } => (key.kid, context, false),
            _ => return Err(KmsError::OpIdConflict),
        };
        let evidence = attest.then(|| self.evidence()).flatten();
        match replay::decode(&kid, &done, evidence)? {
            Reply::DataKey {
                key, blob, receipt, ..
            } => {
                let tenant = self.index().find(&caller, &kid)?.tenant.clone();
                let ask = Ask::Unwrap {
                    key: key.clone(),
                    blob: blob.clone(),
                    context,
                };
                let permit = self.0.enter_quota(&tenant)?;
                match self.enqueue(caller, ask, permit, None).await? {
                    Reply::Unwrapped { plain, .. } => Ok(Reply::DataKey {
                        key,
                        plain,
                        blob,
                        receipt,
                    }),
                    _ => Err(KmsError::WorkerLost),
                }
            }
            reply => Ok(reply),
        }
    }

    /// The keys as they are now.
    pub fn index(&self) -> Arc<KeyIndex> {
        self.0.ring.index()
    }

    /// Inline, from the key index; in an outage with the index's age, up to a limit.
    pub async fn verify(&self, caller: &Caller, ask: VerifyAsk) -> Result<VerifyReply, KmsError> {
        let result = self.verify_now(caller, ask).await;
        let failed = result.as_ref().err().map(KmsError::code);
        self.0.metrics.count("verify", failed);
        result
    }

    async fn verify_now(&self, caller: &Caller, ask: VerifyAsk) -> Result<VerifyReply, KmsError> {
        let engine = &self.0;
        let cache_age_ms = engine.freshness().await?;
        let index = self.index();
        let entry = index.find(caller, &ask.key.kid)?;
        let version = entry.version(&ask.key);
        entry.key.may_verify(version, engine.env.wall_ms())?;
        let held = entry.held(version).ok_or(KmsError::NoSuchKey)?;
        let public = held.public.as_ref().ok_or(KmsError::NoSuchKey)?;
        let valid = match public.verify(ask.message.input(), &ask.signatures) {
            Ok(()) => true,
            Err(
                crate::keys::signing::SigningError::BadSignature(_)
                | crate::keys::signing::SigningError::WrongParts(_),
            ) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(VerifyReply {
            valid,
            version,
            cache_age_ms,
        })
    }

    /// A fresh statement over the caller's nonce and this key.
    pub async fn attest(
        &self,
        caller: &Caller,
        key: KeyRef,
        nonce: Vec<u8>,
    ) -> Result<Attestation, KmsError> {
        let result = self.attest_now(caller, key, nonce).await;
        let failed = result.as_ref().err().map(KmsError::code);
        self.0.metrics.count("attest", failed);
        result
    }

    async fn attest_now(
        &self,
        caller: &Caller,
        key: KeyRef,
        nonce: Vec<u8>,
    ) -> Result<Attestation, KmsError> {
        let engine = &self.0;
        let index = self.index();
        let entry = index.find(caller, &key.kid)?;
        let version = entry.version(&key);
        let held = entry
            .held(version)
            .ok_or(crate::keys::key::Refusal::NoSuchVersion(version))?;
        let limit = Duration::from_millis(engine.config.load().deadline.attest_ms);
        let deadline = engine.env.now() + limit;
        let attested = engine.attest(caller, entry, held, &nonce, deadline);
        let attested = engine.env.timeout_at(deadline, attested).await;
        attested.unwrap_or_else(|_| {
            engine.metrics.io_timeouts.with(&["attest"]).inc();
            Err(KmsError::Timeout("attest"))
        })
    }

    /// The newest signed checkpoint.
    pub fn checkpoint(&self) -> Result<Bytes, KmsError> {
        let note = self.0.auditor.note();
        match note.bytes.is_empty() {
            true => Err(KmsError::NoSuchRecord),
            false => Ok(note.bytes.clone()),
        }
    }

    /// Only what a published checkpoint covers.
    pub async fn tile(&self, tile: Tile) -> Result<Bytes, KmsError> {
        self.0.auditor.tile(tile).await
    }

    /// The offline receipt of one record, as text.
    pub async fn proof(&self, index: u64) -> Result<String, KmsError> {
        self.0.auditor.proof(index).await
    }

    /// Where the newest evidence can be seen.
    pub fn evidence(&self) -> Option<String> {
        self.0.attester.evidence()
    }
}

/// What is known of an ask before it takes a place in the queue.
struct Checked {
    /// For whom it counts.
    tenant: Arc<str>,
    /// A short computation that waits for nothing, as things are now.
    at_once: bool,
}

impl Engine {
    fn enter_quota(&self, tenant: &Arc<str>) -> Result<Permit, KmsError> {
        self.quota.try_enter(tenant).ok_or_else(|| {
            ron_core::sometimes!("kms.quota_refused");
            self.metrics.quota_reject.with(&["tenant"]).inc();
            KmsError::TenantBusy
        })
    }

    fn deadline_of(&self, ask: &Ask) -> Instant {
        self.env.now() + ask.limit(&self.config.load())
    }

    /// What a signer would do with it, without the way there and back. Should the audit queue fill up just
    /// now, this waits for room; a caller that leaves meanwhile leaves a gap record.
    async fn serve_in_place(
        self: &Arc<Self>,
        caller: &Caller,
        ask: Ask,
        permit: Permit,
        place: Place<'_>,
    ) -> Result<Reply, KmsError> {
        let deadline = self.deadline_of(&ask);
        let result = signer::perform(self, caller, ask, deadline, None).await;
        drop(permit);
        self.drain.finish_one();
        drop(place);
        result
    }

    /// What can be refused before it takes a place in the queue.
    fn check_ask(&self, caller: &Caller, ask: &Ask) -> Result<Checked, KmsError> {
        let index = self.ring.index();
        let now = self.env.wall_ms();
        let kid = match ask {
            Ask::Create {
                tenant,
                algorithm,
                policy,
                ..
            } => {
                let max = self.config.load().max_keys;
                if !caller.may_touch(tenant) {
                    return Err(KmsError::ForeignTenant);
                }
                let info = self.backend.info();
                let offered = info.supports(*algorithm);
                offered.map_err(|error| KmsError::from_backend(error, info.name))?;
                self.check_policy(policy)?;
                if index.len() >= max {
                    return Err(KmsError::TooManyKeys { max });
                }
                return Ok(Checked {
                    tenant: tenant.as_str().into(),
                    at_once: false,
                });
            }
            Ask::Sign {
                key,
                messages,
                op_id,
                ..
            } => {
                if messages.is_empty() || messages.len() > MAX_BATCH {
                    return Err(KmsError::Invalid(format!(
                        "1 to {MAX_BATCH} messages are signed at once"
                    )));
                }
                let entry = index.find(caller, &key.kid)?;
                let max = replay::most_messages(entry.key.algorithm());
                if op_id.is_some() && messages.len() > max {
                    return Err(KmsError::BatchTooLarge { max });
                }
                let version = entry.version(key);
                entry.key.may_sign(version, now)?;
                let quick = |held: &Arc<Held>| self.backend.signs_at_once(&held.material, messages);
                return Ok(Checked {
                    tenant: entry.tenant.clone(),
                    at_once: op_id.is_none()
                        && self.auditor.takes_at_once()
                        && entry.held(version).is_some_and(quick),
                });
            }
            Ask::Wrap { key, .. } | Ask::DataKey { key, .. } => {
                let entry = index.find(caller, &key.kid)?;
                entry.key.may_wrap(entry.version(key), now)?;
                &key.kid
            }
            Ask::Unwrap { key, .. } => {
                let entry = index.find(caller, key.kid())?;
                entry.key.may_unwrap(key.version(), now)?;
                key.kid()
            }
            Ask::SetPolicy { kid, policy } => {
                index.find(caller, kid)?;
                self.check_policy(policy)?;
                kid
            }
            Ask::Import { kid, .. } | Ask::Rotate { kid, .. } => kid,
            Ask::Disable(key) | Ask::Enable(key) => key.kid(),
            Ask::ScheduleDestroy { key, .. } | Ask::CancelDestroy { key } => &key.kid,
        };
        Ok(Checked {
            tenant: index.find(caller, kid)?.tenant.clone(),
            at_once: false,
        })
    }

    /// Each rotation makes a version, and a key has only so many.
    fn check_policy(&self, policy: &Policy) -> Result<(), KmsError> {
        let least = self.config.load().rotate_after_min_ms;
        match policy.rotate_after_ms {
            // Zero is no time at all, whatever is configured: the key itself refuses it.
            Some(after) if (1..least).contains(&after) => Err(KmsError::RotateTooSoon { least }),
            _ => Ok(()),
        }
    }

    /// `Err` with the result that was given before.
    fn begin_op(
        self: &Arc<Self>,
        tenant: &Arc<str>,
        ask: &OpIdAsk,
    ) -> Result<Result<OpGuard, op_ids::Done>, KmsError> {
        let id = op_ids::digest_of(tenant, &ask.id);
        let begun = self
            .op_ids
            .lock()
            .begin(id, ask.request, self.env.wall_ms());
        match begun {
            Begin::New => Ok(Ok(OpGuard {
                engine: Arc::downgrade(self),
                tenant: tenant.clone(),
                id: Some(OpId {
                    id,
                    request: ask.request,
                }),
            })),
            Begin::Again(done) => {
                ron_core::sometimes!("kms.op_id_replayed");
                Ok(Err(done))
            }
            Begin::Conflict => {
                ron_core::sometimes!("kms.op_id_conflict");
                Err(KmsError::OpIdConflict)
            }
            Begin::InFlight => {
                ron_core::sometimes!("kms.op_id_in_flight");
                Err(KmsError::OpIdInFlight)
            }
        }
    }

    /// The age to tell, if there is an outage; refused past the limit.
    async fn freshness(&self) -> Result<Option<u64>, KmsError> {
        let judge = || self.verify.lock().judge(self.env.now());
        let config = self.config.load();
        let ms = Duration::from_millis;
        let backoff = Backoff::band(
            ms(config.verify.retry_min_ms),
            ms(config.verify.retry_max_ms),
            ms(config.verify.retry_cap_ms),
        );
        let mut tried = 0;
        loop {
            let age = match judge() {
                Freshness::Fresh => return Ok(None),
                Freshness::Stale(age) => {
                    ron_core::sometimes!("kms.verify_stale");
                    return Ok(Some(age.as_millis() as u64));
                }
                Freshness::Expired(age) => age.as_millis() as u64,
            };
            if tried == config.verify.retry_max {
                ron_core::sometimes!("kms.verify_expired");
                self.metrics.verify_cache_expired.inc();
                return Err(KmsError::VerifyCacheExpired { age_ms: age });
            }
            if tried > 0 {
                self.metrics.backoff_retries.with(&["verify"]).inc();
                let delay = backoff.delay(tried - 1, &mut self.env.rng());
                self.env.sleep(delay).await;
            }
            tried += 1;
            self.refresh().await;
        }
    }

    /// Asks the backend, and keeps gate, flag and cache by what it says; true if it is there.
    pub(crate) async fn refresh(&self) -> bool {
        let limit = Duration::from_millis(self.config.load().deadline.check_ms);
        let checked = self.env.timeout(limit, self.backend.check()).await;
        let why = match checked {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => {
                self.metrics.io_timeouts.with(&["backend"]).inc();
                Some("the key backend does not answer".to_owned())
            }
        };
        let now = self.env.now();
        let up = why.is_none();
        let age = {
            let mut cache = self.verify.lock();
            match up {
                true => cache.handle_refreshed(now),
                false => cache.handle_failed(),
            }
            cache.age(now)
        };
        self.metrics
            .verify_cache_age_ms
            .set(if up { 0 } else { age.as_millis() as i64 });
        if self.backend_up.swap(up, Ordering::Relaxed) != up {
            self.env
                .probe("kms.backend", u64::from(up), format_args!(""));
        }
        match why {
            None => self.backend_gate.open(),
            Some(why) => {
                ron_core::sometimes!("kms.backend_away");
                self.backend_gate.close(why);
            }
        }
        up
    }
}

impl OpGuard {
    /// The result is durable.
    pub fn finish(&mut self, done: op_ids::Done) {
        if let Some(op) = self.id.take()
            && let Some(engine) = self.engine.upgrade()
        {
            let now = engine.env.wall_ms();
            let mut ids = engine.op_ids.lock();
            ids.finish(&self.tenant, op.id, op.request, now, done, now);
        }
    }
}

impl Drop for OpGuard {
    fn drop(&mut self) {
        if let Some(op) = self.id.take()
            && let Some(engine) = self.engine.upgrade()
        {
            engine.op_ids.lock().cancel(&op.id);
        }
    }
}

impl Ask {
    /// The label under which it is counted.
    pub fn action(&self) -> &'static str {
        match self {
            Ask::Create { .. } => "create",
            Ask::Import { .. } => "import",
            Ask::Rotate { .. } => "rotate",
            Ask::SetPolicy { .. } => "policy",
            Ask::Disable(_) => "disable",
            Ask::Enable(_) => "enable",
            Ask::ScheduleDestroy { .. } => "destroy",
            Ask::CancelDestroy { .. } => "cancel_destroy",
            Ask::Sign { .. } => "sign",
            Ask::Wrap { .. } => "wrap",
            Ask::Unwrap { .. } => "unwrap",
            Ask::DataKey { .. } => "data_key",
        }
    }

    /// With the key that it is about.
    fn op_id(&self) -> Option<(&Kid, &OpIdAsk)> {
        match self {
            Ask::Sign { key, op_id, .. }
            | Ask::Wrap { key, op_id, .. }
            | Ask::DataKey { key, op_id, .. } => Some((&key.kid, op_id.as_ref()?)),
            _ => None,
        }
    }

    fn limit(&self, config: &Config) -> Duration {
        Duration::from_millis(match self {
            Ask::Sign { .. } => config.deadline.sign_ms,
            Ask::Wrap { .. } | Ask::DataKey { .. } => config.deadline.wrap_ms,
            Ask::Unwrap { .. } => config.deadline.unwrap_ms,
            _ => config.deadline.rotate_ms,
        })
    }
}

/// Names a key without a version.
pub fn newest(kid: &Kid) -> KeyRef {
    KeyRef {
        kid: kid.clone(),
        version: None,
    }
}
