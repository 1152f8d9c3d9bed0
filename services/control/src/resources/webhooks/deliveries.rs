//! `/v1/webhooks/{id}/deliveries`: the deliveries of a webhook, test deliveries and redeliveries.
//!
//! Invariant: only a failed delivery is repeated, and only to an enabled webhook.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use switchboard_protocol::id::{DeliveryId, WebhookId};
use switchboard_runtime::{
    paging::{self, Cursor, JsonElements, Limit, List},
    problem::{Path, Problem, ProblemKind, Query, RawBody},
};
use switchboard_store::{Delivery, DeliveryState, Redelivery};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{
    delivery::{DeliveryStateView, DeliveryView},
    not_found, parse_id,
};
use crate::{
    Control,
    http::{
        auth::RequireAdmin,
        error::ControlError,
        idempotency::{Created, Idempotent},
        response::JsonResponse,
    },
};

/// The event of test deliveries.
const TEST_EVENT: &str = "webhook.test";

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deliveries {
    /// Newest first.
    #[schema(max_items = 200, value_type = Vec<DeliveryView>)]
    deliveries: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Maximum number of elements in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
    /// Only deliveries in this state.
    state: Option<DeliveryStateView>,
}

/// Lists the deliveries of a webhook in the last 7 days, newest first.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}/deliveries", tag = "Webhooks", operation_id = "listDeliveries",
    params(("id" = WebhookId, Path, description = "The webhook"), ListParams),
    responses((status = 200, body = Deliveries, description = "A page of deliveries")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<String>,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    let webhook = control.webhook(caller.org, &id).await?.id;
    let list = List::new(&format!("/v1/webhooks/{webhook}/deliveries"), caller.org);
    let after = list.position(params.cursor)?;
    let state = params.state.map(DeliveryState::from);
    let store = &control.store;
    let found = store.webhook_deliveries(caller.org, webhook, state, after, limit.fetch_count());
    let (deliveries, next_cursor) = limit.json_page(
        found.await?,
        |delivery| list.cursor(delivery.id),
        DeliveryView::from,
    );
    let deliveries = Deliveries {
        deliveries,
        next_cursor,
    };
    Ok(JsonResponse::page(&control, caller.org, &deliveries)?)
}

/// Gets a delivery.
#[utoipa::path(
    get, path = "/v1/webhook-deliveries/{id}", tag = "Webhooks", operation_id = "getDelivery",
    params(("id" = DeliveryId, Path, description = "The delivery")),
    responses((status = 200, body = DeliveryView, description = "The delivery")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    let delivery = id.parse().map_err(|_| unknown_delivery(&id))?;
    let found = control.store.webhook_delivery(caller.org, delivery).await?;
    let found = found.ok_or_else(|| unknown_delivery(&id))?;
    Ok(JsonResponse::ok(&DeliveryView::from(found)))
}

/// Sends the event `webhook.test` to a webhook.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/test", tag = "Webhooks", operation_id = "testWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 201, body = DeliveryView, description = "The delivery is pending", headers(("Location" = String, description = "Path of the delivery")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "quota_exceeded", "not_found", "webhook_disabled", "too_many_deliveries", "store_unavailable"]))),
)]
pub(crate) async fn test(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<String>,
    Idempotent(guard, RawBody(_)): Idempotent<RawBody>,
) -> Result<Response, ControlError> {
    let webhook = parse_id(&id)?;
    let delivery = DeliveryId::from_uuid(Uuid::now_v7());
    let payload = json!({
        "type": TEST_EVENT,
        "timestamp": Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true),
        "data": {"webhook_id": webhook},
    });
    let mut creation = guard.begin(&control.store, caller.org.into()).await?;
    let added = creation
        .add_webhook_delivery(
            caller.org,
            webhook,
            delivery,
            TEST_EVENT,
            &payload.to_string(),
        )
        .await?;
    let added = into_pending(added, || not_found(&id))?;
    guard.commit(creation, created(added)).await
}

/// Repeats a failed delivery, with the same id.
#[utoipa::path(
    post, path = "/v1/webhook-deliveries/{id}/redeliver", tag = "Webhooks", operation_id = "retryDelivery",
    params(("id" = DeliveryId, Path, description = "The delivery")),
    responses((status = 201, body = DeliveryView, description = "The delivery is pending again", headers(("Location" = String, description = "Path of the delivery")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "quota_exceeded", "not_found", "webhook_disabled", "delivery_not_failed", "too_many_deliveries", "store_unavailable"]))),
)]
pub(crate) async fn redeliver(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<String>,
    Idempotent(guard, RawBody(_)): Idempotent<RawBody>,
) -> Result<Response, ControlError> {
    let delivery = id.parse().map_err(|_| unknown_delivery(&id))?;
    let mut creation = guard.begin(&control.store, caller.org.into()).await?;
    let repeated = creation.redeliver(caller.org, delivery).await?;
    let repeated = into_pending(repeated, || unknown_delivery(&id))?;
    guard.commit(creation, created(repeated)).await
}

/// The delivery, if it is pending now.
fn into_pending(
    redelivery: Redelivery,
    not_found: impl FnOnce() -> ControlError,
) -> Result<Delivery, ControlError> {
    match redelivery {
        Redelivery::Pending(delivery) => Ok(delivery),
        Redelivery::Unknown => Err(not_found()),
        Redelivery::Disabled => Err(disabled().into()),
        Redelivery::NotFailed => Err(not_failed().into()),
        Redelivery::TooMany => Err(too_many().into()),
    }
}

/// The response to a request that created this delivery.
fn created(delivery: Delivery) -> Created {
    let location = format!("/v1/webhook-deliveries/{}", delivery.id);
    Created::new(&DeliveryView::from(delivery)).location(location)
}

fn unknown_delivery(id: &str) -> ControlError {
    ControlError::not_found("delivery", id)
}

fn disabled() -> Problem {
    Problem::new(
        ProblemKind::WebhookDisabled,
        "A disabled webhook receives no events; enable it first.",
    )
}

fn not_failed() -> Problem {
    Problem::new(
        ProblemKind::DeliveryNotFailed,
        "The delivery has succeeded or is still pending; only failed deliveries can be repeated.",
    )
}

fn too_many() -> Problem {
    Problem::new(
        ProblemKind::TooManyDeliveries,
        "The webhook has the maximum number of pending deliveries; try again later.",
    )
}
