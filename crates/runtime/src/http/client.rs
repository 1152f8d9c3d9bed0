//! The client of a connection: to whom the connection and its unfinished heads are charged.

use std::{
    net::IpAddr,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{HttpLimits, slow_readers::SlowReaders};
use crate::budget::{Budget, Budgets, Crowds, Exhausted, Kind, Owner, Permit, Scope};

/// Maximum size of a head.
pub(super) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Bytes of an unfinished head that are read without a permit.
pub(super) const FREE_HEAD_BYTES: usize = 4 * 1024;

/// Slots of an HTTP/2 connection among the connections of a port. It has larger buffers than one of
/// HTTP/1.1, and room for that many requests in flight, or half of them with large bodies.
pub(super) const HTTP2_SLOTS: usize = 4;
/// An HTTP/2 connection that has cancelled this many streams more than were answered accepts no
/// further ones, and with as many again it is closed: it makes work and waits for no response.
const MAX_CANCELLED_STREAMS: usize = 100;

/// Between two searches for an idle connection, after one that found none. It bounds what a flood
/// of connections costs while all are in use.
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);

/// The budgets of a port, and its connections that can be closed in favour of others.
pub(super) struct Clients {
    connections: Budget,
    heads: Budget,
    bodies: Budget,
    slow_readers: SlowReaders,
    trusted_proxies: Vec<IpNet>,
    /// The connections that have not authenticated, by network.
    strangers: Mutex<Crowds<Arc<Client>>>,
    /// The connections of organisations.
    known: Mutex<Crowds<Arc<Client>>>,
    /// When an idle one was searched in vain.
    none_idle_at: Mutex<Option<Instant>>,
    next_number: AtomicU64,
    started: tokio::time::Instant,
}

/// The client of one connection. It is charged as its address until it authenticates.
pub(super) struct Client {
    clients: Arc<Clients>,
    number: u64,
    /// The other end of the connection: the client, or a proxy.
    peer: IpAddr,
    address: Owner,
    /// Bytes that were read since the last request, in which the next head begins.
    head_bytes: AtomicUsize,
    /// Whether what is read belongs to a body.
    is_reading_body: AtomicBool,
    is_http2: AtomicBool,
    is_tls: AtomicBool,
    /// Whether a body has not been read to its end.
    has_unread_body: AtomicBool,
    /// Requests whose responses have not ended.
    requests_in_flight: AtomicUsize,
    /// Whether bytes of a response wait for the client to read others.
    is_write_blocked: AtomicBool,
    /// When a request last ended, or the last bytes that waited were written, in microseconds since the
    /// port was opened.
    ended_at_micros: AtomicU64,
    /// Streams that the client has reset before their responses, less those that were answered.
    cancelled: AtomicUsize,
    /// When bytes of a response were last written, in microseconds since the port was opened.
    written_at_micros: AtomicU64,
    /// Notified when the connection is to be closed.
    closing: Notify,
    is_evicted: AtomicBool,
    /// Whether its requests in flight end with the eviction.
    is_aborted: AtomicBool,
    charges: Mutex<Charges>,
}

/// What a client holds, besides what its requests hold.
struct Charges {
    /// `None` when it is over the limit, or has been evicted.
    connection: Option<Permit>,
    eviction: Eviction,
    /// For an unfinished head above [`FREE_HEAD_BYTES`].
    head: Option<Permit>,
}

/// When a connection can be closed in favour of another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eviction {
    Never,
    /// At any time: it has not authenticated, or its organisation is at its share.
    Always,
    /// While no request of this organisation is in flight.
    WhileIdle(Owner),
}

/// A client whose connection is open; dropped when it closes.
pub(super) struct OpenClient(Arc<Client>);

impl Clients {
    pub(super) fn new(limits: &HttpLimits, budgets: &Budgets) -> Arc<Self> {
        // A body of the maximum size fits into the share.
        let share = (limits.bodies_bytes / 4).max(limits.max_body_bytes());
        Arc::new(Self {
            connections: budgets.slots(
                "http_connections",
                limits.connections,
                Kind::quarter_of(limits.connections),
            ),
            heads: budgets.bytes(
                "http_heads",
                limits.heads_bytes,
                Kind::Held {
                    share: (limits.heads_bytes / 4).max(MAX_HEAD_BYTES),
                },
            ),
            bodies: budgets.bytes("http_bodies", limits.bodies_bytes, Kind::Held { share }),
            slow_readers: SlowReaders::new(budgets),
            trusted_proxies: limits.trusted_proxies.clone(),
            strangers: Mutex::default(),
            known: Mutex::default(),
            none_idle_at: Mutex::default(),
            next_number: AtomicU64::default(),
            started: tokio::time::Instant::now(),
        })
    }

