//! A request until its response has been written: to whom it is charged, and whether its client still
//! reads.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::http::{Extensions, HeaderMap, HeaderValue, Request, Uri, Version, header};
use hyper::body::Body;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::{
    client::Client,
    forwarded::client_address,
    http2::STREAM_WINDOW_BYTES,
    slow_readers::{Charge, SlowReaders},
};
use crate::budget::{Exhausted, Owner, Permit};

/// A request whose response has not ended. Over HTTP/1.1 a connection has one, over HTTP/2 one for each
/// stream.
pub(super) struct ActiveRequest {
    client: Arc<Client>,
    received_at: std::time::Instant,
    charges: Mutex<Charges>,
    /// Over HTTP/2 only.
    stream: Option<Stream>,
}

/// What a request holds.
struct Charges {
    /// To whom it is charged: the network of its client until it authenticates.
    owner: Owner,
    /// For its head, until it has authenticated or is answered.
    head: Option<Permit>,
    body: Option<Permit>,
    /// Of a stream for which its connection has no room.
    slots: Option<Permit>,
}

/// The response of one HTTP/2 stream. Its client decides with a window how much is written, whatever it
/// reads from the connection: so each stream has a write timeout, and is reset alone.
struct Stream {
    unwritten: Mutex<Unwritten>,
    aborted: Notify,
    is_aborted: AtomicBool,
    has_response: AtomicBool,
}

/// The piece of a response that has been handed to the connection.
struct Unwritten {
    /// `None` when it has been written.
    since: Option<Instant>,
    written_at: Instant,
    /// The task that has the next piece.
    waker: Option<Waker>,
}

/// A request in flight, until it is dropped.
pub(super) struct InFlight(Arc<ActiveRequest>);

/// Returns when the head of the request with these extensions was complete; now for a request that no
/// server of this module has received.
#[must_use]
pub fn received_at(extensions: &Extensions) -> std::time::Instant {
    let request = extensions.get::<Arc<ActiveRequest>>();
    request.map_or_else(std::time::Instant::now, |request| request.received_at)
}

/// Returns the address from which the request with these extensions was received: that of its client,
/// or of the last proxy. `None` for a request that no server of this module has received.
#[must_use]
pub fn peer_address(extensions: &Extensions) -> Option<IpAddr> {
    let request = extensions.get::<Arc<ActiveRequest>>()?;
    Some(request.client.peer())
}

/// Whether the request with these extensions was received over TLS, which ends in this process.
#[must_use]
pub fn is_tls(extensions: &Extensions) -> bool {
    let request = extensions.get::<Arc<ActiveRequest>>();
    request.is_some_and(|request| request.client.is_tls())
}

/// Charges the request with these extensions to an authenticated owner: its body, and its
/// connection unless that was charged to another owner before.
pub fn authenticated(extensions: &Extensions, owner: Owner) {
    if let Some(request) = extensions.get::<Arc<ActiveRequest>>() {
        request.authenticate(owner);
    }
}

/// Returns the owner that the request with these extensions is charged to. Until it has
/// authenticated, that is the organisation that its connection is charged to, if an earlier request
/// has authenticated, otherwise the network of its client. Behind a trusted proxy, that is the
/// network of the forwarded address, or the connection if there is none. [`Owner::System`] for a
/// request that no server of this module has received.
#[must_use]
pub fn caller(extensions: &Extensions) -> Owner {
    let Some(request) = extensions.get::<Arc<ActiveRequest>>() else {
        return Owner::System;
    };
    let owner = request.owner();
    let is_stranger = owner == request.client.address();
    let known = is_stranger.then(|| request.client.organisation()).flatten();
    known.unwrap_or(owner)
}

