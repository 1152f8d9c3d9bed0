//! The `OpenMetrics` 1.0 text format with exemplars.

use std::fmt::{self, Write as _};

use prometheus::proto::{Metric, MetricFamily, MetricType};

use crate::latency::Gathered;

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Renders all families.
pub(super) fn write(gathered: &Gathered) -> String {
    let mut out = String::new();
    for family in &gathered.families {
        // Writing to a `String` cannot fail.
        let _ = write_family(&mut out, gathered, family);
    }
    out.push_str("# EOF\n");
    out
}

fn write_family(out: &mut String, gathered: &Gathered, family: &MetricFamily) -> fmt::Result {
    let name = family.name();
    let (name, kind) = match family.get_field_type() {
        MetricType::COUNTER => (name.strip_suffix("_total").unwrap_or(name), "counter"),
        MetricType::GAUGE => (name, "gauge"),
        MetricType::HISTOGRAM => (name, "histogram"),
        MetricType::SUMMARY => (name, "summary"),
        MetricType::UNTYPED => (name, "unknown"),
    };
    writeln!(out, "# HELP {name} {}", Escaped(family.help()))?;
    writeln!(out, "# TYPE {name} {kind}")?;
    for metric in family.get_metric() {
        match family.get_field_type() {
            MetricType::COUNTER => {
                write_name(out, name, "_total", metric, None)?;
                writeln!(out, " {}", Number(metric.get_counter().get_value()))?;
            }
            MetricType::GAUGE => {
                write_name(out, name, "", metric, None)?;
                writeln!(out, " {}", Number(metric.get_gauge().get_value()))?;
            }
            MetricType::HISTOGRAM => write_histogram(out, gathered, family, metric)?,
            // Not used by this project.
            MetricType::SUMMARY | MetricType::UNTYPED => {}
        }
    }
    Ok(())
}

fn write_histogram(
    out: &mut String,
    gathered: &Gathered,
    family: &MetricFamily,
    metric: &Metric,
) -> fmt::Result {
    let name = family.name();
    let histogram = metric.get_histogram();
    let count = histogram.get_sample_count();
    let buckets = histogram.get_bucket().iter();
    let mut buckets: Vec<_> = buckets
        .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()))
        .collect();
    if buckets.last().is_none_or(|(bound, _)| bound.is_finite()) {
        buckets.push((f64::INFINITY, count));
    }
    for (bound, count) in buckets {
        write_name(out, name, "_bucket", metric, Some(bound))?;
        write!(out, " {count}")?;
        if let Some(exemplar) = gathered.exemplar(family, bound) {
            out.push_str(" # {");
            for (number, (name, value)) in exemplar.labels.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                write!(out, "{comma}{name}=\"{}\"", Escaped(value))?;
            }
            let (seconds, rest) = (exemplar.at_ms / 1000, exemplar.at_ms % 1000);
            write!(out, "}} {} {seconds}.{rest:03}", Number(exemplar.value))?;
        }
        out.push('\n');
    }
    write_name(out, name, "_count", metric, None)?;
    writeln!(out, " {count}")?;
    write_name(out, name, "_sum", metric, None)?;
    writeln!(out, " {}", Number(histogram.get_sample_sum()))
}

fn write_name(
    out: &mut String,
    name: &str,
    suffix: &str,
    metric: &Metric,
    bound: Option<f64>,
) -> fmt::Result {
    write!(out, "{name}{suffix}")?;
    let mut before = '{';
    for pair in metric.get_label() {
        write!(out, "{before}{}=\"{}\"", pair.name(), Escaped(pair.value()))?;
        before = ',';
    }
    if let Some(bound) = bound {
        write!(out, "{before}le=\"{}\"", Number(bound))?;
        before = ',';
    }
    if before == ',' {
        out.push('}');
    }
    Ok(())
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

/// Formats a number as the standard requires, also in labels: `1.0`, `+Inf`.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == f64::INFINITY {
            f.write_str("+Inf")
        } else if self.0 == f64::NEG_INFINITY {
            f.write_str("-Inf")
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

    use super::*;
    use crate::{latency::Latency, trace::Incoming};

    #[test]
    fn families_are_written_as_open_metrics() {
        let registry = Registry::new();
        let opts = Opts::new("test_calls_total", "Calls, \"all\"\nof them.");
        let calls = IntCounterVec::new(opts, &["outcome"]).unwrap();
        let up = IntGauge::new("test_up", "Up.").unwrap();
        registry.register(Box::new(calls.clone())).unwrap();
        registry.register(Box::new(up.clone())).unwrap();
        let latency = Latency::new(&registry, "test_seconds", "Time.", &[0.25, 1.0]).unwrap();
        calls.with_label_values(&["a\\b"]).inc();
        up.set(1);
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = || Incoming::parse(parent, None).sampled();
        latency.observe_in_trace(Duration::from_millis(125), None);
        latency.observe_in_trace(Duration::from_millis(500), trace());
        latency.observe_in_trace(Duration::from_secs(2), trace());
        let text = write(&Gathered::from(&registry));
        let mut lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
        for line in &mut lines {
            // The exemplar's timestamp is the current time.
            if line.contains(" # {") {
                *line = line.rsplit_once(' ').unwrap().0.to_owned();
            }
        }
        let ids = "trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\",span_id=\"00f067aa0ba902b7\"";
        let expected = [
            "# HELP test_calls Calls, \\\"all\\\"\\nof them.",
            "# TYPE test_calls counter",
            "test_calls_total{outcome=\"a\\\\b\"} 1.0",
            "# HELP test_seconds Time.",
            "# TYPE test_seconds histogram",
            "test_seconds_bucket{le=\"0.25\"} 1",
            &format!("test_seconds_bucket{{le=\"1.0\"}} 2 # {{{ids}}} 0.5"),
            &format!("test_seconds_bucket{{le=\"+Inf\"}} 3 # {{{ids}}} 2.0"),
            "test_seconds_count 3",
            "test_seconds_sum 2.625",
            "# HELP test_up Up.",
            "# TYPE test_up gauge",
            "test_up 1.0",
            "# EOF",
        ];
        assert_eq!(lines, expected);
    }
}
