//! A body as the events in it: wherever it was cut, with any line ends, with comments in between.
//! Never: an event kept until the next one comes, or a body read without a bound.

use std::{convert::Infallible, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use sse_stream::{Sse, SseStream};
use tokio::time::Instant;

use crate::failure::{Failure, causes};

/// The longest body, in bytes. Around each word there are hundreds of them that nobody needs.
pub(crate) const LONGEST_BODY: usize = 16 * 1024 * 1024;
/// What says that nothing follows.
const DONE: &str = "[DONE]";

/// The events of a body.
pub(crate) struct Events {
    events: Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>,
    last_sign: Arc<Mutex<Instant>>,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Data(String),
    Done,
}

/// Why there are no more.
#[derive(Debug, thiserror::Error)]
enum Interruption {
    #[error("{0}")]
    Broken(String),
    #[error("it has more than {LONGEST_BODY} bytes")]
    TooLong,
}

impl Events {
    pub(crate) fn of(body: Incoming) -> Self {
        let pieces = body.into_data_stream();
        Self::read(pieces.map_err(|error| causes(&error)))
    }

    fn read(pieces: impl Stream<Item = Result<Bytes, String>> + Send + 'static) -> Self {
        let last_sign = Arc::new(Mutex::new(Instant::now()));
        let sign = Arc::clone(&last_sign);
        let mut length = 0_usize;
        let bounded = pieces.map(move |piece| {
            let piece = piece.map_err(Interruption::Broken)?;
            if !piece.is_empty() {
                *sign.lock() = Instant::now();
            }
            length = length.saturating_add(piece.len());
            if length > LONGEST_BODY {
                return Err(Interruption::TooLong);
            }
            Ok(piece)
        });
        // The last event counts also where the empty line after it is missing.
        let end = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"\n\n"))]);
        let end = end.map_err(|never| match never {});
        let body = StreamBody::new(bounded.chain(end).map_ok(Frame::data));
        Self {
            events: Box::pin(SseStream::new(body)),
            last_sign,
        }
    }

    /// When the last piece of the body came, whatever was in it: a comment is a sign of life, too.
    pub(crate) fn last_sign(&self) -> Instant {
        *self.last_sign.lock()
    }

    /// The next event with something in it; what interrupts them otherwise. Nothing is lost when this is dropped.
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

/// A connection that breaks is another matter than a body that is no use.
fn failure(error: &sse_stream::Error) -> Failure {
    if let sse_stream::Error::Body(cause) = error
        && let Some(Interruption::Broken(reason)) = cause.downcast_ref()
    {
        return Failure::interrupted(reason.clone());
    }
    Failure::Broken(causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    async fn events(pieces: Vec<Result<Bytes, String>>) -> (Vec<String>, Option<Failure>) {
        let mut events = Events::read(stream::iter(pieces));
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
    async fn events_are_the_same_wherever_a_body_is_cut() {
        let body = ": hello\n\ndata: ä\r\n\r\n:\ndata:b\n\nevent: x\nid: 1\ndata:  ✓ \n\nretry: 5\n\ndata:\n\ndata: [DONE]\n\n";
        for size in 1..body.len() {
            let pieces = body.as_bytes().chunks(size).map(Bytes::copy_from_slice);
            let (found, error) = events(pieces.map(Ok).collect()).await;
            assert_eq!(found, ["ä", "b", " ✓ ", "done"], "in pieces of {size}");
            assert_eq!(error, None);
        }
    }

    #[tokio::test]
    async fn the_last_event_may_lack_its_end() {
        for end in ["", "\n", "\r\n", "\n\n"] {
            let body = Bytes::from(format!("data: a\n\ndata: b{end}"));
            assert_eq!(events(vec![Ok(body)]).await.0, ["a", "b"], "{end:?}");
        }
    }

    #[tokio::test]
    async fn what_interrupts_a_body_is_said() {
        let good = || Ok(Bytes::from_static(b"data: a\n\n"));
        let (found, error) = events(vec![good(), Err("reset".to_owned()), good()]).await;
        assert_eq!(found, ["a"]);
        assert_eq!(error, Some(Failure::interrupted("reset")));
        let long = Bytes::from(vec![b'x'; LONGEST_BODY]);
        let (found, error) = events(vec![good(), Ok(long)]).await;
        assert_eq!(found, ["a"]);
        let Some(Failure::Broken(reason)) = error else {
            panic!("{error:?}");
        };
        assert!(reason.contains("more than"), "{reason}");
        let (_, error) = events(vec![good(), Ok(Bytes::from_static(b"nonsense\n"))]).await;
        assert!(matches!(error, Some(Failure::Broken(_))), "{error:?}");
    }

    #[tokio::test]
    async fn a_comment_is_a_sign_of_life() {
        let (pieces, body) = tokio::sync::mpsc::channel(1);
        let body = stream::unfold(body, async |mut body| Some((body.recv().await?, body)));
        let mut events = Events::read(body);
        for piece in [": wait\n\n", "dat", "a: \n\n"] {
            let before = events.last_sign();
            pieces
                .send(Ok(Bytes::from_static(piece.as_bytes())))
                .await
                .unwrap();
            let next = events.next().now_or_never();
            assert_eq!(next, None, "{piece}");
            assert!(events.last_sign() > before, "{piece}");
        }
    }
}
