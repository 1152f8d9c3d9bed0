//! Pages of devices: read from the directory of connected devices and from the database, each bounded
//! by the page.
//!
//! Invariant: devices beyond the restrictions of the caller are not read.

use std::collections::HashMap;

use switchboard_bus::BusError;
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::{DeviceId, DeviceRange, OrgId},
    label::DeviceLabel,
};
use switchboard_runtime::paging::Limit;
use switchboard_store::{StoreError, StoredDevice};

use super::merge::{DeviceEntry, DevicePage, merge};
use crate::Gateway;

/// Devices of an organisation that a caller reaches, in byte order of their IDs.
#[derive(Clone, Copy)]
pub(crate) struct Reach<'a> {
    pub(crate) org: OrgId,
    pub(crate) range: DeviceRange<'a>,
}

impl<'a> Reach<'a> {
    /// All that follow a device, or all.
    pub(crate) fn after(caller: &'a Caller, after: Option<&'a str>) -> Self {
        let prefix = device_prefix(caller);
        Self {
            org: caller.org,
            range: DeviceRange { prefix, after },
        }
    }

    /// Those of a range; `None` if the caller reaches nothing of it.
    pub(super) fn within(caller: &'a Caller, range: DeviceRange<'a>) -> Option<Self> {
        let (reach, wanted) = (device_prefix(caller), range.prefix);
        let prefix = match (reach, wanted) {
            (Some(reach), Some(wanted)) if reach.starts_with(wanted) => Some(reach),
            (Some(reach), Some(wanted)) if !wanted.starts_with(reach) => return None,
            _ => wanted.or(reach),
        };
        Some(Self {
            org: caller.org,
            range: DeviceRange { prefix, ..range },
        })
    }
}

/// These labels, and the one that restricts the caller.
pub(crate) fn labels_within(caller: &Caller, labels: &[DeviceLabel]) -> Vec<DeviceLabel> {
    let restrictions = caller.restrictions.as_deref();
    let own = restrictions.and_then(|one| one.device_label.as_ref());
    let own = own.filter(|own| !labels.contains(own));
    labels.iter().chain(own).cloned().collect()
}

fn device_prefix(caller: &Caller) -> Option<&str> {
    let restrictions = caller.restrictions.as_deref();
    let prefix = restrictions.and_then(|one| one.device_prefix.as_ref());
    prefix.map(DeviceId::as_str)
}

/// The devices that a caller reaches in byte order of their IDs, connected or stored, strictly after one. If the
/// database is unavailable, the page is marked incomplete, or is unavailable as well for a caller that a label
/// restricts.
///
/// # Errors
/// When the directory of connected devices is unavailable, or the labels of devices are.
pub(crate) async fn reached(
    gateway: &Gateway,
    caller: &Caller,
    after: Option<&str>,
    limit: Limit,
) -> Result<DevicePage, Unavailable> {
    let reach = Reach::after(caller, after);
    let labels = labels_within(caller, &[]);
    if labels.is_empty() {
        return page(gateway, reach, limit).await.map_err(Unavailable::Bus);
    }
    labelled(gateway, reach, &labels, limit).await
}

/// The organisation's devices of a range in byte order of their IDs, connected or stored. If the
/// database is unavailable, the page is marked incomplete.
///
/// # Errors
/// When the directory of connected devices is unavailable.
pub(super) async fn page(
    gateway: &Gateway,
    Reach { org, range }: Reach<'_>,
    limit: Limit,
) -> Result<DevicePage, BusError> {
    let count = usize::from(limit.count());
    let (live, stored) = tokio::join!(
        gateway.bus.list(org, range, count + 1),
        gateway.store.devices(org, range, limit.fetch_count()),
    );
    let live = live?;
    let incomplete = stored.is_err();
    let stored = stored.unwrap_or_else(|error| {
        only_connected(&error);
        Vec::new()
    });
    let mut page = merge(live, stored, count);
    page.incomplete = incomplete;
    Ok(page)
}

