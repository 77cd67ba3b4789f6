//! The start-up of the audit log: what the file of records and the last checkpoint say together.
//!
//! Fed with each record as it is read, it rebuilds the right edge, the account of numbers and the nonce
//! marks, and checks the root at the size that the checkpoint covers. A torn tail is cut off; anything else
//! that does not fit makes the log refuse new records, so that no key is used and the evidence stays.

use std::collections::BTreeMap;

use super::{
    checkpoint::Checkpoint,
    frames::{End, Framed, Scan},
    log::{AuditLog, Found, Head, Limits, Mismatch, Policy},
    merkle::Frontier,
    publish::Edge,
    record::Event,
    sequence::{Account, Missing},
};

/// The checkpoint that the disk holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// There is none.
    Absent,
    /// Its signatures were verified.
    Verified(Checkpoint),
    /// There is one, and it does not verify.
    Invalid,
}

/// What was recovered.
#[derive(Clone, Debug)]
pub struct Recovered {
    pub log: AuditLog,
    /// Cut the file to this length, and sync it, before anything is appended.
    pub truncate: Option<u64>,
    /// How many records could be missing, if the last end was unclean.
    pub missing: Option<Missing>,
    /// The first nonce that is certainly unused, by kid and version.
    pub nonces: BTreeMap<(String, u32), u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    stored: Stored,
    frontier: Frontier,
    edge: Edge,
    account: Account,
    nonces: BTreeMap<(String, u32), u64>,
    /// The last checkpoint that the records tell of.
    told: Option<Head>,
    mismatch: Option<Mismatch>,
}

impl Recovery {
    pub fn new(stored: Stored) -> Recovery {
        let mismatch = (stored == Stored::Invalid).then_some(Mismatch::BadCheckpoint);
        let mut recovery = Recovery {
            stored,
            frontier: Frontier::default(),
            edge: Edge::default(),
            account: Account::default(),
            nonces: BTreeMap::new(),
            told: None,
            mismatch,
        };
        recovery.check_root();
        recovery
    }

    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.frontier.size()
    }

    /// Reads on under this checkpoint, which covers no less than what was read.
    pub fn under(mut self, stored: Stored) -> Recovery {
        let invalid = stored == Stored::Invalid;
        self.set(invalid.then_some(Mismatch::BadCheckpoint));
        self.stored = stored;
        self.check_root();
        self
    }

    /// What was read is published: its tiles need not be held.
    pub fn published(&mut self) {
        self.edge.published(self.edge.size());
    }

    /// The next valid record of the file.
    pub fn record(&mut self, framed: &Framed<'_>) {
        let Ok(hash) = self.edge.push(framed.bytes) else {
            return;
        };
        self.frontier.push(hash);
        // What the checkpoint covers is published: its tiles need not be held.
        if self.edge.size() < self.covered() {
            self.edge.published(self.edge.size());
        }
        self.check_root();
        self.account.record(&framed.record.event);
        match &framed.record.event {
            Event::NonceMark { kid, version, next } => {
                let mark = self.nonces.entry((kid.clone(), *version)).or_default();
                *mark = (*mark).max(*next);
            }
            Event::Checkpoint { size, root } => {
                let (size, root) = (*size, *root);
                self.told = Some(Head { size, root });
            }
            _ => {}
        }
    }

    pub fn finish(mut self, scan: &Scan, policy: Policy, limits: Limits, now_ms: u64) -> Recovered {
        let covered = self.covered();
        let found = self.check_end(scan, covered);
        self.set(found);
        let truncate = match (&scan.end, &self.mismatch) {
            (End::Torn(_), None) => Some(scan.valid_len),
            _ => None,
        };
        let missing = self.account.missing();
        let found = Found {
            frontier: self.frontier,
            edge: self.edge,
            len: scan.valid_len,
            next: self.account.end(),
            missing,
            covered,
            mismatch: self.mismatch,
        };
        Recovered {
            log: AuditLog::open(policy, limits, found, now_ms),
            truncate,
            missing,
            nonces: self.nonces,
        }
    }

    fn covered(&self) -> u64 {
        match &self.stored {
            Stored::Verified(checkpoint) => checkpoint.size,
            Stored::Absent | Stored::Invalid => 0,
        }
    }

    /// At the size that the checkpoint covers, the records must have its root; its tiles are published.
    fn check_root(&mut self) {
        let Stored::Verified(checkpoint) = &self.stored else {
            return;
        };
        if checkpoint.size != self.frontier.size() {
            return;
        }
        self.edge.published(checkpoint.size);
        if checkpoint.root != self.frontier.root() {
            let covered = checkpoint.size;
            self.set(Some(Mismatch::OtherRoot { covered }));
        }
    }

    fn check_end(&self, scan: &Scan, covered: u64) -> Option<Mismatch> {
        let records = scan.records;
        match (&scan.end, &self.told) {
            (End::Corrupt(_), _) => Some(Mismatch::Corrupt { index: records }),
            (End::Newer { found }, _) => Some(Mismatch::Newer {
                index: records,
                found: *found,
            }),
            _ if records < covered => Some(Mismatch::Shorter { records, covered }),
            (_, Some(told)) if told.size > covered => Some(Mismatch::OldCheckpoint {
                told: told.size,
                covered,
            }),
            _ => None,
        }
    }

    /// The first thing that does not fit is the one to tell.
    fn set(&mut self, mismatch: Option<Mismatch>) {
        self.mismatch = self.mismatch.take().or(mismatch);
    }
}

#[cfg(test)]
mod tests;
