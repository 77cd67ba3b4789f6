//! The key store on real files: what was reported as done is there after a restart, and only for who has
//! the passphrase or key file.
#![allow(
    clippy::disallowed_methods,
    reason = "it looks at the files from outside of the service"
)]

mod support;

use std::collections::BTreeMap;

use ron_core::{
    Env,
    db::{Db, DbError, TableDefinition},
};
use ron_kms::{
    backend::{Backend, Material, Message, SoftwareBackend},
    keys::{Algorithm, Key, Kid, Secret, VersionedKid, key::Policy},
    keystore::{Change, FILE, KeyStore, StoreError, StoredVersion, Stretch, Unlock},
};
use support::{Scratch, World};

fn passphrase(text: &str) -> Unlock {
    Unlock::Passphrase(Secret::copy_of(text.as_bytes()))
}

fn key_file(byte: u8) -> Unlock {
    Unlock::Key(Secret::copy_of(&[byte; 32]))
}

async fn open(env: &Env, unlock: Unlock) -> Result<KeyStore, StoreError> {
    KeyStore::open_with(env, unlock, Stretch::CHEAP).await
}

fn new_key(env: &Env, algorithm: Algorithm) -> Key {
    let kid = Kid::random(&mut |buf: &mut [u8]| env.fill_random(buf));
    let policy = Policy {
        min_version: 1,
        rotate_after_ms: None,
    };
    Key::create(kid, "t".into(), "p".into(), algorithm, policy, 1).unwrap()
}

fn id_of(key: &Key, version: u32) -> VersionedKid {
    key.kid().version(version).unwrap()
}

/// A key with one version, made by the software backend and stored.
async fn stored(env: &Env, store: &KeyStore, algorithm: Algorithm) -> (Key, StoredVersion) {
    let key = new_key(env, algorithm);
    let made = SoftwareBackend::new(env, store.kek());
    let made = made.generate(&id_of(&key, 1), algorithm).await.unwrap();
    let version = StoredVersion {
        sealed: made.sealed,
        public: made.public,
    };
    let change = Change {
        key: key.clone(),
        added: vec![(1, version.clone())],
        erased: Vec::new(),
        log_size: 0,
    };
    store.apply(change).await.unwrap();
    (key, version)
}

async fn signs(env: &Env, store: &KeyStore, key: &Key) -> bool {
    let contents = store.load().await.unwrap();
    let found = contents.keys.into_iter().find(|s| s.key.kid() == key.kid());
    let sealed = found.unwrap().versions.remove(&1).unwrap().sealed;
    let material = Material::new(id_of(key, 1), key.algorithm(), sealed);
    let backend = SoftwareBackend::new(env, store.kek());
    let inputs = [Message::Whole(b"m".to_vec())];
    backend.sign(&material, &inputs).await.is_ok()
}

#[test]
fn keys_nonce_marks_and_identity_survive_a_restart() {
    for unlock in [passphrase as fn(&str) -> Unlock, |_| key_file(7)] {
        let (world, dir) = (World::new(), Scratch::new("restart"));
        world.run(async {
            let env = world.on(dir.path());
            let store = open(&env, unlock("open sesame")).await.unwrap();
            let (key, version) = stored(&env, &store, Algorithm::Ed25519).await;
            store.raise_nonce(&id_of(&key, 1), 64).await.unwrap();
            store.raise_nonce(&id_of(&key, 1), 32).await.unwrap();
            let seeds = |store: &KeyStore| {
                let identity = store.identity();
                let seeds = [
                    &identity.ed25519_seed,
                    &identity.ml_dsa_44_seed,
                    &identity.attestation_seed,
                ];
                (identity.log_id, seeds.map(|s| s.expose().to_vec()))
            };
            let before = seeds(&store);
            drop(store);

            let store = open(&world.on(dir.path()), unlock("open sesame"))
                .await
                .unwrap();
            assert_eq!(seeds(&store), before);
            let contents = store.load().await.unwrap();
            assert_eq!(contents.nonces, BTreeMap::from([(id_of(&key, 1), 64)]));
            assert_eq!(contents.keys.len(), 1);
            assert_eq!(contents.keys[0].key, key);
            assert_eq!(contents.keys[0].versions, BTreeMap::from([(1, version)]));
            assert!(signs(&env, &store, &key).await);
        });
    }
}

