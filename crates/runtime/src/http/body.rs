//! A request's body under a limit of bytes and a deadline.
//! Never: a timer for a body that is already there.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Limited;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

/// The body did not arrive within this time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the body did not arrive within {0:?}")]
pub(crate) struct BodyTimeout(pub(crate) Duration);

/// What handlers read from.
pub(super) struct BoundedBody {
    inner: Limited<Incoming>,
    within: Duration,
    head_at: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    /// Takes at most `bytes`, all of them `within` this time from now.
    pub(super) fn new(inner: Incoming, bytes: usize, within: Duration) -> Self {
        Self {
            inner: Limited::new(inner, bytes),
            within,
            head_at: Instant::now(),
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
        let deadline = self.head_at + self.within;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err(BodyTimeout(self.within).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
