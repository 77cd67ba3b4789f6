//! Files of records and checkpoints, whole and damaged: what the start-up makes of them.

use super::*;
use crate::audit::{
    frames::{self, HEADER_LEN},
    log::{Act, Admission, Refusal, Submission},
    record::{Action, Outcome, tests::operation},
    tiles,
};

const LIMITS: Limits = Limits {
    reserve: 8,
    checkpoint_records: 1000,
    checkpoint_interval_ms: 1000,
    checkpoint_deadline_ms: 1000,
    untold_max: u64::MAX,
};

/// A disk of one file and one checkpoint, and the log that writes it.
struct Disk {
    file: Vec<u8>,
    stored: Stored,
    log: AuditLog,
}

impl Disk {
    fn new(policy: Policy) -> Disk {
        let file = frames::encode_header([1; 16]);
        let log = recover(&file, Stored::Absent, policy).log;
        let mut disk = Disk {
            file,
            stored: Stored::Absent,
            log,
        };
        disk.append(vec![]);
        disk
    }

    fn append(&mut self, events: Vec<Submission>) {
        for act in self.log.begin_append(1, events) {
            if let Act::Write { at, bytes } = act {
                assert_eq!(at, self.file.len() as u64);
                self.file.extend(bytes.iter());
            }
        }
        self.log.handle_appended();
    }

    /// `n` operations, recorded.
    fn operate(&mut self, n: usize) {
        for _ in 0..n {
            let Ok(Admission::Numbered(seq)) = self.log.admit(Action::Sign) else {
                panic!("not admitted");
            };
            self.append(vec![used(seq)]);
        }
    }

    fn checkpoint(&mut self) {
        let Some(Act::Publish { head, .. }) = self.log.begin_checkpoint(1) else {
            panic!("nothing to cover");
        };
        self.log.handle_checkpointed(1);
        self.stored = stored(head);
    }

    fn recover(&self) -> Recovered {
        recover(&self.file, self.stored.clone(), Policy::Shed)
    }
}

fn stored(head: Head) -> Stored {
    Stored::Verified(Checkpoint {
        origin: "o".into(),
        size: head.size,
        root: head.root,
    })
}

fn used(seq: u64) -> Submission {
    let (operation, outcome) = (operation(0), Outcome::Done);
    Submission {
        ticket: 0,
        seq: Some(seq),
        event: Event::Operation {
            seq,
            operation,
            outcome,
        },
        attachment: Vec::new(),
    }
}

fn recover(file: &[u8], stored: Stored, policy: Policy) -> Recovered {
    let mut recovery = Recovery::new(stored);
    let (_, scan) = frames::scan(file, |framed| recovery.record(&framed)).unwrap();
    recovery.finish(&scan, policy, LIMITS, 0)
}

#[test]
fn a_log_closed_in_order_opens_without_a_gap_where_it_ended() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(5);
    disk.log.close();
    disk.append(vec![]);
    disk.checkpoint();
    let recovered = disk.recover();
    assert_eq!((recovered.missing, recovered.truncate), (None, None));
    assert_eq!(recovered.log.mismatch(), None);
    let mut log = recovered.log;
    assert_eq!(
        (log.size(), log.covered()),
        (disk.log.size(), disk.log.size())
    );
    log.begin_append(1, vec![]);
    log.handle_appended();
    assert_eq!(log.admit(Action::Sign), Ok(Admission::Numbered(5)));
}

#[test]
fn an_unclean_end_is_told_first_with_an_upper_bound_from_the_reservation() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(3);
    let expected = Missing {
        first: 3,
        end: 8,
        at_most: 5,
    };
    let recovered = disk.recover();
    assert_eq!(recovered.missing, Some(expected));
    disk.log = recovered.log;
    assert!(disk.log.wants_append());
    disk.append(vec![]);
    assert_eq!(
        disk.log.admit(Action::Sign),
        Ok(Admission::Numbered(8)),
        "no number is given twice"
    );
    let again = disk.recover();
    assert_eq!(again.missing.map(|m| (m.first, m.at_most)), Some((8, 8)));
}

#[test]
fn a_restart_gap_that_was_not_written_is_told_with_the_next_batch() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(3);
    disk.log = disk.recover().log;
    disk.log.begin_append(1, vec![]);
    disk.log.handle_append_failed();
    disk.log.handle_truncated();
    disk.append(vec![]);
    let missing = disk.recover().missing;
    assert_eq!(missing.map(|m| m.first), Some(8), "told by now");
}

#[test]
fn tiles_that_the_checkpoint_covers_are_not_held() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(600);
    disk.checkpoint();
    let mut recovery = Recovery::new(disk.stored.clone());
    frames::scan(&disk.file, |framed| {
        recovery.record(&framed);
        assert_eq!(recovery.edge.pending(), Ok(Vec::new()));
    })
    .unwrap();
}

#[test]
fn under_strict_nothing_can_be_missing() {
    let mut disk = Disk::new(Policy::Strict);
    let intent = Submission {
        seq: None,
        event: Event::Intent {
            seq: 0,
            operation: operation(0),
        },
        ..used(0)
    };
    disk.append(vec![intent]);
    let recovered = recover(&disk.file, Stored::Absent, Policy::Strict);
    assert_eq!(recovered.missing, None);
    assert!(!recovered.log.wants_append());
}

