//! The account of numbers and of checkpoints: honest ones add up, false ones are refused though signed.

use proptest::prelude::*;
use ron_kms::audit::{
    log::Policy,
    record::{Event, GapReason, KeyChange, Outcome},
};

use crate::{
    DIR, disk, disk_of, done, refused, verify,
    written::{Keys, Writer, operation, submission, used},
};

#[test]
fn an_orderly_end_leaves_nothing_open_and_tells_unused_numbers() {
    let (disk, keys) = (disk(), Keys::new(1));
    let mut writer = Writer::open(&disk, DIR, &keys, Policy::Shed);
    writer.operate(10);
    writer.close();
    let summary = verify(&disk).unwrap();
    assert_eq!((summary.open, summary.missing_at_most), (None, 0));
    assert_eq!((summary.unused, summary.beyond_checkpoint), (0, 0));
    let close_over = |told, next| {
        let mut events = vec![Event::Reserve { end: 50 }, done(told)];
        events.push(Event::Closed { next });
        let disk = disk_of(&keys, events);
        verify(&disk).unwrap().unused
    };
    assert_eq!(close_over(0, 1), 0);
    assert_eq!(close_over(3, 4), 3);
    assert_eq!(close_over(3, 6), 5);
}

#[test]
fn strict_logs_pair_intents_and_outcomes() {
    let (disk, keys) = (disk(), Keys::new(1));
    let mut writer = Writer::open(&disk, DIR, &keys, Policy::Strict);
    let intent = Event::Intent {
        seq: 0,
        operation: operation(),
    };
    writer.append(vec![
        submission(None, intent.clone()),
        submission(None, intent),
    ]);
    let outcome = |seq| Event::Outcome {
        seq,
        outcome: Outcome::Done,
    };
    writer.append(vec![submission(Some(1), outcome(1))]);
    writer.checkpoint();
    let summary = verify(&disk).unwrap();
    assert_eq!((summary.operations, summary.open), (2, None));
}

/// A service that signs a false account is found out by its own records.
#[test]
fn false_accounts_are_refused_though_they_are_signed() {
    let keys = Keys::new(1);
    let gap = |first, count| Event::Gap {
        first,
        count,
        reason: GapReason::QueueFull,
    };
    let restart = |first, end, at_most| Event::RestartGap {
        first,
        end,
        at_most,
    };
    let key = |seq| Event::Key {
        seq,
        tenant: "acme".into(),
        kid: "k".into(),
        version: 1,
        actor: "alice".into(),
        change: KeyChange::Disabled,
    };
    let intent = |seq| Event::Intent {
        seq,
        operation: operation(),
    };
    let outcome = |seq| Event::Outcome {
        seq,
        outcome: Outcome::Done,
    };
    let reserve = Event::Reserve { end: 8 };
    let (closed, told) = (Event::Closed { next: 2 }, |size, root| Event::Checkpoint {
        size,
        root,
    });
    let table: [(Vec<Event>, &str); 16] = [
        (
            vec![done(0), done(0)],
            "record 1: number 0 was told of before",
        ),
        (
            vec![done(0), key(0)],
            "record 1: number 0 was told of before",
        ),
        (
            vec![key(0), intent(0)],
            "record 1: number 0 was told of before",
        ),
        (
            vec![done(5), gap(4, 3)],
            "record 1: number 4 was told of before",
        ),
        (
            vec![gap(4, 3), done(6)],
            "record 1: number 6 was told of before",
        ),
        (
            vec![outcome(0)],
            "record 0: an outcome of number 0, which has no intent",
        ),
        (
            vec![reserve.clone(), done(0), restart(1, 8, 6)],
            "record 2: a restart gap says at most 6 of 1..8 are missing, the records before it say at most 7 of 1..8 are missing",
        ),
        (
            vec![reserve.clone(), restart(1, 8, 7)],
            "record 1: a restart gap says at most 7 of 1..8 are missing, the records before it say at most 8 of 0..8 are missing",
        ),
        (
            vec![done(0), restart(1, 8, 7)],
            "record 1: a restart gap says at most 7 of 1..8 are missing, the records before it say that nothing is missing",
        ),
        (
            vec![reserve.clone(), restart(0, 8, 8), done(3)],
            "record 2: number 3 was told of before",
        ),
        (
            vec![done(0), done(1), done(2), closed.clone()],
            "record 3: closed at number 2, but number 2 was given out",
        ),
        (
            vec![reserve.clone(), restart(0, 8, 8), closed],
            "record 2: closed at number 2, but number 7 was given out",
        ),
        (
            vec![done(0), told(2, [0; 32])],
            "record 1 tells of a checkpoint over 2 records, which cannot have been before it",
        ),
        (
            vec![told(0, [0; 32])],
            "record 0 tells of a checkpoint over 0 records, which cannot have been before it",
        ),
        (
            vec![done(0), done(1), told(1, [0; 32])],
            "record 2 tells of a checkpoint over 1 records with another root",
        ),
        (
            vec![
                done(1),
                told(1, root_of(&[done(1)])),
                told(1, root_of(&[done(1)])),
            ],
            "record 2 tells of a checkpoint over 1 records, which cannot have been before it",
        ),
    ];
    for (events, said) in table {
        let disk = disk_of(&keys, events.clone());
        assert_eq!(refused(&disk), format!("log: {said}"), "{events:?}");
    }
    let honest = vec![
        reserve,
        done(1),
        gap(2, 1),
        restart(0, 8, 6),
        intent(8),
        outcome(8),
        key(9),
        Event::Closed { next: 10 },
    ];
    let summary = verify(&disk_of(&keys, honest)).unwrap();
    assert_eq!((summary.operations, summary.lost), (3, 1));
    assert_eq!((summary.missing_at_most, summary.open), (6, None));
}

