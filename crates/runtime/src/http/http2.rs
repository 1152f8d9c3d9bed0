//! HTTP/2: the limits of a connection, and the tasks of its streams.

use std::{future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;

use super::{HttpLimits, active_request::ActiveRequest, client::MAX_HEAD_BYTES};
use crate::shutdown::Shutdown;

/// What a client sends first on a connection of HTTP/2.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of streams at the same time on a connection; further ones are refused. Protects
/// memory and handlers.
const MAX_STREAMS: u32 = 100;
/// Bytes of a body that the client may send before the handler reads them. It is the default of the
/// protocol: clients send as much before they know the settings of the server.
pub(super) const STREAM_WINDOW_BYTES: u32 = 65_535;
/// No stream whose handler does not read keeps others of its connection from sending.
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;
/// Bytes of a response that the connection keeps for a stream. One piece is given at a time.
const MAX_SEND_BUFFER_BYTES: usize = 16 * 1024;
/// Streams that the client may reset before the server has seen them, at the same time. Protects
/// against floods of resets, as `MAX_CANCELLED_STREAMS` does for those that the server has seen.
const MAX_PENDING_RESETS: usize = 20;
/// Streams of a connection that the server may reset because of errors of the client.
const MAX_ERROR_RESETS: usize = 100;

/// Starts the task of each stream of a connection, and ends those whose clients do not read.
///
/// The state of a stream:
///
/// ```text
///   head ──► handler ──► response, piece by piece ──► ended
///              │             │
///              │             ├── a piece is not written within the write timeout: reset
///              │             └── its room is taken by another response: reset
///              └── reset by the client, or its connection is closed: the handler is dropped
/// ```
#[derive(Clone)]
pub(super) struct Streams {
    tasks: Shutdown,
    write_timeout: Duration,
    /// The request whose task is about to start. The connection gives each request to the service, and
    /// starts its task before it accepts the next one.
    next: Arc<Mutex<Option<Arc<ActiveRequest>>>>,
}

impl Streams {
    pub(super) fn new(tasks: Shutdown, write_timeout: Duration) -> Self {
        Self {
            tasks,
            write_timeout,
            next: Arc::default(),
        }
    }

    /// The next task that starts is that of this request.
    pub(super) fn begin(&self, request: &Arc<ActiveRequest>) {
        *self.next.lock() = Some(Arc::clone(request));
    }

    /// The server of a connection with these streams.
    pub(super) fn server(&self, limits: &HttpLimits) -> hyper::server::conn::http2::Builder<Self> {
        let mut server = hyper::server::conn::http2::Builder::new(self.clone());
        server
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_ERROR_RESETS)
            // A client in the middle of a head cannot answer a ping either: so this also ends slow
            // heads while other streams are in flight.
            .keep_alive_interval(limits.header_read_timeout)
            .keep_alive_timeout(limits.header_read_timeout);
        server
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let request = self.next.lock().take();
        let write_timeout = self.write_timeout;
        self.tasks.spawn(async move {
            let mut stream = pin!(stream);
            let Some(request) = request else {
                return stream.await;
            };
            tokio::select! {
                biased;
                () = stream.as_mut() => return,
                () = request.ends_early(write_timeout) => {}
            }
            // A body that is asked for its next piece ends with an error, which resets the stream.
            std::future::poll_fn(|cx| {
                let _ = stream.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
        });
    }
}
