//! Terminates device connections: accepts and authenticates them, delivers calls and conversation
//! turns to devices, and returns their results to the bus.

mod accept;
mod bus_handler;
mod config;
mod connection;
mod connections;
mod drain;
mod edge;
mod handle;
mod metrics;
mod sweeper;
pub mod tls;
mod token_bucket;
mod turn_forwarder;

use std::{sync::Arc, time::Duration};

use switchboard_bus::Bus;
use switchboard_runtime::shutdown::Shutdown;
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
}

/// Why an edge did not start.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The registry already has a metric of an edge.
    #[error("edge metrics could not be registered")]
    Metrics(#[from] prometheus::Error),
}

/// Serves devices until `shutdown` drains, then until every connection is closed.
///
/// # Errors
/// When the metrics cannot be registered.
pub async fn run(config: Config, deps: Deps, shutdown: Shutdown) -> Result<(), EdgeError> {
    let metrics = Metrics::new(&deps.registry)?;
    let edge = Arc::new(Edge::new(config, deps.bus, metrics, &shutdown));
    edge.bus.attach(Arc::new(BusHandler::new(&edge)));

    let background = Shutdown::new();
    background.spawn(sweeper::run_sweeps(Arc::clone(&edge)));
    background.spawn(sweeper::watch_revocations(Arc::clone(&edge)));
    background.spawn(accept::accept_plain(
        deps.listeners.plain,
        Arc::clone(&edge),
    ));
    if let Some((listener, config)) = deps.listeners.tls {
        background.spawn(accept::accept_tls(listener, config, Arc::clone(&edge)));
    }

    shutdown.draining().await;
    drain::drain(&edge).await;
    edge.tasks.stop();
    background.finished(BACKGROUND_STOP_TIMEOUT).await;
    Ok(())
}
