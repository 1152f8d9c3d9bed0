//! Editions of the tools of an organisation. All listeners at `/mcp` share them.
//!
//! An edition begins when a registration changes. A device that reconnects with an unchanged
//! registration begins none, which hashes of all registrations detect.

use std::{collections::HashMap, hash::RandomState, sync::Arc};

use parking_lot::Mutex;
use switchboard_bus::{CatalogEvent, CatalogWatch};
use switchboard_protocol::{
    id::{DeviceId, OrgId},
    schema::Digest,
};
use tokio::sync::watch;
use tracing::Span;

use crate::Gateway;

/// Devices of one organisation whose registrations are cached, at some 16 bytes each. Protects
/// memory. Further devices begin an edition whenever they connect.
const CACHE_CAPACITY: usize = 65_536;
/// Connected devices read at a time.
const PAGE_LEN: usize = 1_000;

/// The organisations with listeners.
#[derive(Default)]
pub(in crate::mcp) struct CatalogEditions(Mutex<HashMap<OrgId, watch::Sender<Edition>>>);

/// Increases when the list of tools may have changed. 0 until the registrations are read.
type Edition = u64;

struct OrgCatalog {
    gateway: Arc<Gateway>,
    org: OrgId,
    events: CatalogWatch,
    /// Hashes of registrations by hashes of device IDs.
    registrations: HashMap<u64, u64>,
    hasher: RandomState,
}

impl CatalogEditions {
    /// The editions of an organisation from now on. `None` on a node without catalog events.
    pub(super) async fn subscribe(
        gateway: &Arc<Gateway>,
        org: OrgId,
    ) -> Option<watch::Receiver<Edition>> {
        let mut editions = Self::join(gateway, org)?;
        // A list that is read after this is at least as new as the current edition.
        let ready = editions.wait_for(|edition| *edition > 0).await.is_ok();
        ready.then(|| {
            editions.mark_unchanged();
            editions
        })
    }

    fn join(gateway: &Arc<Gateway>, org: OrgId) -> Option<watch::Receiver<Edition>> {
        let catalogs = &gateway.mcp.editions;
        let mut orgs = catalogs.0.lock();
        if let Some(editions) = orgs.get(&org) {
            return Some(editions.subscribe());
        }
        // Subscribe before reading, so that no change in between is missed.
        let catalog = OrgCatalog {
            gateway: Arc::clone(gateway),
            org,
            events: gateway.bus.watch_catalog_of(org)?,
            registrations: HashMap::new(),
            hasher: RandomState::new(),
        };
        let (editions, subscriber) = watch::channel(0);
        orgs.insert(org, editions.clone());
        let shutdown = &gateway.mcp.shutdown;
        shutdown.spawn_in(Span::none(), catalog.run(editions));
        Some(subscriber)
    }

    /// Removes an organisation without subscribers.
    fn remove_unused(&self, org: OrgId, editions: &watch::Sender<Edition>) -> bool {
        let mut orgs = self.0.lock();
        let unused = editions.receiver_count() == 0;
        if unused {
            orgs.remove(&org);
        }
        unused
    }
}

impl OrgCatalog {
    /// Watches the organisation's devices while it has subscribers.
    async fn run(mut self, editions: watch::Sender<Edition>) {
        let gateway = Arc::clone(&self.gateway);
        let (catalogs, shutdown) = (&gateway.mcp.editions, &gateway.mcp.shutdown);
        self.read().await;
        editions.send_modify(|edition| *edition += 1);
        loop {
            let event = tokio::select! {
                event = self.events.next() => event,
                () = editions.closed() => {
                    if catalogs.remove_unused(self.org, &editions) {
                        return;
                    }
                    continue;
                }
                () = shutdown.draining() => return,
            };
            if self.is_change(event).await {
                editions.send_modify(|edition| *edition += 1);
            }
        }
    }

    async fn is_change(&mut self, event: CatalogEvent) -> bool {
        match event {
            // Tools stay listed while their device is not connected.
            CatalogEvent::Services {
                device,
                digest: Some(digest),
            } => self.insert(&device.device, digest),
            CatalogEvent::Lagged => {
                self.read().await;
                true
            }
            _ => false,
        }
    }

    /// Stores the registration of a device. Returns whether it has changed.
    fn insert(&mut self, device: &DeviceId, digest: Digest) -> bool {
        use std::hash::BuildHasher as _;
        let (device, digest) = (self.hasher.hash_one(device), self.hasher.hash_one(digest));
        match self.registrations.get_mut(&device) {
            Some(stored) => std::mem::replace(stored, digest) != digest,
            None => {
                if self.registrations.len() < CACHE_CAPACITY {
                    self.registrations.insert(device, digest);
                }
                true
            }
        }
    }

    /// Reads the registrations from the database and then from the directory of connected devices,
    /// which is newer. A device that could not be read begins an edition when it connects.
    async fn read(&mut self) {
        self.registrations.clear();
        let gateway = Arc::clone(&self.gateway);
        match gateway.store.registrations(self.org, CACHE_CAPACITY).await {
            Ok(stored) => stored.into_iter().for_each(|(device, digest)| {
                self.insert(&device, digest);
            }),
            Err(error) => tracing::warn!(
                error = error.report(),
                "registrations could not be read from the database; listeners may be notified of unchanged tools"
            ),
        }
        if let Err(error) = self.read_live(&gateway).await {
            tracing::warn!(%error, "connected devices could not be read; listeners may be notified of unchanged tools");
        }
    }

    async fn read_live(&mut self, gateway: &Gateway) -> Result<(), switchboard_bus::BusError> {
        let mut after: Option<DeviceId> = None;
        loop {
            let start = after.as_ref().map(DeviceId::as_str);
            let page = gateway.bus.list(self.org, start, PAGE_LEN).await?;
            for (device, presence) in &page {
                if let Some(digest) = presence.digest {
                    self.insert(device, digest);
                }
            }
            let complete = page.len() < PAGE_LEN || self.registrations.len() >= CACHE_CAPACITY;
            after = page.into_iter().next_back().map(|(device, _)| device);
            if complete {
                return Ok(());
            }
        }
    }
}
