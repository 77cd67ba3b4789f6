//! The machine step by step, without a disk: what it writes, answers and refuses.

use super::*;
use crate::audit::{
    frames::{Framed, HEADER_LEN, Scanner},
    record::{KeyChange, Operation, Outcome},
};

const LIMITS: Limits = Limits {
    reserve: 4,
    checkpoint_records: 10,
    checkpoint_interval_ms: 100,
    checkpoint_deadline_ms: 50,
    untold_max: u64::MAX,
};

fn new_log(policy: Policy) -> AuditLog {
    let found = Found {
        frontier: Frontier::default(),
        edge: Edge::default(),
        len: HEADER_LEN as u64,
        next: 0,
        missing: None,
        covered: 0,
        mismatch: None,
    };
    AuditLog::open(policy, LIMITS, found, 0)
}

/// A log under `shed` with its first reservation durable.
fn shed() -> AuditLog {
    let mut log = new_log(Policy::Shed);
    append(&mut log, vec![]);
    log
}

fn operation() -> Operation {
    crate::audit::record::tests::operation(1)
}

fn used(ticket: Ticket, seq: Seq) -> Submission {
    Submission {
        ticket,
        seq: Some(seq),
        event: Event::Operation {
            seq,
            operation: operation(),
            outcome: Outcome::Done,
        },
        attachment: Vec::new(),
    }
}

fn intent(ticket: Ticket) -> Submission {
    Submission {
        ticket,
        seq: None,
        event: Event::Intent {
            seq: 0,
            operation: operation(),
        },
        attachment: Vec::new(),
    }
}

fn outcome(ticket: Ticket, seq: Seq) -> Submission {
    Submission {
        ticket,
        seq: Some(seq),
        event: Event::Outcome {
            seq,
            outcome: Outcome::Done,
        },
        attachment: Vec::new(),
    }
}

fn key_change(ticket: Ticket) -> Submission {
    Submission {
        ticket,
        seq: None,
        event: Event::Key {
            seq: 0,
            tenant: "acme".into(),
            kid: "k".into(),
            version: 1,
            actor: "alice".into(),
            change: KeyChange::Disabled,
        },
        attachment: Vec::new(),
    }
}

