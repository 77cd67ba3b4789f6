//! The life of versions, by hand for each rule and against a naive reference for all orders.

use proptest::prelude::*;

use super::*;

const DAY: u64 = MIN_WAIT_MS;

fn policy(min_version: u32) -> Policy {
    Policy {
        min_version,
        rotate_after_ms: None,
    }
}

fn key_of(algorithm: Algorithm, versions: u32) -> Key {
    let kid = Kid::random(&mut |buf: &mut [u8]| buf.fill(1));
    let (tenant, purpose) = ("acme".to_owned(), "tokens".to_owned());
    let mut key = Key::create(kid, tenant, purpose, algorithm, policy(1), 0).unwrap();
    for _ in 1..versions {
        key.rotate(0).unwrap();
    }
    key
}

fn key(versions: u32) -> Key {
    key_of(Algorithm::Ed25519, versions)
}

#[test]
fn rotation_makes_a_new_head_and_leaves_earlier_versions_usable() {
    let mut key = key(1);
    assert_eq!((key.head(), key.rotate(5), key.head()), (1, Ok(2), 2));
    for version in [1, 2] {
        assert_eq!(key.may_sign(version, 9), Ok(()));
        assert_eq!(key.may_verify(version, 9), Ok(()));
    }
    for version in [0, 3] {
        let none = Err(Refusal::NoSuchVersion(version));
        assert_eq!(key.may_sign(version, 9), none);
        assert_eq!(key.may_verify(version, 9), none);
    }
}

#[test]
fn disabled_version_verifies_but_does_not_sign_until_enabled() {
    let mut key = key(2);
    key.disable(1, 0).unwrap();
    assert_eq!(key.may_sign(1, 0), Err(Refusal::Disabled(1)));
    assert_eq!(key.may_verify(1, 0), Ok(()));
    assert_eq!(key.may_sign(2, 0), Ok(()));
    key.enable(1, 0).unwrap();
    assert_eq!(key.may_sign(1, 0), Ok(()));
}

#[test]
fn below_the_minimum_nothing_is_made_but_what_was_made_counts() {
    let below = Refusal::BelowMinimum {
        version: 1,
        minimum: 2,
    };
    let mut signs = key(2);
    signs.set_policy(policy(2)).unwrap();
    assert_eq!(signs.may_sign(1, 0), Err(below));
    assert_eq!(signs.may_verify(1, 0), Ok(()));
    assert_eq!(signs.may_sign(2, 0), Ok(()));
    let mut wraps = key_of(Algorithm::Aes256Gcm, 2);
    wraps.set_policy(policy(2)).unwrap();
    assert_eq!(wraps.may_wrap(1, 0), Err(below));
    assert_eq!(wraps.may_unwrap(1, 0), Ok(()));
    wraps.disable(1, 0).unwrap();
    assert_eq!(wraps.may_unwrap(1, 0), Err(Refusal::Disabled(1)));
}

#[test]
fn key_is_used_in_its_own_way_only() {
    let (signs, wraps) = (key(1), key_of(Algorithm::ChaCha20Poly1305, 1));
    assert_eq!(signs.may_wrap(1, 0), Err(Refusal::WrongUse(Use::Sign)));
    assert_eq!(signs.may_unwrap(1, 0), Err(Refusal::WrongUse(Use::Sign)));
    assert_eq!(wraps.may_sign(1, 0), Err(Refusal::WrongUse(Use::Wrap)));
    assert_eq!(wraps.may_verify(1, 0), Err(Refusal::WrongUse(Use::Wrap)));
}

#[test]
fn minimum_rises_up_to_the_head_and_never_falls() {
    let mut key = key(3);
    key.set_policy(policy(2)).unwrap();
    for asked in [0, 1, 4] {
        let refused = Refusal::MinimumOutOfRange {
            asked,
            from: 2,
            head: 3,
        };
        assert_eq!(key.set_policy(policy(asked)), Err(refused));
    }
    assert_eq!(key.policy(), policy(2));
    let zero = Policy {
        min_version: 2,
        rotate_after_ms: Some(0),
    };
    assert_eq!(key.set_policy(zero), Err(Refusal::RotateAfterZero));
}

#[test]
fn destruction_waits_can_be_cancelled_in_time_and_is_for_ever_after() {
    let mut key = key(2);
    for wait in [0, DAY - 1, MAX_WAIT_MS + 1] {
        let refused = Err(Refusal::WaitOutOfRange);
        assert_eq!(key.schedule_destroy(1, wait, 7), refused);
    }
    assert_eq!(key.cancel_destroy(1, 7), Err(Refusal::NotScheduled(1)));
    let at_ms = key.schedule_destroy(1, DAY, 7).unwrap();
    assert_eq!(at_ms, DAY + 7);
    let scheduled = Refusal::Scheduled { version: 1, at_ms };
    assert_eq!(key.may_sign(1, 8), Err(scheduled));
    assert_eq!(key.may_verify(1, 8), Err(scheduled));
    assert_eq!(key.enable(1, 8), Err(scheduled));
    assert_eq!(key.schedule_destroy(1, DAY, 8), Err(scheduled));
    assert_eq!(key.destroy_due(at_ms - 1), [0u32; 0]);
    key.cancel_destroy(1, at_ms - 1).unwrap();
    assert_eq!(key.may_sign(1, at_ms), Err(Refusal::Disabled(1)));
    assert_eq!(key.destroy_due(at_ms), [0u32; 0], "cancelled");

    let at_ms = key.schedule_destroy(1, DAY, 0).unwrap();
    let gone = Err(Refusal::Destroyed(1));
    assert_eq!(key.may_verify(1, at_ms), gone, "due, though not yet wiped");
    assert_eq!(key.cancel_destroy(1, at_ms), gone);
    assert_eq!(key.destroy_due(at_ms), [1]);
    assert_eq!(key.destroy_due(at_ms), [0u32; 0], "named once");
    // Even if the wall clock jumps back.
    for now in [0, at_ms, u64::MAX] {
        assert_eq!(key.may_sign(1, now), gone);
        assert_eq!(key.enable(1, now), gone);
        assert_eq!(key.disable(1, now), gone);
        assert_eq!(key.cancel_destroy(1, now), gone);
    }
    assert_eq!(key.may_sign(2, at_ms), Ok(()));
}

