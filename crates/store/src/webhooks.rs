//! Webhooks: where organisations want to be told of events.
//! Never: a secret in the clear, or a webhook of another organisation.

mod attempts;
mod claims;
mod deliveries;
pub(crate) mod device_events;
mod event;
mod news;
pub(crate) mod presence;
mod redelivery;
mod upkeep;
mod writing;

use chrono::{DateTime, Utc};
use switchboard_protocol::id::{OrgId, WebhookId};
use uuid::Uuid;

use crate::{Store, StoreError, database::bounded};
pub use attempts::AttemptEnd;
pub use claims::ClaimedDelivery;
pub use deliveries::{Delivery, DeliveryState};
pub use event::WebhookEvent;
pub use redelivery::Redelivery;
pub use upkeep::WebhookFigures;

/// How many webhooks an organisation may have. Protects the database: each event is a row for each of them.
pub const MOST_WEBHOOKS: i64 = 16;

/// What an organisation sets about a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Where it is.
    pub url: String,
    /// What it is for.
    pub description: Option<String>,
    /// What it is told; each once.
    pub events: Vec<WebhookEvent>,
    /// Whether it is told anything.
    pub enabled: bool,
}

/// A webhook as it is stored, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// Whose it is.
    pub org: OrgId,
    /// What was set.
    pub settings: WebhookSettings,
    /// Why it is not enabled, when nobody of the organisation asked for that.
    pub disabled_reason: Option<String>,
    /// How long the secret before this one signs as well.
    pub former_secret_until: Option<DateTime<Utc>>,
    /// Since when nothing has arrived.
    pub failing_since: Option<DateTime<Utc>>,
    /// How many events were dropped because too many waited.
    pub dropped: i64,
    /// 1 at first, one more with each change.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was changed last.
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
                // A newer version may know more of them.
                events: row
                    .events
                    .iter()
                    .filter_map(|name| WebhookEvent::named(name))
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

fn names(events: &[WebhookEvent]) -> Vec<String> {
    events
        .iter()
        .map(|event| event.as_str().to_owned())
        .collect()
}

impl Store {
    /// One webhook of an organisation.
    ///
    /// # Errors
    /// As every query.
    pub async fn webhook(&self, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        let ids = (id.uuid(), id.uuid());
        Ok(self.webhooks_between(org, ids, 1).await?.into_iter().next())
    }

    /// Webhooks of an organisation in the order of their making, strictly after `after`.
    ///
    /// # Errors
    /// As every query.
    pub async fn webhooks(
        &self,
        org: OrgId,
        after: Option<WebhookId>,
        limit: u32,
    ) -> Result<Vec<Webhook>, StoreError> {
        let first = after.map_or(0, |after| after.uuid().as_u128().saturating_add(1));
        let ids = (Uuid::from_u128(first), Uuid::max());
        self.webhooks_between(org, ids, limit).await
    }

    async fn webhooks_between(
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
        let rows = bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
        Ok(rows.into_iter().map(Webhook::from).collect())
    }
}