#[test]
fn a_wrong_passphrase_or_key_file_is_refused_and_changes_nothing() {
    let (world, dir) = (World::new(), Scratch::new("wrong"));
    world.run(async {
        let env = world.on(dir.path());
        drop(open(&env, passphrase("right")).await.unwrap());
        let before = std::fs::read(dir.path().join(FILE)).unwrap();
        for (unlock, refused) in [
            (passphrase("wrong"), StoreError::WrongKey),
            (passphrase("right "), StoreError::WrongKey),
            (key_file(0), StoreError::WrongKey),
            (passphrase(""), StoreError::BadUnlock),
            (
                Unlock::Key(Secret::copy_of(&[1; 31])),
                StoreError::BadUnlock,
            ),
        ] {
            assert_eq!(open(&env, unlock).await.unwrap_err(), refused);
        }
        let after = std::fs::read(dir.path().join(FILE)).unwrap();
        // Opening marks the file as open; the tables are not touched.
        assert_eq!(before.len(), after.len());
        assert!(open(&env, passphrase("right")).await.is_ok());
    });
}

#[test]
fn a_second_process_finds_the_store_locked_whatever_it_has() {
    let (world, dir) = (World::new(), Scratch::new("locked"));
    world.run(async {
        let (one, two) = (world.on(dir.path()), world.on(dir.path()));
        let store = open(&one, key_file(1)).await.unwrap();
        for byte in [1, 2] {
            let refused = open(&two, key_file(byte)).await.unwrap_err();
            assert_eq!(refused, StoreError::Locked);
        }
        drop(store);
        assert!(open(&two, key_file(1)).await.is_ok());
    });
}

#[test]
fn another_passphrase_opens_the_same_secrets_and_the_old_one_none() {
    let (world, dir) = (World::new(), Scratch::new("passphrase"));
    world.run(async {
        let env = world.on(dir.path());
        let store = open(&env, passphrase("old")).await.unwrap();
        let (key, version) = stored(&env, &store, Algorithm::EcdsaP256).await;
        let new = passphrase("new");
        store.change_unlock(new, Stretch::CHEAP).await.unwrap();
        assert!(signs(&env, &store, &key).await);
        drop(store);
        let refused = open(&env, passphrase("old")).await.unwrap_err();
        assert_eq!(refused, StoreError::WrongKey);
        let store = open(&env, passphrase("new")).await.unwrap();
        assert!(signs(&env, &store, &key).await);
        let kept = store.load().await.unwrap().keys.remove(0);
        assert_eq!(kept.versions[&1], version, "sealed as it was");
    });
}

#[test]
fn rekey_seals_everything_anew_and_leaves_what_others_keep() {
    let (world, dir) = (World::new(), Scratch::new("rekey"));
    world.run(async {
        let env = world.on(dir.path());
        let store = open(&env, passphrase("old")).await.unwrap();
        let old = store.kek();
        let mut made = Vec::new();
        for algorithm in [
            Algorithm::Ed25519,
            Algorithm::MlDsa65,
            Algorithm::Ed25519MlDsa65,
        ] {
            made.push(stored(&env, &store, algorithm).await);
        }
        let foreign = new_key(&env, Algorithm::Ed25519);
        let elsewhere = StoredVersion {
            sealed: b"P reference".to_vec(),
            public: vec![9],
        };
        let change = Change {
            key: foreign.clone(),
            added: vec![(1, elsewhere.clone())],
            erased: Vec::new(),
            log_size: 0,
        };
        store.apply(change).await.unwrap();
        store.rekey(key_file(5), Stretch::CHEAP).await.unwrap();
        let (log_id, identity) = (store.identity().log_id, store.identity().ed25519_seed.len());
        assert_eq!(identity, 32);
        drop(store);

        assert_eq!(
            open(&env, passphrase("old")).await.unwrap_err(),
            StoreError::WrongKey
        );
        let store = open(&env, key_file(5)).await.unwrap();
        assert_eq!(store.identity().log_id, log_id);
        for (key, before) in &made {
            assert!(signs(&env, &store, key).await, "{}", key.algorithm());
            let contents = store.load().await.unwrap();
            let now = contents.keys.iter().find(|s| s.key.kid() == key.kid());
            let now = &now.unwrap().versions[&1];
            assert_eq!(now.public, before.public);
            assert_ne!(now.sealed, before.sealed);
            let opened = old.open_key(&id_of(key, 1), key.algorithm(), &now.sealed);
            assert!(opened.is_none(), "the old data key opens nothing any more");
        }
        let contents = store.load().await.unwrap();
        let kept = contents.keys.iter().find(|s| s.key.kid() == foreign.kid());
        assert_eq!(kept.unwrap().versions[&1], elsewhere);
    });
}

#[test]
fn an_erased_version_keeps_its_public_half_alone() {
    let world = World::new();
    world.run(async {
        let env = world.forgetful();
        let store = KeyStore::memory(&env).unwrap();
        let (key, version) = stored(&env, &store, Algorithm::Ed25519).await;
        let change = Change {
            key: key.clone(),
            added: Vec::new(),
            erased: vec![1, 2],
            log_size: 0,
        };
        store.apply(change).await.unwrap();
        let kept = store.load().await.unwrap().keys.remove(0).versions;
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[&1].sealed, Vec::<u8>::new());
        assert_eq!(kept[&1].public, version.public);
    });
}

