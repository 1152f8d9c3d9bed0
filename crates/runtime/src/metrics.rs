//! Metric families whose label values are known in advance, with a handle per value.
//!
//! Invariant: every series exists from registration on, before its first event.

use std::{marker::PhantomData, time::Duration};

use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    Opts, PullingGauge, Registry, core::Collector,
};

use crate::latency::Latency;

/// Bucket bounds in seconds, from responses out of memory to calls that wait for a slow device.
pub const SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0,
];

/// A label whose values are known in advance.
pub trait Label: Copy {
    /// Iterates over all values in the order of their indexes.
    fn all() -> impl Iterator<Item = Self>;
    /// Returns the index of this value.
    fn index(self) -> usize;
    /// Returns the label value.
    fn as_str(self) -> &'static str;
}

/// Defines an enum that is a [`Label`](crate::metrics::Label): `labels! { enum Kind { Peer =>
/// "peer", … } }`.
#[macro_export]
macro_rules! labels {
    (
        $(#[$about:meta])*
        $visible:vis enum $name:ident {
            $($(#[$about_one:meta])* $variant:ident => $text:literal),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visible enum $name {
            $($(#[$about_one])* $variant),+
        }

        $crate::label!($name { $($variant => $text),+ });
    };
}

/// Implements [`Label`](crate::metrics::Label) for an existing enum; lists its variants in order.
#[macro_export]
macro_rules! label {
    ($name:ident { $($variant:ident => $text:literal),+ $(,)? }) => {
        impl $name {
            /// Returns the value as it appears in metrics and logs.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl $crate::metrics::Label for $name {
            fn all() -> impl Iterator<Item = Self> {
                [$(Self::$variant),+].into_iter()
            }

            fn index(self) -> usize {
                self as usize
            }

            fn as_str(self) -> &'static str {
                Self::as_str(self)
            }
        }
    };
}

/// Counters, one per label value. Clones share their counts.
#[derive(Debug, Clone)]
pub struct Counters<L> {
    handles: Box<[IntCounter]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Counters<L> {
    /// Creates the counters of a family whose last label is `L`; `labels` are the values of the
    /// labels before it.
    #[must_use]
    pub fn of(family: &IntCounterVec, labels: &[&str]) -> Self {
        let handle = |value: L| family.with_label_values(&[labels, &[value.as_str()]].concat());
        Self {
            handles: L::all().map(handle).collect(),
            label: PhantomData,
        }
    }

    /// Increments a counter by one.
    pub fn inc(&self, value: L) {
        self.inc_by(value, 1);
    }

    /// Increments a counter by `more`.
    pub fn inc_by(&self, value: L, more: u64) {
        if let Some(counter) = self.handles.get(value.index()) {
            counter.inc_by(more);
        }
    }

    /// Returns the value of a counter.
    #[must_use]
    pub fn get(&self, value: L) -> u64 {
        let counter = self.handles.get(value.index());
        counter.map_or(0, IntCounter::get)
    }
}

/// Histograms of seconds, one per label value. Clones share their counts.
#[derive(Debug, Clone)]
pub struct Histograms<L> {
    family: HistogramVec,
    handles: Box<[Histogram]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Histograms<L> {
    /// Creates unregistered histograms.
    ///
    /// # Errors
    /// When the name is invalid or the bounds do not ascend.
    pub fn new(
        name: &str,
        help: &str,
        label: &str,
        bounds: &[f64],
    ) -> Result<Self, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(bounds.to_vec());
        let family = HistogramVec::new(opts, &[label])?;
        let handle = |value: L| family.with_label_values(&[value.as_str()]);
        Ok(Self {
            handles: L::all().map(handle).collect(),
            label: PhantomData,
            family,
        })
    }

    /// Registers the histograms.
    ///
    /// # Errors
    /// When the registry already has metrics of this name.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.family.clone()))
    }

    /// Records a duration.
    pub fn observe(&self, value: L, took: Duration) {
        if let Some(histogram) = self.handles.get(value.index()) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// Returns the number of recorded values.
    #[must_use]
    pub fn count(&self, value: L) -> u64 {
        let histogram = self.handles.get(value.index());
        histogram.map_or(0, Histogram::get_sample_count)
    }
}

/// A registry with a common prefix of metric names.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    registry: &'a Registry,
    prefix: &'static str,
    service: Option<&'a str>,
}

impl<'a> Group<'a> {
    /// Creates a group with a prefix, for example `switchboard_edge`.
    #[must_use]
    pub const fn new(registry: &'a Registry, prefix: &'static str) -> Self {
        Self {
            registry,
            prefix,
            service: None,
        }
    }

    /// Adds a `service` label to all metrics of the group.
    #[must_use]
    pub const fn with_service(self, service: &'a str) -> Self {
        Self {
            service: Some(service),
            ..self
        }
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        let opts = Opts::new(format!("{}_{name}", self.prefix), help);
        match self.service {
            Some(service) => opts.const_label("service", service),
            None => opts,
        }
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        metric: Result<C, prometheus::Error>,
    ) -> Result<C, prometheus::Error> {
        let metric = metric?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// Registers a counter.
    ///
    /// # Errors
    /// When the registry already has a metric of this name, or the name is invalid.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::with_opts(self.opts(name, help)))
    }

    /// Registers a counter of fractions, such as seconds.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn float_counter(&self, name: &str, help: &str) -> Result<Counter, prometheus::Error> {
        self.register(Counter::with_opts(self.opts(name, help)))
    }

    /// Registers an integer gauge.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::with_opts(self.opts(name, help)))
    }

    /// Registers a floating-point gauge.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.register(Gauge::with_opts(self.opts(name, help)))
    }

    /// Registers a gauge that is computed at each scrape.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn pulling_gauge(
        &self,
        name: &str,
        help: &str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), prometheus::Error> {
        let name = format!("{}_{name}", self.prefix);
        let gauge = PullingGauge::new(name, help, Box::new(value))?;
        self.registry.register(Box::new(gauge))
    }

    /// Registers a histogram with these bucket bounds.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
    ) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(bounds.to_vec());
        self.register(Histogram::with_opts(opts))
    }

    /// Registers a latency histogram with exemplars and native buckets.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn latency(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
    ) -> Result<Latency, prometheus::Error> {
        let name = format!("{}_{name}", self.prefix);
        Latency::new(self.registry, &name, help, bounds)
    }

    /// Registers counters with a label, one for each of its values.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn counters<L: Label>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<Counters<L>, prometheus::Error> {
        let family = self.register(IntCounterVec::new(self.opts(name, help), &[label]))?;
        Ok(Counters::of(&family, &[]))
    }

    /// Registers counters with one label and the given values, for example error codes. For rare
    /// events: each increment looks up its label.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn named_counters(
        &self,
        name: &str,
        help: &str,
        label: &str,
        codes: impl IntoIterator<Item = &'static str>,
    ) -> Result<IntCounterVec, prometheus::Error> {
        let family = self.register(IntCounterVec::new(self.opts(name, help), &[label]))?;
        for code in codes {
            // Looking up a label value creates its series.
            let _ = family.with_label_values(&[code]);
        }
        Ok(family)
    }

    /// Registers histograms of seconds with a label, one for each of its values.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn histograms<L: Label>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        bounds: &[f64],
    ) -> Result<Histograms<L>, prometheus::Error> {
        let name = format!("{}_{name}", self.prefix);
        let histograms = Histograms::new(&name, help, label, bounds)?;
        histograms.register(self.registry)?;
        Ok(histograms)
    }
}

