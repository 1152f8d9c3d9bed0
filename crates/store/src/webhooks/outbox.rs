//! The webhook outbox: a batch of events as the columns of one statement.
//! Invariant: an event is inserted in the transaction that caused it.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use super::WebhookEvent;

/// Events of several organisations, in order.
#[derive(Debug, Default)]
pub(super) struct EventBatch {
    orgs: Vec<Uuid>,
    events: Vec<String>,
    ids: Vec<Uuid>,
    subjects: Vec<Option<String>>,
    payloads: Vec<String>,
    due: Vec<DateTime<Utc>>,
}

/// One event.
pub(super) struct Event<'a, D> {
    pub(super) org: OrgId,
    pub(super) event: WebhookEvent,
    pub(super) id: Uuid,
    /// The device, if a newer event of the device replaces this one.
    pub(super) subject: Option<&'a str>,
    pub(super) at: DateTime<Utc>,
    pub(super) data: D,
    /// The delay before the delivery.
    pub(super) delay: Duration,
}

/// The body of a delivery.
#[derive(Serialize)]
struct Payload<D> {
    r#type: &'static str,
    timestamp: String,
    data: D,
}

impl EventBatch {
    pub(super) fn add<D: Serialize>(&mut self, event: Event<'_, D>) {
        let payload = Payload {
            r#type: event.event.as_str(),
            timestamp: event.at.to_rfc3339_opts(SecondsFormat::Micros, true),
            data: event.data,
        };
        // All of its members can be serialised.
        let Ok(payload) = serde_json::to_string(&payload) else {
            return;
        };
        self.orgs.push(event.org.uuid());
        self.events.push(event.event.as_str().to_owned());
        self.ids.push(event.id);
        self.subjects.push(event.subject.map(str::to_owned));
        self.payloads.push(payload);
        self.due.push(Utc::now() + event.delay);
    }

    /// Inserts the events for all webhooks that subscribe to them. A presence event and an earlier
    /// one of the same device that is still pending cancel each other out, so a device that
    /// reconnects repeatedly causes no deliveries.
    pub(super) async fn insert(self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.ids.is_empty() {
            return Ok(());
        }
        sqlx::query_scalar!(
            r#"SELECT tell_webhooks($1, $2, $3, $4, $5, $6) AS "dropped!""#,
            &self.orgs,
            &self.events,
            &self.ids,
            &self.subjects as &[Option<String>],
            &self.payloads,
            &self.due
        )
        .fetch_one(&mut *connection)
        .await?;
        if self.subjects.iter().all(Option::is_none) {
            return Ok(());
        }
        sqlx::query!(
            "WITH former AS (
               SELECT former.id, former.webhook_id, told.event_id
               FROM UNNEST($1::uuid[], $2::text[], $3::uuid[]) AS told (org_id, subject, event_id)
               JOIN webhooks hook ON hook.org_id = told.org_id
               JOIN webhook_deliveries former
                 ON former.webhook_id = hook.id AND former.subject = told.subject AND former.event_id <> told.event_id
                    AND former.state = 'pending' AND former.attempts = 0
               FOR UPDATE OF former),
             gone AS (
               DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM former))
             DELETE FROM webhook_deliveries news USING former
             WHERE news.webhook_id = former.webhook_id AND news.event_id = former.event_id",
            &self.orgs,
            &self.subjects as &[Option<String>],
            &self.ids
        )
        .execute(connection)
        .await?;
        Ok(())
    }
}
