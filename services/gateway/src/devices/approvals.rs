//! `/v1/approvals` and `/v1/devices/{id}/approvals`: which services models may call, and how what devices declare differs
//! from what was approved.
//!
//! Invariant: what is approved is what the caller names by its digest; it is approved only while the device declares it.

mod declared;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{extract::State, http::StatusCode, response::Response};
use serde_json::value::RawValue;
use switchboard_bus::{CatalogEvent, LiveEvent};
use switchboard_identity::outside_key;
use switchboard_protocol::{
    id::{ApprovalId, DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::{
    paging::{JsonElements, Limit, List, Paging},
    problem::{Json, Path, Problem, ProblemKind, Query},
};
use switchboard_store::{Approval, MAX_APPROVALS, StoreError};

use declared::Declared;
pub(super) use view::ApprovalState;
use view::{
    AppliesTo, ApprovalPage, ApprovalView, Approvals, Approved, Definition, NewApproval,
    ServiceApproval, state,
};

use crate::{
    Gateway,
    admission::{RequireAdmin, RequireRead},
    page_response, store_unavailable,
};

/// Lists the services of a device with their approvals, and with what differs from what was approved.
#[utoipa::path(
    get, path = "/v1/devices/{id}/approvals", tag = "Devices", operation_id = "listApprovals",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    responses((status = 200, body = Approvals, description = "The services that the credential reaches")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "overloaded", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Path(id): Path<DeviceId>,
) -> Result<Response, Problem> {
    let key = caller.device(id)?;
    let declared = Declared::read(&gateway, &caller, &key).await?;
    let org = gateway.store.org(key.org).await;
    let org = org.map_err(|error| unavailable(&error))?;
    let mut approved = approvals(&gateway, &key, &declared, true).await?;
    let mut items = JsonElements::default();
    for (service, declared) in declared.services {
        let approved = approved.remove(&service);
        items.push(&ServiceApproval {
            state: state(approved.as_ref(), declared.digest),
            digest: declared.digest,
            definition: Definition::parse(&declared.definition)?,
            approved: approved.map(Approved::try_from).transpose()?,
            service,
        });
    }
    let bytes = items.bytes();
    let page = Approvals {
        policy: org
            .map(|org| org.settings.model_approval)
            .unwrap_or_default(),
        items,
    };
    page_response(&gateway, key.org, bytes, page).await
}

/// Approves a service: models may call it as it is.
///
/// The approval replaces an earlier one for the same device. It ends when the device declares the service otherwise; an approval for the
/// organisation counts for every device that declares the same.
#[utoipa::path(
    put, path = "/v1/devices/{id}/services/{service}/approval", tag = "Devices", operation_id = "approveService",
    params(
        ("id" = DeviceId, Path, description = "ID of the device"),
        ("service" = String, Path, description = "Name of the service", min_length = 1, max_length = 128, example = "wave"),
    ),
    request_body(content = NewApproval),
    responses((status = 204, description = "The service is approved")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "unknown_service", "service_changed", "too_many_approvals", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn approve(
    State(gateway): State<Arc<Gateway>>,
    RequireAdmin(caller): RequireAdmin,
    Path((id, service)): Path<(DeviceId, String)>,
    Json(new): Json<NewApproval>,
) -> Result<StatusCode, Problem> {
    caller.require_call(&id, &service)?;
    if new.applies_to == AppliesTo::Organisation {
        caller.require_all_devices()?;
    }
    let key = caller.device(id)?;
    let mut declared = Declared::read(&gateway, &caller, &key).await?;
    let declared = declared
        .services
        .remove(&service)
        .ok_or_else(|| unknown_service(&key.device, &service))?;
    if new.digest.parse() != Ok(declared.digest) {
        return Err(changed(&key.device, &service, declared.digest));
    }
    let shown = declared.shown()?;
    let by = caller.credential.caller_name();
    let device = (new.applies_to == AppliesTo::Device).then_some(&key.device);
    let store = gateway.store.with_actor(&by);
    let approved = store
        .approve_service(key.org, device, (&service, declared.digest), (&shown, &by))
        .await;
    if !approved.map_err(|error| not_changed(&error))? {
        return Err(too_many());
    }
    tracing::info!(org.id = %key.org, device.id = %key.device, service, "service approved");
    publish(&gateway, key.org, device).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the approvals of the organisation, oldest first, whether or not a device declares what they are of.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "Devices", operation_id = "listOrgApprovals",
    params(Paging),
    responses((status = 200, body = ApprovalPage, description = "A page of approvals")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["outside_key", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list_all(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Query(Paging { limit, cursor }): Query<Paging>,
) -> Result<Response, Problem> {
    caller.require_everything()?;
    let limit = Limit::new(limit)?;
    let list = List::new("/v1/approvals", caller.org);
    let after = list.position(cursor)?;
    let found = gateway
        .store
        .approvals(caller.org, after, limit.fetch_count());
    let found = found.await.map_err(|error| unavailable(&error))?;
    let (items, next_cursor) = limit.json_page(
        found,
        |approval| list.cursor(approval.id),
        ApprovalView::from,
    );
    let bytes = items.bytes();
    page_response(
        &gateway,
        caller.org,
        bytes,
        ApprovalPage { items, next_cursor },
    )
    .await
}

/// Revokes an approval: that of a device, or that of the organisation, which counts for all devices.
#[utoipa::path(
    delete, path = "/v1/approvals/{id}", tag = "Devices", operation_id = "revokeApproval",
    params(("id" = ApprovalId, Path, description = "ID of the approval")),
    responses((status = 204, description = "The approval is revoked")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "store_unavailable"]))),
)]
pub(crate) async fn revoke(
    State(gateway): State<Arc<Gateway>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<ApprovalId>,
) -> Result<StatusCode, Problem> {
    let store = gateway.store.with_actor(&caller.credential.caller_name());
    let found = store.approval(caller.org, id).await;
    let approval = found
        .map_err(|error| not_changed(&error))?
        .ok_or_else(|| no_approval(id))?;
    match &approval.device {
        Some(device) => caller.require_call(device, &approval.service)?,
        None => {
            caller.require_all_devices()?;
            let checked = caller.check_service(&approval.service);
            checked.map_err(|outside| outside_key(&outside))?;
        }
    }
    let revoked = store.revoke_approval(caller.org, id).await;
    if !revoked.map_err(|error| not_changed(&error))? {
        return Err(no_approval(id));
    }
    tracing::info!(org.id = %caller.org, approval.id = %id, "approval revoked");
    publish(&gateway, caller.org, approval.device.as_ref()).await;
    Ok(StatusCode::NO_CONTENT)
}

/// The states of these services of a device; `None` if the organisation requires no approvals, or if they cannot be
/// read: the state of the connection is shown without them.
pub(super) async fn states(
    gateway: &Gateway,
    key: &DeviceKey,
    services: Option<&RawValue>,
) -> Option<BTreeMap<String, ApprovalState>> {
    if gateway.bus.requires_approvals(key.org) != Some(true) {
        return None;
    }
    let declared = services.map(Declared::parse).unwrap_or_default();
    let approved = approvals(gateway, key, &declared, false).await.ok()?;
    let states = declared.services.into_iter().map(|(service, declared)| {
        let state = state(approved.get(&service), declared.digest);
        (service, state)
    });
    Some(states.collect())
}

/// The approval of each of these services, with what was approved if that is wanted.
async fn approvals(
    gateway: &Gateway,
    key: &DeviceKey,
    declared: &Declared,
    with_definitions: bool,
) -> Result<HashMap<String, Approval>, Problem> {
    let services = declared.services.iter();
    let services: Vec<(String, Digest)> = services
        .map(|(service, declared)| (service.clone(), declared.digest))
        .collect();
    let read = gateway
        .store
        .approvals_of_device(key.org, &key.device, &services, with_definitions)
        .await;
    let read = read.map_err(|error| unavailable(&error))?.into_iter();
    Ok(read
        .map(|approval| (approval.service.clone(), approval))
        .collect())
}

/// Tells all nodes. They notice within seconds where that fails; the request has succeeded.
async fn publish(gateway: &Gateway, org: OrgId, device: Option<&DeviceId>) {
    let change = CatalogEvent::Approvals { org };
    if let Err(error) = gateway.bus.publish_catalog_event(change).await {
        tracing::warn!(%error, "a change of approvals cannot be published; nodes read it within seconds");
    }
    gateway.bus.record_live(org, || match device {
        Some(device) => LiveEvent::DeviceChanged {
            device_id: device.clone(),
        },
        None => LiveEvent::SettingChanged {
            kind: "approval",
            id: org.to_string(),
        },
    });
}

fn no_approval(id: ApprovalId) -> Problem {
    let detail = format!("The organisation has no approval {id}.");
    Problem::new(ProblemKind::NotFound, detail)
}

fn unknown_service(device: &DeviceId, service: &str) -> Problem {
    let detail = format!("The device {device} declares no service {service:?}.");
    Problem::new(ProblemKind::UnknownService, detail)
}

fn changed(device: &DeviceId, service: &str, digest: Digest) -> Problem {
    let detail = format!(
        "The device {device} declares the service {service:?} with another digest; read the approvals of the device again."
    );
    Problem::new(ProblemKind::ServiceChanged, detail).with("digest", digest.to_string())
}

fn too_many() -> Problem {
    let detail = format!(
        "The organisation has {MAX_APPROVALS} approvals or 32 MiB of approved definitions, which is the limit; revoke \
         some, or approve for the organisation instead of each device."
    );
    Problem::new(ProblemKind::TooManyApprovals, detail).with("limit", MAX_APPROVALS)
}

fn unavailable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "approvals could not be read",
        "The approvals of the device cannot be read at the moment; a retry is safe.",
    )
}

fn not_changed(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "an approval could not be changed",
        "Approvals cannot be changed at the moment; a retry is safe.",
    )
}
