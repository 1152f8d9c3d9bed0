//! The client of a connection: to whom the connection, its heads and its bodies are charged.

use std::{
    net::IpAddr,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::http::{Extensions, Request};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    HttpLimits,
    forwarded::client_address,
    slow_readers::{Charge, SlowReaders},
};
use crate::budget::{Budget, Budgets, Crowds, Exhausted, Kind, Owner, Permit, Scope};

/// Maximum size of a head.
pub(super) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Bytes of an unfinished head that are read without a permit.
pub(super) const FREE_HEAD_BYTES: usize = 4 * 1024;

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
    /// Requests whose responses have not ended.
    requests_in_flight: AtomicUsize,
    /// When bytes of a response were last written, in microseconds since the port was opened.
    written_at_micros: AtomicU64,
    evicted: Notify,
    /// Whether its requests in flight end with the eviction.
    is_aborted: AtomicBool,
    charges: Mutex<Charges>,
}

/// What a client holds.
struct Charges {
    /// To whom the current request is charged.
    owner: Owner,
    connection: Option<Permit>,
    eviction: Eviction,
    /// For a head above [`FREE_HEAD_BYTES`], until its request has authenticated or is answered.
    head: Option<Permit>,
    body: Option<Permit>,
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

/// A request whose response has not ended.
pub(super) struct InFlight(Arc<Client>);

/// A client whose connection is open; dropped when it closes.
pub(super) struct OpenClient(Arc<Client>);

/// In the extensions of a request: its client, and when its head was complete.
#[derive(Clone)]
struct Received {
    client: Arc<Client>,
    at: Instant,
}

/// Returns when the head of the request with these extensions was complete; now for a request that no
/// server of this module has received.
#[must_use]
pub fn received_at(extensions: &Extensions) -> Instant {
    let received = extensions.get::<Received>();
    received.map_or_else(Instant::now, |received| received.at)
}

/// Returns the address from which the request with these extensions was received: that of its client,
/// or of the last proxy. `None` for a request that no server of this module has received.
#[must_use]
pub fn peer_address(extensions: &Extensions) -> Option<IpAddr> {
    let received = extensions.get::<Received>()?;
    Some(received.client.peer)
}

/// Charges the request with these extensions to an authenticated owner: its body, and its
/// connection unless that was charged to another owner before.
pub fn authenticated(extensions: &Extensions, owner: Owner) {
    if let Some(Received { client, .. }) = extensions.get() {
        client.authenticate(owner);
    }
}

/// Returns the owner that the request with these extensions is charged to. Until it has
/// authenticated, that is the organisation that its connection is charged to, if an earlier request
/// has authenticated, otherwise the network of its client. Behind a trusted proxy, that is the
/// network of the forwarded address, or the connection if there is none. [`Owner::System`] for a
/// request that no server of this module has received.
#[must_use]
pub fn caller(extensions: &Extensions) -> Owner {
    let Some(Received { client, .. }) = extensions.get() else {
        return Owner::System;
    };
    let charges = client.charges.lock();
    match charges.eviction {
        Eviction::WhileIdle(owner) if charges.owner == client.address => owner,
        _ => charges.owner,
    }
}

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
        if let Some(scope) = self.connections.exhausted(client.address, 1)
            && let Some(replaced) = self.pop_replaced(client.address, scope)
        {
            replaced.evict();
        }
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
            requests_in_flight: AtomicUsize::new(0),
            written_at_micros: AtomicU64::new(0),
            evicted: Notify::new(),
            is_aborted: AtomicBool::new(false),
            charges: Mutex::new(Charges {
                owner: address,
                connection: None,
                eviction: Eviction::Never,
                head: None,
                body: None,
            }),
        })
    }
}