impl ActiveRequest {
    /// The head of a request is complete. It is in flight until the first result is dropped. The second
    /// is an error when there is no room for another stream.
    pub(super) fn begin<B: Body>(
        client: &Arc<Client>,
        request: &mut Request<B>,
    ) -> (InFlight, Result<(), Exhausted>) {
        let has_body = !request.body().is_end_stream();
        let (head, in_flight) = client.begin_request(has_body);
        let is_stream = request.version() == Version::HTTP_2;
        let owner = owner(client, request.headers());
        let slots = if is_stream {
            to_origin_form(request);
            let slots = stream_slots(request.body());
            client.stream_slots(owner, in_flight, slots)
        } else {
            Ok(None)
        };
        let (slots, admitted) = match slots {
            Ok(slots) => (slots, Ok(())),
            Err(exhausted) => (None, Err(exhausted)),
        };
        let active = Arc::new(Self {
            client: Arc::clone(client),
            received_at: std::time::Instant::now(),
            charges: Mutex::new(Charges {
                owner,
                head,
                body: None,
                slots,
            }),
            stream: is_stream.then(Stream::new),
        });
        request.extensions_mut().insert(Arc::clone(&active));
        (InFlight(active), admitted)
    }

    fn owner(&self) -> Owner {
        self.charges.lock().owner
    }

    fn authenticate(&self, owner: Owner) {
        let mut charges = self.charges.lock();
        charges.owner = owner;
        charges.head = None;
        if let Some(slots) = &mut charges.slots {
            // Without room they stay with the network.
            let _ = slots.try_transfer(owner);
        }
        drop(charges);
        self.client.authenticate(owner);
    }

    /// Charges the complete head to the client of the request. A head from a trusted proxy was charged
    /// to its connection before.
    pub(super) fn transfer_head(&self) -> Result<(), Exhausted> {
        if !matches!(self.client.address(), Owner::Proxied(_)) {
            return Ok(());
        }
        let mut charges = self.charges.lock();
        let owner = charges.owner;
        match &mut charges.head {
            Some(head) => head.transfer(owner),
            None => Ok(()),
        }
    }

    /// The handler has answered; returns to whom the response is charged, and the permit of the body.
    pub(super) fn respond(&self) -> (Owner, Option<Permit>) {
        if let Some(stream) = &self.stream {
            stream.has_response.store(true, Relaxed);
        }
        let mut charges = self.charges.lock();
        charges.head = None;
        (charges.owner, charges.body.take())
    }

    /// Charges the body with `bytes` in all.
    pub(super) fn charge_body(&self, bytes: usize) -> Result<(), Exhausted> {
        let mut charges = self.charges.lock();
        let owner = charges.owner;
        match &mut charges.body {
            Some(body) => body.try_grow(bytes.saturating_sub(body.amount())),
            none => {
                *none = Some(self.client.acquire_body(owner, bytes)?);
                Ok(())
            }
        }
    }

    /// What is read from an HTTP/1.1 connection from now on belongs to this body, or to the next head.
    pub(super) fn set_reading_body(&self, is_reading_body: bool) {
        if !self.is_stream() {
            self.client.set_reading_body(is_reading_body);
        }
    }

    /// Nothing of the body is left to be read.
    pub(super) fn end_body(&self) {
        self.client.end_body();
    }

    /// Whether an HTTP/1.1 connection has a body that has not been read to its end.
    pub(super) fn has_unread_body(&self) -> bool {
        !self.is_stream() && self.client.has_unread_body()
    }

    /// Whether its response is written in pieces, one at a time: that of an HTTP/2 stream.
    pub(super) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Charges a part of the response until the client has read it. A small one is not charged.
    pub(super) fn charge_response(
        self: &Arc<Self>,
        owner: Owner,
        bytes: usize,
    ) -> Result<Option<Charge>, Exhausted> {
        if bytes <= SlowReaders::FREE_BYTES {
            return Ok(None);
        }
        self.slow_readers().charge(self, owner, bytes).map(Some)
    }

    pub(super) fn slow_readers(&self) -> &SlowReaders {
        self.client.slow_readers()
    }

    /// When bytes of the response were last written.
    pub(super) fn written_at(&self) -> Instant {
        match &self.stream {
            Some(stream) => stream.unwritten.lock().written_at,
            None => self.client.written_at(),
        }
    }

    /// Ends the response in the middle. Over HTTP/1.1 that closes the connection.
    pub(super) fn abort(&self) {
        match &self.stream {
            Some(stream) => stream.aborted.notify_one(),
            None => self.client.abort(),
        }
    }

