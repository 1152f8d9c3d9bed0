//! Finds the queues to dispatch: those of devices that have just connected, those that waited for a
//! slot, all after a change of the suspended organisations, and periodically all that are due.

use std::{collections::HashSet, sync::Arc, time::Duration};

use switchboard_bus::{AccessChange, BusError, CatalogEvent, CatalogWatch};
use switchboard_protocol::id::{DeviceId, DeviceKey};
use switchboard_runtime::{budget::Owner, shutdown::Shutdown};
use switchboard_store::{Overdue, StoreError};
use tokio::time::Instant;

use super::{
    AsyncCalls, completion,
    dispatch::{WakeMode, try_wake, wake},
    refused::Walk,
};
use crate::Gateway;

/// Devices that connect within this time share one query. Protects the database when many
/// devices reconnect.
const BATCH_WINDOW: Duration = Duration::from_millis(20);
const MAX_BATCH_DEVICES: usize = 512;
/// After missed events all queues are read, but not more often than this.
const RESYNC_INTERVAL: Duration = Duration::from_millis(500);
/// Between two reads of the queues that waited for a slot: many slots that become free cost one.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Queues read at a time.
const PAGE_LEN: u32 = 500;
/// How long the queue of an absent device is postponed, in case its connection event is lost.
const ABSENT_BACKOFF: Duration = Duration::from_secs(60);

/// Devices that have connected since their queues were last read.
#[derive(Debug)]
struct Arrivals {
    devices: HashSet<DeviceKey>,
    /// Any device may have connected, or may be callable again: events were missed, or the
    /// suspended organisations changed.
    missed: bool,
    /// Queues that waited for a slot may be woken.
    may_retry: bool,
}

