//! The machine behind the audit log: what to write, what may be answered, when to sign a checkpoint.
//!
//! Pure: the appender and the checkpointer tell it what happened and do what it says; the model checker
//! steps this very machine. Always: record indexes are contiguous; nothing that has to wait for its record
//! is answered before the record is durable; a checkpoint covers all that is durable and nothing else;
//! every number given out is recorded, told by a gap record, or within a restart gap.
//!
//! Two policies. `Shed`: a use of a key may be answered before its record is durable; a record that is
//! dropped leaves a gap record. `Strict`: an intent is durable before the key is used, and its outcome
//! before the answer leaves.

mod terms;

use std::collections::BTreeSet;

pub use self::terms::{
    Act, Admission, Answer, Head, Limits, Mismatch, Policy, Refusal, Submission, Ticket, Trouble,
};
use super::{
    Spare,
    frames::Batch,
    merkle::Frontier,
    publish::Edge,
    record::{Action, Event, GapReason, Record, Seq, USUAL_LEN},
    sequence::{Ledger, Lost, Missing},
};

/// Inputs are the `handle_*` and `begin_*` methods; each returns what to do. One append and one checkpoint
/// may be under way at a time, and the shell reports the end of each exactly once. `now_ms` is any clock
/// that only moves forward, `wall_ms` the time of day.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuditLog {
    policy: Policy,
    limits: Limits,
    stage: Stage,
    /// Why the log takes no more records, if it does not.
    mismatch: Option<Mismatch>,
    frontier: Frontier,
    edge: Edge,
    /// Bytes of the file that are durable.
    len: u64,
    ledger: Ledger,
    /// Intents whose outcome is still to come (strict).
    open_intents: BTreeSet<Seq>,
    append: Append,
    /// The last batch's, for the next one.
    spare: Spare<Vec<u8>>,
    /// To be told with the next batch.
    restart_gap: Option<Missing>,
    mark: Option<Head>,
    checkpoints: Checkpoints,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Open,
    Closing,
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Append {
    Idle,
    Writing(Box<InFlight>),
    /// A write failed: what it left must be cut off first.
    Truncating,
}

/// What a batch stands for, to be concluded or undone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InFlight {
    batch: Batch,
    waiting: Vec<(Ticket, Seq, u64)>,
    /// Numbers given with this batch.
    numbered: Vec<Seq>,
    /// Numbers given before it, whose records are in it.
    settled: Vec<Seq>,
    intents: Vec<Seq>,
    outcomes: Vec<Seq>,
    lost: Vec<Lost>,
    reserve: Option<Seq>,
    restart_gap: Option<Missing>,
    mark: Option<Head>,
    closes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Checkpoints {
    covered: u64,
    last_ms: u64,
    writing: Option<Writing>,
    /// A deadline was missed or a write failed, and none succeeded since.
    degraded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writing {
    head: Head,
    started_ms: u64,
    /// It was overdue, and that was told.
    overdue: bool,
}

/// What the start-up found; see [`Recovery`](super::recovery::Recovery).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub frontier: Frontier,
    pub edge: Edge,
    pub len: u64,
    pub next: Seq,
    pub missing: Option<Missing>,
    pub covered: u64,
    pub mismatch: Option<Mismatch>,
}

impl AuditLog {
    pub fn open(policy: Policy, limits: Limits, found: Found, now_ms: u64) -> AuditLog {
        AuditLog {
            policy,
            limits,
            stage: Stage::Open,
            mismatch: found.mismatch,
            frontier: found.frontier,
            edge: found.edge,
            len: found.len,
            ledger: Ledger::new(found.next),
            open_intents: BTreeSet::new(),
            append: Append::Idle,
            spare: Spare::default(),
            restart_gap: found.missing,
            mark: None,
            checkpoints: Checkpoints {
                covered: found.covered,
                last_ms: now_ms,
                writing: None,
                degraded: false,
            },
        }
    }

    // -------------------------------------------------------------------------------- questions

    /// Records that are durable.
    pub fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// Bytes of the file that are durable.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// Records under the last published checkpoint: only these have receipts.
    pub fn covered(&self) -> u64 {
        self.checkpoints.covered
    }

    /// The next number that was never given out.
    pub fn next(&self) -> Seq {
        self.ledger.next()
    }

