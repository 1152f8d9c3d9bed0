//! A request body with a size limit, a timeout, and a budget for all bodies that are not small.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::active_request::ActiveRequest;
use crate::budget::Exhausted;

/// Bytes of a body that are read without a permit.
const FREE_BODY_BYTES: usize = 16 * 1024;

/// The body did not arrive in time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the body did not arrive read_timeout {0:?}")]
pub(crate) struct BodyTimeout(pub(crate) Duration);

/// The body is larger than its path accepts.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the body exceeds {limit} bytes")]
pub(crate) struct BodyTooLarge {
    pub(crate) limit: usize,
}

/// The body that handlers read. It is charged to the client before it is read: with its declared
/// size, or with twice what has arrived. The timer starts only if the body is not available at once.
pub(super) struct BoundedBody {
    inner: Incoming,
    request: Arc<ActiveRequest>,
    limit: usize,
    declared: Option<usize>,
    received: usize,
    /// How much may arrive before more is charged.
    allowed: usize,
    read_timeout: Duration,
    /// When it was first read: a handler may have waited for something else before.
    started: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    /// Limits `inner` to `limit` bytes, all of which must arrive within `read_timeout` from when the first
    /// are read.
    pub(super) fn new(
        inner: Incoming,
        request: Arc<ActiveRequest>,
        limit: usize,
        read_timeout: Duration,
    ) -> Self {
        let declared = inner.size_hint().exact();
        let declared = declared.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Self {
            inner,
            request,
            limit,
            declared,
            received: 0,
            allowed: match declared {
                Some(bytes) if bytes > FREE_BODY_BYTES => 0,
                Some(_) => usize::MAX,
                None => FREE_BODY_BYTES,
            },
            read_timeout,
            started: None,
            timer: None,
        }
    }

    /// Charges what may arrive next.
    fn charge(&mut self) -> Result<(), Exhausted> {
        if self.received < self.allowed || self.allowed >= self.limit {
            return Ok(());
        }
        let doubled = self.allowed.saturating_mul(2).min(self.limit);
        let allowed = self.declared.unwrap_or(doubled);
        self.request.charge_body(allowed)?;
        self.allowed = allowed;
        Ok(())
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if let Err(refused) = self.charge() {
            return Poll::Ready(Some(Err(refused.into())));
        }
        self.request.set_reading_body(true);
        let deadline = *self.started.get_or_insert_with(Instant::now) + self.read_timeout;
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            let data = frame
                .as_ref()
                .and_then(|frame| frame.as_ref().ok()?.data_ref());
            self.received += data.map_or(0, Bytes::len);
            if !matches!(frame, Some(Ok(_))) || self.inner.is_end_stream() {
                self.request.set_reading_body(false);
                self.request.end_body();
            }
            if self.received > self.limit {
                let limit = self.limit;
                return Poll::Ready(Some(Err(BodyTooLarge { limit }.into())));
            }
            let frame = frame.map(|frame| frame.map_err(Into::into));
            return Poll::Ready(frame);
        }
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

impl Drop for BoundedBody {
    fn drop(&mut self) {
        self.request.set_reading_body(false);
    }
}
