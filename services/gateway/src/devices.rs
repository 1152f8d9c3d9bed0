//! `/v1/devices`: the devices of an organisation, connected or not.
//!
//! Invariant: for a connected device, the state of its connection overrides the stored state.

pub(crate) mod approvals;
pub(crate) mod counts;
mod device;
pub(crate) mod labels;
pub(crate) mod list;
mod merge;
mod page;
mod services;

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use switchboard_bus::{BusError, LiveEvent};
use switchboard_protocol::id::{DeviceId, DeviceKey};
use switchboard_runtime::problem::{Path, Problem, ProblemKind};
use switchboard_store::{DeviceNotes, StoreError};

use crate::{
    Gateway,
    admission::{RequireAdmin, RequireRead},
    bus_unavailable, store_unavailable,
};
use device::{DeviceView, Registered};
pub(crate) use merge::DeviceEntry;
pub(crate) use page::{Reach, Unavailable, labels_within, reached};
use services::ServicesCache;

/// Gets a device: its connection state and its services.
#[utoipa::path(
    get, path = "/v1/devices/{id}", tag = "Devices", operation_id = "getDevice",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    responses((status = 200, body = DeviceView, description = "The device")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Path(id): Path<DeviceId>,
) -> Result<axum::Json<DeviceView>, Problem> {
    let key = caller.device(id)?;
    let (entry, notes) = find(&gateway, &key).await?;
    let services = ServicesCache::new(&gateway, &caller).get(&entry).await;
    let services = services.map_err(|error| device_unavailable(&error))?;
    let approvals = approvals::states(&gateway, &key, services.as_deref()).await;
    let registered = Registered::Services(services);
    Ok(axum::Json(
        DeviceView::of_one(entry, notes, registered).with_approvals(approvals),
    ))
}

/// A device, connected or not.
async fn find(gateway: &Gateway, key: &DeviceKey) -> Result<(DeviceEntry, DeviceNotes), Problem> {
    let (live, stored, notes) = tokio::join!(
        gateway.bus.find(key),
        gateway.store.device(key.org, &key.device),
        gateway.store.device_notes(key.org, &key.device),
    );
    let stored = stored.and_then(|stored| Ok((stored, notes?)));
    let live = live.map_err(|error| bus_unavailable(&error))?;
    let (stored, notes) = match (stored, &live) {
        (Ok(stored), _) => stored,
        (Err(error), None) => return Err(device_unavailable(&error)),
        (Err(error), Some(_)) => {
            tracing::warn!(
                error = error.report(),
                "a connected device could not be read from the database; its stored state is omitted"
            );
            (None, DeviceNotes::default())
        }
    };
    if live.is_none() && stored.is_none() {
        return Err(unknown(&key.device));
    }
    let entry = DeviceEntry {
        id: key.device.clone(),
        live,
        stored,
    };
    Ok((entry, notes))
}

/// Forgets a device that is not connected: deletes what is stored of it, its services, its labels
/// and its note.
///
/// Its calls, tokens and NPC stay. A device that connects again is known again; to keep it away, revoke
/// its access tokens.
#[utoipa::path(
    delete, path = "/v1/devices/{id}", tag = "Devices", operation_id = "forgetDevice",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    responses((status = 204, description = "The device is forgotten")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "device_online", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn forget(
    State(gateway): State<Arc<Gateway>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<DeviceId>,
) -> Result<StatusCode, Problem> {
    let key = caller.device(id)?;
    let store = gateway.store.with_actor(&caller.credential.caller_name());
    // Read first: a connection that begins after the lookup has a newer epoch, and keeps its device.
    let stored = gateway.store.device(key.org, &key.device).await;
    let stored = stored.map_err(|error| not_forgotten(&error))?;
    let live = gateway.bus.find(&key).await;
    if live.map_err(|error| bus_unavailable(&error))?.is_some() {
        return Err(online(&key.device));
    }
    let stored = stored.ok_or_else(|| unknown(&key.device))?;
    let forgotten = store
        .forget_device(key.org, &key.device, stored.epoch)
        .await;
    if forgotten.map_err(|error| not_forgotten(&error))? {
        tracing::info!(org.id = %key.org, device.id = %key.device, "device forgotten");
        gateway
            .bus
            .record_live(key.org, || LiveEvent::DeviceChanged {
                device_id: key.device.clone(),
            });
        return Ok(StatusCode::NO_CONTENT);
    }
    let stored = gateway.store.device(key.org, &key.device).await;
    Err(match stored.map_err(|error| not_forgotten(&error))? {
        Some(_) => online(&key.device),
        None => unknown(&key.device),
    })
}

fn online(device: &DeviceId) -> Problem {
    let detail = format!(
        "The device {device} is connected; disconnect it first, and revoke its tokens to keep it away."
    );
    Problem::new(ProblemKind::DeviceOnline, detail)
}

fn not_forgotten(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "a device could not be forgotten",
        "The device cannot be forgotten at the moment; a retry is safe.",
    )
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
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "offline", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn disconnect(
    State(gateway): State<Arc<Gateway>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<DeviceId>,
) -> Result<StatusCode, Problem> {
    let key = caller.device(id)?;
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
