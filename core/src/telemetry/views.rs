//! The kernel's parts as metrics: read when `/metrics` is asked for, never copied in between.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use prometheus::{core::Collector, proto::MetricFamily};

use super::{
    Kernel, Refusals,
    make::{Samples, Spec, family},
};
use crate::{
    Env,
    lock::{LEAF, LockDecl, RankedMutex},
    serve::{Phase, Refusal, ServeStats},
    view::{QueueStats, QueueView, TaskCounts, TaskView},
};

#[derive(Default)]
pub(super) struct Views {
    pub(super) queues: Vec<(Arc<dyn QueueView>, Refusals)>,
    pub(super) tasks: Vec<Arc<dyn TaskView>>,
    pub(super) buses: Vec<(&'static str, Read)>,
    pub(super) envs: Vec<Env>,
    pub(super) servers: Vec<Arc<ServeStats>>,
    /// How many conditions degrade the process.
    pub(super) degraded: Option<Read>,
    /// Single numbers that a service keeps.
    pub(super) numbers: Vec<(Spec, ReadNumber)>,
}

pub(super) type Read = Arc<dyn Fn() -> u64 + Send + Sync>;
pub(super) type ReadNumber = Arc<dyn Fn() -> f64 + Send + Sync>;

const DEPTH: Spec = gauge("queue_depth", &["queue"], "Items waiting in a queue");
const DROPPED: Spec = counter(
    "queue_dropped_total",
    &["queue"],
    "Items that a queue lost by policy",
);
pub(super) const BUSY: Spec = counter(
    "busy_rejections_total",
    &["endpoint", "queue"],
    "Requests or jobs refused because a queue or limit was full",
);
const SPAWNED: Spec = counter("tasks_spawned_total", &["kind"], "Tasks started");
const ABORTED: Spec = counter(
    "tasks_aborted_total",
    &["kind"],
    "Tasks stopped by force after the drain deadline",
);
const CANCELED: Spec = counter(
    "tasks_canceled_total",
    &["kind"],
    "Tasks that ended because they were asked to",
);
const RESTARTS: Spec = counter(
    "service_restarts_total",
    &["task"],
    "Restarts of a task after it failed",
);
const ABANDONED: Spec = counter(
    "offload_abandoned_total",
    &[],
    "Offloaded calls whose caller went away first",
);
const LAGGED: Spec = counter(
    "bus_lagged_total",
    &["bus"],
    "Events that slow subscribers of a bus missed",
);
const MALFORMED: Spec = counter(
    "deadline_header_malformed_total",
    &[],
    "Deadline headers that could not be read and were ignored",
);

const REFUSED: Spec = counter(
    "http_refused_total",
    &["reason"],
    "Requests and connections that the server refused before any route was asked",
);
const CLOSED: Spec = counter(
    "http_closed_total",
    &["reason"],
    "Connections that the server closed by itself: a limit ran out, or a newcomer needed the room",
);
const CONNECTIONS: Spec = gauge("http_connections", &[], "Connections open now");
const DEGRADED: Spec = gauge(
    "readyz_degraded",
    &[],
    "Conditions that degrade the process while it is ready",
);

/// Every metric that is read on export.
pub(super) const VIEWED: [Spec; 14] = [
    DEPTH,
    DROPPED,
    BUSY,
    SPAWNED,
    ABORTED,
    CANCELED,
    RESTARTS,
    ABANDONED,
    LAGGED,
    MALFORMED,
    REFUSED,
    CLOSED,
    CONNECTIONS,
    DEGRADED,
];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Spec {
    Spec {
        name,
        kind: "counter",
        labels,
        help,
    }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Spec {
    Spec {
        kind: "gauge",
        ..counter(name, labels, help)
    }
}

fn served(servers: &[Arc<ServeStats>]) -> [(Spec, Samples); 3] {
    let total = |count: &dyn Fn(&ServeStats) -> u64| {
        servers.iter().map(|stats| count(stats)).sum::<u64>() as f64
    };
    let refused = Refusal::ALL.iter().map(|refusal| {
        let label = vec![refusal.reason().to_owned()];
        (label, total(&|stats| stats.refused(*refusal)))
    });
    let phases = [
        ("head_timeout", Phase::HeaderRead),
        ("body_timeout", Phase::BodyRead),
        ("write_timeout", Phase::Write),
        ("idle", Phase::Idle),
    ];
    let mut closed: Samples = phases
        .into_iter()
        .map(|(label, phase)| {
            (
                vec![label.to_owned()],
                total(&|stats| stats.timeouts(phase)),
            )
        })
        .collect();
    let made_room = total(&|stats| stats.made_room.load(Ordering::Relaxed));
    closed.push((vec!["made_room".to_owned()], made_room));
    let open = total(&|stats| stats.open.load(Ordering::Relaxed));
    [
        (REFUSED, refused.collect()),
        (CLOSED, closed),
        (CONNECTIONS, vec![(vec![], open)]),
    ]
}

/// All of them as they are now.
pub(super) fn gather(
    prefix: &str,
    views: &RankedMutex<Views>,
    kernel: &Kernel,
) -> Vec<MetricFamily> {
    let queues = queue_stats(views);
    let depths = queues.iter().map(|(s, _)| (named(s), s.depth as f64));
    let dropped = queues.iter().map(|(s, refusals)| {
        let refused = if *refusals == Refusals::Dropped {
            s.refused
        } else {
            0
        };
        (named(s), (s.dropped + refused) as f64)
    });
    let mut all = vec![
        (DEPTH, sum(depths)),
        (DROPPED, sum(dropped)),
        (BUSY, busy(&queues, kernel)),
    ];
    let tasks = task_counts(views);
    type Count = fn(&TaskCounts) -> u64;
    let per_kind: [(Spec, Count); 4] = [
        (SPAWNED, |c| c.spawned),
        (ABORTED, |c| c.aborted),
        (CANCELED, |c| c.canceled),
        (RESTARTS, |c| c.restarted),
    ];
    for (spec, count) in per_kind {
        let counts = tasks.iter();
        let counts = counts.map(|(kind, c)| (vec![(*kind).to_owned()], count(c) as f64));
        all.push((spec, counts.collect()));
    }
    let envs = views.lock().envs.clone();
    let abandoned = |env: &Env| env.stats().offload_abandoned.load(Ordering::Relaxed);
    let abandoned = envs.iter().map(abandoned).sum::<u64>();
    all.push((ABANDONED, vec![(vec![], abandoned as f64)]));
    let buses = views.lock().buses.clone();
    let lagged = buses.into_iter();
    let lagged = lagged.map(|(bus, lagged)| (vec![bus.to_owned()], lagged() as f64));
    all.push((LAGGED, sum(lagged)));
    let malformed = kernel.deadline_header_malformed.get();
    all.push((MALFORMED, vec![(vec![], malformed as f64)]));
    let (servers, degraded) = {
        let views = views.lock();
        (views.servers.clone(), views.degraded.clone())
    };
    if !servers.is_empty() {
        all.extend(served(&servers));
    }
    all.extend(degraded.map(|degraded| (DEGRADED, vec![(vec![], degraded() as f64)])));
    let numbers = views.lock().numbers.clone();
    let numbers = numbers.into_iter();
    all.extend(numbers.map(|(spec, read)| (spec, vec![(vec![], read())])));
    // As the registry does: a metric without a series is not exported.
    all.retain(|(_, samples)| !samples.is_empty());
    let families = all.into_iter();
    families
        .map(|(spec, samples)| family(prefix, spec, samples))
        .collect()
}

fn named(queue: &QueueStats) -> Vec<String> {
    vec![queue.name.to_owned()]
}

/// What handlers counted, and the refusals of queues: one series where both speak of the same.
fn busy(queues: &[(QueueStats, Refusals)], kernel: &Kernel) -> Samples {
    let own = kernel.busy_rejections.made().map(Collector::collect);
    let own = own.into_iter().flatten();
    let own = own.flat_map(|family| family.get_metric().to_vec());
    let own = own.map(|m| {
        let values = m.get_label().iter().map(|l| l.value().to_owned());
        (values.collect(), m.get_counter().get_value())
    });
    let queues = queues.iter().filter_map(|(s, refusals)| match refusals {
        Refusals::Busy { endpoint } => {
            let labels = vec![(*endpoint).to_owned(), s.name.to_owned()];
            Some((labels, s.refused as f64))
        }
        Refusals::Dropped => None,
    });
    sum(own.chain(queues))
}

/// The views are cloned out before they are asked, so that none of their locks is taken under ours.
pub(super) fn queue_stats(views: &RankedMutex<Views>) -> Vec<(QueueStats, Refusals)> {
    let queues = views.lock().queues.clone();
    queues
        .into_iter()
        .map(|(queue, refusals)| (queue.stats(), refusals))
        .collect()
}

pub(super) fn task_counts(views: &RankedMutex<Views>) -> BTreeMap<&'static str, TaskCounts> {
    let tasks = views.lock().tasks.clone();
    let mut all: BTreeMap<&'static str, TaskCounts> = BTreeMap::new();
    for (kind, counts) in tasks.iter().flat_map(|view| view.tasks()) {
        let sum = all.entry(kind).or_default();
        sum.alive += counts.alive;
        sum.spawned += counts.spawned;
        sum.restarted += counts.restarted;
        sum.panicked += counts.panicked;
        sum.canceled += counts.canceled;
        sum.aborted += counts.aborted;
    }
    all
}

fn sum(samples: impl Iterator<Item = (Vec<String>, f64)>) -> Samples {
    let mut all = BTreeMap::new();
    for (labels, value) in samples {
        let sum = all.entry(labels).or_insert(0.0);
        *sum += value;
    }
    all.into_iter().collect()
}

pub(super) const VIEWS: LockDecl = LockDecl {
    name: "metric_views",
    rank: LEAF,
    guards: "the list of watched parts",
};