/// The connected devices of a range. What the database has of them is left out while it is unavailable.
///
/// # Errors
/// When the directory of connected devices is unavailable.
pub(super) async fn connected(
    gateway: &Gateway,
    Reach { org, range }: Reach<'_>,
    limit: Limit,
) -> Result<DevicePage, BusError> {
    let count = usize::from(limit.count());
    let mut live = gateway.bus.list(org, range, count + 1).await?;
    let more = live.len() > count;
    live.truncate(count);
    let ids: Vec<String> = live.iter().map(|(id, _)| id.to_string()).collect();
    let stored = gateway.store.devices_by_id(org, &ids).await;
    let stored = stored.unwrap_or_else(|error| {
        tracing::warn!(
            error = error.report(),
            "connected devices could not be read from the database; their stored state is omitted"
        );
        Vec::new()
    });
    let mut stored = by_id(stored);
    let entries = live.into_iter().map(|(id, presence)| DeviceEntry {
        stored: stored.remove(&id),
        live: Some(presence),
        id,
    });
    let entries: Vec<_> = entries.collect();
    Ok(DevicePage {
        last: entries.last().map(|entry| entry.id.clone()),
        entries,
        more,
        incomplete: false,
    })
}

/// Why devices that are not connected could not be listed.
#[derive(Debug)]
pub(crate) enum Unavailable {
    Bus(BusError),
    Store(StoreError),
}

/// The stored devices of a range that are not connected: of the next `limit` ones, so there may be
/// fewer.
///
/// # Errors
/// When the database, or the directory of connected devices, is unavailable.
pub(super) async fn disconnected(
    gateway: &Gateway,
    Reach { org, range }: Reach<'_>,
    limit: Limit,
) -> Result<DevicePage, Unavailable> {
    let stored = gateway.store.devices(org, range, limit.fetch_count()).await;
    let mut stored = stored.map_err(Unavailable::Store)?;
    let more = stored.len() > usize::from(limit.count());
    stored.truncate(limit.count().into());
    let ids: Vec<DeviceId> = stored.iter().map(|device| device.id.clone()).collect();
    let live = gateway.bus.find_many(org, &ids).await;
    let live = live.map_err(Unavailable::Bus)?;
    let entries = stored.into_iter().zip(live);
    let entries = entries.filter_map(|(stored, live)| {
        live.is_none().then(|| DeviceEntry {
            id: stored.id.clone(),
            live: None,
            stored: Some(stored),
        })
    });
    Ok(DevicePage {
        entries: entries.collect(),
        last: ids.last().cloned(),
        more,
        incomplete: false,
    })
}

/// The devices of a range that have all of these labels, connected or stored: of the next `limit` ones that
/// were labelled, so there may be fewer.
///
/// # Errors
/// When the database, or the directory of connected devices, is unavailable.
pub(super) async fn labelled(
    gateway: &Gateway,
    Reach { org, range }: Reach<'_>,
    labels: &[DeviceLabel],
    limit: Limit,
) -> Result<DevicePage, Unavailable> {
    let store = &gateway.store;
    let ids = store.labelled_devices(org, range, labels, limit.fetch_count());
    let mut ids = ids.await.map_err(Unavailable::Store)?;
    let more = ids.len() > usize::from(limit.count());
    ids.truncate(limit.count().into());
    let names: Vec<String> = ids.iter().map(DeviceId::to_string).collect();
    let (live, stored) = tokio::join!(
        gateway.bus.find_many(org, &ids),
        store.devices_by_id(org, &names)
    );
    let live = live.map_err(Unavailable::Bus)?;
    let mut stored = by_id(stored.map_err(Unavailable::Store)?);
    let last = ids.last().cloned();
    let entries = ids.into_iter().zip(live).map(|(id, live)| DeviceEntry {
        stored: stored.remove(&id),
        live,
        id,
    });
    let entries = entries.filter(|entry| entry.live.is_some() || entry.stored.is_some());
    Ok(DevicePage {
        entries: entries.collect(),
        last,
        more,
        incomplete: false,
    })
}

fn by_id(stored: Vec<StoredDevice>) -> HashMap<DeviceId, StoredDevice> {
    let stored = stored.into_iter().map(|device| (device.id.clone(), device));
    stored.collect()
}

/// Logs that only connected devices are listed.
pub(super) fn only_connected(error: &StoreError) {
    tracing::warn!(
        error = error.report(),
        "devices could not be read from the database; only connected devices are listed"
    );
}