/// Registers the metrics of this process: memory, file descriptors, CPU time and start time. Does
/// nothing without the feature `process-metrics`, and on systems other than Linux.
///
/// # Errors
/// When the registry already has these metrics.
pub fn register_process_metrics(registry: &Registry) -> Result<(), prometheus::Error> {
    #[cfg(all(target_os = "linux", feature = "process-metrics"))]
    {
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process))?;
    }
    #[cfg(not(all(target_os = "linux", feature = "process-metrics")))]
    let _ = registry;
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    labels! {
        enum Fruit {
            Apple => "apple",
            Pear => "pear",
        }
    }

    fn render(registry: &Registry) -> String {
        let families = registry.gather();
        TextEncoder::new().encode_to_string(&families).unwrap()
    }

    #[test]
    fn counters_exist_before_their_first_event() {
        let registry = Registry::new();
        let group = Group::new(&registry, "test").with_service("here");
        let eaten: Counters<Fruit> = group.counters("eaten_total", "Eaten", "fruit").unwrap();
        let named = group.named_counters("bad_total", "Bad", "code", ["worm", "rot"]);
        assert!(named.is_ok());
        eaten.inc(Fruit::Pear);
        eaten.inc_by(Fruit::Pear, 2);
        assert_eq!((eaten.get(Fruit::Apple), eaten.get(Fruit::Pear)), (0, 3));
        let rendered = render(&registry);
        for line in [
            "test_eaten_total{fruit=\"apple\",service=\"here\"} 0",
            "test_eaten_total{fruit=\"pear\",service=\"here\"} 3",
            "test_bad_total{code=\"worm\",service=\"here\"} 0",
            "test_bad_total{code=\"rot\",service=\"here\"} 0",
        ] {
            assert!(
                rendered.lines().any(|found| found == line),
                "{line}\n{rendered}"
            );
        }
        assert!(group.counter("eaten_total", "Eaten").is_err(), "taken");
    }

    #[test]
    fn histograms_exist_before_their_first_event() {
        let registry = Registry::new();
        let group = Group::new(&registry, "test");
        let peeled: Histograms<Fruit> = group
            .histograms("peel_seconds", "Peeling", "fruit", &[1.0])
            .unwrap();
        peeled.observe(Fruit::Apple, Duration::from_millis(1));
        assert_eq!(
            (peeled.count(Fruit::Apple), peeled.count(Fruit::Pear)),
            (1, 0)
        );
        assert!(render(&registry).contains("test_peel_seconds_count{fruit=\"pear\"} 0"));
    }

    #[cfg(all(target_os = "linux", feature = "process-metrics"))]
    #[test]
    fn process_metrics_are_registered() {
        let registry = Registry::new();
        register_process_metrics(&registry).unwrap();
        let rendered = render(&registry);
        for name in [
            "resident_memory_bytes",
            "open_fds",
            "max_fds",
            "start_time_seconds",
        ] {
            assert!(rendered.contains(&format!("process_{name}")), "{rendered}");
        }
    }
}
