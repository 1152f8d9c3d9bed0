//! The registrations of this node's devices.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_protocol::{id::OrgId, schema::Digest};

/// How often a device event contains the full text of the same registration.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(60);

/// The registrations that this node's connections use, by digest.
///
/// Many devices register the same services. Their text is stored once for each node, in memory
/// and in the backend, and counted by the connections that use it:
///
/// ```text
///              acquire: first user            release: last user
///   absent ──────────────────────► in use ──────────────────────► absent
///            stored in the backend  │  ▲    deleted from the backend
///                                   └──┘
///                     acquire, release: other users
/// ```
///
/// The control plane stores registrations by organisation. A device event contains the text only
/// when [`Self::should_publish`] allows it: once in 60 s for each organisation and digest. After a
/// reconnect [`Self::reset_published`] forgets that, because the event stream may have been lost.
///
/// Invariant: a registration is not stored for a connection that has ended.
#[derive(Default)]
pub(crate) struct RegistrationCache {
    registrations: Mutex<HashMap<Digest, Registration>>,
}

struct Registration {
    connections: usize,
    json: Bytes,
    /// When an event contained the text, for each organisation.
    published_at: HashMap<OrgId, Instant>,
}

impl RegistrationCache {
    /// Adds a connection. Returns true when it is the first one.
    pub(crate) fn acquire(&self, digest: Digest, json: &Bytes) -> bool {
        let mut registrations = self.registrations.lock();
        let registration = registrations.entry(digest).or_insert_with(|| Registration {
            connections: 0,
            json: json.clone(),
            published_at: HashMap::new(),
        });
        registration.connections += 1;
        registration.connections == 1
    }

    /// The text of a registration that is in use.
    pub(crate) fn get(&self, digest: Digest) -> Option<Bytes> {
        self.registrations
            .lock()
            .get(&digest)
            .map(|registration| registration.json.clone())
    }

    /// Removes a connection. Returns the digest when it was the last one.
    pub(crate) fn release(&self, digest: Digest) -> Option<Digest> {
        let mut registrations = self.registrations.lock();
        let registration = registrations.get_mut(&digest)?;
        registration.connections = registration.connections.saturating_sub(1);
        if registration.connections > 0 {
            return None;
        }
        registrations.remove(&digest);
        Some(digest)
    }

    /// Whether an event is to contain the text. If so, that is recorded.
    pub(crate) fn should_publish(&self, org: OrgId, digest: Digest) -> bool {
        let mut registrations = self.registrations.lock();
        let Some(registration) = registrations.get_mut(&digest) else {
            return true;
        };
        let published_at = registration.published_at.get(&org);
        let is_due = published_at.is_none_or(|at| at.elapsed() > PUBLISH_INTERVAL);
        if is_due {
            registration.published_at.insert(org, Instant::now());
        }
        is_due
    }

    /// Forgets what was published.
    pub(crate) fn reset_published(&self) {
        for registration in self.registrations.lock().values_mut() {
            registration.published_at.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn registration_lives_while_connections_use_it() {
        let cache = RegistrationCache::default();
        let digest = Digest([1; 32]);
        let json = Bytes::from_static(b"{}");
        assert!(cache.acquire(digest, &json));
        assert!(!cache.acquire(digest, &json));
        assert_eq!(cache.get(digest), Some(json));
        let (one, other) = (OrgId::from_uuid(Uuid::nil()), OrgId::from_uuid(Uuid::max()));
        assert!(cache.should_publish(one, digest));
        assert!(!cache.should_publish(one, digest));
        assert!(
            cache.should_publish(other, digest),
            "another organisation has not received it"
        );
        cache.reset_published();
        assert!(cache.should_publish(one, digest));
        assert_eq!(cache.release(digest), None);
        assert_eq!(cache.release(digest), Some(digest));
        assert_eq!((cache.release(digest), cache.get(digest)), (None, None));
    }
}
