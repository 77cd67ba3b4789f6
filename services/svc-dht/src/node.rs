//! What all tasks of a node share: who it is, what it knows, where work waits. No logic of its own.
//!
//! It does not hold the connections: those hold it, through the [`answerer`](crate::answerer), and a circle would
//! never be freed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ron_core::{
    Env, Queue, RejectNew, SnapshotReader,
    app::Drain,
    lock::{LockDecl, RankedMutex},
};

use crate::{
    config::Config,
    contact::Contact,
    error::DhtError,
    events::Events,
    explained::Courses,
    hedge::HedgeBudget,
    id::Id,
    identity::{Identity, NetworkId},
    metrics::{Family, Gauges, Metrics},
    peer_stats::PeerStats,
    record_keeper::Write,
    record_store::RecordReader,
    routes::{Route, Routes},
    routing::{Liveness, Seconds, Table, Update, size},
    worker::Job,
};

pub const PEER_STATS_LOCK: LockDecl = LockDecl {
    name: "peer_stats",
    rank: 25,
    guards: "how long peers take to answer",
};

/// Peers whose latency is remembered.
pub const PEER_STATS_MAX: usize = 128;

pub struct Node {
    pub env: Env,
    /// The configuration in force.
    pub settings: SnapshotReader<Arc<Config>>,
    pub identity: Arc<Identity>,
    pub network: NetworkId,
    /// This node, as it tells others of itself.
    pub contact: Contact,
    pub table: Table,
    pub routes: Routes,
    pub work: Queue<Job, RejectNew>,
    pub records: Queue<Write, RejectNew>,
    /// What is stored, for readers.
    pub shelf: RecordReader,
    pub record_count: AtomicU64,
    pub record_bytes: AtomicU64,
    pub hedges: HedgeBudget,
    pub peer_stats: RankedMutex<PeerStats>,
    pub metrics: Arc<Metrics>,
    pub events: Events,
    pub courses: Courses,
    pub started: Instant,
    /// The network was found, or there is none to find.
    pub bootstrapped: AtomicBool,
    /// Counts lookups that ended, whoever asked for them.
    pub drain: Arc<Drain>,
    pub lookups: AtomicU64,
    pub republish_lag_ms: AtomicU64,
}

impl Node {
    pub fn config(&self) -> Arc<Config> {
        (*self.settings.load()).clone()
    }

    pub fn id(&self) -> Id {
        self.contact.id
    }

    /// Of the node's monotonic clock, since its start.
    pub fn seconds(&self) -> Seconds {
        let since = self.env.now().saturating_duration_since(self.started);
        since.as_secs().min(u64::from(Seconds::MAX)) as Seconds
    }

    /// A peer answered. Its bucket is told only if that is news: most answers wake nobody.
    pub fn seen(&self, peer: &Contact, rtt: Option<Duration>) {
        let id = peer.id;
        let Some(index) = self.table.bucket_of(&id) else {
            return;
        };
        if self.table.get(&id).is_some() {
            if self.table.is_news(&id, self.seconds()) {
                let rtt_ms = rtt.map(millis);
                self.routes
                    .tell(&id, Route::Tell(Update::Seen { id, rtt_ms }));
            }
        } else if self.table.view(index).len() < self.table.rules().k {
            // There is a place for it; that it is where it says is yet to be proven.
            self.routes
                .tell(&id, Route::Tell(Update::Heard { contact: *peer }));
        }
    }

    /// Whether a request of a local caller may go on.
    pub fn check_ready(&self) -> Result<(), DhtError> {
        let phase = if self.drain.is_begun() {
            "draining"
        } else if !self.bootstrapped.load(Relaxed) {
            "bootstrap"
        } else {
            return Ok(());
        };
        self.metrics.count(Family::NotReady, phase);
        Err(DhtError::NotReady(phase))
    }

    /// How many nodes the network seems to have.
    pub fn network_size(&self) -> u64 {
        let k = self.config().lookup.k;
        let nearest = self.table.closest(&self.id(), k, Liveness::SkipDead, None);
        let nearest: Vec<Id> = nearest.iter().map(|c| c.id).collect();
        size::estimate(&self.id(), &nearest)
    }

    pub fn gauges(&self) -> Gauges {
        let counts = self.table.counts();
        Gauges {
            peers: counts.peers as u64,
            buckets: counts.buckets as u64,
            connections: 0,
            records: self.record_count.load(Relaxed),
            record_bytes: self.record_bytes.load(Relaxed),
            network_size: self.network_size(),
            republish_lag_ms: self.republish_lag_ms.load(Relaxed),
        }
    }
}

/// As the table counts it.
pub fn millis(rtt: Duration) -> u16 {
    rtt.as_millis().min(u128::from(u16::MAX)) as u16
}
