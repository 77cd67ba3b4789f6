//! The tracker through lives, crashes and restored backups: whatever happens, no nonce comes twice.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A tracker with `count` nonces reserved from nothing.
fn with(count: u32) -> NonceTracker {
    let mut tracker = NonceTracker::open(0, 0);
    let mark = tracker.reserve(count).unwrap();
    tracker.reserved(mark).unwrap();
    tracker
}

#[test]
fn nothing_is_handed_out_before_its_range_is_confirmed() {
    let mut tracker = NonceTracker::open(0, 0);
    assert_eq!(tracker.take(), Err(NonceError::NeedsReserve));
    assert_eq!(tracker.reserve(2), Ok(2));
    assert_eq!(tracker.reserve(9), Ok(2), "one reservation at a time");
    assert_eq!(tracker.take(), Err(NonceError::NeedsReserve));
    let other = NonceError::NotAsked {
        wanted: Some(2),
        got: 3,
    };
    assert_eq!(tracker.reserved(3), Err(other));
    assert_eq!(tracker.take(), Err(NonceError::NeedsReserve));
    tracker.reserved(2).unwrap();
    assert_eq!(tracker.left(), 2);
    assert_eq!(tracker.take().map(Nonce::number), Ok(0));
    assert_eq!(tracker.take().map(Nonce::number), Ok(1));
    assert_eq!(tracker.take(), Err(NonceError::NeedsReserve));
}

#[test]
fn restart_skips_what_was_reserved() {
    let mut tracker = with(10);
    tracker.take().unwrap();
    let mut again = NonceTracker::open(10, 10);
    assert_eq!(again.take(), Err(NonceError::NeedsReserve));
    let mark = again.reserve(1).unwrap();
    again.reserved(mark).unwrap();
    assert_eq!(again.take().map(Nonce::number), Ok(10));
}

#[test]
fn store_behind_its_log_seals_nothing_until_raised() {
    let mut restored = NonceTracker::open(4, 10);
    let behind = NonceError::BehindLog {
        stored: 4,
        logged: 10,
    };
    assert_eq!(restored.take(), Err(behind));
    assert_eq!(restored.reserve(5), Err(behind));
    assert_eq!((restored.left(), restored.behind()), (0, Some(10)));
    restored.raised();
    assert_eq!(restored.behind(), None);
    assert_eq!(restored.reserve(5), Ok(15));
    restored.reserved(15).unwrap();
    assert_eq!(restored.take().map(Nonce::number), Ok(10));
    restored.observe_log(20);
    assert_eq!(restored.left(), 0);
    assert!(matches!(restored.take(), Err(NonceError::BehindLog { .. })));
    restored.observe_log(3);
    assert_eq!(restored.behind(), Some(20), "the log's mark never falls");
}

#[test]
fn failed_reservation_hands_nothing_out_and_can_be_asked_again() {
    let mut tracker = NonceTracker::open(0, 0);
    tracker.reserve(4).unwrap();
    tracker.reserve_failed();
    assert_eq!(tracker.take(), Err(NonceError::NeedsReserve));
    assert_eq!(tracker.reserve(8), Ok(8));
}

#[test]
fn last_nonce_is_the_last() {
    let mut tracker = NonceTracker::open(MAX_NONCES - 1, MAX_NONCES - 1);
    assert_eq!(tracker.reserve(100), Ok(MAX_NONCES));
    tracker.reserved(MAX_NONCES).unwrap();
    assert_eq!(tracker.take().map(Nonce::number), Ok(MAX_NONCES - 1));
    assert_eq!(tracker.take(), Err(NonceError::Exhausted));
    assert_eq!(tracker.reserve(1), Err(NonceError::Exhausted));
    let mut beyond = NonceTracker::open(u64::MAX, u64::MAX);
    assert_eq!(beyond.take(), Err(NonceError::Exhausted));
    assert_eq!(beyond.reserve(u32::MAX), Err(NonceError::Exhausted));
}

#[test]
fn bytes_count_big_endian_at_the_end() {
    assert_eq!(
        Nonce(0x0102).to_bytes(),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    );
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Take(u8),
    Reserve(u8),
    /// The process dies while a mark is being written: it may have reached neither, either or both.
    Crash {
        store: bool,
        log: bool,
        reserving: bool,
    },
    FailReserve,
    Backup,
    /// The store comes back from the backup; the log does not.
    Restore,
    Raise,
    /// It dies between the two steps of raising.
    CrashInRaise,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u8..5).prop_map(Event::Take),
        3 => (1u8..9).prop_map(Event::Reserve),
        2 => any::<(bool, bool, bool)>().prop_map(|(store, log, reserving)| Event::Crash { store, log, reserving }),
        1 => Just(Event::FailReserve),
        1 => Just(Event::Backup),
        1 => Just(Event::Restore),
        2 => Just(Event::Raise),
        1 => Just(Event::CrashInRaise),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_nonce_twice_through_crashes_and_restored_backups(
        events in proptest::collection::vec(event(), 1..60)
    ) {
        let (mut stored, mut logged, mut backup) = (0, 0, 0);
        let mut tracker = NonceTracker::open(stored, logged);
        let mut used = BTreeSet::new();
        for event in events {
            match event {
                Event::Take(count) => for _ in 0..count {
                    if let Ok(nonce) = tracker.take() {
                        prop_assert!(used.insert(nonce.to_bytes()), "{nonce:?} twice");
                        prop_assert!(nonce.number() < stored.min(logged), "used before durable");
                    }
                },
                Event::Reserve(count) => if let Ok(mark) = tracker.reserve(count.into()) {
                    (stored, logged) = (mark, mark);
                    tracker.reserved(mark).unwrap();
                },
                Event::Crash { store, log, reserving } => {
                    if reserving && let Ok(mark) = tracker.reserve(3) {
                        if store { stored = mark; }
                        if log { logged = mark; }
                    }
                    tracker = NonceTracker::open(stored, logged);
                }
                Event::FailReserve => {
                    if tracker.reserve(2).is_ok() {
                        tracker.reserve_failed();
                    }
                }
                Event::Backup => backup = stored,
                Event::Restore => {
                    stored = backup;
                    tracker = NonceTracker::open(stored, logged);
                }
                Event::Raise => if let Some(mark) = tracker.behind() {
                    stored = mark;
                    tracker.raised();
                },
                Event::CrashInRaise => {
                    if let Some(mark) = tracker.behind() {
                        stored = mark;
                    }
                    tracker = NonceTracker::open(stored, logged);
                }
            }
        }
        // It is live: raised and reserved, it hands out again.
        if let Some(mark) = tracker.behind() {
            stored = mark;
            tracker.raised();
        }
        let mark = tracker.reserve(1).unwrap();
        prop_assert!(mark > stored.min(logged));
        tracker.reserved(mark).unwrap();
        prop_assert!(used.insert(tracker.take().unwrap().to_bytes()));
    }
}