#[test]
fn a_torn_tail_is_cut_off_unless_a_checkpoint_covers_it() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(1);
    let second = disk.file.len();
    disk.operate(1);
    disk.checkpoint();
    let covered = disk.file.len();
    disk.operate(1);
    let whole = disk.file.clone();
    // The last batch is the mark of the checkpoint and the operation: the mark alone may survive.
    let mark = whole.len() - (covered - second);
    for cut in covered..whole.len() {
        disk.file.truncate(cut);
        let recovered = disk.recover();
        let kept = if cut < mark { covered } else { mark };
        let torn = (cut != kept).then_some(kept as u64);
        assert_eq!(recovered.truncate, torn, "cut at {cut}");
        assert_eq!(recovered.log.mismatch(), None);
        assert_eq!(recovered.log.len(), kept as u64);
        disk.file = whole.clone();
    }
    for cut in HEADER_LEN..covered {
        disk.file.truncate(cut);
        let recovered = disk.recover();
        assert_eq!(recovered.truncate, None, "evidence is kept");
        let shorter = matches!(recovered.log.mismatch(), Some(Mismatch::Shorter { .. }));
        assert!(shorter, "cut at {cut}");
        disk.file = whole.clone();
    }
}

#[test]
fn a_changed_record_is_refused_even_if_its_frame_is_sound() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(2);
    disk.checkpoint();
    // The same length of history, told differently.
    let mut other = Disk::new(Policy::Shed);
    let seq = 0;
    other.log.admit(Action::Sign).unwrap();
    other.append(vec![Submission {
        event: Event::Operation {
            seq,
            operation: operation(1),
            outcome: Outcome::Done,
        },
        ..used(seq)
    }]);
    other.operate(1);
    let recovered = recover(&other.file, disk.stored.clone(), Policy::Shed);
    let covered = 3;
    assert_eq!(
        recovered.log.mismatch(),
        Some(&Mismatch::OtherRoot { covered })
    );
    let mut log = recovered.log;
    assert_eq!(log.admit(Action::Sign), Err(Refusal::Integrity));
    assert_eq!(log.admit(Action::Verify), Ok(Admission::Unrecorded));
}

#[test]
fn damage_before_the_last_batch_is_refused_and_not_cut() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(3);
    let at = HEADER_LEN + 40;
    disk.file[at] ^= 1;
    let recovered = disk.recover();
    let index = 0;
    assert_eq!(recovered.log.mismatch(), Some(&Mismatch::Corrupt { index }));
    assert_eq!(recovered.truncate, None);
}

#[test]
fn a_checkpoint_that_is_gone_old_or_forged_is_noticed() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(1);
    disk.checkpoint();
    let older = disk.stored.clone();
    disk.operate(1);
    disk.checkpoint();
    disk.operate(1);
    assert_eq!(disk.recover().log.mismatch(), None);
    disk.stored = older;
    let (told, covered) = (4, 2);
    let old = Mismatch::OldCheckpoint { told, covered };
    assert_eq!(disk.recover().log.mismatch(), Some(&old));
    disk.stored = Stored::Absent;
    let gone = Mismatch::OldCheckpoint { told, covered: 0 };
    assert_eq!(disk.recover().log.mismatch(), Some(&gone));
    disk.stored = Stored::Invalid;
    assert_eq!(
        disk.recover().log.mismatch(),
        Some(&Mismatch::BadCheckpoint)
    );
}

#[test]
fn the_first_checkpoint_is_missed_too() {
    let mut disk = Disk::new(Policy::Shed);
    disk.checkpoint();
    disk.operate(1);
    assert_eq!(disk.recover().log.mismatch(), None);
    disk.stored = Stored::Absent;
    let (told, covered) = (1, 0);
    let gone = Mismatch::OldCheckpoint { told, covered };
    assert_eq!(disk.recover().log.mismatch(), Some(&gone));
}

#[test]
fn an_empty_file_beside_a_checkpoint_is_a_replaced_log() {
    let mut disk = Disk::new(Policy::Shed);
    disk.checkpoint();
    disk.file.truncate(HEADER_LEN);
    let (records, covered) = (0, 1);
    let shorter = Mismatch::Shorter { records, covered };
    assert_eq!(disk.recover().log.mismatch(), Some(&shorter));
    // An empty log has a root too, and a forged one is seen.
    let forged = stored(Head {
        size: 0,
        root: [1; 32],
    });
    let recovered = recover(&disk.file, forged, Policy::Shed);
    let other = Mismatch::OtherRoot { covered: 0 };
    assert_eq!(recovered.log.mismatch(), Some(&other));
}

#[test]
fn nonce_marks_are_recovered_at_their_highest() {
    let mut disk = Disk::new(Policy::Shed);
    let mark = |kid: &str, next| Submission {
        seq: None,
        event: Event::NonceMark {
            kid: kid.into(),
            version: 1,
            next,
        },
        ..used(0)
    };
    disk.append(vec![mark("a", 100), mark("b", 7)]);
    disk.append(vec![mark("a", 90)]);
    let nonces = disk.recover().nonces;
    let expected = [(("a".to_owned(), 1), 100), (("b".to_owned(), 1), 7)];
    assert_eq!(nonces, expected.into());
}

#[test]
fn the_first_checkpoint_after_a_start_publishes_what_the_last_one_did_not() {
    let mut disk = Disk::new(Policy::Shed);
    disk.operate(300);
    disk.checkpoint();
    let covered = disk.log.size();
    disk.operate(300);
    let mut log = disk.recover().log;
    let Some(Act::Publish { head, files }) = log.begin_checkpoint(0) else {
        panic!("nothing to cover");
    };
    let mut names: Vec<_> = files.iter().map(|file| file.tile).collect();
    names.sort_unstable();
    let mut expected = tiles::growth(covered, head.size);
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(head, {
        let Some(Act::Publish { head, .. }) = disk.log.begin_checkpoint(0) else {
            panic!("nothing to cover");
        };
        head
    });
}
