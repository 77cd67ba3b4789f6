//! Numbers of operations: given once, then recorded or lost, and every one accounted for.
//!
//! Under the policy `shed` an answer may leave before its record is durable, so a crash can lose records.
//! What bounds the loss is that a number is given out only below a reservation that is durable: whatever
//! was answered has a number below it. Always: a number is outstanding, recorded, lost or free, never two.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{Event, GapReason, Seq};

/// A run of operations whose records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lost {
    pub first: Seq,
    pub count: u64,
    pub reason: GapReason,
}

/// The numbers of a running log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    next: Seq,
    /// Durable: numbers below may be given out ahead of their records.
    reserved: Seq,
    /// Given out, not yet recorded or lost. Bounded by the operations in flight.
    outstanding: BTreeSet<Seq>,
    /// Given to records that were never written, for things that never happened: to be given again.
    free: BTreeSet<Seq>,
    /// By first number. Two runs stand apart only by a number that is not lost, so there are no more runs
    /// than numbers in flight and in the queue since the last append, and one.
    lost: BTreeMap<Seq, (u64, GapReason)>,
}

impl Ledger {
    pub fn new(next: Seq) -> Ledger {
        Ledger {
            next,
            reserved: next,
            outstanding: BTreeSet::new(),
            free: BTreeSet::new(),
            lost: BTreeMap::new(),
        }
    }

    pub fn next(&self) -> Seq {
        self.next
    }

    /// How many may still be given out ahead of their records.
    pub fn left(&self) -> u64 {
        self.reserved.saturating_sub(self.next)
    }

    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// A number ahead of its record; `None` once the reservation is used up.
    pub fn take(&mut self) -> Option<Seq> {
        let below = |seq: &Seq| *seq < self.reserved;
        let seq = match self.free.first().copied().filter(below) {
            Some(seq) => {
                self.free.remove(&seq);
                seq
            }
            None if self.next < self.reserved => self.advance(),
            None => return None,
        };
        self.outstanding.insert(seq);
        Some(seq)
    }

    /// A number for a record that is being written, and whose answer waits for it.
    pub fn number(&mut self) -> Seq {
        self.free.pop_first().unwrap_or_else(|| self.advance())
    }

    /// The record of a number given by [`Ledger::number`] was not written, and nothing happened.
    pub fn release(&mut self, seq: Seq) {
        self.free.insert(seq);
    }

    /// Its record goes into the next batch. False if this number is not outstanding.
    pub fn settle(&mut self, seq: Seq) -> bool {
        self.outstanding.remove(&seq)
    }

    /// It will have no record. Counted once, however often it is reported.
    pub fn lose(&mut self, seq: Seq, reason: GapReason) {
        if self.outstanding.remove(&seq) {
            self.add_lost(seq, 1, reason);
        }
    }

    /// A batch that told of these numbers was not written: they are lost after all.
    pub fn lose_settled(&mut self, seq: Seq, reason: GapReason) {
        self.add_lost(seq, 1, reason);
    }

    pub fn lose_all(&mut self, reason: GapReason) {
        for seq in std::mem::take(&mut self.outstanding) {
            self.add_lost(seq, 1, reason);
        }
    }

    /// How many are lost and not told.
    pub fn lost(&self) -> u64 {
        self.lost.values().map(|(count, _)| count).sum()
    }

    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// What the next batch must tell; given back by [`Ledger::untell`] if it is not written.
    pub fn tell_lost(&mut self) -> Vec<Lost> {
        let runs = std::mem::take(&mut self.lost).into_iter();
        let run = |(first, (count, reason))| Lost {
            first,
            count,
            reason,
        };
        runs.map(run).collect()
    }

    pub fn untell(&mut self, runs: &[Lost]) {
        for run in runs {
            self.add_lost(run.first, run.count, run.reason);
        }
    }

    /// A reservation is durable.
    pub fn reserve(&mut self, end: Seq) {
        self.reserved = self.reserved.max(end);
    }

    fn advance(&mut self) -> Seq {
        let seq = self.next;
        self.next += 1;
        seq
    }

