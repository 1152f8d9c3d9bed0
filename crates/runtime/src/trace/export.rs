//! Spans that have ended, on their way to a collector over OTLP.
//! Never: a wait where a span ends, or a queue without a bound; a span that finds no room is dropped and counted.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, Uri};
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
    },
};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tokio::sync::mpsc;

use crate::{
    outbound::{self, Client},
    shutdown::Shutdown,
};

/// Spans that wait. Protects memory while the collector is slow or away; one takes about a kilobyte.
const QUEUE: usize = 8192;
/// Spans in one request.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a request may take, with those after it.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a collector answers is not longer.
const LONGEST_ANSWER: usize = 64 * 1024;
/// Where collectors take traces, below their address.
const PATH: &str = "/v1/traces";

/// The receiving end of what this process traces: nothing goes anywhere before [`Traces::export`] runs.
pub struct Traces {
    spans: mpsc::Receiver<SpanData>,
    dropped: IntCounter,
    sent: IntCounter,
    failed: IntCounter,
    counters: IntCounterVec,
    endpoint: String,
    node: String,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").finish_non_exhaustive()
    }
}

/// Why traces cannot go where they were meant to go.
#[derive(Debug, thiserror::Error)]
pub enum Unstarted {
    /// TLS cannot be spoken, or the collector's address is none.
    #[error("traces cannot be exported: {0}")]
    Exporter(String),
    /// The registry has such metrics already.
    #[error("the metrics of traces cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Makes what spans are written with, and what takes them from there.
pub(crate) fn tracer(endpoint: &str, node: &str) -> Result<(SdkTracer, Traces), prometheus::Error> {
    let (sender, spans) = mpsc::channel(QUEUE);
    let counters = IntCounterVec::new(
        Opts::new(
            "switchboard_trace_spans_total",
            "Spans that ended in a sampled trace, by what became of them",
        ),
        &["outcome"],
    )?;
    let counter = |outcome| counters.with_label_values(&[outcome]);
    let queue = Queue {
        spans: sender,
        dropped: counter("dropped"),
    };
    let provider = SdkTracerProvider::builder()
        // Spans are made in sampled traces only; see `begin`.
        .with_sampler(Sampler::AlwaysOn)
        .with_span_processor(queue)
        .build();
    let traces = Traces {
        spans,
        dropped: counter("dropped"),
        sent: counter("sent"),
        failed: counter("failed"),
        counters,
        endpoint: endpoint.to_owned(),
        node: node.to_owned(),
    };
    Ok((provider.tracer("switchboard"), traces))
}

/// The base address of a collector, as the setting has it.
pub(crate) fn endpoint(text: &str) -> Result<String, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_http || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err("an address such as http://collector:4318 is wanted".to_owned());
    }
    let text = text.trim_end_matches('/');
    let base = text.strip_suffix(PATH).unwrap_or(text);
    Ok(base.to_owned())
}

impl Traces {
    /// Sends what is traced to the collector until the process drains, and then what is left.
    ///
    /// # Errors
    /// When it cannot begin; a collector that is away is logged and survived.
    pub async fn export(
        mut self,
        service: &'static str,
        registry: Registry,
        shutdown: Shutdown,
    ) -> Result<(), Unstarted> {
        registry.register(Box::new(self.counters.clone()))?;
        let exporter = self.exporter(service)?;
        let mut was_well = true;
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            tokio::select! {
                biased;
                count = self.spans.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        // Nobody is left who could write one.
                        return Ok(());
                    }
                }
                () = shutdown.draining() => {}
            }
            let is_last = shutdown.is_draining();
            if !is_last && batch.len() < BATCH {
                self.gather(&mut batch, &shutdown).await;
            }
            if batch.is_empty() && is_last {
                return Ok(());
            }
            let count = batch.len() as u64;
            let sent = tokio::select! {
                sent = tokio::time::timeout(PATIENCE, exporter.export(batch)) => sent,
                () = shutdown.stopping() => return Ok(()),
            };
            let trouble = match sent {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {PATIENCE:?}")),
            };
            let counter = if trouble.is_none() {
                &self.sent
            } else {
                &self.failed
            };
            counter.inc_by(count);
            log(&mut was_well, trouble.as_deref(), self.dropped.get());
        }
    }

    /// Waits a moment for spans that could go along.
    async fn gather(&mut self, batch: &mut Vec<SpanData>, shutdown: &Shutdown) {
        let gathering = async {
            while batch.len() < BATCH {
                let room = BATCH - batch.len();
                if self.spans.recv_many(batch, room).await == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(GATHER, gathering) => {}
            () = shutdown.draining() => {}
        }
    }

    fn exporter(&self, service: &'static str) -> Result<SpanExporter, Unstarted> {
        let no_tls = |error: rustls::Error| Unstarted::Exporter(error.to_string());
        let client = Outbound(outbound::client(true).map_err(no_tls)?);
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(format!("{}{PATH}", self.endpoint))
            .with_timeout(PATIENCE)
            .build()
            .map_err(|error| Unstarted::Exporter(error.to_string()))?;
        let resource = Resource::builder()
            .with_service_name(format!("switchboard-{service}"))
            .with_attributes([
                KeyValue::new("service.namespace", "switchboard"),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", self.node.clone()),
            ])
            .build();
        exporter.set_resource(&resource);
        Ok(exporter)
    }
}

