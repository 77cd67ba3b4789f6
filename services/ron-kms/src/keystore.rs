//! The key store: metadata, sealed secrets, nonce marks and the service's own identity, kept across restarts.
//!
//! One transaction per change; what a call reported as done is durable. Secrets are in it only as their
//! backend sealed them, the identity only under the data key. It is opened by one process at a time.
//!
//! Erasing a version removes its sealed secret from the store; pages that held it are freed, not
//! overwritten, and hold nothing but ciphertext under the data key.

mod kek;
mod tables;
mod unlock;

use std::{collections::BTreeMap, sync::Arc};

use ron_core::{
    Env,
    db::{Db, DbError},
    lock::{LockDecl, RankedMutex},
};

use self::unlock::Recipe;
pub use self::{
    kek::{KEK_LEN, Kek, SEALED_FORMAT},
    unlock::{Stretch, Unlock},
};
use crate::{
    audit::frames::LogId,
    keys::{Key, Secret, VersionedKid},
};

/// The file, in the data root.
pub const FILE: &str = "keys.redb";
/// The format written; every one up to it is read.
pub const STORE_FORMAT: u32 = 1;

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
    /// The audit log had at least so many records: one that has fewer is an old copy.
    pub log_size: u64,
}

/// One change of one key, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub added: Vec<(u32, StoredVersion)>,
    /// Versions whose sealed secret is wiped.
    pub erased: Vec<u32>,
    /// Records in the audit log, this change's own included.
    pub log_size: u64,
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
    #[error("a key file holds exactly {KEK_LEN} bytes, and a passphrase is not empty")]
    BadUnlock,
    #[error("the key store has format {found}, this program reads up to {newest}: use a newer one")]
    Newer { found: u32, newest: u32 },
    #[error("the key store is damaged: {0}: put a backup of {FILE} in its place")]
    Damaged(String),
    #[error("the key store cannot be read or written: {0}")]
    Io(String),
}

/// A handle; clones share one store.
#[derive(Clone, Debug)]
pub struct KeyStore {
    env: Env,
    db: Db,
    kek: Arc<RankedMutex<Arc<Kek>>>,
    identity: Arc<Identity>,
}

const KEK_LOCK: LockDecl = LockDecl {
    name: "key_store_kek",
    rank: 10,
    guards: "which data key seals",
};

impl KeyStore {
    /// In memory: nothing survives the process.
    pub fn memory(env: &Env) -> Result<KeyStore, StoreError> {
        let fill = &mut |buf: &mut [u8]| env.fill_random(buf);
        let (kek, identity) = (Kek::random(fill), Identity::random(fill));
        Ok(KeyStore::of(env, Db::memory(env)?, kek, identity))
    }

    /// The store in the data root; a new one is sealed with what opens it from now on.
    pub async fn open(env: &Env, unlock: Unlock) -> Result<KeyStore, StoreError> {
        KeyStore::open_with(env, unlock, Stretch::default()).await
    }

    /// With this much work for a passphrase, if the store is new.
    pub async fn open_with(
        env: &Env,
        unlock: Unlock,
        cost: Stretch,
    ) -> Result<KeyStore, StoreError> {
        unlock.check()?;
        let db = Db::open(env, FILE).await?;
        let (kek, identity) = match db.read(tables::head).await? {
            Some(head) => head.open(env, unlock).await?,
            None => tables::create(env, &db, unlock, cost).await?,
        };
        Ok(KeyStore::of(env, db, kek, identity))
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What the software backend seals with.
    pub fn kek(&self) -> Arc<Kek> {
        self.kek.lock().clone()
    }

    pub async fn load(&self) -> Result<Contents, StoreError> {
        self.db.read(tables::contents).await
    }

    pub async fn apply(&self, change: Change) -> Result<(), StoreError> {
        self.db.write(move |txn| tables::apply(txn, &change)).await
    }

    /// Never lowers a mark.
    pub async fn raise_nonce(&self, id: &VersionedKid, mark: u64) -> Result<(), StoreError> {
        let id = id.clone();
        let raise = move |txn: &_| tables::raise_nonce(txn, &id, mark);
        self.db.write(raise).await
    }

    /// The audit log has so many records, durably. Never lowers the number.
    pub async fn raise_log_size(&self, size: u64) -> Result<(), StoreError> {
        let raise = move |txn: &_| tables::raise_log_size(txn, size);
        self.db.write(raise).await
    }

    /// From now on this opens the store. The secrets stay as they are sealed.
    pub async fn change_unlock(&self, new: Unlock, cost: Stretch) -> Result<(), StoreError> {
        let sealed = self.seal_data_key(&self.kek(), new, cost).await?;
        self.db
            .write(move |txn| tables::set_head(txn, &sealed))
            .await
    }

    /// A new data key: everything is sealed anew, in one transaction, and this opens the store from now
    /// on. Nothing else may use the store meanwhile: what it sealed under the old key would not open.
    pub async fn rekey(&self, new: Unlock, cost: Stretch) -> Result<(), StoreError> {
        let fill = &mut |buf: &mut [u8]| self.env.fill_random(buf);
        let kek = Arc::new(Kek::random(fill));
        let sealed = self.seal_data_key(&kek, new, cost).await?;
        let (old, next, env) = (self.kek(), kek.clone(), self.env.clone());
        let reseal = move |txn: &_| {
            tables::reseal(txn, &old, &next, &mut |buf: &mut [u8]| env.fill_random(buf))?;
            tables::set_head(txn, &sealed)
        };
        self.db.write(reseal).await?;
        *self.kek.lock() = kek;
        Ok(())
    }

    async fn seal_data_key(
        &self,
        kek: &Kek,
        unlock: Unlock,
        cost: Stretch,
    ) -> Result<tables::Head, StoreError> {
        unlock.check()?;
        tables::Head::seal(&self.env, kek, &self.identity, unlock, cost).await
    }

    fn of(env: &Env, db: Db, kek: Kek, identity: Identity) -> KeyStore {
        KeyStore {
            env: env.clone(),
            db,
            kek: Arc::new(RankedMutex::new(KEK_LOCK, Arc::new(kek))),
            identity: Arc::new(identity),
        }
    }
}

impl From<DbError> for StoreError {
    fn from(error: DbError) -> StoreError {
        match error {
            DbError::Locked => StoreError::Locked,
            DbError::Damaged(what) => StoreError::Damaged(what),
            DbError::Io(what) => StoreError::Io(what),
        }
    }
}
