//! The two writers between store and log: the key ring and the nonces, before a log of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ron_core::{
    Env, bus::Bus, readiness::Readiness, shutdown::Shutdown, supervisor::TaskContext,
    telemetry::Telemetry,
};
use ron_kms::{
    appender,
    audit::{log::Mismatch, record::KeyChange},
    auditor::{Auditor, Opening, Recovered},
    config::Config,
    error::KmsError,
    keys::{
        Algorithm, Key, Kid, VersionedKid,
        key::{Policy, State},
        nonce::NonceError,
    },
    keystore::{KeyStore, StoredVersion},
    metrics::Metrics,
    nonces::Nonces,
    ring::{KeyRing, Planned},
};

use crate::clockwork::{World, in_world};

struct Bench {
    env: Env,
    store: KeyStore,
    auditor: Arc<Auditor>,
}

impl Bench {
    /// A log with its appender, and an empty store.
    async fn new(world: &World) -> Bench {
        let env = world.env();
        let store = KeyStore::memory(&env).unwrap();
        let auditor = open(&env, &store, true).await.auditor;
        let context = TaskContext {
            env: env.clone(),
            stop: Shutdown::new(),
            incarnation: 0,
            worker: 0,
        };
        env.spawn("appender", appender::run(auditor.clone(), context));
        Bench {
            env,
            store,
            auditor,
        }
    }

    async fn ring(&self) -> KeyRing {
        let contents = self.store.load().await.unwrap();
        let history = open(&self.env, &self.store, false).await.history;
        let (store, auditor) = (self.store.clone(), self.auditor.clone());
        let opened = KeyRing::open(&self.env, store, auditor, contents, &history).await;
        opened.unwrap().0
    }

    async fn nonces(&self, logged: BTreeMap<(String, u32), u64>) -> Nonces {
        let stored = self.store.load().await.unwrap().nonces;
        Nonces::new(
            1024,
            stored,
            logged,
            self.store.clone(),
            self.auditor.clone(),
        )
    }
}

async fn open(env: &Env, store: &KeyStore, fresh: bool) -> Recovered {
    let readiness = Readiness::new(env.clone(), Bus::new());
    let opening = Opening {
        env,
        config: &Config::default(),
        identity: store.identity(),
        metrics: Metrics::new(&Telemetry::new("test", "")),
        gate: readiness.gate("checkpoint_recent"),
        fresh,
        log_size: store.load().await.unwrap().log_size,
    };
    Auditor::open(opening).await.unwrap()
}

fn kid(seed: u8) -> Kid {
    Kid::random(&mut |buf: &mut [u8]| buf.fill(seed))
}

fn new_key(seed: u8) -> Key {
    let policy = Policy {
        min_version: 1,
        rotate_after_ms: None,
    };
    let made = Key::create(
        kid(seed),
        "t".into(),
        "p".into(),
        Algorithm::Aes256Gcm,
        policy,
        0,
    );
    made.unwrap()
}

fn creating(key: &Key) -> Planned {
    let stored = StoredVersion {
        sealed: vec![1],
        public: Vec::new(),
    };
    let alg = key.algorithm().name().to_owned();
    Planned {
        key: key.clone(),
        actor: "a".into(),
        changes: vec![(1, KeyChange::Created { alg })],
        added: Some((1, stored)),
    }
}

fn disabling(key: &Key) -> Planned {
    let mut key = key.clone();
    key.disable(1, 0).unwrap();
    Planned {
        changes: vec![(1, KeyChange::Disabled)],
        added: None,
        ..creating(&key)
    }
}

// proves: KMS-1.2
#[test]
fn a_key_is_changed_by_one_at_a_time_and_another_key_meanwhile() {
    in_world(|world| async move {
        let ring = Bench::new(&world).await.ring().await;
        let first = ring.turn(&kid(1)).await.unwrap();
        let other = world.timed(ring.turn(&kid(2))).await;
        assert_eq!(other.0, 0, "another key waits for nobody");
        let (began, holding) = (Arc::new(()), Arc::new(()));
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let (ring, world) = (ring.clone(), world.clone());
                let (began, holding) = (began.clone(), holding.clone());
                tokio::spawn(async move {
                    let turn = ring.turn(&kid(1)).await.unwrap();
                    drop(began);
                    assert_eq!(Arc::strong_count(&holding), 6, "somebody else has it too");
                    let mine = (holding.clone(), turn);
                    world.pass(10).await;
                    drop(mine);
                    // Kept until all are done, so that the count above is of turns alone.
                    holding
                })
            })
            .collect();
        world.pass(100).await;
        assert_eq!(
            Arc::strong_count(&began),
            6,
            "nobody before it is given back"
        );
        drop(first);
        let mut kept = Vec::new();
        for turn in waiting {
            kept.push(turn.await.unwrap());
        }
        assert_eq!(Arc::strong_count(&began), 1);
    });
}

