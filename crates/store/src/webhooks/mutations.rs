//! Inserting, changing and deleting webhooks.
//! Invariant: a write names the version that its author has read.

use switchboard_protocol::id::{OrgId, WebhookId};

use super::{MAX_WEBHOOKS, Row, Webhook, WebhookSettings, attempts, event_names};
use crate::{Store, StoreError, TenantTransaction, database::with_timeout};

impl TenantTransaction {
    /// Adds a webhook with this sealed secret; `None` if the organisation has [`MAX_WEBHOOKS`]
    /// already. Locks the row of the organisation: see [`Store::begin_in_turn`].
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn create_webhook(
        &mut self,
        org: OrgId,
        id: WebhookId,
        settings: &WebhookSettings,
        secret: &[u8],
    ) -> Result<Option<Webhook>, StoreError> {
        with_timeout(async {
            // Serialised within an organisation, so that the count is exact.
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
                &event_names(&settings.events),
                settings.enabled,
                secret,
                MAX_WEBHOOKS
            )
            .fetch_optional(self.connection())
            .await?;
            Ok::<_, sqlx::Error>(row.map(Webhook::from))
        })
        .await
    }

    /// Replaces the sealed secret; the previous one signs too for 24 hours. `None` if the
    /// organisation has no such webhook.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
        let row = with_timeout(query.fetch_optional(self.connection())).await?;
        Ok(row.map(Webhook::from))
    }
}

impl Store {
    /// Replaces the settings of a webhook with this version; `None` if the organisation has none.
    /// The pending deliveries of a disabled webhook fail. Enabling it or changing its URL resets
    /// its failures.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn replace_webhook(
        &self,
        org: OrgId,
        id: WebhookId,
        version: i64,
        settings: &WebhookSettings,
    ) -> Result<Option<Webhook>, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_tenant(org).await?;
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
                &event_names(&settings.events),
                settings.enabled
            )
            .fetch_optional(&mut *transaction)
            .await?;
            if row.as_ref().is_some_and(|row| !row.enabled) {
                attempts::fail_pending(&mut transaction, id).await?;
            }
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(row.map(Webhook::from))
        })
        .await
    }

    /// Deletes a webhook with this version and its deliveries; returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
        let deleted =
            with_timeout(async { query.execute(&mut *self.tenant_conn(org).await?).await }).await?;
        Ok(deleted.rows_affected() > 0)
    }
}