    /// Admits a connection. Without room for it, the oldest connection that has not authenticated
    /// is closed: of the same network if that is at its share, otherwise of the network that has
    /// most. If there is none, the oldest idle one of the organisation that has most is closed.
    ///
    /// # Errors
    /// [`Exhausted`] when no connection can be closed.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<OpenClient, Exhausted> {
        let client = self.client(address);
        // Only a connection that replaces no other one is refused, and counted as such.
        self.make_room(client.address, 1);
        let connection = self.connections.try_acquire(client.address, 1)?;
        let mut charges = client.charges.lock();
        charges.connection = Some(connection);
        if let Owner::Network(_) = client.address {
            charges.eviction = Eviction::Always;
            let mut strangers = self.strangers.lock();
            strangers.insert(client.address, client.number, Arc::clone(&client));
        }
        drop(charges);
        Ok(OpenClient(client))
    }

    /// Closes at most this many connections, until the owner has room for as many slots.
    fn make_room(&self, owner: Owner, slots: usize) {
        for _ in 0..slots {
            let Some(scope) = self.connections.exhausted(owner, slots) else {
                return;
            };
            let Some(replaced) = self.pop_replaced(owner, scope) else {
                return;
            };
            replaced.evict();
        }
    }

    /// The connection that is closed for a new one of this owner.
    fn pop_replaced(&self, owner: Owner, scope: Scope) -> Option<Arc<Client>> {
        match scope {
            Scope::Share => self.strangers.lock().pop_oldest(Some(owner)),
            Scope::Total => {
                let stranger = self.strangers.lock().pop_oldest(None);
                stranger.or_else(|| self.pop_idle())
            }
        }
    }

    fn pop_idle(&self) -> Option<Arc<Client>> {
        let mut none_idle_at = self.none_idle_at.lock();
        if none_idle_at.is_some_and(|at| at.elapsed() < SEARCH_INTERVAL) {
            return None;
        }
        let is_idle = |client: &Arc<Client>| !client.is_in_flight();
        let idle = self.known.lock().pop_oldest_fit(is_idle);
        *none_idle_at = idle.is_none().then(Instant::now);
        idle
    }

    /// The client of a connection over the limit, which receives one response.
    pub(super) fn over_limit(self: &Arc<Self>, address: IpAddr) -> OpenClient {
        OpenClient(self.client(address))
    }

    fn remove(&self, client: &Client, eviction: Eviction) {
        // It may be the last reference: it is dropped after the locks.
        let _removed = match eviction {
            Eviction::Never => None,
            Eviction::Always => {
                let mut strangers = self.strangers.lock();
                strangers.remove(client.address, client.number)
            }
            Eviction::WhileIdle(owner) => self.known.lock().remove(owner, client.number),
        };
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let mut proxies = self.trusted_proxies.iter();
        proxies.any(|network| network.contains(&address))
    }

    fn client(self: &Arc<Self>, address: IpAddr) -> Arc<Client> {
        let number = self.next_number.fetch_add(1, Relaxed);
        let peer = address.to_canonical();
        let address = if self.is_proxy(address) {
            Owner::Proxied(number)
        } else {
            Owner::network(address)
        };
        Arc::new(Client {
            clients: Arc::clone(self),
            number,
            peer,
            address,
            head_bytes: AtomicUsize::new(0),
            is_reading_body: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            is_tls: AtomicBool::new(false),
            has_unread_body: AtomicBool::new(false),
            requests_in_flight: AtomicUsize::new(0),
            is_write_blocked: AtomicBool::new(false),
            ended_at_micros: AtomicU64::new(self.micros()),
            cancelled: AtomicUsize::new(0),
            written_at_micros: AtomicU64::new(0),
            closing: Notify::new(),
            is_evicted: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
            charges: Mutex::new(Charges {
                connection: None,
                eviction: Eviction::Never,
                head: None,
            }),
        })
    }
}

impl Client {
    /// Waits until the connection is to be closed.
    pub(super) async fn closing(&self) {
        self.closing.notified().await;
    }

    /// The connection accepts no further requests.
    pub(super) fn close(&self) {
        self.closing.notify_one();
    }

    fn evict(&self) {
        // The new connection takes its place at once.
        let connection = self.charges.lock().connection.take();
        drop(connection);
        self.is_evicted.store(true, Relaxed);
        self.close();
    }

