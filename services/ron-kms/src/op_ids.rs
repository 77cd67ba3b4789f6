//! Results kept for callers who ask again: by their operation id, for a day, within bounds.
//!
//! The result travels with the audit record, so what an answer promised survives a crash: the table is
//! rebuilt from the log. Always: one id stands for one request; at most `max_results` and `max_bytes` are
//! kept, and room is made by the tenant that holds most. So among n tenants, one that holds an n-th of the
//! room or less keeps its results for the whole day, whatever the others do.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

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
    /// Results in the order in which they came.
    order: BTreeMap<Serial, Hash>,
    next: Serial,
    tenants: BTreeMap<Arc<str>, Holding>,
    /// Who holds how many bytes, and how many results: the last is who makes room.
    by_bytes: BTreeSet<(usize, Arc<str>)>,
    by_results: BTreeSet<(usize, Arc<str>)>,
}

type Serial = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    request: Hash,
    at_ms: u64,
    /// `None` while the operation is under way.
    kept: Option<Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    serial: Serial,
    tenant: Arc<str>,
    done: Done,
}

/// What one tenant has here; never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holding {
    bytes: usize,
    results: BTreeSet<Serial>,
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
            order: BTreeMap::new(),
            next: 0,
            tenants: BTreeMap::new(),
            by_bytes: BTreeSet::new(),
            by_results: BTreeSet::new(),
        }
    }

    pub fn begin(&mut self, id: Hash, request: Hash, now_ms: u64) -> Begin {
        self.expire(now_ms);
        if let Some(entry) = self.entries.get(&id) {
            return match &entry.kept {
                _ if entry.request != request => Begin::Conflict,
                Some(kept) => Begin::Again(kept.done.clone()),
                None => Begin::InFlight,
            };
        }
        let entry = Entry {
            request,
            at_ms: now_ms,
            kept: None,
        };
        self.entries.insert(id, entry);
        Begin::New
    }

    /// Its result is durable; also what the start-up reads from the log. `tenant` is whose room it takes.
    pub fn finish(
        &mut self,
        tenant: &str,
        id: Hash,
        request: Hash,
        at_ms: u64,
        done: Done,
        now_ms: u64,
    ) {
        self.forget(&id);
        if at_ms.saturating_add(KEEP_MS) <= now_ms || done.result.len() > self.max_bytes {
            return;
        }
        let len = done.result.len();
        let serial = self.next;
        self.next += 1;
        let tenant = self.hold(tenant, |holding| {
            holding.bytes += len;
            holding.results.insert(serial);
        });
        self.bytes += len;
        self.order.insert(serial, id);
        let kept = Kept {
            serial,
            tenant,
            done,
        };
        let entry = Entry {
            request,
            at_ms,
            kept: Some(kept),
        };
        self.entries.insert(id, entry);
        self.make_room();
    }

    /// It came to nothing: the id is free again.
    pub fn cancel(&mut self, id: &Hash) {
        if self.entries.get(id).is_some_and(|e| e.kept.is_none()) {
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
        while let Some((_, id)) = self.order.first_key_value()
            && let id = *id
            && let Some(entry) = self.entries.get(&id)
            && entry.at_ms.saturating_add(KEEP_MS) <= now_ms
        {
            self.forget(&id);
        }
    }

    /// The oldest of the tenant that holds most leaves, by what there is too much of.
    fn make_room(&mut self) {
        loop {
            let fullest = match () {
                () if self.bytes > self.max_bytes => self.by_bytes.last(),
                () if self.order.len() > self.max_results => self.by_results.last(),
                () => return,
            };
            let oldest = fullest
                .and_then(|(_, tenant)| self.tenants.get(tenant))
                .and_then(|holding| holding.results.first())
                .and_then(|serial| self.order.get(serial));
            let Some(id) = oldest.copied() else {
                return;
            };
            ron_core::sometimes!("kms.op_id_evicted");
            self.forget(&id);
        }
    }

    fn forget(&mut self, id: &Hash) {
        let Some(kept) = self.entries.remove(id).and_then(|entry| entry.kept) else {
            return;
        };
        let len = kept.done.result.len();
        self.bytes -= len;
        self.order.remove(&kept.serial);
        self.hold(&kept.tenant, |holding| {
            holding.bytes -= len;
            holding.results.remove(&kept.serial);
        });
    }

    /// Changes what a tenant holds, and where it stands among the others.
    fn hold(&mut self, tenant: &str, change: impl FnOnce(&mut Holding)) -> Arc<str> {
        let held = self.tenants.remove_entry(tenant);
        let (tenant, mut holding) = held.unwrap_or_else(|| (tenant.into(), Holding::default()));
        self.by_bytes.remove(&(holding.bytes, tenant.clone()));
        let count = holding.results.len();
        self.by_results.remove(&(count, tenant.clone()));
        change(&mut holding);
        if !holding.results.is_empty() {
            let count = holding.results.len();
            self.by_bytes.insert((holding.bytes, tenant.clone()));
            self.by_results.insert((count, tenant.clone()));
            self.tenants.insert(tenant.clone(), holding);
        }
        tenant
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
    use proptest::prelude::*;

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

    const T: &str = "t";

    #[test]
    fn one_id_stands_for_one_request() {
        let mut ids = OpIds::new(10, 1000);
        assert_eq!(ids.begin(id(1), id(9), 0), Begin::New);
        assert_eq!(ids.begin(id(1), id(9), 1), Begin::InFlight);
        assert_eq!(ids.begin(id(1), id(8), 1), Begin::Conflict);
        ids.finish(T, id(1), id(9), 5, done(1, 10), 5);
        assert_eq!(ids.begin(id(1), id(9), 6), Begin::Again(done(1, 10)));
        assert_eq!(ids.begin(id(1), id(8), 6), Begin::Conflict);
    }

    #[test]
    fn what_came_to_nothing_can_be_tried_again_and_a_result_is_not_cancelled() {
        let mut ids = OpIds::new(10, 1000);
        assert_eq!(ids.begin(id(1), id(9), 0), Begin::New);
        ids.cancel(&id(1));
        assert_eq!(ids.begin(id(1), id(8), 0), Begin::New);
        ids.finish(T, id(1), id(8), 0, done(1, 1), 0);
        ids.cancel(&id(1));
        assert_eq!(ids.begin(id(1), id(8), 0), Begin::Again(done(1, 1)));
    }

    #[test]
    fn results_are_kept_for_a_day() {
        let mut ids = OpIds::new(10, 1000);
        ids.finish(T, id(1), id(9), 100, done(1, 1), 100);
        let last = 100 + KEEP_MS - 1;
        assert_eq!(ids.begin(id(1), id(9), last), Begin::Again(done(1, 1)));
        assert_eq!(ids.begin(id(1), id(9), last + 1), Begin::New);
        // A log read long after does not bring it back.
        ids.finish(T, id(2), id(9), 100, done(2, 1), last + 1);
        assert_eq!(ids.begin(id(2), id(9), last + 1), Begin::New);
    }

    #[test]
    fn the_oldest_results_leave_first_by_count_and_by_bytes() {
        let mut ids = OpIds::new(3, 100);
        for n in 1..=4 {
            ids.finish(T, id(n), id(9), u64::from(n), done(n, 10), 10);
        }
        assert_eq!((ids.len(), ids.bytes), (3, 30));
        assert_eq!(ids.begin(id(1), id(9), 10), Begin::New);
        ids.cancel(&id(1));
        ids.finish(T, id(5), id(9), 5, done(5, 80), 10);
        assert_eq!((ids.len(), ids.bytes), (3, 100));
        assert_eq!(ids.begin(id(2), id(9), 10), Begin::New);
        ids.cancel(&id(2));
        assert_eq!(ids.begin(id(5), id(9), 10), Begin::Again(done(5, 80)));
        // What could never fit is not kept, and pushes nothing out.
        ids.finish(T, id(6), id(9), 6, done(6, 101), 10);
        assert_eq!(ids.begin(id(5), id(9), 10), Begin::Again(done(5, 80)));
    }

    #[test]
    fn a_tenant_that_floods_pushes_out_its_own_results_only() {
        let mut ids = OpIds::new(8, 1000);
        ids.finish("calm", id(1), id(9), 0, done(1, 100), 0);
        for n in 2..=40 {
            ids.finish("many", id(n), id(9), 1, done(n, 1), 1);
        }
        for n in 50..=80 {
            ids.finish("large", id(n), id(9), 2, done(n, 400), 2);
        }
        assert_eq!(ids.begin(id(1), id(9), 3), Begin::Again(done(1, 100)));
        assert!(matches!(ids.begin(id(80), id(9), 3), Begin::Again(_)));
        assert!(ids.order.len() <= 8 && ids.bytes <= 1000);
    }

    proptest! {
        /// Against a table without bounds: whoever stays within its share finds all of the last day.
        #[test]
        fn a_tenant_within_its_share_keeps_all_results_for_a_day(
            steps in proptest::collection::vec((0u8..4, 0usize..120, 0u64..KEEP_MS / 20), 1..200),
        ) {
            const TENANTS: [&str; 4] = ["a", "b", "c", "d"];
            let (max_results, max_bytes) = (24, 1000);
            let mut ids = OpIds::new(max_results, max_bytes);
            let mut all: Vec<(usize, u64, Hash, Done)> = Vec::new();
            // The most that each has ever held at once within a day.
            let mut most = [(0, 0); 4];
            let mut now = 0;
            for (n, (tenant, len, pause)) in (0u8..).zip(steps) {
                now += pause;
                let tenant = usize::from(tenant);
                let (id, done) = (id(n), done(n, len));
                ids.begin(id, [0; 32], now);
                ids.finish(TENANTS[tenant], id, [0; 32], now, done.clone(), now);
                all.push((tenant, now, id, done));
                let young = |at: u64| at + KEEP_MS > now;
                let own = all.iter().filter(|(t, at, ..)| *t == tenant && young(*at));
                let own = own.fold((0, 0), |(count, bytes), (.., done)| {
                    (count + 1, bytes + done.result.len())
                });
                most[tenant] = (most[tenant].0.max(own.0), most[tenant].1.max(own.1));

                prop_assert!(ids.order.len() <= max_results && ids.bytes <= max_bytes);
                let kept: usize = ids.tenants.values().map(|h| h.results.len()).sum();
                let bytes: usize = ids.tenants.values().map(|h| h.bytes).sum();
                prop_assert_eq!((kept, bytes), (ids.order.len(), ids.bytes));
                prop_assert_eq!(ids.by_bytes.len(), ids.tenants.len());
                prop_assert_eq!(ids.by_results.len(), ids.tenants.len());
                for (tenant, at, id, done) in &all {
                    let (count, bytes) = most[*tenant];
                    let behaves = count <= max_results / 4 && bytes <= max_bytes / 4;
                    if behaves && young(*at) {
                        let again = ids.begin(*id, [0; 32], now);
                        prop_assert_eq!(again, Begin::Again(done.clone()));
                    }
                }
            }
        }
    }

    #[test]
    fn an_id_counts_within_its_tenant() {
        assert_ne!(digest_of("a", "bc"), digest_of("ab", "c"));
        assert_ne!(digest_of("a", "x"), digest_of("b", "x"));
        assert_eq!(digest_of("a", "x"), digest_of("a", "x"));
    }
}
