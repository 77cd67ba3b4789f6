//! What a node keeps: the records of others that lie near it, and those that were published here.
//!
//! One writer ([`RecordStore`], which cannot be cloned) and any number of readers ([`RecordReader`]). Records lie in
//! shards that are replaced as a whole, so a reader sees whole records and never waits. Always: the quotas hold after
//! every call; of one publisher, kind and key there is one record, the newest that came; what is out of its time is
//! given to nobody, though it may lie here until [`RecordStore::expire`]. Signatures were checked before.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arc_swap::ArcSwapOption;

use crate::{
    id::{Distance, Id},
    identity::PublicKey,
    record::{Record, RecordKind},
    wire::message::RefusalCode,
};

/// What a record costs beyond its body.
pub const RECORD_OVERHEAD_BYTES: usize = 256;

const SHARDS: usize = 32;

/// How much is kept, so that nobody fills a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreQuotas {
    /// Records of one publisher that is not this node.
    pub per_publisher: usize,
    /// Provider records of one key, our own aside.
    pub providers_per_key: usize,
    /// Everything, with [`RECORD_OVERHEAD_BYTES`] for each record.
    pub max_bytes: usize,
    /// Records that were published here.
    pub published: usize,
    /// How far the clocks of two nodes may be apart.
    pub clock_skew_ms: u64,
}

impl Default for StoreQuotas {
    fn default() -> Self {
        StoreQuotas {
            per_publisher: 256,
            providers_per_key: 64,
            max_bytes: 64 * 1024 * 1024,
            published: 1024,
            clock_skew_ms: 60 * 1000,
        }
    }
}

/// What became of a record that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// There was none; these gave way.
    New { evicted: Vec<Arc<Record>> },
    /// It replaced an older one.
    Newer { evicted: Vec<Arc<Record>> },
    /// It was there.
    Same,
}

impl Put {
    /// Those that gave way.
    pub fn evicted(&self) -> &[Arc<Record>] {
        match self {
            Put::New { evicted } | Put::Newer { evicted } => evicted,
            Put::Same => &[],
        }
    }
}

/// Which record: there is one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordName {
    pub kind: RecordKind,
    pub key: Id,
    pub publisher: PublicKey,
}

impl RecordName {
    pub fn of(record: &Record) -> RecordName {
        RecordName {
            kind: record.kind,
            key: record.key,
            publisher: record.publisher,
        }
    }
}

/// Sorted by [`order`].
type Shard = Vec<Arc<Record>>;

#[derive(Debug)]
struct Shared {
    me: Id,
    clock_skew_ms: u64,
    shards: [ArcSwapOption<Shard>; SHARDS],
}

/// The writer.
#[derive(Debug)]
pub struct RecordStore {
    shared: Arc<Shared>,
    quotas: StoreQuotas,
    bytes: usize,
    records: usize,
    /// How many there are of each, of those that count against its quota.
    publishers: BTreeMap<PublicKey, usize>,
    published: BTreeSet<RecordName>,
    /// Nothing ends before.
    soonest_end_ms: u64,
}

/// Reads what the writer has put, at any time.
#[derive(Clone, Debug)]
pub struct RecordReader {
    shared: Arc<Shared>,
}

impl RecordReader {
    /// The value that lies there, if its time is now.
    pub fn value(&self, key: &Id, now_wall_ms: u64) -> Option<Arc<Record>> {
        self.find(key, RecordKind::Value, now_wall_ms, 1).pop()
    }

    /// Who provides it, at most `max` of them.
    pub fn providers(&self, key: &Id, now_wall_ms: u64, max: usize) -> Vec<Arc<Record>> {
        self.find(key, RecordKind::Provider, now_wall_ms, max)
    }

    /// Every record whose time is now, shard by shard: what a republisher goes through. Sees each shard as it is when
    /// it comes to it.
    pub fn all(&self, now_wall_ms: u64) -> impl Iterator<Item = Arc<Record>> {
        let shards = self.shared.shards.iter();
        let records = shards
            .filter_map(ArcSwapOption::load_full)
            .flat_map(|shard| (*shard).clone());
        records.filter(move |record| self.shared.counts(record, now_wall_ms))
    }