    /// Closes the connection in the middle of a response.
    pub(super) fn abort(&self) {
        self.is_aborted.store(true, Relaxed);
        self.evict();
    }

    /// Whether the connection answers its requests before it closes. One that is evicted does so if a
    /// request has begun since.
    pub(super) fn has_grace(&self) -> bool {
        if self.is_aborted.load(Relaxed) {
            return false;
        }
        !self.is_evicted.load(Relaxed)
            || matches!(self.charges.lock().eviction, Eviction::WhileIdle(_)) && self.is_in_flight()
    }

    /// Whether a request has not been answered, or the end of its response has not been written.
    fn is_in_flight(&self) -> bool {
        self.requests_in_flight.load(Relaxed) > 0 || self.is_write_blocked.load(Relaxed)
    }

    /// Waits until no request was in flight for `within`, since `from` at the earliest. So a client
    /// has this time for a complete head.
    pub(super) async fn idle(&self, from: tokio::time::Instant, within: Duration) {
        loop {
            let (now, is_in_flight) = (tokio::time::Instant::now(), self.is_in_flight());
            let since = if is_in_flight {
                now
            } else {
                self.instant(&self.ended_at_micros).max(from)
            };
            let deadline = since + within;
            if !is_in_flight && deadline <= now {
                return;
            }
            // A request that ends in the meantime has a later deadline.
            tokio::time::sleep_until(deadline).await;
        }
    }

    /// A head is complete. Returns what it holds, and the number of requests that were in flight.
    pub(super) fn begin_request(&self, has_body: bool) -> (Option<Permit>, usize) {
        let in_flight = self.requests_in_flight.fetch_add(1, Relaxed);
        self.set_reading_body(false);
        self.has_unread_body.store(has_body, Relaxed);
        (self.charges.lock().head.take(), in_flight)
    }

    /// A request is no longer in flight.
    pub(super) fn end_request(&self, is_cancelled: bool) {
        self.ended_at_micros.store(self.clients.micros(), Relaxed);
        self.requests_in_flight.fetch_sub(1, Relaxed);
        if is_cancelled {
            let before = self.cancelled.fetch_add(1, Relaxed);
            if (before + 1).is_multiple_of(MAX_CANCELLED_STREAMS) {
                self.close();
            }
        } else {
            // An error is a client that has cancelled none.
            let _ = self
                .cancelled
                .fetch_update(Relaxed, Relaxed, |cancelled| cancelled.checked_sub(1));
        }
    }

    /// The connection has sent the preface of HTTP/2, and takes [`HTTP2_SLOTS`]. Returns whether it has
    /// them: not if it is over the limit, has been evicted, or no other one can be closed for it.
    pub(super) fn use_http2(self: &Arc<Self>) -> bool {
        self.is_http2.store(true, Relaxed);
        // It does not replace itself.
        self.clients.remove(self, Eviction::Always);
        let more = HTTP2_SLOTS - 1;
        self.clients.make_room(self.address, more);
        let mut charges = self.charges.lock();
        let Some(connection) = &mut charges.connection else {
            return false;
        };
        let has_grown = connection.try_grow(more).is_ok();
        if charges.eviction == Eviction::Always {
            let mut strangers = self.clients.strangers.lock();
            strangers.insert(self.address, self.number, Arc::clone(self));
        }
        has_grown
    }

