//! `/v1/webhooks/{id}/rotate-secret`: another secret, while the one before goes on for a day.
//! Never: a moment in which a receiver that knows either of them cannot verify.

use axum::response::Response;
use switchboard_protocol::id::WebhookId;
use switchboard_runtime::problem::{Path, RawBody};

use super::{made, read_id, shape::CreatedWebhook, unknown};
use crate::{
    access::{Acting, Administrator},
    error::ControlError,
    once::Once,
};

/// Gives a webhook a new secret, shown this once. The one before signs as well for 24 hours.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/rotate-secret", tag = "Webhooks", operation_id = "rotateWebhookSecret",
    params(("id" = WebhookId, Path, description = "The webhook")),
    responses((status = 201, body = CreatedWebhook, description = "It has a new secret, shown this once", headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "Its version, for If-Match"), ("Cache-Control" = String, description = "`no-store`")))),
    security(("credential" = ["admin"])),
    extensions(("x-idempotent" = json!(true)), ("x-problems" = json!(["request_in_progress", "idempotency_answer_sealed", "not_found", "store_unavailable"]))),
)]
pub(crate) async fn rotate(
    Administrator(caller): Administrator,
    Acting(control): Acting,
    Path(id): Path<String>,
    Once(ticket, RawBody(_)): Once<RawBody>,
) -> Result<Response, ControlError> {
    let webhook = read_id(&id)?;
    let (secret, sealed) = control.new_secret().await?;
    let mut creation = ticket.begin(&control.store, caller.org).await?;
    let rotated = creation.rotate_webhook_secret(caller.org, webhook, &sealed);
    let rotated = rotated.await?.ok_or_else(|| unknown(&id))?;
    let response = ticket.commit(creation, made(&secret, rotated)).await?;
    tracing::info!(org.id = %caller.org, webhook.id = %webhook, "a webhook has a new secret");
    Ok(response)
}
