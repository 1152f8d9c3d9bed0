//! `/v1/devices/counts`: how many devices an organisation has.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use switchboard_bus::BusError;
use switchboard_identity::Caller;
use switchboard_protocol::id::{DeviceId, DeviceRange};
use switchboard_runtime::problem::{Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::page::{Reach, labels_within};
use crate::{Gateway, admission::RequireRead, bus_unavailable, store_unavailable};

/// Devices whose connections are looked up at a time.
const READ_AT_ONCE: usize = 500;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountsQuery {
    /// Only devices whose IDs begin with this text.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-")]
    prefix: Option<DeviceId>,
}

/// How many devices there are.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct DeviceCounts {
    /// Devices that are connected. Those of a node that was lost count for some seconds more.
    #[schema(minimum = 0, example = 12)]
    online: u64,
    /// All devices, connected or not.
    #[schema(minimum = 0, example = 40)]
    known: u64,
}

/// Counts the devices of the organisation.
#[utoipa::path(
    get, path = "/v1/devices/counts", tag = "Devices", operation_id = "countDevices",
    params(CountsQuery),
    responses((status = 200, body = DeviceCounts, description = "How many devices there are")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Query(CountsQuery { prefix }): Query<CountsQuery>,
) -> Result<axum::Json<DeviceCounts>, Problem> {
    let range = DeviceRange {
        prefix: prefix.as_ref().map(DeviceId::as_str),
        after: None,
    };
    let Some(Reach { org, range }) = Reach::within(&caller, range) else {
        return Ok(axum::Json(DeviceCounts::default()));
    };
    let labels = labels_within(&caller, &[]);
    let (online, stored) = tokio::join!(online(&gateway, &caller, range), async {
        match labels.is_empty() {
            true => gateway.store.count_devices(org, range).await,
            false => {
                gateway
                    .store
                    .count_labelled_devices(org, range, &labels)
                    .await
            }
        }
    });
    let online = online.map_err(|error| bus_unavailable(&error))?;
    let stored = stored.map_err(|error| {
        store_unavailable(
            &error,
            "devices could not be counted",
            "The devices cannot be counted at the moment; a retry is safe.",
        )
    })?;
    // The database lags behind connections that have just begun.
    let known = stored.max(online);
    Ok(axum::Json(DeviceCounts { online, known }))
}

/// How many devices of a range are connected, of those that the caller reaches.
async fn online(
    gateway: &Gateway,
    caller: &Caller,
    range: DeviceRange<'_>,
) -> Result<u64, BusError> {
    let Some(labelled) = &caller.labelled else {
        return gateway.bus.count(caller.org, range).await;
    };
    let is_wanted = |id: &&DeviceId| {
        range
            .prefix
            .is_none_or(|prefix| id.as_str().starts_with(prefix))
    };
    let ids: Vec<DeviceId> = labelled.iter().filter(is_wanted).cloned().collect();
    let mut online = 0;
    for ids in ids.chunks(READ_AT_ONCE) {
        let found = gateway.bus.find_many(caller.org, ids).await?;
        online += found.iter().flatten().count() as u64;
    }
    Ok(online)
}
