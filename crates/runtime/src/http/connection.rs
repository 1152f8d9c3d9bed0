//! The life of one HTTP connection: requests, until the client leaves, is too slow, or the process drains.
//! Never: a panic that ends more than its own request.

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

use super::{HttpLimits, body::BoundedBody, stream::PatientStream};
use crate::{problem, shutdown::Shutdown};

/// Bounds a request's head, and what is read ahead of a body.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// What the connections of a port share.
#[derive(Clone)]
pub(super) struct Served {
    service: CatchPanic<Router, Panicked>,
    limits: Arc<HttpLimits>,
}

impl Served {
    /// The router behind these limits.
    pub(super) fn new(router: Router, limits: Arc<HttpLimits>) -> Self {
        // The limit is enforced below, where it also covers bodies that no extractor reads.
        let router = router.layer(axum::extract::DefaultBodyLimit::disable());
        Self {
            service: CatchPanic::custom(router, Panicked),
            limits,
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let (limit, within) = self.limits.body(request.uri().path());
        if declared_bytes(&request).is_some_and(|bytes| bytes > limit as u64) {
            return Ok(problem::too_large()
                .header(header::CONNECTION, "close")
                .into_response());
        }
        let request = request.map(|body| Body::new(BoundedBody::new(body, limit, within)));
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

/// The hook of the process has logged the panic with its place; here it becomes an answer.
#[derive(Clone, Copy)]
struct Panicked;

impl ResponseForPanic for Panicked {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, _payload: Box<dyn Any + Send>) -> Response<Body> {
        problem::internal().into_response()
    }
}

/// Serves one client to its end. A handler whose client has left is dropped where it waits.
pub(super) async fn run(socket: TcpStream, served: Served, shutdown: Shutdown) {
    // A socket that refuses the option is one whose client has left already.
    let _ = socket.set_nodelay(true);
    let limits = served.limits.clone();
    let service = service_fn(move |request| {
        let served = served.clone();
        async move { served.answer(request).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(READ_BUFFER_BYTES)
        .serve_connection(
            TokioIo::new(PatientStream::new(socket, limits.write_timeout)),
            service,
        );
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = shutdown.draining() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => Some(ended),
                () = shutdown.stopping() => None,
            }
        }
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}
