//! The one who changes the record store: applies verified records, drops what is out of its time, and writes
//! the journal.
//!
//! Many writes share one sync. Always: an acknowledgement leaves after the record is durable; what could not
//! be written is answered so, and then nothing is acknowledged before the whole store is in a new file.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use ron_core::{
    Env, durable,
    journal::HeaderError,
    lock::{LockDecl, RankedMutex},
    seam::{Disk, Open},
    supervisor::TaskContext,
};
use tokio::sync::oneshot;

use crate::{
    error::DhtError,
    events::Event,
    id::Id,
    metrics::Family,
    node::Node,
    record::Record,
    record_journal::{self as entries, Batch, Records},
    record_store::{Put, RecordReader, RecordStore, StoreQuotas},
    wire::message::RefusalCode,
    worker::Reply,
};

/// What the keeper is asked.
pub enum Write {
    /// A verified record of somebody.
    Put { record: Record, reply: Reply },
    /// A record that this node publishes.
    Publish { record: Record, reply: Reply },
    /// Which records this node publishes, in or out of their time.
    Mine(oneshot::Sender<Vec<Arc<Record>>>),
}

type Journal = ron_core::journal::Journal<Records>;

const FILE: &str = "records.journal";

/// Writes that share one sync.
const BATCH: usize = 128;

/// Time between two looks for what is out of its time; only while something is held.
const EXPIRE_EVERY: Duration = Duration::from_secs(30);

pub const KEEPER_LOCK: LockDecl = LockDecl {
    name: "record_keeper",
    rank: 22,
    guards: "the record store and its file, between two lives of the keeper",
};

/// The store and its file; whoever runs the keeper takes it out and puts it back.
pub struct KeeperSlot(RankedMutex<Option<Keeper>>);

pub struct Keeper {
    store: RecordStore,
    journal: Arc<Journal>,
    /// Where the next entry goes, and its number.
    len: u64,
    next: u64,
    /// A write failed: the store holds what the file may not, so the file is written anew before anything else.
    dirty: bool,
}

/// What the start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub records: usize,
    pub damaged: u64,
    /// Bytes that a crash had torn off.
    pub torn: u64,
}

impl Keeper {
    /// Reads the journal, or begins one.
    pub async fn open(
        env: &Env,
        me: Id,
        quotas: StoreQuotas,
    ) -> Result<(Keeper, Recovered), DhtError> {
        let now = env.wall_ms();
        let opened = env.disk(move |disk| open(disk, me, quotas, now)).await;
        opened.map_err(|_| DhtError::Canceled)?
    }

    pub fn reader(&self) -> RecordReader {
        self.store.reader()
    }

    pub fn into_slot(self) -> Arc<KeeperSlot> {
        Arc::new(KeeperSlot(RankedMutex::new(KEEPER_LOCK, Some(self))))
    }
}

fn open(
    disk: &Arc<dyn Disk>,
    me: Id,
    quotas: StoreQuotas,
    now: u64,
) -> Result<(Keeper, Recovered), DhtError> {
    let failed = |error: io::Error| DhtError::Storage(format!("{FILE}: {error}"));
    let refused = |error: HeaderError| {
        DhtError::Storage(format!(
            "{FILE}: {error}; moved away, it costs this node the records it held"
        ))
    };
    let mut journal = Journal::open(&**disk, FILE, Open::Create).map_err(failed)?;
    let found = journal.len().map_err(failed)?;
    let header = journal.id().map_err(failed)?;
    let old = matches!(header, Err(HeaderError::Older { .. }));
    let mut store = RecordStore::new(me, quotas);
    // What its time or a smaller quota refuses now was acknowledged before: it is let go.
    let mut replay = |entry| {
        entries::replay(&mut store, entry, now);
    };
    let scan = match header {
        Ok(_) => journal.scan(|frame| replay(frame.record)).map_err(failed)?,
        // A first start that did not get far, or an older version: what it holds is little.
        Err(_) => {
            let bytes = durable::read_file(&**disk, FILE).map_err(failed)?;
            entries::scan(&bytes, replay).map_err(refused)?
        }
    };
    let (mut len, mut next) = (scan.valid_len, scan.next);
    if old {
        let (whole, count) = entries::compacted(&store);
        journal = Journal::replace(&**disk, FILE, &whole).map_err(failed)?;
        (len, next) = (whole.len() as u64, count);
    } else if len == 0 {
        journal.begin([0; 16]).map_err(failed)?;
        len = journal.len().map_err(failed)?;
    } else {
        if len < found {
            ron_core::sometimes!("dht.torn_tail_cut");
            journal.cut(len).map_err(failed)?;
        }
        // What is appended lies behind what was found: a hole in that would hide it.
        journal.settle(scan.last_batch, len).map_err(failed)?;
    }
    disk.sync_dir("").map_err(failed)?;
    let recovered = Recovered {
        records: store.records(),
        damaged: scan.rotten,
        torn: found - scan.valid_len,
    };
    let keeper = Keeper {
        store,
        journal: Arc::new(journal),
        len,
        next,
        dirty: false,
    };
    Ok((keeper, recovered))
}

