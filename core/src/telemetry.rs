//! Metrics of one service instance: its own registry, never the process-wide one.
//!
//! Each metric is declared as it is made, so the docs' table is what the code exports. The kernel's parts
//! count for themselves; views of them are read when `/metrics` is asked for. A label never has more
//! values than its metric declared: the rest are counted under `other`.

mod labelled;
mod make;
mod views;

use std::{collections::BTreeMap, sync::Arc};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder, proto::MetricType,
};

pub use labelled::{Counters, Family, Gauges, Histograms, Labelled};
use make::{Maker, must};
use views::{BUSY, VIEWS, Views, export_views, queue_stats, task_counts};

use crate::{
    Env,
    lock::{LEAF, LockDecl, RankedMutex},
    view::{QueueStats, QueueView, TaskCounts, TaskView},
};

/// Cheap to clone; all clones share one registry.
#[derive(Clone)]
pub struct Telemetry(Arc<Inner>);

struct Inner {
    service: &'static str,
    prefix: &'static str,
    registry: Registry,
    decls: RankedMutex<Vec<MetricDecl>>,
    views: Arc<RankedMutex<Views>>,
    kernel: Kernel,
}

/// One line of the docs' table of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDecl {
    pub name: String,
    pub kind: &'static str,
    pub labels: Vec<&'static str>,
    pub help: &'static str,
}

/// The counters that every service's request path and tasks share.
#[derive(Clone)]
pub struct Kernel {
    /// `{endpoint, queue}`; the refusals of watched queues are added on export.
    pub busy_rejections: Counters,
    pub io_timeouts: Counters,
    pub io_errors: Counters,
    pub backoff_retries: Counters,
    pub not_ready: Counters,
    pub quota_reject: Counters,
    pub auth_failures: Counters,
    pub ops_actions: Counters,
    pub deadline_header_malformed: IntCounter,
}

/// How a watched queue's refusals are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusals {
    /// As `busy_rejections_total`: a caller got "busy". `endpoint` may be empty.
    Busy { endpoint: &'static str },
    /// As `queue_dropped_total`: the item was the service's own, and is gone.
    Dropped,
}

impl Telemetry {
    /// `prefix` is put before every name: `svc_admin_` for svc-admin, empty for the others.
    pub fn new(service: &'static str, prefix: &'static str) -> Self {
        let (registry, decls) = (Registry::new(), Vec::new());
        let mut maker = Maker {
            prefix,
            registry: &registry,
            decls,
        };
        let views = Arc::new(RankedMutex::new(VIEWS, Views::default()));
        let kernel = Kernel::new(&mut maker);
        export_views(&mut maker, &views, &kernel);
        let decls = maker.decls;
        Telemetry(Arc::new(Inner {
            service,
            prefix,
            decls: RankedMutex::new(DECLS, decls),
            registry,
            views,
            kernel,
        }))
    }

