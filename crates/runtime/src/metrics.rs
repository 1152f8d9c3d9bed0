//! Metrics as services make them: families whose labels have values that are known beforehand, and a handle for each.
//! Never: a series that appears only with its first event, or a label looked up where there is a handle.

use std::{marker::PhantomData, time::Duration};

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    PullingGauge, Registry, core::Collector,
};

use crate::latency::Latency;

/// Bounds, in seconds, from what is answered from memory to what waits for a slow device.
pub const SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0,
];

/// The values of a label, all of which are known beforehand.
pub trait Label: Copy {
    /// All of them, in the order of their places.
    fn all() -> impl Iterator<Item = Self>;
    /// Its place.
    fn index(self) -> usize;
    /// As scrapers read it.
    fn as_str(self) -> &'static str;
}

/// An enum that is a [`Label`](crate::metrics::Label): `labels! { enum Kind { Peer => "peer", … } }`.
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

/// The same for an enum that stands elsewhere, with its variants in their order.
#[macro_export]
macro_rules! label {
    ($name:ident { $($variant:ident => $text:literal),+ $(,)? }) => {
        impl $name {
            /// As scrapers and logs read it.
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

/// Counters, one for each value of a label; clones count together.
#[derive(Debug, Clone)]
pub struct Counters<L> {
    handles: Box<[IntCounter]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Counters<L> {
    fn of(family: &IntCounterVec) -> Self {
        let handle = |value: L| family.with_label_values(&[value.as_str()]);
        Self {
            handles: L::all().map(handle).collect(),
            label: PhantomData,
        }
    }

    /// One more.
    pub fn inc(&self, value: L) {
        self.inc_by(value, 1);
    }

    /// So many more.
    pub fn inc_by(&self, value: L, more: u64) {
        if let Some(counter) = self.handles.get(value.index()) {
            counter.inc_by(more);
        }
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self, value: L) -> u64 {
        let counter = self.handles.get(value.index());
        counter.map_or(0, IntCounter::get)
    }
}

/// Histograms of seconds, one for each value of a label; clones count together.
#[derive(Debug, Clone)]
pub struct Histograms<L> {
    family: HistogramVec,
    handles: Box<[Histogram]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Histograms<L> {
    /// Makes them, in no registry so far.
    ///
    /// # Errors
    /// When the name is none, or the bounds do not rise.
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

    /// Enters them.
    ///
    /// # Errors
    /// When the registry has metrics of this name already.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.family.clone()))
    }

    /// Counts what took so long.
    pub fn observe(&self, value: L, took: Duration) {
        if let Some(histogram) = self.handles.get(value.index()) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self, value: L) -> u64 {
        let histogram = self.handles.get(value.index());
        histogram.map_or(0, Histogram::get_sample_count)
    }
}

/// Metrics whose names begin alike, in one registry.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    registry: &'a Registry,
    prefix: &'static str,
    service: Option<&'a str>,
}

impl<'a> Group<'a> {
    /// Those that begin like this, such as `switchboard_edge`.
    #[must_use]
    pub const fn new(registry: &'a Registry, prefix: &'static str) -> Self {
        Self {
            registry,
            prefix,
            service: None,
        }
    }

    /// The same, all of them with a label that names the process's service.
    #[must_use]
    pub const fn of_service(self, service: &'a str) -> Self {
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

    fn entered<C: Collector + Clone + 'static>(
        &self,
        metric: Result<C, prometheus::Error>,
    ) -> Result<C, prometheus::Error> {
        let metric = metric?;
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// A counter.
    ///
    /// # Errors
    /// As for all that follow: when the registry has a metric of this name already, or the name is none.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.entered(IntCounter::with_opts(self.opts(name, help)))
    }

    /// A gauge of whole numbers.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.entered(IntGauge::with_opts(self.opts(name, help)))
    }

    /// A gauge of any numbers.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.entered(Gauge::with_opts(self.opts(name, help)))
    }

    /// A gauge that is looked up when somebody asks.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn pulled(
        &self,
        name: &str,
        help: &str,
        look: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), prometheus::Error> {
        let name = format!("{}_{name}", self.prefix);
        let gauge = PullingGauge::new(name, help, Box::new(look))?;
        self.registry.register(Box::new(gauge))
    }

    /// A histogram with these bounds.
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
        self.entered(Histogram::with_opts(opts))
    }

    /// A histogram of seconds with exemplars and fine buckets.
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

    /// Counters by a label whose values are an enum's, all of them there from now on.
    ///
    /// # Errors
    /// As [`Self::counter`].
    pub fn counters<L: Label>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<Counters<L>, prometheus::Error> {
        let family = self.entered(IntCounterVec::new(self.opts(name, help), &[label]))?;
        Ok(Counters::of(&family))
    }

    /// Counters by names that errors have of themselves, all of them there from now on. For what happens seldom: their
    /// labels are looked up.
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
        let family = self.entered(IntCounterVec::new(self.opts(name, help), &[label]))?;
        for code in codes {
            // To look one up is to make it.
            let _ = family.with_label_values(&[code]);
        }
        Ok(family)
    }

    /// Histograms of seconds by a label whose values are an enum's.
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

/// Enters what the system knows of this process: memory, descriptors, time on the processor, when it began.
///
/// # Errors
/// When the registry has such metrics already.
pub fn of_process(registry: &Registry) -> Result<(), prometheus::Error> {
    #[cfg(target_os = "linux")]
    {
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process))?;
    }
    #[cfg(not(target_os = "linux"))]
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

    fn shown(registry: &Registry) -> String {
        let families = registry.gather();
        TextEncoder::new().encode_to_string(&families).unwrap()
    }

    #[test]
    fn every_value_is_there_before_its_first_event() {
        let registry = Registry::new();
        let group = Group::new(&registry, "test").of_service("here");
        let eaten: Counters<Fruit> = group.counters("eaten_total", "Eaten", "fruit").unwrap();
        let named = group.named_counters("bad_total", "Bad", "code", ["worm", "rot"]);
        assert!(named.is_ok());
        eaten.inc(Fruit::Pear);
        eaten.inc_by(Fruit::Pear, 2);
        assert_eq!((eaten.get(Fruit::Apple), eaten.get(Fruit::Pear)), (0, 3));
        let shown = shown(&registry);
        for line in [
            "test_eaten_total{fruit=\"apple\",service=\"here\"} 0",
            "test_eaten_total{fruit=\"pear\",service=\"here\"} 3",
            "test_bad_total{code=\"worm\",service=\"here\"} 0",
            "test_bad_total{code=\"rot\",service=\"here\"} 0",
        ] {
            assert!(shown.lines().any(|found| found == line), "{line}\n{shown}");
        }
        assert!(group.counter("eaten_total", "Eaten").is_err(), "taken");
    }

    #[test]
    fn histograms_are_there_at_once_too() {
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
        assert!(shown(&registry).contains("test_peel_seconds_count{fruit=\"pear\"} 0"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_seen() {
        let registry = Registry::new();
        of_process(&registry).unwrap();
        let shown = shown(&registry);
        for name in [
            "resident_memory_bytes",
            "open_fds",
            "max_fds",
            "start_time_seconds",
        ] {
            assert!(shown.contains(&format!("process_{name}")), "{shown}");
        }
    }
}
