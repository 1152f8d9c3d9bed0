//! Which registrations this node has put where others can read them, and how many of its
//! connections use each.
//! Never: a registration kept for a device that left.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_protocol::{id::OrgId, schema::Digest};

/// How often the full text of a registration goes into the record again.
const TOLD_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Shelf {
    used: Mutex<HashMap<Digest, Use>>,
}

struct Use {
    connections: usize,
    json: Bytes,
    /// The record keeps registrations by organisation.
    told: HashMap<OrgId, Instant>,
}

impl Shelf {
    /// One more connection uses it; true when it is the first.
    pub(crate) fn take_up(&self, digest: Digest, json: &Bytes) -> bool {
        let mut used = self.used.lock();
        let entry = used.entry(digest).or_insert_with(|| Use {
            connections: 0,
            json: json.clone(),
            told: HashMap::new(),
        });
        entry.connections += 1;
        entry.connections == 1
    }

    /// The text of a registration that is in use.
    pub(crate) fn text(&self, digest: Digest) -> Option<Bytes> {
        self.used
            .lock()
            .get(&digest)
            .map(|entry| entry.json.clone())
    }

    /// One connection fewer uses it; the digest when it was the last.
    pub(crate) fn put_down(&self, digest: Digest) -> Option<Digest> {
        let mut used = self.used.lock();
        let entry = used.get_mut(&digest)?;
        entry.connections = entry.connections.saturating_sub(1);
        if entry.connections > 0 {
            return None;
        }
        used.remove(&digest);
        Some(digest)
    }

    /// Whether the record should have the full text now.
    pub(crate) fn tell(&self, org: OrgId, digest: Digest) -> bool {
        let mut used = self.used.lock();
        let Some(entry) = used.get_mut(&digest) else {
            return true;
        };
        let told = entry.told.get(&org);
        let due = told.is_none_or(|told| told.elapsed() > TOLD_FOR);
        if due {
            entry.told.insert(org, Instant::now());
        }
        due
    }

    /// Forgets what was told: the record may have been lost.
    pub(crate) fn untell(&self) {
        for entry in self.used.lock().values_mut() {
            entry.told.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn counts_its_users() {
        let shelf = Shelf::default();
        let digest = Digest([1; 32]);
        let json = Bytes::from_static(b"{}");
        assert!(shelf.take_up(digest, &json));
        assert!(!shelf.take_up(digest, &json));
        assert_eq!(shelf.text(digest), Some(json));
        let (ours, theirs) = (OrgId::from_uuid(Uuid::nil()), OrgId::from_uuid(Uuid::max()));
        assert!(shelf.tell(ours, digest));
        assert!(!shelf.tell(ours, digest));
        assert!(
            shelf.tell(theirs, digest),
            "another organisation's record does not have it"
        );
        shelf.untell();
        assert!(shelf.tell(ours, digest));
        assert_eq!(shelf.put_down(digest), None);
        assert_eq!(shelf.put_down(digest), Some(digest));
        assert_eq!((shelf.put_down(digest), shelf.text(digest)), (None, None));
    }
}
