//! `GET /v1/devices` and `GET /v1/devices/{id}`: who is there, and who has been.
//! Never: a stored state shown for a device that is live.

mod device;
mod merge;
mod services;

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use serde::Serialize;
use switchboard_bus::BusError;
use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};
use switchboard_runtime::{
    paging::{Cursor, Limit, List, Paging},
    problem::{Path, Problem, Query},
};
use switchboard_store::StoreError;
use utoipa::ToSchema;

use crate::{Gateway, access::MayRead, bus_unavailable, store_unavailable};
use device::Device;
use merge::merge;
pub(crate) use merge::{Entry, Page};
use services::Services;

/// A page of the list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Devices {
    /// In byte order of their ids.
    #[schema(max_items = 200)]
    devices: Vec<Device>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
    /// The record could not be read: devices that are not live are missing. Not there when all is well.
    #[schema(required = false, example = true)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
}

/// Lists the devices of the organisation, those that are connected and those that were.
#[utoipa::path(
    get, path = "/v1/devices", tag = "Devices", operation_id = "listDevices",
    params(Paging),
    responses((status = 200, body = Devices, description = "A page of devices")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["rate_limited", "bus_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    MayRead(caller): MayRead,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Devices>, Problem> {
    let limit = Limit::new(paging.limit)?.count();
    let list = List::of("/v1/devices", caller.org);
    let after: Option<DeviceId> = list.after(paging.cursor)?;
    let Page {
        entries,
        more,
        incomplete,
    } = page(
        &gateway,
        caller.org,
        after.as_ref().map(DeviceId::as_str),
        limit,
    )
    .await
    .map_err(|error| bus_unavailable(&error))?;
    let next_cursor = if more {
        entries.last().map(|entry| list.behind(&entry.id))
    } else {
        None
    };
    let mut services = Services::new(&gateway.bus);
    let mut devices = Vec::with_capacity(entries.len());
    for entry in entries {
        let registered = services.of(entry.live.as_ref()).await;
        devices.push(Device::new(entry, registered));
    }
    Ok(axum::Json(Devices {
        devices,
        next_cursor,
        incomplete,
    }))
}

/// An organisation's devices in byte order of their ids, strictly after `after`, live and remembered.
///
/// # Errors
/// When the directory does not answer; without the record the page is incomplete and says so.
pub(crate) async fn page(
    gateway: &Gateway,
    org: OrgId,
    after: Option<&str>,
    limit: u16,
) -> Result<Page, BusError> {
    // One more than a page tells whether another page follows.
    let probe = u32::from(limit) + 1;
    let (live, stored) = tokio::join!(
        gateway.bus.list(org, after, usize::from(limit) + 1),
        gateway.store.devices(org, after, probe),
    );
    let live = live?;
    let incomplete = stored.is_err();
    let stored = stored.unwrap_or_else(|error| {
        tracing::warn!(
            error = error.report(),
            "only live devices are listed because the record cannot be read"
        );
        Vec::new()
    });
    let mut page = merge(live, stored, usize::from(limit));
    page.incomplete = incomplete;
    Ok(page)
}

/// Shows a device: whether it is connected, and what it can do.
#[utoipa::path(
    get, path = "/v1/devices/{id}", tag = "Devices", operation_id = "getDevice",
    params(("id" = DeviceId, Path, description = "The device")),
    responses((status = 200, body = Device, description = "The device")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["invalid_path", "unknown_device", "rate_limited", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    MayRead(caller): MayRead,
    Path(id): Path<DeviceId>,
) -> Result<axum::Json<Device>, Problem> {
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
        (Err(error), None) => return Err(unreadable(&error)),
        (Err(error), Some(_)) => {
            tracing::warn!(
                error = error.report(),
                "a live device is shown without its record, which cannot be read"
            );
            None
        }
    };
    if live.is_none() && stored.is_none() {
        return Err(unknown(&key.device));
    }
    let registered = Services::new(&gateway.bus).of(live.as_ref()).await;
    let entry = merge::Entry {
        id: key.device,
        live,
        stored,
    };
    Ok(axum::Json(Device::new(entry, registered)))
}

fn unknown(id: &DeviceId) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown_device",
        "Unknown device",
        format!("There is no device {id} in this organisation."),
    )
}

fn unreadable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "a device that is not live could not be looked up",
        "The device is not connected, and what is on record cannot be read at the moment.",
    )
}
