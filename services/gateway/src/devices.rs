//! `/v1/devices`: the devices of an organisation, connected or not.
//!
//! Invariant: for a connected device, the state of its connection overrides the stored state.

mod device;
mod merge;
mod services;

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use switchboard_bus::BusError;
use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};
use switchboard_runtime::{
    budget::{Exhausted, Owner},
    paging::{Cursor, JsonElements, Limit, List, Paging},
    problem::{Path, Problem, ProblemKind, Query},
    response_budget::{PageCharge, hold_until_sent},
};
use switchboard_store::StoreError;
use utoipa::ToSchema;

use crate::{
    Gateway,
    admission::{RequireAdmin, RequireRead},
    bus_unavailable, store_unavailable,
};
use device::DeviceView;
use merge::merge;
pub(crate) use merge::{DeviceEntry, DevicePage};
use services::ServicesCache;

/// A page of devices.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Devices)]
pub(crate) struct DeviceList {
    /// The devices in byte order of their IDs.
    #[schema(max_items = 200, value_type = Vec<DeviceView>)]
    devices: JsonElements,
    /// `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
    /// True if the database is unavailable: devices that are not connected are missing. Omitted
    /// otherwise.
    #[schema(required = false, example = true)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
}

/// Lists the devices of the organisation, connected or not.
///
/// A page also ends at 4 MiB, with at least one device.
#[utoipa::path(
    get, path = "/v1/devices", tag = "Devices", operation_id = "listDevices",
    params(Paging),
    responses((status = 200, body = DeviceList, description = "A page of devices")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["overloaded", "rate_limited", "bus_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let limit = Limit::new(paging.limit)?;
    let list = List::new("/v1/devices", caller.org);
    let after: Option<DeviceId> = list.position(paging.cursor)?;
    let after = after.as_ref().map(DeviceId::as_str);
    let page = page(&gateway, caller.org, after, limit).await;
    let page = page.map_err(|error| bus_unavailable(&error))?;
    let owner = Owner::Org(caller.org.uuid());
    let mut charge = PageCharge::new(&gateway.responses, owner);
    let page = with_services((&gateway, caller.org), &list, page, &mut charge).await?;
    let permit = charge.into_permit(page.devices.bytes());
    let response = axum::Json(page).into_response();
    match permit {
        Some(permit) => hold_until_sent(response, permit).await,
        None => Ok(response),
    }
}

/// The devices of a page with their services, up to 4 MiB. They are charged as they are read.
async fn with_services(
    (gateway, org): (&Gateway, OrgId),
    list: &List,
    page: DevicePage,
    charge: &mut PageCharge<'_>,
) -> Result<DeviceList, Exhausted> {
    let DevicePage {
        entries,
        mut more,
        mut incomplete,
    } = page;
    let mut services = ServicesCache::new(gateway, org);
    if let Err(error) = services.preload(&entries).await {
        incomplete = true;
        only_connected(&error);
    }
    charge.hold(services.bytes())?;
    let (mut devices, mut last) = (JsonElements::default(), None);
    for entry in entries {
        let id = entry.id.clone();
        let registered = match services.get(&entry).await {
            Ok(registered) => registered,
            Err(error) => {
                if !incomplete {
                    incomplete = true;
                    only_connected(&error);
                }
                last = Some(id);
                continue;
            }
        };
        charge.hold(services.bytes())?;
        if !devices.push(&DeviceView::new(entry, registered)) {
            more = true;
            break;
        }
        charge.hold(devices.bytes())?;
        last = Some(id);
    }
    let next_cursor = last.filter(|_| more).map(|last| list.cursor(last));
    Ok(DeviceList {
        devices,
        next_cursor,
        incomplete,
    })
}

fn only_connected(error: &StoreError) {
    tracing::warn!(
        error = error.report(),
        "devices could not be read from the database; only connected devices are listed"
    );
}

/// The organisation's devices after `after` in byte order of their IDs, connected or stored. If
/// the database is unavailable, the page is marked incomplete.
///
/// # Errors
/// When the directory of connected devices is unavailable.
pub(crate) async fn page(
    gateway: &Gateway,
    org: OrgId,
    after: Option<&str>,
    limit: Limit,
) -> Result<DevicePage, BusError> {
    let count = usize::from(limit.count());
    let (live, stored) = tokio::join!(
        gateway.bus.list(org, after, count + 1),
        gateway.store.devices(org, after, limit.fetch_count()),
    );
    let live = live?;
    let incomplete = stored.is_err();
    let stored = stored.unwrap_or_else(|error| {
        tracing::warn!(
            error = error.report(),
            "devices could not be read from the database; only connected devices are listed"
        );
        Vec::new()
    });
    let mut page = merge(live, stored, count);
    page.incomplete = incomplete;
    Ok(page)
}

/// Gets a device: its connection state and its services.
#[utoipa::path(
    get, path = "/v1/devices/{id}", tag = "Devices", operation_id = "getDevice",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    responses((status = 200, body = DeviceView, description = "The device")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "unknown_device", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Path(id): Path<DeviceId>,
) -> Result<axum::Json<DeviceView>, Problem> {
    let key = DeviceKey {
        org: caller.org,
        device: id,
    };
    let (live, stored) = tokio::join!(
        gateway.bus.find(&key),
        gateway.store.device(key.org, &key.device)
    );
    let live = live.map_err(|error| bus_unavailable(&error))?;
    let stored = match (stored, &live) {
        (Ok(stored), _) => stored,
        (Err(error), None) => return Err(device_unavailable(&error)),
        (Err(error), Some(_)) => {
            tracing::warn!(
                error = error.report(),
                "a connected device could not be read from the database; its stored state is omitted"
            );
            None
        }
    };
    if live.is_none() && stored.is_none() {
        return Err(unknown(&key.device));
    }
    let org = key.org;
    let entry = DeviceEntry {
        id: key.device,
        live,
        stored,
    };
    let registered = ServicesCache::new(&gateway, org).get(&entry).await;
    let registered = registered.map_err(|error| device_unavailable(&error))?;
    Ok(axum::Json(DeviceView::new(entry, registered)))
}

/// Ends the connection of a device.
///
/// The response follows when the connection has ended, or after 10 s. Calls in flight end as `lost`.
/// The device may connect again; to keep it away, revoke its access tokens.
#[utoipa::path(
    post, path = "/v1/devices/{id}/disconnect", tag = "Devices", operation_id = "disconnectDevice",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    responses((status = 204, description = "The connection has ended")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "unknown_device", "offline", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn disconnect(
    State(gateway): State<Arc<Gateway>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<DeviceId>,
) -> Result<StatusCode, Problem> {
    let key = DeviceKey {
        org: caller.org,
        device: id,
    };
    let disconnected = gateway.bus.disconnect(&key).await;
    if disconnected.map_err(|error| not_disconnected(&error))? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let stored = gateway.store.device(key.org, &key.device).await;
    match stored.map_err(|error| device_unavailable(&error))? {
        Some(_) => {
            let detail = format!("The device {} is not connected.", key.device);
            Err(Problem::new(ProblemKind::DeviceOffline, detail))
        }
        None => Err(unknown(&key.device)),
    }
}

fn not_disconnected(error: &BusError) -> Problem {
    tracing::warn!(%error, "a device could not be disconnected");
    let detail = "The devices cannot be reached at the moment, or the node of this one did not confirm \
                  that the connection has ended; a retry is safe.";
    Problem::new(ProblemKind::BusUnavailable, detail).header(http::header::RETRY_AFTER, 1)
}

fn unknown(device: &DeviceId) -> Problem {
    let detail = format!("There is no device {device} in this organisation.");
    Problem::new(ProblemKind::UnknownDevice, detail)
}

fn device_unavailable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "a device that is not connected could not be read",
        "The device is not connected, and its stored state cannot be read at the moment.",
    )
}
