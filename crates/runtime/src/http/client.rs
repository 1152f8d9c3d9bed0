//! The client of a connection: to whom the connection, its heads and its bodies are charged.

use std::{
    net::IpAddr,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use axum::http::Extensions;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{HttpLimits, strangers::Strangers};
use crate::budget::{Budget, Budgets, Exhausted, Kind, Owner, Permit, Scope};

/// Maximum size of a head.
pub(super) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Bytes of an unfinished head that are read without a permit.
pub(super) const FREE_HEAD_BYTES: usize = 4 * 1024;

/// The budgets of a port, and its connections that have not authenticated.
pub(super) struct Clients {
    connections: Budget,
    heads: Budget,
    bodies: Budget,
    trusted_proxies: Vec<IpNet>,
    strangers: Strangers,
    next_number: AtomicU64,
}

/// The client of one connection. It is charged as its address until it authenticates.
pub(super) struct Client {
    clients: Arc<Clients>,
    number: u64,
    address: Owner,
    /// Bytes that were read since the last request, in which the next head begins.
    head_bytes: AtomicUsize,
    /// Whether what is read belongs to a body.
    is_reading_body: AtomicBool,
    evicted: Notify,
    charges: Mutex<Charges>,
}

/// What a client holds.
struct Charges {
    /// To whom the current request is charged.
    owner: Owner,
    connection: Option<Permit>,
    /// Whether the connection can be closed in favour of another one.
    is_stranger: bool,
    /// For a head above [`FREE_HEAD_BYTES`], until its request has authenticated or is answered.
    head: Option<Permit>,
    body: Option<Permit>,
}

/// A client whose connection is open; dropped when it closes.
pub(super) struct OpenClient(Arc<Client>);

/// The client in the extensions of its requests.
#[derive(Clone)]
struct RequestClient(Arc<Client>);

/// Charges the request with these extensions to an authenticated owner: its body, and its
/// connection unless that was charged to another owner before.
pub fn authenticated(extensions: &Extensions, owner: Owner) {
    if let Some(RequestClient(client)) = extensions.get() {
        client.authenticate(owner);
    }
}

impl Clients {
    pub(super) fn new(limits: &HttpLimits, budgets: &Budgets) -> Arc<Self> {
        let half = (limits.connections / 2).max(1);
        // A body of the maximum size fits into the share.
        let share = (limits.bodies_bytes / 4).max(limits.max_body_bytes());
        Arc::new(Self {
            connections: budgets.budget(
                "http_connections",
                limits.connections,
                Kind::Held { share: half },
            ),
            heads: budgets.budget(
                "http_heads",
                limits.heads_bytes,
                Kind::quarter_of(limits.heads_bytes),
            ),
            bodies: budgets.budget("http_bodies", limits.bodies_bytes, Kind::Held { share }),
            trusted_proxies: limits.trusted_proxies.clone(),
            strangers: Strangers::default(),
            next_number: AtomicU64::default(),
        })
    }

    /// Admits a connection. Without room for it, the oldest connection that has not authenticated
    /// is closed: of the same network if that is at its share, otherwise of the network that has
    /// most.
    ///
    /// # Errors
    /// [`Exhausted`] when no connection can be closed.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<OpenClient, Exhausted> {
        let client = self.client(address);
        let connection = self.connections.try_acquire(client.address, 1);
        let connection = connection.or_else(|refused| {
            let network = (refused.scope == Scope::Share).then_some(client.address);
            let oldest = self.strangers.pop_oldest(network).ok_or(refused)?;
            oldest.evict();
            self.connections.try_acquire(client.address, 1)
        })?;
        let is_stranger = matches!(client.address, Owner::Network(_));
        let mut charges = client.charges.lock();
        charges.connection = Some(connection);
        charges.is_stranger = is_stranger;
        drop(charges);
        if is_stranger {
            let strangers = &self.strangers;
            strangers.insert(client.address, client.number, Arc::clone(&client));
        }
        Ok(OpenClient(client))
    }

    /// The client of a connection over the limit, which receives one response.
    pub(super) fn over_limit(self: &Arc<Self>, address: IpAddr) -> OpenClient {
        OpenClient(self.client(address))
    }

    fn client(self: &Arc<Self>, address: IpAddr) -> Arc<Client> {
        let number = self.next_number.fetch_add(1, Relaxed);
        let address = address.to_canonical();
        let mut proxies = self.trusted_proxies.iter();
        let address = if proxies.any(|network| network.contains(&address)) {
            Owner::Proxied(number)
        } else {
            Owner::network(address)
        };
        Arc::new(Client {
            clients: Arc::clone(self),
            number,
            address,
            head_bytes: AtomicUsize::new(0),
            is_reading_body: AtomicBool::new(false),
            evicted: Notify::new(),
            charges: Mutex::new(Charges {
                owner: address,
                connection: None,
                is_stranger: false,
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

    /// The head of a request is complete.
    pub(super) fn begin_request(self: &Arc<Self>, extensions: &mut Extensions) {
        self.set_reading_body(false);
        let mut charges = self.charges.lock();
        charges.owner = self.address;
        charges.body = None;
        drop(charges);
        extensions.insert(RequestClient(Arc::clone(self)));
    }

    fn authenticate(&self, owner: Owner) {
        let mut charges = self.charges.lock();
        charges.owner = owner;
        charges.head = None;
        if !charges.is_stranger {
            return;
        }
        let Some(connection) = &mut charges.connection else {
            return;
        };
        // Above its share an owner has connections that can be closed in favour of others.
        if connection.transfer(owner).is_ok() {
            charges.is_stranger = false;
            drop(charges);
            let strangers = &self.clients.strangers;
            strangers.remove(self.address, self.number);
        }
    }

    /// Ends a request; returns the permit of its body.
    pub(super) fn end_request(&self) -> Option<Permit> {
        let mut charges = self.charges.lock();
        charges.head = None;
        charges.body.take()
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
        drop(charges);
        drop(held);
        self.clients.strangers.remove(self.address, self.number);
    }
}
