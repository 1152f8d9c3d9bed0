//! `/v1/webhooks`: the webhooks of an organisation.
//!
//! Invariant: a secret is sent once, when it is created. A webhook changes only if `If-Match` has
//! its current version.

pub(crate) mod deliveries;
mod delivery;
pub(crate) mod rotation;
pub(crate) mod schema;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use switchboard_protocol::id::{OrgId, WebhookId};
use switchboard_runtime::{
    paging::{Cursor, JsonElements, Limit, List, Paging},
    problem::{Json, Path, Problem, ProblemKind, Query, internal},
    quota::Quota,
};
use switchboard_store::{MAX_WEBHOOKS, Webhook};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Control,
    http::{
        auth::{AuditActor, RequireAdmin},
        documents::StrictJson,
        error::ControlError,
        etag,
        idempotency::{Created, Idempotent},
        response::JsonResponse,
    },
    workers::webhooks::{Secret, SecretVault},
};
use schema::{CreatedWebhook, WebhookView};

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Webhooks {
    /// Oldest first.
    #[schema(max_items = 200, value_type = Vec<WebhookView>)]
    webhooks: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

/// Creates a webhook.
///
/// No other response has its secret.
#[utoipa::path(
    post, path = "/v1/webhooks", tag = "Webhooks", operation_id = "createWebhook",
    request_body(content = schema::WebhookDocument),
    responses((status = 201, body = CreatedWebhook, description = "Created; the response is the only one with the secret", headers(("Location" = String, description = "Path of the created resource"), ("ETag" = String, description = "Version, for `If-Match`"), ("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "too_many_webhooks", "quota_exceeded", "store_unavailable"]))),
)]
pub(crate) async fn create(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Idempotent(guard, Json(StrictJson(document))): Idempotent<Json<StrictJson>>,
) -> Result<Response, ControlError> {
    let settings = schema::parse_new(&document, &control.webhook_networks)?;
    control
        .admit(caller.org.into(), &[(Quota::Settings, 1)])
        .await?;
    let (secret, sealed) = control.new_secret().await?;
    let id = WebhookId::from_uuid(Uuid::now_v7());
    let mut creation = guard.begin_in_turn(&control.store, caller.org).await?;
    let webhook = creation.create_webhook(caller.org, id, &settings, &sealed);
    let webhook = webhook.await?.ok_or_else(too_many)?;
    let response = guard.commit(creation, created(&secret, webhook)).await?;
    tracing::info!(org.id = %caller.org, webhook.id = %id, "webhook created");
    control.webhook_changed(caller.org, id);
    Ok(response)
}

/// Lists webhooks.
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "Webhooks", operation_id = "listWebhooks",
    params(Paging),
    responses((status = 200, body = Webhooks, description = "A page of webhooks")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Query(paging): Query<Paging>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(paging.limit)?;
    let list = List::new("/v1/webhooks", caller.org);
    let after = list.position(paging.cursor)?;
    let store = &control.store;
    let found = store.webhooks(caller.org, after, limit.fetch_count());
    let (webhooks, next_cursor) = limit.json_page(
        found.await?,
        |webhook| list.cursor(webhook.id),
        WebhookView::from,
    );
    Ok(JsonResponse::page(
        &control,
        caller.org,
        &Webhooks {
            webhooks,
            next_cursor,
        },
    )?)
}

/// Gets a webhook, with the state of its deliveries.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", tag = "Webhooks", operation_id = "getWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 200, body = WebhookView, description = "The webhook", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"]))),
)]
pub(crate) async fn get(
    State(control): State<Arc<Control>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<String>,
) -> Result<JsonResponse, ControlError> {
    Ok(control.webhook(caller.org, &id).await?.into())
}

/// Updates a webhook with a JSON merge patch (RFC 7396).
///
/// Null resets a member. Disabling a webhook drops its pending deliveries.
#[utoipa::path(
    patch, path = "/v1/webhooks/{id}", tag = "Webhooks", operation_id = "updateWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    request_body(content = ref("#/components/schemas/WebhookPatch"), content_type = "application/merge-patch+json"),
    responses((status = 200, body = WebhookView, description = "The updated webhook", headers(("ETag" = String, description = "Version, for `If-Match`")))),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn update(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(StrictJson(patch)): Json<StrictJson>,
) -> Result<JsonResponse, ControlError> {
    let current = control.webhook(caller.org, &id).await?;
    etag::require_version(&headers, current.version)?;
    let settings = schema::apply_patch(&current, patch, &control.webhook_networks)?;
    if settings == current.settings {
        return Ok(current.into());
    }
    let (org, id, version) = (current.org, current.id, current.version);
    let store = &control.store;
    let written = store.replace_webhook(org, id, version, &settings).await?;
    let webhook = written.ok_or_else(etag::precondition_failed)?;
    tracing::info!(org.id = %org, webhook.id = %id, webhook.version = webhook.version, "webhook updated");
    control.webhook_changed(org, id);
    Ok(webhook.into())
}

/// Deletes a webhook and its deliveries.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", tag = "Webhooks", operation_id = "deleteWebhook",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 204, description = "Deleted")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "store_unavailable"])), ("x-if-match" = json!(true))),
)]
pub(crate) async fn delete(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ControlError> {
    let current = control.webhook(caller.org, &id).await?;
    etag::require_version(&headers, current.version)?;
    let (org, id, version) = (current.org, current.id, current.version);
    if !control.store.delete_webhook(org, id, version).await? {
        return Err(etag::precondition_failed().into());
    }
    tracing::info!(org.id = %org, webhook.id = %id, "webhook deleted");
    control.webhook_changed(org, id);
    Ok(StatusCode::NO_CONTENT)
}

impl Control {
    async fn webhook(&self, org: OrgId, id: &str) -> Result<Webhook, ControlError> {
        let found = self.store.webhook(org, parse_id(id)?).await?;
        found.ok_or_else(|| not_found(id))
    }

    /// A new secret, and its sealed form for the store.
    async fn new_secret(&self) -> Result<(Secret, Vec<u8>), ControlError> {
        let vault = SecretVault::load(&self.store).await?;
        let secret = Secret::generate();
        let sealed = vault.seal(&secret).ok_or_else(internal)?;
        Ok((secret, sealed))
    }
}

fn parse_id(id: &str) -> Result<WebhookId, ControlError> {
    id.parse().map_err(|_| not_found(id))
}

fn not_found(id: &str) -> ControlError {
    ControlError::not_found("webhook", id)
}

/// The response to a request that created this secret.
fn created(secret: &Secret, webhook: Webhook) -> Created {
    let (id, version) = (webhook.id, webhook.version);
    let document = CreatedWebhook::new(secret.encoded(), webhook);
    Created::new(&document)
        .location(format!("/v1/webhooks/{id}"))
        .etag(etag::from_version(version))
        .secret()
}

impl From<Webhook> for JsonResponse {
    fn from(webhook: Webhook) -> Self {
        let etag = etag::from_version(webhook.version);
        Self::ok(&WebhookView::from(webhook)).etag(etag)
    }
}

fn too_many() -> Problem {
    Problem::new(
        ProblemKind::TooManyWebhooks,
        format!(
            "The organisation has {MAX_WEBHOOKS} webhooks, which is the limit. Delete one first."
        ),
    )
}
