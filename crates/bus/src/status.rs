//! What nodes publish of themselves for operators. It lasts as long as a lease: a node that is gone, or
//! of a release that publishes nothing, has none.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{background::LEASE_RENEWAL_INTERVAL, bus::Bus, error::BusError, node::NodeId};

/// How often a node publishes its state.
pub const STATUS_INTERVAL: Duration = LEASE_RENEWAL_INTERVAL;

/// The state of a node, as it published it some seconds ago. Members of other releases may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// The service: `edge`, `gateway`, `chat`, `control`, or `up` for all of them.
    pub role: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// When its process started, in Unix milliseconds.
    pub started_at_ms: Option<u64>,
    /// The devices that are connected to it, if it accepts devices.
    pub devices: Option<u64>,
    /// Whether it is shutting down.
    pub draining: Option<bool>,
    /// Whether it is ready, as `/readyz` of its admin port reports.
    pub ready: Option<bool>,
    /// What it depends on.
    pub checks: Vec<NodeCheck>,
}

/// The state of one dependency of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeCheck {
    /// The name of the dependency.
    pub name: String,
    /// Whether the node can use it.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Bus {
    /// Publishes the state of this node; the bus adds the number of its devices. It expires with a
    /// lease, so it has to be published every [`STATUS_INTERVAL`].
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn publish_status(&self, mut status: NodeStatus) -> Result<(), BusError> {
        let owner = self.0.owner();
        status.devices = owner.map(|owner| owner.connection_count() as u64);
        // A struct of texts and numbers: this does not fail.
        let status = serde_json::to_vec(&status).unwrap_or_default();
        self.0.backend.publish_status(status.into()).await
    }

    /// All nodes that have a lease, by their ids, with the state that they published.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn nodes(&self) -> Result<Vec<(NodeId, Option<NodeStatus>)>, BusError> {
        let mut nodes = self.0.backend.nodes().await?;
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let parse = |status: Bytes| serde_json::from_slice(&status).ok();
        let nodes = nodes.into_iter();
        Ok(nodes
            .map(|(id, status)| (id, status.and_then(parse)))
            .collect())
    }
}
