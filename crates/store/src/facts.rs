//! What edges told of their devices, folded into one change per device and written in one transaction.
//! Never: an older connection's news over a newer one's, and never a different result when facts come twice.

use std::{cmp::Ordering, collections::BTreeMap};

use chrono::{DateTime, Utc};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::bounded,
    devices,
    registrations::{self, RegistrationChange},
    webhooks::{device_events, presence},
};

/// Something that happened to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFact {
    /// Which device.
    pub device: DeviceKey,
    /// Which of its connections: the greater the newer.
    pub epoch: u64,
    /// When.
    pub at: DateTime<Utc>,
    /// What.
    pub news: DeviceNews,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceNews {
    /// It connected.
    Connected,
    /// It said what it can do.
    Registered {
        /// The digest of the services object.
        digest: Digest,
        /// The services object, unless an earlier fact brought it.
        services: Option<String>,
    },
    /// The connection ended.
    Left {
        /// Why.
        reason: &'static str,
    },
    /// It said something unasked.
    Event {
        /// What that is known by, however often it is told.
        id: Uuid,
        /// What happened.
        name: String,
        /// More about it, as sent: JSON.
        data: Option<String>,
    },
}

/// Everything that a batch says about one device.
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
    /// Writes all these facts, or none. Facts may come again and late: the result is the same.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the database will never take one of them (an organisation that does not exist,
    /// a text with a null character), else as every query.
    pub async fn record(&self, facts: &[DeviceFact]) -> Result<(), StoreError> {
        if facts.is_empty() {
            return Ok(());
        }
        let changes = fold(facts);
        let contents = contents(facts);
        bounded(async {
            let mut transaction = self.begin_throughout().await?;
            let before = presence::before(&mut transaction, &changes).await?;
            devices::upsert(&mut transaction, &changes).await?;
            registrations::insert_contents(&mut transaction, &contents).await?;
            registrations::upsert(&mut transaction, &changes).await?;
            presence::tell(&mut transaction, before).await?;
            device_events::tell(&mut transaction, facts).await?;
            transaction.commit().await
        })
        .await
    }
}

/// One change per device, because one statement may touch a row only once; in the order of their keys, because
/// two replicas that write the same devices must take the locks in one order.
fn fold(facts: &[DeviceFact]) -> Vec<DeviceChange> {
    let mut changes: BTreeMap<&DeviceKey, DeviceChange> = BTreeMap::new();
    for fact in facts {
        let Some(change) = DeviceChange::of(fact) else {
            continue;
        };
        match changes.get_mut(&fact.device) {
            Some(known) => known.merge(change),
            None => drop(changes.insert(&fact.device, change)),
        }
    }
    changes.into_values().collect()
}

fn contents(facts: &[DeviceFact]) -> BTreeMap<(OrgId, [u8; 32]), &str> {
    let told = facts.iter().filter_map(|fact| match &fact.news {
        DeviceNews::Registered {
            digest,
            services: Some(services),
        } => Some(((fact.device.org, digest.0), services.as_str())),
        _ => None,
    });
    told.collect()
}

impl DeviceChange {
    /// What a fact changes about its device, if anything.
    fn of(fact: &DeviceFact) -> Option<Self> {
        // Redis counts in signed 64 bits, so nothing is lost here.
        let epoch = i64::try_from(fact.epoch).unwrap_or(i64::MAX);
        let (left_reason, registration) = match &fact.news {
            DeviceNews::Connected => (None, None),
            DeviceNews::Left { reason } => (Some(*reason), None),
            DeviceNews::Registered { digest, .. } => (
                None,
                Some(RegistrationChange {
                    digest: *digest,
                    epoch,
                    at: fact.at,
                }),
            ),
            DeviceNews::Event { .. } => return None,
        };
        Some(Self {
            device: fact.device.clone(),
            epoch,
            first_seen: fact.at,
            last_seen: fact.at,
            left_reason,
            registration,
        })
    }

