//! The kernel's parts as metrics: read when `/metrics` is asked for, never copied in between.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use prometheus::{core::Collector, proto::MetricType};

use super::{
    Kernel, Refusals,
    make::{Maker, Samples},
};
use crate::{
    Env,
    lock::{LEAF, LockDecl, RankedMutex},
    view::{QueueStats, QueueView, TaskCounts, TaskView},
};

#[derive(Default)]
pub(super) struct Views {
    pub(super) queues: Vec<(Arc<dyn QueueView>, Refusals)>,
    pub(super) tasks: Vec<Arc<dyn TaskView>>,
    pub(super) buses: Vec<(&'static str, Read)>,
    pub(super) envs: Vec<Env>,
}

pub(super) type Read = Arc<dyn Fn() -> u64 + Send + Sync>;

pub(super) const BUSY: (&str, &str) = (
    "busy_rejections_total",
    "Requests or jobs refused because a queue or limit was full",
);

pub(super) fn export_views(m: &mut Maker<'_>, views: &Arc<RankedMutex<Views>>, kernel: &Kernel) {
    use MetricType::{COUNTER, GAUGE};
    let v = views.clone();
    m.pull(
        "queue_depth",
        "Items waiting in a queue",
        GAUGE,
        &["queue"],
        move || {
            let depth = |(s, _): (QueueStats, Refusals)| (vec![s.name.to_owned()], s.depth as f64);
            sum(queue_stats(&v).into_iter().map(depth))
        },
    );
    let v = views.clone();
    let help = "Items that a queue lost by policy";
    m.pull(
        "queue_dropped_total",
        help,
        COUNTER,
        &["queue"],
        move || {
            sum(queue_stats(&v).into_iter().map(|(s, refusals)| {
                let refused = if refusals == Refusals::Dropped {
                    s.refused
                } else {
                    0
                };
                (vec![s.name.to_owned()], (s.dropped + refused) as f64)
            }))
        },
    );
    let (v, own) = (views.clone(), kernel.busy_rejections.clone());
    m.pull(BUSY.0, BUSY.1, COUNTER, &["endpoint", "queue"], move || {
        let own = own
            .vec
            .collect()
            .into_iter()
            .flat_map(|f| f.get_metric().to_vec());
        let own = own.map(|m| {
            let values = m.get_label().iter().map(|l| l.value().to_owned());
            (values.collect(), m.get_counter().get_value())
        });
        let queues = queue_stats(&v)
            .into_iter()
            .filter_map(|(s, refusals)| match refusals {
                Refusals::Busy { endpoint } => Some((
                    vec![endpoint.to_owned(), s.name.to_owned()],
                    s.refused as f64,
                )),
                Refusals::Dropped => None,
            });
        sum(own.chain(queues))
    });
    type Count = fn(&TaskCounts) -> u64;
    let per_kind: [(&str, &str, &str, Count); 4] = [
        ("tasks_spawned_total", "Tasks started", "kind", |c| {
            c.spawned
        }),
        (
            "tasks_aborted_total",
            "Tasks stopped by force after the drain deadline",
            "kind",
            |c| c.aborted,
        ),
        (
            "tasks_canceled_total",
            "Tasks that ended because they were asked to",
            "kind",
            |c| c.canceled,
        ),
        (
            "service_restarts_total",
            "Restarts of a task after it failed",
            "task",
            |c| c.restarted,
        ),
    ];
    for (name, help, label, count) in per_kind {
        let v = views.clone();
        m.pull(name, help, COUNTER, &[label], move || {
            let tasks = task_counts(&v).into_iter();
            tasks
                .map(|(kind, c)| (vec![kind.to_owned()], count(&c) as f64))
                .collect()
        });
    }
    let v = views.clone();
    let help = "Offloaded calls whose caller went away first";
    m.pull("offload_abandoned_total", help, COUNTER, &[], move || {
        let envs = v.lock().envs.clone();
        let count = |env: &Env| env.stats().offload_abandoned.load(Ordering::Relaxed);
        vec![(vec![], envs.iter().map(count).sum::<u64>() as f64)]
    });
    let v = views.clone();
    let help = "Events that slow subscribers of a bus missed";
    m.pull("bus_lagged_total", help, COUNTER, &["bus"], move || {
        let buses = v.lock().buses.clone();
        sum(buses
            .into_iter()
            .map(|(bus, lagged)| (vec![bus.to_owned()], lagged() as f64)))
    });
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
        *all.entry(labels).or_insert(0.0) += value;
    }
    all.into_iter().collect()
}

pub(super) const VIEWS: LockDecl = LockDecl {
    name: "metric_views",
    rank: LEAF,
    guards: "the list of watched parts",
};
