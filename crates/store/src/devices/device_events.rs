//! Device events from edge nodes, folded into one change per device and written in one transaction.
//! Invariant: events of an older connection do not overwrite those of a newer one, and repeated
//! events do not change the result.

use std::{cmp::Ordering, collections::BTreeMap};

use chrono::{DateTime, Utc};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::with_timeout,
    devices::{
        self,
        registrations::{self, RegistrationChange},
    },
    webhooks::{device_events, presence},
};

/// Something that happened to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceEvent {
    /// The device.
    pub device: DeviceKey,
    /// The epoch of its connection; a newer connection has a greater one.
    pub epoch: u64,
    /// Time of the event.
    pub at: DateTime<Utc>,
    /// Kind of the event.
    pub kind: DeviceEventKind,
}

/// The kind of a device event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceEventKind {
    /// The device connected.
    Connected,
    /// The device registered its services.
    Registered {
        /// The digest of the services object.
        digest: Digest,
        /// The services object, unless an earlier event contained it.
        services: Option<String>,
    },
    /// The connection ended.
    Disconnected {
        /// The reason.
        reason: &'static str,
    },
    /// The device sent an EVENT frame.
    Custom {
        /// Identifies the event across repeated deliveries.
        id: Uuid,
        /// Name of the event.
        name: String,
        /// Data of the event, as sent: JSON.
        data: Option<String>,
    },
}

/// The changes of one device in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceChange {
    pub(crate) device: DeviceKey,
    pub(crate) epoch: i64,
    pub(crate) first_seen: DateTime<Utc>,
    pub(crate) last_seen: DateTime<Utc>,
    pub(crate) left_reason: Option<&'static str>,
    pub(crate) registration: Option<RegistrationChange>,
}

impl Store {
    /// Writes all events, or none. Repeated and late events yield the same result, except that
    /// different services which a device registers within the first 5 s of one connection may arrive
    /// in any order.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the database cannot accept one of the events (an unknown
    /// organisation, a text with a null character), or any other [`StoreError`].
    pub async fn record_device_events(&self, events: &[DeviceEvent]) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let changes = fold(events);
        let contents = contents(events);
        with_timeout(async {
            let mut transaction = self.begin_system().await?;
            let before = presence::snapshot(&mut transaction, &changes).await?;
            devices::upsert(&mut transaction, &changes).await?;
            registrations::insert_contents(&mut transaction, &contents).await?;
            registrations::upsert(&mut transaction, &changes).await?;
            presence::enqueue_changes(&mut transaction, before).await?;
            device_events::enqueue(&mut transaction, events).await?;
            transaction.commit().await
        })
        .await
    }
}

/// Folds the events into one change per device, because one statement may touch a row only once.
/// The changes are ordered by key, so that concurrent writers take the row locks in the same order.
fn fold(events: &[DeviceEvent]) -> Vec<DeviceChange> {
    let mut changes: BTreeMap<&DeviceKey, DeviceChange> = BTreeMap::new();
    for event in events {
        let Some(change) = DeviceChange::from_event(event) else {
            continue;
        };
        match changes.get_mut(&event.device) {
            Some(existing) => existing.merge(change),
            None => drop(changes.insert(&event.device, change)),
        }
    }
    changes.into_values().collect()
}

fn contents(events: &[DeviceEvent]) -> BTreeMap<(OrgId, [u8; 32]), &str> {
    let services = events.iter().filter_map(|event| match &event.kind {
        DeviceEventKind::Registered {
            digest,
            services: Some(services),
        } => Some(((event.device.org, digest.0), services.as_str())),
        _ => None,
    });
    services.collect()
}

impl DeviceChange {
    /// The change that an event makes to its device, if any.
    fn from_event(event: &DeviceEvent) -> Option<Self> {
        // Redis counts in signed 64 bits, so nothing is lost here.
        let epoch = i64::try_from(event.epoch).unwrap_or(i64::MAX);
        let (left_reason, registration) = match &event.kind {
            DeviceEventKind::Connected => (None, None),
            DeviceEventKind::Disconnected { reason } => (Some(*reason), None),
            DeviceEventKind::Registered { digest, .. } => (
                None,
                Some(RegistrationChange {
                    digest: *digest,
                    epoch,
                    at: event.at,
                }),
            ),
            DeviceEventKind::Custom { .. } => return None,
        };
        Some(Self {
            device: event.device.clone(),
            epoch,
            first_seen: event.at,
            last_seen: event.at,
            left_reason,
            registration,
        })
    }

