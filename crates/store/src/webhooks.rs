//! Webhooks: endpoints of organisations that receive events.
//! Invariant: secrets are stored sealed.

mod attempts;
mod claims;
mod deliveries;
pub(crate) mod device_events;
mod event;
mod mutations;
mod outbox;
pub(crate) mod presence;
mod quotas;
mod redelivery;
mod retention;

use chrono::{DateTime, Utc};
use switchboard_protocol::id::{OrgId, WebhookId};
use uuid::Uuid;

use crate::{Store, StoreError, database::with_timeout};
pub use attempts::AttemptOutcome;
pub use claims::{AttemptsInFlight, ClaimedDelivery};
pub use deliveries::{Delivery, DeliveryState};
pub use event::WebhookEvent;
pub use redelivery::Redelivery;
pub use retention::WebhookStats;

/// The maximum number of webhooks of an organisation. Each event is stored once per webhook.
pub const MAX_WEBHOOKS: i64 = 16;

/// The settings of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The URL that events are sent to.
    pub url: String,
    /// A description for people.
    pub description: Option<String>,
    /// The events that it receives, each once.
    pub events: Vec<WebhookEvent>,
    /// Whether it receives events.
    pub enabled: bool,
}

/// A stored webhook, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The id of the webhook.
    pub id: WebhookId,
    /// The organisation that it belongs to.
    pub org: OrgId,
    /// Its settings.
    pub settings: WebhookSettings,
    /// Why it was disabled, unless the organisation did so.
    pub disabled_reason: Option<String>,
    /// Until when its previous secret signs too.
    pub former_secret_until: Option<DateTime<Utc>>,
    /// Time of the first failed attempt since the last delivery.
    pub failing_since: Option<DateTime<Utc>>,
    /// The number of events that were dropped because its queue was full.
    pub dropped: i64,
    /// Its version, from 1.
    pub version: i64,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
}

struct Row {
    id: Uuid,
    org_id: Uuid,
    url: String,
    description: Option<String>,
    events: Vec<String>,
    enabled: bool,
    disabled_reason: Option<String>,
    former_secret_until: Option<DateTime<Utc>>,
    failing_since: Option<DateTime<Utc>>,
    dropped: i64,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Webhook {
    fn from(row: Row) -> Self {
        Self {
            id: WebhookId::from_uuid(row.id),
            org: OrgId::from_uuid(row.org_id),
            settings: WebhookSettings {
                url: row.url,
                description: row.description,
                // A newer version may have written others.
                events: row
                    .events
                    .iter()
                    .filter_map(|name| WebhookEvent::from_name(name))
                    .collect(),
                enabled: row.enabled,
            },
            disabled_reason: row.disabled_reason,
            former_secret_until: row.former_secret_until,
            failing_since: row.failing_since,
            dropped: row.dropped,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

fn event_names(events: &[WebhookEvent]) -> Vec<String> {
    events
        .iter()
        .map(|event| event.as_str().to_owned())
        .collect()
}

impl Store {
    /// One webhook of an organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn webhook(&self, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        let ids = (id.uuid(), id.uuid());
        Ok(self
            .webhooks_in_range(org, ids, 1)
            .await?
            .into_iter()
            .next())
    }

    /// Webhooks of an organisation in the order of their creation, strictly after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn webhooks(
        &self,
        org: OrgId,
        after: Option<WebhookId>,
        limit: u32,
    ) -> Result<Vec<Webhook>, StoreError> {
        let first = after.map_or(0, |after| after.uuid().as_u128().saturating_add(1));
        let ids = (Uuid::from_u128(first), Uuid::max());
        self.webhooks_in_range(org, ids, limit).await
    }

    async fn webhooks_in_range(
        &self,
        org: OrgId,
        (first, last): (Uuid, Uuid),
        limit: u32,
    ) -> Result<Vec<Webhook>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, url, description, events, enabled, disabled_reason,
                    CASE WHEN former_secret_until > now() THEN former_secret_until END AS former_secret_until,
                    failing_since, dropped, version, created_at, updated_at
             FROM webhooks WHERE org_id = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT $4",
            org.uuid(),
            first,
            last,
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        Ok(rows.into_iter().map(Webhook::from).collect())
    }
}