/// The events that a batch writes; empty if there is none.
fn written(log: &AuditLog, acts: &[Act]) -> Vec<Event> {
    let Some(Act::Write { at, bytes }) = acts.last() else {
        return Vec::new();
    };
    assert_eq!(*at, log.len());
    // The records continue the log's, so they are read as they are rather than from a file.
    let mut events = Vec::new();
    let mut scanner = Scanner::starting_at(log.size());
    scanner.feed(bytes, |framed: Framed<'_>| events.push(framed.record.event));
    let scan = scanner.finish(|_| {});
    assert_eq!(scan.end, crate::audit::frames::End::Clean);
    events
}

/// Begins a batch and makes it durable: what was written, and what may go on.
fn append(log: &mut AuditLog, events: Vec<Submission>) -> (Vec<Event>, Vec<Act>) {
    let acts = log.begin_append(7, events);
    let events = written(log, &acts);
    (events, log.handle_appended())
}

fn take(log: &mut AuditLog) -> Seq {
    match log.admit(Action::Sign) {
        Ok(Admission::Numbered(seq)) => seq,
        other => panic!("not admitted: {other:?}"),
    }
}

#[test]
fn shed_admits_only_below_a_durable_reservation() {
    let mut log = new_log(Policy::Shed);
    assert!(log.wants_append());
    assert_eq!(log.admit(Action::Sign), Err(Refusal::NotReserved));
    let acts = log.begin_append(7, vec![]);
    assert_eq!(written(&log, &acts), [Event::Reserve { end: 4 }]);
    assert_eq!(
        log.admit(Action::Sign),
        Err(Refusal::NotReserved),
        "not durable yet"
    );
    log.handle_appended();
    assert_eq!([(); 4].map(|()| take(&mut log)), [0, 1, 2, 3]);
    assert_eq!(log.admit(Action::Sign), Err(Refusal::NotReserved));
    assert!(log.wants_append(), "the next reservation is due");
}

#[test]
fn shed_answers_a_plain_use_at_once_and_all_else_when_durable() {
    let mut log = shed();
    let seq = take(&mut log);
    let plain = used(1, seq);
    assert_eq!(log.answer_rule(&plain.event), Answer::Now);
    assert_eq!(log.answer_rule(&key_change(2).event), Answer::WhenDurable);
    let (events, acts) = append(&mut log, vec![plain.clone(), key_change(2)]);
    assert_eq!(events[0], plain.event);
    assert_eq!(events[1].seq(), Some(1), "numbered with the batch");
    assert_eq!(
        acts,
        [Act::Proceed {
            ticket: 2,
            seq: 1,
            index: 2
        }]
    );
}

#[test]
fn each_dropped_event_is_told_by_a_gap_record_that_counts_exactly() {
    let mut log = shed();
    let seqs = [(); 4].map(|()| take(&mut log));
    log.handle_dropped(seqs[0]);
    log.handle_dropped(seqs[1]);
    log.handle_dropped(seqs[1]);
    log.handle_abandoned(seqs[3]);
    let (events, _) = append(&mut log, vec![used(1, seqs[2])]);
    let gap = |first, count, reason| Event::Gap {
        first,
        count,
        reason,
    };
    assert_eq!(events[1], gap(0, 2, GapReason::QueueFull));
    assert_eq!(events[2], gap(3, 1, GapReason::Abandoned));
    assert_eq!(events[3].seq(), Some(2));
    assert_eq!(events.len(), 4, "and the next reservation before them");
}

#[test]
fn strict_lets_an_intent_proceed_and_an_outcome_be_answered_only_when_durable() {
    let mut log = new_log(Policy::Strict);
    assert_eq!(log.admit(Action::Sign), Ok(Admission::ByIntent));
    assert!(!log.wants_append(), "no reservation is needed");
    let acts = log.begin_append(7, vec![intent(1), intent(2)]);
    assert!(
        matches!(acts[..], [Act::Write { .. }]),
        "nobody proceeds yet"
    );
    let acts = log.handle_appended();
    let proceed = |ticket, seq, index| Act::Proceed { ticket, seq, index };
    assert_eq!(acts, [proceed(1, 0, 0), proceed(2, 1, 1)]);
    let acts = log.begin_append(7, vec![outcome(3, 1)]);
    assert!(matches!(acts[..], [Act::Write { .. }]), "not answered yet");
    assert_eq!(log.handle_appended(), [proceed(3, 1, 2)]);
}

#[test]
fn a_failed_append_refuses_who_waited_and_is_cut_off_first() {
    let mut log = new_log(Policy::Strict);
    append(&mut log, vec![intent(1)]);
    let len = log.len();
    log.begin_append(7, vec![intent(2), outcome(3, 0)]);
    let trouble = Trouble::NotWritten;
    let refuse = |ticket| Act::Refuse { ticket, trouble };
    let acts = log.handle_append_failed();
    assert_eq!(acts, [Act::Truncate { len }, refuse(2), refuse(3)]);
    assert_eq!((log.size(), log.len()), (1, len));
    assert_eq!(
        log.begin_append(7, vec![intent(4)]),
        [refuse(4)],
        "not before the cut"
    );
    log.handle_truncated();
    let (events, acts) = append(&mut log, vec![intent(5), outcome(6, 0)]);
    assert_eq!(
        events[0].seq(),
        Some(1),
        "the refused intent's number is given again"
    );
    assert_eq!(acts.len(), 2, "and the outcome can be told after all");
}

#[test]
fn a_failed_append_under_shed_makes_its_operations_missing() {
    let mut log = shed();
    let seq = take(&mut log);
    let dropped = take(&mut log);
    log.handle_dropped(dropped);
    log.begin_append(7, vec![used(1, seq), key_change(2)]);
    let acts = log.handle_append_failed();
    let trouble = Trouble::NotWritten;
    assert_eq!(acts[1..], [Act::Refuse { ticket: 2, trouble }]);
    log.handle_truncated();
    let (events, _) = append(&mut log, vec![]);
    let gap = |first, reason| Event::Gap {
        first,
        count: 1,
        reason,
    };
    assert_eq!(
        events[1..],
        [
            gap(0, GapReason::AppendFailed),
            gap(1, GapReason::QueueFull)
        ]
    );
    let next = take(&mut log);
    assert_eq!(
        next, 2,
        "the refused change never happened: its number is free"
    );
}

#[test]
fn what_may_not_be_recorded_is_refused_and_its_number_accounted_for() {
    let mut log = shed();
    let (first, second) = (take(&mut log), take(&mut log));
    let mut long = used(1, first);
    long.event = Event::Operation {
        seq: first,
        operation: crate::audit::record::tests::operation(1000),
        outcome: Outcome::Done,
    };
    let mut heavy = used(2, second);
    heavy.attachment = vec![0; crate::audit::frames::MAX_ATTACHMENT + 1];
    let own = Submission {
        ticket: 3,
        seq: None,
        event: Event::Closed { next: 0 },
        attachment: Vec::new(),
    };
    let unknown = used(4, 99);
    let orphan = outcome(5, 0);
    let acts = log.begin_append(7, vec![long, heavy, own, unknown, orphan]);
    let trouble = Trouble::Invalid;
    let refused: Vec<Act> = (1..=5)
        .map(|ticket| Act::Refuse { ticket, trouble })
        .collect();
    assert_eq!(acts[..5], refused);
    log.handle_appended();
    let (events, _) = append(&mut log, vec![]);
    assert_eq!(
        events,
        [Event::Gap {
            first: 0,
            count: 2,
            reason: GapReason::AppendFailed
        }]
    );
}

#[test]
fn a_checkpoint_is_due_by_number_or_by_time_and_covers_all_that_is_durable() {
    let mut log = new_log(Policy::Strict);
    assert!(!log.checkpoint_due(1_000_000), "nothing to cover");
    assert_eq!(log.begin_checkpoint(0), None);
    append(&mut log, vec![intent(1)]);
    assert!(
        !log.checkpoint_due(99) && log.checkpoint_due(100),
        "by time"
    );
    append(&mut log, (2..=10).map(intent).collect());
    assert!(log.checkpoint_due(0), "by number");
    // What is still being written is not covered.
    log.begin_append(7, vec![intent(11)]);
    let Some(Act::Publish { head, files }) = log.begin_checkpoint(5) else {
        panic!("no checkpoint");
    };
    assert_eq!((head.size, files.len()), (10, 2));
    assert_eq!(log.begin_checkpoint(5), None, "one at a time");
    log.handle_appended();
    assert_eq!(log.covered(), 0);
    assert_eq!(log.handle_checkpointed(6), []);
    assert_eq!(log.covered(), 10);
    assert!(
        !log.checkpoint_due(105) && log.checkpoint_due(106),
        "one is uncovered"
    );
}

#[test]
fn a_checkpoint_publishes_only_what_the_one_before_did_not() {
    let mut log = new_log(Policy::Strict);
    let publish = |log: &mut AuditLog| {
        let Some(Act::Publish { head, files }) = log.begin_checkpoint(0) else {
            panic!("no checkpoint");
        };
        log.handle_checkpointed(0);
        (
            head.size,
            files.iter().map(|f| f.tile.path()).collect::<Vec<_>>(),
        )
    };
    append(&mut log, (0..300).map(intent).collect());
    assert_eq!(publish(&mut log).1.len(), 5);
    append(&mut log, vec![intent(1)]);
    let (size, files) = publish(&mut log);
    assert_eq!(size, 302, "the mark and the intent");
    assert_eq!(files, ["tile/entries/001.p/46", "tile/0/001.p/46"]);
}

#[test]
fn the_log_tells_of_a_checkpoint_with_the_next_record_and_does_not_grow_by_itself() {
    let mut log = new_log(Policy::Strict);
    append(&mut log, vec![intent(1)]);
    let Some(Act::Publish { head, .. }) = log.begin_checkpoint(0) else {
        panic!("no checkpoint");
    };
    log.handle_checkpointed(0);
    assert!(!log.wants_append());
    assert_eq!(log.begin_append(7, vec![]), []);
    log.begin_append(7, vec![intent(2)]);
    log.handle_append_failed();
    log.handle_truncated();
    let (events, _) = append(&mut log, vec![intent(3)]);
    let Head { size, root } = head;
    assert_eq!(events[0], Event::Checkpoint { size, root });
    let (events, _) = append(&mut log, vec![intent(4)]);
    assert_eq!(events.len(), 1, "told once");
}

#[test]
fn checkpoint_that_ends_after_the_file_was_replaced_opens_nothing() {
    let mut log = new_log(Policy::Strict);
    append(&mut log, vec![intent(1)]);
    log.begin_checkpoint(10);
    assert_eq!(log.handle_mismatch(Mismatch::Replaced), [Act::Degraded]);
    assert_eq!(log.handle_checkpointed(11), []);
    assert!(!log.is_ready());
}

#[test]
fn an_overdue_or_failed_checkpoint_turns_readiness_off_until_one_succeeds() {
    let mut log = new_log(Policy::Strict);
    append(&mut log, vec![intent(1)]);
    log.begin_checkpoint(10);
    assert_eq!(log.handle_time(59), []);
    assert!(log.is_ready());
    assert_eq!(log.handle_time(60), [Act::Degraded]);
    assert_eq!(log.handle_time(61), [], "told once");
    assert!(!log.is_ready());
    assert_eq!(log.handle_checkpoint_failed(), [], "the same failure");
    assert!(log.begin_checkpoint(70).is_some(), "another try");
    assert_eq!(log.handle_checkpoint_failed(), [Act::Degraded]);
    assert!(log.begin_checkpoint(80).is_some());
    assert_eq!(log.handle_checkpointed(81), [Act::Ready]);
    assert!(log.is_ready());
}

#[test]
fn closing_takes_what_is_in_flight_and_ends_with_a_record_under_the_last_checkpoint() {
    let mut log = shed();
    let (first, second) = (take(&mut log), take(&mut log));
    log.close();
    assert_eq!(log.admit(Action::Sign), Err(Refusal::Closing));
    let (events, _) = append(&mut log, vec![used(1, first)]);
    assert_eq!(events.len(), 1, "one is still out");
    assert!(!log.wants_append() && !log.is_closed());
    log.handle_all_abandoned();
    assert!(log.wants_append());
    let (events, _) = append(&mut log, vec![]);
    let gap = Event::Gap {
        first: second,
        count: 1,
        reason: GapReason::Abandoned,
    };
    assert_eq!(events, [gap, Event::Closed { next: 2 }]);
    assert!(log.is_closed());
    let trouble = Trouble::NotWritten;
    let refused = log.begin_append(7, vec![key_change(9)]);
    assert_eq!(refused, [Act::Refuse { ticket: 9, trouble }]);
    let Some(Act::Publish { head, .. }) = log.begin_checkpoint(0) else {
        panic!("no final checkpoint");
    };
    assert_eq!(head.size, log.size());
}

#[test]
fn a_closing_batch_with_an_intent_does_not_close() {
    let mut log = new_log(Policy::Strict);
    log.close();
    let (events, _) = append(&mut log, vec![intent(1)]);
    assert!(matches!(events[..], [Event::Intent { .. }]));
    let (events, acts) = append(&mut log, vec![outcome(2, 0)]);
    assert_eq!(events[1], Event::Closed { next: 1 });
    assert_eq!(acts.len(), 1, "the outcome is answered");
}

#[test]
fn closing_under_strict_waits_for_outcomes() {
    let mut log = new_log(Policy::Strict);
    append(&mut log, vec![intent(1)]);
    log.close();
    let (events, _) = append(&mut log, vec![intent(2)]);
    assert_eq!(
        events.len(),
        1,
        "an intent that was under way is not the last word"
    );
    assert!(!log.wants_append());
    let (events, _) = append(&mut log, vec![outcome(3, 0)]);
    assert_eq!(events.len(), 1);
    log.handle_abandoned(1);
    assert!(log.wants_append());
    let (events, _) = append(&mut log, vec![]);
    assert_eq!(events, [Event::Closed { next: 2 }]);
}

#[test]
fn a_log_that_does_not_match_its_checkpoint_uses_no_key_but_still_verifies() {
    let mismatch = Some(Mismatch::OtherRoot { covered: 5 });
    for policy in [Policy::Shed, Policy::Strict] {
        let mut log = AuditLog {
            mismatch: mismatch.clone(),
            ..new_log(policy)
        };
        assert_eq!(log.admit(Action::Sign), Err(Refusal::Integrity));
        assert_eq!(log.admit(Action::Unwrap), Err(Refusal::Integrity));
        assert_eq!(log.admit(Action::Verify), Ok(Admission::Unrecorded));
        assert!(!log.is_ready() && !log.wants_append() && !log.checkpoint_due(u64::MAX));
        assert_eq!(log.begin_checkpoint(0), None);
        let trouble = Trouble::Integrity;
        let refused = log.begin_append(7, vec![intent(1)]);
        assert_eq!(refused, [Act::Refuse { ticket: 1, trouble }]);
    }
}

#[test]
fn with_too_many_losses_untold_no_key_is_used_until_a_record_tells_of_them() {
    let found_limits = Limits {
        untold_max: 2,
        ..LIMITS
    };
    let mut log = shed();
    log.limits = found_limits;
    let (first, second) = (take(&mut log), take(&mut log));
    log.handle_dropped(first);
    assert_eq!(log.untold(), 1);
    let third = take(&mut log);
    log.handle_dropped(second);
    assert_eq!(log.admit(Action::Sign), Err(Refusal::Untold));
    assert!(log.wants_append(), "the loss is told by itself");
    log.begin_append(7, vec![used(1, third)]);
    assert_eq!(log.admit(Action::Sign), Err(Refusal::Untold), "not durable");
    log.handle_append_failed();
    log.handle_truncated();
    assert_eq!(log.untold(), 3, "and the batch is lost besides");
    assert_eq!(log.admit(Action::Sign), Err(Refusal::Untold));
    log.begin_append(8, vec![]);
    log.handle_appended();
    assert_eq!(log.untold(), 0);
    take(&mut log);
}
