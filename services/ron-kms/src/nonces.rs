//! Nonces for the signer pool: one tracker per key version, ranges made durable before use.
//!
//! The store's mark is raised before the log tells it, so a crash leaves the store ahead, never behind: a
//! store behind its log is a restored backup, and seals nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use ron_core::lock::{LockDecl, RankedMutex};

use crate::{
    audit::record::Event,
    auditor::Auditor,
    error::KmsError,
    keys::{
        VersionedKid,
        nonce::{Nonce, NonceError, NonceTracker},
    },
    keystore::KeyStore,
};

pub const NONCE_LOCK: LockDecl = LockDecl {
    name: "nonce_tracker",
    rank: 1,
    guards: "the next nonce of each key version",
};

pub struct Nonces {
    /// Reserved at a time: what a crash skips at most.
    range: u32,
    trackers: RankedMutex<HashMap<VersionedKid, NonceTracker>>,
    stored: BTreeMap<VersionedKid, u64>,
    logged: BTreeMap<(String, u32), u64>,
    store: KeyStore,
    auditor: Arc<Auditor>,
}

impl Nonces {
    /// `stored` and `logged` are the marks found at the start.
    pub fn new(
        range: u32,
        stored: BTreeMap<VersionedKid, u64>,
        logged: BTreeMap<(String, u32), u64>,
        store: KeyStore,
        auditor: Arc<Auditor>,
    ) -> Nonces {
        Nonces {
            range,
            trackers: RankedMutex::new(NONCE_LOCK, HashMap::new()),
            stored,
            logged,
            store,
            auditor,
        }
    }

    /// A nonce that was never used with this version.
    pub async fn next(&self, id: &VersionedKid) -> Result<Nonce, KmsError> {
        loop {
            let mark = {
                let mut trackers = self.trackers.lock();
                let tracker = trackers.entry(id.clone()).or_insert_with(|| self.open(id));
                match tracker.take() {
                    Ok(nonce) => return Ok(nonce),
                    Err(NonceError::NeedsReserve) => {
                        ron_core::sometimes!("kms.nonces_reserved");
                        tracker.reserve(self.range)?
                    }
                    Err(error) => {
                        ron_core::sometimes!("kms.nonces_behind_log");
                        return Err(error.into());
                    }
                }
            };
            let reserved = self.make_durable(id, mark).await;
            let mut trackers = self.trackers.lock();
            let Some(tracker) = trackers.get_mut(id) else {
                continue;
            };
            match reserved {
                // Whoever asked for the same range may have been faster.
                Ok(()) => drop(tracker.reserved(mark)),
                Err(error) => {
                    tracker.reserve_failed();
                    return Err(error);
                }
            }
        }
    }

    fn open(&self, id: &VersionedKid) -> NonceTracker {
        let stored = self.stored.get(id).copied().unwrap_or(0);
        let name = (id.kid().as_str().to_owned(), id.version());
        let logged = self.logged.get(&name).copied().unwrap_or(0);
        NonceTracker::open(stored, logged)
    }

    async fn make_durable(&self, id: &VersionedKid, mark: u64) -> Result<(), KmsError> {
        let stored = self.store.raise_nonce(id, mark).await;
        stored.map_err(|error| KmsError::Store(error.to_string()))?;
        let event = Event::NonceMark {
            kid: id.kid().as_str().to_owned(),
            version: id.version(),
            next: mark,
        };
        let recorded = self.auditor.record(None, event, Vec::new()).await;
        recorded.map(|_| ()).map_err(KmsError::NotRecorded)
    }
}
