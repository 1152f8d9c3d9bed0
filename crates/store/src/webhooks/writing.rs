//! Webhooks written: made, changed, removed, given another secret.
//! Never: a change over one that its writer has not seen.

use switchboard_protocol::id::{OrgId, WebhookId};

use super::{MOST_WEBHOOKS, Row, Webhook, WebhookSettings, attempts, names};
use crate::{Creation, Store, StoreError, database::bounded};

impl Creation {
    /// Adds a webhook with this sealed secret, version 1; nothing when the organisation has as many as it may.
    ///
    /// # Errors
    /// As every query.
    pub async fn create_webhook(
        &mut self,
        org: OrgId,
        id: WebhookId,
        settings: &WebhookSettings,
        secret: &[u8],
    ) -> Result<Option<Webhook>, StoreError> {
        bounded(async {
            // One at a time in an organisation, so that the number is true.
            sqlx::query!(
                "SELECT id FROM orgs WHERE id = $1 FOR NO KEY UPDATE",
                org.uuid()
            )
            .fetch_optional(self.connection())
            .await?;
            let row = sqlx::query_as!(
                Row,
                "INSERT INTO webhooks (id, org_id, url, description, events, enabled, secret)
                 SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM webhooks WHERE org_id = $2) < $8
                 RETURNING id, org_id, url, description, events, enabled, disabled_reason,
                           NULL::timestamptz AS former_secret_until, failing_since, dropped, version, created_at,
                           updated_at",
                id.uuid(),
                org.uuid(),
                settings.url,
                settings.description,
                &names(&settings.events),
                settings.enabled,
                secret,
                MOST_WEBHOOKS
            )
            .fetch_optional(self.connection())
            .await?;
            Ok::<_, sqlx::Error>(row.map(Webhook::from))
        })
        .await
    }

    /// Gives a webhook another sealed secret; the one before signs as well for a day. Nothing when the organisation has
    /// no such webhook.
    ///
    /// # Errors
    /// As every query.
    pub async fn rotate_webhook_secret(
        &mut self,
        org: OrgId,
        id: WebhookId,
        secret: &[u8],
    ) -> Result<Option<Webhook>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "UPDATE webhooks SET former_secret = secret, former_secret_until = now() + interval '24 hours', secret = $3,
                                 version = version + 1, updated_at = now()
             WHERE org_id = $1 AND id = $2
             RETURNING id, org_id, url, description, events, enabled, disabled_reason, former_secret_until,
                       failing_since, dropped, version, created_at, updated_at",
            org.uuid(),
            id.uuid(),
            secret
        );
        let row = bounded(query.fetch_optional(self.connection())).await?;
        Ok(row.map(Webhook::from))
    }
}

impl Store {
    /// Replaces what is set about a webhook that the organisation has in this version; nothing when it has none. What
    /// waits for one that is disabled has failed; one that is enabled, or leads elsewhere, starts
    /// without a past.
    ///
    /// # Errors
    /// As every query.
    pub async fn replace_webhook(
        &self,
        org: OrgId,
        id: WebhookId,
        version: i64,
        settings: &WebhookSettings,
    ) -> Result<Option<Webhook>, StoreError> {
        bounded(async {
            let mut transaction = self.begin_within(org).await?;
            let row = sqlx::query_as!(
                Row,
                "UPDATE webhooks SET url = $4, description = $5, events = $6, enabled = $7,
                                     disabled_reason = CASE WHEN enabled = $7 THEN disabled_reason END,
                                     failing_since = CASE WHEN enabled = $7 AND url = $4 THEN failing_since END,
                                     version = version + 1, updated_at = now()
                 WHERE org_id = $1 AND id = $2 AND version = $3
                 RETURNING id, org_id, url, description, events, enabled, disabled_reason,
                           CASE WHEN former_secret_until > now() THEN former_secret_until END AS former_secret_until,
                           failing_since, dropped, version, created_at, updated_at",
                org.uuid(),
                id.uuid(),
                version,
                settings.url,
                settings.description,
                &names(&settings.events),
                settings.enabled
            )
            .fetch_optional(&mut *transaction)
            .await?;
            if row.as_ref().is_some_and(|row| !row.enabled) {
                attempts::give_up(&mut transaction, id).await?;
            }
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(row.map(Webhook::from))
        })
        .await
    }

    /// Removes a webhook that the organisation has in this version, and its deliveries; says whether there was one.
    ///
    /// # Errors
    /// As every query.
    pub async fn delete_webhook(
        &self,
        org: OrgId,
        id: WebhookId,
        version: i64,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM webhooks WHERE org_id = $1 AND id = $2 AND version = $3",
            org.uuid(),
            id.uuid(),
            version
        );
        let deleted = bounded(async { query.execute(&mut *self.within(org).await?).await }).await?;
        Ok(deleted.rows_affected() > 0)
    }
}
