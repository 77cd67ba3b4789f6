//! The key index: every key with its versions' public halves, as one snapshot that readers share.
//!
//! Verifying, listing and checking what may be used read it without a lock; the one writer is the key ring.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use ron_core::snapshot::SnapshotWriter;

use crate::{
    ask::{Caller, KeyRef},
    backend::Material,
    error::KmsError,
    keys::{Key, Kid, Use, key::WallMs, public::PublicKey},
    keystore::StoredKey,
};

#[derive(Clone, Debug, Default)]
pub struct KeyIndex {
    keys: HashMap<Kid, Arc<Entry>>,
    /// Key sets as they are served, by tenant, each made at its first request: a change of any key makes
    /// another index, without them.
    key_sets: Arc<Mutex<BTreeMap<Option<String>, Bytes>>>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Key,
    /// The key's, to be shared with whoever counts by it.
    pub tenant: Arc<str>,
    pub versions: BTreeMap<u32, Arc<Held>>,
}

/// One version: its secret as the backend left it, and its public half if it has one.
#[derive(Debug)]
pub struct Held {
    pub material: Material,
    pub public: Option<PublicKey>,
    /// As stored; X-Wing has one that does not sign.
    pub public_raw: Vec<u8>,
}

impl KeyIndex {
    pub fn get(&self, kid: &Kid) -> Option<&Arc<Entry>> {
        self.keys.get(kid)
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys a caller may see, by kid.
    pub fn visible(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        let own = |entry: &&Arc<Entry>| caller.may_touch(entry.key.tenant());
        let mut entries: Vec<Arc<Entry>> = self.keys.values().filter(own).cloned().collect();
        entries.sort_by(|a, b| a.key.kid().cmp(b.key.kid()));
        entries
    }

    /// A key the caller may touch. One of another tenant is as good as absent.
    pub fn find(&self, caller: &Caller, kid: &Kid) -> Result<&Arc<Entry>, KmsError> {
        let entry = self.get(kid).ok_or(KmsError::NoSuchKey)?;
        match caller.may_touch(entry.key.tenant()) {
            true => Ok(entry),
            false => Err(KmsError::NoSuchKey),
        }
    }

    /// The caller's key set, made from what it may see unless that was done before. A tenant without keys is
    /// not remembered, so there are no more sets than tenants with keys, and one.
    pub fn key_set(&self, caller: &Caller, make: impl FnOnce(&[Arc<Entry>]) -> Bytes) -> Bytes {
        let sets = || self.key_sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sets().get(&caller.tenant) {
            return known.clone();
        }
        let visible = self.visible(caller);
        let made = make(&visible);
        if !visible.is_empty() {
            sets().insert(caller.tenant.clone(), made.clone());
        }
        made
    }

    /// The one way a change becomes visible: whole, and on top of what was published last.
    pub fn publish_with(writer: &mut SnapshotWriter<KeyIndex>, entry: Entry) {
        let next = writer.load().with(entry);
        writer.publish(next);
    }

    pub fn with(&self, entry: Entry) -> KeyIndex {
        let mut keys = self.keys.clone();
        keys.insert(entry.key.kid().clone(), Arc::new(entry));
        KeyIndex {
            keys,
            key_sets: Arc::default(),
        }
    }

    pub fn from_stored(stored: Vec<StoredKey>) -> Result<KeyIndex, KmsError> {
        let mut keys = HashMap::new();
        for stored in stored {
            let entry = Entry::from_stored(stored)?;
            keys.insert(entry.key.kid().clone(), Arc::new(entry));
        }
        Ok(KeyIndex {
            keys,
            ..KeyIndex::default()
        })
    }
}

impl Entry {
    fn from_stored(stored: StoredKey) -> Result<Entry, KmsError> {
        let damaged = |what: &str| KmsError::Store(format!("{}: {what}", stored.key.kid()));
        if !stored.key.is_sound() {
            return Err(damaged("its versions are not what they should be"));
        }
        let mut versions = BTreeMap::new();
        for (number, version) in stored.versions {
            let held = Held::new(&stored.key, number, version.sealed, version.public);
            versions.insert(
                number,
                Arc::new(held.ok_or(damaged("a public key is not one"))?),
            );
        }
        if !versions.keys().eq(stored.key.versions().keys()) {
            return Err(damaged("a version is missing"));
        }
        Ok(Entry::new(stored.key, versions))
    }

    pub fn new(key: Key, versions: BTreeMap<u32, Arc<Held>>) -> Entry {
        Entry {
            tenant: key.tenant().into(),
            key,
            versions,
        }
    }

    /// The version a caller means: the one named, or the newest.
    pub fn version(&self, wanted: &KeyRef) -> u32 {
        wanted.version.unwrap_or_else(|| self.key.newest())
    }

    pub fn held(&self, version: u32) -> Option<&Arc<Held>> {
        self.versions.get(&version)
    }

    /// Whether a public half can be shown, and to whom it is of use.
    pub fn may_show(&self, version: u32, now: WallMs) -> bool {
        self.key.algorithm().key_use() == Use::Sign && self.key.may_verify(version, now).is_ok()
    }
}

impl Held {
    pub fn new(key: &Key, version: u32, sealed: Vec<u8>, public_raw: Vec<u8>) -> Option<Held> {
        let algorithm = key.algorithm();
        let public = match algorithm.key_use() {
            // A version that was lost before it was stored has no public half.
            Use::Sign if !public_raw.is_empty() => {
                Some(PublicKey::from_raw(algorithm, &public_raw).ok()?)
            }
            Use::Sign | Use::Wrap => None,
        };
        Some(Held {
            material: Material::new(key.id(version)?, algorithm, sealed),
            public,
            public_raw,
        })
    }
}

impl Caller {
    pub fn may_touch(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|own| own == tenant)
    }
}

#[cfg(test)]
mod tests;
