//! How the key store lies in its database: five tables, every key and value spelled out here.
//!
//! `head` holds the format, how to unlock, the sealed data key and the sealed identity, written together.
//! A store without a head is a new one, unless it holds keys: then it is damaged.

use std::collections::BTreeMap;

use ron_core::{
    Env,
    db::{
        Db, DbError, ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction,
    },
};
use zeroize::Zeroizing;

use super::{
    Change, Contents, Identity, Kek, Recipe, SEALED_FORMAT, STORE_FORMAT, StoreError, StoredKey,
    StoredVersion, Stretch, Unlock,
};
use crate::{
    audit::frames::LogId,
    keys::{Fill, Key, Kid, Secret, VersionedKid, key::KEY_FORMAT},
};

const HEAD: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("head");
/// By kid: metadata as JSON.
const KEYS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("keys");
/// By kid and version: the sealed secret, the public half.
const VERSIONS: TableDefinition<'static, Name, Halves> = TableDefinition::new("versions");
/// By kid and version: the nonce mark.
const NONCES: TableDefinition<'static, Name, u64> = TableDefinition::new("nonces");

type Name = (&'static str, u32);
type Halves = (&'static [u8], &'static [u8]);

/// How many records the audit log had when the store was last changed with it.
const LOG: TableDefinition<'static, &str, u64> = TableDefinition::new("log");
const LOG_SIZE: &str = "size";

const SEED_LEN: usize = 32;
const DATA_KEY: &str = "data key";
const IDENTITY: &str = "identity";

/// What stands before all keys.
pub(super) struct Head {
    recipe: Recipe,
    data_key: Vec<u8>,
    identity: Vec<u8>,
}

impl Head {
    pub async fn seal(
        env: &Env,
        kek: &Kek,
        identity: &Identity,
        unlock: Unlock,
        cost: Stretch,
    ) -> Result<Head, StoreError> {
        let fill = &mut |buf: &mut [u8]| env.fill_random(buf);
        let recipe = Recipe::new(&unlock, cost, fill);
        let identity = kek.seal(IDENTITY, &identity.to_bytes(), fill);
        let outer = recipe.key(env, unlock).await?;
        let data_key = outer.seal(DATA_KEY, kek.secret().expose(), &mut |buf: &mut [u8]| {
            env.fill_random(buf)
        });
        let (Some(data_key), Some(identity)) = (data_key, identity) else {
            return Err(StoreError::Io("sealing failed".to_owned()));
        };
        Ok(Head {
            recipe,
            data_key,
            identity,
        })
    }

    pub async fn open(self, env: &Env, unlock: Unlock) -> Result<(Kek, Identity), StoreError> {
        let outer = self.recipe.key(env, unlock).await?;
        let data_key = outer.open(DATA_KEY, &self.data_key);
        let kek = data_key.and_then(Kek::from_secret);
        let kek = kek.ok_or(StoreError::WrongKey)?;
        let identity = kek.open(IDENTITY, &self.identity);
        let identity = identity.and_then(|bytes| Identity::from_bytes(&bytes));
        let identity = identity.ok_or_else(|| damaged("its identity does not open"))?;
        Ok((kek, identity))
    }
}

/// `None` in a new store.
pub(super) fn head(txn: &ReadTransaction) -> Result<Option<Head>, StoreError> {
    let Some(table) = there(txn.open_table(HEAD))? else {
        return match there(txn.open_table(KEYS))? {
            None => Ok(None),
            Some(_) => Err(damaged("it has keys and no head")),
        };
    };
    let get = |name: &str| -> Result<Vec<u8>, StoreError> {
        let found = table.get(name).map_err(DbError::from)?;
        let bytes = found.map(|value| value.value().to_vec());
        bytes.ok_or_else(|| damaged(&format!("its head has no {name}")))
    };
    let found = get("format")?.try_into().map(u32::from_be_bytes);
    let found = found.map_err(|_| damaged("its format is no number"))?;
    if found > STORE_FORMAT {
        return Err(newer(found));
    }
    Ok(Some(Head {
        recipe: serde_json::from_slice(&get("unlock")?)
            .map_err(|_| damaged("how to unlock it is not readable"))?,
        data_key: get(DATA_KEY)?,
        identity: get(IDENTITY)?,
    }))
}

pub(super) async fn create(
    env: &Env,
    db: &Db,
    unlock: Unlock,
    cost: Stretch,
) -> Result<(Kek, Identity), StoreError> {
    let fill = &mut |buf: &mut [u8]| env.fill_random(buf);
    let (kek, identity) = (Kek::random(fill), Identity::random(fill));
    let head = Head::seal(env, &kek, &identity, unlock, cost).await?;
    db.write(move |txn| set_head(txn, &head)).await?;
    Ok((kek, identity))
}

pub(super) fn set_head(txn: &WriteTransaction, head: &Head) -> Result<(), StoreError> {
    let recipe = serde_json::to_vec(&head.recipe);
    let recipe = recipe.map_err(|error| StoreError::Io(error.to_string()))?;
    let mut table = txn.open_table(HEAD).map_err(DbError::from)?;
    for (name, value) in [
        ("format", &STORE_FORMAT.to_be_bytes()[..]),
        ("unlock", &recipe),
        (DATA_KEY, &head.data_key),
        (IDENTITY, &head.identity),
    ] {
        table.insert(name, value).map_err(DbError::from)?;
    }
    Ok(())
}

pub(super) fn contents(txn: &ReadTransaction) -> Result<Contents, StoreError> {
    let mut keys: BTreeMap<Kid, StoredKey> = BTreeMap::new();
    if let Some(table) = there(txn.open_table(KEYS))? {
        for row in table.iter().map_err(DbError::from)? {
            let (kid, json) = row.map_err(DbError::from)?;
            let key = parse(kid.value(), json.value())?;
            let versions = BTreeMap::new();
            keys.insert(key.kid().clone(), StoredKey { key, versions });
        }
    }
    if let Some(table) = there(txn.open_table(VERSIONS))? {
        for row in table.iter().map_err(DbError::from)? {
            let (name, version) = row.map_err(DbError::from)?;
            let (id, (sealed, public)) = (versioned(name.value())?, version.value());
            let stored = keys.get_mut(id.kid());
            let stored = stored.ok_or_else(|| damaged(&format!("{id} belongs to no key")))?;
            let version = StoredVersion {
                sealed: sealed.to_vec(),
                public: public.to_vec(),
            };
            stored.versions.insert(id.version(), version);
        }
    }
    let mut nonces = BTreeMap::new();
    if let Some(table) = there(txn.open_table(NONCES))? {
        for row in table.iter().map_err(DbError::from)? {
            let (name, mark) = row.map_err(DbError::from)?;
            nonces.insert(versioned(name.value())?, mark.value());
        }
    }
    let log_size = match there(txn.open_table(LOG))? {
        None => 0,
        Some(table) => {
            let size = table.get(LOG_SIZE).map_err(DbError::from)?;
            size.map_or(0, |size| size.value())
        }
    };
    Ok(Contents {
        keys: keys.into_values().collect(),
        nonces,
        log_size,
    })
}

pub(super) fn raise_log_size(txn: &WriteTransaction, size: u64) -> Result<(), StoreError> {
    let mut table = txn.open_table(LOG).map_err(DbError::from)?;
    let stored = table.get(LOG_SIZE).map_err(DbError::from)?;
    let stored = stored.map_or(0, |size| size.value());
    if size > stored {
        table.insert(LOG_SIZE, size).map_err(DbError::from)?;
    }
    Ok(())
}

pub(super) fn apply(txn: &WriteTransaction, change: &Change) -> Result<(), StoreError> {
    let kid = change.key.kid().as_str();
    let json = serde_json::to_vec(&change.key);
    let json = json.map_err(|error| StoreError::Io(error.to_string()))?;
    let mut keys = txn.open_table(KEYS).map_err(DbError::from)?;
    keys.insert(kid, &json[..]).map_err(DbError::from)?;
    let mut versions = txn.open_table(VERSIONS).map_err(DbError::from)?;
    for (number, version) in &change.added {
        let value = (&version.sealed[..], &version.public[..]);
        let inserted = versions.insert((kid, *number), value);
        inserted.map_err(DbError::from)?;
    }
    for number in &change.erased {
        let found = versions.get((kid, *number)).map_err(DbError::from)?;
        if let Some(public) = found.map(|value| value.value().1.to_vec()) {
            let emptied = versions.insert((kid, *number), (&[][..], &public[..]));
            emptied.map_err(DbError::from)?;
        }
    }
    raise_log_size(txn, change.log_size)
}

pub(super) fn raise_nonce(
    txn: &WriteTransaction,
    id: &VersionedKid,
    mark: u64,
) -> Result<(), StoreError> {
    let mut table = txn.open_table(NONCES).map_err(DbError::from)?;
    let name = (id.kid().as_str(), id.version());
    let stored = table.get(name).map_err(DbError::from)?;
    let stored = stored.map_or(0, |value| value.value());
    let mark = mark.max(stored);
    table.insert(name, mark).map_err(DbError::from)?;
    Ok(())
}

/// Everything that `old` sealed is sealed by `new`; what other backends keep is left as it is.
pub(super) fn reseal(
    txn: &WriteTransaction,
    old: &Kek,
    new: &Kek,
    fill: Fill<'_>,
) -> Result<(), StoreError> {
    let keys = txn.open_table(KEYS).map_err(DbError::from)?;
    let mut versions = txn.open_table(VERSIONS).map_err(DbError::from)?;
    let mut resealed = Vec::new();
    for row in versions.iter().map_err(DbError::from)? {
        let (name, version) = row.map_err(DbError::from)?;
        let (sealed, public) = version.value();
        if sealed.first() != Some(&SEALED_FORMAT) {
            continue;
        }
        let id = versioned(name.value())?;
        let json = keys.get(id.kid().as_str()).map_err(DbError::from)?;
        let json = json.ok_or_else(|| damaged(&format!("{id} belongs to no key")))?;
        let algorithm = parse(id.kid().as_str(), json.value())?.algorithm();
        let again = old
            .open_key(&id, algorithm, sealed)
            .and_then(|secret| new.seal_key(&id, algorithm, &secret, fill))
            .ok_or_else(|| damaged(&format!("the secret of {id} does not open")))?;
        resealed.push((id, again, public.to_vec()));
    }
    for (id, sealed, public) in resealed {
        let name = (id.kid().as_str(), id.version());
        let inserted = versions.insert(name, (&sealed[..], &public[..]));
        inserted.map_err(DbError::from)?;
    }
    Ok(())
}

impl Identity {
    pub(super) fn random(fill: Fill<'_>) -> Identity {
        let mut log_id = LogId::default();
        fill(&mut log_id);
        Identity {
            log_id,
            ed25519_seed: Secret::random(SEED_LEN, fill),
            ml_dsa_44_seed: Secret::random(SEED_LEN, fill),
            attestation_seed: Secret::random(SEED_LEN, fill),
        }
    }

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let seeds = [
            &self.ed25519_seed,
            &self.ml_dsa_44_seed,
            &self.attestation_seed,
        ];
        let mut bytes = Zeroizing::new(Vec::with_capacity(IDENTITY_LEN));
        bytes.extend_from_slice(&self.log_id);
        for seed in seeds {
            bytes.extend_from_slice(seed.expose());
        }
        bytes
    }

    fn from_bytes(bytes: &Secret) -> Option<Identity> {
        let (log_id, seeds) = bytes.expose().split_first_chunk()?;
        let seed = |n: usize| Secret::copy_of(&seeds[n * SEED_LEN..(n + 1) * SEED_LEN]);
        (bytes.len() == IDENTITY_LEN).then(|| Identity {
            log_id: *log_id,
            ed25519_seed: seed(0),
            ml_dsa_44_seed: seed(1),
            attestation_seed: seed(2),
        })
    }
}

