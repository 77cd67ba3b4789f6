//! The laws of following the log: nothing falls, nothing comes back, and once is enough.

use proptest::prelude::*;

use super::*;
use crate::keys::{Algorithm, Kid, key::Policy};

const NOW: u64 = 1_000;

fn key(versions: u32) -> Key {
    let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(3));
    let policy = Policy {
        min_version: 1,
        rotate_after_ms: None,
    };
    let made = Key::create(kid, "t".into(), "p".into(), Algorithm::Ed25519, policy, 0);
    let mut key = made.unwrap();
    for _ in 1..versions {
        key.rotate(0).unwrap();
    }
    key
}

fn tell(history: &mut KeyHistory, key: &Key, version: u32, change: KeyChange) {
    let event = Event::Key {
        seq: 0,
        tenant: "t".into(),
        kid: key.kid().as_str().to_owned(),
        version,
        actor: "a".into(),
        change,
    };
    history.record(NOW, &event);
}

fn history(key: &Key, changes: &[(u32, KeyChange)]) -> KeyHistory {
    let mut history = KeyHistory::default();
    for (version, change) in changes {
        tell(&mut history, key, *version, change.clone());
    }
    history
}

fn created() -> KeyChange {
    KeyChange::Created {
        alg: "ed25519".into(),
    }
}

fn state(key: &Key, version: u32) -> State {
    key.versions()[&version].state
}

#[test]
fn a_store_that_tells_the_same_as_the_log_is_left_alone() {
    let key = key(2);
    let told = [(1, created()), (2, KeyChange::Rotated { from: 1 })];
    assert_eq!(history(&key, &told).reconcile(&key, NOW), None);
    assert_eq!(
        KeyHistory::default().reconcile(&key, NOW),
        None,
        "no word of it"
    );
    let other = history(&key, &[(1, KeyChange::Disabled)]);
    let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(4));
    let policy = key.policy();
    let stranger = Key::create(kid, "t".into(), "p".into(), Algorithm::Ed25519, policy, 0);
    assert_eq!(
        other.reconcile(&stranger.unwrap(), NOW),
        None,
        "of another key"
    );
}

#[test]
fn a_version_that_only_the_log_has_is_destroyed_and_its_number_is_spent() {
    let stored = key(1);
    let rotated = |from| KeyChange::Rotated { from };
    let told = [(1, created()), (2, rotated(1)), (3, rotated(2))];
    let (key, lost) = history(&stored, &told).reconcile(&stored, NOW).unwrap();
    assert_eq!(lost, [2, 3]);
    assert_eq!(key.head(), 3);
    assert_eq!(state(&key, 1), State::Enabled);
    for version in lost {
        assert_eq!(state(&key, version), State::Destroyed { at_ms: NOW });
        assert!(key.may_sign(version, NOW).is_err());
    }
    let mut next = key.clone();
    assert_eq!(next.rotate(NOW), Ok(4));
}

#[test]
fn each_change_becomes_the_state_that_it_tells_of() {
    for (changes, expected) in [
        (vec![KeyChange::Disabled], State::Disabled),
        (
            vec![KeyChange::Disabled, KeyChange::Enabled],
            State::Enabled,
        ),
        (
            vec![KeyChange::DestroyScheduled { at_ms: 77 }],
            State::Scheduled { at_ms: 77 },
        ),
        (
            vec![
                KeyChange::DestroyScheduled { at_ms: 77 },
                KeyChange::DestroyCancelled,
            ],
            State::Disabled,
        ),
        (vec![KeyChange::Destroyed], State::Destroyed { at_ms: NOW }),
    ] {
        let mut stored = key(2);
        if expected == State::Enabled {
            stored.disable(1, 0).unwrap();
        }
        let told: Vec<_> = changes.into_iter().map(|change| (1, change)).collect();
        let (key, lost) = history(&stored, &told).reconcile(&stored, NOW).unwrap();
        assert_eq!(state(&key, 1), expected);
        assert_eq!(
            state(&key, 2),
            State::Enabled,
            "the other version is as it was"
        );
        assert!(lost.is_empty());
    }
}

#[test]
fn the_minimum_is_the_highest_ever_told_and_never_falls() {
    let mut stored = key(3);
    let minimum = |version| KeyChange::MinVersion { version };
    let told = history(&stored, &[(2, minimum(2)), (1, minimum(1))]);
    let (followed, _) = told.reconcile(&stored, NOW).unwrap();
    assert_eq!(followed.policy().min_version, 2);
    let policy = Policy {
        min_version: 3,
        rotate_after_ms: None,
    };
    stored.set_policy(policy).unwrap();
    assert_eq!(told.reconcile(&stored, NOW), None);
}

#[test]
fn what_is_no_change_of_a_key_tells_nothing_of_keys() {
    let mut told = KeyHistory::default();
    told.record(NOW, &Event::Reserve { end: 9 });
    told.record(NOW, &Event::Closed { next: 9 });
    assert_eq!(told, KeyHistory::default());
}

fn any_change() -> impl Strategy<Value = (u32, KeyChange)> {
    let change = prop_oneof![
        Just(KeyChange::Disabled),
        Just(KeyChange::Enabled),
        Just(KeyChange::Destroyed),
        Just(KeyChange::DestroyCancelled),
        (1..3_000_u64).prop_map(|at_ms| KeyChange::DestroyScheduled { at_ms }),
        (1..6_u32).prop_map(|version| KeyChange::MinVersion { version }),
        (1..6_u32).prop_map(|from| KeyChange::Rotated { from }),
    ];
    (1..6_u32, change)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // proves: KMS-10.11
    #[test]
    fn following_the_log_loses_nothing_and_once_is_enough(
        versions in 1..4_u32,
        gone in prop::option::of(1..4_u32),
        changes in prop::collection::vec(any_change(), 0..12),
    ) {
        let mut stored = key(versions);
        let gone = gone.filter(|version| *version <= versions);
        if let Some(version) = gone {
            stored.schedule_destroy(version, crate::keys::key::MIN_WAIT_MS, 0).unwrap();
            stored.destroy_due(crate::keys::key::MIN_WAIT_MS);
        }
        let told = history(&stored, &changes);
        let Some((followed, lost)) = told.reconcile(&stored, NOW) else {
            return Ok(());
        };
        prop_assert!(followed.is_sound());
        prop_assert!(followed.head() >= stored.head());
        prop_assert!(followed.policy().min_version >= stored.policy().min_version);
        prop_assert_eq!(lost, (stored.head() + 1..=followed.head()).collect::<Vec<_>>());
        if let Some(version) = gone {
            prop_assert_eq!(state(&followed, version), state(&stored, version));
        }
        prop_assert_eq!(told.reconcile(&followed, NOW), None);
    }
}
