//! What devices say unasked, told to webhooks in the transaction of the batch that it came in.
//! Never: an event told a second time because its fact came twice.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::PgConnection;

use super::{
    WebhookEvent,
    news::{Item, News},
};
use crate::facts::{DeviceFact, DeviceNews};

/// What is told.
#[derive(Serialize)]
struct Data<'a> {
    device_id: &'a str,
    name: &'a str,
    /// Null when the device said no more.
    data: Option<&'a RawValue>,
}

pub(crate) async fn tell(
    connection: &mut PgConnection,
    facts: &[DeviceFact],
) -> Result<(), sqlx::Error> {
    let mut news = News::default();
    for fact in facts {
        let DeviceNews::Event { id, name, data } = &fact.news else {
            continue;
        };
        let data = data.as_deref().map(serde_json::from_str);
        news.add(Item {
            org: fact.device.org,
            event: WebhookEvent::DeviceEvent,
            id: *id,
            subject: None,
            at: fact.at,
            data: Data {
                device_id: fact.device.device.as_str(),
                name,
                // It was JSON when the edge read it.
                data: data.and_then(Result::ok),
            },
            settles: Duration::ZERO,
        });
    }
    news.tell(connection).await
}
