//! The signer pool: takes operations off the queue and uses keys.
//!
//! Each signer carries several operations at once, so that a wait for the disk or a token holds up no other.
//! Every use is told to the audit log by its policy: before the key is used and before the answer leaves
//! (strict), or with the answer (shed). A signer asked to stop finishes what it holds and what is queued.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Instant,
};

use aws_lc_rs::digest;
use ron_core::{api::ApiError, app::work};

use crate::{
    ask::{Ask, Caller, KeyRef, Receipt, Reply},
    audit::{
        merkle::Hash,
        record::{Action, Event, Operation, Outcome},
    },
    auditor::{Number, Recorded},
    backend::{BackendError, Message},
    changes,
    engine::{Engine, Job, OpGuard},
    error::KmsError,
    index::{Entry, Held},
    keys::{Secret, VersionedKid, sealing::DATA_KEY_LEN},
    op_ids::Done,
    replay,
    ring::spec,
};

/// Operations that one signer carries at once.
const IN_HAND: usize = 64;

/// Runs until the queue is closed and drained, and nobody is left who serves himself.
pub(crate) async fn run(engine: Arc<Engine>) {
    let serve = |job| serve(engine.clone(), job);
    work(&engine.queue, IN_HAND, serve).await;
    engine.in_place.all_left().await;
}

async fn serve(engine: Arc<Engine>, job: Job) {
    let Job {
        caller,
        ask,
        deadline,
        mut op_id,
        mut reply,
        permit,
    } = job;
    if reply.is_closed() {
        return;
    }
    if engine.env.now() >= deadline {
        ron_core::sometimes!("kms.late_in_queue");
        engine.metrics.io_timeouts.with(&[ask.action()]).inc();
        let _ = reply.send(Err(KmsError::Timeout("waiting for a signer")));
        return;
    }
    let work = perform(&engine, &caller, ask, deadline, op_id.as_mut());
    let mut work = pin!(work);
    // A caller who went away does not stop what was begun: its outcome belongs into the log.
    let result = tokio::select! {
        biased;
        result = &mut work => result,
        () = reply.closed() => {
            ron_core::sometimes!("kms.caller_gone");
            work.await
        }
    };
    // Before the answer: whoever has it may ask again at once, and has its place.
    drop(permit);
    let _ = reply.send(result);
    engine.drain.finish_one();
}

pub(crate) async fn perform(
    engine: &Arc<Engine>,
    caller: &Caller,
    ask: Ask,
    deadline: Instant,
    op_id: Option<&mut OpGuard>,
) -> Result<Reply, KmsError> {
    match ask {
        Ask::Sign {
            key,
            messages,
            attest,
            ..
        } => sign(engine, caller, key, messages, attest, deadline, op_id).await,
        Ask::Wrap {
            key,
            plain,
            context,
            ..
        // What is rare is boxed, so that the frequent operation is small to move.
        } => Box::pin(wrap(engine, caller, key, plain, context, deadline, op_id)).await,
        Ask::DataKey { key, context, .. } => {
            Box::pin(data_key(engine, caller, key, context, deadline, op_id)).await
        }
        Ask::Unwrap { key, blob, context } => {
            let unwrapping = unwrap(engine, caller, &key, &blob, &context, deadline);
            let (plain, receipt) = Box::pin(unwrapping).await?;
            Ok(Reply::Unwrapped {
                key,
                plain,
                receipt,
            })
        }
        // What is waited for may be a disk that hangs; a change that was begun goes on without its caller.
        change => {
            let changing = Box::pin(changes::perform(engine, caller, change, deadline));
            let changed = engine.env.timeout_at(deadline, changing).await;
            changed.unwrap_or_else(|_| Err(timed_out(engine, "rotate")))
        }
    }
}

async fn sign(
    engine: &Arc<Engine>,
    caller: &Caller,
    key: KeyRef,
    messages: Vec<Message>,
    attest: bool,
    deadline: Instant,
    op_id: Option<&mut OpGuard>,
) -> Result<Reply, KmsError> {
    let index = engine.ring.index();
    let entry = index.find(caller, &key.kid)?;
    let version = entry.version(&key);
    // Again, at the moment of use: the queue may have been long.
    entry.key.may_sign(version, engine.env.wall_ms())?;
    let held = entry.held(version).ok_or(KmsError::NoSuchKey)?;
    spec::used(&engine.env, &held.material.id);
    let digests = messages.iter().map(digest_of).collect();
    let mut operation = operation(Action::Sign, caller, entry, version, digests);
    let attestation = attest.then(|| engine.attester.evidence()).flatten();
    let id = entry.key.id(version).ok_or(KmsError::NoSuchKey)?;
    let work = pin!(async {
        let signed = engine.backend.sign(&held.material, &messages).await;
        signed.map(|signatures| Reply::Signed {
            key: id,
            algorithm: held.material.algorithm,
            signatures,
            attestation,
            receipt: PENDING,
        })
    });
    operation.op_id = op_id.as_ref().and_then(|op| op.id.clone());
    let mut reply = use_key(engine, operation, op_id, deadline, work).await?;
    if let Reply::Signed { key, receipt, .. } = &mut reply.0 {
        *receipt = reply.1;
        engine
            .env
            .probe("kms.signed", reply.1.seq, format_args!("{key}"));
    }
    Ok(reply.0)
}