const HEAD: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("head");
const KEYS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("keys");

/// Writes one value behind the store's back.
async fn tamper(
    env: &Env,
    table: TableDefinition<'static, &'static str, &'static [u8]>,
    name: &'static str,
    value: Vec<u8>,
) {
    let db = Db::open(env, FILE).await.unwrap();
    let done: Result<(), DbError> = db
        .write(move |txn| {
            txn.open_table(table)?.insert(name, &value[..])?;
            Ok(())
        })
        .await;
    done.unwrap();
}

#[test]
fn a_newer_or_damaged_store_is_refused_with_what_to_do() {
    let newer = |found| StoreError::Newer { found, newest: 1 };
    type Expect = fn(&StoreError) -> bool;
    let damaged: Expect = |error| matches!(error, StoreError::Damaged(_));
    for (name, value, expected) in [
        ("format", 2u32.to_be_bytes().to_vec(), Ok(newer(2))),
        ("format", b"x".to_vec(), Err(damaged)),
        ("unlock", b"{}".to_vec(), Err(damaged)),
        ("identity", b"short".to_vec(), Err(damaged)),
        ("data key", b"short".to_vec(), Ok(StoreError::WrongKey)),
        (
            "unlock",
            br#"{"argon2id":{"salt":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"cost":{"memory_kib":4294967295,"passes":1,"lanes":1}}}"#.to_vec(),
            Err(damaged),
        ),
    ] {
        let (world, dir) = (World::new(), Scratch::new("format"));
        world.run(async {
            let env = world.on(dir.path());
            drop(open(&env, passphrase("p")).await.unwrap());
            tamper(&env, HEAD, name, value).await;
            let refused = open(&env, passphrase("p")).await.unwrap_err();
            match expected {
                Ok(expected) => assert_eq!(refused, expected, "{name}"),
                Err(expected) => assert!(expected(&refused), "{name}: {refused}"),
            }
        });
    }
    let said = newer(2).to_string();
    assert!(
        said.contains("format 2") && said.contains("use a newer one"),
        "{said}"
    );
}

#[test]
fn metadata_that_is_newer_or_not_readable_is_said_so() {
    for (json, newest) in [
        (&br#"{"format":2,"more":1}"#[..], Some(1)),
        (br#"{"format":1}"#, None),
        (b"", None),
    ] {
        let (world, dir) = (World::new(), Scratch::new("metadata"));
        world.run(async {
            let env = world.on(dir.path());
            drop(open(&env, key_file(1)).await.unwrap());
            tamper(&env, KEYS, "AAAAAAAAAAAAAAAAAAAAAA", json.to_vec()).await;
            let store = open(&env, key_file(1)).await.unwrap();
            match (store.load().await.unwrap_err(), newest) {
                (StoreError::Newer { found: 2, newest }, Some(expected)) => {
                    assert_eq!(newest, expected);
                }
                (StoreError::Damaged(_), None) => {}
                (other, _) => panic!("{other}"),
            }
        });
    }
}

#[test]
fn keys_without_a_head_are_damage_not_a_new_store() {
    let (world, dir) = (World::new(), Scratch::new("headless"));
    world.run(async {
        let env = world.on(dir.path());
        tamper(&env, KEYS, "x", vec![]).await;
        let refused = open(&env, key_file(1)).await.unwrap_err();
        assert!(matches!(refused, StoreError::Damaged(_)), "{refused}");
    });
}

#[test]
fn no_secret_lies_in_the_file() {
    let (world, dir) = (World::new(), Scratch::new("at-rest"));
    world.run(async {
        let env = world.on(dir.path());
        let store = open(&env, passphrase("correct horse battery staple"))
            .await
            .unwrap();
        let backend = SoftwareBackend::new(&env, store.kek());
        let key = new_key(&env, Algorithm::Ed25519);
        let secret = [0xA7; 32];
        let made = backend
            .import(
                &id_of(&key, 1),
                Algorithm::Ed25519,
                Secret::copy_of(&secret),
            )
            .await
            .unwrap();
        let version = StoredVersion {
            sealed: made.sealed,
            public: made.public,
        };
        let change = Change {
            key,
            added: vec![(1, version)],
            erased: Vec::new(),
            log_size: 0,
        };
        store.apply(change).await.unwrap();
        let identity = store.identity();
        let secrets = [
            &secret[..],
            identity.ed25519_seed.expose(),
            identity.ml_dsa_44_seed.expose(),
            identity.attestation_seed.expose(),
            b"correct horse",
        ];
        let file = std::fs::read(dir.path().join(FILE)).unwrap();
        for secret in secrets {
            let found = file.windows(secret.len()).any(|window| window == secret);
            assert!(!found, "{} bytes of a secret", secret.len());
        }
    });
}
