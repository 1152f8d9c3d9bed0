//! A latency histogram with exemplars and native buckets.
//!
//! A lock is taken only within a sampled trace.

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

/// Suffix of the companion family with the exemplars of a histogram. Only the encoders of the admin
/// port read companion families; other metric names contain no colon.
pub(crate) const EXEMPLARS: &str = ":exemplars";
/// Suffix of the companion family with the native buckets.
pub(crate) const FINE: &str = ":fine";
/// Label of a native bucket: its index.
pub(crate) const INDEX: &str = "index";
/// Labels of an exemplar: the upper bound of its bucket, and its value.
pub(crate) const BOUND: &str = "le";
pub(crate) const VALUE: &str = "value";

/// Schema 3 of native histograms: each bucket is wider than the one before by the eighth root of 2
/// (9 %).
pub(crate) const SCHEMA: i32 = 3;
const PER_DOUBLING: f64 = 8.0;
/// Index of the first native bucket, just above 2⁻¹⁴ s (61 µs). Lower values are counted in the
/// zero bucket.
const FIRST: i32 = -14 * 8 + 1;
/// Index of the last native bucket, which ends at 2⁹ s; no call takes longer.
const LAST: i32 = 9 * 8;
/// Upper bound of the zero bucket in seconds.
pub(crate) const ZERO: f64 = 1.0 / 16_384.0;

/// A histogram of durations. Clones share their counts.
#[derive(Clone)]
pub struct Latency(Arc<Inner>);

struct Inner {
    name: String,
    help: String,
    buckets: Histogram,
    bounds: Box<[f64]>,
    /// The last value per bucket that belongs to a sampled trace; the last entry is for values
    /// above all bounds.
    exemplars: Box<[Mutex<Option<Exemplar>>]>,
    /// The zero bucket, followed by the native buckets.
    fine: Box<[AtomicU64]>,
}

struct Exemplar {
    trace: TraceContext,
    value: f64,
    at_ms: i64,
}

impl Latency {
    /// Registers a histogram with these classic buckets: upper bounds in seconds, in ascending
    /// order.
    ///
    /// # Errors
    /// When the registry already has a metric of this name, or the bounds do not ascend.
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

    /// Records a duration. Within a sampled trace it becomes the exemplar of its bucket.
    pub fn observe(&self, took: Duration) {
        self.observe_in_trace(took, TraceContext::current());
    }

    /// Records a duration with an explicit trace.
    pub fn observe_in_trace(&self, took: Duration, trace: Option<TraceContext>) {
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

    /// Returns the number of recorded values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.buckets.get_sample_count()
    }
}

/// Returns the slot of a value; slot 0 is the zero bucket.
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
            // The zero bucket is always present, so that the histogram is native before the first
            // value.
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

/// An exemplar, as the encoders write it.
pub(crate) struct ExemplarView<'a> {
    pub(crate) value: f64,
    pub(crate) labels: Vec<(&'a str, &'a str)>,
    pub(crate) at_ms: i64,
}

/// Gathered metrics, with companion families separated from regular ones.
pub(crate) struct Gathered {
    pub(crate) families: Vec<MetricFamily>,
    companions: HashMap<String, MetricFamily>,
}

impl Gathered {
    pub(crate) fn from(registry: &Registry) -> Self {
        let (companions, families): (Vec<_>, Vec<_>) = registry
            .gather()
            .into_iter()
            .partition(|family| family.name().contains(':'));
        let named = |family: MetricFamily| (family.name().to_owned(), family);
        Self {
            families,
            companions: companions.into_iter().map(named).collect(),
        }
    }

    /// Returns the companion metrics of a family.
    pub(crate) fn companions(&self, family: &MetricFamily, suffix: &str) -> &[Metric] {
        let found = self.companions.get(&format!("{}{suffix}", family.name()));
        found.map_or(&[], MetricFamily::get_metric)
    }

    /// Returns the exemplar of a bucket.
    pub(crate) fn exemplar(&self, family: &MetricFamily, bound: f64) -> Option<ExemplarView<'_>> {
        let number = |metric: &Metric, name| label_value(metric, name)?.parse::<f64>().ok();
        let metric = self
            .companions(family, EXEMPLARS)
            .iter()
            .find(|metric| number(metric, BOUND) == Some(bound))?;
        let labels = metric.get_label().iter();
        let labels = labels.map(|pair| (pair.name(), pair.value()));
        let labels = labels.filter(|(name, _)| ![BOUND, VALUE].contains(name));
        Some(ExemplarView {
            value: number(metric, VALUE)?,
            labels: labels.collect(),
            at_ms: metric.timestamp_ms(),
        })
    }
}

/// Returns the value of a label.
pub(crate) fn label_value<'a>(metric: &'a Metric, name: &str) -> Option<&'a str> {
    let pair = metric.get_label().iter().find(|pair| pair.name() == name);
    pair.map(LabelPair::value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_counted_in_its_native_bucket() {
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