    /// What the last end may have lost, as long as no batch told it.
    pub fn restart_gap(&self) -> Option<Missing> {
        self.restart_gap
    }

    /// Records of the batch that is being written.
    pub fn in_flight(&self) -> u64 {
        match &self.append {
            Append::Writing(flight) => flight.batch.next_index() - self.size(),
            Append::Idle | Append::Truncating => 0,
        }
    }

    pub fn mismatch(&self) -> Option<&Mismatch> {
        self.mismatch.as_ref()
    }

    /// For the readiness gate: no mismatch, and no checkpoint overdue or failed.
    pub fn is_ready(&self) -> bool {
        self.mismatch.is_none() && !self.checkpoints.degraded
    }

    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// When the answer to what this event tells may leave.
    pub fn answer_rule(&self, event: &Event) -> Answer {
        self.policy.answer_rule(event)
    }

    /// Operations that may still begin ahead of their records.
    pub fn numbers_left(&self) -> u64 {
        self.ledger.left()
    }

    /// There is something to write even if no event comes.
    pub fn wants_append(&self) -> bool {
        let idle = self.append == Append::Idle && self.takes_records();
        let closing = self.stage == Stage::Closing && self.may_close(0);
        idle && (self.needs_reserve()
            || self.ledger.has_lost()
            || self.restart_gap.is_some()
            || closing)
    }

    /// By number of records or by time.
    pub fn checkpoint_due(&self, now_ms: u64) -> bool {
        // A log that lost records is shorter than its checkpoint: nothing is due then.
        let uncovered = self.size().saturating_sub(self.checkpoints.covered);
        let waited = now_ms.saturating_sub(self.checkpoints.last_ms);
        let due = uncovered >= self.limits.checkpoint_records
            || (uncovered > 0 && waited >= self.limits.checkpoint_interval_ms);
        due && self.checkpoints.writing.is_none() && self.mismatch.is_none()
    }

    // -------------------------------------------------------------------------------- admission

    /// Before a key is used. The number, if one is given, must come back: in a submission, or by
    /// [`AuditLog::handle_dropped`] or [`AuditLog::handle_abandoned`].
    pub fn admit(&mut self, action: Action) -> Result<Admission, Refusal> {
        let refusal = match (&self.mismatch, self.stage) {
            (Some(_), _) => Some(Refusal::Integrity),
            (None, Stage::Open) => None,
            (None, _) => Some(Refusal::Closing),
        };
        match (refusal, self.policy) {
            // Verifying uses no secret: it goes on without a log.
            (Some(Refusal::Integrity), _) if action == Action::Verify => Ok(Admission::Unrecorded),
            (Some(refusal), _) => {
                if refusal == Refusal::Integrity {
                    ron_core::sometimes!("kms.integrity_refuses");
                }
                Err(refusal)
            }
            (None, Policy::Strict) => Ok(Admission::ByIntent),
            (None, Policy::Shed) if self.untold() >= self.limits.untold_max => {
                ron_core::sometimes!("kms.too_much_untold");
                Err(Refusal::Untold)
            }
            (None, Policy::Shed) => match self.ledger.take() {
                Some(seq) => Ok(Admission::Numbered(seq)),
                None => Err(Refusal::NotReserved),
            },
        }
    }

    /// Operations that have no record, and of whose loss no durable record tells yet.
    pub fn untold(&self) -> u64 {
        let telling = match &self.append {
            Append::Writing(flight) => flight.lost.iter().map(|run| run.count).sum(),
            Append::Truncating | Append::Idle => 0,
        };
        self.ledger.lost() + telling
    }

    /// The queue dropped this operation's event.
    pub fn handle_dropped(&mut self, seq: Seq) {
        self.ledger.lose(seq, GapReason::QueueFull);
    }

    /// Whoever carried this operation's event, or the outcome of this intent, is gone.
    pub fn handle_abandoned(&mut self, seq: Seq) {
        self.ledger.lose(seq, GapReason::Abandoned);
        self.open_intents.remove(&seq);
    }

    // --------------------------------------------------------------------------------- appending

