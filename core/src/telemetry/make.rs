//! Makes metrics: registers and declares in one step, so that neither happens without the other.

use prometheus::{
    IntCounter, IntCounterVec, Opts, Registry,
    core::{Collector, Desc},
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use super::{Counters, Labelled, MetricDecl};

pub(super) struct Maker<'a> {
    pub(super) prefix: &'static str,
    pub(super) registry: &'a Registry,
    pub(super) decls: Vec<MetricDecl>,
}

impl Maker<'_> {
    pub(super) fn declare(
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

    pub(super) fn register(&self, name: &str, collector: impl Collector + 'static) {
        must(name, self.registry.register(Box::new(collector)));
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> IntCounter {
        self.counters(name, help, &[], 1).with(&[])
    }

    pub(super) fn counters(
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

    pub(super) fn pull(
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

/// Label values and the number that belongs to them.
pub(super) type Samples = Vec<(Vec<String>, f64)>;

pub(super) fn must<T>(name: &str, made: prometheus::Result<T>) -> T {
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
