//! Merges connected and stored devices into one list in byte order of their IDs.

use std::{cmp::Ordering, iter::Peekable};

use switchboard_bus::Presence;
use switchboard_protocol::id::DeviceId;
use switchboard_store::StoredDevice;

/// A device that is connected, stored, or both.
#[derive(Debug)]
pub(crate) struct DeviceEntry {
    pub(crate) id: DeviceId,
    pub(crate) live: Option<Presence>,
    pub(crate) stored: Option<StoredDevice>,
}

/// A page of devices, and whether another page follows.
#[derive(Default)]
pub(crate) struct DevicePage {
    pub(crate) entries: Vec<DeviceEntry>,
    /// The last device that was read: the next page begins after it.
    pub(super) last: Option<DeviceId>,
    pub(crate) more: bool,
    /// The database was unavailable: devices that are not connected are missing.
    pub(crate) incomplete: bool,
}

/// Merges two sorted lists. Each has one more element than the page if another page follows.
pub(super) fn merge(
    live: Vec<(DeviceId, Presence)>,
    stored: Vec<StoredDevice>,
    limit: usize,
) -> DevicePage {
    let mut live = live.into_iter().peekable();
    let mut stored = stored.into_iter().peekable();
    let mut entries = Vec::with_capacity(limit);
    while entries.len() < limit {
        match next(&mut live, &mut stored) {
            Some(entry) => entries.push(entry),
            None => break,
        }
    }
    let more = live.peek().is_some() || stored.peek().is_some();
    DevicePage {
        last: entries.last().map(|entry| entry.id.clone()),
        entries,
        more,
        incomplete: false,
    }
}

fn next(
    live: &mut Peekable<impl Iterator<Item = (DeviceId, Presence)>>,
    stored: &mut Peekable<impl Iterator<Item = StoredDevice>>,
) -> Option<DeviceEntry> {
    let order = match (live.peek(), stored.peek()) {
        (Some((id, _)), Some(device)) => id.as_str().cmp(device.id.as_str()),
        (Some(_), None) => Ordering::Less,
        (None, _) => Ordering::Greater,
    };
    let live = if order.is_le() { live.next() } else { None };
    let stored = if order.is_ge() { stored.next() } else { None };
    match (live, stored) {
        (Some((id, presence)), stored) => Some(DeviceEntry {
            id,
            live: Some(presence),
            stored,
        }),
        (None, Some(device)) => Some(DeviceEntry {
            id: device.id.clone(),
            live: None,
            stored: Some(device),
        }),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use switchboard_bus::{Epoch, NodeId};

    use super::*;

    fn live(ids: &[&str]) -> Vec<(DeviceId, Presence)> {
        let presence = Presence {
            node: NodeId::generate("edge-1"),
            epoch: Epoch(1),
            digest: None,
        };
        ids.iter()
            .map(|id| (id.parse().unwrap(), presence.clone()))
            .collect()
    }

    fn stored(ids: &[&str]) -> Vec<StoredDevice> {
        let device = |id: &&str| StoredDevice {
            id: id.parse().unwrap(),
            epoch: 1,
            first_seen: Utc::now(),
            last_seen: Utc::now(),
            left_reason: None,
            digest: None,
            registered_at: None,
        };
        ids.iter().map(device).collect()
    }

    #[test]
    fn merged_list_is_sorted_and_unique() {
        fn check(live_ids: &[&str], stored_ids: &[&str], expected: &str, more: bool) {
            let page = merge(live(live_ids), stored(stored_ids), 3);
            let name = |entry: &DeviceEntry| {
                let mark = match (&entry.live, &entry.stored) {
                    (Some(_), Some(_)) => "*",
                    (Some(_), None) => "+",
                    _ => "-",
                };
                format!("{}{mark}", entry.id)
            };
            let names: Vec<String> = page.entries.iter().map(name).collect();
            assert_eq!((names.join(" ").as_str(), page.more), (expected, more));
        }
        check(&[], &[], "", false);
        check(&["a"], &[], "a+", false);
        check(&[], &["a"], "a-", false);
        check(&["a", "c"], &["a", "b"], "a* b- c+", false);
        check(&["b"], &["B", "a"], "B- a- b+", false);
        check(
            &["a", "b", "c", "d"],
            &["a", "b", "c", "d"],
            "a* b* c*",
            true,
        );
        check(&["d"], &["a", "b", "c"], "a- b- c-", true);
        check(&["a", "b", "c"], &["a", "b", "c"], "a* b* c*", false);
    }
}
