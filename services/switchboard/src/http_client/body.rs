//! The body of a request. A large one is sent after the server has accepted its size; a bar shows how
//! much of it is sent.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use hyper::{
    body::{Body, Frame, SizeHint},
    ext::on_informational,
};
use indicatif::ProgressBar;
use tokio::{sync::watch, time::timeout};

/// A larger body waits for `100 Continue`.
const MAX_UNANNOUNCED_BYTES: usize = 16 * 1024;
/// Time for the server to accept the size. A server or a proxy that does not know the expectation
/// receives the body then. (RFC 9110, 10.1.1)
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes that count as one step of the bar.
const PIECE_BYTES: usize = 64 * 1024;

/// A body whose size is known.
pub(super) struct RequestBody {
    /// What is not sent yet.
    rest: Bytes,
    bar: ProgressBar,
    /// Completes when the body may be sent.
    accepted: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Creates a request without head. A server refuses a large body by its `Content-Length`, which names
/// both sizes, and receives nothing of it.
pub(super) fn request(bytes: Vec<u8>, bar: ProgressBar) -> Request<RequestBody> {
    let is_announced = bytes.len() > MAX_UNANNOUNCED_BYTES;
    let body = RequestBody {
        rest: bytes.into(),
        bar,
        accepted: None,
    };
    let mut request = Request::new(body);
    if is_announced {
        let (sender, mut receiver) = watch::channel(false);
        on_informational(&mut request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                sender.send_replace(true);
            }
        });
        request.body_mut().accepted = Some(Box::pin(async move {
            let accepted = async { receiver.wait_for(|accepted| *accepted).await.map(drop) };
            let accepted = timeout(CONTINUE_TIMEOUT, accepted).await;
            if matches!(accepted, Ok(Err(_))) {
                // The final response has arrived: the server takes no body.
                std::future::pending::<()>().await;
            }
        }));
    }
    request
}

/// Adds the expectation to the head of a request whose body waits for it.
pub(super) fn expect_continue(request: &mut Request<RequestBody>) {
    if request.body().accepted.is_some() {
        let expectation = HeaderValue::from_static("100-continue");
        request.headers_mut().insert(header::EXPECT, expectation);
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(accepted) = &mut self.accepted {
            ready!(accepted.as_mut().poll(cx));
            self.accepted = None;
        }
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        self.bar.inc(length as u64);
        if self.rest.is_empty() {
            self.bar.finish_and_clear();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
