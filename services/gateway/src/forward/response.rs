//! Responses of other services, and how forwarded requests end.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use switchboard_runtime::{budget::Permit, labels, metrics::Counters};

use super::headers;

labels! {
    /// The label `outcome` of `forwarded_total`.
    pub(super) enum ForwardEnd {
        /// The service sent its whole response, with any status.
        Answered => "answered",
        /// There was no connection to the service.
        Unavailable => "unavailable",
        /// The connection to the service ended before a response.
        Lost => "lost",
        /// The service did not respond in time.
        TimedOut => "timed_out",
        /// The connection to the service ended within the response.
        Interrupted => "interrupted",
        /// The body of the request was incomplete, late or too large.
        BodyFailed => "body_failed",
        /// The client disconnected before the end of the response.
        Cancelled => "cancelled",
        /// The budget of forwarded requests had no room.
        Refused => "refused",
    }
}

/// A forwarded request whose response has not ended; counted once. Dropped before its end, it counts
/// as cancelled.
pub(super) struct InFlight {
    ends: Counters<ForwardEnd>,
    is_ended: bool,
    /// Held until the end.
    pub(super) permit: Option<Permit>,
}

impl InFlight {
    pub(super) fn new(ends: Counters<ForwardEnd>) -> Self {
        Self {
            ends,
            is_ended: false,
            permit: None,
        }
    }

    pub(super) fn end(&mut self, end: ForwardEnd) {
        if !self.is_ended {
            self.is_ended = true;
            self.ends.inc(end);
            self.permit = None;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.end(ForwardEnd::Cancelled);
    }
}

/// The response of a service as the client receives it.
pub(super) fn forwarded(response: http::Response<Incoming>, mut in_flight: InFlight) -> Response {
    let (mut head, body) = response.into_parts();
    headers::remove_hop_by_hop(&mut head.headers);
    if hyper::body::Body::is_end_stream(&body) {
        in_flight.end(ForwardEnd::Answered);
    }
    Response::from_parts(head, Body::new(ForwardedBody { body, in_flight }))
}

/// The body of a response: each piece is passed on as it arrives. Dropping it closes the connection
/// to the service.
struct ForwardedBody {
    body: Incoming,
    in_flight: InFlight,
}

impl hyper::body::Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Err(_)) => self.in_flight.end(ForwardEnd::Interrupted),
            // The server does not ask again after the last piece of a body with a known length.
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            Some(Ok(_)) | None => self.in_flight.end(ForwardEnd::Answered),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
