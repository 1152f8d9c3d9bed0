//! Requests that expect `100 Continue`: the service decides whether their bodies are sent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Error, body::Body, extract::Request};
use bytes::Bytes;
use http::{StatusCode, header};
use hyper::{
    body::{Frame, SizeHint},
    ext::on_informational,
};
use tokio::{sync::Notify, time::timeout};

/// How long a body waits for `100 Continue`. After that it is sent without: a proxy in between may not
/// forward the response (RFC 9110, section 10.1.1).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(3);

/// Lets a request that expects `100 Continue` wait for it before its body is read: the server sends
/// `100 Continue` to the client when the body is read.
pub(super) fn deferred(request: Request) -> Request {
    let mut expected = request.headers().get_all(header::EXPECT).iter().peekable();
    let is_expected = expected.peek().is_some()
        && expected.all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if !is_expected {
        return request;
    }
    let asked = Arc::new(Notify::new());
    let mut request = request.map(|body| {
        let asked = Arc::clone(&asked);
        let asked = Box::pin(async move {
            let _ = timeout(CONTINUE_TIMEOUT, asked.notified()).await;
        });
        Body::new(DeferredBody {
            body,
            asked: Some(asked),
        })
    });
    on_informational(&mut request, move |response| {
        if response.status() == StatusCode::CONTINUE {
            asked.notify_one();
        }
    });
    request
}

/// A body that is not read before the service asks for it, or the timeout. It has no end if the service answers instead:
/// the response closes the connection to the service.
struct DeferredBody {
    body: Body,
    /// `None` when the service has asked for it.
    asked: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl hyper::body::Body for DeferredBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(asked) = &mut self.asked {
            ready!(asked.as_mut().poll(cx));
            self.asked = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
