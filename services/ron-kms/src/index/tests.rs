//! Who sees which key, what a stored key must be, and that a change is seen whole.

use ron_core::snapshot::snapshot;

use super::*;
use crate::{
    keys::{Algorithm, key::Policy},
    keystore::StoredVersion,
};

fn key(seed: u8, tenant: &str, versions: u32) -> Key {
    let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(seed));
    let policy = Policy {
        min_version: 1,
        rotate_after_ms: None,
    };
    let made = Key::create(
        kid,
        tenant.into(),
        "p".into(),
        Algorithm::Aes256Gcm,
        policy,
        0,
    );
    let mut key = made.unwrap();
    for _ in 1..versions {
        key.rotate(0).unwrap();
    }
    key
}

fn stored(key: Key) -> StoredKey {
    let version = |n: &u32| StoredVersion {
        sealed: vec![*n as u8],
        public: Vec::new(),
    };
    let versions = key.versions().keys().map(|n| (*n, version(n))).collect();
    StoredKey { key, versions }
}

fn index(keys: Vec<Key>) -> KeyIndex {
    KeyIndex::from_stored(keys.into_iter().map(stored).collect()).unwrap()
}

fn caller(tenant: Option<&str>) -> Caller {
    Caller {
        actor: "a".into(),
        tenant: tenant.map(str::to_owned),
    }
}

#[test]
fn a_key_of_another_tenant_is_as_good_as_absent() {
    let (own, foreign) = (key(2, "t1", 1), key(1, "t2", 1));
    let index = index(vec![own.clone(), foreign.clone()]);
    let me = caller(Some("t1"));
    assert_eq!(index.find(&me, own.kid()).unwrap().key, own);
    let absent = Kid::random(&mut |buf: &mut [u8]| buf.fill(9));
    for kid in [foreign.kid(), &absent] {
        assert_eq!(index.find(&me, kid).unwrap_err(), KmsError::NoSuchKey);
    }
    assert!(index.find(&caller(None), foreign.kid()).is_ok());
    let kids = |who: &Caller| {
        let seen = index.visible(who).into_iter();
        seen.map(|e| e.key.kid().clone()).collect::<Vec<_>>()
    };
    assert_eq!(kids(&me), [own.kid().clone()]);
    let mut all = vec![own.kid().clone(), foreign.kid().clone()];
    all.sort();
    assert_eq!(kids(&caller(None)), all, "in order");
    assert_eq!((index.len(), index.is_empty()), (2, false));
}

#[test]
fn a_key_set_is_made_once_for_each_tenant_with_keys_and_anew_after_a_change() {
    let index = index(vec![key(1, "t1", 1), key(2, "t2", 1)]);
    let made = std::cell::Cell::new(0);
    let set_of = |index: &KeyIndex, tenant: Option<&str>| {
        index.key_set(&caller(tenant), |entries| {
            made.set(made.get() + 1);
            entries.len().to_string().into()
        })
    };
    for (tenant, keys) in [(Some("t1"), "1"), (Some("t2"), "1"), (None, "2")] {
        assert_eq!(set_of(&index, tenant), keys);
        assert_eq!(set_of(&index, tenant), keys);
    }
    assert_eq!(made.get(), 3);
    for _ in 0..2 {
        assert_eq!(set_of(&index, Some("nobody")), "0");
    }
    assert_eq!(made.get(), 5, "nothing is kept for who has nothing");
    let more = index.with(Entry::new(key(3, "t1", 1), BTreeMap::new()));
    assert_eq!(set_of(&more, Some("t1")), "2");
}

#[test]
fn a_version_that_is_named_is_meant_and_else_the_newest() {
    let key = key(1, "t", 3);
    let index = index(vec![key.clone()]);
    let entry = index.get(key.kid()).unwrap();
    for (version, meant) in [(None, 3), (Some(2), 2), (Some(9), 9)] {
        let wanted = KeyRef {
            kid: key.kid().clone(),
            version,
        };
        assert_eq!(entry.version(&wanted), meant);
        assert_eq!(entry.held(meant).is_some(), meant <= 3);
    }
    assert_eq!(entry.held(2).unwrap().material.sealed, [2]);
    assert_eq!(entry.held(2).unwrap().material.id, key.id(2).unwrap());
    assert!(!entry.may_show(1, 0), "a key that wraps has no public half");
}

#[test]
fn what_is_stored_must_have_every_version_and_no_other() {
    let whole = stored(key(1, "t", 2));
    let mut missing = whole.clone();
    missing.versions.remove(&1);
    let mut more = whole.clone();
    let extra = more.versions[&1].clone();
    more.versions.insert(3, extra);
    for broken in [missing, more] {
        let refused = KeyIndex::from_stored(vec![broken]);
        assert!(matches!(refused, Err(KmsError::Store(_))));
    }
    let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(1));
    let policy = whole.key.policy();
    let signing = Key::create(kid, "t".into(), "p".into(), Algorithm::Ed25519, policy, 0);
    let mut signing = stored(signing.unwrap());
    assert!(
        KeyIndex::from_stored(vec![signing.clone()]).is_ok(),
        "lost before it was stored"
    );
    signing.versions.get_mut(&1).unwrap().public = vec![1, 2, 3];
    let refused = KeyIndex::from_stored(vec![signing]).unwrap_err();
    assert!(refused.to_string().contains("public key"), "{refused}");
}

// proves: KMS-4.2
#[test]
fn a_reader_keeps_what_it_loaded_and_loads_every_key_as_last_published() {
    let (one, two) = (key(1, "t", 1), key(2, "t", 1));
    let (mut writer, reader) = snapshot(index(vec![one.clone(), two.clone()]));
    let before = reader.load();
    let mut rotated = one.clone();
    rotated.rotate(0).unwrap();
    let entry = Entry::from_stored(stored(rotated)).unwrap();
    KeyIndex::publish_with(&mut writer, entry);
    assert_eq!(before.get(one.kid()).unwrap().key.head(), 1);
    let after = reader.load();
    assert_eq!(after.get(one.kid()).unwrap().key.head(), 2);
    assert_eq!(
        after.get(two.kid()).unwrap().key,
        two,
        "the others are still there"
    );
}
