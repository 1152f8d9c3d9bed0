//! The texts of registrations, once for each organisation, counted by the entries that use them.

use std::collections::HashMap;

use bytes::Bytes;
use switchboard_protocol::{id::OrgId, schema::Digest};

/// Invariant: a text is stored while an entry uses it.
#[derive(Default)]
pub(super) struct Registrations(HashMap<OrgId, HashMap<Digest, Registration>>);

struct Registration {
    json: Bytes,
    entries: usize,
}

/// Why an entry cannot use a registration.
pub(super) enum Refused {
    TextMissing,
    Full,
}

impl Registrations {
    pub(super) fn text(&self, org: OrgId, digest: Digest) -> Option<Bytes> {
        let registration = self.0.get(&org)?.get(&digest)?;
        Some(registration.json.clone())
    }

    /// Adds an entry that used `before`.
    pub(super) fn add(
        &mut self,
        org: OrgId,
        (digest, json): (Digest, Option<Bytes>),
        before: Option<Digest>,
        max_bytes: u64,
    ) -> Result<(), Refused> {
        let texts = self.0.entry(org).or_default();
        if let Some(known) = texts.get_mut(&digest) {
            known.entries += 1;
            return Ok(());
        }
        let json = json.ok_or(Refused::TextMissing)?;
        let stays = |digest: &Digest, known: &Registration| {
            known.entries > 1 || before.as_ref() != Some(digest)
        };
        let used = texts.iter().filter(|(digest, known)| stays(digest, known));
        let used: usize = used.map(|(_, known)| known.json.len()).sum();
        if (used + json.len()) as u64 > max_bytes {
            return Err(Refused::Full);
        }
        texts.insert(digest, Registration { json, entries: 1 });
        Ok(())
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, org: OrgId, digest: Option<Digest>) {
        let (Some(texts), Some(digest)) = (self.0.get_mut(&org), digest) else {
            return;
        };
        if let Some(known) = texts.get_mut(&digest) {
            known.entries -= 1;
            if known.entries == 0 {
                texts.remove(&digest);
            }
        }
        if texts.is_empty() {
            self.0.remove(&org);
        }
    }
}
