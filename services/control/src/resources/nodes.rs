//! `/v1/nodes`: the nodes of the installation, for its operator.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;
use switchboard_bus::{NodeId, NodeStatus};
use switchboard_runtime::problem::{Problem, ProblemKind};
use utoipa::ToSchema;

use crate::{
    Control,
    http::{auth::RequireOperator, error::ControlError, response::JsonResponse},
};

/// A node: one process. Members that it does not publish are null.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Node)]
pub(crate) struct NodeView {
    /// ID of the node, which has another one after each start.
    #[schema(max_length = 96, example = "edge-1~1.01a1fdc1e83670f68020c071fd533605")]
    id: String,
    /// The service that it runs: `edge`, `gateway`, `chat`, `control`, or `up` for all of them.
    #[schema(max_length = 64, example = "edge")]
    role: Option<String>,
    /// Its version.
    #[schema(max_length = 64, example = "0.2.0")]
    version: Option<String>,
    /// When it started (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    started_at: Option<DateTime<Utc>>,
    /// Number of devices that are connected to it; null if it does not accept devices.
    #[schema(minimum = 0, example = 1200)]
    devices: Option<u64>,
    /// Whether it is shutting down.
    #[schema(example = false)]
    draining: Option<bool>,
    /// Whether it is ready for requests, as its admin port reports.
    #[schema(example = true)]
    ready: Option<bool>,
    /// What it depends on.
    #[schema(max_items = 32)]
    checks: Vec<NodeCheckView>,
}

/// The state of one dependency of a node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NodeCheck)]
pub(crate) struct NodeCheckView {
    /// Name of the dependency.
    #[schema(max_length = 64, example = "redis")]
    name: String,
    /// Whether the node can use it.
    #[schema(example = true)]
    ok: bool,
    /// Why not.
    #[schema(max_length = 500, example = "not connected")]
    detail: Option<String>,
}

/// The nodes of the installation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Nodes {
    /// By their ids.
    #[schema(max_items = 1000)]
    nodes: Vec<NodeView>,
}

impl From<(NodeId, Option<NodeStatus>)> for NodeView {
    fn from((id, status): (NodeId, Option<NodeStatus>)) -> Self {
        let status = status.unwrap_or_default();
        let started_at = status.started_at_ms.and_then(|ms| i64::try_from(ms).ok());
        let checks = status.checks.into_iter().map(|check| NodeCheckView {
            name: check.name,
            ok: check.ok,
            detail: check.detail,
        });
        Self {
            id: id.as_str().to_owned(),
            role: status.role,
            version: status.version,
            started_at: started_at.and_then(DateTime::from_timestamp_millis),
            devices: status.devices,
            draining: status.draining,
            ready: status.ready,
            checks: checks.collect(),
        }
    }
}

/// Lists the nodes of the installation, with what they published of themselves within the last seconds.
///
/// A node that has crashed is listed for up to 9 s.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "Nodes", operation_id = "listNodes",
    responses((status = 200, body = Nodes, description = "The nodes")),
    security(("operator" = [])),
    extensions(("x-problems" = json!(["operator_only", "bus_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    RequireOperator: RequireOperator,
) -> Result<JsonResponse, ControlError> {
    let nodes = control.bus.nodes().await.map_err(|error| {
        tracing::warn!(%error, "nodes could not be listed");
        let detail = "The nodes cannot be listed at the moment; a retry is safe.";
        Problem::new(ProblemKind::BusUnavailable, detail).header(http::header::RETRY_AFTER, 1)
    })?;
    let nodes = nodes.into_iter().map(NodeView::from).collect();
    Ok(JsonResponse::ok(&Nodes { nodes }))
}
