//! One HTTP connection, from the first request until the client leaves, a timeout expires or the
//! process drains.

use std::{
    any::Any,
    convert::Infallible,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    http::{HeaderValue, Request, Response, header},
    response::IntoResponse,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tower::{Layer, ServiceExt};
use tower_http::catch_panic::{CatchPanic, ResponseForPanic};

use super::{
    HttpLimits,
    active_request::{ActiveRequest, InFlight},
    body::BoundedBody,
    client::{MAX_HEAD_BYTES, OpenClient},
    http2::Streams,
    response_body::ResponseBody,
    stream::ClientStream,
};
use crate::{
    budget::Exhausted,
    problem::{self, Problem, ProblemKind},
    shutdown::Shutdown,
};

/// When the process drains, a connection closes after this time without a request in flight. A client of
/// HTTP/2 has it to confirm GOAWAY, and one whose body was refused to read why.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The router and limits shared by all connections of a port.
#[derive(Clone)]
pub(super) struct Handler {
    service: CatchPanic<<DefaultBodyLimit as Layer<Router>>::Service, PanicResponse>,
    limits: Arc<HttpLimits>,
}

impl Handler {
    /// Wraps the router so that a panic fails only its own request.
    pub(super) fn new(router: Router, limits: Arc<HttpLimits>) -> Self {
        // `BoundedBody` enforces the limit, also for bodies that no extractor reads.
        let service = DefaultBodyLimit::disable().layer(router);
        Self {
            service: CatchPanic::custom(service, PanicResponse),
            limits,
        }
    }

    /// A handler that answers every request as one over the connection limit.
    fn refusing(&self) -> Self {
        Self::over_limit(Arc::clone(&self.limits))
    }

    /// Answers every request as one over the connection limit.
    pub(super) fn over_limit(limits: Arc<HttpLimits>) -> Self {
        Self::new(Router::new().fallback(over_limit), limits)
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        in_flight: InFlight,
        admitted: Result<(), Exhausted>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let response = match admitted {
            Ok(()) => self.respond(request, in_flight.request()).await?,
            Err(exhausted) => Problem::from(exhausted).into_response(),
        };
        Ok(response.map(|body| ResponseBody::new(body, in_flight)))
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        active: &Arc<ActiveRequest>,
    ) -> Result<Response<Body>, Infallible> {
        if let Err(exhausted) = active.transfer_head() {
            return Ok(Problem::from(exhausted)
                .header(header::CONNECTION, "close")
                .into_response());
        }
        let (limit, read_timeout) = self.limits.body(request.uri().path());
        let declared = declared_bytes(&request);
        if let Some(bytes) = declared.filter(|bytes| *bytes > limit as u64) {
            // A client that expects `100 Continue` receives this before it sends the body.
            return Ok(problem::body_too_large(limit, Some(bytes))
                .header(header::CONNECTION, "close")
                .into_response());
        }
        // A body within the read-ahead is read, whether its handler does or not.
        let is_long = declared.is_none_or(|bytes| bytes > MAX_HEAD_BYTES as u64);
        let is_awaited = is_long || request.headers().contains_key(header::EXPECT);
        let request = request.map(|body| {
            let active = Arc::clone(active);
            Body::new(BoundedBody::new(body, active, limit, read_timeout))
        });
        let mut response = self.service.clone().oneshot(request).await?;
        if is_awaited && active.has_unread_body() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response.map(Body::new))
    }
}

async fn over_limit() -> Problem {
    Problem::new(
        ProblemKind::TooManyConnections,
        "This node is at its connection limit; try again, or use another node.",
    )
    // A call, if this was one, was not sent.
    .with("delivered", "no")
    .header(header::RETRY_AFTER, 1)
    .header(header::CONNECTION, "close")
}

fn declared_bytes(request: &Request<Incoming>) -> Option<u64> {
    request
        .headers()
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Turns a panic into a 500 response. The panic hook has logged message and location.
#[derive(Clone, Copy)]
struct PanicResponse;

impl ResponseForPanic for PanicResponse {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, _payload: Box<dyn Any + Send>) -> Response<Body> {
        problem::internal().into_response()
    }
}

/// Serves one client until the connection closes. If the client disconnects, its handlers are dropped
/// at their current await points.
///
/// The first bytes decide the version of HTTP, with and without TLS: those of HTTP/2 are its preface.
pub(super) async fn run(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    handler: Handler,
    client: OpenClient,
    shutdown: Shutdown,
) {
    // Fails only if the client has already disconnected.
    let _ = socket.set_nodelay(true);
    match tls {
        None => serve(socket, handler, client, shutdown).await,
        // A connection without TLS does not pay for the size of this.
        Some(tls) => Box::pin(serve_tls(socket, tls, handler, client, shutdown)).await,
    }
}

