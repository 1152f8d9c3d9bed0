//! Finds the queues whose devices are there: those that have just come, and by a slow sweep all that are due.
//! Never: a question to the database for each device that connects; those that come together are asked for together.

use std::{collections::HashSet, sync::Arc, time::Duration};

use switchboard_bus::{BusError, OfferChange, OfferChanges};
use switchboard_protocol::id::{DeviceId, DeviceKey};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::StoreError;
use tokio::time::Instant;

use super::{
    dispatch::{Look, wake},
    ending,
};
use crate::Gateway;

/// Devices that come within this time are asked for together, up to so many. Protects the database from a storm.
const GATHER: Duration = Duration::from_millis(20);
const GATHERED: usize = 512;
/// After news were missed all queues are looked at, but not more often than this.
const MISSED_PAUSE: Duration = Duration::from_millis(500);
/// Queues that are read at a time.
const PAGE: u32 = 500;
/// A queue whose device is not there is looked at again after this, should nobody tell that it came.
const ABSENT_PAUSE: Duration = Duration::from_secs(60);

/// What is known of devices that came.
#[derive(Debug)]
struct Arrivals {
    devices: HashSet<DeviceKey>,
    /// Some may have come of which nothing was heard.
    missed: bool,
}

/// Why a look at the queues failed.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("the queues of calls cannot be read")]
    Store(#[from] StoreError),
    #[error("the directory cannot be read")]
    Bus(#[from] BusError),
}

impl LookError {
    fn report(&self) -> String {
        match self {
            Self::Store(error) => error.report(),
            Self::Bus(error) => error.to_string(),
        }
    }
}

/// Looks at queues until draining begins.
pub(crate) async fn watch(gateway: Arc<Gateway>, shutdown: Shutdown) {
    let mut changes = gateway.bus.offer_changes();
    let mut arrivals = Arrivals {
        devices: HashSet::new(),
        missed: true,
    };
    let mut sweep_at = Instant::now();
    let mut trouble = false;
    loop {
        let due = tokio::select! {
            () = shutdown.draining() => return,
            () = tokio::time::sleep_until(sweep_at) => true,
            change = next(&mut changes) => {
                arrivals.note(change);
                arrivals.gather(&mut changes).await;
                if arrivals.missed {
                    sweep_at = sweep_at.min(Instant::now() + MISSED_PAUSE);
                }
                false
            }
        };
        let looked = tokio::select! {
            looked = look(&gateway, &mut arrivals, due) => looked,
            () = shutdown.draining() => return,
        };
        if due {
            sweep_at = Instant::now() + spread(gateway.kept.sweep_every);
        }
        match &looked {
            Ok(()) if trouble => tracing::info!("queues of calls are looked at again"),
            Err(error) if !trouble => tracing::warn!(
                cause = error.report(),
                "{error}; calls wait on until that is possible"
            ),
            _ => {}
        }
        trouble = looked.is_err();
    }
}

/// Replicas that began together do not stay together.
fn spread(every: Duration) -> Duration {
    every.mul_f64(0.75 + 0.5 * rand::random::<f64>())
}

/// The next change in who is there; waits for ever where this node hears of none.
async fn next(changes: &mut Option<OfferChanges>) -> OfferChange {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

impl Arrivals {
    fn note(&mut self, change: OfferChange) {
        match change {
            // A device that has registered nothing so far cannot be called.
            OfferChange::Services {
                device,
                digest: Some(_),
            } => drop(self.devices.insert(device)),
            OfferChange::Missed => self.missed = true,
            OfferChange::Services { .. }
            | OfferChange::Prompts { .. }
            | OfferChange::Resources { .. } => {}
        }
    }

    /// Takes along what else is told in a moment.
    async fn gather(&mut self, changes: &mut Option<OfferChanges>) {
        let until = Instant::now() + GATHER;
        while !self.devices.is_empty() && self.devices.len() < GATHERED {
            match tokio::time::timeout_at(until, next(changes)).await {
                Ok(change) => self.note(change),
                Err(_) => return,
            }
        }
    }
}

async fn look(gateway: &Arc<Gateway>, arrivals: &mut Arrivals, due: bool) -> Result<(), LookError> {
    let came: Vec<DeviceKey> = arrivals.devices.drain().collect();
    if !came.is_empty() {
        let queues = gateway.store.call_queues_of(&came).await;
        // What could not be asked for is found by the next sweep.
        arrivals.missed |= queues.is_err();
        for device in queues? {
            wake(gateway, device, Look::Anyway);
        }
    }
    if due {
        sweep(gateway, !arrivals.missed).await?;
        arrivals.missed = false;
    }
    Ok(())
}

/// Ends what is over, and wakes the queues whose devices are there.
async fn sweep(gateway: &Arc<Gateway>, due_only: bool) -> Result<(), LookError> {
    let how = if due_only { Look::IfDue } else { Look::Anyway };
    let (expired, lost) = (ending::expired(), ending::lost());
    loop {
        let settled = gateway.store.settle_calls(None, &expired, &lost).await?;
        gateway.metrics.settled(settled);
        if settled.all() < PAGE.into() {
            break;
        }
    }
    let waiting = gateway.store.queued_calls().await?;
    gateway.metrics.queued.set(waiting);
    let mut after = None;
    loop {
        let queues = gateway.store.call_queues(after.as_ref(), due_only, PAGE);
        let page = queues.await?;
        for devices in page.chunk_by(|one, other| one.org == other.org) {
            wake_present(gateway, devices, how).await?;
        }
        if page.len() < PAGE as usize {
            return Ok(());
        }
        after = page.into_iter().last();
    }
}

/// Wakes the queues of those devices of one organisation that are there, and puts the others aside.
async fn wake_present(
    gateway: &Arc<Gateway>,
    devices: &[DeviceKey],
    how: Look,
) -> Result<(), LookError> {
    let Some(org) = devices.first().map(|device| device.org) else {
        return Ok(());
    };
    let ids: Vec<DeviceId> = devices.iter().map(|key| key.device.clone()).collect();
    let found = gateway.bus.find_many(org, &ids).await?;
    let mut absent = Vec::new();
    for (device, presence) in devices.iter().zip(found) {
        match presence {
            Some(presence) if presence.digest.is_some() => wake(gateway, device.clone(), how),
            _ => absent.push(device.clone()),
        }
    }
    if !absent.is_empty() {
        let store = &gateway.store;
        store.postpone_call_queues(&absent, ABSENT_PAUSE).await?;
    }
    Ok(())
}
