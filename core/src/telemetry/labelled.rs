//! Metrics with labels, and a bound on how many series each may have.
//!
//! Always: never more series than declared, plus `other`, which takes the rest.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::lock::{LEAF, LockDecl, RankedMutex};

pub type Counters = Labelled<IntCounterVec>;
pub type Gauges = Labelled<IntGaugeVec>;
pub type Histograms = Labelled<HistogramVec>;

/// A metric with labels, and a bound on how many series it may have. Ask [`with`](Self::with) once and
/// keep the handle: counting is then one atomic add. Clones are the same metric.
pub struct Labelled<V>(Arc<Series<V>>);

struct Series<V> {
    /// Made with its first series: without one nothing is exported.
    vec: LazyLock<V, Box<dyn FnOnce() -> V + Send + Sync>>,
    width: usize,
    max_series: usize,
    seen: RankedMutex<BTreeSet<Vec<String>>>,
}

impl<V> Clone for Labelled<V> {
    fn clone(&self) -> Self {
        Labelled(self.0.clone())
    }
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
    pub(super) fn new(
        width: usize,
        max_series: usize,
        make: impl FnOnce() -> V + Send + Sync + 'static,
    ) -> Self {
        Labelled(Arc::new(Series {
            vec: LazyLock::new(Box::new(make)),
            width,
            max_series,
            seen: RankedMutex::new(SERIES, BTreeSet::new()),
        }))
    }

    /// The metric, if it has ever had a series.
    pub(super) fn made(&self) -> Option<&V> {
        let seen = !self.0.seen.lock().is_empty();
        seen.then(|| &*self.0.vec)
    }

    /// The series with these label values, in declared order.
    ///
    /// # Panics
    /// If the number of values is not that of the declared labels.
    pub fn with(&self, values: &[&str]) -> V::Handle {
        let width = self.0.width;
        assert_eq!(values.len(), width, "one value per declared label");
        if self.admit(values) {
            self.0.vec.handle(values)
        } else {
            self.0.vec.handle(&vec!["other"; width])
        }
    }

    /// Ends a series and makes room for another: for labels that move on, such as epochs.
    pub fn forget(&self, values: &[&str]) {
        let owned: Vec<String> = values.iter().map(ToString::to_string).collect();
        if self.0.seen.lock().remove(&owned) {
            self.0.vec.forget(values);
        }
    }

    fn admit(&self, values: &[&str]) -> bool {
        let owned: Vec<String> = values.iter().map(ToString::to_string).collect();
        let mut seen = self.0.seen.lock();
        if seen.len() < self.0.max_series {
            seen.insert(owned);
            return true;
        }
        seen.contains(&owned)
    }
}

const SERIES: LockDecl = LockDecl {
    name: "metric_series",
    rank: LEAF,
    guards: "which label values a metric has seen",
};