#[test]
fn rotation_is_due_by_the_age_of_the_head() {
    let mut key = key(1);
    assert!(!key.due_for_rotation(u64::MAX), "never without a policy");
    key.set_policy(Policy {
        min_version: 1,
        rotate_after_ms: Some(100),
    })
    .unwrap();
    assert!(!key.due_for_rotation(99));
    assert!(key.due_for_rotation(100));
    key.rotate(100).unwrap();
    assert!(!key.due_for_rotation(199));
    assert!(!key.due_for_rotation(0), "the wall clock may jump back");
}

#[test]
fn versions_are_bounded() {
    let most = u32::try_from(MAX_VERSIONS).unwrap();
    assert!(key(most - 1).may_rotate_by_itself(0));
    let mut key = key(most);
    assert!(!key.may_rotate_by_itself(0), "nobody tries in vain");
    assert_eq!(key.rotate(0), Err(Refusal::TooManyVersions));
    assert_eq!(key.head(), most);
    assert!(key.is_sound());
}

#[test]
fn metadata_reads_back_and_what_we_cannot_have_written_is_unsound() {
    let mut key = key(2);
    key.schedule_destroy(1, DAY, 7).unwrap();
    let json = serde_json::to_string(&key).unwrap();
    assert_eq!(serde_json::from_str::<Key>(&json).unwrap(), key);
    assert!(key.is_sound());
    for (from, to) in [
        ("\"format\":1", "\"format\":2"),
        ("\"min_version\":1", "\"min_version\":3"),
        ("\"min_version\":1", "\"min_version\":0"),
        ("\"2\":{", "\"3\":{"),
        ("\"1\":{", "\"7\":{"),
    ] {
        let changed = json.replace(from, to);
        assert_ne!(changed, json, "{from}");
        assert!(!serde_json::from_str::<Key>(&changed).unwrap().is_sound());
    }
    let unknown = json.replacen('{', "{\"x\":1,", 1);
    assert!(serde_json::from_str::<Key>(&unknown).is_err());
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Rotate,
    Minimum(u32),
    Disable(u32),
    Enable(u32),
    Schedule(u32, u64),
    Cancel(u32),
    Destroy,
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Rotate),
        1 => (0u32..8).prop_map(Act::Minimum),
        2 => (0u32..8).prop_map(Act::Disable),
        2 => (0u32..8).prop_map(Act::Enable),
        2 => (0u32..8, 0..3 * DAY).prop_map(|(v, w)| Act::Schedule(v, w)),
        1 => (0u32..8).prop_map(Act::Cancel),
        1 => Just(Act::Destroy),
        2 => (0..2 * DAY).prop_map(Act::Pass),
    ]
}

/// What a version is, told from its history alone, as slowly and plainly as can be.
fn told(history: &[(Act, u64)], version: u32) -> (bool, bool) {
    let (mut versions, mut minimum) = (1, 1);
    let (mut enabled, mut due, mut dead) = (true, None::<u64>, false);
    for &(act, at) in history {
        dead |= due.is_some_and(|due| due <= at) && matches!(act, Act::Destroy);
        let idle = due.is_none() && !dead && version <= versions;
        match act {
            Act::Rotate => versions += 1,
            Act::Minimum(m) if (minimum..=versions).contains(&m) => minimum = m,
            Act::Disable(v) if v == version && idle => enabled = false,
            Act::Enable(v) if v == version && idle => enabled = true,
            Act::Schedule(v, wait) if v == version && idle && wait >= DAY => due = Some(at + wait),
            Act::Cancel(v) if v == version && !dead && due.is_some_and(|due| due > at) => {
                (due, enabled) = (None, false);
            }
            _ => {}
        }
    }
    let known = (1..=versions).contains(&version);
    let alive = known && !dead && due.is_none();
    (alive && enabled && version >= minimum, alive)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn versions_do_what_their_history_says_and_heads_only_grow(
        acts in proptest::collection::vec(act(), 0..40)
    ) {
        let mut key = key(1);
        let (mut now, mut history) = (0, Vec::new());
        for act in acts {
            let (head, minimum) = (key.head(), key.policy().min_version);
            let _ = match act {
                Act::Rotate => key.rotate(now).map(|_| ()),
                Act::Minimum(min) => key.set_policy(policy(min)),
                Act::Disable(v) => key.disable(v, now),
                Act::Enable(v) => key.enable(v, now),
                Act::Schedule(v, wait) => key.schedule_destroy(v, wait, now).map(|_| ()),
                Act::Cancel(v) => key.cancel_destroy(v, now),
                Act::Destroy => { key.destroy_due(now); Ok(()) }
                Act::Pass(ms) => { now += ms; Ok(()) }
            };
            history.push((act, now));
            prop_assert!(key.is_sound());
            prop_assert_eq!(key.head(), head + u32::from(matches!(act, Act::Rotate)));
            prop_assert!(key.policy().min_version >= minimum);
            for version in 0..10 {
                let (signs, verifies) = told(&history, version);
                prop_assert_eq!(key.may_sign(version, now).is_ok(), signs, "v{} {:?}", version, history);
                prop_assert_eq!(key.may_verify(version, now).is_ok(), verifies);
            }
        }
    }
}