    /// Makes one batch of what is due and of `events`. Nothing else may be begun until its end is reported.
    pub fn begin_append(
        &mut self,
        wall_ms: u64,
        events: impl IntoIterator<Item = Submission>,
    ) -> Vec<Act> {
        let events = events.into_iter();
        if self.append != Append::Idle || !self.takes_records() {
            let trouble = match self.mismatch {
                Some(_) => Trouble::Integrity,
                None => Trouble::NotWritten,
            };
            return events.map(|event| self.refuse(event, trouble)).collect();
        }
        let mut acts = Vec::new();
        let mut flight = InFlight::new(self.size(), std::mem::take(&mut self.spare.0));
        flight.batch.reserve(events.size_hint().0, USUAL_LEN);
        self.add_due(&mut flight, wall_ms);
        for event in events {
            if let Err(act) = self.add(&mut flight, event, wall_ms) {
                acts.push(act);
            }
        }
        if self.stage == Stage::Closing && self.may_close(flight.intents.len()) {
            let next = self.ledger.next();
            flight.closes = flight.tell(wall_ms, Event::Closed { next });
        }
        // The mark of a checkpoint goes along with other records, so that an idle log does not grow.
        if flight.batch.is_empty() {
            return acts;
        }
        acts.push(Act::Write {
            at: self.len,
            bytes: flight.batch.shared(),
        });
        self.append = Append::Writing(Box::new(flight));
        acts
    }

    /// The batch is written and synced.
    pub fn handle_appended(&mut self) -> Vec<Act> {
        let Append::Writing(flight) = std::mem::replace(&mut self.append, Append::Idle) else {
            return Vec::new();
        };
        for leaf in flight.batch.records() {
            match self.edge.push(leaf) {
                Ok(hash) => self.frontier.push(hash),
                Err(_) => unreachable!("a record fits an entry bundle"),
            }
        }
        self.len += flight.batch.bytes().len() as u64;
        if let Some(end) = flight.reserve {
            self.ledger.reserve(end);
        }
        self.open_intents.extend(flight.intents);
        if flight.closes {
            self.stage = Stage::Closed;
        }
        let proceed = |(ticket, seq, index)| Act::Proceed { ticket, seq, index };
        let acts = flight.waiting.into_iter().map(proceed).collect();
        self.spare.0 = flight.batch.into_spare().unwrap_or_default();
        acts
    }

    /// Plain events of the batch in hand: if it fails, gap records will tell of them.
    pub fn at_stake(&self) -> usize {
        match &self.append {
            Append::Writing(flight) => flight.settled.len(),
            Append::Truncating | Append::Idle => 0,
        }
    }

    /// The batch was not written, or may not have been: what it told is undone, what waited is refused.
    pub fn handle_append_failed(&mut self) -> Vec<Act> {
        let flight = match std::mem::replace(&mut self.append, Append::Truncating) {
            Append::Writing(flight) => flight,
            // Whoever was to cut the file is gone: it is still to be cut.
            Append::Truncating => return vec![Act::Truncate { len: self.len }],
            Append::Idle => {
                self.append = Append::Idle;
                return Vec::new();
            }
        };
        ron_core::sometimes!("kms.append_undone");
        for seq in flight.numbered {
            self.ledger.release(seq);
        }
        for seq in flight.settled {
            self.ledger.lose_settled(seq, GapReason::AppendFailed);
        }
        self.open_intents.extend(flight.outcomes);
        self.ledger.untell(&flight.lost);
        self.restart_gap = flight.restart_gap.or(self.restart_gap);
        self.mark = self.mark.take().or(flight.mark);
        let mut acts = vec![Act::Truncate { len: self.len }];
        let trouble = Trouble::NotWritten;
        acts.extend(
            flight
                .waiting
                .into_iter()
                .map(|(ticket, ..)| Act::Refuse { ticket, trouble }),
        );
        acts
    }

    /// What the failed write left is cut off, durably.
    pub fn handle_truncated(&mut self) {
        if self.append == Append::Truncating {
            self.append = Append::Idle;
        }
    }

    // ------------------------------------------------------------------------------- checkpoints

