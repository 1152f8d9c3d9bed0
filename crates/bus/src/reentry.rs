//! The directory and the live connections of this node, brought to agree after the bus was away.
//! Never: an entry without a connection, or a connection without its entry, for long.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use switchboard_runtime::clock::unix_now_ms;
use tokio::{
    sync::Notify,
    time::{interval_at, sleep},
};

use crate::{
    backend::{Entry, Release},
    bus::Node,
    error::BusError,
    fact::Fact,
    host::Holding,
    node::Epoch,
    upkeep::RETRY_PAUSE,
};

/// How many connections are entered in one go.
const BATCH: usize = 256;
/// How often that is tried before others get their turn.
const TRIES: usize = 10;
/// An entry is a ghost when its connection is missing at two looks this far apart: a claim that
/// is under way takes less.
const SECOND_LOOK: Duration = Duration::from_secs(3);
/// Entries and connections are compared this often even if nothing went wrong.
const ROUND: Duration = Duration::from_secs(300);

/// Devices whose services the directory did not take; no more than are connected here.
#[derive(Default)]
pub(crate) struct Unentered {
    devices: Mutex<HashSet<DeviceKey>>,
    added: Notify,
}

impl Unentered {
    pub(crate) fn add(&self, device: &DeviceKey) {
        self.devices.lock().insert(device.clone());
        self.added.notify_one();
    }
}

/// Enters everything again when the bus has healed, and compares now and then.
pub(crate) async fn follow(node: Arc<Node>) {
    let mut rounds = interval_at(tokio::time::Instant::now() + ROUND, ROUND);
    loop {
        tokio::select! {
            () = node.reenter.notified() => {
                node.shelf.untell();
                node.enter_again().await;
            }
            () = node.unentered.added.notified() => {
                node.enter_unentered().await;
                continue;
            }
            () = node.reconcile.notified() => {}
            _ = rounds.tick() => {}
        }
        tokio::select! {
            compared = node.compare() => {
                // What this fails to do, the next healing asks for again.
                if let Err(error) = compared {
                    tracing::debug!(%error, "the directory could not be compared with the live connections");
                }
            }
            // To be entered again is not to wait until a look at what is out of date is over.
            () = node.reenter.notified() => node.reenter.notify_one(),
        }
    }
}

impl Node {
    async fn enter_again(&self) {
        let count = self.enter(|_| true).await;
        if count > 0 {
            tracing::info!(
                devices = count,
                "entered the devices again after the bus was away"
            );
        }
    }

    /// If the bus goes away meanwhile, its healing enters everything.
    async fn enter_unentered(&self) {
        let devices = std::mem::take(&mut *self.unentered.devices.lock());
        self.enter(|holding| devices.contains(&holding.device))
            .await;
    }

    /// Enters those connections of this node that are meant; how many.
    async fn enter(&self, is_meant: impl Fn(&Holding) -> bool) -> usize {
        // What is told again is as old as this look: a device that leaves while it is entered has left.
        let at_ms = unix_now_ms();
        let mut held = self.held();
        held.retain(is_meant);
        for chunk in held.chunks(BATCH) {
            self.enter_some(chunk, at_ms).await;
        }
        // Its entry may have been written behind its release.
        let present = self.present();
        let gone = held
            .iter()
            .filter(|holding| present.get(&holding.device) != Some(&holding.epoch));
        for holding in gone {
            let entry = Release::Entry(holding.device.clone(), holding.epoch);
            self.releases.push(entry);
        }
        held.len()
    }

    fn held(&self) -> Vec<Holding> {
        self.host().map(|host| host.held()).unwrap_or_default()
    }

    /// Takes ghosts out, and enters connections that have no entry.
    async fn compare(&self) -> Result<(), BusError> {
        if self.host().is_none() {
            return Ok(());
        }
        let suspects: HashSet<(DeviceKey, Epoch)> = self.ghosts().await?.into_iter().collect();
        sleep(SECOND_LOOK).await;
        let ghosts = self.ghosts().await?;
        let ghosts: Vec<Release> = ghosts
            .into_iter()
            .filter(|ghost| suspects.contains(ghost))
            .map(|(device, epoch)| Release::Entry(device, epoch))
            .collect();
        if !ghosts.is_empty() {
            tracing::info!(
                entries = ghosts.len(),
                "took out entries that have no connection"
            );
            self.backend.release(ghosts).await?;
        }
        let entered: HashSet<(DeviceKey, Epoch)> =
            self.backend.entered().await?.into_iter().collect();
        self.enter(|holding| !entered.contains(&(holding.device.clone(), holding.epoch)))
            .await;
        Ok(())
    }

    /// Entries of this node whose connection is not here.
    async fn ghosts(&self) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let mut entered = self.backend.entered().await?;
        let present = self.present();
        entered.retain(|(device, epoch)| present.get(device) != Some(epoch));
        Ok(entered)
    }

    /// Which devices are connected here, and by which connection.
    fn present(&self) -> HashMap<DeviceKey, Epoch> {
        let held = self.held().into_iter();
        held.map(|holding| (holding.device, holding.epoch))
            .collect()
    }

    /// Enters live connections again, and closes those that have a newer one elsewhere. What the directory does not take it is
    /// offered again later.
    async fn enter_some(&self, held: &[Holding], at_ms: u64) {
        let mut shelved: HashSet<Digest> = HashSet::new();
        let entries: Vec<Entry> = held
            .iter()
            .map(|holding| {
                let (digest, json) = holding.registration.clone().unzip();
                let shelve = json.filter(|_| digest.is_some_and(|digest| shelved.insert(digest)));
                let (device, epoch) = (holding.device.clone(), holding.epoch);
                Entry {
                    device,
                    epoch,
                    digest,
                    shelve,
                }
            })
            .collect();
        for _ in 0..TRIES {
            match self.backend.enter(entries.clone()).await {
                Ok(standing) => {
                    for (holding, newer) in held.iter().zip(standing) {
                        match newer {
                            Some(epoch) => self.take_over(&holding.device, epoch),
                            None => self.tell_again(holding, at_ms),
                        }
                    }
                    return;
                }
                Err(_) if self.backend.condition().deaf_for.is_some() => return,
                Err(_) => sleep(RETRY_PAUSE).await,
            }
        }
        for holding in held {
            self.unentered.add(&holding.device);
        }
    }

    fn tell_again(&self, holding: &Holding, at_ms: u64) {
        let (device, epoch) = (holding.device.clone(), holding.epoch);
        self.tell(Fact::Connected {
            device: device.clone(),
            epoch,
            at_ms,
        });
        if let Some((digest, json)) = &holding.registration {
            let json = self.shelf.tell(device.org, *digest).then(|| json.clone());
            self.tell(Fact::Registered {
                device,
                epoch,
                at_ms,
                digest: *digest,
                json,
            });
        }
    }
}
