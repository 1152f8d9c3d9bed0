//! What a port's requests come to: how many, how long, and as spans of whatever trace they are part of.
//! Never: a label that a client can make up; a path that matches no route is `unmatched`.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode},
    middleware::{self, Next},
    response::Response,
};
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    metrics::{Group, SECONDS},
    span_from,
    trace::{self, Incoming, TraceContext},
};

/// The route of what matches none.
const UNMATCHED: &str = "unmatched";
/// The status of a request whose client left before there was one.
const LEFT: &str = "499";

/// The trace that a request is part of, among its extensions: for handlers that another task runs.
#[derive(Debug, Clone)]
pub struct RequestTrace(pub TraceContext);

/// What the requests of one service are counted by.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    pub(super) refused: IntCounter,
}

impl HttpMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn new(service: &str, registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("switchboard_http_requests_total", "Requests over HTTP");
        let opts = opts.const_label("service", service);
        let requests = IntCounterVec::new(opts, &["route", "method", "status"])?;
        let help = "Time from a request's head to the head of its answer";
        let opts = HistogramOpts::new("switchboard_http_request_seconds", help);
        let opts = opts.const_label("service", service);
        let seconds = HistogramVec::new(opts.buckets(SECONDS.to_vec()), &["route"])?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        let group = Group::new(registry, "switchboard_http").of_service(service);
        let help = "Connections over HTTP beyond the limit, told so or just closed";
        let refused = group.counter("connections_refused_total", help)?;
        Ok(Self {
            requests,
            seconds,
            refused,
        })
    }
}

/// The same routes, counted and traced. For a router that is complete: routes added later are not seen.
pub fn observed(router: Router, metrics: &HttpMetrics) -> Router {
    let metrics = Arc::new(metrics.clone());
    router.layer(middleware::from_fn_with_state(metrics, observe))
}

async fn observe(
    State(metrics): State<Arc<HttpMetrics>>,
    matched: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
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
    if let Some(context) = TraceContext::of(&span) {
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

/// A request under way; counted when it is dropped, with an answer or without.
struct Observation<'a> {
    metrics: &'a HttpMetrics,
    method: &'static str,
    route: &'a str,
    started: Instant,
    status: Option<StatusCode>,
}

impl Observation<'_> {
    fn span(&self, request: &Request) -> Span {
        let Some(beginning) = trace::begin(Incoming::from_headers(request.headers())) else {
            return Span::none();
        };
        let (method, route) = (self.method, self.route);
        span_from!(
            Some(beginning),
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
        let status = match &self.status {
            Some(status) => status.as_str(),
            None if std::thread::panicking() => "500",
            None => LEFT,
        };
        let labels = [self.route, self.method, status];
        self.metrics.requests.with_label_values(&labels).inc();
        let seconds = self.metrics.seconds.with_label_values(&[self.route]);
        seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

/// Clients can make up methods; those that mean something here are told apart.
fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    let known = KNOWN.iter().find(|known| **known == method.as_str());
    known.copied().unwrap_or("_OTHER")
}