    /// Adds what came later in the batch; the same rules as in the SQL of [`devices::upsert`].
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
        let newer = |known: &RegistrationChange, told: &RegistrationChange| {
            (told.epoch, told.at) >= (known.epoch, known.at)
        };
        match (&self.registration, later.registration) {
            (Some(known), Some(told)) if !newer(known, &told) => {}
            (_, None) => {}
            (_, told) => self.registration = told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(device: &str, epoch: u64, at_s: i64, news: DeviceNews) -> DeviceFact {
        DeviceFact {
            device: DeviceKey {
                org: OrgId::from_uuid(uuid::Uuid::from_u128(1)),
                device: device.parse().unwrap(),
            },
            epoch,
            at: DateTime::from_timestamp(at_s, 0).unwrap(),
            news,
        }
    }

    fn registered(digest: u8) -> DeviceNews {
        DeviceNews::Registered {
            digest: Digest([digest; 32]),
            services: None,
        }
    }

    #[test]
    fn facts_of_one_device_become_one_change() {
        use DeviceNews::{Connected, Left};
        const LEFT: DeviceNews = Left { reason: "closed" };
        /// Expected: epoch, whether it left, the digest's byte, first and last second.
        fn check(facts: &[DeviceFact], expect: (i64, bool, Option<u8>, i64, i64)) {
            let changes = fold(facts);
            let [change] = changes.as_slice() else {
                panic!("{changes:?}")
            };
            let (epoch, left) = (change.epoch, change.left_reason.is_some());
            let digest = change.registration.map(|told| told.digest.0[0]);
            let (first, last) = (change.first_seen.timestamp(), change.last_seen.timestamp());
            assert_eq!((epoch, left, digest, first, last), expect);
        }
        check(&[fact("a", 1, 5, Connected)], (1, false, None, 5, 5));
        check(
            &[fact("a", 1, 5, Connected), fact("a", 1, 6, LEFT)],
            (1, true, None, 5, 6),
        );
        // The old connection's end comes after the new one's beginning.
        check(
            &[fact("a", 2, 5, Connected), fact("a", 1, 6, LEFT)],
            (2, false, None, 5, 5),
        );
        check(
            &[fact("a", 1, 5, LEFT), fact("a", 2, 6, Connected)],
            (2, false, None, 5, 6),
        );
        // A beginning that is told a second time does not undo the end.
        check(
            &[fact("a", 1, 6, LEFT), fact("a", 1, 5, Connected)],
            (1, true, None, 5, 6),
        );
        check(
            &[fact("a", 1, 5, LEFT), fact("a", 1, 5, Connected)],
            (1, true, None, 5, 5),
        );
        // Taken for lost, it was entered again when its node healed.
        check(
            &[fact("a", 1, 5, LEFT), fact("a", 1, 6, Connected)],
            (1, false, None, 5, 6),
        );
        check(
            &[
                fact("a", 1, 5, registered(1)),
                fact("a", 1, 6, registered(2)),
            ],
            (1, false, Some(2), 5, 6),
        );
        check(
            &[
                fact("a", 2, 5, registered(1)),
                fact("a", 1, 6, registered(2)),
            ],
            (2, false, Some(1), 5, 5),
        );
        check(
            &[
                fact("a", 1, 5, registered(1)),
                fact("a", 1, 5, registered(2)),
            ],
            (1, false, Some(2), 5, 5),
        );
        check(
            &[fact("a", 1, 5, registered(1)), fact("a", 2, 6, Connected)],
            (2, false, Some(1), 5, 6),
        );
    }

    #[test]
    fn changes_come_in_the_order_of_their_keys() {
        let changes =
            fold(&["b", "a", "B"].map(|device| fact(device, 1, 1, DeviceNews::Connected)));
        let order: Vec<&str> = changes
            .iter()
            .map(|change| change.device.device.as_str())
            .collect();
        assert_eq!(order, ["B", "a", "b"]);
    }
}