/// Puts the keeper back, however its task ends.
struct Held<'a> {
    slot: &'a KeeperSlot,
    keeper: Option<Keeper>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.slot.0.lock() = self.keeper.take();
    }
}

/// Runs until the queue is closed and drained.
pub async fn run(node: Arc<Node>, slot: Arc<KeeperSlot>, context: TaskContext) {
    let taken = slot.0.lock().take();
    let mut held = Held {
        slot: &slot,
        keeper: taken,
    };
    let Some(keeper) = &mut held.keeper else {
        tracing::error!("the record store has a keeper already");
        return;
    };
    keeper.tell_size(&node);
    loop {
        let quiet = async {
            match keeper.store.records() {
                0 => std::future::pending().await,
                _ => context.env.sleep(EXPIRE_EVERY).await,
            }
        };
        tokio::select! {
            biased;
            batch = node.records.pop_batch(BATCH) => {
                if batch.is_empty() {
                    break;
                }
                // Boxed: it waits for records nearly always, and what writing them needs is not kept meanwhile.
                Box::pin(keeper.apply(&node, batch)).await;
            }
            () = quiet => keeper.expire(&node),
        }
        keeper.tell_size(&node);
        if keeper.may_compact() {
            Box::pin(keeper.compact_if_due(&node)).await;
        }
    }
}

/// Who waits, what came of it in memory, and what to tell of it.
struct Pending {
    reply: Reply,
    result: Result<Put, DhtError>,
    record: Option<Box<Told>>,
}

struct Told {
    key: Id,
    kind: &'static str,
    seq: u64,
    ends_ms: u64,
    published: bool,
}

impl Keeper {
    async fn apply(&mut self, node: &Node, writes: Vec<Write>) {
        let now = node.env.wall_ms();
        let mut batch = Batch::new(self.next);
        let mut waiting = Vec::with_capacity(writes.len());
        for write in writes {
            match write {
                Write::Mine(reply) => {
                    let _ = reply.send(self.store.published().collect());
                }
                Write::Put { record, reply } => {
                    waiting.push(self.take(node, record, reply, false, now, &mut batch));
                }
                Write::Publish { record, reply } => {
                    waiting.push(self.take(node, record, reply, true, now, &mut batch));
                }
            }
        }
        let written = if self.dirty {
            // Something is held that no file has: nothing is acknowledged before all of it is written.
            let whole = entries::compacted(&self.store);
            self.rewrite(&node.env, whole).await
        } else if batch.is_empty() {
            Ok(())
        } else {
            self.append(&node.env, batch).await
        };
        if let Err(error) = &written {
            node.metrics.inc(|hot| &hot.journal_errors);
            tracing::error!(%error, "records could not be written");
        }
        for pending in waiting {
            settle(node, pending, &written);
        }
    }