/// However long ago it was, and however much of its tiles is full by now.
#[test]
fn the_root_of_every_checkpoint_told_is_checked() {
    let keys = Keys::new(1);
    let all: Vec<Event> = (0..600).map(done).collect();
    let sizes = [1, 200, 255, 256, 257, 300, 511, 512, 599];
    let told = |size: u64, root| Event::Checkpoint { size, root };
    let mut events = all.clone();
    for size in sizes {
        events.push(told(size, root_of(&all[..size as usize])));
    }
    let summary = verify(&disk_of(&keys, events.clone())).unwrap();
    assert_eq!(summary.checkpoints_told, sizes.len() as u64);
    for (at, size) in (600..).zip(sizes) {
        let mut bad = events.clone();
        bad[at] = told(size, root_of(&all[..size as usize + 1]));
        let said =
            format!("log: record {at} tells of a checkpoint over {size} records with another root");
        assert_eq!(refused(&disk_of(&keys, bad)), said);
    }
}

fn root_of(events: &[Event]) -> [u8; 32] {
    let disk = disk_of(&Keys::new(1), events.to_vec());
    verify(&disk).unwrap().root
}

#[test]
fn numbers_scattered_without_end_are_refused_before_memory_is() {
    let limit = (1 << 18) + 1;
    let gap = |n: u64| Event::Gap {
        first: 2 * n + 1,
        count: 1,
        reason: GapReason::QueueFull,
    };
    let keys = Keys::new(1);
    let within = disk_of(&keys, (0..limit - 1).map(gap).collect());
    assert!(verify(&within).is_ok());
    let beyond = disk_of(&keys, (0..limit).map(gap).collect());
    let error = refused(&beyond);
    assert!(
        error.ends_with("more than 262144 runs of numbers are open at once"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However the machine is driven: crashes, drops, checkpoints, orderly ends. What it writes verifies.
    #[test]
    fn whatever_the_service_writes_verifies(steps in prop::collection::vec((0_u8..7, 1_usize..60), 1..25), strict: bool) {
        let (disk, keys) = (disk(), Keys::new(1));
        let policy = if strict { Policy::Strict } else { Policy::Shed };
        let mut writer = Writer::open(&disk, DIR, &keys, policy);
        let mut recorded = 0;
        for (step, n) in steps {
            match step {
                0 if writer.log.size() > writer.log.covered() => writer.checkpoint(),
                1 => writer = Writer::open(&disk, DIR, &keys, policy),
                2 if !strict => {
                    let numbers = writer.admit(n);
                    for seq in &numbers[..n / 2] {
                        writer.log.handle_dropped(*seq);
                    }
                    writer.append(numbers[n / 2..].iter().rev().map(|seq| used(*seq)).collect());
                    recorded += n - n / 2;
                }
                3 => {
                    writer.log.close();
                    writer.log.handle_all_abandoned();
                    writer.append(vec![]);
                    writer = Writer::open(&disk, DIR, &keys, policy);
                }
                4 if !strict => {
                    writer.admit(n.min(3));
                    writer.append(vec![]);
                }
                _ => {
                    let intent = Event::Intent { seq: 0, operation: operation() };
                    writer.append((0..n).map(|_| submission(None, intent.clone())).collect());
                    recorded += n;
                }
            }
        }
        let _ = writer.log.size() > writer.log.covered() && {
            writer.checkpoint();
            true
        };
        // A log without a single record has no checkpoint to verify.
        if writer.log.covered() > 0 {
            let summary = verify(&disk).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(summary.operations, recorded as u64);
        }
    }
}