/// Says it once when the collector goes away, and once when it is back.
fn log(was_well: &mut bool, trouble: Option<&str>, dropped: u64) {
    let is_well = trouble.is_none();
    match (*was_well, trouble) {
        (true, Some(error)) => tracing::warn!(error, "traces cannot be sent to the collector"),
        (false, None) => tracing::info!(spans.dropped = dropped, "traces are sent again"),
        _ => {}
    }
    *was_well = is_well;
}

/// Takes spans where they end.
struct Queue {
    spans: mpsc::Sender<SpanData>,
    dropped: IntCounter,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The exporter's way out is everybody's: one TLS, one trust.
#[derive(Debug)]
struct Outbound(Client<Full<Bytes>>);

impl HttpClient for Outbound {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = outbound::ask(&self.0, request.map(Full::new), LONGEST_ANSWER).await;
            answer.map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Span as _, Tracer as _};

    use super::*;

    #[test]
    fn an_address_is_http_or_refused() {
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(endpoint(text).ok().as_deref(), expected, "{text}");
        }
        check("http://collector:4318", Some("http://collector:4318"));
        check("https://x/otlp/", Some("https://x/otlp"));
        check("http://x:1/v1/traces", Some("http://x:1"));
        check("collector:4318", None);
        check("grpc://collector:4317", None);
        check("http://x/?a=b", None);
        check("", None);
    }

    const SPANS: usize = 2 * BATCH + 7;

    async fn exported(traces: Traces, shutdown: &Shutdown) {
        let (exporting, registry) = (shutdown.clone(), Registry::new());
        let export = traces.export("test", registry, exporting);
        let ended = tokio::time::timeout(Duration::from_secs(30), shutdown.spawn(export)).await;
        ended.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_a_collector_that_is_away_does_not_take_is_counted_batch_by_batch() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", nobody.local_addr().unwrap());
        drop(nobody);
        let (tracer, traces) = tracer(&endpoint, "node").unwrap();
        for _ in 0..SPANS {
            tracer.start("span").end();
        }
        let (failed, sent) = (traces.failed.clone(), traces.sent.clone());
        let shutdown = Shutdown::new();
        shutdown.drain();
        exported(traces, &shutdown).await;
        assert_eq!((failed.get(), sent.get()), (SPANS as u64, 0));
    }

    #[tokio::test]
    async fn the_export_ends_when_nobody_can_write_spans_any_more() {
        let (tracer, mut traces) = tracer("http://127.0.0.1:9", "node").unwrap();
        traces.spans.close();
        drop(tracer);
        exported(traces, &Shutdown::new()).await;
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let (tracer, mut traces) = tracer("http://127.0.0.1:9", "node").unwrap();
        for _ in 0..QUEUE + 3 {
            tracer.start("span").end();
        }
        assert_eq!(traces.dropped.get(), 3);
        assert_eq!(traces.spans.try_recv().unwrap().name, "span");
    }
}
