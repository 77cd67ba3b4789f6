//! Changes of keys: create, rotate, import, disable, destroy. Decided by [`Key`], carried out by the ring.

use std::{sync::Arc, time::Instant};

use crate::{
    ask::{Ask, Caller, KeyRef, Receipt, Reply},
    audit::record::KeyChange,
    backend::{BackendError, Made},
    engine::Engine,
    error::KmsError,
    index::{Entry, Held},
    keys::{
        Algorithm, Key, Kid, Use, VersionedKid,
        key::{Policy, State},
        sealing::imported_secret,
        signing::SigningKey,
    },
    keystore::StoredVersion,
    ring::{Planned, Turn},
    signer,
};

/// Who acts when the service acts by itself.
const HOUSEKEEPER: &str = "ron-kms";

pub(crate) async fn perform(
    engine: &Arc<Engine>,
    caller: &Caller,
    ask: Ask,
    deadline: Instant,
) -> Result<Reply, KmsError> {
    let actor = &caller.actor;
    match ask {
        Ask::Create {
            tenant,
            purpose,
            algorithm,
            policy,
        } => create(engine, actor, tenant, purpose, algorithm, policy, deadline).await,
        Ask::Rotate { kid, from } => {
            let (turn, entry) = begin(engine, caller, &kid).await?;
            rotate(engine, actor, turn, &entry, from, deadline).await
        }
        Ask::Import {
            kid,
            under,
            blob,
            context,
        } => import(engine, caller, kid, under, blob, context, deadline).await,
        Ask::SetPolicy { kid, policy } => set_policy(engine, caller, kid, policy).await,
        Ask::Disable(id) => {
            switch(engine, caller, id, KeyChange::Disabled, |key, n, now| {
                key.disable(n, now)
            })
            .await
        }
        Ask::Enable(id) => {
            switch(engine, caller, id, KeyChange::Enabled, |key, n, now| {
                key.enable(n, now)
            })
            .await
        }
        Ask::ScheduleDestroy { key, wait_ms } => {
            schedule_destroy(engine, caller, key, wait_ms).await
        }
        Ask::CancelDestroy { key } => cancel_destroy(engine, caller, key).await,
        Ask::Sign { .. } | Ask::Wrap { .. } | Ask::Unwrap { .. } | Ask::DataKey { .. } => {
            Err(KmsError::Invalid("not a change of a key".into()))
        }
    }
}

/// What time brings: versions due for destruction, keys due for rotation.
pub(crate) async fn housekeep(engine: &Arc<Engine>) {
    let now = engine.env.wall_ms();
    let everyone = Caller {
        actor: HOUSEKEEPER.to_owned(),
        tenant: None,
    };
    let index = engine.ring.index();
    for entry in index.visible(&everyone) {
        let limit = engine.config.load().deadline.rotate_ms;
        let deadline = engine.env.now() + std::time::Duration::from_millis(limit);
        let due = |v: &State| matches!(v, State::Scheduled { at_ms } if *at_ms <= now);
        let is_due = entry.key.versions().values().any(|v| due(&v.state));
        if is_due || !unerased(&entry).is_empty() {
            let done = destroy_due(engine, &everyone, entry.key.kid(), deadline).await;
            warn_of(entry.key.kid(), "destroyed", done);
        }
        if rotates_by_itself(&entry.key, now) {
            ron_core::sometimes!("kms.rotation_due");
            let head = Some(entry.key.head());
            let done = async {
                let (turn, entry) = begin(engine, &everyone, entry.key.kid()).await?;
                // Whoever had the turn before may have taken it out of use, or changed its policy.
                if rotates_by_itself(&entry.key, now) {
                    rotate(engine, HOUSEKEEPER, turn, &entry, head, deadline).await?;
                }
                Ok(())
            };
            warn_of(entry.key.kid(), "rotated", done.await);
        }
    }
}

fn rotates_by_itself(key: &Key, now: u64) -> bool {
    key.may_rotate_by_itself(now) && key.due_for_rotation(now)
}

fn warn_of(kid: &Kid, what: &str, done: Result<(), KmsError>) {
    if let Err(error) = done {
        tracing::warn!(%kid, %error, "a key that is due could not be {what}");
    }
}

async fn begin(
    engine: &Arc<Engine>,
    caller: &Caller,
    kid: &Kid,
) -> Result<(Turn, Arc<Entry>), KmsError> {
    let turn = engine.ring.turn(kid).await?;
    let entry = engine.ring.index().find(caller, kid)?.clone();
    Ok((turn, entry))
}

