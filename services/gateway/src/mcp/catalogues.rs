//! What the devices of an organisation offer, as far as those who listen at `/mcp` were told: one memory for all of
//! them, so that a device which comes back as it was is no news.
//! Never: a device's services; a few bytes of their digest say whether they are others.

use std::{collections::HashMap, hash::RandomState, sync::Arc};

use parking_lot::Mutex;
use switchboard_bus::{OfferChange, OfferChanges};
use switchboard_protocol::{
    id::{DeviceId, OrgId},
    schema::Digest,
};
use tokio::sync::watch;
use tracing::Span;

use crate::Gateway;

/// Devices of one organisation that are remembered, at 16 bytes and some each. Protects memory; of those beyond, each
/// coming is told.
const REMEMBERED: usize = 65_536;
/// Live devices that are read at a time.
const A_PAGE: usize = 1_000;

/// The organisations that somebody listens to.
#[derive(Default)]
pub(super) struct Catalogues(Mutex<HashMap<OrgId, watch::Sender<Edition>>>);

/// Grows whenever a list of tools may be another than before; 0 until it is known what there is.
type Edition = u64;

struct Catalogue {
    gateway: Arc<Gateway>,
    org: OrgId,
    events: OfferChanges,
    known: HashMap<u64, u64>,
    hashes: RandomState,
}

impl Catalogues {
    /// The editions of an organisation from this moment on; `None` where this node hears of no changes.
    pub(super) async fn follow(
        gateway: &Arc<Gateway>,
        org: OrgId,
    ) -> Option<watch::Receiver<Edition>> {
        let mut editions = Self::join(gateway, org)?;
        // Whoever asks for the list after this reads what is known here, or something newer.
        let known = editions.wait_for(|edition| *edition > 0).await.is_ok();
        known.then(|| {
            editions.mark_unchanged();
            editions
        })
    }

    fn join(gateway: &Arc<Gateway>, org: OrgId) -> Option<watch::Receiver<Edition>> {
        let catalogues = &gateway.mcp.catalogues;
        let mut followed = catalogues.0.lock();
        if let Some(editions) = followed.get(&org) {
            return Some(editions.subscribe());
        }
        // First the subscription, then the look at what is there: nothing falls in between.
        let catalogue = Catalogue {
            gateway: Arc::clone(gateway),
            org,
            events: gateway.bus.offer_changes()?,
            known: HashMap::new(),
            hashes: RandomState::new(),
        };
        let (editions, follower) = watch::channel(0);
        followed.insert(org, editions.clone());
        let shutdown = &gateway.mcp.shutdown;
        shutdown.spawn_in(Span::none(), catalogue.keep(editions));
        Some(follower)
    }

    /// Forgets an organisation that nobody follows any more.
    fn leave(&self, org: OrgId, editions: &watch::Sender<Edition>) -> bool {
        let mut followed = self.0.lock();
        let left = editions.receiver_count() == 0;
        if left {
            followed.remove(&org);
        }
        left
    }
}

impl Catalogue {
    /// Follows the organisation's devices until nobody follows it.
    async fn keep(mut self, editions: watch::Sender<Edition>) {
        let gateway = Arc::clone(&self.gateway);
        let (catalogues, shutdown) = (&gateway.mcp.catalogues, &gateway.mcp.shutdown);
        self.read().await;
        editions.send_modify(|edition| *edition += 1);
        loop {
            let event = tokio::select! {
                event = self.events.next() => event,
                () = editions.closed() => {
                    if catalogues.leave(self.org, &editions) {
                        return;
                    }
                    continue;
                }
                () = shutdown.draining() => return,
            };
            if self.is_news(event).await {
                editions.send_modify(|edition| *edition += 1);
            }
        }
    }

    async fn is_news(&mut self, event: OfferChange) -> bool {
        match event {
            // What a device offered stays listed while it sleeps.
            OfferChange::Services {
                device,
                digest: Some(digest),
            } => device.org == self.org && self.note(&device.device, digest),
            OfferChange::Missed => {
                self.read().await;
                true
            }
            _ => false,
        }
    }

    /// Notes what a device offers; whether that is something else than before.
    fn note(&mut self, device: &DeviceId, digest: Digest) -> bool {
        use std::hash::BuildHasher as _;
        let (device, digest) = (self.hashes.hash_one(device), self.hashes.hash_one(digest));
        match self.known.get_mut(&device) {
            Some(known) => std::mem::replace(known, digest) != digest,
            None => {
                if self.known.len() < REMEMBERED {
                    self.known.insert(device, digest);
                }
                true
            }
        }
    }

    /// Reads what there is: the record, for those that sleep, and then the live directory, which is newer. What cannot
    /// be read is told when it comes.
    async fn read(&mut self) {
        self.known.clear();
        let gateway = Arc::clone(&self.gateway);
        match gateway.store.registrations(self.org, REMEMBERED).await {
            Ok(recorded) => recorded.into_iter().for_each(|(device, digest)| {
                self.note(&device, digest);
            }),
            Err(error) => tracing::warn!(
                error = error.report(),
                "listeners will be told of devices that come back unchanged: the record cannot be read"
            ),
        }
        if let Err(error) = self.read_live(&gateway).await {
            tracing::warn!(%error, "listeners may be told of devices that have not changed");
        }
    }

    async fn read_live(&mut self, gateway: &Gateway) -> Result<(), switchboard_bus::BusError> {
        let mut after: Option<DeviceId> = None;
        loop {
            let begin = after.as_ref().map(DeviceId::as_str);
            let page = gateway.bus.list(self.org, begin, A_PAGE).await?;
            for (device, presence) in &page {
                if let Some(digest) = presence.digest {
                    self.note(device, digest);
                }
            }
            let whole = page.len() < A_PAGE || self.known.len() >= REMEMBERED;
            after = page.into_iter().next_back().map(|(device, _)| device);
            if whole {
                return Ok(());
            }
        }
    }
}