async fn wrap(
    engine: &Arc<Engine>,
    caller: &Caller,
    key: KeyRef,
    plain: Secret,
    context: Vec<u8>,
    deadline: Instant,
    op_id: Option<&mut OpGuard>,
) -> Result<Reply, KmsError> {
    let index = engine.ring.index();
    let entry = index.find(caller, &key.kid)?;
    let version = entry.version(&key);
    entry.key.may_wrap(version, engine.env.wall_ms())?;
    let held = entry.held(version).ok_or(KmsError::NoSuchKey)?;
    let mut operation = operation(Action::Wrap, caller, entry, version, vec![sha256(&context)]);
    operation.op_id = op_id.as_ref().and_then(|op| op.id.clone());
    let work = pin!(async {
        let blob = seal(engine, held, &plain, &context).await?;
        Ok::<_, KmsError>(Reply::Wrapped {
            key: held.material.id.clone(),
            blob,
            receipt: PENDING,
        })
    });
    let (mut reply, told) = use_key(engine, operation, op_id, deadline, work).await?;
    if let Reply::Wrapped { receipt, .. } = &mut reply {
        *receipt = told;
    }
    Ok(reply)
}

async fn data_key(
    engine: &Arc<Engine>,
    caller: &Caller,
    key: KeyRef,
    context: Vec<u8>,
    deadline: Instant,
    op_id: Option<&mut OpGuard>,
) -> Result<Reply, KmsError> {
    let index = engine.ring.index();
    let entry = index.find(caller, &key.kid)?;
    let version = entry.version(&key);
    entry.key.may_wrap(version, engine.env.wall_ms())?;
    let held = entry.held(version).ok_or(KmsError::NoSuchKey)?;
    let digests = vec![sha256(&context)];
    let mut operation = operation(Action::DataKey, caller, entry, version, digests);
    operation.op_id = op_id.as_ref().and_then(|op| op.id.clone());
    let work = pin!(async {
        let mut fill = |buf: &mut [u8]| engine.env.fill_random(buf);
        let plain = Secret::random(DATA_KEY_LEN, &mut fill);
        let blob = seal(engine, held, &plain, &context).await?;
        Ok::<_, KmsError>(Reply::DataKey {
            key: held.material.id.clone(),
            plain,
            blob,
            receipt: PENDING,
        })
    });
    let (mut reply, told) = use_key(engine, operation, op_id, deadline, work).await?;
    if let Reply::DataKey { receipt, .. } = &mut reply {
        *receipt = told;
    }
    Ok(reply)
}

/// Also what an import begins with.
pub(crate) async fn unwrap(
    engine: &Arc<Engine>,
    caller: &Caller,
    key: &VersionedKid,
    blob: &[u8],
    context: &[u8],
    deadline: Instant,
) -> Result<(Secret, Receipt), KmsError> {
    let index = engine.ring.index();
    let entry = index.find(caller, key.kid())?;
    entry.key.may_unwrap(key.version(), engine.env.wall_ms())?;
    let held = entry.held(key.version()).ok_or(KmsError::NoSuchKey)?;
    let digests = vec![sha256(context)];
    let operation = operation(Action::Unwrap, caller, entry, key.version(), digests);
    let work = pin!(async {
        let plain = engine.backend.unwrap(&held.material, blob, context).await?;
        Ok::<_, BackendError>(Reply::Unwrapped {
            key: key.clone(),
            plain,
            receipt: PENDING,
        })
    });
    match use_key(engine, operation, None, deadline, work).await? {
        (Reply::Unwrapped { plain, .. }, receipt) => Ok((plain, receipt)),
        _ => Err(KmsError::WorkerLost),
    }
}

async fn seal(
    engine: &Engine,
    held: &Held,
    plain: &Secret,
    context: &[u8],
) -> Result<Vec<u8>, KmsError> {
    let material = &held.material;
    let nonce = match material.algorithm.needs_nonce() {
        true => Some(engine.nonces.next(&material.id).await?),
        false => None,
    };
    if let Some(nonce) = nonce {
        engine.env.probe(
            "kms.sealed",
            nonce.number(),
            format_args!("{}", material.id),
        );
    }
    let sealed = engine.backend.wrap(material, nonce, plain, context).await;
    sealed.map_err(|error| KmsError::from_backend(error, engine.backend.info().name))
}

