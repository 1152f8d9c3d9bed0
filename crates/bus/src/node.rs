//! Identifies nodes, and the connections of a device.

use std::{fmt, sync::Arc};

use crate::clock::unique_id;

/// The message level of nodes that know calls with a deadline on the shared clock.
pub(crate) const DEADLINES: u8 = 1;
/// The message level of nodes that know calls for one registration.
pub(crate) const PINNED_CALLS: u8 = 2;
/// The message level of this release.
const MESSAGE_LEVEL: u8 = PINNED_CALLS;

/// One incarnation of a node, `name~level.incarnation`. It is unique for every start of a process, so
/// a message to a process that has ended cannot reach its successor. The level states which messages the
/// node decodes, so that nodes of two releases can exchange the messages that both know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// The maximum length of an id, in bytes; a longer name is truncated.
    pub const MAX_BYTES: usize = 96;

    /// Generates a new incarnation of the node with this name. Characters outside
    /// `[A-Za-z0-9._-]` become `-`.
    #[must_use]
    pub fn generate(name: &str) -> Self {
        let incarnation = unique_id().simple().to_string();
        let suffix = format!("~{MESSAGE_LEVEL}.{incarnation}");
        let max = Self::MAX_BYTES.saturating_sub(suffix.len());
        let name: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .take(max)
            .collect();
        Self(format!("{name}{suffix}").into())
    }

    /// Which messages this node decodes. 0 for nodes of releases before there were levels.
    pub(crate) fn message_level(&self) -> u8 {
        let suffix = self.0.rsplit_once('~').map_or("", |(_, suffix)| suffix);
        let level = suffix.split_once('.').map(|(level, _)| level);
        level.and_then(|level| level.parse().ok()).unwrap_or(0)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl std::borrow::Borrow<str> for NodeId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies a connection of a device. The directory assigns epochs: microseconds of its own
/// clock, which grow even after the directory lost its data, and at each node even after the clock has
/// stepped back. The newest connection wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// When the connection was entered, in Unix milliseconds.
    #[must_use]
    pub const fn since_ms(self) -> u64 {
        self.0 / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_differ_and_fit() {
        let name = "edge one/".repeat(20);
        let (first, second) = (NodeId::generate(&name), NodeId::generate(&name));
        assert_ne!(first, second);
        assert!(first.as_str().len() <= NodeId::MAX_BYTES);
        assert!(first.as_str().starts_with("edge-one-"));
    }

    #[test]
    fn level_of_a_node_is_in_its_id() {
        assert_eq!(NodeId::generate("edge.7~2").message_level(), PINNED_CALLS);
        let former = "edge.7~0199c5f1a2b37e4d8f60123456789abc";
        assert_eq!(NodeId::from(former).message_level(), 0);
    }
}
