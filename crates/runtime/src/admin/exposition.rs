//! The metrics as a scraper wants them: as plain text, as `OpenMetrics` with exemplars, or as protobuf with native histograms.
//! Never: what stands beside a family shown as one.

mod open_metrics;
mod protobuf;

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};

use crate::{latency::Gathered, problem};

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    OpenMetrics,
    Protobuf,
}

/// The metrics in the form that these headers ask for.
pub(super) fn expose(registry: &Registry, headers: &HeaderMap) -> Response {
    let gathered = Gathered::from(registry);
    let accept = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok());
    let (kind, body) = match wanted(accept) {
        Form::OpenMetrics => (
            open_metrics::CONTENT_TYPE,
            open_metrics::write(&gathered).into_bytes(),
        ),
        Form::Protobuf => (protobuf::CONTENT_TYPE, protobuf::write(&gathered)),
        Form::Text => match TextEncoder::new().encode_to_string(&gathered.families) {
            Ok(text) => (TEXT_FORMAT, text.into_bytes()),
            Err(error) => {
                tracing::error!(%error, "the metrics could not be written");
                return problem::internal().into_response();
            }
        },
    };
    (StatusCode::OK, [(header::CONTENT_TYPE, kind)], body).into_response()
}

/// The form with the greatest weight, of several the first; plain text for everybody else.
fn wanted<'a>(accept: impl Iterator<Item = &'a str>) -> Form {
    let mut best = (0.0, Form::Text);
    for range in accept.flat_map(|accept| accept.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<_> = parts.collect();
        let weight = parameters
            .iter()
            .find_map(|parameter| parameter.strip_prefix("q=")?.parse::<f32>().ok())
            .unwrap_or(1.0);
        let form = match kind.as_str() {
            "application/openmetrics-text" => Form::OpenMetrics,
            "application/vnd.google.protobuf"
                if parameters.contains(&"proto=io.prometheus.client.MetricFamily")
                    && parameters.contains(&"encoding=delimited") =>
            {
                Form::Protobuf
            }
            "text/plain" | "text/*" | "*/*" => Form::Text,
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
    fn a_scraper_gets_what_it_likes_best() {
        fn check(accept: &[&str], expected: Form) {
            assert_eq!(wanted(accept.iter().copied()), expected, "{accept:?}");
        }
        check(&[], Form::Text);
        check(&["*/*"], Form::Text);
        check(&["application/openmetrics-text"], Form::OpenMetrics);
        check(&["application/openmetrics-text;q=0"], Form::Text);
        check(&["text/plain", "application/openmetrics-text"], Form::Text);
        check(
            &[
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            ],
            Form::OpenMetrics,
        );
        check(
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5",
            ],
            Form::Protobuf,
        );
        check(
            &["application/vnd.google.protobuf;proto=another;q=0.6,text/plain;q=0.1"],
            Form::Text,
        );
    }
}
