//! `/v1/webhooks/{id}/rotate-secret`: a new secret for a webhook.
//!
//! Invariant: for a day, deliveries are signed with both secrets, so a receiver with either of them
//! can verify them.

use axum::response::Response;
use switchboard_protocol::id::WebhookId;
use switchboard_runtime::problem::{Path, RawBody};

use super::{created, not_found, parse_id, schema::CreatedWebhook};
use crate::http::{
    auth::{AuditActor, RequireAdmin},
    error::ControlError,
    idempotency::Idempotent,
};

/// Creates a new secret for a webhook.
///
/// The previous one remains valid for 24 hours. No other response has the new secret.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/rotate-secret", tag = "Webhooks", operation_id = "rotateWebhookSecret",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 201, body = CreatedWebhook, description = "The webhook, with the new secret; no other response has it", headers(("Location" = String, description = "Path of the created resource"), ("ETag" = String, description = "Version, for `If-Match`"), ("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "quota_exceeded", "not_found", "store_unavailable"]))),
)]
pub(crate) async fn rotate(
    RequireAdmin(caller): RequireAdmin,
    AuditActor(control): AuditActor,
    Path(id): Path<String>,
    Idempotent(guard, RawBody(_)): Idempotent<RawBody>,
) -> Result<Response, ControlError> {
    let webhook = parse_id(&id)?;
    let (secret, sealed) = control.new_secret().await?;
    let mut creation = guard.begin(&control.store, caller.org.into()).await?;
    let rotated = creation.rotate_webhook_secret(caller.org, webhook, &sealed);
    let rotated = rotated.await?.ok_or_else(|| not_found(&id))?;
    let response = guard.commit(creation, created(&secret, rotated)).await?;
    tracing::info!(org.id = %caller.org, webhook.id = %webhook, "webhook secret rotated");
    control.webhook_changed(caller.org, webhook);
    Ok(response)
}