    fn find(&self, key: &Id, kind: RecordKind, now: u64, max: usize) -> Vec<Arc<Record>> {
        let Some(shard) = self.shared.shards[shard_of(key)].load_full() else {
            return Vec::new();
        };
        let run = &shard[self.shared.run(&shard, key, kind)];
        let counting = run.iter().filter(|record| self.shared.counts(record, now));
        counting.take(max).cloned().collect()
    }
}

impl RecordStore {
    /// An empty store of the node with this id.
    pub fn new(me: Id, quotas: StoreQuotas) -> RecordStore {
        RecordStore {
            shared: Arc::new(Shared {
                me,
                clock_skew_ms: quotas.clock_skew_ms,
                shards: [const { ArcSwapOption::const_empty() }; SHARDS],
            }),
            quotas,
            bytes: 0,
            records: 0,
            publishers: BTreeMap::new(),
            published: BTreeSet::new(),
            soonest_end_ms: u64::MAX,
        }
    }

    pub fn reader(&self) -> RecordReader {
        RecordReader {
            shared: self.shared.clone(),
        }
    }

    pub fn records(&self) -> usize {
        self.records
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a record whose form and signature were checked, from whomever it came.
    pub fn put(&mut self, record: Record, now_wall_ms: u64) -> Result<Put, RefusalCode> {
        self.insert(record, now_wall_ms, false)
    }

    /// Takes a record that this node publishes. It never gives way and stays, in its time or not, until it is replaced or
    /// [withdrawn](Self::withdraw): it is for the republisher to renew it.
    pub fn publish(&mut self, record: Record, now_wall_ms: u64) -> Result<Put, RefusalCode> {
        self.insert(record, now_wall_ms, true)
    }

    /// No longer published here, and gone from here. Elsewhere it ends with its time.
    pub fn withdraw(&mut self, name: &RecordName) -> Option<Arc<Record>> {
        match self.published.contains(name) {
            true => self.discard(name),
            false => None,
        }
    }

    /// Takes a record out, whoever published it.
    pub fn discard(&mut self, name: &RecordName) -> Option<Arc<Record>> {
        let record = self.get(name)?;
        if self.published.remove(name) {
            self.count(&name.publisher);
        }
        self.remove(std::slice::from_ref(&record));
        Some(record)
    }

    /// Everything that is held, in or out of its time, and whether it was published here.
    pub fn contents(&self) -> impl Iterator<Item = (Arc<Record>, bool)> {
        let shards = self
            .shared
            .shards
            .iter()
            .filter_map(ArcSwapOption::load_full);
        let records = shards.flat_map(|shard| (*shard).clone());
        records.map(|record| {
            let published = self.published.contains(&RecordName::of(&record));
            (record, published)
        })
    }

    /// What was published here, in or out of its time.
    pub fn published(&self) -> impl Iterator<Item = Arc<Record>> {
        self.published.iter().filter_map(|name| self.get(name))
    }

    /// Drops what is out of its time; what was published here stays. Costs nothing while there is nothing to drop.
    pub fn expire(&mut self, now_wall_ms: u64) -> Vec<Arc<Record>> {
        if now_wall_ms < self.soonest_end_ms {
            return Vec::new();
        }
        self.soonest_end_ms = u64::MAX;
        let mut ended = Vec::new();
        for at in 0..SHARDS {
            let Some(shard) = self.shared.shards[at].load_full() else {
                continue;
            };
            for record in shard.iter() {
                if self.published.contains(&RecordName::of(record)) {
                    continue;
                }
                match self.shared.ends_ms(record) <= now_wall_ms {
                    true => ended.push(record.clone()),
                    false => self.ends_at(record),
                }
            }
        }
        self.remove(&ended);
        ended
    }

    fn insert(&mut self, record: Record, now: u64, publish: bool) -> Result<Put, RefusalCode> {
        let name = RecordName::of(&record);
        let held = self.get(&name);
        let ours = publish || self.published.contains(&name);
        if !ours && !self.shared.counts(&record, now) {
            ron_core::sometimes!("dht.expired_refused");
            return Err(RefusalCode::Expired);
        }
        // What is held counts even past its time: an older one must not come back after it.
        match &held {
            Some(held) if **held == record => {
                self.mark_published(name, publish)?;
                return Ok(Put::Same);
            }
            Some(held) if !record.supersedes(held) => {
                ron_core::sometimes!("dht.older_refused");
                return Err(RefusalCode::Stale);
            }
            _ => {}
        }
        if held.is_none() && !ours {
            self.check_counts(&record)?;
        }
        let freed = held.as_deref().map_or(0, weight);
        let evicted = self.room_for(&record, freed, ours)?;
        self.mark_published(name, publish)?;
        if !evicted.is_empty() {
            ron_core::sometimes!("dht.record_evicted");
        }
        self.remove(&evicted);
        let newer = held.is_some();
        self.replace(held, Arc::new(record), ours);
        Ok(match newer {
            true => Put::Newer { evicted },
            false => Put::New { evicted },
        })
    }

    /// The quotas that a further record of its publisher and key would break.
    fn check_counts(&self, record: &Record) -> Result<(), RefusalCode> {
        let of_publisher = self.publishers.get(&record.publisher);
        if of_publisher.is_some_and(|n| *n >= self.quotas.per_publisher) {
            ron_core::sometimes!("dht.publisher_full");
            return Err(RefusalCode::Quota);
        }
        if record.kind == RecordKind::Provider
            && let Some(shard) = self.shared.shards[shard_of(&record.key)].load_full()
        {
            let run = &shard[self.shared.run(&shard, &record.key, RecordKind::Provider)];
            let others = run
                .iter()
                .filter(|r| !self.published.contains(&RecordName::of(r)));
            if others.count() >= self.quotas.providers_per_key {
                return Err(RefusalCode::Quota);
            }
        }
        Ok(())
    }

    /// Who must give way: the farthest first, and for a record of others only what lies farther than it does.
    fn room_for(
        &self,
        record: &Record,
        freed: usize,
        ours: bool,
    ) -> Result<Vec<Arc<Record>>, RefusalCode> {
        let wanted = (self.bytes - freed + weight(record)).saturating_sub(self.quotas.max_bytes);
        let mut found = 0;
        let mut victims = Vec::new();
        if wanted == 0 {
            return Ok(victims);
        }
        let name = RecordName::of(record);
        let distance = self.shared.distance(&record.key);
        for candidate in self.farthest_first() {
            let nearer = self.shared.distance(&candidate.key) <= distance;
            if found >= wanted || (nearer && !ours) {
                break;
            }
            let candidate_name = RecordName::of(&candidate);
            if candidate_name != name && !self.published.contains(&candidate_name) {
                found += weight(&candidate);
                victims.push(candidate);
            }
        }
        match found >= wanted {
            true => Ok(victims),
            false => Err(RefusalCode::Quota),
        }
    }

    /// All records, from far to near, as far as anybody asks.
    fn farthest_first(&self) -> impl Iterator<Item = Arc<Record>> {
        let load = |shard: &ArcSwapOption<Shard>| shard.load_full().unwrap_or_default();
        let shards: Vec<_> = self.shared.shards.iter().map(load).collect();
        let mut left: Vec<usize> = shards.iter().map(|shard| shard.len()).collect();
        std::iter::from_fn(move || {
            let last = |at: &usize| left[*at].checked_sub(1).map(|i| &shards[*at][i]);
            let farthest = (0..SHARDS).filter(|at| last(at).is_some());
            let at = farthest.max_by_key(|at| last(at).map(|r| self.shared.distance(&r.key)))?;
            left[at] -= 1;
            Some(shards[at][left[at]].clone())
        })
    }

    fn mark_published(&mut self, name: RecordName, publish: bool) -> Result<(), RefusalCode> {
        if !publish || self.published.contains(&name) {
            return Ok(());
        }
        if self.published.len() >= self.quotas.published {
            return Err(RefusalCode::Quota);
        }
        self.published.insert(name);
        // It was there as a record of others, by way of another node.
        if self.get(&name).is_some() {
            self.uncount(&name.publisher);
        }
        Ok(())
    }

    /// Puts `new` in the place of `old`, in one step for the readers.
    fn replace(&mut self, old: Option<Arc<Record>>, new: Arc<Record>, ours: bool) {
        self.bytes += weight(&new);
        match &old {
            Some(old) => self.bytes -= weight(old),
            None => self.records += 1,
        }
        if !ours {
            self.ends_at(&new);
            if old.is_none() {
                self.count(&new.publisher);
            }
        }
        let cell = &self.shared.shards[shard_of(&new.key)];
        let shard = cell.load_full().unwrap_or_default();
        let next = match self.shared.position(&shard, &RecordName::of(&new)) {
            Ok(at) => {
                let mut next = (*shard).clone();
                next[at] = new;
                next
            }
            Err(at) => {
                let mut next = Vec::with_capacity(shard.len() + 1);
                next.extend_from_slice(&shard[..at]);
                next.push(new);
                next.extend_from_slice(&shard[at..]);
                next
            }
        };
        cell.store(Some(Arc::new(next)));
    }

    fn remove(&mut self, gone: &[Arc<Record>]) {
        let mut by_shard: BTreeMap<usize, BTreeSet<RecordName>> = BTreeMap::new();
        for record in gone {
            self.bytes -= weight(record);
            self.records -= 1;
            self.uncount(&record.publisher);
            let names = by_shard.entry(shard_of(&record.key)).or_default();
            names.insert(RecordName::of(record));
        }
        for (at, names) in by_shard {
            let shard = self.shared.shards[at].load_full().unwrap_or_default();
            let kept = shard
                .iter()
                .filter(|record| !names.contains(&RecordName::of(record)));
            let mut kept: Shard = kept.cloned().collect();
            kept.shrink_to_fit();
            self.shared.shards[at].store((!kept.is_empty()).then(|| Arc::new(kept)));
        }
    }

    fn count(&mut self, publisher: &PublicKey) {
        *self.publishers.entry(*publisher).or_default() += 1;
    }

    fn uncount(&mut self, publisher: &PublicKey) {
        if let Some(count) = self.publishers.get_mut(publisher) {
            *count -= 1;
            if *count == 0 {
                self.publishers.remove(publisher);
            }
        }
    }

    fn get(&self, name: &RecordName) -> Option<Arc<Record>> {
        let shard = self.shared.shards[shard_of(&name.key)].load_full()?;
        let at = self.shared.position(&shard, name).ok()?;
        Some(shard[at].clone())
    }

    fn ends_at(&mut self, record: &Record) {
        self.soonest_end_ms = self.soonest_end_ms.min(self.shared.ends_ms(record));
    }
}

impl Shared {
    fn counts(&self, record: &Record, now_wall_ms: u64) -> bool {
        record.check_time(self.clock_skew_ms, now_wall_ms).is_ok()
    }