async fn create(
    engine: &Arc<Engine>,
    actor: &str,
    tenant: String,
    purpose: String,
    algorithm: Algorithm,
    policy: Policy,
    deadline: Instant,
) -> Result<Reply, KmsError> {
    let kid = Kid::random(&mut |buf: &mut [u8]| engine.env.fill_random(buf));
    let now = engine.env.wall_ms();
    let key = Key::create(kid.clone(), tenant, purpose, algorithm, policy, now)?;
    let turn = engine.ring.turn(&kid).await?;
    let id = name(&key, 1)?;
    let made = generate(engine, &id, algorithm, deadline).await?;
    let alg = algorithm.name().to_owned();
    let changes = vec![(1, KeyChange::Created { alg })];
    commit(engine, turn, key, actor, changes, Some((1, made))).await
}

async fn rotate(
    engine: &Arc<Engine>,
    actor: &str,
    turn: Turn,
    entry: &Entry,
    from: Option<u32>,
    deadline: Instant,
) -> Result<Reply, KmsError> {
    let mut key = entry.key.clone();
    let head = key.head();
    if let Some(expected) = from.filter(|from| *from != head) {
        return Err(KmsError::HeadMoved { expected, head });
    }
    let version = key.rotate(engine.env.wall_ms())?;
    let id = name(&key, version)?;
    let made = generate(engine, &id, key.algorithm(), deadline).await?;
    let changes = vec![(version, KeyChange::Rotated { from: head })];
    commit(engine, turn, key, actor, changes, Some((version, made))).await
}

async fn import(
    engine: &Arc<Engine>,
    caller: &Caller,
    kid: Kid,
    under: VersionedKid,
    blob: Vec<u8>,
    context: Vec<u8>,
    deadline: Instant,
) -> Result<Reply, KmsError> {
    let (plain, _) = signer::unwrap(engine, caller, &under, &blob, &context, deadline).await?;
    let (turn, entry) = begin(engine, caller, &kid).await?;
    let mut key = entry.key.clone();
    let algorithm = key.algorithm();
    let version = key.rotate(engine.env.wall_ms())?;
    let id = name(&key, version)?;
    let secret = match algorithm.key_use() {
        Use::Sign => SigningKey::import_pkcs8(algorithm, plain.expose())?,
        Use::Wrap => imported_secret(&id, algorithm, &plain)?,
    };
    let making = engine.backend.import(&id, algorithm, secret);
    let made = within(engine, deadline, making).await?;
    let alg = algorithm.name().to_owned();
    let changes = vec![(version, KeyChange::Imported { alg })];
    commit(
        engine,
        turn,
        key,
        &caller.actor,
        changes,
        Some((version, made)),
    )
    .await
}

async fn set_policy(
    engine: &Arc<Engine>,
    caller: &Caller,
    kid: Kid,
    policy: Policy,
) -> Result<Reply, KmsError> {
    let (turn, entry) = begin(engine, caller, &kid).await?;
    let mut key = entry.key.clone();
    key.set_policy(policy)?;
    let version = policy.min_version;
    let changes = vec![(version, KeyChange::MinVersion { version })];
    commit(engine, turn, key, &caller.actor, changes, None).await
}

async fn switch(
    engine: &Arc<Engine>,
    caller: &Caller,
    id: VersionedKid,
    change: KeyChange,
    decide: impl FnOnce(&mut Key, u32, u64) -> Result<(), crate::keys::key::Refusal>,
) -> Result<Reply, KmsError> {
    let (turn, entry) = begin(engine, caller, id.kid()).await?;
    let mut key = entry.key.clone();
    decide(&mut key, id.version(), engine.env.wall_ms())?;
    let changes = vec![(id.version(), change)];
    commit(engine, turn, key, &caller.actor, changes, None).await
}

async fn schedule_destroy(
    engine: &Arc<Engine>,
    caller: &Caller,
    wanted: KeyRef,
    wait_ms: u64,
) -> Result<Reply, KmsError> {
    let (turn, entry) = begin(engine, caller, &wanted.kid).await?;
    let mut key = entry.key.clone();
    let now = engine.env.wall_ms();
    let mut changes = Vec::new();
    for version in versions(&entry.key, &wanted, |state| {
        matches!(state, State::Enabled | State::Disabled)
    }) {
        let at_ms = key.schedule_destroy(version, wait_ms, now)?;
        changes.push((version, KeyChange::DestroyScheduled { at_ms }));
    }
    commit(engine, turn, key, &caller.actor, changes, None).await
}

