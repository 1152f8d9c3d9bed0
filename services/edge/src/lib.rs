//! Terminates device connections: accepts, authenticates, holds them, carries calls to devices and
//! results back.
//! Never: SQL, Redis commands, knowledge of who calls, state that matters beyond a connection.

mod accept;
mod allowance;
mod config;
mod connection;
mod drain;
mod edge;
mod errands;
mod host;
mod link;
mod metrics;
mod table;
pub mod tls;
mod watch;

use std::{sync::Arc, time::Duration};

use switchboard_bus::Bus;
use switchboard_runtime::shutdown::Shutdown;
use tokio::net::TcpListener;

pub use self::config::{Config, SchemaConfig};
use self::{edge::Edge, host::Attached, metrics::Metrics};

/// Where devices connect.
pub struct Listeners {
    /// Plain TCP.
    pub plain: TcpListener,
    /// TLS, when there is a certificate. See [`tls::server_config`].
    pub tls: Option<(TcpListener, Arc<rustls::ServerConfig>)>,
}

/// Why an edge did not start.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// A metric of the edge exists already in the registry.
    #[error("the metrics of the edge cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// Serves devices until `shutdown` drains and every device has been let go. Attaches itself to
/// the bus as the host of this node's devices.
pub async fn run(
    listeners: Listeners,
    config: Config,
    bus: Bus,
    registry: &prometheus::Registry,
    shutdown: Shutdown,
) -> Result<(), EdgeError> {
    let metrics = Metrics::new(registry)?;
    let edge = Arc::new(Edge::new(config, bus, metrics, &shutdown));
    edge.bus.attach(Arc::new(Attached::new(&edge)));

    let background = Shutdown::new();
    background.spawn(watch::sweep(Arc::clone(&edge)));
    background.spawn(watch::revocations(Arc::clone(&edge)));
    background.spawn(accept::plain(listeners.plain, Arc::clone(&edge)));
    if let Some((listener, config)) = listeners.tls {
        background.spawn(accept::tls(listener, config, Arc::clone(&edge)));
    }

    shutdown.draining().await;
    drain::drain(&edge).await;
    edge.connections.stop();
    background.finished(Duration::from_secs(1)).await;
    Ok(())
}
