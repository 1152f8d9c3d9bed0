//! Events on their way into the outbox, as the columns of one statement.
//! Never: an event entered outside of the transaction that it happened in.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use super::WebhookEvent;

/// Events of some organisations, in their order.
#[derive(Debug, Default)]
pub(super) struct News {
    orgs: Vec<Uuid>,
    events: Vec<String>,
    ids: Vec<Uuid>,
    subjects: Vec<Option<String>>,
    payloads: Vec<String>,
    due: Vec<DateTime<Utc>>,
}

/// One event.
pub(super) struct Item<'a, D> {
    pub(super) org: OrgId,
    pub(super) event: WebhookEvent,
    pub(super) id: Uuid,
    /// The device, when newer news of it makes this one void.
    pub(super) subject: Option<&'a str>,
    pub(super) at: DateTime<Utc>,
    pub(super) data: D,
    /// How long it waits before it is told.
    pub(super) settles: Duration,
}

/// What is sent.
#[derive(Serialize)]
struct Payload<D> {
    r#type: &'static str,
    timestamp: String,
    data: D,
}

impl News {
    pub(super) fn add<D: Serialize>(&mut self, item: Item<'_, D>) {
        let payload = Payload {
            r#type: item.event.as_str(),
            timestamp: item.at.to_rfc3339_opts(SecondsFormat::Micros, true),
            data: item.data,
        };
        // Nothing in it cannot be written as JSON.
        let Ok(payload) = serde_json::to_string(&payload) else {
            return;
        };
        self.orgs.push(item.org.uuid());
        self.events.push(item.event.as_str().to_owned());
        self.ids.push(item.id);
        self.subjects.push(item.subject.map(str::to_owned));
        self.payloads.push(payload);
        self.due.push(Utc::now() + item.settles);
    }

    /// Enters them for the webhooks that listen to them. News of devices, and former news of the same device that
    /// nobody has begun to tell, make each other void: a device that comes and goes is not told of each time.
    pub(super) async fn tell(self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
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