async fn cancel_destroy(
    engine: &Arc<Engine>,
    caller: &Caller,
    wanted: KeyRef,
) -> Result<Reply, KmsError> {
    let (turn, entry) = begin(engine, caller, &wanted.kid).await?;
    let mut key = entry.key.clone();
    let now = engine.env.wall_ms();
    let mut changes = Vec::new();
    for version in versions(&entry.key, &wanted, |state| {
        matches!(state, State::Scheduled { .. })
    }) {
        key.cancel_destroy(version, now)?;
        changes.push((version, KeyChange::DestroyCancelled));
    }
    commit(engine, turn, key, &caller.actor, changes, None).await
}

/// First the log tells it and nobody may use the version; then the backend gives the secret up; then the store
/// forgets where it was. What fails, or a crash cuts short, is taken up again by the next housekeeping.
async fn destroy_due(
    engine: &Arc<Engine>,
    caller: &Caller,
    kid: &Kid,
    deadline: Instant,
) -> Result<(), KmsError> {
    let (turn, entry) = begin(engine, caller, kid).await?;
    let mut key = entry.key.clone();
    let due = key.destroy_due(engine.env.wall_ms());
    if !due.is_empty() {
        ron_core::sometimes!("kms.key_destroyed");
        let planned = Planned {
            key,
            actor: caller.actor.clone(),
            changes: due.iter().map(|n| (*n, KeyChange::Destroyed)).collect(),
            added: None,
        };
        engine.ring.commit(turn, planned).await?;
    } else {
        drop(turn);
    }
    let (turn, entry) = begin(engine, caller, kid).await?;
    let left = unerased(&entry);
    for held in left.iter().filter_map(|n| entry.held(*n)) {
        within(engine, deadline, engine.backend.destroy(&held.material)).await?;
    }
    match left.is_empty() {
        true => Ok(()),
        false => engine.ring.erase(&turn, left).await,
    }
}

/// Destroyed versions whose secret, or where it is kept, is still known.
fn unerased(entry: &Entry) -> Vec<u32> {
    let destroyed = |n: &u32| {
        let version = entry.key.versions().get(n);
        version.is_some_and(|v| matches!(v.state, State::Destroyed { .. }))
    };
    let known = |held: &Arc<Held>| !held.material.sealed.is_empty();
    let versions = entry.versions.iter();
    let left = versions.filter(|(n, held)| destroyed(n) && known(held));
    left.map(|(n, _)| *n).collect()
}

/// The one named, or all in a fitting state; one that is named is never skipped silently.
fn versions(key: &Key, wanted: &KeyRef, fits: impl Fn(&State) -> bool) -> Vec<u32> {
    match wanted.version {
        Some(version) => vec![version],
        None => key
            .versions()
            .iter()
            .filter(|(_, version)| fits(&version.state))
            .map(|(number, _)| *number)
            .collect(),
    }
}

async fn commit(
    engine: &Arc<Engine>,
    turn: Turn,
    key: Key,
    actor: &str,
    changes: Vec<(u32, KeyChange)>,
    added: Option<(u32, Made)>,
) -> Result<Reply, KmsError> {
    let version = changes.last().map_or(0, |(version, _)| *version);
    let kid = key.kid().clone();
    if changes.is_empty() {
        return Err(KmsError::Invalid("no version is in a fitting state".into()));
    }
    let added = added.map(|(number, made)| {
        let stored = StoredVersion {
            sealed: made.sealed,
            public: made.public,
        };
        (number, stored)
    });
    let planned = Planned {
        key,
        actor: actor.to_owned(),
        changes,
        added,
    };
    let recorded = engine.ring.commit(turn, planned).await?;
    let receipt = Receipt {
        seq: recorded.seq,
        index: recorded.index,
    };
    Ok(Reply::Key {
        kid,
        version,
        receipt,
    })
}

async fn generate(
    engine: &Arc<Engine>,
    id: &VersionedKid,
    algorithm: Algorithm,
    deadline: Instant,
) -> Result<Made, KmsError> {
    within(engine, deadline, engine.backend.generate(id, algorithm)).await
}

async fn within<T>(
    engine: &Arc<Engine>,
    deadline: Instant,
    work: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, KmsError> {
    match engine.env.timeout_at(deadline, work).await {
        Ok(done) => done.map_err(|error| KmsError::from_backend(error, engine.backend.info().name)),
        Err(_) => {
            engine.metrics.io_timeouts.with(&["rotate"]).inc();
            Err(KmsError::Timeout("rotate"))
        }
    }
}

fn name(key: &Key, version: u32) -> Result<VersionedKid, KmsError> {
    key.id(version).ok_or(KmsError::NoSuchKey)
}
