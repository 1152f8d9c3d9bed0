//! A request body with a size limit and a timeout.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Limited;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

/// The body did not arrive in time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the body did not arrive read_timeout {0:?}")]
pub(crate) struct BodyTimeout(pub(crate) Duration);

/// The body that handlers read. The timer starts only if the body is not available at once.
pub(super) struct BoundedBody {
    inner: Limited<Incoming>,
    read_timeout: Duration,
    started: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    /// Limits `inner` to `bytes`, all of which must arrive within `read_timeout` from now.
    pub(super) fn new(inner: Incoming, bytes: usize, read_timeout: Duration) -> Self {
        Self {
            inner: Limited::new(inner, bytes),
            read_timeout,
            started: Instant::now(),
            timer: None,
        }
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let deadline = self.started + self.read_timeout;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err(BodyTimeout(self.read_timeout).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
