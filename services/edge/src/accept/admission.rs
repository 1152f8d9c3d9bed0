//! Who gets in at the door: so many connections, so many strangers, so many per address.
//! Never: a slot that is not given back.

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

/// A connection's slots; given back when it is dropped.
pub(crate) struct Admitted {
    edge: Arc<Edge>,
    /// The device's; a balancer's until that has said whose the connection is.
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

    /// Gives back what is kept for addresses that stay away.
    pub(crate) fn forget(&self, now: Instant) {
        self.rate.lock().forget_full(now);
    }
}

impl Admitted {
    /// Takes the slots of a new connection, or names the limit that forbids it.
    pub(crate) fn take(edge: &Arc<Edge>, address: IpAddr) -> Result<Self, Limit> {
        edge.admission.take_rate(address)?;
        Self::take_relayed(edge, address)
    }

    /// The same for a connection from a balancer: all devices come from its address, so it has no rate.
    pub(crate) fn take_relayed(edge: &Arc<Edge>, address: IpAddr) -> Result<Self, Limit> {
        let admission = &edge.admission;
        take(&admission.connections, edge.config.device_max_connections)
            .map_err(|()| Limit::MaxConnections)?;
        take(
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

    /// It is a device at this address that the balancer brings; names the limit that forbids it.
    pub(crate) fn introduce(&mut self, device: IpAddr) -> Result<(), Limit> {
        self.address = device;
        self.edge.admission.take_rate(device)
    }

    pub(crate) fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// Where the device is, as far as we know.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// Gives back the slot of a stranger.
    pub(crate) fn authenticated(&mut self) {
        if !std::mem::replace(&mut self.authenticated, true) {
            self.edge
                .admission
                .unauthenticated
                .fetch_sub(1, Ordering::Relaxed);
            self.edge.metrics.unauthenticated.dec();
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.authenticated();
        self.edge
            .admission
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        self.edge.metrics.connections.dec();
    }
}

fn take(counter: &AtomicUsize, limit: usize) -> Result<(), ()> {
    if counter.fetch_add(1, Ordering::Relaxed) < limit {
        return Ok(());
    }
    counter.fetch_sub(1, Ordering::Relaxed);
    Err(())
}
