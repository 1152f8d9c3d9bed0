//! Requests to paths of other services are forwarded to them: a deployment has one address.

mod expect;
mod headers;
mod response;

use std::{error::Error, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::Request, response::Response, routing::on};
use http::{HeaderValue, Uri, Version, header, uri::PathAndQuery};
use prometheus::Registry;
use switchboard_identity::Authenticator;
use switchboard_runtime::{
    api::Document,
    budget::{Budget, Kind},
    http::{caller, is_tls, peer_address},
    metrics::{Counters, Group},
    outbound::{self, Client},
    problem::{self, Problem, ProblemKind},
    trace::TraceContext,
};

use crate::Deps;
use response::{ForwardEnd, InFlight};

/// The default of [`Forwarding::head_timeout`].
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Clients retry after this time, in seconds.
const RETRY_AFTER_S: u32 = 1;

/// The requests that a gateway forwards. By default it forwards none.
#[derive(Clone)]
pub struct Forwarding {
    /// The services.
    pub upstreams: Vec<Upstream>,
    /// Maximum number of forwarded requests whose responses have not ended, of which one organisation
    /// or address gets a quarter. Each has a connection to its service.
    pub max_requests: usize,
    /// From when a request is sent until the service has sent the head of its response. Protects the
    /// budget from a service that has stopped. The body of the response, such as a stream of events, has
    /// no timeout.
    pub head_timeout: Duration,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            max_requests: 0,
            head_timeout: HEAD_TIMEOUT,
        }
    }
}

/// A service that has the paths of its API document.
///
/// A request to one of these paths is sent to the service as it was received, and its response is
/// returned. Both bodies are passed on piece by piece:
///
/// ```text
///   admitted ──► sent ──► head of the response ──► end of its body
///      │          │
///      │          └──► no connection, or lost before a response: 503 with the name of the service
///      └──► no room in the budget: 429
/// ```
///
/// A client that expects `100 Continue` receives it when the service sends it: until then its body is not
/// asked for, and a service that refuses the request answers without it.
///
/// When the client disconnects, so does the gateway, at any point. The credential is checked by the
/// service; here it decides to which organisation the request is charged. Headers of one connection
/// are removed, and the address of the client is appended to `X-Forwarded-For`; `X-Forwarded-Host` and
/// `X-Forwarded-Proto` say how the client reached the gateway. Whatever else a
/// client sends is passed on, such as an Idempotency-Key, and the trace is continued.
///
/// Invariant: a request is sent at most once.
#[derive(Clone)]
pub struct Upstream {
    service: &'static str,
    flag: &'static str,
    /// Without a slash at the end.
    base: String,
    document: Document,
    client: Client<Body>,
}

impl Upstream {
    /// A service at a base URL, which the operator sets with `flag`.
    ///
    /// # Errors
    /// When the TLS provider is not usable.
    pub fn new(
        (service, flag): (&'static str, &'static str),
        url: &Uri,
        document: Document,
    ) -> Result<Self, rustls::Error> {
        Ok(Self {
            service,
            flag,
            base: url.to_string().trim_end_matches('/').to_owned(),
            document,
            client: outbound::client_without_pool(true)?,
        })
    }

    /// The API document of the service.
    #[must_use]
    pub const fn document(&self) -> &Document {
        &self.document
    }
}

/// The routes of all services, each with the methods that its service has.
pub(crate) fn router(deps: &Deps) -> Result<Router, prometheus::Error> {
    let Forwarding {
        upstreams,
        max_requests,
        head_timeout,
    } = &deps.forwarding;
    let mut router = Router::new();
    if upstreams.is_empty() {
        return Ok(router);
    }
    let share = Kind::quarter_of(*max_requests);
    let budget = deps
        .budgets
        .slots("forwarded_requests", *max_requests, share);
    for upstream in upstreams {
        let forwarder = Arc::new(Forwarder {
            ends: ends(upstream.service, &deps.registry)?,
            upstream: upstream.clone(),
            authenticator: deps.authenticator.clone(),
            budget: budget.clone(),
            head_timeout: *head_timeout,
        });
        for (path, methods) in upstream.document.paths() {
            let forwarder = Arc::clone(&forwarder);
            let handler = move |request: Request| {
                let forwarder = Arc::clone(&forwarder);
                async move { Box::pin(forwarder.forward(request)).await }
            };
            router = router.route(path, on(methods, handler));
        }
    }
    Ok(router.method_not_allowed_fallback(problem::method_not_allowed))
}

