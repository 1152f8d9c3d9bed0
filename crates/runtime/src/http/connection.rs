//! One HTTP connection, from the first request until the client leaves, a timeout expires or the
//! process drains.

use std::{any::Any, convert::Infallible, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, header},
    response::IntoResponse,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower::ServiceExt;
use tower_http::catch_panic::{CatchPanic, ResponseForPanic};

use super::{HttpLimits, body::BoundedBody, write_timeout::WriteTimeoutStream};
use crate::{problem, shutdown::Shutdown};

/// Limits the size of a request's head and of the read-ahead of a body.
const READ_BUFFER_BYTES: usize = 64 * 1024;

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

    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let (limit, read_timeout) = self.limits.body(request.uri().path());
        if declared_bytes(&request).is_some_and(|bytes| bytes > limit as u64) {
            return Ok(problem::body_too_large()
                .header(header::CONNECTION, "close")
                .into_response());
        }
        let request = request.map(|body| Body::new(BoundedBody::new(body, limit, read_timeout)));
        let response = self.service.clone().oneshot(request).await?;
        Ok(response.map(Body::new))
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
pub(super) async fn run(socket: TcpStream, handler: Handler, shutdown: Shutdown) {
    // Fails only if the client has already disconnected.
    let _ = socket.set_nodelay(true);
    let limits = handler.limits.clone();
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { handler.handle(request).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(READ_BUFFER_BYTES)
        .serve_connection(
            TokioIo::new(WriteTimeoutStream::new(socket, limits.write_timeout)),
            service,
        );
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => Some(result),
        () = shutdown.draining() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = connection.as_mut() => Some(result),
                () = shutdown.stopping() => None,
            }
        }
    };
    if let Some(Err(error)) = result {
        tracing::debug!(%error, "an HTTP connection result early");
    }
}