    fn add_lost(&mut self, first: Seq, count: u64, reason: GapReason) {
        let (mut first, mut count) = (first, count);
        if let Some((before, (n, why))) = self.lost.range(..first).next_back()
            && before + n == first
            && *why == reason
        {
            (first, count) = (*before, n + count);
        }
        if let Some((n, why)) = self.lost.get(&(first + count)).copied()
            && why == reason
        {
            self.lost.remove(&(first + count));
            count += n;
        }
        self.lost.insert(first, (count, reason));
    }
}

/// What a log's records, read in order, say about its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// Every number below is accounted for.
    below: Seq,
    /// Accounted for above that: first to end, apart from each other.
    above: BTreeMap<Seq, Seq>,
    /// No number at or above was given out.
    end: Seq,
}

/// At most `at_most` of the operations numbered in `first..end` are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Missing {
    pub first: Seq,
    pub end: Seq,
    pub at_most: u64,
}

impl Account {
    pub fn record(&mut self, event: &Event) {
        match event {
            Event::Gap { first, count, .. } => self.settle(*first, *count),
            Event::RestartGap { end, .. } => self.settle_below(*end),
            Event::Closed { next } => {
                self.settle_below(*next);
                self.end = *next;
            }
            Event::Reserve { end } => self.end = self.end.max(*end),
            _ => {
                if let Some(seq) = event.seq() {
                    self.settle(seq, 1);
                }
            }
        }
    }

    /// The first number that was certainly not given out.
    pub fn end(&self) -> Seq {
        self.end
    }

    /// What an end at this point leaves open.
    pub fn missing(&self) -> Option<Missing> {
        let (first, end) = (self.below, self.end);
        let told: u64 = self.above.iter().map(|(first, end)| end - first).sum();
        let at_most = end.saturating_sub(first).saturating_sub(told);
        (at_most > 0).then_some(Missing {
            first,
            end,
            at_most,
        })
    }

    /// Any of `first..first + count` is accounted for.
    pub fn tells_of(&self, first: Seq, count: u64) -> bool {
        let end = first.saturating_add(count);
        let touches = |(from, to): (&Seq, &Seq)| *from < end && *to > first;
        let last = self.above.range(..end).next_back();
        first < end && (first < self.below || last.is_some_and(touches))
    }

    /// Runs of accounted numbers that stand apart.
    pub fn runs(&self) -> usize {
        self.above.len()
    }

    fn settle(&mut self, first: Seq, count: u64) {
        let (mut first, mut end) = (first.max(self.below), first.saturating_add(count));
        self.end = self.end.max(end);
        if first >= end {
            return;
        }
        // Swallow every span that this one touches.
        while let Some((from, to)) = self.above.range(..=end).next_back().map(|(f, t)| (*f, *t))
            && to >= first
        {
            self.above.remove(&from);
            (first, end) = (first.min(from), end.max(to));
        }
        match first == self.below {
            true => self.below = end,
            false => {
                self.above.insert(first, end);
            }
        }
    }

    fn settle_below(&mut self, end: Seq) {
        self.settle(self.below, end.saturating_sub(self.below));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::record::tests::operation, *};
    use crate::audit::record::Outcome;

    fn done(seq: Seq) -> Event {
        Event::Operation {
            seq,
            operation: operation(0),
            outcome: Outcome::Done,
        }
    }

    #[test]
    fn no_number_is_given_ahead_of_a_durable_reservation() {
        let mut ledger = Ledger::new(10);
        assert_eq!((ledger.take(), ledger.left()), (None, 0));
        ledger.reserve(12);
        assert_eq!(ledger.left(), 2);
        assert_eq!(
            [ledger.take(), ledger.take(), ledger.take()],
            [Some(10), Some(11), None]
        );
        ledger.reserve(5);
        assert_eq!(ledger.take(), None, "a reservation never shrinks");
        assert_eq!(
            ledger.number(),
            12,
            "a number that waits for its record needs none"
        );
    }

