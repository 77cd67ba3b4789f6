//! The numbers of operations as a verifier sees them: each told of once, and no restart gap too small.
//!
//! What [`Account`] concludes from the records is taken over; here is what the records must not say.

use super::fault::AccountFault;
use crate::audit::{
    record::{Event, Seq},
    sequence::{Account, Missing},
};

/// Runs of numbers that may stand apart. A log has no more than operations in flight; this bounds memory.
const MAX_RUNS: usize = 1 << 18;

#[derive(Debug, Default)]
pub struct Numbers {
    account: Account,
    /// The end of the numbers that records told of.
    told: Seq,
    /// Numbers below an orderly end that nothing tells of: given to no operation, by the log's word.
    unused: u64,
}

impl Numbers {
    pub fn record(&mut self, event: &Event) -> Result<(), AccountFault> {
        match event {
            Event::Outcome { seq, .. } if !self.account.tells_of(*seq, 1) => {
                return Err(AccountFault::NoIntent { seq: *seq });
            }
            Event::Intent { seq, .. } | Event::Operation { seq, .. } | Event::Key { seq, .. } => {
                self.once(*seq, 1)?;
            }
            Event::Gap { first, count, .. } => self.once(*first, *count)?,
            Event::RestartGap {
                first,
                end,
                at_most,
            } => self.restart(*first, *end, *at_most)?,
            Event::Closed { next } => self.close(*next)?,
            _ => {}
        }
        self.account.record(event);
        match self.account.runs() > MAX_RUNS {
            true => Err(AccountFault::TooScattered(MAX_RUNS)),
            false => Ok(()),
        }
    }

    /// What an end at this point leaves open.
    pub fn open(&self) -> Option<Missing> {
        self.account.missing()
    }

    pub fn unused(&self) -> u64 {
        self.unused
    }

    fn close(&mut self, next: Seq) -> Result<(), AccountFault> {
        if next < self.told {
            let told = self.told - 1;
            return Err(AccountFault::ClosedBelow { next, told });
        }
        if let Some(Missing { end, at_most, .. }) = self.account.missing() {
            let not_given = end.saturating_sub(next);
            self.unused += at_most.saturating_sub(not_given);
        }
        Ok(())
    }

    fn once(&mut self, first: Seq, count: u64) -> Result<(), AccountFault> {
        if self.account.tells_of(first, count) {
            return Err(AccountFault::Twice { seq: first });
        }
        self.told = self.told.max(first.saturating_add(count));
        Ok(())
    }

    /// A start admits exactly what the records before it leave open.
    fn restart(&mut self, first: Seq, end: Seq, at_most: u64) -> Result<(), AccountFault> {
        let told = Some(Missing {
            first,
            end,
            at_most,
        });
        let found = self.account.missing();
        self.told = self.told.max(end);
        match told == found {
            true => Ok(()),
            false => Err(AccountFault::RestartGap { told, found }),
        }
    }
}
