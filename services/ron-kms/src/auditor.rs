//! The audit log's shell: the deciding machine behind a lock, the queue before it, the files below it.
//!
//! Whoever uses a key asks here first ([`Auditor::admit`]) and tells here afterwards ([`Auditor::record`]).
//! The appender and the checkpointer do the writing. Always: a number that was given out comes back, by a
//! record, as dropped or as abandoned, even if its holder dies.

mod log_keys;
mod readers;
pub(crate) mod spec;
mod told;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use ron_core::{
    Env,
    lock::{LockDecl, RankedMutex},
    queue::{Queue, Refused, WaitThenDropOldest},
    readiness::Gate,
    snapshot::{SnapshotReader, SnapshotWriter, snapshot},
};
use tokio::sync::{Notify, oneshot};

use crate::{
    audit::{
        checkpoint::Checkpoint,
        log::{
            Act, Admission, Answer, AuditLog, Head, Mismatch, Policy, Refusal, Submission, Trouble,
        },
        record::{Action, Event, Seq},
        recovery::Recovery,
        sequence::Missing,
    },
    config::Config,
    error::KmsError,
    history::KeyHistory,
    journal::{self, Journal, Mender, Mending},
    keystore::Identity,
    metrics::Metrics,
    op_ids::OpIds,
};
pub use log_keys::LogKeys;
use told::Told;

pub const AUDIT_LOCK: LockDecl = LockDecl {
    name: "audit_state",
    rank: 3,
    guards: "the audit log's machine: numbers, the tree's edge, checkpoint counters",
};
pub const NOTE_LOCK: LockDecl = LockDecl {
    name: "note",
    rank: 5,
    guards: "the writer of the published checkpoint",
};

pub type AuditQueue = Queue<Sent, WaitThenDropOldest<Sent>>;

/// Boxed: an event is moved several times on its way, and most of the queue's places are empty.
pub type Sent = Box<Item>;

/// Shared by all who use keys, and by the two tasks that write.
pub struct Auditor {
    pub env: Env,
    pub queue: AuditQueue,
    pub journal: Journal,
    pub metrics: Metrics,
    pub gate: Gate,
    pub append_deadline: Duration,
    pub checkpoint_deadline: Duration,
    pub batch_max: usize,
    /// With so many events the queue is not near its cap.
    roomy: usize,
    /// As the machine has it; never changes.
    policy: Policy,
    log: RankedMutex<AuditLog>,
    started: Instant,
    keys: LogKeys,
    note: SnapshotReader<Note>,
    note_writer: RankedMutex<SnapshotWriter<Note>>,
    attempts: AtomicU64,
    /// Numbers were reserved since the start.
    reserved: AtomicBool,
    first_reserved: Notify,
    pub append_wanted: Notify,
    /// The appender gathers no longer: somebody waits for what was queued.
    pub hurry: Notify,
    /// The process is about to end.
    draining: AtomicBool,
    pub checkpoint_wanted: Notify,
}

/// The published checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Note {
    pub size: u64,
    pub bytes: Bytes,
}

/// One event on its way into the log.
pub struct Item {
    pub number: Option<Number>,
    pub event: Event,
    pub attachment: Vec<u8>,
    pub waiter: Option<oneshot::Sender<Result<Recorded, Trouble>>>,
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub seq: Seq,
    /// Known if the record is durable.
    pub index: Option<u64>,
}

/// A number given out ahead of its record; one that is dropped unused is told to the log.
pub struct Number {
    /// Weak: numbers wait in the auditor's own queue, and must not keep it alive.
    auditor: Weak<Auditor>,
    seq: Option<Seq>,
}

/// What the log told at the start.
pub struct Recovered {
    pub auditor: Arc<Auditor>,
    pub nonces: BTreeMap<(String, u32), u64>,
    pub history: KeyHistory,
    pub op_ids: OpIds,
    pub records: u64,
    pub missing: Option<Missing>,
    pub mismatch: Option<String>,
}

/// What the start needs besides the configuration.
pub struct Opening<'a> {
    pub env: &'a Env,
    pub config: &'a Config,
    pub identity: &'a Identity,
    pub metrics: Metrics,
    pub gate: Gate,
    /// The store has no keys: there may be no log yet.
    pub fresh: bool,
    /// How many records the store knows of.
    pub log_size: u64,
}