    #[test]
    fn lost_numbers_join_to_runs_and_are_counted_once() {
        let mut ledger = Ledger::new(0);
        ledger.reserve(10);
        for _ in 0..8 {
            ledger.take();
        }
        assert!(ledger.settle(3) && !ledger.settle(3));
        let full = GapReason::QueueFull;
        for seq in [1, 0, 2, 5, 4, 4, 3, 9] {
            ledger.lose(seq, full);
        }
        ledger.lose(6, GapReason::Abandoned);
        let lost = |first, count, reason| Lost {
            first,
            count,
            reason,
        };
        let expected = vec![
            lost(0, 3, full),
            lost(4, 2, full),
            lost(6, 1, GapReason::Abandoned),
        ];
        let told = ledger.tell_lost();
        assert_eq!(told, expected);
        assert!(!ledger.has_lost());
        assert_eq!(ledger.outstanding(), 1);
        ledger.lose_all(GapReason::Abandoned);
        ledger.untell(&told);
        assert_eq!(
            ledger.tell_lost(),
            [
                lost(0, 3, full),
                lost(4, 2, full),
                lost(6, 2, GapReason::Abandoned)
            ]
        );
    }

    #[test]
    fn a_released_number_is_given_again_lowest_first() {
        let mut ledger = Ledger::new(0);
        assert_eq!(
            [ledger.number(), ledger.number(), ledger.number()],
            [0, 1, 2]
        );
        ledger.release(2);
        ledger.release(0);
        assert_eq!(ledger.take(), None, "not ahead of a reservation");
        assert_eq!(
            [ledger.number(), ledger.number(), ledger.number()],
            [0, 2, 3]
        );
    }

    #[test]
    fn the_account_of_a_log_says_how_much_can_be_missing() {
        let gap = |first, count| Event::Gap {
            first,
            count,
            reason: GapReason::QueueFull,
        };
        let missing = |first, end, at_most| {
            Some(Missing {
                first,
                end,
                at_most,
            })
        };
        let table: [(&str, &[Event], Option<Missing>); 9] = [
            ("nothing", &[], None),
            ("strict: records alone", &[done(0), done(1)], None),
            (
                "reserved, none recorded",
                &[Event::Reserve { end: 8 }],
                missing(0, 8, 8),
            ),
            (
                "some recorded",
                &[Event::Reserve { end: 8 }, done(0), done(1)],
                missing(2, 8, 6),
            ),
            (
                "out of order",
                &[Event::Reserve { end: 8 }, done(1), done(3)],
                missing(0, 8, 6),
            ),
            (
                "a gap accounts for its numbers",
                &[Event::Reserve { end: 8 }, done(1), gap(2, 3)],
                missing(0, 8, 4),
            ),
            (
                "closed",
                &[
                    Event::Reserve { end: 8 },
                    done(0),
                    Event::Closed { next: 1 },
                ],
                None,
            ),
            (
                "told at a restart",
                &[
                    Event::Reserve { end: 8 },
                    Event::RestartGap {
                        first: 0,
                        end: 8,
                        at_most: 8,
                    },
                ],
                None,
            ),
            (
                "a gap of any size",
                &[gap(1, u64::MAX), done(u64::MAX)],
                missing(0, u64::MAX, 1),
            ),
        ];
        for (what, events, expected) in table {
            let mut account = Account::default();
            events.iter().for_each(|event| account.record(event));
            assert_eq!(account.missing(), expected, "{what}");
        }
    }

    proptest! {
        /// Against the plain set of numbers.
        #[test]
        fn spans_are_the_set_they_stand_for(runs in prop::collection::vec((0_u64..60, 0_u64..6), 0..30), end in 0_u64..80) {
            let mut account = Account::default();
            account.record(&Event::Reserve { end });
            let mut set = BTreeSet::new();
            for (first, count) in runs {
                account.record(&Event::Gap { first, count, reason: GapReason::QueueFull });
                set.extend(first..first + count);
            }
            let end = end.max(account.end());
            let open: Vec<u64> = (0..end).filter(|seq| !set.contains(seq)).collect();
            for seq in 0..end {
                for count in 0..4 {
                    let told = (seq..seq + count).any(|seq| set.contains(&seq));
                    prop_assert_eq!(account.tells_of(seq, count), told, "{} {}", seq, count);
                }
            }
            prop_assert!(account.runs() <= set.len());
            let missing = account.missing();
            prop_assert_eq!(missing.map_or(0, |m| m.at_most), open.len() as u64);
            prop_assert_eq!(missing.map(|m| m.first), open.first().copied());
        }
    }
}
