//! One HTTP connection, from the first request until the client leaves, a timeout expires or the
//! process drains.

use std::{
    any::Any,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, header},
    response::IntoResponse,
};
use bytes::Bytes;
use hyper::{
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower::ServiceExt;
use tower_http::catch_panic::{CatchPanic, ResponseForPanic};

use super::{
    HttpLimits,
    body::BoundedBody,
    client::{Client, InFlight, MAX_HEAD_BYTES, OpenClient},
    slow_readers::Charge,
    stream::ClientStream,
};
use crate::{
    budget::{Owner, Permit},
    problem::{self, Problem},
    shutdown::Shutdown,
};

/// The router and limits shared by all connections of a port.
#[derive(Clone)]
pub(super) struct Handler {
    service: CatchPanic<Router, PanicResponse>,
    limits: Arc<HttpLimits>,
}

impl Handler {
    /// Wraps the router so that a panic fails only its own request.
    pub(super) fn new(router: Router, limits: Arc<HttpLimits>) -> Self {
        // `BoundedBody` enforces the limit, also for bodies that no extractor reads.
        let router = router.layer(axum::extract::DefaultBodyLimit::disable());
        Self {
            service: CatchPanic::custom(router, PanicResponse),
            limits,
        }
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        client: Arc<Client>,
        in_flight: InFlight,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let response = self.respond(request, &client).await?;
        let (owner, request_body) = client.end_request();
        Ok(response.map(|body| ResponseBody {
            body,
            client,
            owner,
            charge: None,
            _held: (request_body, in_flight),
        }))
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        client: &Arc<Client>,
    ) -> Result<Response<Body>, Infallible> {
        if let Err(exhausted) = client.transfer_head() {
            return Ok(Problem::from(exhausted)
                .header(header::CONNECTION, "close")
                .into_response());
        }
        let (limit, read_timeout) = self.limits.body(request.uri().path());
        if let Some(bytes) = declared_bytes(&request).filter(|bytes| *bytes > limit as u64) {
            // A client that expects `100 Continue` receives this before it sends the body.
            return Ok(problem::body_too_large_by(bytes, limit)
                .header(header::CONNECTION, "close")
                .into_response());
        }
        let request = request.map(|body| {
            let client = Arc::clone(client);
            Body::new(BoundedBody::new(body, client, limit, read_timeout))
        });
        let response = self.service.clone().oneshot(request).await?;
        Ok(response.map(Body::new))
    }
}

/// The body of a response. What it holds is returned when it has been written: what arises from the
/// body of a request may live as long as its response.
struct ResponseBody {
    body: Body,
    client: Arc<Client>,
    owner: Owner,
    /// Of the piece that is being written.
    charge: Option<Charge>,
    _held: (Option<Permit>, InFlight),
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // The server asks for more when the client has read most of the piece before.
        self.charge = None;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        match self.client.charge_response(self.owner, bytes) {
            Ok(charge) => self.charge = charge,
            Err(exhausted) => return Poll::Ready(Some(Err(axum::Error::new(exhausted)))),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // The server drops a body that has ended, before its last piece is written.
        self.charge.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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

/// Serves one client until the connection closes. If the client disconnects, its handler is dropped
/// at its current await point.
pub(super) async fn run(
    socket: TcpStream,
    handler: Handler,
    client: OpenClient,
    shutdown: Shutdown,
) {
    // Fails only if the client has already disconnected.
    let _ = socket.set_nodelay(true);
    let limits = handler.limits.clone();
    let stream = ClientStream::new(socket, Arc::clone(&client), limits.write_timeout);
    let requester = Arc::clone(&client);
    let service = service_fn(move |mut request: Request<Incoming>| {
        // Before anything that follows the head is read.
        let in_flight = requester.begin_request(&mut request);
        let (handler, client) = (handler.clone(), Arc::clone(&requester));
        async move { handler.handle(request, client, in_flight).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        // Limits the size of a head, and the read-ahead of a body.
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut result = None;
    let has_grace = tokio::select! {
        // A request that has arrived is read first: an evicted connection answers it.
        biased;
        ended = connection.as_mut() => {
            result = Some(ended);
            false
        }
        () = client.evicted() => client.has_grace(),
        () = shutdown.draining() => true,
    };
    if has_grace {
        connection.as_mut().graceful_shutdown();
        result = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = client.evicted() => None,
            () = shutdown.stopping() => None,
        };
    }
    if let Some(Err(error)) = result {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}
