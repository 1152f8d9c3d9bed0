//! The memory of large responses, until their clients have read them.
//!
//! Invariant: a permit is returned only when the memory of the response that it was acquired for is
//! free: it is sent, its client has disconnected, or its time is over.

mod page;

use std::{
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::{
    budget::{Budget, Budgets, Exhausted, Kind, Owner, Permit},
    problem::{Problem, internal},
};

pub use page::PageCharge;

/// The default capacity of the budget.
pub(crate) const DEFAULT_CAPACITY_BYTES: usize = 64 * 1024 * 1024;
/// Smaller responses are not charged: their number is bounded by the connections.
const SMALL_BYTES: usize = 64 * 1024;
/// Size of the chunks of a response that holds a permit.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;
/// Within this time a client reads a response that holds a permit. A client that reads slowly, but
/// never stops, would hold it for as long as it likes.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The budget `http_responses`: the bytes of large responses to requests for lists. Clients decide
/// how slowly they read, so one organisation may hold a quarter.
#[derive(Debug, Clone)]
pub struct ResponseBudget(Budget);

/// Creates the budget with this capacity, or returns the one of this process.
pub(crate) fn budget(budgets: &Budgets, capacity_bytes: usize) -> Budget {
    let kind = Kind::quarter_of(capacity_bytes);
    budgets.bytes("http_responses", capacity_bytes, kind)
}

impl ResponseBudget {
    /// Returns the budget of this process; creates it with 64 MiB unless
    /// [`HttpConfig::create_budgets`](crate::http::HttpConfig::create_budgets) has.
    #[must_use]
    pub fn new(budgets: &Budgets) -> Self {
        Self(budget(budgets, DEFAULT_CAPACITY_BYTES))
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
        let bytes = bytes.min(self.0.share());
        self.0.try_acquire(owner, bytes).map(Some)
    }
}

/// Reads a response to its end, and keeps `held` as [`hold_body`] does.
///
/// # Errors
/// A 500 problem when the response fails while it is created.
pub async fn hold_until_sent<T>(response: Response, held: T) -> Result<Response, Problem>
where
    T: Send + 'static,
{
    let (head, body) = response.into_parts();
    let left = body.collect().await.map_err(|_| internal())?.to_bytes();
    Ok(Response::from_parts(head, hold_body(left, Some(held))))
}

/// Returns the body of a response, which keeps `held` until its client has read it or has
/// disconnected. 60 s after its first chunk the rest is dropped, and the body ends with an error,
/// which closes the connection.
pub fn hold_body<T: Send + 'static>(body: Bytes, held: Option<T>) -> Body {
    match held {
        Some(held) => Body::new(HeldBody {
            left: body.len(),
            rest: Arc::new(Mutex::new(Some(Rest {
                bytes: body,
                _held: held,
            }))),
            expiry: JoinSet::new(),
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
    left: usize,
    /// `None` when the time is over.
    rest: Arc<Mutex<Option<Rest<T>>>>,
    /// Drops the rest when the time is over: the server does not ask for more while it writes.
    /// Empty before the first chunk.
    expiry: JoinSet<()>,
}

/// What a client has not read yet.
struct Rest<T> {
    bytes: Bytes,
    _held: T,
}

/// The client of a response did not read it in time.
#[derive(Debug, thiserror::Error)]
#[error("the client did not read the response within {} s", READ_TIMEOUT.as_secs())]
struct ReadTooSlowly;

async fn expire<T>(rest: Weak<Mutex<Option<Rest<T>>>>) {
    tokio::time::sleep(READ_TIMEOUT).await;
    if let Some(rest) = rest.upgrade() {
        // It is dropped after the lock.
        let _rest = rest.lock().take();
    }
}

impl<T: Send + 'static> hyper::body::Body for HeldBody<T> {
    type Data = Bytes;
    type Error = ReadTooSlowly;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReadTooSlowly>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let mut rest = this.rest.lock();
        let Some(Rest { bytes, .. }) = rest.as_mut() else {
            return Poll::Ready(Some(Err(ReadTooSlowly)));
        };
        let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
        let chunk = Bytes::copy_from_slice(&chunk);
        drop(rest);
        this.left -= chunk.len();
        if this.expiry.is_empty() {
            this.expiry.spawn(expire(Arc::downgrade(&this.rest)));
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
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
        let text = "x".repeat(SMALL_BYTES + 1);
        let permit = responses.reserve(owner, text.len()).unwrap();
        assert_eq!(responses.0.used(), text.len());
        let response = hold_until_sent(text.clone().into_response(), permit).await;
        let mut body = response.unwrap().into_body();
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(65_537));
        for _ in 0..SMALL_BYTES / CHUNK_BYTES {
            let chunk = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((chunk.len(), responses.0.used()), (CHUNK_BYTES, text.len()));
        }
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
    fn charge_of_a_page_grows_with_it() {
        let budgets = Budgets::new(&Registry::new()).unwrap();
        let responses = ResponseBudget::new(&budgets);
        let mut page = PageCharge::new(&responses, Owner::Org(Uuid::from_u128(1)));
        for (bytes, used) in [
            (SMALL_BYTES, 0),
            (SMALL_BYTES + 1, SMALL_BYTES + 1),
            (1_000_000, 1_000_000),
            (5, 1_000_000),
            (usize::MAX, DEFAULT_CAPACITY_BYTES / 4),
        ] {
            page.hold(bytes).unwrap();
            assert_eq!(responses.0.used(), used, "{bytes}");
        }
        let mut another = PageCharge::new(&responses, Owner::Org(Uuid::from_u128(1)));
        assert_eq!(another.hold(1_000_000).unwrap_err().scope, Scope::Share);
        assert_eq!(page.into_permit(1_000_000).unwrap().amount(), 1_000_000);
        assert_eq!(responses.0.used(), 0);
    }

    #[test]
    fn length_is_that_of_the_json() {
        let value = serde_json::json!({"a": ["é", 1.5, null]});
        assert_eq!(json_bytes(&value), value.to_string().len());
    }
}
