//! `/v1/devices/counts`: how many devices an organisation has.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{DeviceId, DeviceRange};
use switchboard_runtime::problem::{Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::page::Reach;
use crate::{Gateway, admission::RequireRead, bus_unavailable, store_unavailable};

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
    let (online, stored) = tokio::join!(
        gateway.bus.count(org, range),
        gateway.store.count_devices(org, range)
    );
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