    fn ends_ms(&self, record: &Record) -> u64 {
        record.ends_ms().saturating_add(self.clock_skew_ms)
    }

    fn distance(&self, key: &Id) -> Distance {
        self.me.distance(key)
    }

    fn position(&self, shard: &Shard, name: &RecordName) -> Result<usize, usize> {
        let by_place = |record: &Arc<Record>| {
            let place = self.order(record, &name.key, name.kind);
            place.then_with(|| record.publisher.cmp(&name.publisher))
        };
        shard.binary_search_by(by_place)
    }

    /// Where the records of this key and kind lie.
    fn run(&self, shard: &Shard, key: &Id, kind: RecordKind) -> std::ops::Range<usize> {
        let start = shard.partition_point(|record| self.order(record, key, kind).is_lt());
        let len = shard[start..].partition_point(|record| self.order(record, key, kind).is_eq());
        start..start + len
    }

    /// From near to far, so that the farthest of a shard is its last.
    fn order(&self, record: &Record, key: &Id, kind: RecordKind) -> Ordering {
        let distance = self.distance(&record.key).cmp(&self.distance(key));
        distance.then_with(|| record.kind.cmp(&kind))
    }
}

/// By its last byte: the first ones are much the same in all that lies near a node.
fn shard_of(key: &Id) -> usize {
    usize::from(key.0[31]) % SHARDS
}

fn weight(record: &Record) -> usize {
    RECORD_OVERHEAD_BYTES + record.body.len()
}

#[cfg(test)]
mod tests;
