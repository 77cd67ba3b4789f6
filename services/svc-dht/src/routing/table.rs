//! The routing table: everybody reads snapshots, each bucket has one writer half and no more.
//!
//! Always: a bucket changes only through its [`BucketWriterHalf`], which cannot be cloned and of which one
//! exists at a time; a reader sees a bucket as it was after some change, whole. Buckets and what leads to them
//! are made when first used, so a table that nobody uses is a few hundred bytes.

use std::{
    array, fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use ron_core::{
    SnapshotReader, SnapshotWriter,
    lock::{LockDecl, RankedMutex},
    snapshot,
};

use crate::{
    contact::{Contact, Subnet},
    id::{Distance, Id},
};

use super::{Bucket, BucketAction, Entry, Home, K_MAX, Rules, Seconds, Update, diversity};

pub const ROUTING_LOCK: LockDecl = LockDecl {
    name: "routing_snapshot",
    rank: 20,
    guards: "which buckets have a writer, and that two writers do not admit the same network at once",
};

/// A bucket as readers see it, the least recently seen first.
pub type View = Arc<[Entry]>;

/// The readers' side; clones read the same table.
#[derive(Clone)]
pub struct Table(Arc<Inner>);

/// The right to change one bucket. Dropped, it can be claimed again, with the entries as they were;
/// [set down](BucketWriterHalf::set_down), with everything.
pub struct BucketWriterHalf {
    table: Table,
    bucket: Bucket,
    /// None only while it is dropped.
    writer: Option<SnapshotWriter<View>>,
}

/// Which peers are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Without those known dead: what others are told.
    SkipDead,
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub peers: usize,
    pub dead: usize,
    /// Buckets that hold somebody.
    pub buckets: usize,
}

struct Inner {
    home: Home,
    groups: [OnceLock<Box<Group>>; GROUPS],
    /// A bit for each bucket that holds somebody: set before it is published, cleared after.
    filled: [AtomicU64; 4],
    /// Writers of buckets that were made and that nobody holds now.
    parked: RankedMutex<Vec<Parked>>,
}

/// The right to change a bucket while nobody has it.
struct Parked {
    index: u8,
    writer: SnapshotWriter<View>,
    /// If somebody waits for a place or was asked after; gone if its writer fell.
    bucket: Option<Box<Bucket>>,
}

/// Near buckets are nearly all empty in any network, so slots are made in groups.
type Group = [OnceLock<SnapshotReader<View>>; GROUP];

const GROUP: usize = 16;
const GROUPS: usize = crate::id::BUCKETS / GROUP;

impl Table {
    pub fn new(me: Id, rules: Rules) -> Table {
        Table(Arc::new(Inner {
            home: Home { me, rules },
            groups: array::from_fn(|_| OnceLock::new()),
            filled: array::from_fn(|_| AtomicU64::new(0)),
            parked: RankedMutex::new(ROUTING_LOCK, Vec::new()),
        }))
    }

    pub fn me(&self) -> &Id {
        &self.0.home.me
    }

    pub fn rules(&self) -> &Rules {
        &self.0.home.rules
    }

    /// The bucket that this id would be in; none for our own.
    pub fn bucket_of(&self, id: &Id) -> Option<u8> {
        self.0.home.me.bucket_of(id)
    }

    /// An id that belongs into this bucket, made of random bytes: what a refresh looks up.
    pub fn id_in(&self, index: u8, random: [u8; 32]) -> Id {
        let (byte, bit) = (31 - usize::from(index) / 8, 1_u8 << (index % 8));
        let mut id = self.0.home.me.0;
        id[byte] ^= bit;
        id[byte] = (id[byte] & !(bit - 1)) | (random[byte] & (bit - 1));
        id[byte + 1..].copy_from_slice(&random[byte + 1..]);
        Id(id)
    }

    /// The right to change this bucket, or none while somebody has it.
    pub fn claim(&self, index: u8) -> Option<BucketWriterHalf> {
        let mut parked = self.0.parked.lock();
        let made = parked.iter().position(|parked| parked.index == index);
        let (writer, bucket) = match made {
            Some(at) => {
                let Parked { writer, bucket, .. } = parked.swap_remove(at);
                (writer, bucket)
            }
            None => {
                let (writer, reader) = snapshot(View::default());
                // It is set already while the bucket's writer is held by somebody.
                let set = self.slot_or_make(index).set(reader);
                if set.is_err() {
                    return None;
                }
                (writer, None)
            }
        };
        if parked.is_empty() {
            *parked = Vec::new();
        }
        drop(parked);
        let entries = View::clone(&writer.load());
        Some(BucketWriterHalf {
            table: self.clone(),
            bucket: bucket.map_or_else(|| Bucket::with(index, entries), |bucket| *bucket),
            writer: Some(writer),
        })
    }

