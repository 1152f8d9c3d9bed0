//! Requests that expect `100 Continue`: the service decides whether their bodies are sent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{Error, body::Body, extract::Request};
use bytes::Bytes;
use http::{StatusCode, header};
use hyper::{
    body::{Frame, SizeHint},
    ext::on_informational,
};
use tokio::sync::{Notify, futures::OwnedNotified};

/// Lets a request that expects `100 Continue` wait for it before its body is read: the server sends
/// `100 Continue` to the client when the body is read.
pub(super) fn deferred(request: Request) -> Request {
    if !request.headers().contains_key(header::EXPECT) {
        return request;
    }
    let asked = Arc::new(Notify::new());
    let mut request = request.map(|body| {
        let asked = Box::pin(Arc::clone(&asked).notified_owned());
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

/// A body that is not read before the service asks for it. It has no end if the service answers instead:
/// the response closes the connection to the service.
struct DeferredBody {
    body: Body,
    /// `None` when the service has asked for it.
    asked: Option<Pin<Box<OwnedNotified>>>,
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
