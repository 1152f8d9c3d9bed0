//! Terminates device connections: accepts and authenticates them, delivers calls and conversation
//! turns to devices, and returns their results to the bus.

mod accept;
mod bus_handler;
mod config;
mod connection;
mod connections;
mod cut_off;
mod drain;
mod edge;
mod handle;
mod metrics;
mod schemas;
mod sweeper;
pub mod tls;
mod token_bucket;
mod turn_forwarder;
mod voice;

use std::{sync::Arc, time::Duration};

use switchboard_bus::Bus;
use switchboard_runtime::{budget::Budgets, rate_limit, shutdown::Shutdown};
use switchboard_speech::Speech;
use tokio::net::TcpListener;

pub use self::config::{Config, SchemaConfig};
use self::{bus_handler::BusHandler, edge::Edge, metrics::Metrics};

/// How long the accept loops and the sweeper may take to end after the last connection.
const BACKGROUND_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The sockets that devices connect to.
pub struct Listeners {
    /// Plain TCP.
    pub plain: TcpListener,
    /// TLS, if there is a certificate. See [`tls::server_config`].
    pub tls: Option<(TcpListener, Arc<rustls::ServerConfig>)>,
}

/// What the edge uses of its process.
pub struct Deps {
    /// The sockets that devices connect to.
    pub listeners: Listeners,
    /// The bus of this node. The edge attaches itself as the owner of the node's connections.
    pub bus: Bus,
    /// Where the edge registers its metrics.
    pub registry: prometheus::Registry,
    /// Bounds what the process holds at the same time.
    pub budgets: Budgets,
    /// Speech recognition and synthesis.
    pub speech: Speech,
}

/// Starts the edge: its tasks run on `shutdown`. It serves devices until `shutdown` drains, then
/// until every connection is closed. It has no routes.
///
/// # Errors
/// When `deps.registry` already has metrics of these names. Nothing is started then.
pub fn run(config: &Config, deps: Deps, shutdown: &Shutdown) -> Result<(), prometheus::Error> {
    let metrics = Metrics::new(&deps.registry)?;
    deps.budgets.reserve("bus_buffers", Bus::BUFFERED_BYTES);
    deps.budgets
        .reserve("directory_cache", deps.bus.cached_bytes());
    let (config, budgets) = (config.clone(), &deps.budgets);
    let edge = Edge::new(config, deps.bus, metrics, deps.speech, budgets, shutdown);
    let edge = Arc::new(edge);
    edge.bus.attach(Arc::new(BusHandler::new(&edge)));
    let background = start_background(&edge, deps.listeners);
    let draining = shutdown.clone();
    shutdown.spawn(async move {
        draining.draining().await;
        drain::drain(&edge).await;
        edge.tasks.stop();
        background.finished(BACKGROUND_STOP_TIMEOUT).await;
    });
    Ok(())
}

/// Starts the accept loops and the sweeper, which end after the connections.
fn start_background(edge: &Arc<Edge>, listeners: Listeners) -> Shutdown {
    let background = Shutdown::new();
    background.spawn(sweeper::run_sweeps(Arc::clone(edge)));
    background.spawn(sweeper::watch_revocations(Arc::clone(edge)));
    background.spawn(cut_off::watch(Arc::clone(edge)));
    let schemas = Arc::clone(&edge.schemas);
    background.spawn(rate_limit::sweep(
        move || schemas.sweep(),
        edge.tasks.clone(),
    ));
    background.spawn(accept::accept_plain(listeners.plain, Arc::clone(edge)));
    if let Some((listener, config)) = listeners.tls {
        background.spawn(accept::accept_tls(listener, config, Arc::clone(edge)));
    }
    background
}