impl Auditor {
    /// Opens the log and reads all of it.
    pub async fn open(opening: Opening<'_>) -> Result<Recovered, KmsError> {
        let Opening {
            env,
            config,
            identity,
            metrics,
            gate,
            fresh,
            log_size,
        } = opening;
        let keys = LogKeys::new(&config.audit.origin, identity)?;
        let trust = keys.trust()?;
        let text: String = trust
            .keys
            .iter()
            .map(|key| format!("{}\n", key.encode()))
            .collect();
        let (id, policy, limits) = (
            identity.log_id,
            config.audit_policy(),
            config.audit_limits(),
        );
        let op_ids = OpIds::new(config.op_id_results, config.op_id_bytes);
        let (wall_ms, room) = (env.wall_ms(), config.audit.disk_reserve_bytes);
        let read = env
            .disk(move |disk| {
                let found = Journal::open(disk.as_ref(), id, &trust, fresh, room)?;
                let mut recovery = Recovery::new(found.stored);
                let mut told = Told::new(op_ids, wall_ms);
                let covered = found.note.as_deref().and_then(journal::published_head);
                let covered = covered.map_or(0, |head| head.size);
                let mut looker = Mender::new(disk.as_ref(), covered, Mending::Look);
                let scan = found.journal.scan(|framed| {
                    recovery.record(&framed);
                    told.record(&framed);
                    looker.record(framed.bytes);
                })?;
                let damaged = looker.damaged();
                let mut recovered = recovery.finish(&scan, policy, limits, 0);
                let records = scan.records;
                let older = Mismatch::Older {
                    records,
                    known: log_size,
                };
                let older = (records < log_size).then_some(older);
                let found_so = recovered.log.mismatch().is_none().then_some(older);
                if let Some(mismatch) = found.mismatch.or(found_so.flatten()) {
                    let _ = recovered.log.handle_mismatch(mismatch);
                }
                // Keys of another identity would hide whose log this was.
                let sound = recovered.log.mismatch().is_none();
                if sound {
                    journal::write_keys(disk.as_ref(), &text)?;
                    found.journal.settle(scan.last_batch, scan.valid_len)?;
                }
                // Only now are the records known to be what was signed; a second reading is rare.
                let mended = if sound { damaged } else { 0 };
                if mended > 0 {
                    let mut mender = Mender::new(disk.as_ref(), covered, Mending::Write);
                    found.journal.scan(|framed| mender.record(framed.bytes))?;
                }
                if let Some(len) = recovered.truncate {
                    ron_core::sometimes!("kms.torn_tail_cut");
                    found
                        .journal
                        .truncate(disk.as_ref(), len)
                        .map_err(std::io::Error::other)?;
                }
                std::io::Result::Ok((found.journal, found.note, recovered, told, records, mended))
            })
            .await;
        let failed = |error: &dyn std::fmt::Display| KmsError::Store(format!("audit log: {error}"));
        let (journal, note, recovered, told, records, mended) = read
            .map_err(|lost| failed(&lost))?
            .map_err(|error| failed(&error))?;
        if mended > 0 {
            metrics.integrity_failed.inc_by(mended);
            env.probe("kms.tiles_mended", mended, format_args!(""));
            tracing::warn!(
                mended,
                "published tiles were damaged and written anew from the records"
            );
        }
        let mismatch = recovered.log.mismatch().map(ToString::to_string);
        match &mismatch {
            None => gate.open(),
            Some(why) => {
                metrics.integrity_failed.inc();
                gate.close(why.clone());
            }
        }
        let note = note.map_or_else(Note::default, |bytes| Note {
            size: journal::published_head(&bytes).map_or(0, |head| head.size),
            bytes: bytes.into(),
        });
        let (note_writer, note) = snapshot(note);
        spec::recovered(env, policy, &limits, &recovered.log);
        let keep = |item: &Sent| !item.event.may_be_shed();
        let wait = Duration::from_millis(config.audit.queue_wait_ms);
        let auditor = Auditor {
            env: env.clone(),
            queue: Queue::new(
                "audit",
                config.audit.queue_cap,
                WaitThenDropOldest { wait, keep },
            ),
            journal,
            metrics,
            gate,
            append_deadline: Duration::from_millis(config.audit.append_deadline_ms),
            checkpoint_deadline: Duration::from_millis(config.audit.checkpoint_deadline_ms),
            batch_max: config.audit.batch_max,
            roomy: config.audit.queue_cap / 2,
            policy,
            log: RankedMutex::new(AUDIT_LOCK, recovered.log),
            started: env.now(),
            keys,
            note,
            note_writer: RankedMutex::new(NOTE_LOCK, note_writer),
            attempts: AtomicU64::new(0),
            reserved: AtomicBool::new(false),
            first_reserved: Notify::new(),
            append_wanted: Notify::new(),
            hurry: Notify::new(),
            draining: AtomicBool::new(false),
            checkpoint_wanted: Notify::new(),
        };
        Ok(Recovered {
            auditor: Arc::new(auditor),
            nonces: recovered.nonces,
            history: told.history,
            op_ids: told.op_ids,
            records,
            missing: recovered.missing,
            mismatch,
        })
    }