    /// Waits until the response of a stream must end early: it is aborted, or a piece of it was not
    /// written within `write_timeout`.
    pub(super) async fn ends_early(&self, write_timeout: Duration) {
        let Some(stream) = &self.stream else {
            return std::future::pending().await;
        };
        tokio::select! {
            () = stream.aborted.notified() => {}
            () = stream.stalled(write_timeout) => {}
        }
        stream.is_aborted.store(true, Relaxed);
    }

    /// Whether the response has ended early.
    pub(super) fn is_aborted(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.is_aborted.load(Relaxed))
    }

    /// A piece of the response goes to the connection of the stream.
    pub(super) fn note_unwritten(&self) {
        if let Some(stream) = &self.stream {
            stream.unwritten.lock().since = Some(Instant::now());
        }
    }

    /// The piece has been written, or dropped with its stream.
    pub(super) fn note_written(&self) {
        let Some(stream) = &self.stream else {
            return;
        };
        let mut unwritten = stream.unwritten.lock();
        unwritten.since = None;
        unwritten.written_at = Instant::now();
        let waker = unwritten.waker.take();
        drop(unwritten);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the stream has a piece that is not written.
    pub(super) fn is_unwritten(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.unwritten.lock().since.is_some())
    }

    /// Completes when the connection has no piece of the stream that is not written.
    pub(super) fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &self.stream else {
            return Poll::Ready(());
        };
        let mut unwritten = stream.unwritten.lock();
        if unwritten.since.is_none() {
            return Poll::Ready(());
        }
        unwritten.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream {
    fn new() -> Self {
        Self {
            unwritten: Mutex::new(Unwritten {
                since: None,
                written_at: Instant::now(),
                waker: None,
            }),
            aborted: Notify::new(),
            is_aborted: AtomicBool::new(false),
            has_response: AtomicBool::new(false),
        }
    }

    async fn stalled(&self, write_timeout: Duration) {
        loop {
            let (now, since) = (Instant::now(), self.unwritten.lock().since);
            let deadline = since.unwrap_or(now) + write_timeout;
            if since.is_some() && deadline <= now {
                return;
            }
            // A piece that comes in the meantime has a later deadline.
            tokio::time::sleep_until(deadline).await;
        }
    }
}

impl InFlight {
    pub(super) fn request(&self) -> &Arc<ActiveRequest> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let request = &self.0;
        // A handler may keep the request longer.
        let mut charges = request.charges.lock();
        let held = (
            charges.head.take(),
            charges.body.take(),
            charges.slots.take(),
        );
        drop(charges);
        drop(held);
        let stream = request.stream.as_ref();
        let is_cancelled = stream.is_some_and(|stream| !stream.has_response.load(Relaxed));
        request.client.end_request(is_cancelled);
    }
}

/// Behind a trusted proxy, a request is charged to the network of the forwarded address.
fn owner(client: &Client, headers: &HeaderMap) -> Owner {
    let address = client.address();
    let Owner::Proxied(_) = address else {
        return address;
    };
    let forwarded = client_address(headers, |address| client.is_proxy(address));
    forwarded.map_or(address, Owner::network)
}

/// A stream whose body may fill its window has the memory of two connections of HTTP/1.1: each has a
/// read-ahead, and the part of a body that is not charged.
fn stream_slots(body: &impl Body) -> usize {
    let is_small = |bytes| bytes <= u64::from(STREAM_WINDOW_BYTES) / 2;
    if body.size_hint().upper().is_some_and(is_small) {
        1
    } else {
        2
    }
}

/// Gives a request of HTTP/2 the form that it has over HTTP/1.1: a path, and the authority in `Host`.
fn to_origin_form<B>(request: &mut Request<B>) {
    let uri = request.uri();
    let authority = uri.authority().map(ToString::to_string);
    let path = uri.path_and_query().cloned();
    if let Some(host) = authority.and_then(|text| HeaderValue::from_str(&text).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
    if let Some(path) = path {
        *request.uri_mut() = Uri::from(path);
    }
}
