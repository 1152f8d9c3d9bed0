//! The protobuf format of `io.prometheus.client` with native histograms.
//!
//! Invariant: the count of a native histogram equals the sum of its buckets; scrapers reject
//! others.

use prometheus::proto::{self, MetricType};
use prost::Message;

use crate::latency::{FINE, Gathered, INDEX, SCHEMA, ZERO, label_value};

pub(super) const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    /// 0 counter, 1 gauge, 2 summary, 3 untyped, 4 histogram.
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Value>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Value>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// Value of a gauge or a counter.
#[derive(Clone, Copy, PartialEq, Message)]
struct Value {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

/// Renders all families, each preceded by its length.
pub(super) fn write(gathered: &Gathered) -> Vec<u8> {
    let mut out = Vec::new();
    for family in &gathered.families {
        let kind = match family.get_field_type() {
            MetricType::COUNTER => 0,
            MetricType::GAUGE => 1,
            MetricType::HISTOGRAM => 4,
            // Not used by this project.
            MetricType::SUMMARY | MetricType::UNTYPED => continue,
        };
        let metrics = family.get_metric().iter();
        let family = MetricFamily {
            name: family.name().to_owned(),
            help: family.help().to_owned(),
            kind: Some(kind),
            metric: metrics.map(|one| metric(gathered, family, one)).collect(),
        };
        out.extend_from_slice(&family.encode_length_delimited_to_vec());
    }
    out
}

fn metric(gathered: &Gathered, family: &proto::MetricFamily, metric: &proto::Metric) -> Metric {
    let labels = metric.get_label().iter();
    let value = |value| {
        let value = Some(value);
        Some(Value { value })
    };
    let mut out = Metric {
        label: labels
            .map(|pair| label(pair.name(), pair.value()))
            .collect(),
        ..Metric::default()
    };
    match family.get_field_type() {
        MetricType::COUNTER => out.counter = value(metric.get_counter().get_value()),
        MetricType::GAUGE => out.gauge = value(metric.get_gauge().get_value()),
        _ => out.histogram = Some(histogram(gathered, family, metric.get_histogram())),
    }
    out
}

fn label(name: &str, value: &str) -> LabelPair {
    LabelPair {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

fn histogram(
    gathered: &Gathered,
    family: &proto::MetricFamily,
    classic: &proto::Histogram,
) -> Histogram {
    let bucket = |(bound, count): (f64, u64)| Bucket {
        cumulative_count: Some(count),
        upper_bound: Some(bound),
        exemplar: gathered.exemplar(family, bound).map(|rendered| Exemplar {
            label: rendered
                .labels
                .iter()
                .map(|(name, value)| label(name, value))
                .collect(),
            value: Some(rendered.value),
            timestamp: Some(Timestamp {
                seconds: rendered.at_ms / 1000,
                nanos: i32::try_from(rendered.at_ms % 1000 * 1_000_000).unwrap_or_default(),
            }),
        }),
    };
    let count = classic.get_sample_count();
    let buckets = classic.get_bucket().iter();
    let buckets = buckets
        .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()))
        .filter(|(bound, _)| bound.is_finite())
        // Scrapers infer the last bucket, but they need it for its exemplar.
        .chain([(f64::INFINITY, count)]);
    let mut out = Histogram {
        sample_count: Some(count),
        sample_sum: Some(classic.get_sample_sum()),
        bucket: buckets.map(bucket).collect(),
        ..Histogram::default()
    };
    add_native_buckets(&mut out, gathered.companions(family, FINE));
    out
}

/// Adds the native buckets: spans of consecutive indexes, and the difference of each count to the
/// previous one.
fn add_native_buckets(out: &mut Histogram, fine: &[proto::Metric]) {
    let counted = fine.iter().filter_map(|metric| {
        let index: i32 = label_value(metric, INDEX)?.parse().ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the gauge holds an integer count"
        )]
        let count = metric.get_gauge().get_value() as i64;
        Some((index, count))
    });
    // Gathered metrics are sorted by their labels as text.
    let mut counted: Vec<(i32, i64)> = counted.collect();
    counted.sort_unstable();
    let mut counted = counted.into_iter();
    // The zero bucket comes first.
    let Some((_, too_little)) = counted.next() else {
        return;
    };
    let (mut sum, mut next, mut before) = (too_little, 0, 0);
    for (index, count) in counted {
        match out.positive_span.last_mut() {
            Some(span) if index == next => span.length = span.length.map(|length| length + 1),
            _ => out.positive_span.push(BucketSpan {
                // The first offset is relative to 0, further ones to the end of the previous span.
                offset: Some(index - next),
                length: Some(1),
            }),
        }
        out.positive_delta.push(count - before);
        (sum, next, before) = (sum + count, index + 1, count);
    }
    // Native and classic buckets are not read atomically; the native total wins, and no classic
    // bucket exceeds it.
    let all = u64::try_from(sum).unwrap_or_default();
    for bucket in &mut out.bucket {
        bucket.cumulative_count = bucket.cumulative_count.map(|count| count.min(all));
    }
    if let Some(last) = out.bucket.last_mut() {
        last.cumulative_count = Some(all);
    }
    out.sample_count = Some(all);
    out.schema = Some(SCHEMA);
    out.zero_threshold = Some(ZERO);
    out.zero_count = u64::try_from(too_little).ok();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::Registry;

    use super::*;
    use crate::{latency::Latency, trace::Incoming};

    fn read(bytes: &[u8]) -> MetricFamily {
        let mut rest = bytes;
        let family = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert!(rest.is_empty());
        family
    }

    #[test]
    fn histogram_has_native_and_classic_buckets() {
        let registry = Registry::new();
        let latency = Latency::new(&registry, "test_seconds", "Time.", &[0.25]).unwrap();
        let rendered = || {
            let family = read(&write(&Gathered::from(&registry)));
            assert_eq!((family.kind, family.metric.len()), (Some(4), 1));
            family.metric[0].histogram.clone().unwrap()
        };
        let empty = rendered();
        assert_eq!((empty.sample_count, empty.schema), (Some(0), Some(3)));
        assert!(empty.positive_span.is_empty());

        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for ms in [0, 500, 500, 500, 520, 4000] {
            let trace = Incoming::parse(parent, None).sampled();
            latency.observe_in_trace(Duration::from_millis(ms), trace.filter(|_| ms == 4000));
        }
        let histogram = rendered();
        assert_eq!(histogram.sample_count, Some(6));
        assert_eq!(histogram.zero_count, Some(1));
        let spans = histogram.positive_span.iter();
        let spans: Vec<_> = spans.map(|span| (span.offset, span.length)).collect();
        // 500 ms is the upper bound of bucket -8, 520 ms is in bucket -7, 4 s is the upper bound of
        // bucket 16.
        assert_eq!(spans, [(Some(-8), Some(2)), (Some(22), Some(1))]);
        assert_eq!(histogram.positive_delta, [3, -2, 0]);
        let [quarter, rest] = &histogram.bucket[..] else {
            panic!("{:?}", histogram.bucket)
        };
        assert_eq!(
            (quarter.cumulative_count, rest.cumulative_count),
            (Some(1), Some(6))
        );
        assert_eq!(quarter.exemplar, None);
        let exemplar = rest.exemplar.as_ref().unwrap();
        assert_eq!((exemplar.value, exemplar.label.len()), (Some(4.0), 2));
    }

    #[test]
    fn native_and_classic_counts_agree() {
        fn check(counts: [u64; 2], fine: i64, expected: [u64; 2]) {
            let bucket = |(bound, count)| Bucket {
                cumulative_count: Some(count),
                upper_bound: Some(bound),
                exemplar: None,
            };
            let mut out = Histogram {
                sample_count: Some(counts[1]),
                bucket: [0.25, f64::INFINITY]
                    .into_iter()
                    .zip(counts)
                    .map(bucket)
                    .collect(),
                ..Histogram::default()
            };
            let mut pair = proto::LabelPair::default();
            pair.set_name(INDEX.to_owned());
            pair.set_value("-113".to_owned());
            let mut metric = proto::Metric::from_label(vec![pair]);
            let mut gauge = proto::Gauge::default();
            gauge.set_value(fine as f64);
            metric.set_gauge(gauge);
            add_native_buckets(&mut out, &[metric]);
            let rendered: Vec<_> = out
                .bucket
                .iter()
                .map(|one| one.cumulative_count.unwrap())
                .collect();
            assert_eq!(
                (&rendered[..], out.sample_count),
                (&expected[..], Some(expected[1]))
            );
        }
        check([2, 5], 5, [2, 5]);
        check([2, 5], 6, [2, 6]);
        check([5, 5], 4, [4, 4]);
    }
}
