//! `/v1/devices/{id}/approvals`: which services of a device models may call, and how they differ from what was approved.
//!
//! Invariant: what is approved is what the caller names by its digest; it is approved only while the device declares it.

mod view;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{extract::State, http::StatusCode};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use switchboard_bus::{CatalogEvent, LiveEvent};
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey},
    schema::{Digest, shown_members},
};
use switchboard_runtime::problem::{Json, Path, Problem, ProblemKind, internal};
use switchboard_store::{Approval, MAX_APPROVALS, StoreError};

pub(super) use view::ApprovalState;
use view::{AppliesTo, Approvals, Approved, Definition, NewApproval, ServiceApproval, state};

use super::{ServicesCache, device_unavailable, find};
use crate::{
    Gateway,
    admission::{RequireAdmin, RequireRead},
    store_unavailable,
};

/// A service that a device declares.
struct Declared {
    digest: Digest,
    definition: Value,
}

/// Lists the services of a device with their approvals, and with what differs from what was approved.
#[utoipa::path(
    get, path = "/v1/devices/{id}/approvals", tag = "Devices", operation_id = "listApprovals",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    responses((status = 200, body = Approvals, description = "The services that the credential reaches")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Path(id): Path<DeviceId>,
) -> Result<axum::Json<Approvals>, Problem> {
    let key = caller.device(id)?;
    let declared = declared(&gateway, &caller, &key).await?;
    let org = gateway.store.org(key.org).await;
    let org = org.map_err(|error| unavailable(&error))?;
    let mut approved = approvals(&gateway, &key, &declared).await?;
    let items = declared.into_iter().map(|(service, declared)| {
        let approved = approved.remove(&service);
        Ok(ServiceApproval {
            state: state(approved.as_ref(), declared.digest),
            digest: declared.digest,
            definition: definition(&declared.definition)?,
            approved: approved.map(Approved::try_from).transpose()?,
            service,
        })
    });
    Ok(axum::Json(Approvals {
        policy: org
            .map(|org| org.settings.model_approval)
            .unwrap_or_default(),
        items: items.collect::<Result<_, Problem>>()?,
    }))
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
    let mut declared = declared(&gateway, &caller, &key).await?;
    let declared = declared
        .remove(&service)
        .ok_or_else(|| unknown_service(&key.device, &service))?;
    if new.digest.parse() != Ok(declared.digest) {
        return Err(changed(&key.device, &service, declared.digest));
    }
    let shown = to_raw_value(&shown_members(&declared.definition)).map_err(|_| internal())?;
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
    publish(&gateway, &key).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Revokes the approval of a service: that of the device, and that of the organisation for what the device declares.
#[utoipa::path(
    delete, path = "/v1/devices/{id}/services/{service}/approval", tag = "Devices", operation_id = "revokeApproval",
    params(
        ("id" = DeviceId, Path, description = "ID of the device"),
        ("service" = String, Path, description = "Name of the service", min_length = 1, max_length = 128, example = "wave"),
    ),
    responses((status = 204, description = "The approval is revoked")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn revoke(
    State(gateway): State<Arc<Gateway>>,
    RequireAdmin(caller): RequireAdmin,
    Path((id, service)): Path<(DeviceId, String)>,
) -> Result<StatusCode, Problem> {
    caller.require_call(&id, &service)?;
    let key = caller.device(id)?;
    let declared = declared(&gateway, &caller, &key).await?;
    let digest = declared.get(&service).map(|declared| declared.digest);
    let by = caller.credential.caller_name();
    let store = gateway.store.with_actor(&by);
    if let Some(digest) = digest {
        let for_all = store.is_approved_for_all(key.org, &service, digest).await;
        if for_all.map_err(|error| not_changed(&error))? {
            caller.require_all_devices()?;
        }
    }
    // The name of no service has a control character, and the database takes no NUL.
    let is_name = !service.chars().any(char::is_control);
    let revoked = async {
        match is_name {
            true => {
                store
                    .revoke_approval(key.org, &key.device, (&service, digest))
                    .await
            }
            false => Ok(false),
        }
    };
    if !revoked.await.map_err(|error| not_changed(&error))? {
        let detail = format!(
            "The service {service:?} of the device {} is not approved.",
            key.device
        );
        return Err(Problem::new(ProblemKind::NotFound, detail));
    }
    tracing::info!(org.id = %key.org, device.id = %key.device, service, "approval revoked");
    publish(&gateway, &key).await;
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
    let declared = services.map(parse).unwrap_or_default();
    let approved = approvals(gateway, key, &declared).await.ok()?;
    let states = declared.into_iter().map(|(service, declared)| {
        let state = state(approved.get(&service), declared.digest);
        (service, state)
    });
    Some(states.collect())
}

/// The services that a device declares, as far as the caller reaches them.
async fn declared(
    gateway: &Gateway,
    caller: &Caller,
    key: &DeviceKey,
) -> Result<BTreeMap<String, Declared>, Problem> {
    let (entry, _) = find(gateway, key).await?;
    let mut cache = ServicesCache::new(gateway, caller);
    let services = cache.get(&entry).await;
    let services = services.map_err(|error| device_unavailable(&error))?;
    if cache.has_unread() {
        let detail = "The services of the device cannot be read at the moment; a retry is safe.";
        return Err(Problem::new(ProblemKind::BusUnavailable, detail));
    }
    Ok(services.as_deref().map(parse).unwrap_or_default())
}

/// Reads a services object, which was validated when it was registered.
fn parse(services: &RawValue) -> BTreeMap<String, Declared> {
    let services: BTreeMap<String, Value> =
        serde_json::from_str(services.get()).unwrap_or_default();
    let declared = services.into_iter().map(|(service, definition)| {
        let digest = Digest::of_service(&service, &definition);
        (service, Declared { digest, definition })
    });
    declared.collect()
}

/// What was approved of each of these services.
async fn approvals(
    gateway: &Gateway,
    key: &DeviceKey,
    declared: &BTreeMap<String, Declared>,
) -> Result<HashMap<String, Approval>, Problem> {
    let services = declared.iter();
    let services: Vec<(String, Digest)> = services
        .map(|(service, declared)| (service.clone(), declared.digest))
        .collect();
    let read = gateway
        .store
        .approvals_of_device(key.org, &key.device, &services)
        .await;
    let read = read.map_err(|error| unavailable(&error))?.into_iter();
    Ok(read
        .map(|approval| (approval.service.clone(), approval))
        .collect())
}

fn definition(declared: &Value) -> Result<Definition, Problem> {
    let member = |name: &str| {
        let member = declared.get(name).map(to_raw_value).transpose();
        member.map_err(|_| internal())
    };
    Ok(Definition {
        description: member("description")?,
        parameters: member("parameters")?,
        output: member("output")?,
        annotations: member("annotations")?,
    })
}

impl TryFrom<Approval> for Approved {
    type Error = Problem;

    fn try_from(approval: Approval) -> Result<Self, Problem> {
        let stored: Value =
            serde_json::from_str(approval.definition.get()).map_err(|_| internal())?;
        Ok(Self {
            digest: approval.digest,
            definition: definition(&stored)?,
            at: approval.approved_at,
            by: approval.approved_by,
            applies_to: match approval.device {
                Some(_) => AppliesTo::Device,
                None => AppliesTo::Organisation,
            },
        })
    }
}

/// Tells all nodes. They notice within seconds where that fails; the request has succeeded.
async fn publish(gateway: &Gateway, key: &DeviceKey) {
    let change = CatalogEvent::Approvals { org: key.org };
    if let Err(error) = gateway.bus.publish_catalog_event(change).await {
        tracing::warn!(%error, "a change of approvals cannot be published; nodes read it within seconds");
    }
    gateway
        .bus
        .record_live(key.org, || LiveEvent::DeviceChanged {
            device_id: key.device.clone(),
        });
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