    /// Begins a checkpoint over all that is durable; nothing if all of it is covered.
    pub fn begin_checkpoint(&mut self, now_ms: u64) -> Option<Act> {
        let head = self.head();
        let begins = head.size > self.checkpoints.covered
            && self.checkpoints.writing.is_none()
            && self.mismatch.is_none();
        if !begins {
            return None;
        }
        let files = self.edge.pending().ok()?;
        self.checkpoints.writing = Some(Writing {
            head,
            started_ms: now_ms,
            overdue: false,
        });
        Some(Act::Publish { head, files })
    }

    /// Tiles and note are durable.
    pub fn handle_checkpointed(&mut self, now_ms: u64) -> Vec<Act> {
        let Some(Writing { head, .. }) = self.checkpoints.writing.take() else {
            return Vec::new();
        };
        self.checkpoints.covered = head.size;
        self.checkpoints.last_ms = now_ms;
        self.edge.published(head.size);
        self.mark = Some(head);
        let again = std::mem::replace(&mut self.checkpoints.degraded, false);
        match again && self.is_ready() {
            true => vec![Act::Ready],
            false => Vec::new(),
        }
    }

    /// Another one is due at once: when to try again is the caller's to say.
    pub fn handle_checkpoint_failed(&mut self) -> Vec<Act> {
        match self.checkpoints.writing.take() {
            Some(writing) if !writing.overdue => self.degrade(),
            _ => Vec::new(),
        }
    }

    /// Time passed: is a checkpoint overdue? It stays under way until its end is reported.
    pub fn handle_time(&mut self, now_ms: u64) -> Vec<Act> {
        let deadline = self.limits.checkpoint_deadline_ms;
        match &mut self.checkpoints.writing {
            Some(writing)
                if !writing.overdue && now_ms.saturating_sub(writing.started_ms) >= deadline =>
            {
                writing.overdue = true;
                self.degrade()
            }
            _ => Vec::new(),
        }
    }

    /// The file is not what it was: no more records, so that the evidence stays as it is.
    pub fn handle_mismatch(&mut self, mismatch: Mismatch) -> Vec<Act> {
        if self.mismatch.is_some() {
            return Vec::new();
        }
        self.mismatch = Some(mismatch);
        self.degrade()
    }

    // ---------------------------------------------------------------------------------- the end