impl Client {
    /// Waits until the connection is to be closed in favour of another one.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn evict(&self) {
        // The new connection takes its place at once.
        let connection = self.charges.lock().connection.take();
        drop(connection);
        self.evicted.notify_one();
    }

    /// Closes the connection in the middle of a response.
    pub(super) fn abort(&self) {
        self.is_aborted.store(true, Relaxed);
        self.evict();
    }

    /// Whether an evicted connection answers its requests first: one may have begun since.
    pub(super) fn has_grace(&self) -> bool {
        !self.is_aborted.load(Relaxed)
            && matches!(self.charges.lock().eviction, Eviction::WhileIdle(_))
            && self.is_in_flight()
    }

    fn is_in_flight(&self) -> bool {
        self.requests_in_flight.load(Relaxed) > 0
    }

    /// The head of a request is complete. The request is in flight until the result is dropped.
    /// Behind a trusted proxy, it is charged to the network of the forwarded address.
    pub(super) fn begin_request<B>(self: &Arc<Self>, request: &mut Request<B>) -> InFlight {
        self.requests_in_flight.fetch_add(1, Relaxed);
        self.set_reading_body(false);
        let mut owner = self.address;
        if let Owner::Proxied(_) = owner {
            let forwarded =
                client_address(request.headers(), |address| self.clients.is_proxy(address));
            owner = forwarded.map_or(owner, Owner::network);
        }
        let mut charges = self.charges.lock();
        charges.owner = owner;
        charges.body = None;
        drop(charges);
        request.extensions_mut().insert(Received {
            client: Arc::clone(self),
            at: Instant::now(),
        });
        InFlight(Arc::clone(self))
    }

    /// Charges the complete head to the client of the request. A head from a trusted proxy was charged
    /// to its connection before.
    pub(super) fn transfer_head(&self) -> Result<(), Exhausted> {
        if !matches!(self.address, Owner::Proxied(_)) {
            return Ok(());
        }
        let mut charges = self.charges.lock();
        let owner = charges.owner;
        match &mut charges.head {
            Some(head) => head.transfer(owner),
            None => Ok(()),
        }
    }

    fn authenticate(self: &Arc<Self>, owner: Owner) {
        let mut charges = self.charges.lock();
        charges.owner = owner;
        charges.head = None;
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

    /// Ends a request; returns to whom its response is charged, and the permit of its body.
    pub(super) fn end_request(&self) -> (Owner, Option<Permit>) {
        let mut charges = self.charges.lock();
        charges.head = None;
        (charges.owner, charges.body.take())
    }

    /// The client has read enough for bytes of a response to be written.
    pub(super) fn note_written(&self) {
        let micros = self.clients.started.elapsed().as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.written_at_micros.store(micros, Relaxed);
    }

    /// When bytes of a response were last written.
    pub(super) fn written_at(&self) -> tokio::time::Instant {
        self.clients.started + Duration::from_micros(self.written_at_micros.load(Relaxed))
    }

    pub(super) fn slow_readers(&self) -> &SlowReaders {
        &self.clients.slow_readers
    }

    /// Charges a piece of a response until the client has read it. A small one is not charged.
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

    /// What is read from now on belongs to a body, or to the next head.
    pub(super) fn set_reading_body(&self, is_reading_body: bool) {
        self.is_reading_body.store(is_reading_body, Relaxed);
        self.head_bytes.store(0, Relaxed);
    }

    pub(super) fn is_reading_body(&self) -> bool {
        self.is_reading_body.load(Relaxed)
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

    /// Charges the body of the current request with `bytes` in all.
    pub(super) fn charge_body(&self, bytes: usize) -> Result<(), Exhausted> {
        let mut charges = self.charges.lock();
        let owner = charges.owner;
        match &mut charges.body {
            Some(body) => body.try_grow(bytes.saturating_sub(body.amount())),
            none => {
                *none = Some(self.clients.bodies.try_acquire(owner, bytes)?);
                Ok(())
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests_in_flight.fetch_sub(1, Relaxed);
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
        let held = (
            charges.connection.take(),
            charges.head.take(),
            charges.body.take(),
        );
        let eviction = std::mem::replace(&mut charges.eviction, Eviction::Never);
        drop(charges);
        drop(held);
        self.clients.remove(self, eviction);
    }
}