/// Filled in once the log has told where the operation stands.
const PENDING: Receipt = Receipt {
    seq: 0,
    index: None,
};

/// A use of a key, told to the log by its policy: the heart of the service.
async fn use_key<E: IntoKms>(
    engine: &Arc<Engine>,
    operation: Operation,
    op_id: Option<&mut OpGuard>,
    deadline: Instant,
    work: Pin<&mut impl Future<Output = Result<Reply, E>>>,
) -> Result<(Reply, Receipt), KmsError> {
    let auditor = &engine.auditor;
    let action = operation.action;
    let admitted = auditor.admit_by(action, deadline).await?;
    // Strict: the intent is durable before the key is used.
    let (number, operation, intent) = match admitted {
        Some(number) => (number, Some(operation), None),
        None => {
            let event = Event::Intent { seq: 0, operation };
            let intent = auditor.record(None, event, Vec::new());
            let intent = engine.env.timeout_at(deadline, intent).await;
            let intent = intent.map_err(|_| timed_out(engine, "audit"))?;
            let intent = intent.map_err(|trouble| {
                ron_core::sometimes!("kms.strict_refused");
                KmsError::NotRecorded(trouble)
            })?;
            (Number::of_intent(auditor, intent.seq), None, Some(intent))
        }
    };
    let result = match engine.env.timeout_at(deadline, work).await {
        Ok(result) => result.map_err(|error| error.into_kms(engine)),
        Err(_) => Err(timed_out(engine, name_of(action))),
    };
    let outcome = match &result {
        Ok(_) => Outcome::Done,
        Err(error) => Outcome::Failed(error.code().to_owned()),
    };
    let kept = match (&result, &op_id) {
        (Ok(reply), Some(_)) => replay::encode(reply).unwrap_or_default(),
        _ => Vec::new(),
    };
    let seq = number.seq();
    let event = match operation {
        Some(operation) => Event::Operation {
            seq,
            operation,
            outcome,
        },
        None => Event::Outcome { seq, outcome },
    };
    let recording = auditor.record(Some(number), event, kept.clone());
    let recorded = engine.env.timeout_at(deadline, recording).await;
    let recorded = recorded.map_err(|_| timed_out(engine, "audit"));
    let reply = result?;
    let Recorded { index, .. } = recorded?.map_err(KmsError::NotRecorded)?;
    // The intent's record names the digests: it is the one worth a proof.
    let index = intent.map_or(index, |intent| intent.index);
    if let (Some(op_id), Some(index)) = (op_id, index) {
        op_id.finish(Done {
            seq,
            index,
            result: kept,
        });
    }
    Ok((reply, Receipt { seq, index }))
}

fn timed_out(engine: &Engine, op: &'static str) -> KmsError {
    engine.metrics.io_timeouts.with(&[op]).inc();
    KmsError::Timeout(op)
}

/// Backends and the engine's own steps fail in their own words.
trait IntoKms {
    fn into_kms(self, engine: &Engine) -> KmsError;
}

impl IntoKms for KmsError {
    fn into_kms(self, _: &Engine) -> KmsError {
        self
    }
}

impl IntoKms for BackendError {
    fn into_kms(self, engine: &Engine) -> KmsError {
        KmsError::from_backend(self, engine.backend.info().name)
    }
}

fn operation(
    action: Action,
    caller: &Caller,
    entry: &Entry,
    version: u32,
    digests: Vec<Hash>,
) -> Operation {
    Operation {
        action,
        tenant: entry.key.tenant().to_owned(),
        kid: entry.key.kid().as_str().to_owned(),
        version,
        alg: entry.key.algorithm().name().to_owned(),
        actor: caller.actor.clone(),
        digests,
        op_id: None,
    }
}

fn name_of(action: Action) -> &'static str {
    match action {
        Action::Sign => "sign",
        Action::Verify => "verify",
        Action::Wrap => "wrap",
        Action::Unwrap => "unwrap",
        Action::DataKey => "data_key",
        Action::Attest => "attest",
    }
}

/// Of the message; a caller's own SHA-256 hash is taken as it is.
fn digest_of(message: &Message) -> Hash {
    match message {
        Message::Whole(bytes) => sha256(bytes),
        Message::Prehashed { digest, .. } => match Hash::try_from(&digest[..]) {
            Ok(hash) => hash,
            Err(_) => sha256(digest),
        },
    }
}

fn sha256(bytes: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}