    /// The connection has finished its TLS handshake.
    pub(super) fn use_tls(&self) {
        self.is_tls.store(true, Relaxed);
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls.load(Relaxed)
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    /// The slots of a stream when others are in flight: `None` while the connection has room for it.
    ///
    /// # Errors
    /// [`Exhausted`] when no connection can be closed for it.
    pub(super) fn stream_slots(
        &self,
        owner: Owner,
        in_flight: usize,
        slots: usize,
    ) -> Result<Option<Permit>, Exhausted> {
        if in_flight < HTTP2_SLOTS / slots {
            return Ok(None);
        }
        let connections = &self.clients.connections;
        // At the share of its network, it would be this connection that is closed.
        if connections.exhausted(owner, slots) == Some(Scope::Total) {
            self.clients.make_room(owner, slots);
        }
        connections.try_acquire(owner, slots).map(Some)
    }

    pub(super) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// To whom the connection is charged until it authenticates.
    pub(super) fn address(&self) -> Owner {
        self.address
    }

    /// The organisation that the connection is charged to.
    pub(super) fn organisation(&self) -> Option<Owner> {
        match self.charges.lock().eviction {
            Eviction::WhileIdle(owner) => Some(owner),
            Eviction::Never | Eviction::Always => None,
        }
    }

    pub(super) fn is_proxy(&self, address: IpAddr) -> bool {
        self.clients.is_proxy(address)
    }

    pub(super) fn acquire_body(&self, owner: Owner, bytes: usize) -> Result<Permit, Exhausted> {
        self.clients.bodies.try_acquire(owner, bytes)
    }

    /// A request has authenticated: its connection is charged to the owner, unless it was before.
    pub(super) fn authenticate(self: &Arc<Self>, owner: Owner) {
        let mut charges = self.charges.lock();
        if charges.eviction != Eviction::Always {
            return;
        }
        let Some(connection) = &mut charges.connection else {
            return;
        };
        // Above its share an owner has connections that can be closed in favour of others.
        if !connection.try_transfer(owner) {
            return;
        }
        charges.eviction = Eviction::Never;
        if let Owner::Org(_) = owner {
            charges.eviction = Eviction::WhileIdle(owner);
            let mut known = self.clients.known.lock();
            known.insert(owner, self.number, Arc::clone(self));
        }
        drop(charges);
        self.clients.remove(self, Eviction::Always);
    }

    /// The client has read enough for bytes of a response to be written.
    pub(super) fn note_written(&self) {
        self.written_at_micros.store(self.clients.micros(), Relaxed);
    }

    /// Bytes of a response wait, or no longer do, for the client to read others.
    pub(super) fn set_write_blocked(&self, is_blocked: bool) {
        self.ended_at_micros.store(self.clients.micros(), Relaxed);
        self.is_write_blocked.store(is_blocked, Relaxed);
    }

    /// When bytes of a response were last written.
    pub(super) fn written_at(&self) -> tokio::time::Instant {
        self.instant(&self.written_at_micros)
    }

    fn instant(&self, micros: &AtomicU64) -> tokio::time::Instant {
        self.clients.started + Duration::from_micros(micros.load(Relaxed))
    }

    pub(super) fn slow_readers(&self) -> &SlowReaders {
        &self.clients.slow_readers
    }

    /// What is read from now on belongs to a body, or to the next head.
    pub(super) fn set_reading_body(&self, is_reading_body: bool) {
        self.is_reading_body.store(is_reading_body, Relaxed);
        self.head_bytes.store(0, Relaxed);
    }

    pub(super) fn is_reading_body(&self) -> bool {
        self.is_reading_body.load(Relaxed)
    }

    /// The body of an HTTP/1.1 request has been read to its end.
    pub(super) fn end_body(&self) {
        self.has_unread_body.store(false, Relaxed);
    }

    pub(super) fn has_unread_body(&self) -> bool {
        self.has_unread_body.load(Relaxed)
    }

    /// The rest of the time, of at most `timeout`, in which the client may still be sending what is not
    /// read: a body of a request that has ended since, a head, or frames. `None` if there is none.
    pub(super) fn linger(&self, timeout: Duration) -> Option<Duration> {
        if self.is_http2() || self.head_bytes.load(Relaxed) > 0 {
            return Some(timeout);
        }
        let until = self.instant(&self.ended_at_micros) + timeout;
        let left = until.checked_duration_since(tokio::time::Instant::now());
        left.filter(|left| self.has_unread_body() && !left.is_zero())
    }

    /// Charges the unfinished head before more of it is read. A head above the free amount is
    /// charged with the maximum, which is the size of its buffer.
    pub(super) fn charge_head(&self) -> Result<(), Exhausted> {
        if self.head_bytes.load(Relaxed) < FREE_HEAD_BYTES {
            return Ok(());
        }
        let mut charges = self.charges.lock();
        if charges.head.is_none() {
            let heads = &self.clients.heads;
            charges.head = Some(heads.try_acquire(self.address, MAX_HEAD_BYTES)?);
        }
        Ok(())
    }

    pub(super) fn count_head(&self, bytes: usize) {
        self.head_bytes.fetch_add(bytes, Relaxed);
    }
}

impl Deref for OpenClient {
    type Target = Arc<Client>;

    fn deref(&self) -> &Arc<Client> {
        &self.0
    }
}

impl Drop for OpenClient {
    fn drop(&mut self) {
        // A handler may keep the client longer.
        let mut charges = self.charges.lock();
        let held = (charges.connection.take(), charges.head.take());
        let eviction = std::mem::replace(&mut charges.eviction, Eviction::Never);
        drop(charges);
        drop(held);
        self.clients.remove(self, eviction);
    }
}
