//! Which process is meant, and which connection of a device.
//! Never: a name that outlives its process; a restarted node is another node.

use std::{fmt, sync::Arc};

use uuid::Uuid;

/// One incarnation of one node, `name~incarnation`: unique for every process start, so a
/// message for a process that died can not reach its successor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// The longest id, in bytes; a name is cut to fit.
    pub const MAX_BYTES: usize = 96;

    /// A fresh incarnation of the node with this name. Characters outside
    /// `[A-Za-z0-9._-]` become `-`.
    #[must_use]
    pub fn incarnate(name: &str) -> Self {
        let incarnation = Uuid::now_v7().simple().to_string();
        let room = Self::MAX_BYTES.saturating_sub(incarnation.len() + 1);
        let clean: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .take(room)
            .collect();
        Self(format!("{clean}~{incarnation}").into())
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

/// Which connection of a device is meant. The directory gives epochs out: microseconds of its
/// own clock, so they grow even over a directory that lost everything. Newest wins.
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
    fn incarnations_differ_and_fit() {
        let name = "edge one/".repeat(20);
        let (first, second) = (NodeId::incarnate(&name), NodeId::incarnate(&name));
        assert_ne!(first, second);
        assert!(first.as_str().len() <= NodeId::MAX_BYTES);
        assert!(first.as_str().starts_with("edge-one-"));
    }
}
