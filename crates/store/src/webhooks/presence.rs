//! Devices that come and go, seen by what a batch of facts changes, and told to webhooks in its transaction.
//! Never: news of a device whose state is the same after the batch as before, so facts may come twice.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use super::{
    WebhookEvent,
    news::{Item, News},
};
use crate::facts::DeviceChange;

/// How long a device must be away to be told of as away. A connection that moves to another node, or one that breaks
/// and comes back, is no news.
const AWAY: Duration = Duration::from_secs(10);

/// Devices that somebody listens to, and which of them were connected.
#[derive(Debug, Default)]
pub(crate) struct Before {
    orgs: Vec<Uuid>,
    devices: Vec<String>,
    connected: BTreeMap<(Uuid, String), bool>,
}

/// What is told of a device.
#[derive(Serialize)]
struct Data<'a> {
    device_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// How the devices of the batch stand whose organisations listen. They stay so until the transaction ends.
pub(crate) async fn before(
    connection: &mut PgConnection,
    changes: &[DeviceChange],
) -> Result<Before, sqlx::Error> {
    let mut orgs: Vec<Uuid> = changes
        .iter()
        .map(|change| change.device.org.uuid())
        .collect();
    orgs.dedup();
    let listening = sqlx::query_scalar!(
        "SELECT DISTINCT org_id FROM webhooks
         WHERE org_id = ANY ($1) AND enabled AND events && ARRAY['device.online', 'device.offline']",
        &orgs
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut before = Before::default();
    for change in changes {
        if listening.contains(&change.device.org.uuid()) {
            before.orgs.push(change.device.org.uuid());
            before.devices.push(change.device.device.to_string());
        }
    }
    if before.orgs.is_empty() {
        return Ok(before);
    }
    // In the order in which they are written.
    let known = sqlx::query!(
        r#"SELECT org_id, device_id, left_reason IS NULL AS "connected!" FROM devices
           WHERE (org_id, device_id) IN (SELECT * FROM UNNEST($1::uuid[], $2::text[]))
           ORDER BY org_id, device_id FOR UPDATE"#,
        &before.orgs,
        &before.devices
    )
    .fetch_all(connection)
    .await?;
    let known = known.into_iter();
    before.connected = known
        .map(|row| ((row.org_id, row.device_id), row.connected))
        .collect();
    Ok(before)
}

/// Tells of those that stand otherwise now.
pub(crate) async fn tell(connection: &mut PgConnection, before: Before) -> Result<(), sqlx::Error> {
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
    let mut news = News::default();
    for row in now {
        let device = (row.org_id, row.device_id);
        let was_connected = before.connected.get(&device).copied().unwrap_or_default();
        if was_connected != row.left_reason.is_none() {
            add(&mut news, &device, row.last_seen, row.left_reason);
        }
    }
    news.tell(connection).await
}

fn add(
    news: &mut News,
    (org, device): &(Uuid, String),
    at: DateTime<Utc>,
    left_reason: Option<String>,
) {
    let (event, settles) = match left_reason {
        None => (WebhookEvent::DeviceOnline, Duration::ZERO),
        Some(_) => (WebhookEvent::DeviceOffline, AWAY),
    };
    news.add(Item {
        org: OrgId::from_uuid(*org),
        event,
        id: Uuid::now_v7(),
        subject: Some(device),
        at,
        data: Data {
            device_id: device,
            reason: left_reason,
        },
        settles,
    });
}
