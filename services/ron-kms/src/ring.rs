//! The key ring: the one writer of keys. Each change is recorded, then stored, then seen.
//!
//! A key is changed by one at a time, who holds its [`Turn`]. The log is the truth: what it told before a
//! crash is what the store becomes at the next start. Always: versions of a key only grow, a number that
//! the log told is never given twice.

pub(crate) mod spec;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ron_core::{
    Env,
    lock::{LockDecl, RankedMutex},
    snapshot::{SnapshotReader, SnapshotWriter, snapshot},
};
use tokio::sync::Notify;

use crate::{
    audit::record::{Event, KeyChange},
    auditor::{Auditor, Recorded},
    error::KmsError,
    history::KeyHistory,
    index::{Entry, Held, KeyIndex},
    keys::{Key, Kid},
    keystore::{Change, Contents, KeyStore, StoredVersion},
};

pub const RING_LOCK: LockDecl = LockDecl {
    name: "keymeta_local",
    rank: 2,
    guards: "who changes which key, and the writer of the key index",
};

const STORE_TRIES: u32 = 3;
const STORE_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct KeyRing {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    store: KeyStore,
    auditor: Arc<Auditor>,
    state: RankedMutex<State>,
    index: SnapshotReader<KeyIndex>,
    freed: Notify,
}

struct State {
    writer: SnapshotWriter<KeyIndex>,
    busy: BTreeSet<Kid>,
    /// Changed in the log but not in the store: only a restart can mend them.
    torn: BTreeSet<Kid>,
}

/// The right to change one key, until it is dropped.
pub struct Turn {
    ring: KeyRing,
    kid: Kid,
}

/// What is to be recorded, stored and seen.
pub struct Planned {
    pub key: Key,
    pub actor: String,
    /// What the log is told, by version.
    pub changes: Vec<(u32, KeyChange)>,
    pub added: Option<(u32, StoredVersion)>,
}

impl KeyRing {
    /// The store's keys as the log tells them; returns those that had to follow it.
    pub async fn open(
        env: &Env,
        store: KeyStore,
        auditor: Arc<Auditor>,
        contents: Contents,
        history: &KeyHistory,
    ) -> Result<(KeyRing, Vec<Kid>), KmsError> {
        let now = env.wall_ms();
        // A log that does not fit tells nothing that the store could follow; no key is used under it.
        let nothing = KeyHistory::default();
        let history = match auditor.step(|log| log.mismatch().is_some()) {
            true => &nothing,
            false => history,
        };
        let log_size = auditor.size();
        let mut followed = Vec::new();
        let mut keys = contents.keys;
        for stored in &mut keys {
            let reconciled = history.reconcile(&stored.key, now);
            let as_told = reconciled.as_ref().map_or(&stored.key, |(key, _)| key);
            spec::opened(env, &stored.key, as_told);
            let Some((key, lost)) = reconciled else {
                continue;
            };
            ron_core::sometimes!("kms.store_followed_log");
            if !lost.is_empty() {
                ron_core::sometimes!("kms.version_lost");
            }
            followed.push(key.kid().clone());
            stored.key = key.clone();
            let gone = |version| {
                let nothing = StoredVersion {
                    sealed: Vec::new(),
                    public: Vec::new(),
                };
                (version, nothing)
            };
            let lost: Vec<_> = lost.into_iter().map(gone).collect();
            stored.versions.extend(lost.iter().cloned());
            // In one step: a key that names a version which is not there would keep the next start from opening it.
            let change = Change {
                key,
                added: lost,
                erased: Vec::new(),
                log_size,
            };
            store_change(&store, change).await?;
        }
        let (writer, index) = snapshot(KeyIndex::from_stored(keys)?);
        let state = State {
            writer,
            busy: BTreeSet::new(),
            torn: BTreeSet::new(),
        };
        let shared = Shared {
            env: env.clone(),
            store,
            auditor,
            state: RankedMutex::new(RING_LOCK, state),
            index,
            freed: Notify::new(),
        };
        let ring = KeyRing {
            shared: Arc::new(shared),
        };
        Ok((ring, followed))
    }

    pub fn index(&self) -> Arc<KeyIndex> {
        self.shared.index.load()
    }

    /// Waits for the right to change this key.
    pub async fn turn(&self, kid: &Kid) -> Result<Turn, KmsError> {
        loop {
            // Registered before the look, so that a turn given back in between is not missed.
            let mut freed = std::pin::pin!(self.shared.freed.notified());
            freed.as_mut().enable();
            {
                let mut state = self.shared.state.lock();
                if state.torn.contains(kid) {
                    let why = "a change of this key could not be stored: restart the service";
                    return Err(KmsError::Store(why.into()));
                }
                if state.busy.insert(kid.clone()) {
                    return Ok(Turn {
                        ring: self.clone(),
                        kid: kid.clone(),
                    });
                }
            }
            ron_core::sometimes!("kms.change_waited");
            freed.await;
        }
    }