    /// The bucket as it is now; empty if nobody ever wrote it.
    pub fn view(&self, index: u8) -> View {
        self.slot(index)
            .map_or_else(View::default, |slot| View::clone(&slot.load()))
    }

    pub fn get(&self, id: &Id) -> Option<Entry> {
        let slot = self.slot(self.bucket_of(id)?)?;
        slot.load().iter().find(|e| e.contact.id == *id).copied()
    }

    /// Worth telling the bucket that this peer answered? Not if it knows from a moment ago.
    pub fn is_news(&self, id: &Id, now_s: Seconds) -> bool {
        /// So long it is a moment ago.
        const MOMENT_S: Seconds = 7;
        let moment = MOMENT_S.min(self.0.home.rules.fresh_s / 4);
        self.get(id).is_none_or(|e| {
            e.fails() > 0 || e.is_saved() || now_s >= e.last_seen_s().saturating_add(moment)
        })
    }

    /// The `n` known peers closest to `target`, from near to far, without `exclude`.
    pub fn closest(
        &self,
        target: &Id,
        n: usize,
        liveness: Liveness,
        exclude: Option<&Id>,
    ) -> Vec<Contact> {
        let mut found = Vec::with_capacity(n.min(K_MAX));
        self.for_closest(target, n, liveness, exclude, |entry| {
            found.push(entry.contact)
        });
        found
    }

    /// The same with what is known of each.
    pub fn closest_entries(
        &self,
        target: &Id,
        n: usize,
        liveness: Liveness,
        exclude: Option<&Id>,
    ) -> Vec<Entry> {
        let mut found = Vec::with_capacity(n.min(K_MAX));
        self.for_closest(target, n, liveness, exclude, |entry| found.push(*entry));
        found
    }

    /// The same one by one, without allocating.
    ///
    /// Every peer of one bucket is closer to the target than every peer of the next: those where the target
    /// differs from us come first, from far to near, then the others from near to far. So whole buckets are
    /// taken in turn and only within one is sorted.
    pub fn for_closest(
        &self,
        target: &Id,
        n: usize,
        liveness: Liveness,
        exclude: Option<&Id>,
        mut found: impl FnMut(&Entry),
    ) {
        let mut left = n;
        let mut order = [(0, 0); K_MAX];
        for index in self.by_distance(target) {
            if left == 0 {
                return;
            }
            let Some(slot) = self.slot(index) else {
                continue;
            };
            let view = slot.load();
            let wanted = |e: &Entry| {
                (liveness == Liveness::All || !e.is_dead()) && exclude != Some(&e.contact.id)
            };
            left -= nearest(target, &view, wanted, left, &mut order, &mut found);
        }
    }

    /// Buckets that hold somebody, and what they hold, from far to near.
    pub fn buckets(&self) -> impl Iterator<Item = (u8, View)> + '_ {
        let filled = self.filled();
        let indexes = (0..4)
            .rev()
            .flat_map(move |word| descending(filled[word], word));
        indexes.map(|index| (index, self.view(index)))
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (_, view) in self.buckets() {
            counts.peers += view.len();
            counts.dead += view.iter().filter(|e| e.is_dead()).count();
            counts.buckets += usize::from(!view.is_empty());
        }
        counts
    }

    /// How many buckets hold somebody.
    pub fn non_empty(&self) -> usize {
        self.filled()
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// What is on the heap for it; what its writer halves hold besides is theirs to say.
    pub fn heap_bytes(&self) -> usize {
        let groups = self
            .0
            .groups
            .iter()
            .filter(|group| group.get().is_some())
            .count();
        let cells = (0..=u8::MAX)
            .filter(|index| self.slot(*index).is_some())
            .count();
        // Two counters and a pointer for the cell of a snapshot, and again for the list that it points to.
        let cell = 6 * size_of::<usize>() + size_of::<usize>();
        let parked = self.0.parked.lock().capacity() * size_of::<Parked>();
        size_of::<Inner>() + groups * size_of::<Group>() + cells * cell + parked
    }

    fn slot_or_make(&self, index: u8) -> &OnceLock<SnapshotReader<View>> {
        let group = &self.0.groups[usize::from(index) / GROUP];
        let group = group.get_or_init(|| Box::new(array::from_fn(|_| OnceLock::new())));
        &group[usize::from(index) % GROUP]
    }

    fn slot(&self, index: u8) -> Option<&SnapshotReader<View>> {
        let group = self.0.groups[usize::from(index) / GROUP].get()?;
        group[usize::from(index) % GROUP].get()
    }

    fn filled(&self) -> [u64; 4] {
        array::from_fn(|word| self.0.filled[word].load(Ordering::Acquire))
    }

    /// Filled buckets in the order of their distance from the target.
    fn by_distance(&self, target: &Id) -> impl Iterator<Item = u8> {
        let filled = self.filled();
        let differs = words(&self.0.home.me.distance(target));
        let nearer = (0..4)
            .rev()
            .flat_map(move |word| descending(filled[word] & differs[word], word));
        let farther = (0..4).flat_map(move |word| ascending(filled[word] & !differs[word], word));
        nearer.chain(farther)
    }

    /// Peers of this network in all buckets but one.
    fn elsewhere(&self, index: u8, subnet: &Subnet) -> usize {
        let others = self.buckets().filter(|(at, _)| *at != index);
        others
            .map(|(_, view)| diversity::count(&view, subnet))
            .sum()
    }
}