/// Why queues could not be read.
#[derive(Debug, thiserror::Error)]
enum ScanError {
    #[error("the queues of calls cannot be read")]
    Store(#[from] StoreError),
    #[error("the directory cannot be read")]
    Bus(#[from] BusError),
}

impl ScanError {
    fn report(&self) -> String {
        match self {
            Self::Store(error) => error.report(),
            Self::Bus(error) => error.to_string(),
        }
    }
}

/// Wakes queues until `shutdown` drains.
pub(super) async fn run(gateway: Arc<Gateway>, shutdown: Shutdown) {
    let mut events = gateway.bus.watch_catalog();
    let mut access_changes = gateway.bus.access_changes();
    let mut arrivals = Arrivals {
        devices: HashSet::new(),
        missed: true,
        may_retry: false,
    };
    let mut sweep_at = Instant::now();
    let mut retry_at = Instant::now();
    let mut failing = false;
    let slot_freed = async |retry_at| {
        tokio::time::sleep_until(retry_at).await;
        gateway.async_calls.refused_queues.changed().await;
    };
    loop {
        let sweep_due = tokio::select! {
            () = shutdown.draining() => return,
            () = tokio::time::sleep_until(sweep_at) => true,
            () = slot_freed(retry_at) => {
                arrivals.may_retry = true;
                retry_at = Instant::now() + RETRY_INTERVAL;
                false
            }
            // An organisation that is no longer suspended may have connected devices.
            Some(change) = access_changes.next() => {
                if change == AccessChange::Any {
                    arrivals.missed = true;
                    sweep_at = sweep_at.min(Instant::now() + RESYNC_INTERVAL);
                }
                false
            }
            event = next_event(&mut events) => {
                arrivals.add(event);
                arrivals.collect(&mut events).await;
                if arrivals.missed {
                    sweep_at = sweep_at.min(Instant::now() + RESYNC_INTERVAL);
                }
                false
            }
        };
        let scanned = tokio::select! {
            scanned = scan(&gateway, &mut arrivals, sweep_due) => scanned,
            () = shutdown.draining() => return,
        };
        if sweep_due {
            sweep_at = Instant::now() + jitter(gateway.async_calls.sweep_interval);
        }
        match &scanned {
            Ok(()) if failing => tracing::info!("queues of calls are being read again"),
            Err(error) if !failing => tracing::warn!(
                cause = error.report(),
                "{error}; calls stay queued until the next sweep succeeds"
            ),
            _ => {}
        }
        failing = scanned.is_err();
    }
}

/// Spreads the sweeps of replicas that started at the same time.
fn jitter(interval: Duration) -> Duration {
    interval.mul_f64(0.75 + 0.5 * rand::random::<f64>())
}

/// The next catalog event. Never completes on a node that does not receive them.
async fn next_event(events: &mut Option<CatalogWatch>) -> CatalogEvent {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

impl Arrivals {
    fn add(&mut self, event: CatalogEvent) {
        match event {
            // A device without registered services cannot be called yet.
            CatalogEvent::Services {
                device,
                digest: Some(_),
            } => drop(self.devices.insert(device)),
            CatalogEvent::Lagged => self.missed = true,
            CatalogEvent::Services { .. }
            | CatalogEvent::Prompts { .. }
            | CatalogEvent::Approvals { .. }
            | CatalogEvent::Resources { .. } => {}
        }
    }

    /// Adds the events of the next [`BATCH_WINDOW`].
    async fn collect(&mut self, events: &mut Option<CatalogWatch>) {
        let until = Instant::now() + BATCH_WINDOW;
        while !self.devices.is_empty() && self.devices.len() < MAX_BATCH_DEVICES {
            match tokio::time::timeout_at(until, next_event(events)).await {
                Ok(event) => self.add(event),
                Err(_) => return,
            }
        }
    }
}

async fn scan(
    gateway: &Arc<Gateway>,
    arrivals: &mut Arrivals,
    sweep_due: bool,
) -> Result<(), ScanError> {
    let connected: Vec<DeviceKey> = arrivals.devices.drain().collect();
    if !connected.is_empty() {
        let queues = gateway.store.call_queues_for(&connected).await;
        // After a failure the next sweep finds their queues.
        arrivals.missed |= queues.is_err();
        for device in queues? {
            wake(gateway, device, WakeMode::Immediate);
        }
    }
    if std::mem::take(&mut arrivals.may_retry) {
        let retried = retry_refused(gateway).await;
        arrivals.missed |= retried.is_err();
        retried?;
    }
    if sweep_due {
        sweep(gateway, !arrivals.missed).await?;
        arrivals.missed = false;
    }
    Ok(())
}

/// Wakes queues that waited for a slot: a page of each organisation that has a free one.
async fn retry_refused(gateway: &Arc<Gateway>) -> Result<(), ScanError> {
    let AsyncCalls {
        refused_queues,
        queue_slots,
        ..
    } = &gateway.async_calls;
    for (org, Walk { mode, after, .. }) in refused_queues.walks(queue_slots) {
        if queue_slots.room(Owner::Org(org.uuid())) == 0 {
            continue;
        }
        let due_only = mode == WakeMode::IfDue;
        let queues = gateway
            .store
            .call_queues_of(org, after.as_ref(), due_only, PAGE_LEN);
        let page = queues.await?;
        let woken = wake_connected(gateway, &page, mode).await?;
        let has_ended = woken == page.len() && page.len() < PAGE_LEN as usize;
        let last = woken
            .checked_sub(1)
            .and_then(|last| page.into_iter().nth(last));
        let after = last.map(|last| last.device).or(after);
        refused_queues.advance(org, after.filter(|_| !has_ended));
    }
    Ok(())
}

/// Ends overdue calls, and wakes the queues of connected devices.
async fn sweep(gateway: &Arc<Gateway>, due_only: bool) -> Result<(), ScanError> {
    let mode = if due_only {
        WakeMode::IfDue
    } else {
        WakeMode::Immediate
    };
    let (expired, lost) = (completion::expired(), completion::lost());
    loop {
        let ended = gateway
            .store
            .end_overdue_calls(Overdue::All, &expired, &lost)
            .await?;
        completion::record_overdue(gateway, &ended);
        if ended.all() < PAGE_LEN as usize {
            break;
        }
    }
    let queued = gateway.store.queued_calls().await?;
    gateway.metrics.queued.set(queued);
    let mut after = None;
    loop {
        let queues = gateway
            .store
            .call_queues(after.as_ref(), due_only, PAGE_LEN);
        let page = queues.await?;
        for devices in page.chunk_by(|one, other| one.org == other.org) {
            let woken = wake_connected(gateway, devices, mode).await?;
            if let Some(refused) = devices.get(woken) {
                gateway.async_calls.refused_queues.add(refused.org, mode);
            }
        }
        if page.len() < PAGE_LEN as usize {
            return Ok(());
        }
        after = page.into_iter().last();
    }
}

/// Wakes the queues of connected devices of one organisation and postpones the others. Ends at the
/// first queue that no slot is free for. Returns the number of queues before it.
async fn wake_connected(
    gateway: &Arc<Gateway>,
    devices: &[DeviceKey],
    mode: WakeMode,
) -> Result<usize, ScanError> {
    let Some(org) = devices.first().map(|device| device.org) else {
        return Ok(0);
    };
    let ids: Vec<DeviceId> = devices.iter().map(|key| key.device.clone()).collect();
    let found = gateway.bus.find_many(org, &ids).await?;
    let mut absent = Vec::new();
    let mut woken = 0;
    for (device, presence) in devices.iter().zip(found) {
        match presence {
            Some(presence) if presence.digest.is_some() => {
                if try_wake(gateway, device.clone(), mode).is_err() {
                    break;
                }
            }
            _ => absent.push(device.clone()),
        }
        woken += 1;
    }
    if !absent.is_empty() {
        let store = &gateway.store;
        store.postpone_call_queues(&absent, ABSENT_BACKOFF).await?;
    }
    Ok(woken)
}
