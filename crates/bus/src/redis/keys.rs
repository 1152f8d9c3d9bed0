//! The names of all keys and channels in Redis.
//!
//! Invariant: every name begins with the configured prefix, and the names of one script are in
//! one slot of a cluster.

use std::{fmt, sync::Arc};

use switchboard_protocol::id::{DeviceKey, OrgId};

use super::cluster::slots;
use crate::{error::BusError, node::NodeId};

/// The number of parts of the directory, which the shards of a cluster share. One script reads
/// and writes one part; an organisation belongs to one part.
pub(super) const PARTS: u16 = 64;

/// The pub/sub commands of a single server, or of the shard of a cluster that owns a channel.
#[derive(Debug)]
pub(super) struct PubSubCommands {
    pub(super) publish: &'static str,
    pub(super) count_subscribers: &'static str,
}

const SINGLE: PubSubCommands = PubSubCommands {
    publish: "PUBLISH",
    count_subscribers: "NUMSUB",
};
const SHARDED: PubSubCommands = PubSubCommands {
    publish: "SPUBLISH",
    count_subscribers: "SHARDNUMSUB",
};

/// Builds the names of keys and channels.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: Arc<str>,
    pub(super) pubsub: &'static PubSubCommands,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            pubsub: &SINGLE,
        }
    }

    /// The same names in a cluster.
    pub(super) fn sharded(self) -> Result<Self, BusError> {
        if self.prefix.contains(['{', '}']) {
            let error = "in a cluster the key prefix must not contain braces";
            return Err(BusError::Address(error.to_owned()));
        }
        Ok(Self {
            pubsub: &SHARDED,
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

    /// Channel: broadcasts to all nodes.
    pub(super) fn broadcast(&self) -> String {
        self.key("all")
    }

    /// Channel: probes of a node to itself, at each shard of a cluster.
    pub(super) fn echo(&self, node: &NodeId) -> String {
        self.key(format_args!("echo:{node}"))
    }

    /// Channel: catalog events of the devices in this part of the directory.
    pub(super) fn catalog_channel(&self, part: u16) -> String {
        self.key(format_args!("{{{part}}}:registered"))
    }

    /// Channel: catalog events of any part may have been missed.
    pub(super) fn lagged_channel(&self) -> String {
        self.key("{nodes}:registered")
    }

    /// All channels of the last two kinds.
    pub(super) fn catalog_channels(&self) -> impl Iterator<Item = String> {
        let parts = (0..PARTS).map(|part| self.catalog_channel(part));
        parts.chain([self.lagged_channel()])
    }

    /// Whether a channel carries catalog events.
    pub(super) fn is_catalog_channel(channel: &[u8]) -> bool {
        // A node's name has no colon, so no other channel ends like this.
        channel.ends_with(b"}:registered")
    }

    /// Sorted set: node → time of its last lease renewal, in milliseconds of Redis's clock.
    pub(super) fn nodes(&self) -> String {
        self.key("{nodes}")
    }

    /// Sorted set: nodes that accept devices, by the time of their last announcement.
    pub(super) fn edges(&self) -> String {
        self.key("{nodes}:edges")
    }

    /// String: present for some seconds after an edge that drains has closed the device's connection.
    pub(super) fn moving(&self, DeviceKey { org, device }: &DeviceKey) -> String {
        self.key(format_args!(
            "{{{}}}:{org}:moving:{device}",
            Self::part(*org)
        ))
    }

    /// Hash: an organisation's registrations: digest → text, `#digest` → the number of entries that
    /// use it, and `bytes` → the length of all texts.
    pub(super) fn registrations(&self, org: OrgId) -> String {
        self.key(format_args!("{{{}}}:{org}:services", Self::part(org)))
    }

    /// Hash: the same by digest for one node, as nodes of earlier releases store them.
    pub(super) fn node_services(&self, node: &NodeId) -> String {
        self.key(format_args!("node:{node}:services"))
    }

    /// String: what a node published of itself, as JSON; expires with a lease.
    pub(super) fn node_status(&self, node: &NodeId) -> String {
        self.key(format_args!("node:{node}:status"))
    }

    /// String: the node that removes the entries of this dead node; expires when another node may.
    pub(super) fn removal_lock(&self, dead: &NodeId) -> String {
        self.key(format_args!("node:{dead}:removal"))
    }

    /// String: the node that counts the directory; expires when another node may count.
    pub(super) fn count_lock(&self) -> String {
        self.key("{figures}:counting")
    }

    /// Number: the devices in the directory at the last count.
    pub(super) fn device_count(&self) -> String {
        self.key("{figures}:devices")
    }

    /// The part of the directory that an organisation belongs to.
    pub(super) fn part(org: OrgId) -> u16 {
        slots::crc16(org.uuid().as_bytes()) % PARTS
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

    /// Stream: an organisation's live events, while somebody watches it.
    pub(super) fn live_log(&self, org: OrgId) -> String {
        self.key(format_args!("{{{}}}:{org}:log", Self::part(org)))
    }

    /// String: the public keys that verify tokens.
    pub(super) fn token_keys(&self) -> String {
        self.key("{trust}:keys")
    }

    /// String: the same keys with the signature of the control plane.
    pub(super) fn signed_keys(&self) -> String {
        self.key("{trust}:signed-keys")
    }

    /// Sorted set: revoked tokens by expiry.
    pub(super) fn revoked(&self) -> String {
        self.key("{trust}:revoked")
    }

    /// String: the suspended organisations.
    pub(super) fn suspended_orgs(&self) -> String {
        self.key("{trust}:suspended")
    }

    /// String: the version of the suspended organisations.
    pub(super) fn suspended_version(&self) -> String {
        self.key("{trust}:suspended-version")
    }

    /// String: changes whenever the keys, the revocations or the suspended organisations change.
    pub(super) fn key_set_version(&self) -> String {
        self.key("{trust}:version")
    }

    /// String: the key that seals resume tickets in this period; expires.
    pub(super) fn ticket_secret(&self, period: u64) -> String {
        self.key(format_args!("{{trust}}:ticket-key:{period}"))
    }

    /// String: the quotas of organisations in JSON.
    pub(super) fn quotas(&self) -> String {
        self.key("quotas")
    }

    /// Stream: device events.
    pub(super) fn events(&self) -> String {
        self.key("facts")
    }

    /// Hash: the bytes of device events on the stream, by organisation and in total.
    pub(super) fn event_bytes(&self) -> String {
        // In the slot of the stream.
        self.key(format_args!("{{{}}}:bytes", self.events()))
    }

    /// Stream: turns that wait, or are being answered.
    pub(super) fn turns(&self) -> String {
        self.key("{turns}")
    }

    /// Sorted set: conversations → time when each is due or its lease expires, in milliseconds of
    /// Redis's clock.
    pub(super) fn conversations(&self) -> String {
        self.key("{conversations}")
    }

    /// Sorted set: an organisation's conversations → time when each is due.
    pub(super) fn org_conversations(&self, org: &str) -> String {
        self.key(format_args!("{{conversations}}:{org}"))
    }

    /// Sorted set: organisation → bytes of its conversations, `~` → bytes of all.
    pub(super) fn conversation_sizes(&self) -> String {
        self.key("{conversations}-sizes")
    }

    /// String: `version bytes` of a conversation, by its member in that set; expires.
    pub(super) fn conversation(&self, member: &str) -> String {
        self.key(format_args!("{{conversations}}:{member}"))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn keys_of_one_script_are_in_one_slot() {
        let keys = Keys::new("sb");
        let org = OrgId::from_uuid(Uuid::from_u128(7));
        let part = Keys::part(org);
        let together: [&[String]; 4] = [
            &[
                keys.directory(org),
                keys.ids(org),
                keys.orgs(part),
                keys.registrations(org),
                keys.catalog_channel(part),
                keys.moving(&DeviceKey {
                    org,
                    device: "toy-1".parse().unwrap(),
                }),
            ],
            &[keys.nodes(), keys.edges(), keys.lagged_channel()],
            &[keys.events(), keys.event_bytes()],
            &[
                keys.conversations(),
                keys.org_conversations("org"),
                keys.conversation_sizes(),
                keys.conversation("org/name"),
            ],
        ];
        for names in together {
            let slots: Vec<u16> = names.iter().map(|name| slots::slot(name)).collect();
            assert!(slots.iter().all(|slot| *slot == slots[0]), "{names:?}");
        }
        assert!(
            keys.catalog_channels()
                .all(|channel| Keys::is_catalog_channel(channel.as_bytes()))
        );
        assert!(!Keys::is_catalog_channel(keys.broadcast().as_bytes()));
    }

    #[test]
    fn directory_parts_are_spread_over_shards() {
        let keys = Keys::new("sb");
        let third = |part| usize::from(slots::slot(&keys.orgs(part)) / 5462);
        let mut shares = [0; 3];
        for part in 0..PARTS {
            shares[third(part)] += 1;
        }
        assert!(shares.iter().all(|share| *share >= 15), "{shares:?}");
    }

    #[test]
    fn prefix_with_braces_is_refused_in_a_cluster() {
        assert!(Keys::new("a{b").sharded().is_err());
        assert!(Keys::new("a-b").sharded().is_ok());
    }
}
