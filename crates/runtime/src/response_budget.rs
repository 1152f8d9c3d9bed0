//! The memory of large responses, until their clients have read them.
//!
//! Invariant: a permit is returned only when the response that it was acquired for is sent, or its
//! client has disconnected.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use crate::{
    budget::{Budget, Budgets, Exhausted, Kind, Owner, Permit},
    problem::{Problem, internal},
};

/// The bytes of all large responses of a process.
const CAPACITY_BYTES: usize = 64 * 1024 * 1024;
/// Smaller responses are not charged: their number is bounded by the connections.
const SMALL_BYTES: usize = 64 * 1024;
/// Size of the chunks of a response that holds a permit.
const CHUNK_BYTES: usize = 64 * 1024;

/// The budget `http_responses`: the bytes of large responses to requests for lists. Clients decide
/// how slowly they read, so one organisation may hold a quarter.
#[derive(Debug, Clone)]
pub struct ResponseBudget(Budget);

impl ResponseBudget {
    /// Creates the budget, or returns the one of this process.
    #[must_use]
    pub fn new(budgets: &Budgets) -> Self {
        let kind = Kind::quarter_of(CAPACITY_BYTES);
        Self(budgets.budget("http_responses", CAPACITY_BYTES, kind))
    }

    /// Acquires the bytes of a response. A small response needs no permit.
    ///
    /// # Errors
    /// [`Exhausted`] when the clients of the owner, or of all owners, have to read others first.
    pub fn reserve(&self, owner: Owner, bytes: usize) -> Result<Option<Permit>, Exhausted> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        // A single element can be larger than what is shared out.
        let bytes = bytes.min(CAPACITY_BYTES / 4);
        self.0.try_acquire(owner, bytes).map(Some)
    }
}

/// Reads a response to its end, and keeps `held` until its client has read it or has disconnected.
///
/// # Errors
/// A 500 problem when the response fails while it is created.
pub async fn hold_until_sent<T>(response: Response, held: T) -> Result<Response, Problem>
where
    T: Send + Unpin + 'static,
{
    let (head, body) = response.into_parts();
    let left = body.collect().await.map_err(|_| internal())?.to_bytes();
    Ok(Response::from_parts(head, hold_body(left, Some(held))))
}

/// Returns the body of a response, which keeps `held` until its client has read it or has
/// disconnected.
pub fn hold_body<T: Send + Unpin + 'static>(body: Bytes, held: Option<T>) -> Body {
    match held {
        Some(held) => Body::new(HeldBody {
            left: body,
            _held: held,
        }),
        None => Body::from(body),
    }
}

/// Returns the length of a value as JSON.
#[must_use]
pub fn json_bytes(value: &impl Serialize) -> usize {
    let mut counter = ByteCounter(0);
    // A value that cannot be serialised has no response.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body in chunks, which is dropped after the last one. The server asks for a chunk when the
/// client has read most of the former ones. Chunks are copies: one that is still being written
/// does not keep the whole response in memory.
struct HeldBody<T> {
    left: Bytes,
    _held: T,
}

impl<T: Unpin> hyper::body::Body for HeldBody<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let left = &mut self.get_mut().left;
        if left.is_empty() {
            return Poll::Ready(None);
        }
        let chunk = left.split_to(left.len().min(CHUNK_BYTES));
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&chunk)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use prometheus::Registry;
    use uuid::Uuid;

    use super::*;
    use crate::budget::Scope;

    #[tokio::test]
    async fn permit_is_held_until_the_last_chunk() {
        let budgets = Budgets::new(&Registry::new()).unwrap();
        let responses = ResponseBudget::new(&budgets);
        let owner = Owner::Org(Uuid::from_u128(1));
        let text = "x".repeat(CHUNK_BYTES + 1);
        let permit = responses.reserve(owner, text.len()).unwrap();
        assert_eq!(responses.0.used(), text.len());
        let response = hold_until_sent(text.clone().into_response(), permit).await;
        let mut body = response.unwrap().into_body();
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(65_537));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), responses.0.used()), (CHUNK_BYTES, text.len()));
        let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(last.len(), 1);
        assert!(hyper::body::Body::is_end_stream(&body));
        drop(body);
        assert_eq!(responses.0.used(), 0);
    }

    #[test]
    fn organisation_holds_at_most_its_share() {
        let budgets = Budgets::new(&Registry::new()).unwrap();
        let responses = ResponseBudget::new(&budgets);
        let (one, other) = (1, 2);
        let reserve = |org, bytes| responses.reserve(Owner::Org(Uuid::from_u128(org)), bytes);
        assert!(reserve(one, SMALL_BYTES).unwrap().is_none());
        let held = reserve(one, usize::MAX).unwrap();
        let refused = reserve(one, SMALL_BYTES + 1).unwrap_err();
        assert_eq!(refused.scope, Scope::Share);
        assert!(reserve(one, SMALL_BYTES).unwrap().is_none());
        assert!(reserve(other, usize::MAX).unwrap().is_some());
        drop(held);
        assert!(reserve(one, SMALL_BYTES + 1).unwrap().is_some());
    }

    #[test]
    fn length_is_that_of_the_json() {
        let value = serde_json::json!({"a": ["é", 1.5, null]});
        assert_eq!(json_bytes(&value), value.to_string().len());
    }
}
