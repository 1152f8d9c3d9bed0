//! One attempt at a delivery: signed, sent, and what came of it put on record.
//! Never: a delivery without a signature.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use switchboard_store::{AttemptEnd, ClaimedDelivery, Store};

use super::{
    post::{Post, PostError},
    schedule,
    secret::Vault,
};
use crate::metrics::{Attempted, WebhookMetrics};

/// How long nothing may arrive at a webhook until it is disabled.
const PATIENCE: Duration = Duration::from_secs(3 * 24 * 3600);
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Switchboard/", env!("CARGO_PKG_VERSION")));

/// What every attempt needs.
pub(super) struct Desk {
    pub(super) store: Store,
    pub(super) post: Post,
    pub(super) metrics: WebhookMetrics,
}

impl Desk {
    pub(super) async fn attempt(&self, vault: &Vault, delivery: &ClaimedDelivery) {
        let sent = self.send(vault, delivery).await;
        let end = match &sent {
            Ok(status) if status.is_success() => AttemptEnd::Arrived {
                status: status.as_u16(),
            },
            Ok(status) => AttemptEnd::Failed {
                status: Some(status.as_u16()),
                error: if status.is_redirection() {
                    "redirected"
                } else {
                    "status"
                },
                pause: schedule::pause_after(delivery.attempt)
                    .filter(|_| *status != StatusCode::GONE),
            },
            Err(error) => AttemptEnd::Failed {
                status: None,
                error: error.kind(),
                pause: schedule::pause_after(delivery.attempt),
            },
        };
        let attempted = match &end {
            AttemptEnd::Arrived { .. } => Attempted::Delivered,
            AttemptEnd::Failed { pause: None, .. } => Attempted::GivenUp,
            AttemptEnd::Failed { .. } => Attempted::Failed,
        };
        self.metrics.attempts.inc(attempted);
        if let Err(error) = &sent {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::debug!(delivery.id = %delivery.id, %error, cause, "a delivery did not arrive");
        }
        let is_gone = matches!(sent, Ok(StatusCode::GONE));
        let recorded = self.store.end_attempt(delivery, &end, PATIENCE).await;
        let disabled = match recorded {
            Ok(_) if is_gone => Some(("gone", None)),
            Ok(true) => Some(("failing", Some(PATIENCE))),
            Ok(false) => None,
            // It is attempted again when its time is up, and has the same id then.
            Err(error) => {
                tracing::warn!(delivery.id = %delivery.id, error = error.report(), "what came of a delivery is not on record; it is repeated");
                None
            }
        };
        if let Some((reason, patience)) = disabled {
            self.disable(delivery, reason, patience).await;
        }
    }

    async fn disable(&self, delivery: &ClaimedDelivery, reason: &str, patience: Option<Duration>) {
        let (org, id) = (delivery.org, delivery.webhook);
        let store = &self.store;
        match store.disable_webhook(delivery, reason, patience).await {
            Ok(true) => {
                tracing::info!(org.id = %org, webhook.id = %id, reason, "a webhook was disabled");
            }
            Ok(false) => {}
            // The next failure disables it.
            Err(error) => {
                tracing::warn!(webhook.id = %id, error = error.report(), "a webhook was not disabled");
            }
        }
    }

    async fn send(
        &self,
        vault: &Vault,
        delivery: &ClaimedDelivery,
    ) -> Result<StatusCode, PostError> {
        let to = self.post.destination(&delivery.url)?;
        let id = delivery.id.to_string();
        let timestamp = chrono::Utc::now().timestamp();
        let secrets = delivery.secrets.iter();
        let signatures: Vec<_> = secrets
            .filter_map(|sealed| vault.read(sealed))
            .map(|secret| secret.sign(&id, timestamp, &delivery.payload))
            .collect();
        if signatures.is_empty() {
            return Err(PostError::Unsigned);
        }
        let request = Request::builder()
            .method(Method::POST)
            .uri(to.path())
            .header(header::HOST, to.authority())
            .header(header::USER_AGENT, AGENT)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signatures.join(" "))
            .body(Full::new(Bytes::from(delivery.payload.clone())))
            // What a URL can hold, a request can.
            .map_err(|_| PostError::Refused)?;
        self.post.send(&to, request).await
    }
}
