//! What this system calls its keys and channels in Redis, as one list.
//! Never: a name without this system's prefix, or a script whose names are in different slots of a cluster.

use std::{fmt, sync::Arc};

use switchboard_protocol::id::OrgId;

use super::slot;
use crate::{error::BusError, node::NodeId};

/// Into how many parts the directory is divided, so that a cluster's shards can share it. What
/// one step in Redis reads and writes is in one part; an organisation is in one part.
pub(super) const PARTS: u16 = 64;

/// How a channel is spoken to: at one server, or at the shard of a cluster that owns its slot.
#[derive(Debug)]
pub(super) struct Speech {
    pub(super) publish: &'static str,
    pub(super) listeners: &'static str,
}

const WHOLE: Speech = Speech {
    publish: "PUBLISH",
    listeners: "NUMSUB",
};
const SHARDED: Speech = Speech {
    publish: "SPUBLISH",
    listeners: "SHARDNUMSUB",
};

/// Names of keys and channels.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    pub(super) speech: &'static Speech,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            speech: &WHOLE,
        }
    }

    /// The same names in a cluster.
    pub(super) fn sharded(self) -> Result<Self, BusError> {
        if self.prefix.contains(['{', '}']) {
            let why = "in a cluster the prefix of keys must be without braces";
            return Err(BusError::Address(why.to_owned()));
        }
        Ok(Self {
            speech: &SHARDED,
            ..self
        })
    }

    fn key(&self, rest: impl fmt::Display) -> String {
        format!("{}:{rest}", self.prefix)
    }

    /// Channel: a node's inbox.
    pub(super) fn inbox(&self, node: &NodeId) -> String {
        self.key(format_args!("in:{node}"))
    }

    /// Channel: every node's ear.
    pub(super) fn everybody(&self) -> String {
        self.key("all")
    }

    /// Channel: what a node tells itself, to know that it is heard at one server of a cluster.
    pub(super) fn echo(&self, node: &NodeId) -> String {
        self.key(format_args!("echo:{node}"))
    }

    /// Channel: what changes in what the devices of this part of the directory offer.
    pub(super) fn registered(&self, part: u16) -> String {
        self.key(format_args!("{{{part}}}:registered"))
    }

    /// Channel: something may have been missed of that, in any part.
    pub(super) fn missed(&self) -> String {
        self.key("{nodes}:registered")
    }

    /// All channels of the last two kinds.
    pub(super) fn all_registered(&self) -> impl Iterator<Item = String> {
        let parts = (0..PARTS).map(|part| self.registered(part));
        parts.chain([self.missed()])
    }

    /// Whether a channel is one of those.
    pub(super) fn is_registered(channel: &[u8]) -> bool {
        // A node's name has no colon, so no other channel ends like this.
        channel.ends_with(b"}:registered")
    }

    /// Sorted set: node → its last beat, in milliseconds of Redis's clock.
    pub(super) fn nodes(&self) -> String {
        self.key("{nodes}")
    }

    /// Hash: registrations of a node's devices by digest; lives as long as the node's lease.
    pub(super) fn shelf(&self, node: &NodeId) -> String {
        self.key(format_args!("node:{node}:services"))
    }

    /// Text: which node counts the directory for all; lives as long as nobody else is to.
    pub(super) fn counting(&self) -> String {
        self.key("{figures}:counting")
    }

    /// Number: how many devices were in the directory when they were counted last.
    pub(super) fn counted(&self) -> String {
        self.key("{figures}:devices")
    }

    /// The part of the directory that an organisation is in.
    pub(super) fn part(org: OrgId) -> u16 {
        slot::crc16(org.uuid().as_bytes()) % PARTS
    }

    /// Set: organisations of this part with live devices.
    pub(super) fn orgs(&self, part: u16) -> String {
        self.key(format_args!("{{{part}}}:orgs"))
    }

    /// Hash: an organisation's live devices, `epoch node digest` each.
    pub(super) fn directory(&self, org: OrgId) -> String {
        self.key(format_args!("{{{}}}:{org}:live", Self::part(org)))
    }

    /// Sorted set: the ids of the same devices, for listing in order.
    pub(super) fn ids(&self, org: OrgId) -> String {
        self.key(format_args!("{{{}}}:{org}:ids", Self::part(org)))
    }

    /// String: the public keys.
    pub(super) fn trust(&self) -> String {
        self.key("{trust}:keys")
    }

    /// Sorted set: revoked tokens by expiry.
    pub(super) fn revoked(&self) -> String {
        self.key("{trust}:revoked")
    }

    /// String: changes whenever one of the two changes.
    pub(super) fn trust_version(&self) -> String {
        self.key("{trust}:version")
    }

    /// Stream: facts for the record.
    pub(super) fn facts(&self) -> String {
        self.key("facts")
    }

    /// Stream: turns that wait, or are being answered.
    pub(super) fn turns(&self) -> String {
        self.key("{turns}")
    }

    /// Sorted set: conversations → when each is due, in milliseconds of Redis's clock.
    pub(super) fn conversations(&self) -> String {
        self.key("{conversations}")
    }

    /// Sorted set: an organisation's conversations → when each is due, whoever is given it.
    pub(super) fn conversations_of(&self, org: &str) -> String {
        self.key(format_args!("{{conversations}}:{org}"))
    }

    /// String: `version bytes` of a conversation, by its name in that set; it ends by itself.
    pub(super) fn conversation(&self, member: &str) -> String {
        self.key(format_args!("{{conversations}}:{member}"))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_one_step_touches_is_in_one_slot() {
        let keys = Keys::new("sb");
        let org = OrgId::from_uuid(Uuid::from_u128(7));
        let part = Keys::part(org);
        let together: [&[String]; 3] = [
            &[
                keys.directory(org),
                keys.ids(org),
                keys.orgs(part),
                keys.registered(part),
            ],
            &[keys.nodes(), keys.missed()],
            &[
                keys.conversations(),
                keys.conversations_of("org"),
                keys.conversation("org/name"),
            ],
        ];
        for names in together {
            let slots: Vec<u16> = names.iter().map(|name| slot::of(name)).collect();
            assert!(slots.iter().all(|slot| *slot == slots[0]), "{names:?}");
        }
        assert!(
            keys.all_registered()
                .all(|channel| Keys::is_registered(channel.as_bytes()))
        );
        assert!(!Keys::is_registered(keys.everybody().as_bytes()));
    }

    #[test]
    fn a_clusters_shards_share_the_directory() {
        let keys = Keys::new("sb");
        let third = |part| usize::from(slot::of(&keys.orgs(part)) / 5462);
        let mut shares = [0; 3];
        for part in 0..PARTS {
            shares[third(part)] += 1;
        }
        assert!(shares.iter().all(|share| *share >= 15), "{shares:?}");
    }

    #[test]
    fn braces_would_decide_in_which_slot_everything_is() {
        assert!(Keys::new("a{b").sharded().is_err());
        assert!(Keys::new("a-b").sharded().is_ok());
    }
}
