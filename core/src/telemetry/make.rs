//! Makes metrics. A metric is declared at once and made when it is first counted in: a process that does
//! nothing yet, and there may be ten thousand of them in one simulation, holds next to nothing here.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
    core::Collector,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use super::{Counters, Gauges, Histograms, Labelled};

/// What a metric is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    /// Without the prefix.
    pub name: &'static str,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Where metrics of one instance are registered.
#[derive(Clone)]
pub(super) struct Maker {
    pub prefix: &'static str,
    pub registry: Registry,
}

impl Maker {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("{}{name}", self.prefix), help)
    }

    fn registered<C: Collector + Clone + 'static>(
        &self,
        name: &str,
        made: prometheus::Result<C>,
    ) -> C {
        let made = must(name, made);
        must(name, self.registry.register(Box::new(made.clone())));
        made
    }

    pub fn counter(&self, name: &'static str, help: &'static str) -> IntCounter {
        self.registered(name, IntCounter::with_opts(self.opts(name, help)))
    }

    pub fn gauge(&self, name: &'static str, help: &'static str) -> IntGauge {
        self.registered(name, IntGauge::with_opts(self.opts(name, help)))
    }

    pub fn histogram(&self, name: &'static str, help: &'static str, buckets: &[f64]) -> Histogram {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec());
        self.registered(name, Histogram::with_opts(opts))
    }

    pub fn counters(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
    ) -> Counters {
        let (maker, owned) = (self.clone(), labels.to_vec());
        Labelled::new(labels.len(), max_series, move || {
            let vec = IntCounterVec::new(maker.opts(name, help), &owned);
            maker.registered(name, vec)
        })
    }

    pub fn gauges(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
    ) -> Gauges {
        let (maker, owned) = (self.clone(), labels.to_vec());
        Labelled::new(labels.len(), max_series, move || {
            let vec = IntGaugeVec::new(maker.opts(name, help), &owned);
            maker.registered(name, vec)
        })
    }

    pub fn histograms(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        max_series: usize,
        buckets: &[f64],
    ) -> Histograms {
        let (maker, owned, buckets) = (self.clone(), labels.to_vec(), buckets.to_vec());
        Labelled::new(labels.len(), max_series, move || {
            let opts = HistogramOpts::from(maker.opts(name, help)).buckets(buckets);
            maker.registered(name, HistogramVec::new(opts, &owned))
        })
    }
}

/// Label values and the number that belongs to them.
pub(super) type Samples = Vec<(Vec<String>, f64)>;

/// A metric whose values somebody else keeps.
pub(super) fn family(prefix: &str, spec: Spec, samples: Samples) -> MetricFamily {
    let kind = if spec.kind == "gauge" {
        MetricType::GAUGE
    } else {
        MetricType::COUNTER
    };
    let metrics = samples.into_iter().map(|(values, value)| {
        let pair = |(name, value): (&&str, String)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value);
            pair
        };
        let pairs = spec.labels.iter().zip(values).map(pair);
        let mut metric = Metric::from_label(pairs.collect());
        if kind == MetricType::GAUGE {
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
    family.set_name(format!("{prefix}{}", spec.name));
    family.set_help(spec.help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics.collect());
    family
}

pub(super) fn must<T>(name: &str, made: prometheus::Result<T>) -> T {
    made.unwrap_or_else(|error| panic!("metric `{name}`: {error}"))
}

/// Letters, digits, `_` and `:`, and no digit first: asked when a metric is declared, not when it is made.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !name.is_empty() && name.chars().all(allowed) && !name.starts_with(|c: char| c.is_ascii_digit())
}