    /// Records, stores and publishes. Runs to its end even if the caller goes away: what was begun in the
    /// log must be finished in the store.
    pub async fn commit(&self, turn: Turn, planned: Planned) -> Result<Recorded, KmsError> {
        let ring = self.clone();
        let work = self.shared.env.spawn("key_change", async move {
            let done = ring.commit_now(&turn, planned).await;
            drop(turn);
            done
        });
        work.await.unwrap_or(Err(KmsError::WorkerLost))
    }

    async fn commit_now(&self, turn: &Turn, planned: Planned) -> Result<Recorded, KmsError> {
        let shared = &self.shared;
        let entry = self.entry(&planned)?;
        let spec = spec::Change::begin(&shared.env, &planned);
        let mut last = None;
        for (version, change) in planned.changes {
            let event = Event::Key {
                seq: 0,
                tenant: planned.key.tenant().to_owned(),
                kid: planned.key.kid().as_str().to_owned(),
                version,
                actor: planned.actor.clone(),
                change,
            };
            let recorded = shared.auditor.record(None, event, Vec::new()).await;
            match recorded {
                Ok(recorded) => last = Some(recorded),
                Err(trouble) => {
                    // The first part of a longer change is in the log: the rest follows at the next start.
                    if last.is_some() {
                        shared.state.lock().torn.insert(turn.kid.clone());
                    }
                    spec.tell("spec.kms.keys.given_up");
                    return Err(KmsError::NotRecorded(trouble));
                }
            }
        }
        spec.tell("spec.kms.keys.recorded");
        let change = Change {
            key: planned.key,
            added: planned.added.into_iter().collect(),
            erased: Vec::new(),
            log_size: last
                .as_ref()
                .and_then(|recorded| recorded.index)
                .map_or(0, |index| index + 1),
        };
        // Between record and store, where a crash hurts most.
        if ron_core::buggify!("kms.store_late") {
            shared.env.sleep(STORE_PAUSE).await;
        }
        let needs_store = !change.added.is_empty();
        let mut stored = store_change(&shared.store, change.clone()).await;
        for _ in 1..STORE_TRIES {
            if stored.is_ok() {
                break;
            }
            spec.tell("spec.kms.keys.store_failed");
            shared.env.sleep(STORE_PAUSE).await;
            stored = store_change(&shared.store, change.clone()).await;
        }
        let mut state = shared.state.lock();
        match stored.is_ok() {
            true => spec.tell("spec.kms.keys.stored"),
            false => {
                ron_core::sometimes!("kms.change_torn");
                state.torn.insert(turn.kid.clone());
                spec.tell("spec.kms.keys.store_failed");
            }
        }
        // A new secret that is not stored must not be used; a state that the log told must be obeyed.
        if stored.is_ok() || !needs_store {
            let (kid, head) = (entry.key.kid().clone(), entry.key.head());
            KeyIndex::publish_with(&mut state.writer, entry);
            drop(state);
            if stored.is_ok() {
                spec.published();
            }
            shared
                .env
                .probe("kms.key_changed", u64::from(head), format_args!("{kid}"));
        }
        stored?;
        last.ok_or_else(|| KmsError::Invalid("nothing to change".into()))
    }

    /// The entry as it will be seen.
    fn entry(&self, planned: &Planned) -> Result<Entry, KmsError> {
        let current = self.index();
        let current = current.get(planned.key.kid());
        let mut versions = current.map_or_else(Default::default, |entry| entry.versions.clone());
        if let Some((number, version)) = &planned.added {
            let held = Held::new(
                &planned.key,
                *number,
                version.sealed.clone(),
                version.public.clone(),
            );
            let bad = || KmsError::BackendDamaged("the backend made no valid public key".into());
            versions.insert(*number, Arc::new(held.ok_or_else(bad)?));
        }
        Ok(Entry::new(planned.key.clone(), versions))
    }

    /// Forgets the secrets of versions that the log told destroyed. Whoever keeps them elsewhere has given
    /// them up before, because afterwards nothing tells where they were.
    pub async fn erase(&self, turn: &Turn, erased: Vec<u32>) -> Result<(), KmsError> {
        let current = self.index();
        let Some(current) = current.get(&turn.kid) else {
            return Err(KmsError::NoSuchKey);
        };
        let change = Change {
            key: current.key.clone(),
            added: Vec::new(),
            erased: erased.clone(),
            log_size: 0,
        };
        store_change(&self.shared.store, change).await?;
        let mut versions = current.versions.clone();
        for number in erased {
            if let Some(held) = versions.get(&number) {
                let bare = Held::new(&current.key, number, Vec::new(), held.public_raw.clone());
                versions.extend(bare.map(|bare| (number, Arc::new(bare))));
            }
        }
        let entry = Entry::new(current.key.clone(), versions);
        KeyIndex::publish_with(&mut self.shared.state.lock().writer, entry);
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.ring.shared.state.lock().busy.remove(&self.kid);
        self.ring.shared.freed.notify_waiters();
    }
}

async fn store_change(store: &KeyStore, change: Change) -> Result<(), KmsError> {
    let stored = store.apply(change).await;
    stored.map_err(|error| KmsError::Store(error.to_string()))
}
