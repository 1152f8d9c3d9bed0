//! Metrics as plain text, as `OpenMetrics` with exemplars, or as protobuf with native histograms.

mod open_metrics;
mod protobuf;

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};

use crate::{latency::Gathered, problem};

/// Exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    OpenMetrics,
    Protobuf,
}

/// Renders the metrics in the format that the headers request.
pub(super) fn expose(registry: &Registry, headers: &HeaderMap) -> Response {
    let gathered = Gathered::from(registry);
    let accept = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok());
    let (kind, body) = match negotiate(accept) {
        Format::OpenMetrics => (
            open_metrics::CONTENT_TYPE,
            open_metrics::write(&gathered).into_bytes(),
        ),
        Format::Protobuf => (protobuf::CONTENT_TYPE, protobuf::write(&gathered)),
        Format::Text => match TextEncoder::new().encode_to_string(&gathered.families) {
            Ok(text) => (TEXT_FORMAT, text.into_bytes()),
            Err(error) => {
                tracing::error!(%error, "cannot render the metrics");
                return problem::internal().into_response();
            }
        },
    };
    (StatusCode::OK, [(header::CONTENT_TYPE, kind)], body).into_response()
}

/// Returns the format with the greatest weight, the first one on a tie, and text by default.
fn negotiate<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
    let mut best = (0.0, Format::Text);
    for range in accept.flat_map(|accept| accept.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<_> = parts.collect();
        let weight = parameters
            .iter()
            .find_map(|parameter| parameter.strip_prefix("q=")?.parse::<f32>().ok())
            .unwrap_or(1.0);
        let form = match kind.as_str() {
            "application/openmetrics-text" => Format::OpenMetrics,
            "application/vnd.google.protobuf"
                if parameters.contains(&"proto=io.prometheus.client.MetricFamily")
                    && parameters.contains(&"encoding=delimited") =>
            {
                Format::Protobuf
            }
            "text/plain" | "text/*" | "*/*" => Format::Text,
            _ => continue,
        };
        if weight > best.0 {
            best = (weight, form);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_accept_weights() {
        fn check(accept: &[&str], expected: Format) {
            assert_eq!(negotiate(accept.iter().copied()), expected, "{accept:?}");
        }
        check(&[], Format::Text);
        check(&["*/*"], Format::Text);
        check(&["application/openmetrics-text"], Format::OpenMetrics);
        check(&["application/openmetrics-text;q=0"], Format::Text);
        check(
            &["text/plain", "application/openmetrics-text"],
            Format::Text,
        );
        check(
            &[
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            ],
            Format::OpenMetrics,
        );
        check(
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5",
            ],
            Format::Protobuf,
        );
        check(
            &["application/vnd.google.protobuf;proto=another;q=0.6,text/plain;q=0.1"],
            Format::Text,
        );
    }
}