    fn take(
        &mut self,
        node: &Node,
        record: Record,
        reply: Reply,
        published: bool,
        now: u64,
        batch: &mut Batch,
    ) -> Pending {
        let told = Box::new(Told {
            key: record.key,
            kind: record.kind.name(),
            seq: record.seq,
            ends_ms: record.ends_ms(),
            published,
        });
        let put = match published {
            true => self.store.publish(record.clone(), now),
            false => self.store.put(record.clone(), now),
        };
        match &put {
            Ok(Put::Same) => {}
            Ok(put) => entries::put_taken(batch, published, &record, put),
            Err(code) => node.metrics.count(Family::RecordsRejected, code.name()),
        }
        Pending {
            reply,
            record: put.is_ok().then_some(told),
            result: put.map_err(refused),
        }
    }

    async fn append(&mut self, env: &Env, batch: Batch) -> io::Result<()> {
        let (journal, at, bytes) = (self.journal.clone(), self.len, batch.shared());
        self.dirty = true;
        let written = env.disk(move |_| {
            journal.write(at, &bytes)?;
            journal.sync()
        });
        written.await.map_err(io::Error::other)??;
        self.dirty = false;
        self.len += batch.bytes().len() as u64;
        self.next = batch.next_index();
        Ok(())
    }

    fn expire(&mut self, node: &Node) {
        for record in self.store.expire(node.env.wall_ms()) {
            node.metrics.inc(|hot| &hot.records_expired);
            let (key, kind) = (record.key, record.kind.name());
            node.env.probe(
                "dht.record_expired",
                key.short(),
                format_args!("{key} {kind}"),
            );
            node.events.tell(|| Event::RecordExpired {
                key: key.to_string(),
                kind,
            });
        }
    }

    fn tell_size(&self, node: &Node) {
        node.record_count
            .store(self.store.records() as u64, Relaxed);
        node.record_bytes.store(self.store.bytes() as u64, Relaxed);
    }

    /// The file is written anew once most of it is of records that are gone.
    fn may_compact(&self) -> bool {
        self.len > entries::COMPACT_FROM_BYTES
    }

    async fn compact_if_due(&mut self, node: &Node) {
        let whole = entries::compacted(&self.store);
        if !entries::should_compact(self.len, whole.0.len() as u64) {
            return;
        }
        if let Err(error) = self.rewrite(&node.env, whole).await {
            node.metrics.inc(|hot| &hot.journal_errors);
            tracing::error!(%error, "the record journal could not be written anew");
        }
    }

    /// Puts a whole new file in the place of the old one. If that fails, the name may lead to either: it is tried again
    /// before anything is acknowledged, as what is appended to a file without a name is lost.
    async fn rewrite(&mut self, env: &Env, (whole, next): (Vec<u8>, u64)) -> io::Result<()> {
        let len = whole.len() as u64;
        self.dirty = true;
        let rewritten = env
            .disk(move |disk| Journal::replace(&**disk, FILE, &whole))
            .await;
        self.journal = Arc::new(rewritten.map_err(io::Error::other)??);
        (self.len, self.next) = (len, next);
        self.dirty = false;
        Ok(())
    }
}

/// Answers one write, now that it is durable or will not be.
fn settle(node: &Node, pending: Pending, written: &io::Result<()>) {
    let Pending {
        reply,
        result,
        record,
    } = pending;
    let result = match (result, written) {
        (Ok(_), Err(error)) => Err(DhtError::Storage(error.to_string())),
        (result, _) => result,
    };
    if let (Ok(put), Some(told)) = (&result, record) {
        let Told {
            key,
            kind,
            seq,
            ends_ms,
            published,
        } = *told;
        node.metrics.inc(|hot| &hot.records_stored);
        node.env.probe(
            "dht.record_acked",
            key.short(),
            format_args!("{key} {kind} {seq} {ends_ms} {published}"),
        );
        if *put != Put::Same {
            node.events.tell(|| Event::RecordStored {
                key: key.to_string(),
                kind,
                seq,
            });
        }
    }
    reply.send(result);
}

fn refused(code: RefusalCode) -> DhtError {
    match code {
        RefusalCode::Stale => DhtError::Stale,
        RefusalCode::Expired => DhtError::Expired,
        RefusalCode::TooLarge => DhtError::TooLarge,
        RefusalCode::Quota => DhtError::Quota,
        other => DhtError::Invalid(other.name().into()),
    }
}
