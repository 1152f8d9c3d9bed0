//! EVENT frames of devices as webhook events, in the transaction of the batch.
//! Invariant: a repeated device event is not delivered twice.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::PgConnection;

use super::{
    WebhookEvent,
    outbox::{Event, EventBatch},
};
use crate::devices::device_events::{DeviceEvent, DeviceEventKind};

/// The `data` member of the payload.
#[derive(Serialize)]
struct Data<'a> {
    device_id: &'a str,
    name: &'a str,
    /// Null if the device sent none.
    data: Option<&'a RawValue>,
}

pub(crate) async fn enqueue(
    connection: &mut PgConnection,
    events: &[DeviceEvent],
) -> Result<(), sqlx::Error> {
    let mut batch = EventBatch::default();
    for event in events {
        let DeviceEventKind::Custom { id, name, data } = &event.kind else {
            continue;
        };
        let data = data.as_deref().map(serde_json::from_str);
        batch.add(Event {
            org: event.device.org,
            event: WebhookEvent::DeviceEvent,
            id: *id,
            subject: None,
            at: event.at,
            data: Data {
                device_id: event.device.device.as_str(),
                name,
                // The edge has parsed it as JSON.
                data: data.and_then(Result::ok),
            },
            delay: Duration::ZERO,
        });
    }
    batch.insert(connection).await
}
