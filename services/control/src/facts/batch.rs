//! The bus's facts as the store takes them, and batches cut to a size that a transaction takes.
//! Never: facts out of order.

use chrono::DateTime;
use switchboard_bus::Fact;
use switchboard_protocol::{id::DeviceKey, message::DeviceEvent};
use switchboard_store::{DeviceFact, DeviceNews};
use uuid::Uuid;

/// Services objects written in one transaction, in bytes; protects the statement's time limit from devices that
/// register a lot at once.
const MAX_CONTENT_BYTES: usize = 4 * 1024 * 1024;

/// The fact as the store takes it; `None`, with a log line, when it is beyond what can be stored.
pub(super) fn convert(fact: Fact) -> Option<DeviceFact> {
    let (device, epoch, at_ms, news) = match fact {
        Fact::Connected {
            device,
            epoch,
            at_ms,
        } => (device, epoch, at_ms, Some(DeviceNews::Connected)),
        Fact::Left {
            device,
            epoch,
            at_ms,
            reason,
        } => (
            device,
            epoch,
            at_ms,
            Some(DeviceNews::Left {
                reason: reason.as_str(),
            }),
        ),
        Fact::Registered {
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
                services.map(|services| DeviceNews::Registered { digest, services }),
            )
        }
        Fact::Event {
            device,
            epoch,
            at_ms,
            id,
            json,
        } => (device, epoch, at_ms, event(id, &json)),
    };
    let at = i64::try_from(at_ms)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    match (at, news) {
        (Some(at), Some(news)) => Some(DeviceFact {
            device,
            epoch: epoch.0,
            at,
            news,
        }),
        _ => skipped(&device),
    }
}

fn event(id: Uuid, json: &[u8]) -> Option<DeviceNews> {
    let event = DeviceEvent::parse(json).ok()?;
    Some(DeviceNews::Event {
        id,
        name: event.name.into_owned(),
        data: event.data.map(|data| data.get().to_owned()),
    })
}

fn skipped<T>(device: &DeviceKey) -> Option<T> {
    tracing::error!(device.key = %device, "a fact about a device was skipped because its time or text is impossible");
    None
}

/// Whether one transaction should not take all of these.
pub(super) fn is_too_big(part: &[DeviceFact]) -> bool {
    let content = |fact: &DeviceFact| match &fact.news {
        DeviceNews::Registered {
            services: Some(services),
            ..
        } => services.len(),
        DeviceNews::Event {
            data: Some(data), ..
        } => data.len(),
        _ => 0,
    };
    part.iter().map(content).sum::<usize>() > MAX_CONTENT_BYTES
}

/// Both halves, the later one first: a stack gives the earlier one back first.
pub(super) fn halves(part: &[DeviceFact]) -> [&[DeviceFact]; 2] {
    let (earlier, later) = part.split_at(part.len() / 2);
    [later, earlier]
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use switchboard_bus::Epoch;
    use switchboard_protocol::schema::Digest;

    use super::*;

    fn registered(at_ms: u64, json: &[u8]) -> Fact {
        Fact::Registered {
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
    fn impossible_facts_are_left_out() {
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
    fn parts_come_off_the_stack_in_order() {
        let facts: Vec<DeviceFact> = (0..5)
            .filter_map(|at| convert(registered(at, b"{}")))
            .collect();
        let mut order = Vec::new();
        let mut parts: Vec<&[DeviceFact]> = vec![&facts];
        while let Some(part) = parts.pop() {
            if part.len() > 1 {
                parts.extend(halves(part));
            } else {
                order.extend(part.iter().map(|fact| fact.at.timestamp_millis()));
            }
        }
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert!(!is_too_big(&facts));
        let big = vec![b'x'; MAX_CONTENT_BYTES + 1];
        let big = convert(registered(1, &big)).unwrap();
        assert!(is_too_big(&[big]));
    }
}
