//! Connection limits: in total, before AUTH, and per second and address.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

use super::rate::AcceptRate;
use crate::{config::Config, edge::Edge, metrics::Limit};

/// The counters behind the limits.
#[derive(Debug)]
pub(crate) struct Admission {
    connections: AtomicUsize,
    unauthenticated: AtomicUsize,
    rate: Mutex<AcceptRate>,
}

/// The slots of one connection, released when it is dropped.
pub(crate) struct ConnectionPermit {
    edge: Arc<Edge>,
    /// The device's address; the balancer's until its PROXY header is read.
    address: IpAddr,
    authenticated: bool,
}

impl Admission {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            connections: AtomicUsize::new(0),
            unauthenticated: AtomicUsize::new(0),
            rate: Mutex::new(AcceptRate::new(config.device_accepts_per_address_per_s)),
        }
    }

    fn take_rate(&self, address: IpAddr) -> Result<(), Limit> {
        if self.rate.lock().take(address, Instant::now()) {
            Ok(())
        } else {
            Err(Limit::AcceptsPerAddress)
        }
    }

    /// Frees the rate state of addresses that opened no connection recently.
    pub(crate) fn remove_full_buckets(&self, now: Instant) {
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
        Self::acquire_proxied(edge, address)
    }

    /// The same for a connection from a balancer. All its devices share its address, so the rate
    /// applies later, in [`Self::set_device_address`].
    pub(crate) fn acquire_proxied(edge: &Arc<Edge>, address: IpAddr) -> Result<Self, Limit> {
        let admission = &edge.admission;
        increment(&admission.connections, edge.config.device_max_connections)
            .map_err(|()| Limit::MaxConnections)?;
        increment(
            &admission.unauthenticated,
            edge.config.device_max_unauthenticated,
        )
        .map_err(|()| {
            admission.connections.fetch_sub(1, Ordering::Relaxed);
            Limit::MaxUnauthenticated
        })?;
        edge.metrics.connections.inc();
        edge.metrics.unauthenticated.inc();
        Ok(Self {
            edge: Arc::clone(edge),
            address,
            authenticated: false,
        })
    }

    /// Sets the address that the balancer's PROXY header names.
    ///
    /// # Errors
    /// The limit that forbids a connection of this device.
    pub(crate) fn set_device_address(&mut self, device: IpAddr) -> Result<(), Limit> {
        self.address = device;
        self.edge.admission.take_rate(device)
    }

    pub(crate) fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// Releases the slot among the unauthenticated connections.
    pub(crate) fn set_authenticated(&mut self) {
        if !std::mem::replace(&mut self.authenticated, true) {
            self.edge
                .admission
                .unauthenticated
                .fetch_sub(1, Ordering::Relaxed);
            self.edge.metrics.unauthenticated.dec();
        }
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

fn increment(counter: &AtomicUsize, limit: usize) -> Result<(), ()> {
    if counter.fetch_add(1, Ordering::Relaxed) < limit {
        return Ok(());
    }
    counter.fetch_sub(1, Ordering::Relaxed);
    Err(())
}