fn ends(
    service: &'static str,
    registry: &Registry,
) -> Result<Counters<ForwardEnd>, prometheus::Error> {
    let group = Group::new(registry, "switchboard_gateway").with_service(service);
    let help = "Requests forwarded to a service, by service and outcome";
    group.counters("forwarded_total", help, "outcome")
}

/// Forwards requests to one service.
struct Forwarder {
    upstream: Upstream,
    authenticator: Authenticator,
    budget: Budget,
    head_timeout: Duration,
    ends: Counters<ForwardEnd>,
}

impl Forwarder {
    async fn forward(&self, request: Request) -> Result<Response, Problem> {
        let mut in_flight = InFlight::new(self.ends.clone());
        let charged = self
            .authenticator
            .charge(request.headers(), request.extensions());
        charged.await;
        let permit = self.budget.try_acquire(caller(request.extensions()), 1);
        in_flight.permit = match permit {
            Ok(permit) => Some(permit),
            Err(exhausted) => {
                in_flight.end(ForwardEnd::Refused);
                return Err(exhausted.into());
            }
        };
        let request = expect::deferred(self.prepare(request)?);
        let sent = self.upstream.client.request(request);
        match tokio::time::timeout(self.head_timeout, sent).await {
            Ok(Ok(response)) => Ok(response::forwarded(response, in_flight)),
            Ok(Err(error)) if error.is_connect() => {
                in_flight.end(ForwardEnd::Unavailable);
                Err(self.unreachable(&error))
            }
            Ok(Err(error)) if is_of_request_body(&error) => {
                in_flight.end(ForwardEnd::BodyFailed);
                Err(problem::unreadable_body(&error))
            }
            Ok(Err(error)) => {
                in_flight.end(ForwardEnd::Lost);
                Err(self.unanswered(&outbound::with_causes(&error).to_string()))
            }
            Err(_) => {
                in_flight.end(ForwardEnd::TimedOut);
                let timeout = self.head_timeout;
                Err(self.unanswered(&format!("no response within {timeout:?}")))
            }
        }
    }

    /// The request as the service receives it.
    fn prepare(&self, request: Request) -> Result<Request, Problem> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let uri = format!("{}{path}", self.upstream.base);
        head.uri = uri.parse().map_err(|_| problem::internal())?;
        head.version = Version::HTTP_11;
        headers::remove_hop_by_hop(&mut head.headers);
        // The side that closes first cannot use the port again for a minute; services have one port.
        let close = HeaderValue::from_static("close");
        head.headers.insert(header::CONNECTION, close);
        // The client of this module sets that of the service.
        headers::keep_host(&mut head.headers);
        headers::set_forwarded_proto(&mut head.headers, is_tls(&head.extensions));
        if let Some(peer) = peer_address(&head.extensions) {
            headers::append_forwarded_for(&mut head.headers, peer);
        }
        if let Some(trace) = TraceContext::current() {
            trace.write(&mut head.headers);
        }
        Ok(Request::from_parts(head, body))
    }

    fn unreachable(&self, error: &(dyn Error + 'static)) -> Problem {
        let Upstream { service, flag, .. } = self.upstream;
        let error = outbound::with_causes(error);
        tracing::warn!(%error, upstream.service = service, "request not forwarded: no connection to the service");
        self.unavailable(format!(
            "This path belongs to `switchboard {service}`, which cannot be reached at the moment. The request was not \
             sent; a retry is safe. If this persists, start `switchboard {service}`, or correct {flag} of the gateway."
        ))
    }

    fn unanswered(&self, error: &str) -> Problem {
        let service = self.upstream.service;
        tracing::warn!(
            error,
            upstream.service = service,
            "forwarded request not answered by the service"
        );
        self.unavailable(format!(
            "This path belongs to `switchboard {service}`, which received the request but did not answer it. It may \
             have been carried out: retry it with the same Idempotency-Key, or look for its effect first."
        ))
    }

    fn unavailable(&self, detail: String) -> Problem {
        Problem::new(ProblemKind::ServiceUnavailable, detail)
            .with("service", self.upstream.service)
            .header(header::RETRY_AFTER, RETRY_AFTER_S)
    }
}

/// Whether a request failed because its body did: it was incomplete, late or too large.
fn is_of_request_body(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return error.is_user();
        }
        cause = error.source();
    }
    false
}