    /// Adds a later event of the batch; the same rules as in the SQL of [`devices::upsert`].
    fn merge(&mut self, later: Self) {
        self.first_seen = self.first_seen.min(later.first_seen);
        match (later.epoch, later.last_seen).cmp(&(self.epoch, self.last_seen)) {
            Ordering::Greater => {
                self.epoch = later.epoch;
                self.last_seen = later.last_seen;
                self.left_reason = later.left_reason;
            }
            Ordering::Equal => self.left_reason = later.left_reason.or(self.left_reason),
            Ordering::Less => {}
        }
        let supersedes = |new: &RegistrationChange, current: &RegistrationChange| {
            (new.epoch, new.at) >= (current.epoch, current.at)
        };
        match (&self.registration, later.registration) {
            (Some(current), Some(new)) if !supersedes(&new, current) => {}
            (_, None) => {}
            (_, new) => self.registration = new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(device: &str, epoch: u64, at_s: i64, kind: DeviceEventKind) -> DeviceEvent {
        DeviceEvent {
            device: DeviceKey {
                org: OrgId::from_uuid(uuid::Uuid::from_u128(1)),
                device: device.parse().unwrap(),
            },
            epoch,
            at: DateTime::from_timestamp(at_s, 0).unwrap(),
            kind,
        }
    }

    fn registered(digest: u8) -> DeviceEventKind {
        DeviceEventKind::Registered {
            digest: Digest([digest; 32]),
            services: None,
        }
    }

    #[test]
    fn events_of_one_device_fold_into_one_change() {
        use DeviceEventKind::{Connected, Disconnected};
        const LEFT: DeviceEventKind = Disconnected { reason: "closed" };
        /// Expected: epoch, whether it disconnected, first byte of the digest, first and last
        /// second.
        fn check(events: &[DeviceEvent], expect: (i64, bool, Option<u8>, i64, i64)) {
            let changes = fold(events);
            let [change] = changes.as_slice() else {
                panic!("{changes:?}")
            };
            let (epoch, left) = (change.epoch, change.left_reason.is_some());
            let digest = change
                .registration
                .map(|registration| registration.digest.0[0]);
            let (first, last) = (change.first_seen.timestamp(), change.last_seen.timestamp());
            assert_eq!((epoch, left, digest, first, last), expect);
        }
        check(&[event("a", 1, 5, Connected)], (1, false, None, 5, 5));
        check(
            &[event("a", 1, 5, Connected), event("a", 1, 6, LEFT)],
            (1, true, None, 5, 6),
        );
        // The old connection ends after the new one began.
        check(
            &[event("a", 2, 5, Connected), event("a", 1, 6, LEFT)],
            (2, false, None, 5, 5),
        );
        check(
            &[event("a", 1, 5, LEFT), event("a", 2, 6, Connected)],
            (2, false, None, 5, 6),
        );
        // A repeated `Connected` does not undo the end.
        check(
            &[event("a", 1, 6, LEFT), event("a", 1, 5, Connected)],
            (1, true, None, 5, 6),
        );
        check(
            &[event("a", 1, 5, LEFT), event("a", 1, 5, Connected)],
            (1, true, None, 5, 5),
        );
        // Considered lost, it was registered again when its node recovered.
        check(
            &[event("a", 1, 5, LEFT), event("a", 1, 6, Connected)],
            (1, false, None, 5, 6),
        );
        check(
            &[
                event("a", 1, 5, registered(1)),
                event("a", 1, 6, registered(2)),
            ],
            (1, false, Some(2), 5, 6),
        );
        check(
            &[
                event("a", 2, 5, registered(1)),
                event("a", 1, 6, registered(2)),
            ],
            (2, false, Some(1), 5, 5),
        );
        check(
            &[
                event("a", 1, 5, registered(1)),
                event("a", 1, 5, registered(2)),
            ],
            (1, false, Some(2), 5, 5),
        );
        check(
            &[event("a", 1, 5, registered(1)), event("a", 2, 6, Connected)],
            (2, false, Some(1), 5, 6),
        );
    }

    #[test]
    fn changes_are_ordered_by_key() {
        let changes =
            fold(&["b", "a", "B"].map(|device| event(device, 1, 1, DeviceEventKind::Connected)));
        let order: Vec<&str> = changes
            .iter()
            .map(|change| change.device.device.as_str())
            .collect();
        assert_eq!(order, ["B", "a", "b"]);
    }
}