#[test]
fn a_change_is_recorded_then_stored_then_seen_and_survives_its_caller() {
    in_world(|world| async move {
        let bench = Bench::new(&world).await;
        let ring = bench.ring().await;
        let key = new_key(1);
        let turn = ring.turn(key.kid()).await.unwrap();
        world.stall_disk(true);
        // The caller goes away while the log waits for the disk.
        let commit = ring.commit(turn, creating(&key));
        let gone = tokio::time::timeout(std::time::Duration::from_millis(5), commit).await;
        assert!(gone.is_err());
        assert!(
            ring.index().get(key.kid()).is_none(),
            "not seen before it is recorded"
        );
        let (waited, turn) = {
            let (ring, kid) = (ring.clone(), key.kid().clone());
            let next = tokio::spawn(async move { ring.turn(&kid).await.unwrap() });
            world.pass(50).await;
            world.stall_disk(false);
            world.timed(next).await
        };
        assert_eq!(waited, 0);
        assert_eq!(ring.index().get(key.kid()).unwrap().key, key, "it went on");
        assert_eq!(bench.store.load().await.unwrap().keys.len(), 1);
        let told = ring.commit(turn.unwrap(), disabling(&key)).await.unwrap();
        assert!(told.index.is_some(), "durable");
        let seen = ring.index().get(key.kid()).unwrap().key.clone();
        assert_eq!(seen.versions()[&1].state, State::Disabled);
        // A start finds the same.
        let again = bench.ring().await;
        assert_eq!(again.index().get(key.kid()).unwrap().key, seen);
    });
}

#[test]
fn what_the_log_does_not_take_is_neither_stored_nor_seen() {
    in_world(|world| async move {
        let bench = Bench::new(&world).await;
        let ring = bench.ring().await;
        let key = new_key(1);
        bench
            .auditor
            .step(|log| log.handle_mismatch(Mismatch::Replaced));
        let turn = ring.turn(key.kid()).await.unwrap();
        let refused = ring.commit(turn, creating(&key)).await.unwrap_err();
        assert!(matches!(refused, KmsError::NotRecorded(_)), "{refused}");
        assert_eq!(bench.auditor.metrics.audit_dropped.get(), 1);
        assert!(ring.index().is_empty());
        assert!(bench.store.load().await.unwrap().keys.is_empty());
        assert!(
            ring.turn(key.kid()).await.is_ok(),
            "the turn was given back"
        );
    });
}

// proves: KMS-4.2
#[test]
fn the_index_is_read_without_the_lock_of_its_writer() {
    in_world(|world| async move {
        let ring = Bench::new(&world).await.ring().await;
        // A turn is what changes a key; whoever reads needs none.
        let _turn = ring.turn(&kid(1)).await.unwrap();
        let outer = ron_core::lock::RankedMutex::new(ron_kms::ring::RING_LOCK, ());
        let _held = outer.lock();
        // Taking a lock of the same rank would panic.
        assert!(ring.index().is_empty());
    });
}

fn id(version: u32) -> VersionedKid {
    kid(1).version(version).unwrap()
}

// proves: KMS-1.2
#[test]
fn no_nonce_is_handed_out_twice_to_many_at_once_or_after_a_restart() {
    in_world(|world| async move {
        let bench = Bench::new(&world).await;
        let nonces = Arc::new(bench.nonces(BTreeMap::new()).await);
        let takers: Vec<_> = (0..8)
            .map(|_| {
                let nonces = nonces.clone();
                tokio::spawn(async move {
                    let mut taken = Vec::new();
                    for _ in 0..400 {
                        taken.push(nonces.next(&id(1)).await.unwrap().number());
                        tokio::task::yield_now().await;
                    }
                    taken
                })
            })
            .collect();
        let mut seen = BTreeSet::new();
        for taker in takers {
            for number in taker.await.unwrap() {
                assert!(seen.insert(number), "{number} twice");
            }
        }
        assert_eq!(seen.len(), 3_200);
        assert_eq!(
            nonces.next(&id(2)).await.unwrap().number(),
            0,
            "a version of its own"
        );
        let marks = bench.store.load().await.unwrap().nonces;
        let mark = marks[&id(1)];
        assert!(mark > *seen.last().unwrap(), "reserved before use");
        let told = open(&bench.env, &bench.store, false).await.nonces;
        assert_eq!(
            told[&(kid(1).as_str().to_owned(), 1)],
            mark,
            "and told by the log"
        );
        let later = bench.nonces(told).await;
        assert!(later.next(&id(1)).await.unwrap().number() >= mark);
    });
}

#[test]
fn the_store_is_raised_before_the_log_is_told() {
    in_world(|world| async move {
        let bench = Bench::new(&world).await;
        bench
            .auditor
            .step(|log| log.handle_mismatch(Mismatch::Replaced));
        let nonces = bench.nonces(BTreeMap::new()).await;
        let refused = nonces.next(&id(1)).await.unwrap_err();
        assert!(matches!(refused, KmsError::NotRecorded(_)), "{refused}");
        let marks = bench.store.load().await.unwrap().nonces;
        assert!(
            marks[&id(1)] > 0,
            "a crash leaves the store ahead, never behind"
        );
    });
}

#[test]
fn a_store_behind_its_log_seals_nothing() {
    in_world(|world| async move {
        let bench = Bench::new(&world).await;
        let logged = BTreeMap::from([((kid(1).as_str().to_owned(), 1), 2_048)]);
        bench.store.raise_nonce(&id(1), 1_024).await.unwrap();
        let nonces = bench.nonces(logged).await;
        let behind = NonceError::BehindLog {
            stored: 1_024,
            logged: 2_048,
        };
        for _ in 0..2 {
            let refused = nonces.next(&id(1)).await.unwrap_err();
            assert_eq!(refused, KmsError::Nonce(behind));
        }
        assert!(
            nonces.next(&id(2)).await.is_ok(),
            "another version is not concerned"
        );
    });
}
