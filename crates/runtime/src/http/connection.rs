//! One HTTP connection, from the first request until the client leaves, a timeout expires or the
//! process drains.

use std::{any::Any, convert::Infallible, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, header},
    response::IntoResponse,
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower::ServiceExt;
use tower_http::catch_panic::{CatchPanic, ResponseForPanic};

use super::{
    HttpLimits,
    body::BoundedBody,
    client::{Client, MAX_HEAD_BYTES, OpenClient},
    stream::ClientStream,
};
use crate::{budget::Permit, problem, shutdown::Shutdown};

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
    ) -> Result<Response<Body>, Infallible> {
        let response = self.respond(request, &client).await?;
        Ok(match client.end_request() {
            Some(permit) => response.map(|body| hold_until_sent(body, permit)),
            None => response,
        })
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        client: &Arc<Client>,
    ) -> Result<Response<Body>, Infallible> {
        let (limit, read_timeout) = self.limits.body(request.uri().path());
        if declared_bytes(&request).is_some_and(|bytes| bytes > limit as u64) {
            return Ok(problem::body_too_large()
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

/// What arises from the body of a request may live as long as its response.
fn hold_until_sent(body: Body, permit: Permit) -> Body {
    Body::new(body.map_err(move |error| {
        let _held = &permit;
        error
    }))
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
        requester.begin_request(request.extensions_mut());
        let (handler, client) = (handler.clone(), Arc::clone(&requester));
        async move { handler.handle(request, client).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        // Limits the size of a head, and the read-ahead of a body.
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => Some(result),
        () = client.evicted() => None,
        () = shutdown.draining() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = connection.as_mut() => Some(result),
                () = shutdown.stopping() => None,
            }
        }
    };
    if let Some(Err(error)) = result {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}