async fn serve_tls(
    socket: TcpStream,
    tls: TlsAcceptor,
    handler: Handler,
    client: OpenClient,
    shutdown: Shutdown,
) {
    let timeout = handler.limits.header_read_timeout;
    let established = tokio::select! {
        established = tls.accept(socket) => established,
        () = client.closing() => return,
        () = client.idle(Instant::now(), timeout) => return,
        () = shutdown.draining() => return,
    };
    match established {
        Ok(socket) => {
            client.use_tls();
            serve(socket, handler, client, shutdown).await;
        }
        Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
    }
}

async fn serve<S>(socket: S, handler: Handler, client: OpenClient, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &handler.limits;
    let mut stream = ClientStream::new(socket, Arc::clone(&client), limits.write_timeout);
    let ending = Ending {
        client: &client,
        idle_timeout: limits.header_read_timeout,
        shutdown: &shutdown,
    };
    let opened = Instant::now();
    let has_preface = tokio::select! {
        // What has arrived is read first.
        biased;
        has_preface = stream.has_preface() => has_preface,
        () = client.closing() => return,
        () = client.idle(opened, ending.idle_timeout) => return,
        () = shutdown.draining() => return,
    };
    match has_preface {
        Ok(false) => run_http1(stream, handler, ending).await,
        // A connection of HTTP/1.1 does not pay for the size of this.
        Ok(true) => Box::pin(run_http2(stream, handler, ending)).await,
        Err(_) => {}
    }
}

async fn run_http1<S>(stream: ClientStream<S>, handler: Handler, ending: Ending<'_>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let requester = Arc::clone(ending.client);
    let service = service_fn(move |mut request: Request<Incoming>| {
        // Before anything that follows the head is read.
        let (in_flight, admitted) = ActiveRequest::begin(&requester, &mut request);
        let handler = handler.clone();
        async move { handler.handle(request, in_flight, admitted).await }
    });
    let connection = http1::Builder::new()
        // `Client::idle` is this timeout.
        .header_read_timeout(None)
        // Limits the size of a head, and the read-ahead of a body.
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let connection = pin!(connection);
    ending
        .run(connection, |http1| http1.graceful_shutdown())
        .await;
}

async fn run_http2<S>(stream: ClientStream<S>, handler: Handler, ending: Ending<'_>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = Arc::clone(&handler.limits);
    let is_refused = !ending.client.use_http2();
    let handler = if is_refused {
        handler.refusing()
    } else {
        handler
    };
    let streams = Streams::new(ending.shutdown.clone(), limits.write_timeout);
    let server = streams.server(&limits);
    let requester = Arc::clone(ending.client);
    let accepts_more = AtomicBool::new(!is_refused);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (in_flight, admitted) = ActiveRequest::begin(&requester, &mut request);
        streams.begin(in_flight.request());
        if !accepts_more.swap(true, Relaxed) {
            requester.close();
        }
        let handler = handler.clone();
        async move { handler.handle(request, in_flight, admitted).await }
    });
    let connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    ending
        .run(connection, |http2| http2.graceful_shutdown())
        .await;
}

/// What ends a connection, besides its client.
struct Ending<'a> {
    client: &'a OpenClient,
    /// Timeout for a request. Over HTTP/2, GOAWAY is sent then, and the connection closes after as long
    /// again.
    idle_timeout: Duration,
    shutdown: &'a Shutdown,
}

impl Ending<'_> {
    /// Runs a connection until it ends; `finish` lets it end without further requests. One that drains,
    /// or is evicted while requests are in flight, answers them first; so does an idle one of HTTP/2,
    /// which announces that it closes.
    async fn run<C>(self, mut connection: Pin<&mut C>, finish: impl Fn(Pin<&mut C>))
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let (mut is_closing, mut is_draining) = (false, false);
        let (mut since, mut idle_timeout) = (Instant::now(), self.idle_timeout);
        loop {
            tokio::select! {
                // A request that has arrived is read first: an evicted connection answers it.
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "an HTTP connection ended early");
                    }
                    return;
                }
                () = self.client.closing() => {
                    if is_closing || !self.client.has_grace() {
                        return;
                    }
                }
                () = self.client.idle(since, idle_timeout) => {
                    if is_closing || !self.client.is_http2() {
                        return;
                    }
                }
                () = self.shutdown.draining(), if !is_draining => {
                    is_draining = true;
                    idle_timeout = idle_timeout.min(DRAIN_TIMEOUT);
                }
                () = self.shutdown.stopping() => return,
            }
            since = Instant::now();
            if !is_closing {
                is_closing = true;
                finish(connection.as_mut());
            }
        }
    }
}
