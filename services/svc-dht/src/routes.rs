//! The way to the bucket writers: one bounded queue per bucket, made when the bucket is first used.
//!
//! Always: a change waits for room at most as long as configured, then it is dropped and counted; who may not
//! wait hands the wait over, and of those waits there are at most [`WAITS_MAX`] at a time; a bucket asks
//! for a writer when it has none, and its queue is retired with its writer, empty.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use futures_util::FutureExt;
use ron_core::{
    Env, Queue, Refusal, RejectNew, WaitFor, buggify,
    lock::{LockDecl, RankedMutex},
    topology::QueueDecl,
    view::{QueueStats, QueueView},
};

use crate::{
    contact::Contact,
    error::DhtError,
    id::Id,
    metrics::{Family, Metrics},
    routing::Update,
};

pub type RouteQueue = Queue<Route, WaitFor>;

/// What a bucket's writer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Tell(Update),
    /// It was silent for long, and nobody waited for the end: whether it lives is to be found out.
    Doubt(Contact),
}

/// Waits for room that were handed over, at a time.
pub const WAITS_MAX: usize = 64;

pub const ROUTES_LOCK: LockDecl = LockDecl {
    name: "route_queues",
    rank: 15,
    guards: "which buckets have a queue",
};

/// Cheap to clone; clones lead to the same writers.
#[derive(Clone)]
pub struct Routes(Arc<Inner>);

struct Inner {
    env: Env,
    me: Id,
    decl: QueueDecl<WaitFor>,
    queues: RankedMutex<Queues>,
    /// Buckets that want a writer.
    starts: Queue<u8, RejectNew>,
    waits: AtomicUsize,
    closed: AtomicBool,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Queues {
    open: BTreeMap<u8, RouteQueue>,
    /// What the retired ones counted.
    past: QueueStats,
}

impl Routes {
    pub fn view(&self) -> Arc<dyn QueueView> {
        Arc::new(View(Arc::downgrade(&self.0)))
    }

    pub fn new(
        env: Env,
        me: Id,
        decl: QueueDecl<WaitFor>,
        starts: &QueueDecl<RejectNew>,
        metrics: Arc<Metrics>,
    ) -> Routes {
        Routes(Arc::new(Inner {
            env,
            me,
            decl,
            queues: RankedMutex::new(ROUTES_LOCK, Queues::default()),
            starts: Queue::new(starts.name, starts.cap, starts.policy),
            waits: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            metrics,
        }))
    }

    /// Tells the writer of the bucket in which `id` belongs; about ourselves nobody is told.
    pub async fn send(&self, id: &Id, route: Route) -> Result<(), DhtError> {
        let Some(index) = self.0.me.bucket_of(id) else {
            return Ok(());
        };
        self.send_to(index, route).await
    }

    /// The same for who may not wait.
    pub fn tell(&self, id: &Id, route: Route) {
        let Some(index) = self.0.me.bucket_of(id) else {
            return;
        };
        let queue = self.queue(index);
        if !queue.is_empty() && buggify!("dht.route_dropped") {
            // The next refresh brings it back.
            return self.dropped(false);
        }
        if queue.len() < queue.cap() || queue.is_closed() {
            // There is room: it does not wait. If others were faster, it is dropped like any late one.
            let mut sent = queue.push(&self.0.env, route).now_or_never();
            if matches!(sent, Some(Err(ref r)) if self.was_retired(r.why)) {
                sent = (self.queue(index).push(&self.0.env, route)).now_or_never();
            }
            if !matches!(sent, Some(Ok(()))) {
                self.dropped(matches!(sent, Some(Err(ref r)) if r.why == Refusal::Closed));
            }
            return;
        }
        if self.0.waits.fetch_add(1, Relaxed) >= WAITS_MAX {
            self.0.waits.fetch_sub(1, Relaxed);
            return self.dropped(false);
        }
        let routes = self.clone();
        // Detached, but bounded in number and in time.
        drop(self.0.env.spawn("route_wait", async move {
            let _ = routes.send_to(index, route).await;
            routes.0.waits.fetch_sub(1, Relaxed);
        }));
    }

