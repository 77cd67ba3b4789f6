//! Metrics of one service instance: its own registry, never the process-wide one.
//!
//! Each metric is declared as it is made, so the docs' table is what the code exports. The kernel's parts
//! count for themselves; views of them are read when `/metrics` is asked for. A label never has more
//! values than its metric declared: the rest are counted under `other`.

mod labelled;
mod make;
mod views;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

pub use labelled::{Counters, Family, Gauges, Histograms, Labelled};
use make::{Maker, Spec, is_name, must};
use views::{BUSY, VIEWED, VIEWS, Views, gather, queue_stats, task_counts};

use crate::{
    Env,
    lock::{LEAF, LockDecl, RankedMutex},
    serve::ServeStats,
    view::{QueueStats, QueueView, TaskCounts, TaskView},
};

/// Cheap to clone; all clones share one registry.
#[derive(Clone)]
pub struct Telemetry(Arc<Inner>);

struct Inner {
    service: &'static str,
    maker: Maker,
    /// The service's own; those that every service has are known.
    decls: RankedMutex<Vec<OwnDecl>>,
    views: RankedMutex<Views>,
    kernel: Kernel,
}

struct OwnDecl {
    name: &'static str,
    kind: &'static str,
    labels: Box<[&'static str]>,
    help: &'static str,
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
    pub auth_refreshes: Counters,
    pub ops_actions: Counters,
    /// `{op, outcome}`: what came of each request to others, or what was in its way.
    pub outbound_requests: Counters,
    pub outbound_breaker_opened: Counters,
    pub deadline_header_malformed: Count,
}

/// A number that only grows, read on export.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    pub fn inc(&self) {
        self.inc_by(1);
    }

    pub fn inc_by(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
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
        let maker = Maker {
            prefix,
            registry: Registry::new(),
        };
        Telemetry(Arc::new(Inner {
            service,
            kernel: Kernel::new(&maker),
            maker,
            decls: RankedMutex::new(DECLS, Vec::new()),
            views: RankedMutex::new(VIEWS, Views::default()),
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
        self.declare(name, "counter", &[], help).counter(name, help)
    }

    /// At most `max_series` combinations of label values; the rest count as `other`.
    pub fn counters(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
    ) -> Counters {
        self.declare(name, "counter", labels, help)
            .counters(name, help, labels, max_series)
    }

    pub fn gauge(&self, name: &'static str, help: &'static str) -> IntGauge {
        self.declare(name, "gauge", &[], help).gauge(name, help)
    }

    pub fn gauges(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
    ) -> Gauges {
        self.declare(name, "gauge", labels, help)
            .gauges(name, help, labels, max_series)
    }

    pub fn histogram(&self, name: &'static str, help: &'static str, buckets: &[f64]) -> Histogram {
        self.declare(name, "histogram", &[], help)
            .histogram(name, help, buckets)
    }

    pub fn histograms(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
        buckets: &[f64],
    ) -> Histograms {
        self.declare(name, "histogram", labels, help)
            .histograms(name, help, labels, max_series, buckets)
    }

    /// A counter that someone else keeps, read on export.
    pub fn watch_counter(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.watch_number("counter", name, help, move || read() as f64);
    }

    /// A gauge that someone else keeps, read on export.
    pub fn watch_gauge(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.watch_number("gauge", name, help, read);
    }

    fn watch_number(
        &self,
        kind: &'static str,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.declare(name, kind, &[], help);
        let spec = Spec {
            name,
            kind,
            labels: &[],
            help,
        };
        self.0.views.lock().numbers.push((spec, Arc::new(read)));
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

    /// Exports what a server counts; several are added up.
    pub fn watch_serve(&self, stats: Arc<ServeStats>) {
        self.0.views.lock().servers.push(stats);
    }

    /// `degraded` is the number of conditions that hold.
    pub fn watch_readiness(&self, degraded: impl Fn() -> usize + Send + Sync + 'static) {
        self.0.views.lock().degraded = Some(Arc::new(move || degraded() as u64));
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
        let maker = &self.0.maker;
        let mut families = maker.registry.gather();
        families.extend(gather(maker.prefix, &self.0.views, &self.0.kernel));
        families.sort_by(|a, b| a.name().cmp(b.name()));
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_else(|error| {
                tracing::error!(%error, "metrics could not be rendered");
                String::new()
            })
    }

    /// Every metric declared so far, by name.
    pub fn declared(&self) -> Vec<MetricDecl> {
        let full = |name: &str| format!("{}{name}", self.0.maker.prefix);
        let known = VIEWED.iter().chain(&KERNEL).map(|spec| MetricDecl {
            name: full(spec.name),
            kind: spec.kind,
            labels: spec.labels.to_vec(),
            help: spec.help,
        });
        let mut decls: Vec<_> = known.collect();
        let own = self.0.decls.lock();
        decls.extend(own.iter().map(|own| MetricDecl {
            name: full(own.name),
            kind: own.kind,
            labels: own.labels.to_vec(),
            help: own.help,
        }));
        drop(own);
        decls.sort_by(|a, b| a.name.cmp(&b.name));
        decls
    }

    fn declare(
        &self,
        name: &'static str,
        kind: &'static str,
        labels: &[&'static str],
        help: &'static str,
    ) -> &Maker {
        let mut own = self.0.decls.lock();
        let known = VIEWED.iter().chain(&KERNEL).map(|spec| spec.name);
        let taken = known
            .chain(own.iter().map(|own| own.name))
            .any(|n| n == name);
        assert!(!taken, "metric `{name}`: the name is taken");
        assert!(is_name(name), "metric `{name}`: not a name");
        own.push(OwnDecl {
            name,
            kind,
            labels: labels.into(),
            help,
        });
        &self.0.maker
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Spec {
    let kind = "counter";
    Spec {
        name,
        kind,
        labels,
        help,
    }
}

/// What every service counts, besides what is read on export.
const KERNEL: [Spec; 10] = [
    counter(
        "io_timeouts_total",
        &["op"],
        "I/O that exceeded its deadline",
    ),
    counter("io_errors_total", &["kind"], "I/O that failed otherwise"),
    counter("backoff_retries_total", &["op"], "Retries after a backoff"),
    counter(
        "not_ready_total",
        &["phase"],
        "Requests refused because the service was starting or draining",
    ),
    counter(
        "quota_reject_total",
        &["kind"],
        "Requests refused by a rate or concurrency quota",
    ),
    counter(
        "auth_failures_total",
        &["reason"],
        "Requests whose caller could not be identified or lacked a scope",
    ),
    counter(
        "auth_refreshes_total",
        &["result"],
        "Fetches of the token issuer's keys: `ok`, or why not",
    ),
    counter(
        "ops_actions_total",
        &["action", "result"],
        "Reloads and shutdowns asked for over HTTP",
    ),
    counter(
        "outbound_requests_total",
        &["op", "outcome"],
        "Requests to other services by what came of them, refused ones included",
    ),
    counter(
        "outbound_breaker_opened_total",
        &["op"],
        "Destinations that were left alone because they failed too often",
    ),
];

impl Kernel {
    fn new(maker: &Maker) -> Kernel {
        let made = |spec: Spec, most| maker.counters(spec.name, spec.help, spec.labels, most);
        let [
            timeouts,
            errors,
            retries,
            not_ready,
            quota,
            auth,
            refreshes,
            ops,
            outbound,
            opened,
        ] = KERNEL;
        Kernel {
            // Exported together with the refusals of queues, hence not registered on its own.
            busy_rejections: Labelled::new(BUSY.labels.len(), 64, || {
                let busy = Opts::new(BUSY.name, BUSY.help);
                must(BUSY.name, IntCounterVec::new(busy, BUSY.labels))
            }),
            io_timeouts: made(timeouts, 32),
            io_errors: made(errors, 32),
            backoff_retries: made(retries, 32),
            not_ready: made(not_ready, 8),
            quota_reject: made(quota, 8),
            auth_failures: made(auth, 32),
            auth_refreshes: made(refreshes, 16),
            ops_actions: made(ops, 8),
            outbound_requests: made(outbound, 96),
            outbound_breaker_opened: made(opened, 16),
            deadline_header_malformed: Count::default(),
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
