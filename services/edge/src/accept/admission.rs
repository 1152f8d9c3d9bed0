//! Connection limits: in total, before AUTH, and per second and address.

use std::{
    future::pending,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use switchboard_runtime::budget::{Budgets, Exhausted, Owner};
use tokio::time::Instant;

use super::{
    rate::AcceptRate,
    tls_sessions::{TlsSession, TlsSessions},
    unauthenticated::{Slot, Unauthenticated},
};
use crate::{config::Config, edge::Edge, metrics::Limit};

/// The counters behind the limits.
pub(crate) struct Admission {
    connections: AtomicUsize,
    unauthenticated: Unauthenticated,
    tls: TlsSessions,
    rate: Mutex<AcceptRate>,
}

/// The slots of one connection, released when it is dropped.
pub(crate) struct ConnectionPermit {
    edge: Arc<Edge>,
    /// The device's address; the balancer's until its PROXY header is read. IPv4 is mapped: unlike
    /// [`IpAddr`], this needs no tag, and with the 8 bytes of a tag a task would need 128 more.
    address: Ipv6Addr,
    /// `None` once the connection has authenticated.
    slot: Option<Box<Slot>>,
}

impl Admission {
    pub(crate) fn new(config: &Config, budgets: &Budgets) -> Self {
        Self {
            connections: AtomicUsize::new(0),
            unauthenticated: Unauthenticated::new(budgets, config.device_max_unauthenticated),
            tls: TlsSessions::new(budgets, config.device_tls_handshake_bytes),
            rate: Mutex::new(AcceptRate::new(config.device_accepts_per_address_per_s)),
        }
    }

    fn take_rate(&self, address: IpAddr) -> Result<(), Limit> {
        if self.rate.lock().take(address, std::time::Instant::now()) {
            Ok(())
        } else {
            Err(Limit::AcceptsPerAddress)
        }
    }

    /// Frees the rate state of addresses that opened no connection recently.
    pub(crate) fn remove_full_buckets(&self, now: std::time::Instant) {
        self.rate.lock().remove_full(now);
    }
}

impl ConnectionPermit {
    /// Acquires the slots of a new connection.
    ///
    /// # Errors
    /// The limit that forbids it.
    pub(crate) fn acquire(edge: &Arc<Edge>, address: IpAddr) -> Result<Self, Limit> {
        edge.admission.take_rate(address)?;
        Self::enter(edge, address, Some(Owner::network(address)))
    }

    /// The same for a connection from a balancer. All its devices share its address, so the rate
    /// and the network apply later, in [`Self::set_device_address`].
    pub(crate) fn acquire_proxied(edge: &Arc<Edge>, address: IpAddr) -> Result<Self, Limit> {
        Self::enter(edge, address, None)
    }

    /// When the limits are reached, evicts another connection that has not authenticated.
    fn enter(edge: &Arc<Edge>, address: IpAddr, network: Option<Owner>) -> Result<Self, Limit> {
        let (admission, config) = (&edge.admission, &edge.config);
        let open = admission.connections.fetch_add(1, Ordering::Relaxed);
        let refuse = |limit| {
            admission.connections.fetch_sub(1, Ordering::Relaxed);
            limit
        };
        if open >= config.device_max_connections {
            if !admission.unauthenticated.evict_one() {
                return Err(refuse(Limit::MaxConnections));
            }
            edge.metrics.shed.inc(Limit::MaxConnections);
        }
        let deadline = Instant::now() + Duration::from_millis(config.device_auth_timeout_ms);
        let entered = admission.unauthenticated.enter(network, deadline);
        let (slot, has_evicted) = entered.ok_or_else(|| refuse(Limit::MaxUnauthenticated))?;
        if has_evicted {
            edge.metrics.shed.inc(Limit::MaxUnauthenticated);
        }
        edge.metrics.connections.inc();
        edge.metrics.unauthenticated.inc();
        Ok(Self {
            edge: Arc::clone(edge),
            address: mapped(address),
            slot: Some(slot),
        })
    }

    /// Sets the address that the balancer's PROXY header names.
    ///
    /// # Errors
    /// The limit that forbids a connection of this device.
    pub(crate) fn set_device_address(&mut self, device: IpAddr) -> Result<(), Limit> {
        self.address = mapped(device);
        self.edge.admission.take_rate(device)?;
        if let Some(slot) = &mut self.slot {
            let unauthenticated = &self.edge.admission.unauthenticated;
            unauthenticated.set_network(slot, Owner::network(device));
        }
        Ok(())
    }

    pub(crate) fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    pub(crate) const fn address(&self) -> IpAddr {
        self.address.to_canonical()
    }

    /// The network that is charged until the connection has authenticated.
    pub(crate) const fn network(&self) -> Owner {
        Owner::network(self.address())
    }

    /// The time by which the connection must have authenticated.
    pub(crate) fn deadline(&self) -> Instant {
        let slot = self.slot.as_ref();
        slot.map_or_else(Instant::now, |slot| slot.deadline)
    }

    /// Completes when the connection must close for a newer one. Never completes once it has
    /// authenticated.
    pub(crate) async fn evicted(&self) {
        match &self.slot {
            Some(slot) => slot.evicted.notified().await,
            None => pending().await,
        }
    }

    /// Waits until there is memory for the TLS session of this connection.
    ///
    /// # Errors
    /// When there is none in time.
    pub(crate) async fn acquire_tls(&self) -> Result<Option<TlsSession>, Exhausted> {
        let Some(slot) = &self.slot else {
            return Ok(None);
        };
        let shed = &self.edge.metrics.shed;
        let on_eviction = || shed.inc(Limit::TlsHandshakes);
        let tls = &self.edge.admission.tls;
        let session = tls.acquire(self.network(), &slot.evicted, slot.deadline, on_eviction);
        session.await.map(Some)
    }

    /// Keeps the memory of the TLS session until the connection has authenticated.
    pub(crate) fn hold_tls(&mut self, session: Option<TlsSession>) {
        if let Some(slot) = &mut self.slot {
            slot.tls = session;
        }
    }

    /// Releases what the connection holds as an unauthenticated one.
    pub(crate) fn set_authenticated(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.edge.admission.unauthenticated.leave(&slot);
            self.edge.metrics.unauthenticated.dec();
        }
    }
}

const fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.set_authenticated();
        self.edge
            .admission
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        self.edge.metrics.connections.dec();
    }
}
