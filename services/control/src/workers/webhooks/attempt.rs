//! One attempt to deliver an event: signs it, sends it, and stores the result.
//!
//! Invariant: no event is sent without a signature.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use switchboard_bus::Bus;
use switchboard_store::{AttemptOutcome, ClaimedDelivery, Store};

use super::{
    client::{DeliveryError, WebhookClient},
    schedule,
    secret::SecretVault,
};
use crate::{
    live_events,
    metrics::{AttemptResult, WebhookMetrics},
};

/// How long all deliveries to a webhook may fail until it is disabled.
const FAILURE_GRACE: Duration = Duration::from_secs(3 * 24 * 3600);
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Switchboard/", env!("CARGO_PKG_VERSION")));

/// What all attempts share.
pub(super) struct AttemptContext {
    pub(super) store: Store,
    pub(super) bus: Bus,
    pub(super) client: WebhookClient,
    pub(super) metrics: WebhookMetrics,
}

impl AttemptContext {
    pub(super) async fn attempt(&self, vault: &SecretVault, delivery: &ClaimedDelivery) {
        let sent = self.send(vault, delivery).await;
        let end = match &sent {
            Ok(status) if status.is_success() => AttemptOutcome::Delivered {
                status: status.as_u16(),
            },
            Ok(status) => AttemptOutcome::Failed {
                status: Some(status.as_u16()),
                error: if status.is_redirection() {
                    "redirected"
                } else {
                    "status"
                },
                retry_delay: schedule::retry_delay(delivery.attempt)
                    .filter(|_| *status != StatusCode::GONE),
            },
            Err(error) => AttemptOutcome::Failed {
                status: None,
                error: error.kind(),
                retry_delay: schedule::retry_delay(delivery.attempt),
            },
        };
        let result = match &end {
            AttemptOutcome::Delivered { .. } => AttemptResult::Delivered,
            AttemptOutcome::Failed {
                retry_delay: None, ..
            } => AttemptResult::GivenUp,
            AttemptOutcome::Failed { .. } => AttemptResult::Failed,
        };
        self.metrics.attempts.inc(result);
        if let Err(error) = &sent {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::debug!(delivery.id = %delivery.id, %error, cause, "webhook delivery failed");
        }
        let is_gone = matches!(sent, Ok(StatusCode::GONE));
        let recorded = self
            .store
            .record_attempt(delivery, &end, FAILURE_GRACE)
            .await;
        let disabled = match recorded {
            Ok(_) if is_gone => Some(("gone", None)),
            Ok(true) => Some(("failing", Some(FAILURE_GRACE))),
            Ok(false) => None,
            // It is repeated after its lease, with the same id.
            Err(error) => {
                tracing::warn!(delivery.id = %delivery.id, error = error.report(), "the result of a webhook delivery cannot be stored; the delivery will be repeated");
                None
            }
        };
        if let Some((reason, grace)) = disabled {
            self.disable(delivery, reason, grace).await;
        }
    }

    async fn disable(&self, delivery: &ClaimedDelivery, reason: &str, grace: Option<Duration>) {
        let (org, id) = (delivery.org, delivery.webhook);
        let store = &self.store;
        match store.disable_webhook(delivery, reason, grace).await {
            Ok(true) => {
                tracing::info!(org.id = %org, webhook.id = %id, reason, "webhook disabled");
                live_events::webhook_changed(&self.bus, org, id);
            }
            Ok(false) => {}
            // The next failure disables the webhook.
            Err(error) => {
                tracing::warn!(webhook.id = %id, error = error.report(), "webhook cannot be disabled");
            }
        }
    }

    async fn send(
        &self,
        vault: &SecretVault,
        delivery: &ClaimedDelivery,
    ) -> Result<StatusCode, DeliveryError> {
        let destination = self.client.destination(&delivery.url)?;
        let id = delivery.id.to_string();
        let timestamp = chrono::Utc::now().timestamp();
        let secrets = delivery.secrets.iter();
        let signatures: Vec<_> = secrets
            .filter_map(|sealed| vault.unseal(sealed))
            .map(|secret| secret.sign(&id, timestamp, &delivery.payload))
            .collect();
        if signatures.is_empty() {
            return Err(DeliveryError::Unsigned);
        }
        let request = Request::builder()
            .method(Method::POST)
            .uri(destination.path())
            .header(header::HOST, destination.authority())
            .header(header::USER_AGENT, AGENT)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signatures.join(" "))
            .body(Full::new(Bytes::from(delivery.payload.clone())))
            // A valid URL is a valid request target.
            .map_err(|_| DeliveryError::Refused)?;
        self.client.send(&destination, request).await
    }
}
