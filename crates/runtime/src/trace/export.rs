//! Export of finished spans to a collector over OTLP. Ending a span never blocks: when the queue is
//! full, the span is dropped and counted.

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

/// Capacity of the span queue. Bounds memory while the collector is slow or unreachable; a span
/// takes about 1 KiB.
const QUEUE_CAPACITY: usize = 8192;
/// Maximum number of spans per request.
const BATCH_SIZE: usize = 512;
/// Time that a span waits for a batch to fill.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Timeout of one export request.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a collector's response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// Path of the OTLP trace endpoint below the collector's address.
const PATH: &str = "/v1/traces";

/// The queue of finished spans and its exporter. Spans are queued until [`Traces::export`] runs.
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

/// The export cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// TLS is not usable, or the collector's address is invalid.
    #[error("traces cannot be exported: {0}")]
    Exporter(String),
    /// The registry already has metrics of these names.
    #[error("the metrics of traces cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Creates a tracer and the exporter of its spans.
pub(crate) fn tracer(endpoint: &str, node: &str) -> Result<(SdkTracer, Traces), prometheus::Error> {
    let (sender, spans) = mpsc::channel(QUEUE_CAPACITY);
    let counters = IntCounterVec::new(
        Opts::new(
            "switchboard_trace_spans_total",
            "Finished spans of sampled traces, by result of their export",
        ),
        &["outcome"],
    )?;
    let counter = |outcome| counters.with_label_values(&[outcome]);
    let queue = Queue {
        spans: sender,
        dropped: counter("dropped"),
    };
    let provider = SdkTracerProvider::builder()
        // Spans are created only in sampled traces; see `start`.
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

/// Parses the base address of a collector.
pub(crate) fn endpoint(text: &str) -> Result<String, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_http || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err("expected an address such as http://collector:4318".to_owned());
    }
    let text = text.trim_end_matches('/');
    let base = text.strip_suffix(PATH).unwrap_or(text);
    Ok(base.to_owned())
}

impl Traces {
    /// Exports spans until draining begins, then exports the remaining ones.
    ///
    /// # Errors
    /// When the export cannot start. An unreachable collector is logged, and its batches are
    /// counted as failed.
    pub async fn export(
        mut self,
        service: &'static str,
        registry: Registry,
        shutdown: Shutdown,
    ) -> Result<(), ExportError> {
        registry.register(Box::new(self.counters.clone()))?;
        let exporter = self.exporter(service)?;
        let mut was_healthy = true;
        loop {
            let mut batch = Vec::with_capacity(BATCH_SIZE);
            tokio::select! {
                biased;
                count = self.spans.recv_many(&mut batch, BATCH_SIZE) => {
                    if count == 0 {
                        // All senders are gone.
                        return Ok(());
                    }
                }
                () = shutdown.draining() => {}
            }
            let is_last = shutdown.is_draining();
            if !is_last && batch.len() < BATCH_SIZE {
                self.fill_batch(&mut batch, &shutdown).await;
            }
            if batch.is_empty() && is_last {
                return Ok(());
            }
            let count = batch.len() as u64;
            let sent = tokio::select! {
                sent = tokio::time::timeout(EXPORT_TIMEOUT, exporter.export(batch)) => sent,
                () = shutdown.stopping() => return Ok(()),
            };
            let error_text = match sent {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no response within {EXPORT_TIMEOUT:?}")),
            };
            let counter = if error_text.is_none() {
                &self.sent
            } else {
                &self.failed
            };
            counter.inc_by(count);
            log_transition(&mut was_healthy, error_text.as_deref(), self.dropped.get());
        }
    }

    /// Waits briefly for more spans to fill the batch.
    async fn fill_batch(&mut self, batch: &mut Vec<SpanData>, shutdown: &Shutdown) {
        let fill = async {
            while batch.len() < BATCH_SIZE {
                let room = BATCH_SIZE - batch.len();
                if self.spans.recv_many(batch, room).await == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(BATCH_DELAY, fill) => {}
            () = shutdown.draining() => {}
        }
    }

    fn exporter(&self, service: &'static str) -> Result<SpanExporter, ExportError> {
        let no_tls = |error: rustls::Error| ExportError::Exporter(error.to_string());
        let client = Outbound(outbound::client(true).map_err(no_tls)?);
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(format!("{}{PATH}", self.endpoint))
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| ExportError::Exporter(error.to_string()))?;
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

/// Logs when the collector becomes unreachable and when it recovers.
fn log_transition(was_healthy: &mut bool, error_text: Option<&str>, dropped: u64) {
    let is_healthy = error_text.is_none();
    match (*was_healthy, error_text) {
        (true, Some(error)) => tracing::warn!(
            error,
            "cannot export traces to the collector; retrying with new spans"
        ),
        (false, None) => tracing::info!(spans.dropped = dropped, "exporting traces again"),
        _ => {}
    }
    *was_healthy = is_healthy;
}

/// A span processor that queues finished spans.
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

/// Sends export requests with the process's HTTP client and its TLS configuration.
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
            let answer = outbound::fetch(&self.0, request.map(Full::new), MAX_RESPONSE_BYTES).await;
            answer.map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Span as _, Tracer as _};

    use super::*;

    #[test]
    fn endpoint_must_be_http() {
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

    const SPANS: usize = 2 * BATCH_SIZE + 7;

    async fn exported(traces: Traces, shutdown: &Shutdown) {
        let (exporting, registry) = (shutdown.clone(), Registry::new());
        let export = traces.export("test", registry, exporting);
        let ended = tokio::time::timeout(Duration::from_secs(30), shutdown.spawn(export)).await;
        ended.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn unreachable_collector_counts_failed_spans() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", closed.local_addr().unwrap());
        drop(closed);
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
    async fn export_ends_when_the_queue_closes() {
        let (tracer, mut traces) = tracer("http://127.0.0.1:9", "node").unwrap();
        traces.spans.close();
        drop(tracer);
        exported(traces, &Shutdown::new()).await;
    }

    #[test]
    fn spans_over_capacity_are_dropped_and_counted() {
        let (tracer, mut traces) = tracer("http://127.0.0.1:9", "node").unwrap();
        for _ in 0..QUEUE_CAPACITY + 3 {
            tracer.start("span").end();
        }
        assert_eq!(traces.dropped.get(), 3);
        assert_eq!(traces.spans.try_recv().unwrap().name, "span");
    }
}