impl BucketWriterHalf {
    pub fn index(&self) -> u8 {
        self.bucket.index()
    }

    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Whoever claims it next finds all as it is now, also who waits for a place.
    pub fn set_down(mut self) {
        let bucket = std::mem::replace(&mut self.bucket, Bucket::new(0));
        let more = !bucket.is_settled();
        self.park(bucket.index(), more.then(|| Box::new(bucket)));
    }

    fn park(&mut self, index: u8, bucket: Option<Box<Bucket>>) {
        if let Some(writer) = self.writer.take() {
            let parked = Parked {
                index,
                writer,
                bucket,
            };
            self.table.0.parked.lock().push(parked);
        }
    }

    /// Changes the bucket and publishes it. When this returns, every reader sees the change.
    pub fn handle(&mut self, update: Update, now_s: Seconds) -> Vec<BucketAction> {
        let table = self.table.clone();
        // Between counting a network's peers and publishing one more, no other bucket may add one.
        let _alone = (!self.bucket.adds_nobody(&update)).then(|| table.0.parked.lock());
        let before = self.bucket.entries().clone();
        let index = self.bucket.index();
        let elsewhere = |subnet: &Subnet| table.elsewhere(index, subnet);
        let actions = self.bucket.handle(update, now_s, &table.0.home, elsewhere);
        if !Arc::ptr_eq(&before, self.bucket.entries()) {
            self.publish();
        }
        actions
    }

    fn publish(&mut self) {
        let entries = self.bucket.entries();
        let (word, bit) = (
            usize::from(self.bucket.index()) / 64,
            1 << (self.bucket.index() % 64),
        );
        let filled = &self.table.0.filled[word];
        if !entries.is_empty() {
            filled.fetch_or(bit, Ordering::AcqRel);
        }
        if let Some(writer) = &mut self.writer {
            writer.publish(entries.clone());
        }
        if entries.is_empty() {
            filled.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

impl Drop for BucketWriterHalf {
    fn drop(&mut self) {
        self.park(self.bucket.index(), None);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("me", &self.0.home.me)
            .field("counts", &self.counts())
            .finish()
    }
}

impl fmt::Debug for BucketWriterHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bucket.fmt(f)
    }
}

/// Hands out the `n` nearest of at most [`K_MAX`] entries in order; how many there were.
fn nearest(
    target: &Id,
    entries: &[Entry],
    wanted: impl Fn(&Entry) -> bool,
    n: usize,
    order: &mut [(u64, u8); K_MAX],
    found: &mut impl FnMut(&Entry),
) -> usize {
    // The first eight bytes nearly always decide.
    let short = target.short();
    let mut len = 0;
    let wanted = entries.iter().enumerate().filter(|(_, e)| wanted(e));
    for (place, (at, entry)) in order.iter_mut().zip(wanted) {
        *place = (entry.contact.id.short() ^ short, at as u8);
        len += 1;
    }
    let order = &mut order[..len];
    let id = |at: u8| &entries[usize::from(at)].contact.id;
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| target.compare(id(a.1), id(b.1))));
    let nearest = order
        .iter()
        .take(n)
        .map(|(_, at)| &entries[usize::from(*at)]);
    nearest.map(found).count()
}

/// Bit `i % 64` of word `i / 64` is bit `i` of the distance, as buckets are numbered.
fn words(distance: &Distance) -> [u64; 4] {
    array::from_fn(|word| {
        let bytes = &distance.0[8 * (3 - word)..8 * (4 - word)];
        bytes
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    })
}

fn descending(mut bits: u64, word: usize) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = bits.checked_ilog2()?;
        bits &= !(1 << bit);
        Some((64 * word as u32 + bit) as u8)
    })
}

fn ascending(mut bits: u64, word: usize) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some((64 * word as u32 + bit) as u8)
    })
}

#[cfg(test)]
mod tests;