    pub fn service(&self) -> &'static str {
        self.0.service
    }

    pub fn kernel(&self) -> &Kernel {
        &self.0.kernel
    }

    // ------------------------------------------------------------------------------ own metrics

    /// # Panics
    /// Here and below: if the name is not a valid metric name, or is taken.
    pub fn counter(&self, name: &'static str, help: &'static str) -> IntCounter {
        self.make(|m| m.counter(name, help))
    }

    /// At most `max_series` combinations of label values; the rest count as `other`.
    pub fn counters(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
    ) -> Counters {
        self.make(|m| m.counters(name, help, labels, max_series))
    }

    pub fn gauge(&self, name: &'static str, help: &'static str) -> IntGauge {
        self.gauges(name, help, &[], 1).with(&[])
    }

    pub fn gauges(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
    ) -> Gauges {
        self.make(|m| {
            let opts = Opts::new(m.declare(name, "gauge", labels, help), help);
            let vec = must(name, IntGaugeVec::new(opts, labels));
            m.register(name, vec.clone());
            Labelled::new(vec, labels.len(), max_series)
        })
    }

    pub fn histogram(&self, name: &'static str, help: &'static str, buckets: &[f64]) -> Histogram {
        self.histograms(name, help, &[], 1, buckets).with(&[])
    }

    pub fn histograms(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
        buckets: &[f64],
    ) -> Histograms {
        self.make(|m| {
            let full = m.declare(name, "histogram", labels, help);
            let opts = HistogramOpts::new(full, help).buckets(buckets.to_vec());
            let vec = must(name, HistogramVec::new(opts, labels));
            m.register(name, vec.clone());
            Labelled::new(vec, labels.len(), max_series)
        })
    }

    /// A counter that someone else keeps, read on export.
    pub fn watch_counter(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.make(|m| {
            m.pull(name, help, MetricType::COUNTER, &[], move || {
                vec![(vec![], read() as f64)]
            })
        });
    }

    /// A gauge that someone else keeps, read on export.
    pub fn watch_gauge(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.make(|m| {
            m.pull(name, help, MetricType::GAUGE, &[], move || {
                vec![(vec![], read())]
            })
        });
    }

    // ------------------------------------------------------------------------------------ views

    /// Exports a queue; its refusals count as busy, without an endpoint.
    pub fn watch_queue(&self, queue: Arc<dyn QueueView>) {
        self.watch_queue_as(queue, Refusals::Busy { endpoint: "" });
    }

    /// Queues of one name are added up.
    pub fn watch_queue_as(&self, queue: Arc<dyn QueueView>, refusals: Refusals) {
        self.0.views.lock().queues.push((queue, refusals));
    }

    pub fn watch_tasks(&self, tasks: Arc<dyn TaskView>) {
        self.0.views.lock().tasks.push(tasks);
    }

    /// `lagged` counts what slow subscribers of the bus missed.
    pub fn watch_bus(&self, bus: &'static str, lagged: impl Fn() -> u64 + Send + Sync + 'static) {
        self.0.views.lock().buses.push((bus, Arc::new(lagged)));
    }

    pub fn watch_env(&self, env: &Env) {
        self.0.views.lock().envs.push(env.clone());
    }

    /// The watched queues now, in the order they were given.
    pub fn queues(&self) -> Vec<QueueStats> {
        queue_stats(&self.0.views)
            .into_iter()
            .map(|(s, _)| s)
            .collect()
    }

    /// The watched tasks now, by kind.
    pub fn tasks(&self) -> BTreeMap<&'static str, TaskCounts> {
        task_counts(&self.0.views)
    }

    // ----------------------------------------------------------------------------------- export

    /// The Prometheus text format.
    pub fn render(&self) -> String {
        let families = self.0.registry.gather();
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_else(|error| {
                tracing::error!(%error, "metrics could not be rendered");
                String::new()
            })
    }

    /// Every metric declared so far, by name.
    pub fn declared(&self) -> Vec<MetricDecl> {
        let mut decls = self.0.decls.lock().clone();
        decls.sort_by(|a, b| a.name.cmp(&b.name));
        decls
    }

    fn make<T>(&self, build: impl FnOnce(&mut Maker<'_>) -> T) -> T {
        let mut decls = self.0.decls.lock();
        let mut maker = Maker {
            prefix: self.0.prefix,
            registry: &self.0.registry,
            decls: std::mem::take(&mut decls),
        };
        let made = build(&mut maker);
        *decls = maker.decls;
        made
    }
}

impl Kernel {
    fn new(m: &mut Maker<'_>) -> Kernel {
        let busy = Opts::new(BUSY.0, BUSY.1);
        let busy = must(BUSY.0, IntCounterVec::new(busy, &["endpoint", "queue"]));
        Kernel {
            // Exported together with the refusals of queues, hence not registered on its own.
            busy_rejections: Labelled::new(busy, 2, 64),
            io_timeouts: m.counters(
                "io_timeouts_total",
                "I/O that exceeded its deadline",
                &["op"],
                32,
            ),
            io_errors: m.counters(
                "io_errors_total",
                "I/O that failed otherwise",
                &["kind"],
                32,
            ),
            backoff_retries: m.counters(
                "backoff_retries_total",
                "Retries after a backoff",
                &["op"],
                32,
            ),
            not_ready: m.counters(
                "not_ready_total",
                "Requests refused because the service was starting or draining",
                &["phase"],
                8,
            ),
            quota_reject: m.counters(
                "quota_reject_total",
                "Requests refused by a rate or concurrency quota",
                &["kind"],
                8,
            ),
            auth_failures: m.counters(
                "auth_failures_total",
                "Requests whose caller could not be identified or lacked a scope",
                &["reason"],
                32,
            ),
            ops_actions: m.counters(
                "ops_actions_total",
                "Reloads and shutdowns asked for over HTTP",
                &["action", "result"],
                8,
            ),
            deadline_header_malformed: m.counter(
                "deadline_header_malformed_total",
                "Deadline headers that could not be read and were ignored",
            ),
        }
    }
}

const DECLS: LockDecl = LockDecl {
    name: "metric_decls",
    rank: LEAF - 1,
    guards: "the list of declared metrics",
};

#[cfg(test)]
mod tests;
