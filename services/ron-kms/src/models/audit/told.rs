//! What the durable bytes of a small world's log tell, for the properties.

use std::collections::BTreeSet;

use crate::audit::{
    frames::{End, Scanner},
    merkle::{Frontier, leaf_hash},
    record::{Event, Seq},
    sequence::Missing,
};

/// All of it, from the first record on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Told {
    pub records: u64,
    pub whole: bool,
    pub twice: bool,
    pub recorded: BTreeSet<Seq>,
    pub intents: BTreeSet<Seq>,
    pub outcomes: BTreeSet<Seq>,
    pub gaps: BTreeSet<Seq>,
    pub restarts: Vec<(Seq, Seq, u64)>,
    /// What the next start would tell, were this the end.
    pub missing: Option<(Seq, Seq, u64)>,
    pub closed: bool,
    /// Root at each size.
    pub roots: Vec<[u8; 32]>,
}

impl Told {
    pub fn read(file: &[u8], missing: Option<Missing>) -> Told {
        let mut told = Told::default();
        let mut frontier = Frontier::default();
        told.roots.push(frontier.root());
        let mut scanner = Scanner::starting_at(0);
        scanner.feed(file, |framed| {
            frontier.push(leaf_hash(framed.bytes));
            told.roots.push(frontier.root());
            told.tell(&framed.record.event);
        });
        let scan = scanner.finish(|_| {});
        told.records = scan.records;
        // A torn end is seen only before the start has cut it off.
        told.whole = scan.end == End::Clean;
        told.missing = missing.map(|m| (m.first, m.end, m.at_most));
        told
    }

    /// Is each of these operations recorded, told as lost, or within a bound?
    pub fn admits(&self, answered: &BTreeSet<Seq>) -> bool {
        let mut missing = answered.clone();
        missing.retain(|seq| !self.recorded.contains(seq) && !self.gaps.contains(seq));
        for (first, end, at_most) in self.restarts.iter().chain(&self.missing) {
            let before = missing.len();
            missing.retain(|seq| !(first..end).contains(&seq));
            if (before - missing.len()) as u64 > *at_most {
                return false;
            }
        }
        missing.is_empty()
    }

    fn tell(&mut self, event: &Event) {
        match event {
            Event::Operation { seq, .. } => self.twice |= !self.recorded.insert(*seq),
            Event::Intent { seq, .. } => self.twice |= !self.intents.insert(*seq),
            Event::Outcome { seq, .. } => self.twice |= !self.outcomes.insert(*seq),
            Event::Gap { first, count, .. } => {
                for seq in *first..first + count {
                    self.twice |= !self.gaps.insert(seq);
                }
            }
            Event::RestartGap {
                first,
                end,
                at_most,
            } => self.restarts.push((*first, *end, *at_most)),
            _ => {}
        }
        self.closed = matches!(event, Event::Closed { .. });
    }
}
