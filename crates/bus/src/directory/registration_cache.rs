//! The registrations of this node's devices.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use switchboard_protocol::{id::OrgId, schema::Digest};
use tokio::time::Instant;

/// How often a device event contains the full text of the same registration.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(60);

/// The registrations that this node's connections use, by organisation and digest.
///
/// Many devices register the same services. The backend stores a text once for each organisation,
/// together with the entries that use it:
///
/// ```text
///               first entry with the digest           last entry with it
///   absent ───────────────────────────────► stored ─────────────────────► absent
///     │     the text fits the organisation's  │  ▲
///     │     share of bytes                    └──┘
///     └──► refused: it does not fit        other entries
/// ```
///
/// This node sends a text with its first connection that uses it, or when the backend answers that
/// it is absent, so an entry of a known registration takes one round trip without the text.
///
/// The control plane stores registrations by organisation, too. A device event contains the text
/// only when [`Self::should_publish`] allows it: once in 60 s for each organisation and digest.
/// After a reconnect [`Self::reset_published`] forgets that, because the event stream may have been
/// lost.
#[derive(Default)]
pub(crate) struct RegistrationCache {
    registrations: Mutex<HashMap<Key, Registration>>,
}

type Key = (OrgId, Digest);

#[derive(Default)]
struct Registration {
    connections: usize,
    /// When an event contained the text.
    published_at: Option<Instant>,
}

/// A connection that uses a registration, unless it is dropped before [`Self::keep`].
pub(crate) struct Acquired<'a> {
    cache: &'a RegistrationCache,
    key: Key,
    /// No other connection of this node uses the registration.
    pub(crate) is_first: bool,
}

impl Acquired<'_> {
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Acquired<'_> {
    fn drop(&mut self) {
        self.cache.release(self.key);
    }
}

impl RegistrationCache {
    /// Adds a connection.
    pub(crate) fn acquire(&self, key: Key) -> Acquired<'_> {
        let mut registrations = self.registrations.lock();
        let registration = registrations.entry(key).or_default();
        registration.connections += 1;
        let is_first = registration.connections == 1;
        drop(registrations);
        Acquired {
            cache: self,
            key,
            is_first,
        }
    }

    /// Removes a connection.
    pub(crate) fn release(&self, key: Key) {
        let mut registrations = self.registrations.lock();
        let Some(registration) = registrations.get_mut(&key) else {
            return;
        };
        registration.connections = registration.connections.saturating_sub(1);
        if registration.connections == 0 {
            registrations.remove(&key);
        }
    }

    /// Whether an event is to contain the text. If so, that is recorded.
    pub(crate) fn should_publish(&self, key: Key) -> bool {
        let mut registrations = self.registrations.lock();
        let Some(registration) = registrations.get_mut(&key) else {
            return true;
        };
        let published_at = registration.published_at;
        let is_due = published_at.is_none_or(|at| at.elapsed() > PUBLISH_INTERVAL);
        if is_due {
            registration.published_at = Some(Instant::now());
        }
        is_due
    }

    /// An event that contained the text was lost.
    pub(crate) fn forget_published(&self, key: Key) {
        if let Some(registration) = self.registrations.lock().get_mut(&key) {
            registration.published_at = None;
        }
    }

    /// Forgets what was published.
    pub(crate) fn reset_published(&self) {
        for registration in self.registrations.lock().values_mut() {
            registration.published_at = None;
        }
    }
}

#[cfg(test)]
mod tests;
