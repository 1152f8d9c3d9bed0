//! Presence events: compares the devices before and after a batch, in its transaction.
//! Invariant: a device whose state is unchanged causes no event, so device events may be repeated.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use super::{
    WebhookEvent,
    outbox::{Event, EventBatch},
};
use crate::devices::device_events::DeviceChange;

/// How long a device must be disconnected before `device.offline` is delivered. A connection that
/// moves to another node, or is re-established, causes no event.
const OFFLINE_GRACE: Duration = Duration::from_secs(10);

/// The devices of the batch whose organisations subscribe, and whether they were connected.
#[derive(Debug, Default)]
pub(crate) struct PresenceSnapshot {
    orgs: Vec<Uuid>,
    devices: Vec<String>,
    connected: BTreeMap<(Uuid, String), bool>,
}

/// The `data` member of the payload.
#[derive(Serialize)]
struct Data<'a> {
    device_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Reads the devices of the batch whose organisations subscribe, and locks them until the
/// transaction ends.
pub(crate) async fn snapshot(
    connection: &mut PgConnection,
    changes: &[DeviceChange],
) -> Result<PresenceSnapshot, sqlx::Error> {
    let mut orgs: Vec<Uuid> = changes
        .iter()
        .map(|change| change.device.org.uuid())
        .collect();
    orgs.dedup();
    let subscribed = sqlx::query_scalar!(
        "SELECT DISTINCT org_id FROM webhooks
         WHERE org_id = ANY ($1) AND enabled AND events && ARRAY['device.online', 'device.offline']",
        &orgs
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut before = PresenceSnapshot::default();
    for change in changes {
        if subscribed.contains(&change.device.org.uuid()) {
            before.orgs.push(change.device.org.uuid());
            before.devices.push(change.device.device.to_string());
        }
    }
    if before.orgs.is_empty() {
        return Ok(before);
    }
    // In the order in which they are written.
    let devices_before = sqlx::query!(
        r#"SELECT org_id, device_id, left_reason IS NULL AS "connected!" FROM devices
           WHERE (org_id, device_id) IN (SELECT * FROM UNNEST($1::uuid[], $2::text[]))
           ORDER BY org_id, device_id FOR UPDATE"#,
        &before.orgs,
        &before.devices
    )
    .fetch_all(connection)
    .await?;
    let devices_before = devices_before.into_iter();
    before.connected = devices_before
        .map(|row| ((row.org_id, row.device_id), row.connected))
        .collect();
    Ok(before)
}

/// Inserts events for the devices whose state has changed.
pub(crate) async fn enqueue_changes(
    connection: &mut PgConnection,
    before: PresenceSnapshot,
) -> Result<(), sqlx::Error> {
    if before.orgs.is_empty() {
        return Ok(());
    }
    let now = sqlx::query!(
        "SELECT org_id, device_id, last_seen, left_reason FROM devices
         WHERE (org_id, device_id) IN (SELECT * FROM UNNEST($1::uuid[], $2::text[])) ORDER BY org_id, device_id",
        &before.orgs,
        &before.devices
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut batch = EventBatch::default();
    for row in now {
        let device = (row.org_id, row.device_id);
        let was_connected = before.connected.get(&device).copied().unwrap_or_default();
        if was_connected != row.left_reason.is_none() {
            add_event(&mut batch, &device, row.last_seen, row.left_reason);
        }
    }
    batch.insert(connection).await
}

fn add_event(
    batch: &mut EventBatch,
    (org, device): &(Uuid, String),
    at: DateTime<Utc>,
    left_reason: Option<String>,
) {
    let (event, delay) = match left_reason {
        None => (WebhookEvent::DeviceOnline, Duration::ZERO),
        Some(_) => (WebhookEvent::DeviceOffline, OFFLINE_GRACE),
    };
    batch.add(Event {
        org: OrgId::from_uuid(*org),
        event,
        id: Uuid::now_v7(),
        subject: Some(device),
        at,
        data: Data {
            device_id: device,
            reason: left_reason,
        },
        delay,
    });
}
