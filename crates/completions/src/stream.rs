//! The server-sent events of a response body.

use std::{convert::Infallible, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use sse_stream::{Sse, SseStream};
use tokio::time::Instant;

use crate::failure::{Failure, causes};

/// Maximum bytes of a body. Each token comes with hundreds of bytes of JSON.
pub(crate) const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// The data of the last event.
const DONE: &str = "[DONE]";

/// A stream of events.
pub(crate) struct EventStream {
    events: Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>,
    last_activity: Arc<Mutex<Instant>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Data(String),
    Done,
}

/// The reason why a body ended early.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("{0}")]
    Connection(String),
    #[error("the response has more than {MAX_BODY_BYTES} bytes")]
    TooLong,
}

impl EventStream {
    pub(crate) fn new(body: Incoming) -> Self {
        let pieces = body.into_data_stream();
        Self::from_pieces(pieces.map_err(|error| causes(&error)))
    }

    fn from_pieces(pieces: impl Stream<Item = Result<Bytes, String>> + Send + 'static) -> Self {
        let last_activity = Arc::new(Mutex::new(Instant::now()));
        let activity = Arc::clone(&last_activity);
        let mut length = 0_usize;
        let bounded = pieces.map(move |piece| {
            let piece = piece.map_err(BodyError::Connection)?;
            if !piece.is_empty() {
                *activity.lock() = Instant::now();
            }
            length = length.saturating_add(piece.len());
            if length > MAX_BODY_BYTES {
                return Err(BodyError::TooLong);
            }
            Ok(piece)
        });
        // Ends the last event when the provider omits the empty line after it.
        let end = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"\n\n"))]);
        let end = end.map_err(|never| match never {});
        let body = StreamBody::new(bounded.chain(end).map_ok(Frame::data));
        Self {
            events: Box::pin(SseStream::new(body)),
            last_activity,
        }
    }

    /// When the last data arrived, including comments.
    pub(crate) fn last_activity(&self) -> Instant {
        *self.last_activity.lock()
    }

    /// The next event with data. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, Failure>> {
        loop {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(error) => return Some(Err(failure(&error))),
            };
            let data = event.data.unwrap_or_default();
            match data.trim() {
                "" => {}
                DONE => return Some(Ok(Event::Done)),
                _ => return Some(Ok(Event::Data(data))),
            }
        }
    }
}

/// A broken connection is an interruption; a malformed body is invalid.
fn failure(error: &sse_stream::Error) -> Failure {
    if let sse_stream::Error::Body(cause) = error
        && let Some(BodyError::Connection(reason)) = cause.downcast_ref()
    {
        return Failure::interrupted(reason.clone());
    }
    Failure::Invalid(causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    async fn events(pieces: Vec<Result<Bytes, String>>) -> (Vec<String>, Option<Failure>) {
        let mut events = EventStream::from_pieces(stream::iter(pieces));
        let mut found = Vec::new();
        loop {
            match events.next().await {
                Some(Ok(Event::Data(data))) => found.push(data),
                Some(Ok(Event::Done)) => found.push("done".to_owned()),
                Some(Err(error)) => return (found, Some(error)),
                None => return (found, None),
            }
        }
    }

    #[tokio::test]
    async fn events_do_not_depend_on_the_piece_size() {
        let body = ": hello\n\ndata: ä\r\n\r\n:\ndata:b\n\nevent: x\nid: 1\ndata:  ✓ \n\nretry: 5\n\ndata:\n\ndata: [DONE]\n\n";
        for size in 1..body.len() {
            let pieces = body.as_bytes().chunks(size).map(Bytes::copy_from_slice);
            let (found, error) = events(pieces.map(Ok).collect()).await;
            assert_eq!(found, ["ä", "b", " ✓ ", "done"], "in pieces of {size}");
            assert_eq!(error, None);
        }
    }

    #[tokio::test]
    async fn last_event_needs_no_empty_line() {
        for end in ["", "\n", "\r\n", "\n\n"] {
            let body = Bytes::from(format!("data: a\n\ndata: b{end}"));
            assert_eq!(events(vec![Ok(body)]).await.0, ["a", "b"], "{end:?}");
        }
    }

    #[tokio::test]
    async fn body_errors_are_reported() {
        let good = || Ok(Bytes::from_static(b"data: a\n\n"));
        let (found, error) = events(vec![good(), Err("reset".to_owned()), good()]).await;
        assert_eq!(found, ["a"]);
        assert_eq!(error, Some(Failure::interrupted("reset")));
        let long = Bytes::from(vec![b'x'; MAX_BODY_BYTES]);
        let (found, error) = events(vec![good(), Ok(long)]).await;
        assert_eq!(found, ["a"]);
        let Some(Failure::Invalid(reason)) = error else {
            panic!("{error:?}");
        };
        assert!(reason.contains("more than"), "{reason}");
        let (_, error) = events(vec![good(), Ok(Bytes::from_static(b"nonsense\n"))]).await;
        assert!(matches!(error, Some(Failure::Invalid(_))), "{error:?}");
    }

    #[tokio::test]
    async fn comment_counts_as_activity() {
        let (pieces, body) = tokio::sync::mpsc::channel(1);
        let body = stream::unfold(body, async |mut body| Some((body.recv().await?, body)));
        let mut events = EventStream::from_pieces(body);
        for piece in [": wait\n\n", "dat", "a: \n\n"] {
            let before = events.last_activity();
            pieces
                .send(Ok(Bytes::from_static(piece.as_bytes())))
                .await
                .unwrap();
            let next = events.next().now_or_never();
            assert_eq!(next, None, "{piece}");
            assert!(events.last_activity() > before, "{piece}");
        }
    }
}
