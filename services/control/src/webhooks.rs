//! `/v1/webhooks`: where an organisation is told what happens.
//! Never: a secret shown a second time, or a change by somebody who has not seen what they change.

mod attempt;
mod authorities;
pub(crate) mod deliveries;
mod delivery;
mod destination;
mod networks;
mod post;
mod public;
pub(crate) mod rotation;
mod schedule;
mod secret;
pub(crate) mod shape;
mod under_way;
mod worker;

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, Response},
};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::Serialize;
use switchboard_protocol::id::{OrgId, WebhookId};
use switchboard_runtime::{
    paging::{Cursor, Limit, List, Paging},
    problem::{Json, Path, Problem, Query, internal},
};
use switchboard_store::{MOST_WEBHOOKS, Webhook};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    access::{Acting, Administrator},
    document::Unambiguous,
    error::ControlError,
    once::{Made, Once},
    precondition,
};
pub use authorities::Authorities;
pub(crate) use networks::Networks;
use secret::{Secret, Vault};
use shape::{CreatedWebhook, ShownWebhook};
pub(crate) use worker::Worker;

/// A webhook, and its version as an entity tag.
type Shown = (
    AppendHeaders<[(HeaderName, String); 1]>,
    axum::Json<ShownWebhook>,
);

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Webhooks {
    /// In the order of their making.
    #[schema(max_items = 200)]
    webhooks: Vec<ShownWebhook>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
}

/// Makes a webhook. Its secret is shown this once.
#[utoipa::path(
    post, path = "/v1/webhooks", tag = "Webhooks", operation_id = "createWebhook",
    request_body(content = shape::Document),
    responses((status = 201, body = CreatedWebhook, description = "It is made; the secret is shown this once", headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "Its version, for If-Match"), ("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "too_many_webhooks", "store_unavailable"]))),
)]
pub(crate) async fn create(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Once(ticket, Json(Unambiguous(document))): Once<Json<Unambiguous>>,
) -> Result<Response, ControlError> {
    let settings = shape::created(&document, &control.webhook_networks)?;
    let (secret, sealed) = control.new_secret().await?;
    let id = WebhookId::from_uuid(Uuid::now_v7());
    let mut creation = ticket.begin(&control.store, caller.org).await?;
    let webhook = creation.create_webhook(caller.org, id, &settings, &sealed);
    let webhook = webhook.await?.ok_or_else(too_many)?;
    let response = ticket.commit(creation, made(&secret, webhook)).await?;
    tracing::info!(org.id = %caller.org, webhook.id = %id, "a webhook was created");
    Ok(response)
}

/// Lists webhooks.
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "Webhooks", operation_id = "listWebhooks",
    params(Paging),
    responses((status = 200, body = Webhooks, description = "A page of webhooks")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Webhooks>, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let list = List::of("/v1/webhooks", caller.org);
    let after = list.after(paging.cursor)?;
    let store = &control.store;
    let found = store.webhooks(caller.org, after, limit.probe());
    let (page, next_cursor) = limit.cut(found.await?, |webhook| list.behind(webhook.id));
    Ok(axum::Json(Webhooks {
        webhooks: page.into_iter().map(ShownWebhook::from).collect(),
        next_cursor,
    }))
}

/// Shows a webhook, and how it fares.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", tag = "Webhooks", operation_id = "getWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 200, body = ShownWebhook, description = "The webhook", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn show(
    State(control): State<Arc<Control>>,
    Administrator(caller): Administrator,
    Path(id): Path<String>,
) -> Result<Shown, ControlError> {
    Ok(shown(control.webhook(caller.org, &id).await?))
}

/// Changes what a merge patch (RFC 7396) names; null removes. What waits for a webhook that is disabled is given up.
#[utoipa::path(
    patch, path = "/v1/webhooks/{id}", tag = "Webhooks", operation_id = "changeWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    request_body(content = ref("#/components/schemas/WebhookPatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = ShownWebhook, description = "The webhook as it is now", headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn change(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(Unambiguous(patch)): Json<Unambiguous>,
) -> Result<Shown, ControlError> {
    let current = control.webhook(caller.org, &id).await?;
    precondition::require(&headers, current.version)?;
    let settings = shape::patched(&current, patch, &control.webhook_networks)?;
    if settings == current.settings {
        return Ok(shown(current));
    }
    let (org, id, version) = (current.org, current.id, current.version);
    let store = &control.store;
    let written = store.replace_webhook(org, id, version, &settings).await?;
    let webhook = written.ok_or_else(precondition::stale)?;
    tracing::info!(org.id = %org, webhook.id = %id, webhook.version = webhook.version, "a webhook was changed");
    Ok(shown(webhook))
}

/// Removes a webhook and its deliveries.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", tag = "Webhooks", operation_id = "removeWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 204, description = "It is gone")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn remove(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ControlError> {
    let current = control.webhook(caller.org, &id).await?;
    precondition::require(&headers, current.version)?;
    let (org, id, version) = (current.org, current.id, current.version);
    if !control.store.delete_webhook(org, id, version).await? {
        return Err(precondition::stale().into());
    }
    tracing::info!(org.id = %org, webhook.id = %id, "a webhook was removed");
    Ok(StatusCode::NO_CONTENT)
}

impl Control {
    async fn webhook(&self, org: OrgId, id: &str) -> Result<Webhook, ControlError> {
        let found = self.store.webhook(org, read_id(id)?).await?;
        found.ok_or_else(|| unknown(id))
    }

    /// A secret, and how it is stored.
    async fn new_secret(&self) -> Result<(Secret, Vec<u8>), ControlError> {
        let vault = Vault::open(&self.store).await?;
        let secret = Secret::generate();
        let sealed = vault.close(&secret).ok_or_else(internal)?;
        Ok((secret, sealed))
    }
}

fn read_id(id: &str) -> Result<WebhookId, ControlError> {
    id.parse().map_err(|_| unknown(id))
}

fn unknown(id: &str) -> ControlError {
    ControlError::unknown("webhook", id)
}

fn made(secret: &Secret, webhook: Webhook) -> Made {
    let (id, version) = (webhook.id, webhook.version);
    let document = CreatedWebhook::new(secret.shown(), webhook);
    Made::new(&document)
        .at(format!("/v1/webhooks/{id}"))
        .tagged(precondition::etag(version))
        .secret()
}

fn shown(webhook: Webhook) -> Shown {
    let tag = precondition::etag(webhook.version);
    (
        AppendHeaders([(header::ETAG, tag)]),
        axum::Json(webhook.into()),
    )
}

fn too_many() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "too_many_webhooks",
        "Too many webhooks",
        format!(
            "The organisation has {MOST_WEBHOOKS} webhooks, and may have no more; remove one first."
        ),
    )
}
