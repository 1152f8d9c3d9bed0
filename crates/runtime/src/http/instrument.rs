//! Metrics and spans of HTTP requests.
//!
//! Invariant: no label value is chosen by a client; a path without a route is labelled `unmatched`.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode},
    middleware::{self, Next},
    response::Response,
};
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use tracing::{Instrument as _, Span, field::Empty};

use super::caller;
use crate::{
    metrics::{Group, SECONDS},
    span_from,
    trace::{self, Incoming, TraceContext},
};

/// Label of requests that match no route.
const UNMATCHED: &str = "unmatched";
/// Status label of requests whose client disconnected before a response.
const CLIENT_CLOSED: &str = "499";

/// The trace of a request, stored in its extensions for handlers that continue in another task.
#[derive(Debug, Clone)]
pub struct RequestTrace(pub TraceContext);

/// Metrics of the HTTP requests of one service.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    in_flight: IntGauge,
    pub(super) refused: IntCounter,
}

impl HttpMetrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub fn new(service: &str, registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("switchboard_http_requests_total", "HTTP requests");
        let opts = opts.const_label("service", service);
        let requests = IntCounterVec::new(opts, &["route", "method", "status"])?;
        let help = "Time from the head of a request to the head of its response";
        let opts = HistogramOpts::new("switchboard_http_request_seconds", help);
        let opts = opts.const_label("service", service);
        let seconds = HistogramVec::new(opts.buckets(SECONDS.to_vec()), &["route"])?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        let group = Group::new(registry, "switchboard_http").with_service(service);
        let help = "HTTP connections refused because of the connection limit";
        let refused = group.counter("connections_refused_total", help)?;
        let help = "Requests whose response has not begun";
        let in_flight = group.gauge("requests_in_flight", help)?;
        Ok(Self {
            requests,
            seconds,
            in_flight,
            refused,
        })
    }
}

/// Adds metrics and spans to all routes of `router`. Routes added later are not covered.
pub fn instrument(router: Router, metrics: &HttpMetrics) -> Router {
    let metrics = Arc::new(metrics.clone());
    router.layer(middleware::from_fn_with_state(metrics, observe))
}

async fn observe(
    State(metrics): State<Arc<HttpMetrics>>,
    matched: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    metrics.in_flight.inc();
    let mut observation = Observation {
        metrics: &metrics,
        method: method(request.method()),
        route: matched.as_ref().map_or(UNMATCHED, MatchedPath::as_str),
        started: Instant::now(),
        status: None,
    };
    if !trace::is_on() {
        let response = next.run(request).await;
        observation.status = Some(response.status());
        return response;
    }
    let span = observation.span(&request);
    if let Some(context) = TraceContext::from_span(&span) {
        request.extensions_mut().insert(RequestTrace(context));
    }
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    observation.status = Some(status);
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

/// A request in progress; counted on drop, with or without a response.
struct Observation<'a> {
    metrics: &'a HttpMetrics,
    method: &'static str,
    route: &'a str,
    started: Instant,
    status: Option<StatusCode>,
}

impl Observation<'_> {
    fn span(&self, request: &Request) -> Span {
        let incoming = Incoming::from_headers(request.headers());
        let caller = || caller(request.extensions());
        let Some(start) = trace::start_for_caller(incoming, caller) else {
            return Span::none();
        };
        let (method, route) = (self.method, self.route);
        span_from!(
            Some(start),
            "http_request",
            otel.kind = "server",
            otel.name = format_args!("{method} {route}").to_string(),
            otel.status_code = Empty,
            http.request.method = method,
            http.route = route,
            http.response.status_code = Empty,
        )
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        let status = match &self.status {
            Some(status) => status.as_str(),
            None if std::thread::panicking() => "500",
            None => CLIENT_CLOSED,
        };
        let labels = [self.route, self.method, status];
        self.metrics.requests.with_label_values(&labels).inc();
        let seconds = self.metrics.seconds.with_label_values(&[self.route]);
        seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

/// Clients can send arbitrary methods: unknown ones share one label.
fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    let known = KNOWN.iter().find(|known| **known == method.as_str());
    known.copied().unwrap_or("_OTHER")
}
