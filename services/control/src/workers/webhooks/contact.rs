//! Contact with webhooks, for operators: whether deliveries can connect.

use std::{error::Error as _, time::Duration};

use tokio::time::timeout;

use super::client::{DeliveryError, WebhookClient};
use crate::WebhookConfig;

/// Connects to webhooks as deliveries do, to the addresses that the configuration permits and with
/// TLS, and sends nothing: a request could have effects, and would not be signed.
pub struct WebhookContacts(WebhookClient);

impl WebhookContacts {
    /// With the configuration of deliveries.
    #[must_use]
    pub fn new(config: &WebhookConfig) -> Self {
        Self(WebhookClient::new(config))
    }

    /// Connects to the webhook of this URL.
    ///
    /// # Errors
    /// Why no delivery can connect, and the setting of deliveries that it may depend on.
    pub async fn contact(
        &self,
        url: &str,
        limit: Duration,
    ) -> Result<(), (String, Option<&'static str>)> {
        let contact = async {
            let destination = self.0.destination(url)?;
            self.0.contact(&destination).await
        };
        let contact = timeout(limit, contact).await;
        contact
            .unwrap_or(Err(DeliveryError::TimedOut))
            .map_err(|error| {
                let setting = match &error {
                    DeliveryError::Refused => Some("--webhooks-allow"),
                    DeliveryError::Tls(_) => Some("--webhooks-ca"),
                    _ => None,
                };
                let cause = error.source().map(|cause| format!(": {cause}"));
                (format!("{error}{}", cause.unwrap_or_default()), setting)
            })
    }
}