    /// No more operations. What is in flight may still come; the last batch says that the log is closed.
    pub fn close(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Closing;
        }
    }

    /// Nobody who was given a number will come back any more.
    pub fn handle_all_abandoned(&mut self) {
        self.ledger.lose_all(GapReason::Abandoned);
        self.open_intents.clear();
    }

    // ---------------------------------------------------------------------------------- helpers

    fn head(&self) -> Head {
        Head {
            size: self.size(),
            root: self.frontier.root(),
        }
    }

    fn takes_records(&self) -> bool {
        self.mismatch.is_none() && self.stage != Stage::Closed
    }

    fn may_close(&self, intents_in_batch: usize) -> bool {
        self.ledger.outstanding() == 0 && self.open_intents.is_empty() && intents_in_batch == 0
    }

    fn needs_reserve(&self) -> bool {
        self.policy == Policy::Shed
            && self.stage == Stage::Open
            && self.ledger.left() < self.limits.reserve.div_ceil(2)
    }

    fn degrade(&mut self) -> Vec<Act> {
        self.checkpoints.degraded = true;
        vec![Act::Degraded]
    }

    /// What must be told whether or not there are events.
    fn add_due(&mut self, flight: &mut InFlight, wall_ms: u64) {
        if let Some(gap) = self.restart_gap.take() {
            ron_core::sometimes!("kms.restart_gap_told");
            let Missing {
                first,
                end,
                at_most,
            } = gap;
            flight.tell(
                wall_ms,
                Event::RestartGap {
                    first,
                    end,
                    at_most,
                },
            );
            flight.restart_gap = Some(gap);
        }
        if self.needs_reserve() {
            let end = self.ledger.next() + self.limits.reserve;
            flight.tell(wall_ms, Event::Reserve { end });
            flight.reserve = Some(end);
        }
        flight.lost = self.ledger.tell_lost();
        if !flight.lost.is_empty() {
            ron_core::sometimes!("kms.gap_told");
        }
        for lost in flight.lost.clone() {
            let Lost {
                first,
                count,
                reason,
            } = lost;
            flight.tell(
                wall_ms,
                Event::Gap {
                    first,
                    count,
                    reason,
                },
            );
        }
    }

    fn add(
        &mut self,
        flight: &mut InFlight,
        submission: Submission,
        wall_ms: u64,
    ) -> Result<(), Act> {
        if !is_submitted(&submission.event) || submission.event.check().is_err() {
            return Err(self.refuse(submission, Trouble::Invalid));
        }
        let waits = self.answer_rule(&submission.event) == Answer::WhenDurable;
        let outcome = matches!(submission.event, Event::Outcome { .. });
        let (seq, new) = match (submission.seq, submission.event.seq()) {
            (Some(seq), _) if outcome && self.open_intents.remove(&seq) => (seq, false),
            (Some(seq), _) if !outcome && self.ledger.settle(seq) => (seq, false),
            (Some(_), _) => return Err(self.refuse(submission, Trouble::Invalid)),
            (None, Some(_)) if outcome => return Err(self.refuse(submission, Trouble::Invalid)),
            (None, Some(_)) => (self.ledger.number(), true),
            (None, None) => (0, false),
        };
        if let Some(mark) = self.mark.take() {
            let Head { size, root } = mark;
            flight.tell(wall_ms, Event::Checkpoint { size, root });
            flight.mark = Some(mark);
        }
        let event = submission.event.numbered(seq);
        let intent = matches!(event, Event::Intent { .. });
        let record = Record {
            index: flight.batch.next_index(),
            at_ms: wall_ms,
            event,
        };
        if flight.batch.push(&record, &submission.attachment).is_err() {
            let numbered = submission.seq.is_some() || new;
            return Err(self.undo(numbered.then_some(seq), new, outcome, submission.ticket));
        }
        match (new, outcome) {
            (true, _) => flight.numbered.push(seq),
            (false, true) => flight.outcomes.push(seq),
            (false, false) if submission.seq.is_some() => flight.settled.push(seq),
            (false, false) => {}
        }
        if intent {
            flight.intents.push(seq);
        }
        if waits {
            flight.waiting.push((submission.ticket, seq, record.index));
        }
        Ok(())
    }

    /// An attachment that no frame takes: its record is not written.
    fn undo(&mut self, seq: Option<Seq>, new: bool, outcome: bool, ticket: Ticket) -> Act {
        match (seq, new, outcome) {
            (Some(seq), true, _) => self.ledger.release(seq),
            (Some(seq), false, true) => {
                self.open_intents.insert(seq);
            }
            (Some(seq), false, false) => {
                self.ledger.lose_settled(seq, GapReason::AppendFailed);
            }
            (None, ..) => {}
        }
        let trouble = Trouble::Invalid;
        Act::Refuse { ticket, trouble }
    }

    /// It gets no record: a number it has is lost.
    fn refuse(&mut self, submission: Submission, trouble: Trouble) -> Act {
        if let Some(seq) = submission.seq {
            self.ledger.lose(seq, GapReason::AppendFailed);
        }
        let ticket = submission.ticket;
        Act::Refuse { ticket, trouble }
    }
}

/// What is told from outside; the rest are the log's own records.
fn is_submitted(event: &Event) -> bool {
    match event {
        Event::Intent { .. }
        | Event::Outcome { .. }
        | Event::Operation { .. }
        | Event::Key { .. }
        | Event::NonceMark { .. } => true,
        Event::Gap { .. }
        | Event::RestartGap { .. }
        | Event::Reserve { .. }
        | Event::Closed { .. }
        | Event::Checkpoint { .. } => false,
    }
}

impl InFlight {
    fn new(first: u64, spare: Vec<u8>) -> InFlight {
        InFlight {
            batch: Batch::within(first, spare),
            waiting: Vec::new(),
            numbered: Vec::new(),
            settled: Vec::new(),
            intents: Vec::new(),
            outcomes: Vec::new(),
            lost: Vec::new(),
            reserve: None,
            restart_gap: None,
            mark: None,
            closes: false,
        }
    }

    /// Adds a record of the log itself; these always fit.
    fn tell(&mut self, at_ms: u64, event: Event) -> bool {
        let record = Record {
            index: self.batch.next_index(),
            at_ms,
            event,
        };
        self.batch.push(&record, &[]).is_ok()
    }
}

#[cfg(test)]
mod tests;
