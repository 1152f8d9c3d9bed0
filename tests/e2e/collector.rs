//! A trace collector: receives spans over OTLP/HTTP and stores every span, duplicates too, for the
//! test.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{KeyValue, any_value},
    trace::v1::Span,
};
use prost::Message as _;
use switchboard_test_support::eventually::eventually;
use tokio::{net::TcpListener, task::JoinSet};

/// Longer than the export interval of the processes.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(20);

/// A status code as OTLP numbers it.
const ERROR: i32 = 2;

pub struct Collector {
    pub url: String,
    spans: Spans,
    exports: Exports,
    _serving: JoinSet<()>,
}

type Spans = Arc<Mutex<Vec<Seen>>>;
type Exports = Arc<Mutex<Vec<Bytes>>>;

/// The fields of a span that tests check. Ids are hexadecimal.
#[derive(Debug, Clone)]
pub struct Seen {
    pub service: String,
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub attributes: BTreeMap<String, String>,
    pub events: Vec<String>,
    pub links: Vec<String>,
    /// Whether its status is an error.
    pub failed: bool,
}

impl Collector {
    pub async fn start() -> Self {
        let (spans, exports) = (Spans::default(), Exports::default());
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state((Arc::clone(&spans), Arc::clone(&exports)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            spans,
            exports,
            _serving: serving,
        }
    }

    /// All spans received so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.spans.lock().unwrap().clone()
    }

    /// The bodies of all requests received so far.
    pub fn exports(&self) -> Vec<Bytes> {
        self.exports.lock().unwrap().clone()
    }

    /// The spans of a trace, as soon as it contains all of these names.
    pub async fn trace(&self, trace: &str, names: &[&str]) -> Vec<Seen> {
        let there = async || {
            let mut seen = self.seen();
            seen.retain(|span| span.trace == trace);
            seen
        };
        eventually(EXPORT_TIMEOUT, there, |seen: &Vec<Seen>| {
            let has = |name: &&str| seen.iter().any(|span| span.name == **name);
            names.iter().all(has)
        })
        .await
    }

    /// The trace of the first span with this name.
    pub async fn trace_of(&self, name: &str) -> String {
        let there = async || {
            let seen = self.seen();
            let found = seen.into_iter().find(|span| span.name == name);
            found.map(|span| span.trace)
        };
        eventually(EXPORT_TIMEOUT, there, Option::is_some)
            .await
            .unwrap()
    }
}

/// The only span with this name.
#[track_caller]
pub fn one<'a>(spans: &'a [Seen], name: &str) -> &'a Seen {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        other => panic!("{name}: {other:?} of {spans:#?}"),
    }
}

async fn take(
    State((spans, exports)): State<(Spans, Exports)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Vec<u8>, StatusCode> {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    exports.lock().unwrap().push(body.clone());
    let request = ExportTraceServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    for of_resource in request.resource_spans {
        let resource = of_resource.resource.unwrap_or_default();
        let resource = texts(&resource.attributes);
        assert!(
            !resource["service.version"].is_empty()
                && resource["service.instance.id"].contains(':')
        );
        let of_scopes = of_resource.scope_spans.into_iter();
        for span in of_scopes.flat_map(|scope| scope.spans) {
            let span = seen(&resource["service.name"], span);
            spans.lock().unwrap().push(span);
        }
    }
    Ok(ExportTraceServiceResponse::default().encode_to_vec())
}

fn seen(service: &str, span: Span) -> Seen {
    assert!(span.start_time_unix_nano > 0 && span.end_time_unix_nano >= span.start_time_unix_nano);
    Seen {
        service: service.to_owned(),
        attributes: texts(&span.attributes),
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        events: span.events.into_iter().map(|event| event.name).collect(),
        failed: span.status.is_some_and(|status| status.code == ERROR),
        links: span.links.iter().map(|link| hex(&link.trace_id)).collect(),
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref());
        match value {
            Some(any_value::Value::StringValue(text)) => text.clone(),
            Some(any_value::Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        }
    };
    let pairs = attributes.iter();
    pairs.map(|pair| (pair.key.clone(), text(pair))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
