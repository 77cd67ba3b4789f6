//! Results kept for callers who ask again: by their operation id, for a day, within bounds.
//!
//! The result travels with the audit record, so what an answer promised survives a crash: the table is
//! rebuilt from the log. Always: one id stands for one request; at most `max_results` and `max_bytes` are
//! kept, the oldest leaving first.

use std::collections::{HashMap, VecDeque};

use aws_lc_rs::digest;

use crate::audit::merkle::Hash;

/// For so long a result can be asked for again.
pub const KEEP_MS: u64 = 24 * 3600 * 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpIds {
    max_results: usize,
    max_bytes: usize,
    bytes: usize,
    entries: HashMap<Hash, Entry>,
    /// By age; an id may be in it that has left the table.
    order: VecDeque<(Hash, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    request: Hash,
    at_ms: u64,
    /// `None` while the operation is under way.
    result: Option<Done>,
}

/// A result as the log keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub seq: u64,
    pub index: u64,
    pub result: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Not seen before: go on, then [`OpIds::finish`] or [`OpIds::cancel`].
    New,
    Again(Done),
    /// The same id for another request.
    Conflict,
    InFlight,
}

impl OpIds {
    pub fn new(max_results: usize, max_bytes: usize) -> OpIds {
        OpIds {
            max_results,
            max_bytes,
            bytes: 0,
            entries: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub fn begin(&mut self, id: Hash, request: Hash, now_ms: u64) -> Begin {
        self.expire(now_ms);
        if let Some(entry) = self.entries.get(&id) {
            return match &entry.result {
                _ if entry.request != request && !ron_core::mutant!("kms.op_id_for_another") => {
                    Begin::Conflict
                }
                Some(done) => Begin::Again(done.clone()),
                None if ron_core::mutant!("kms.op_id_twice_in_flight") => Begin::New,
                None => Begin::InFlight,
            };
        }
        let entry = Entry {
            request,
            at_ms: now_ms,
            result: None,
        };
        self.entries.insert(id, entry);
        Begin::New
    }

    /// Its result is durable; also what the start-up reads from the log.
    pub fn finish(&mut self, id: Hash, request: Hash, at_ms: u64, done: Done, now_ms: u64) {
        self.forget(&id);
        if at_ms.saturating_add(KEEP_MS) <= now_ms || done.result.len() > self.max_bytes {
            return;
        }
        self.bytes += done.result.len();
        let entry = Entry {
            request,
            at_ms,
            result: Some(done),
        };
        self.entries.insert(id, entry);
        self.order.push_back((id, at_ms));
        while self.bytes > self.max_bytes || self.order.len() > self.max_results {
            ron_core::sometimes!("kms.op_id_evicted");
            self.drop_oldest();
        }
    }

    /// It came to nothing: the id is free again.
    pub fn cancel(&mut self, id: &Hash) {
        if self.entries.get(id).is_some_and(|e| e.result.is_none()) {
            self.entries.remove(id);
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some((_, at_ms)) = self.order.front()
            && at_ms.saturating_add(KEEP_MS) <= now_ms
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((id, at_ms)) = self.order.pop_front()
            && let Some(entry) = self.entries.get(&id)
            && entry.at_ms == at_ms
            && entry.result.is_some()
        {
            self.forget(&id);
        }
    }

    fn forget(&mut self, id: &Hash) {
        if let Some(entry) = self.entries.remove(id)
            && let Some(done) = entry.result
        {
            self.bytes -= done.result.len();
        }
    }
}

/// An id counts within its tenant.
pub fn digest_of(tenant: &str, id: &str) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&(tenant.len() as u64).to_be_bytes());
    context.update(tenant.as_bytes());
    context.update(id.as_bytes());
    let mut hash = Hash::default();
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(n: u8, len: usize) -> Done {
        Done {
            seq: u64::from(n),
            index: u64::from(n),
            result: vec![n; len],
        }
    }

    fn id(n: u8) -> Hash {
        [n; 32]
    }

    #[test]
    fn one_id_stands_for_one_request() {
        let mut ids = OpIds::new(10, 1000);
        assert_eq!(ids.begin(id(1), id(9), 0), Begin::New);
        assert_eq!(ids.begin(id(1), id(9), 1), Begin::InFlight);
        assert_eq!(ids.begin(id(1), id(8), 1), Begin::Conflict);
        ids.finish(id(1), id(9), 5, done(1, 10), 5);
        assert_eq!(ids.begin(id(1), id(9), 6), Begin::Again(done(1, 10)));
        assert_eq!(ids.begin(id(1), id(8), 6), Begin::Conflict);
    }

    #[test]
    fn what_came_to_nothing_can_be_tried_again_and_a_result_is_not_cancelled() {
        let mut ids = OpIds::new(10, 1000);
        assert_eq!(ids.begin(id(1), id(9), 0), Begin::New);
        ids.cancel(&id(1));
        assert_eq!(ids.begin(id(1), id(8), 0), Begin::New);
        ids.finish(id(1), id(8), 0, done(1, 1), 0);
        ids.cancel(&id(1));
        assert_eq!(ids.begin(id(1), id(8), 0), Begin::Again(done(1, 1)));
    }

    #[test]
    fn results_are_kept_for_a_day() {
        let mut ids = OpIds::new(10, 1000);
        ids.finish(id(1), id(9), 100, done(1, 1), 100);
        let last = 100 + KEEP_MS - 1;
        assert_eq!(ids.begin(id(1), id(9), last), Begin::Again(done(1, 1)));
        assert_eq!(ids.begin(id(1), id(9), last + 1), Begin::New);
        // A log read long after does not bring it back.
        ids.finish(id(2), id(9), 100, done(2, 1), last + 1);
        assert_eq!(ids.begin(id(2), id(9), last + 1), Begin::New);
    }

    #[test]
    fn the_oldest_results_leave_first_by_count_and_by_bytes() {
        let mut ids = OpIds::new(3, 100);
        for n in 1..=4 {
            ids.finish(id(n), id(9), u64::from(n), done(n, 10), 10);
        }
        assert_eq!((ids.len(), ids.bytes), (3, 30));
        assert_eq!(ids.begin(id(1), id(9), 10), Begin::New);
        ids.cancel(&id(1));
        ids.finish(id(5), id(9), 5, done(5, 80), 10);
        assert_eq!((ids.len(), ids.bytes), (3, 100));
        assert_eq!(ids.begin(id(2), id(9), 10), Begin::New);
        ids.cancel(&id(2));
        assert_eq!(ids.begin(id(5), id(9), 10), Begin::Again(done(5, 80)));
        // What could never fit is not kept, and pushes nothing out.
        ids.finish(id(6), id(9), 6, done(6, 101), 10);
        assert_eq!(ids.begin(id(5), id(9), 10), Begin::Again(done(5, 80)));
    }

    #[test]
    fn an_id_counts_within_its_tenant() {
        assert_ne!(digest_of("a", "bc"), digest_of("ab", "c"));
        assert_ne!(digest_of("a", "x"), digest_of("b", "x"));
        assert_eq!(digest_of("a", "x"), digest_of("a", "x"));
    }
}
