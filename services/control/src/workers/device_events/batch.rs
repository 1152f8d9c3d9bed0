//! Converts device events of the bus for the store, and splits batches that are too
//! large for a transaction.
//!
//! Invariant: events stay in order.

use chrono::DateTime;
use switchboard_bus::DeviceEvent as BusEvent;
use switchboard_protocol::{id::DeviceKey, message};
use switchboard_store::{DeviceEvent as StoredEvent, DeviceEventKind};
use uuid::Uuid;

/// The maximum size of the services and event data in one transaction. Keeps the statement within
/// its timeout when devices register many services at the same time.
const MAX_CONTENT_BYTES: usize = 4 * 1024 * 1024;

/// The event for the store. `None`, with a log line, when it cannot be stored.
pub(super) fn convert(event: BusEvent) -> Option<StoredEvent> {
    let (device, epoch, at_ms, kind) = match event {
        BusEvent::Connected {
            device,
            epoch,
            at_ms,
        } => (device, epoch, at_ms, Some(DeviceEventKind::Connected)),
        BusEvent::Disconnected {
            device,
            epoch,
            at_ms,
            reason,
        } => (
            device,
            epoch,
            at_ms,
            Some(DeviceEventKind::Disconnected {
                reason: reason.as_str(),
            }),
        ),
        BusEvent::Registered {
            device,
            epoch,
            at_ms,
            digest,
            json,
        } => {
            let services = json
                .map(|json| String::from_utf8(json.into()))
                .transpose()
                .ok();
            (
                device,
                epoch,
                at_ms,
                services.map(|services| DeviceEventKind::Registered { digest, services }),
            )
        }
        BusEvent::Custom {
            device,
            epoch,
            at_ms,
            id,
            json,
        } => (device, epoch, at_ms, emitted(id, &json)),
    };
    let at = i64::try_from(at_ms)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    match (at, kind) {
        (Some(at), Some(kind)) => Some(StoredEvent {
            device,
            epoch: epoch.0,
            at,
            kind,
        }),
        _ => skipped(&device),
    }
}

fn emitted(id: Uuid, json: &[u8]) -> Option<DeviceEventKind> {
    let event = message::DeviceEvent::parse(json).ok()?;
    Some(DeviceEventKind::Custom {
        id,
        name: event.name.into_owned(),
        data: event.data.map(|data| data.get().to_owned()),
    })
}

fn skipped<T>(device: &DeviceKey) -> Option<T> {
    tracing::error!(device.key = %device, "device event skipped: its time or text is invalid");
    None
}

/// Whether these events are too large for one transaction.
pub(super) fn is_too_big(part: &[StoredEvent]) -> bool {
    let content = |event: &StoredEvent| match &event.kind {
        DeviceEventKind::Registered {
            services: Some(services),
            ..
        } => services.len(),
        DeviceEventKind::Custom {
            data: Some(data), ..
        } => data.len(),
        _ => 0,
    };
    part.iter().map(content).sum::<usize>() > MAX_CONTENT_BYTES
}

/// Both halves, the later one first, so that a stack returns the earlier one first.
pub(super) fn halves(part: &[StoredEvent]) -> [&[StoredEvent]; 2] {
    let (earlier, later) = part.split_at(part.len() / 2);
    [later, earlier]
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use switchboard_bus::Epoch;
    use switchboard_protocol::schema::Digest;

    use super::*;

    fn registered(at_ms: u64, json: &[u8]) -> BusEvent {
        BusEvent::Registered {
            device: DeviceKey {
                org: "org_0000000000000000000000000000abcd".parse().unwrap(),
                device: "toy-1".parse().unwrap(),
            },
            epoch: Epoch(1),
            at_ms,
            digest: Digest([7; 32]),
            json: Some(Bytes::copy_from_slice(json)),
        }
    }

    #[test]
    fn invalid_event_is_skipped() {
        fn check(at_ms: u64, json: &[u8], possible: bool) {
            assert_eq!(
                convert(registered(at_ms, json)).is_some(),
                possible,
                "{at_ms}"
            );
        }
        check(1_700_000_000_000, "{\"时间\":{}}".as_bytes(), true);
        check(u64::MAX, b"{}", false);
        check(i64::MAX.unsigned_abs(), b"{}", false);
        check(1, b"\xff", false);
    }

    #[test]
    fn halves_keep_the_order() {
        let events: Vec<StoredEvent> = (0..5)
            .filter_map(|at| convert(registered(at, b"{}")))
            .collect();
        let mut order = Vec::new();
        let mut parts: Vec<&[StoredEvent]> = vec![&events];
        while let Some(part) = parts.pop() {
            if part.len() > 1 {
                parts.extend(halves(part));
            } else {
                order.extend(part.iter().map(|event| event.at.timestamp_millis()));
            }
        }
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert!(!is_too_big(&events));
        let big = vec![b'x'; MAX_CONTENT_BYTES + 1];
        let big = convert(registered(1, &big)).unwrap();
        assert!(is_too_big(&[big]));
    }
}
