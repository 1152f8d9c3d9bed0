//! `/v1/webhooks/{id}/deliveries`: what became of what a webhook was to be told; trying it out, and repeating.
//! Never: a delivery repeated that has arrived, or to a webhook that is told nothing.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{SecondsFormat, Utc};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use switchboard_protocol::id::{DeliveryId, WebhookId};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Path, Problem, Query, RawBody},
};
use switchboard_store::{Delivery, DeliveryState, Redelivery};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{
    delivery::{ShownDelivery, ShownState},
    read_id, unknown,
};
use crate::{
    Control,
    access::Administrator,
    error::ControlError,
    once::{Made, Once},
};

/// What is told to try a webhook out.
const TEST: &str = "webhook.test";

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deliveries {
    /// The newest first.
    #[schema(max_items = 200)]
    deliveries: Vec<ShownDelivery>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// The most elements of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the page before.
    cursor: Option<Cursor>,
    /// Only those that are so far.
    state: Option<ShownState>,
}

/// Lists what a webhook was to be told, the newest first, up to 7 days back.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}/deliveries", tag = "Webhooks", operation_id = "listDeliveries",
    params(("id" = WebhookId, Path, description = "The webhook"), Listing),
    responses((status = 200, body = Deliveries, description = "A page of deliveries")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Path(id): Path<String>,
    Query(listing): Query<Listing>,
) -> Result<axum::Json<Deliveries>, ControlError> {
    let limit = Limit::new(listing.limit)?;
    let webhook = control.webhook(caller.org, &id).await?.id;
    let list = List::of(&format!("/v1/webhooks/{webhook}/deliveries"), caller.org);
    let after = list.after(listing.cursor)?;
    let state = listing.state.map(DeliveryState::from);
    let store = &control.store;
    let found = store.webhook_deliveries(caller.org, webhook, state, after, limit.probe());
    let (page, next_cursor) = limit.cut(found.await?, |delivery| list.behind(delivery.id));
    Ok(axum::Json(Deliveries {
        deliveries: page.into_iter().map(ShownDelivery::from).collect(),
        next_cursor,
    }))
}

/// Shows a delivery.
#[utoipa::path(
    get, path = "/v1/webhook-deliveries/{id}", tag = "Webhooks", operation_id = "getDelivery",
    params(("id" = DeliveryId, Path, description = "The delivery")),
    responses((status = 200, body = ShownDelivery, description = "The delivery")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Path(id): Path<String>,
) -> Result<axum::Json<ShownDelivery>, ControlError> {
    let delivery = id.parse().map_err(|_| unknown_delivery(&id))?;
    let found = control.store.webhook_delivery(caller.org, delivery).await?;
    let found = found.ok_or_else(|| unknown_delivery(&id))?;
    Ok(axum::Json(found.into()))
}

/// Tells a webhook `webhook.test`, to try it out.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/test", tag = "Webhooks", operation_id = "testWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 201, body = ShownDelivery, description = "It is on its way", headers(("Location" = String, description = "Where it is seen what became of it")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "not_found", "webhook_disabled", "too_many_deliveries", "store_unavailable"]))),
)]
pub(crate) async fn test(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Path(id): Path<String>,
    Once(ticket, RawBody(_)): Once<RawBody>,
) -> Result<Response, ControlError> {
    let webhook = read_id(&id)?;
    let delivery = DeliveryId::from_uuid(Uuid::now_v7());
    let payload = json!({
        "type": TEST,
        "timestamp": Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true),
        "data": {"webhook_id": webhook},
    });
    let mut creation = ticket.begin(&control.store, caller.org).await?;
    let added = creation
        .add_webhook_delivery(caller.org, webhook, delivery, TEST, &payload.to_string())
        .await?;
    let added = waits(added, || unknown(&id))?;
    ticket.commit(creation, made(added)).await
}

/// Has a delivery attempted anew that was given up, under the same id.
#[utoipa::path(
    post, path = "/v1/webhook-deliveries/{id}/redeliver", tag = "Webhooks", operation_id = "redeliver",
    params(("id" = DeliveryId, Path, description = "The delivery")),
    responses((status = 201, body = ShownDelivery, description = "It is on its way again", headers(("Location" = String, description = "Where it is seen what became of it")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "not_found", "webhook_disabled", "delivery_not_failed", "too_many_deliveries", "store_unavailable"]))),
)]
pub(crate) async fn redeliver(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Path(id): Path<String>,
    Once(ticket, RawBody(_)): Once<RawBody>,
) -> Result<Response, ControlError> {
    let delivery = id.parse().map_err(|_| unknown_delivery(&id))?;
    let mut creation = ticket.begin(&control.store, caller.org).await?;
    let repeated = creation.redeliver(caller.org, delivery).await?;
    let repeated = waits(repeated, || unknown_delivery(&id))?;
    ticket.commit(creation, made(repeated)).await
}

/// The delivery, if it waits now.
fn waits(
    asked: Redelivery,
    unknown: impl FnOnce() -> ControlError,
) -> Result<Delivery, ControlError> {
    match asked {
        Redelivery::Waits(delivery) => Ok(delivery),
        Redelivery::Unknown => Err(unknown()),
        Redelivery::Disabled => Err(disabled().into()),
        Redelivery::NotFailed => Err(not_failed().into()),
        Redelivery::TooMany => Err(too_many().into()),
    }
}

fn made(delivery: Delivery) -> Made {
    let location = format!("/v1/webhook-deliveries/{}", delivery.id);
    Made::new(&ShownDelivery::from(delivery)).at(location)
}

fn unknown_delivery(id: &str) -> ControlError {
    ControlError::unknown("delivery", id)
}

fn disabled() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "webhook_disabled",
        "Webhook disabled",
        "The webhook is told nothing while it is disabled; enable it first.",
    )
}

fn not_failed() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "delivery_not_failed",
        "Delivery not failed",
        "The delivery has arrived, or is attempted still; only what was given up is repeated.",
    )
}

fn too_many() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "too_many_deliveries",
        "Too many deliveries",
        "As many deliveries wait for the webhook as may; ask again when some have arrived or were given up.",
    )
}