    /// The next bucket that wants a writer, and its queue; `None` once closed.
    pub async fn next_start(&self) -> Option<(u8, RouteQueue)> {
        let index = self.0.starts.pop().await?;
        Some((index, self.queue(index)))
    }

    /// Writers empty their queues and end; what comes later is dropped.
    pub fn close(&self) {
        self.0.closed.store(true, Relaxed);
        self.0.starts.close();
        for queue in self.0.queues.lock().open.values() {
            queue.close();
        }
    }

    /// Ends the queue of a writer that is about to end, if nothing is in it; the next change asks for another writer.
    /// To be called once the bucket is free to be claimed.
    pub fn retire(&self, index: u8) -> bool {
        let mut queues = self.0.queues.lock();
        let is_empty = queues.open.get(&index).is_some_and(Queue::is_empty);
        if !is_empty || self.0.closed.load(Relaxed) {
            return false;
        }
        if let Some(queue) = queues.open.remove(&index) {
            queue.close();
            queues.past = sum(queues.past.clone(), &queue.stats());
        }
        true
    }

    /// Refused by a queue whose writer ended a moment ago: there is, or will be, another one.
    fn was_retired(&self, why: Refusal) -> bool {
        why == Refusal::Closed && !self.0.closed.load(Relaxed)
    }

    /// Buckets that have a queue.
    pub fn in_use(&self) -> Vec<u8> {
        self.0.queues.lock().open.keys().copied().collect()
    }

    async fn send_to(&self, index: u8, route: Route) -> Result<(), DhtError> {
        let mut sent = self.queue(index).push(&self.0.env, route).await;
        while let Err(refused) = &sent
            && self.was_retired(refused.why)
        {
            sent = self.queue(index).push(&self.0.env, route).await;
        }
        match sent {
            Ok(()) => Ok(()),
            Err(refused) if refused.why == Refusal::Closed => {
                self.dropped(true);
                Err(DhtError::Canceled)
            }
            Err(_) => {
                self.dropped(false);
                Err(DhtError::Timeout("route"))
            }
        }
    }

    fn dropped(&self, closed: bool) {
        let metrics = &self.0.metrics;
        metrics.inc(|hot| &hot.route_dropped);
        if !closed {
            metrics.count(Family::IoTimeouts, "route");
        }
        let env = &self.0.env;
        env.probe("dht.route_dropped", 0, format_args!("{closed}"));
    }

    fn queue(&self, index: u8) -> RouteQueue {
        let mut queues = self.0.queues.lock();
        if let Some(queue) = queues.open.get(&index) {
            return queue.clone();
        }
        let decl = &self.0.decl;
        let queue = Queue::new(decl.name, decl.cap, decl.policy);
        if self.0.closed.load(Relaxed) {
            queue.close();
        }
        queues.open.insert(index, queue.clone());
        drop(queues);
        let asked = self.0.starts.push(index);
        debug_assert!(asked.is_ok() || self.0.closed.load(Relaxed));
        queue
    }
}

/// All route queues as one: that is how they are told.
impl QueueView for Routes {
    fn stats(&self) -> QueueStats {
        self.0.stats()
    }
}

/// The same for the metrics, in which the routes count: neither may keep the other alive.
struct View(Weak<Inner>);

impl QueueView for View {
    fn stats(&self) -> QueueStats {
        let inner = self.0.upgrade();
        inner.map_or_else(QueueStats::default, |inner| inner.stats())
    }
}

impl Inner {
    fn stats(&self) -> QueueStats {
        let queues = self.queues.lock();
        let decl = &self.decl;
        let past = QueueStats {
            name: decl.name,
            // What may wait in all of them together, as the depth is that of all together.
            cap: decl.cap * queues.open.len().max(1),
            ..queues.past.clone()
        };
        let open = queues.open.values().map(Queue::stats);
        open.fold(past, |all, one| sum(all, &one))
    }
}

fn sum(all: QueueStats, one: &QueueStats) -> QueueStats {
    QueueStats {
        name: all.name,
        cap: all.cap,
        depth: all.depth + one.depth,
        high_water: all.high_water.max(one.high_water),
        offered: all.offered + one.offered,
        accepted: all.accepted + one.accepted,
        refused: all.refused + one.refused,
        delivered: all.delivered + one.delivered,
        dropped: all.dropped + one.dropped,
    }
}
