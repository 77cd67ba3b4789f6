//! The world of the audit log as a simulated run is followed in it: lean, and open to questions.

use super::{Action, AuditWorld, Kept, NOBODY, Wait, World, operation, submission};
use crate::audit::{
    frames::Scanner,
    log::{AuditLog, Limits, Policy, Submission},
    record::{Event, KeyChange, Seq},
};

/// One event of a batch, as far as the log's machine tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Under a number that was given ahead: an operation, or the outcome of an intent.
    Numbered(Seq),
    Intent,
    KeyChange,
    NonceMark,
}

impl AuditWorld {
    /// For a run with this configuration: without a limit on what may happen.
    pub fn following(policy: Policy, limits: Limits) -> AuditWorld {
        AuditWorld {
            policy,
            limits,
            operations: 0,
            kept: 0,
            crashes: 0,
            failures: 0,
            drops: 0,
            abandons: 0,
            checkpoints: 0,
            follows: true,
            flaw: None,
        }
    }

    /// What the stored checkpoint covers becomes a part of the base.
    pub(super) fn trim(&self, world: &mut World) {
        let Some(covered) = world.stored.filter(|_| self.follows).map(|head| head.size) else {
            return;
        };
        let records = covered.saturating_sub(world.base.records());
        let at = world.length_of(&world.file, records);
        let mut scanner = Scanner::starting_at(world.base.records());
        let base = &mut world.base;
        scanner.feed(&world.file[..at], |framed| base.record(&framed));
        base.published();
        world.file.drain(..at);
    }
}

impl World {
    pub fn log(&self) -> &AuditLog {
        &self.log
    }

    /// Numbers that are in somebody's hands.
    pub fn holds(&self, seq: Seq) -> bool {
        self.hands.contains(&seq)
    }

    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    pub fn has_remains(&self) -> bool {
        self.remains.is_some()
    }

    pub fn is_publishing(&self) -> bool {
        self.publishing.is_some()
    }

    /// The size that is being published.
    pub fn publishes(&self) -> Option<u64> {
        self.publishing.map(|head| head.size)
    }

    /// Numbers in somebody's hands or in the queue.
    pub fn left_behind(&self) -> usize {
        self.hands.len() + self.queue.len()
    }

    pub fn is_closing(&self) -> bool {
        self.spent.closed
    }

    pub fn is_queued(&self, seq: Seq) -> bool {
        self.queue.iter().any(|s| s.seq == Some(seq))
    }

    /// The end of a process and the start of the next that finds so many records, `covered` of them under a
    /// checkpoint.
    pub fn crash_that_leaves(&self, records: u64, covered: u64) -> Action {
        let kept = match records.checked_sub(self.log.size()) {
            None | Some(0) => Kept::Nothing,
            Some(count) => Kept::Records(count),
        };
        let stored = self.stored.map_or(0, |head| head.size);
        let published = (covered != stored).then_some(covered);
        Action::Crash { kept, published }
    }

    /// Puts a batch at the front of the queue: which of those who wait comes first is open. Who has no number
    /// is handed over now.
    pub fn line_up(&mut self, items: &[Item]) -> Result<(), String> {
        for (n, item) in items.iter().enumerate() {
            let new = match item {
                Item::Numbered(seq) => {
                    let rest = self.queue.iter().skip(n);
                    let at = rest.take_while(|s| s.seq != Some(*seq)).count() + n;
                    let found = self.queue.get_mut(n..=at);
                    let found = found.ok_or_else(|| format!("{seq} was not handed over"))?;
                    found.rotate_right(1);
                    continue;
                }
                Item::Intent => {
                    let operation = operation(None);
                    self.hand_new(Wait::Intent, Event::Intent { seq: 0, operation })
                }
                Item::KeyChange => self.hand_new(Wait::Other, key_change()),
                Item::NonceMark => self.hand_new(Wait::Other, nonce_mark()),
            };
            self.queue.insert(n, new);
        }
        Ok(())
    }

    fn hand_new(&mut self, wait: Wait, event: Event) -> Submission {
        let last = self.waiting.keys().next_back();
        let ticket = last.map_or(NOBODY + 1, |last| last + 1);
        self.waiting.insert(ticket, wait);
        submission(ticket, None, event)
    }

    /// The length of the first whole records of these bytes, which follow what was read.
    pub(super) fn length_of(&self, bytes: &[u8], records: u64) -> usize {
        let mut at = 0;
        for _ in 0..records {
            match crate::audit::frames::frame_length(&bytes[at..]) {
                Some(length) => at += length,
                None => break,
            }
        }
        at
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let log = &self.log;
        write!(
            f,
            "{} records, {} covered, next number {}, {} in hand, {} queued",
            log.size(),
            log.covered(),
            log.next(),
            self.hands.len(),
            self.queue.len()
        )?;
        for (on, what) in [
            (self.writing.is_some(), "writing"),
            (self.remains.is_some(), "remains of a failed write"),
            (self.publishing.is_some(), "publishing"),
            (self.spent.closed, "closing"),
            (!log.is_ready(), "not ready"),
        ] {
            if on {
                write!(f, ", {what}")?;
            }
        }
        Ok(())
    }
}

fn key_change() -> Event {
    Event::Key {
        seq: 0,
        tenant: String::new(),
        kid: String::new(),
        version: 1,
        actor: String::new(),
        change: KeyChange::Disabled,
    }
}

fn nonce_mark() -> Event {
    Event::NonceMark {
        kid: String::new(),
        version: 1,
        next: 1,
    }
}