const IDENTITY_LEN: usize = size_of::<LogId>() + 3 * SEED_LEN;

fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}

fn newer(found: u32) -> StoreError {
    StoreError::Newer {
        found,
        newest: STORE_FORMAT,
    }
}

/// A table that was never written to is no error.
fn there<T>(table: Result<T, TableError>) -> Result<Option<T>, StoreError> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(DbError::from(error).into()),
    }
}

fn versioned((kid, version): (&str, u32)) -> Result<VersionedKid, StoreError> {
    let kid: Option<Kid> = kid.parse().ok();
    let id = kid.and_then(|kid| kid.version(version));
    id.ok_or_else(|| damaged("a version has no proper name"))
}

/// Metadata of a newer format may have members that are unknown here: that is said, not taken for damage.
fn parse(kid: &str, json: &[u8]) -> Result<Key, StoreError> {
    let parsed: Result<Key, _> = serde_json::from_slice(json);
    match parsed {
        Ok(key) if key.kid().as_str() == kid => Ok(key),
        Ok(_) => Err(damaged("a key lies under another's name")),
        Err(_) => {
            let value: Option<serde_json::Value> = serde_json::from_slice(json).ok();
            let format = value.and_then(|value| value.get("format")?.as_u64());
            match format.and_then(|format| u32::try_from(format).ok()) {
                Some(found) if found > KEY_FORMAT => Err(StoreError::Newer {
                    found,
                    newest: KEY_FORMAT,
                }),
                _ => Err(damaged(&format!("the metadata of {kid} is not readable"))),
            }
        }
    }
}
