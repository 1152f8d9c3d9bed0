//! Devices and NPCs as Model Context Protocol servers over Streamable HTTP.
//!
//! `/mcp` serves all devices of an organisation, `/mcp/devices/{id}` one device and
//! `/mcp/npcs/{id}` one NPC. Two kinds of protocol revision are served without sessions: the
//! stateless one (2026-07-28), and those with a handshake.
//!
//! Invariant: no state that another replica would miss is kept between two requests.

mod npc;
mod prompts;
mod readable;
mod resources;
mod server;
mod subscriptions;
mod tools;
mod transport;

use std::sync::Arc;

use switchboard_runtime::{budget::Budgets, shutdown::Shutdown};

use crate::Config;
use resources::pictures::PictureBudget;
pub(crate) use subscriptions::listeners::{
    ListenerGuard, admit as admit_listener, run_checks as check_listeners,
};
use subscriptions::{editions::CatalogEditions, listeners::Listeners};
use tools::{catalog::ToolCatalog, elicitation::StateSealer, resolve::DeviceNameCache};
pub(crate) use transport::endpoints::router;
pub use transport::host_policy::{AllowedHost, AllowedOrigin};
use transport::{host_policy::HostPolicy, metadata::MetadataSource, session::InFlightRequests};

/// What the MCP endpoints of one gateway share.
pub(crate) struct Mcp {
    host_policy: Arc<HostPolicy>,
    metadata: MetadataSource,
    catalog: ToolCatalog,
    device_names: DeviceNameCache,
    picture_budget: PictureBudget,
    sealer: StateSealer,
    editions: CatalogEditions,
    listeners: Arc<Listeners>,
    max_resource_subscriptions: usize,
    in_flight: InFlightRequests,
    /// Listeners end when draining begins; requests in flight may finish.
    shutdown: Shutdown,
}

impl Mcp {
    pub(crate) fn new(config: &Config, budgets: &Budgets, shutdown: &Shutdown) -> Self {
        let host_policy = HostPolicy::new(config);
        Self {
            metadata: MetadataSource::new(config, &host_policy),
            host_policy,
            catalog: ToolCatalog::new(budgets),
            device_names: DeviceNameCache::new(budgets),
            picture_budget: PictureBudget::new(config.mcp_pictures_bytes, budgets),
            sealer: StateSealer::default(),
            editions: CatalogEditions::default(),
            listeners: Listeners::new(config.mcp_listeners_per_caller),
            max_resource_subscriptions: config.mcp_resources_per_listener,
            in_flight: InFlightRequests::default(),
            shutdown: shutdown.clone(),
        }
    }
}
