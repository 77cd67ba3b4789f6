//! The key store: metadata, sealed secrets, nonce marks and the service's own identity, kept across restarts.
//!
//! One transaction per change; what a call reported as done is durable. Secrets are in it only as their
//! backend sealed them. It is opened by one process at a time.

use std::{collections::BTreeMap, sync::Arc};

use ron_core::{
    Env,
    lock::{LockDecl, RankedMutex},
};

use crate::{
    audit::frames::LogId,
    keys::{Key, Secret, VersionedKid},
};

/// What opens the store.
#[derive(Debug)]
pub enum Unlock {
    /// The key-encryption key itself, from a key file.
    Key(Secret),
    /// Stretched by Argon2id with the parameters that the store holds.
    Passphrase(Secret),
}

/// One version as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// As the backend made it; empty once destroyed.
    pub sealed: Vec<u8>,
    pub public: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    pub key: Key,
    pub versions: BTreeMap<u32, StoredVersion>,
}

/// All that is there at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub keys: Vec<StoredKey>,
    /// The end of what was ever reserved.
    pub nonces: BTreeMap<VersionedKid, u64>,
}

/// One change of one key, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub added: Option<(u32, StoredVersion)>,
    /// Versions whose sealed secret is wiped.
    pub erased: Vec<u32>,
}

/// The service's own secrets, made at the first start.
#[derive(Debug)]
pub struct Identity {
    pub log_id: LogId,
    pub ed25519_seed: Secret,
    pub ml_dsa_44_seed: Secret,
    pub attestation_seed: Secret,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("another process has the key store open")]
    Locked,
    #[error("the passphrase or key file is not the one this key store was sealed with")]
    WrongKey,
    #[error("the key store has format {found}, this program reads up to {newest}: use a newer one")]
    Newer { found: u32, newest: u32 },
    #[error("the key store is damaged: {0}")]
    Damaged(String),
    #[error("the key store cannot be read or written: {0}")]
    Io(String),
}

#[derive(Clone)]
pub struct KeyStore {
    contents: Arc<RankedMutex<Contents>>,
    identity: Arc<Identity>,
}

const STORE_LOCK: LockDecl = LockDecl {
    name: "key_store",
    rank: 10,
    guards: "the stored keys",
};

impl KeyStore {
    /// In memory: nothing survives the process.
    pub fn memory(env: &Env) -> Result<KeyStore, StoreError> {
        let mut fill = |buf: &mut [u8]| env.fill_random(buf);
        let mut log_id = LogId::default();
        fill(&mut log_id);
        let mut seed = || Secret::random(32, &mut fill);
        let identity = Identity {
            log_id,
            ed25519_seed: seed(),
            ml_dsa_44_seed: seed(),
            attestation_seed: seed(),
        };
        Ok(KeyStore {
            contents: Arc::new(RankedMutex::new(STORE_LOCK, Contents::default())),
            identity: Arc::new(identity),
        })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    #[allow(clippy::unused_async)]
    pub async fn load(&self) -> Result<Contents, StoreError> {
        Ok(self.contents.lock().clone())
    }

    #[allow(clippy::unused_async)]
    pub async fn apply(&self, change: Change) -> Result<(), StoreError> {
        let mut contents = self.contents.lock();
        let kid = change.key.kid().clone();
        let at = contents.keys.iter().position(|k| *k.key.kid() == kid);
        let at = at.unwrap_or_else(|| {
            contents.keys.push(StoredKey {
                key: change.key.clone(),
                versions: BTreeMap::new(),
            });
            contents.keys.len() - 1
        });
        let stored = &mut contents.keys[at];
        stored.key = change.key;
        stored.versions.extend(change.added);
        for version in change.erased {
            if let Some(version) = stored.versions.get_mut(&version) {
                version.sealed.clear();
            }
        }
        Ok(())
    }

    #[allow(clippy::unused_async)]
    pub async fn raise_nonce(&self, id: &VersionedKid, mark: u64) -> Result<(), StoreError> {
        let mut contents = self.contents.lock();
        let stored = contents.nonces.entry(id.clone()).or_default();
        *stored = (*stored).max(mark);
        Ok(())
    }
}