    // ------------------------------------------------------------------------- for users of keys

    /// Before a key is used. `None`: submit an intent first.
    fn admit(self: &Arc<Self>, action: Action) -> Result<Option<Number>, Refusal> {
        let admission = self.log.lock().admit(action);
        match admission {
            Ok(Admission::Numbered(seq)) => {
                self.spec("spec.kms.audit.admit", seq);
                Ok(Some(Number {
                    auditor: Arc::downgrade(self),
                    seq: Some(seq),
                }))
            }
            Ok(Admission::ByIntent) => Ok(None),
            // Only verifying goes unrecorded, and verifying does not ask.
            Ok(Admission::Unrecorded) => Err(Refusal::Integrity),
            Err(Refusal::NotReserved) => {
                ron_core::sometimes!("kms.numbers_ran_out");
                self.append_wanted.notify_one();
                self.hurry.notify_one();
                Err(Refusal::NotReserved)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// The same; one who comes before the first numbers of this life are reserved waits for that.
    pub async fn admit_by(
        self: &Arc<Self>,
        action: Action,
        deadline: Instant,
    ) -> Result<Option<Number>, Refusal> {
        match self.admit(action) {
            Err(Refusal::NotReserved) if !self.has_reserved() => {}
            decided => return decided,
        }
        let reserved = async {
            loop {
                let told = self.first_reserved.notified();
                if self.has_reserved() {
                    return;
                }
                told.await;
            }
        };
        // Should it not come in time, the log says what it says.
        let _ = self.env.timeout_at(deadline, reserved).await;
        self.admit(action)
    }

    /// Whether an event that nobody waits for would get into the queue at once, by all that can be known.
    pub fn takes_at_once(&self) -> bool {
        self.policy == Policy::Shed && self.has_reserved() && self.queue.len() <= self.roomy
    }

    fn has_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// Puts an event on its way, and waits until it is durable if its answer must.
    pub fn record(
        &self,
        number: Option<Number>,
        event: Event,
        attachment: Vec<u8>,
    ) -> impl Future<Output = Result<Recorded, Trouble>> + Send + '_ {
        let rule = self.policy.answer_rule(&event);
        let seq = number.as_ref().and_then(|n| n.seq).or(event.seq());
        let (waiter, durable) = match rule {
            Answer::Now => (None, None),
            Answer::WhenDurable => {
                let (sender, receiver) = oneshot::channel();
                (Some(sender), Some(receiver))
            }
        };
        let item = Box::new(Item {
            number,
            event,
            attachment,
            waiter,
        });
        // The event is in its box before anything is waited for: what waits stays small.
        self.submit(seq.unwrap_or_default(), item, durable)
    }

    async fn submit(
        &self,
        seq: Seq,
        item: Sent,
        durable: Option<oneshot::Receiver<Result<Recorded, Trouble>>>,
    ) -> Result<Recorded, Trouble> {
        if let Some(seq) = item.number.as_ref().and_then(|n| n.seq) {
            let told = format_args!("{}", item.event.may_be_shed());
            self.env.probe("spec.kms.audit.submit", seq, told);
        }
        match self.queue.push(&self.env, item).await {
            Ok(None) if durable.is_some() => self.hurry.notify_one(),
            Ok(None) => {}
            Ok(Some(displaced)) => self.drop_item(displaced),
            Err(Refused { item, .. }) => {
                self.drop_item(item);
                if durable.is_some() {
                    return Err(Trouble::NotWritten);
                }
            }
        }
        match durable {
            None => Ok(Recorded { seq, index: None }),
            Some(durable) => durable.await.unwrap_or(Err(Trouble::NotWritten)),
        }
    }

    /// The queue had no room for it.
    fn drop_item(&self, mut item: Sent) {
        self.metrics.audit_dropped.inc();
        let shed = item.number.as_ref().and_then(|number| number.seq);
        let shed = shed.filter(|_| item.event.may_be_shed());
        if let Some(seq) = item.number.as_mut().and_then(|number| number.seq.take()) {
            // What may not be shed was never let in: its operation comes to nothing.
            match item.event.may_be_shed() {
                true => {
                    self.log.lock().handle_dropped(seq);
                    self.spec("spec.kms.audit.drop", seq);
                }
                false => {
                    self.log.lock().handle_abandoned(seq);
                    self.spec("spec.kms.audit.abandon", seq);
                }
            }
            self.append_wanted.notify_one();
        }
        let shed_or_not = shed.unwrap_or(Seq::MAX);
        self.env
            .probe("kms.audit_dropped", shed_or_not, format_args!(""));
    }

    // -------------------------------------------------------------------------------- for readers

    pub fn note(&self) -> Arc<Note> {
        self.note.load()
    }

    pub fn origin(&self) -> &str {
        &self.keys.origin
    }

    pub fn verifier_keys(&self) -> Result<Vec<String>, KmsError> {
        Ok(self.keys.trust()?.keys.iter().map(|k| k.encode()).collect())
    }

    /// The records that are durable.
    pub fn size(&self) -> u64 {
        self.log.lock().size()
    }

    pub fn mismatch(&self) -> Option<String> {
        self.log.lock().mismatch().map(ToString::to_string)
    }

    // ------------------------------------------------------------------------ for the two writers

    /// From here on there are deadlines: nobody rests for long after a failure, since others wait behind it.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.hurry.notify_one();
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub fn now_ms(&self) -> u64 {
        self.env.now().duration_since(self.started).as_millis() as u64
    }

    /// The machine; held for one step, never across an await.
    pub fn step<T>(&self, step: impl FnOnce(&mut AuditLog) -> T) -> T {
        step(&mut self.log.lock())
    }

    /// A batch is durable, perhaps the one with the first numbers.
    pub fn tell_reserved(&self) {
        if !self.has_reserved() && self.step(|log| log.numbers_left() > 0) {
            self.reserved.store(true, Ordering::Release);
            self.first_reserved.notify_waiters();
        }
    }

    /// A specification event; what it tells of was done just now.
    pub fn spec(&self, event: &'static str, id: u64) {
        self.env.probe(event, id, format_args!(""));
    }

    /// The same, for what may change readiness.
    pub fn spec_ready(&self, event: &'static str, id: u64) {
        let ready = self.step(|log| log.is_ready());
        self.env.probe(event, id, format_args!("{ready}"));
    }

    /// A signed note over this head.
    pub fn sign(&self, head: &Head) -> Result<Vec<u8>, KmsError> {
        let checkpoint = Checkpoint {
            origin: self.keys.origin.clone(),
            size: head.size,
            root: head.root,
        };
        let time_s = self.env.wall_ms() / 1000;
        let signed = checkpoint.sign(&self.keys.signing(), time_s);
        let signed = signed.map_err(|error| KmsError::Store(error.to_string()))?;
        Ok(signed.encode().into_bytes())
    }

    /// Numbers of attempts to publish only grow.
    pub fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn published(&self, size: u64, bytes: Vec<u8>) {
        let note = Note {
            size,
            bytes: bytes.into(),
        };
        self.note_writer.lock().publish(note);
    }

    /// Does what the machine says about readiness, by what is true now: another task may have had its say since, and
    /// its gate must not be opened again.
    pub fn tell(&self, acts: &[Act]) {
        for act in acts {
            let log = self.log.lock();
            match act {
                Act::Degraded => {
                    self.metrics.integrity_failed.inc();
                    let why = log.mismatch().map(ToString::to_string);
                    let why = why.unwrap_or_else(|| "a checkpoint is overdue or failed".into());
                    self.env
                        .probe("kms.checkpoint_missed", 0, format_args!("{why}"));
                    self.gate.close(why);
                }
                Act::Ready if log.is_ready() => {
                    ron_core::sometimes!("kms.checkpoint_again");
                    self.gate.open();
                }
                _ => {}
            }
        }
    }
}

impl Number {
    pub fn seq(&self) -> Seq {
        self.seq.unwrap_or_default()
    }

    /// It goes into a batch: from here on the log's machine has it.
    pub fn into_seq(mut self) -> Option<Seq> {
        self.seq.take()
    }

    /// The open intent of this number, whose outcome must follow.
    pub fn of_intent(auditor: &Arc<Auditor>, seq: Seq) -> Number {
        Number {
            auditor: Arc::downgrade(auditor),
            seq: Some(seq),
        }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if let Some(seq) = self.seq.take()
            && let Some(auditor) = self.auditor.upgrade()
        {
            auditor.log.lock().handle_abandoned(seq);
            auditor.spec("spec.kms.audit.abandon", seq);
            auditor.append_wanted.notify_one();
        }
    }
}

impl Item {
    /// For the batch, and who waits for it.
    pub fn into_submission(
        self,
        ticket: u64,
    ) -> (
        Submission,
        Option<oneshot::Sender<Result<Recorded, Trouble>>>,
    ) {
        let submission = Submission {
            ticket,
            seq: self.number.and_then(Number::into_seq),
            event: self.event,
            attachment: self.attachment,
        };
        (submission, self.waiter)
    }
}
