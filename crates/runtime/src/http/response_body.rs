//! The body of a response: charged, and over HTTP/2 given to the connection piece by piece.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};

use super::{
    active_request::{ActiveRequest, InFlight},
    slow_readers::Charge,
};
use crate::{
    budget::{Owner, Permit},
    response_budget::CHUNK_BYTES,
};

/// The body of a response. What it holds is returned when it has been written: what arises from the
/// body of a request may live as long as its response.
///
/// Over HTTP/2 it has one piece of at most 16 KiB in the connection, and ends when that is written: a
/// connection would keep whole responses in memory for a client that leaves their windows closed, and
/// forget their requests.
pub(super) struct ResponseBody {
    body: Body,
    in_flight: InFlight,
    owner: Owner,
    /// What is left of the part that the handler wrote last. Over HTTP/2 only.
    rest: Bytes,
    /// Of that part.
    charge: Option<Charge>,
    _request_body: Option<Permit>,
}

/// A piece of a response, until it is written.
pub(super) struct Piece {
    bytes: Bytes,
    /// Over HTTP/2 only.
    request: Option<Arc<ActiveRequest>>,
}

/// A response ended before its last piece.
#[derive(Debug, thiserror::Error)]
#[error("the response ended early: its client did not read it in time, or its room was taken")]
struct EndedEarly;

impl ResponseBody {
    /// The body of the response to a request that the handler has answered.
    pub(super) fn new(body: Body, in_flight: InFlight) -> Self {
        let (owner, request_body) = in_flight.request().respond();
        Self {
            body,
            in_flight,
            owner,
            rest: Bytes::new(),
            charge: None,
            _request_body: request_body,
        }
    }

    fn request(&self) -> &Arc<ActiveRequest> {
        self.in_flight.request()
    }

    /// The next piece of the rest.
    fn piece(&mut self) -> Frame<Piece> {
        let bytes = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
        self.request().note_unwritten();
        Frame::data(Piece {
            bytes,
            request: Some(Arc::clone(self.request())),
        })
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        if self.request().is_aborted() {
            return Poll::Ready(Some(Err(axum::Error::new(EndedEarly))));
        }
        ready!(self.request().poll_written(cx));
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        // The server asks for more when the client has read most of the part before.
        self.charge = None;
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match self.request().charge_response(self.owner, bytes) {
            Ok(charge) => self.charge = charge,
            Err(exhausted) => return Poll::Ready(Some(Err(axum::Error::new(exhausted)))),
        }
        if self.request().is_stream() && bytes > 0 {
            self.rest = frame.into_data().unwrap_or_default();
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let request = None;
        let whole = |bytes| Piece { bytes, request };
        Poll::Ready(Some(Ok(frame.map_data(whole))))
    }

    fn is_end_stream(&self) -> bool {
        // The server drops a body that has ended, before its last piece is written.
        self.charge.is_none()
            && self.rest.is_empty()
            && !self.request().is_unwritten()
            && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // The server asks before the first piece.
        self.body.size_hint()
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            request.note_written();
        }
    }
}
