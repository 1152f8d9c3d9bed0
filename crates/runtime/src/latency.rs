//! A histogram of seconds that remembers which trace a value came from, and counts finely beside its buckets.
//! Never: a lock where nothing is traced, or a series more than its buckets make.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus::{
    Histogram, HistogramOpts, Registry,
    core::{Collector, Desc},
    proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::{clock::unix_now_ms, trace::TraceContext};

/// Behind a family's name: which traces its buckets' values came from. Such families are for the encoders of the admin
/// port only, which put them where they belong or leave them out; no name of a metric has a colon otherwise.
pub(crate) const EXEMPLARS: &str = ":exemplars";
/// Behind a family's name: its fine buckets, likewise.
pub(crate) const FINE: &str = ":fine";
/// Their label.
pub(crate) const INDEX: &str = "index";
/// Which bucket an exemplar is of, and what it was.
pub(crate) const BOUND: &str = "le";
pub(crate) const VALUE: &str = "value";

/// Fine buckets grow by the eighth root of 2, which is 9 %: the third schema of native histograms.
pub(crate) const SCHEMA: i32 = 3;
const PER_DOUBLING: f64 = 8.0;
/// The first fine bucket ends 9 % above 2⁻¹⁴ s, which is 61 µs; what is less is counted as nothing.
const FIRST: i32 = -14 * 8 + 1;
/// The last one ends at 2⁹ s: no call takes so long.
const LAST: i32 = 9 * 8;
/// Below it values are not told apart.
pub(crate) const ZERO: f64 = 1.0 / 16_384.0;

/// A histogram of durations; clones count together.
#[derive(Clone)]
pub struct Latency(Arc<Inner>);

struct Inner {
    name: String,
    help: String,
    buckets: Histogram,
    bounds: Box<[f64]>,
    /// The last value in each bucket that came from a sampled trace; one more than bounds, for what is above.
    exemplars: Box<[Mutex<Option<Exemplar>>]>,
    /// What is too little, then the fine buckets.
    fine: Box<[AtomicU64]>,
}

struct Exemplar {
    trace: TraceContext,
    value: f64,
    at_ms: i64,
}

impl Latency {
    /// Registers it, with classic buckets up to these bounds, in seconds and in rising order.
    ///
    /// # Errors
    /// When the registry has such a metric already, or the bounds do not rise.
    pub fn new(
        registry: &Registry,
        name: &str,
        help: &str,
        bounds: &[f64],
    ) -> Result<Self, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(bounds.to_vec());
        let fine = usize::try_from(LAST - FIRST + 2).unwrap_or_default();
        let latency = Self(Arc::new(Inner {
            name: name.to_owned(),
            help: help.to_owned(),
            buckets: Histogram::with_opts(opts)?,
            bounds: bounds.into(),
            exemplars: (0..=bounds.len()).map(|_| Mutex::default()).collect(),
            fine: (0..fine).map(|_| AtomicU64::default()).collect(),
        }));
        registry.register(Box::new(latency.clone()))?;
        Ok(latency)
    }

    /// Counts what took so long; within a sampled trace it becomes its bucket's exemplar.
    pub fn observe(&self, took: Duration) {
        self.observe_within(took, TraceContext::current());
    }

    /// The same, in that trace.
    pub fn observe_within(&self, took: Duration, trace: Option<TraceContext>) {
        let inner = &*self.0;
        let value = took.as_secs_f64();
        inner.buckets.observe(value);
        if let Some(slot) = inner.fine.get(slot(value)) {
            slot.fetch_add(1, Ordering::Relaxed);
        }
        let Some(trace) = trace else { return };
        let bucket = inner.bounds.partition_point(|bound| *bound < value);
        if let Some(slot) = inner.exemplars.get(bucket) {
            let at_ms = i64::try_from(unix_now_ms()).unwrap_or(i64::MAX);
            *slot.lock() = Some(Exemplar {
                trace,
                value,
                at_ms,
            });
        }
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.buckets.get_sample_count()
    }
}

