//! Metrics of one service instance: its own registry, never the process-wide one.
//!
//! Each metric is declared as it is made, so the docs' table is what the code exports. The kernel's parts
//! count for themselves; views of them are read when `/metrics` is asked for. A label never has more
//! values than its metric declared: the rest are counted under `other`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
    core::{Collector, Desc},
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

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

#[derive(Default)]
struct Views {
    queues: Vec<(Arc<dyn QueueView>, Refusals)>,
    tasks: Vec<Arc<dyn TaskView>>,
    buses: Vec<(&'static str, Read)>,
    envs: Vec<Env>,
}

type Read = Arc<dyn Fn() -> u64 + Send + Sync>;

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

// --------------------------------------------------------------------------------------- labelled

pub type Counters = Labelled<IntCounterVec>;
pub type Gauges = Labelled<IntGaugeVec>;
pub type Histograms = Labelled<HistogramVec>;

/// A metric with labels, and a bound on how many series it may have. Ask [`with`](Self::with) once and
/// keep the handle: counting is then one atomic add.
#[derive(Clone)]
pub struct Labelled<V> {
    vec: V,
    width: usize,
    max_series: usize,
    seen: Arc<RankedMutex<BTreeSet<Vec<String>>>>,
}

/// The three labelled kinds, which share no trait of their own.
pub trait Family {
    type Handle;
    fn handle(&self, values: &[&str]) -> Self::Handle;
    fn forget(&self, values: &[&str]);
}

macro_rules! families {
    ($($vec:ty => $handle:ty),+) => {$(
        impl Family for $vec {
            type Handle = $handle;
            fn handle(&self, values: &[&str]) -> $handle {
                self.with_label_values(values)
            }
            fn forget(&self, values: &[&str]) {
                // Nothing to remove is what was wanted.
                let _ = self.remove_label_values(values);
            }
        }
    )+};
}

families!(IntCounterVec => IntCounter, IntGaugeVec => IntGauge, HistogramVec => Histogram);

impl<V: Family> Labelled<V> {
    fn new(vec: V, width: usize, max_series: usize) -> Self {
        Labelled {
            vec,
            width,
            max_series,
            seen: Arc::new(RankedMutex::new(SERIES, BTreeSet::new())),
        }
    }

    /// The series with these label values, in declared order.
    ///
    /// # Panics
    /// If the number of values is not that of the declared labels.
    pub fn with(&self, values: &[&str]) -> V::Handle {
        assert_eq!(values.len(), self.width, "one value per declared label");
        if self.admit(values) {
            self.vec.handle(values)
        } else {
            self.vec.handle(&vec!["other"; self.width])
        }
    }

    /// Ends a series and makes room for another: for labels that move on, such as epochs.
    pub fn forget(&self, values: &[&str]) {
        let owned: Vec<String> = values.iter().map(ToString::to_string).collect();
        if self.seen.lock().remove(&owned) {
            self.vec.forget(values);
        }
    }

    fn admit(&self, values: &[&str]) -> bool {
        let owned: Vec<String> = values.iter().map(ToString::to_string).collect();
        let mut seen = self.seen.lock();
        if seen.len() < self.max_series {
            seen.insert(owned);
            return true;
        }
        seen.contains(&owned)
    }
}

// ---------------------------------------------------------------------------------------- kernel

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

const BUSY: (&str, &str) = (
    "busy_rejections_total",
    "Requests or jobs refused because a queue or limit was full",
);

fn export_views(m: &mut Maker<'_>, views: &Arc<RankedMutex<Views>>, kernel: &Kernel) {
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
fn queue_stats(views: &RankedMutex<Views>) -> Vec<(QueueStats, Refusals)> {
    let queues = views.lock().queues.clone();
    queues
        .into_iter()
        .map(|(queue, refusals)| (queue.stats(), refusals))
        .collect()
}

fn task_counts(views: &RankedMutex<Views>) -> BTreeMap<&'static str, TaskCounts> {
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

type Samples = Vec<(Vec<String>, f64)>;

fn sum(samples: impl Iterator<Item = (Vec<String>, f64)>) -> Samples {
    let mut all = BTreeMap::new();
    for (labels, value) in samples {
        *all.entry(labels).or_insert(0.0) += value;
    }
    all.into_iter().collect()
}

// ---------------------------------------------------------------------------------------- making

/// Registers and declares in one step, so that neither happens without the other.
struct Maker<'a> {
    prefix: &'static str,
    registry: &'a Registry,
    decls: Vec<MetricDecl>,
}

impl Maker<'_> {
    fn declare(
        &mut self,
        name: &str,
        kind: &'static str,
        labels: &[&'static str],
        help: &'static str,
    ) -> String {
        let full = format!("{}{name}", self.prefix);
        self.decls.push(MetricDecl {
            name: full.clone(),
            kind,
            labels: labels.to_vec(),
            help,
        });
        full
    }

    fn register(&self, name: &str, collector: impl Collector + 'static) {
        must(name, self.registry.register(Box::new(collector)));
    }

    fn counter(&mut self, name: &'static str, help: &'static str) -> IntCounter {
        self.counters(name, help, &[], 1).with(&[])
    }

    fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
    ) -> Counters {
        let opts = Opts::new(self.declare(name, "counter", labels, help), help);
        let vec = must(name, IntCounterVec::new(opts, labels));
        self.register(name, vec.clone());
        Labelled::new(vec, labels.len(), max_series)
    }

    fn pull(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricType,
        labels: &[&'static str],
        read: impl Fn() -> Samples + Send + Sync + 'static,
    ) {
        let word = if kind == MetricType::GAUGE {
            "gauge"
        } else {
            "counter"
        };
        let full = self.declare(name, word, labels, help);
        let owned = labels.iter().map(ToString::to_string).collect();
        let desc = Desc::new(full, help.to_owned(), owned, Default::default());
        let desc = must(name, desc);
        self.register(name, Pull { desc, kind, read });
    }
}

fn must<T>(name: &str, made: prometheus::Result<T>) -> T {
    made.unwrap_or_else(|error| panic!("metric `{name}`: {error}"))
}

/// A metric whose values are read when it is gathered.
struct Pull<F> {
    desc: Desc,
    kind: MetricType,
    read: F,
}

impl<F: Fn() -> Samples + Send + Sync> Collector for Pull<F> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let metrics = (self.read)().into_iter().map(|(values, value)| {
            let pair = |(name, value): (&String, String)| {
                let mut pair = LabelPair::default();
                pair.set_name(name.clone());
                pair.set_value(value);
                pair
            };
            let pairs = self.desc.variable_labels.iter().zip(values).map(pair);
            let mut metric = Metric::from_label(pairs.collect());
            if self.kind == MetricType::GAUGE {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            } else {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(self.kind);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

const DECLS: LockDecl = LockDecl {
    name: "metric_decls",
    rank: LEAF - 1,
    guards: "the list of declared metrics",
};
const VIEWS: LockDecl = LockDecl {
    name: "metric_views",
    rank: LEAF,
    guards: "the list of watched parts",
};
const SERIES: LockDecl = LockDecl {
    name: "metric_series",
    rank: LEAF,
    guards: "which label values a metric has seen",
};

#[cfg(test)]
#[path = "telemetry_tests.rs"]
mod tests;