/// Where a value is counted finely: 0 is what is too little.
fn slot(value: f64) -> usize {
    if value <= ZERO {
        return 0;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    let index = (value.log2() * PER_DOUBLING).ceil() as i32;
    usize::try_from(index.clamp(FIRST, LAST) - FIRST + 1).unwrap_or_default()
}

impl Collector for Latency {
    fn desc(&self) -> Vec<&Desc> {
        self.0.buckets.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.0.buckets.collect();
        families.extend(self.0.exemplars());
        families.push(self.0.fine());
        families
    }
}

impl Inner {
    fn exemplars(&self) -> Option<MetricFamily> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let metrics: Vec<_> = bounds
            .zip(&self.exemplars)
            .filter_map(|(bound, slot)| {
                let slot = slot.lock();
                let Exemplar {
                    trace,
                    value,
                    at_ms,
                } = slot.as_ref()?;
                let mut metric = Metric::from_label(vec![
                    label(BOUND, bound.to_string()),
                    label(VALUE, value.to_string()),
                    label("trace_id", trace.trace_id()),
                    label("span_id", trace.span_id()),
                ]);
                metric.set_timestamp_ms(*at_ms);
                Some(metric)
            })
            .collect();
        (!metrics.is_empty()).then(|| self.family(EXEMPLARS, metrics))
    }

    fn fine(&self) -> MetricFamily {
        let counted = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
        let indexes = (FIRST - 1)..;
        let metrics = indexes
            .zip(self.fine.iter().map(counted))
            // The first one is always there, so that there is a native histogram before the first call.
            .filter(|(index, count)| *count > 0 || *index < FIRST)
            .map(|(index, count)| {
                let mut metric = Metric::from_label(vec![label(INDEX, index.to_string())]);
                let mut gauge = Gauge::default();
                #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³ calls")]
                gauge.set_value(count as f64);
                metric.set_gauge(gauge);
                metric
            })
            .collect();
        self.family(FINE, metrics)
    }

    fn family(&self, suffix: &str, metrics: Vec<Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(format!("{}{suffix}", self.name));
        family.set_help(self.help.clone());
        family.set_field_type(MetricType::GAUGE);
        family.set_metric(metrics);
        family
    }
}

fn label(name: &str, value: String) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value);
    pair
}

/// An exemplar, as it is written.
pub(crate) struct Shown<'a> {
    pub(crate) value: f64,
    pub(crate) labels: Vec<(&'a str, &'a str)>,
    pub(crate) at_ms: i64,
}

/// The families that are metrics, and beside them what encoders put where it belongs.
pub(crate) struct Gathered {
    pub(crate) families: Vec<MetricFamily>,
    beside: HashMap<String, MetricFamily>,
}

impl Gathered {
    pub(crate) fn from(registry: &Registry) -> Self {
        let (beside, families): (Vec<_>, Vec<_>) = registry
            .gather()
            .into_iter()
            .partition(|family| family.name().contains(':'));
        let named = |family: MetricFamily| (family.name().to_owned(), family);
        Self {
            families,
            beside: beside.into_iter().map(named).collect(),
        }
    }

    /// What there is beside a family.
    pub(crate) fn beside(&self, family: &MetricFamily, suffix: &str) -> &[Metric] {
        let found = self.beside.get(&format!("{}{suffix}", family.name()));
        found.map_or(&[], MetricFamily::get_metric)
    }

    /// The exemplar of a histogram's bucket.
    pub(crate) fn exemplar(&self, family: &MetricFamily, bound: f64) -> Option<Shown<'_>> {
        let number = |metric: &Metric, name| value_of(metric, name)?.parse::<f64>().ok();
        let metric = self
            .beside(family, EXEMPLARS)
            .iter()
            .find(|metric| number(metric, BOUND) == Some(bound))?;
        let labels = metric.get_label().iter();
        let labels = labels.map(|pair| (pair.name(), pair.value()));
        let labels = labels.filter(|(name, _)| ![BOUND, VALUE].contains(name));
        Some(Shown {
            value: number(metric, VALUE)?,
            labels: labels.collect(),
            at_ms: metric.timestamp_ms(),
        })
    }
}

/// The value of a label.
pub(crate) fn value_of<'a>(metric: &'a Metric, name: &str) -> Option<&'a str> {
    let pair = metric.get_label().iter().find(|pair| pair.name() == name);
    pair.map(LabelPair::value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_fine_bucket_that_ends_above_it() {
        fn check(seconds: f64, expected: i32) {
            let index = i32::try_from(slot(seconds)).unwrap() + FIRST - 1;
            assert_eq!(index, expected, "{seconds}");
        }
        check(0.0, FIRST - 1);
        check(ZERO, FIRST - 1);
        check(ZERO * 1.01, FIRST);
        check(0.5, -8);
        check(0.500_001, -7);
        check(1.0, 0);
        check(1.05, 1);
        check(2.0, 8);
        check(512.0, LAST);
        check(1e9, LAST);
    }
}
