//! Takes calls over HTTP, and shows who is there to be called.
//! Never: a retry of a call that may have reached its device, or a device's words parsed and written anew.

mod access;
mod api;
mod calls;
mod config;
mod devices;
mod mcp;
mod metrics;
mod rates;
mod usage;

use std::sync::Arc;

use axum::Router;
use switchboard_bus::Bus;
use switchboard_identity::Authenticator;
use switchboard_runtime::{
    problem::{self, Problem},
    shutdown::Shutdown,
};
use switchboard_store::{Store, StoreError};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use api::document;
use calls::Kept;
pub use config::Config;
use mcp::Mcp;
pub use mcp::{AllowedHost, AllowedOrigin};
use metrics::Metrics;
use rates::Rates;

/// What every request is answered from.
struct Gateway {
    bus: Bus,
    store: Store,
    authenticator: Authenticator,
    params_limit_bytes: usize,
    metrics: Metrics,
    rates: Rates,
    mcp: Mcp,
    kept: Kept,
}

/// The routes of the gateway. Whoever serves them, alone or merged with others, sets the fallback.
///
/// # Errors
/// When the metrics' names are taken in `registry`.
pub fn router(
    config: &Config,
    store: Store,
    bus: Bus,
    authenticator: Authenticator,
    registry: &prometheus::Registry,
    shutdown: &Shutdown,
) -> Result<Router, prometheus::Error> {
    let metrics = Metrics::new(registry)?;
    let gateway = Arc::new(Gateway {
        bus,
        store,
        authenticator,
        params_limit_bytes: config.params_limit_bytes,
        rates: Rates::new(config, metrics.shed.clone()),
        metrics,
        mcp: Mcp::new(config, shutdown),
        kept: Kept::new(config, shutdown),
    });
    calls::start(&gateway, shutdown);
    shutdown.spawn(write_usage(Arc::clone(&gateway), shutdown.clone()));
    let swept = Arc::clone(&gateway);
    let sweep = move || swept.rates.sweep();
    shutdown.spawn(switchboard_runtime::rates::sweep(sweep, shutdown.clone()));
    let watch = mcp::watch_listeners(Arc::clone(&gateway), shutdown.clone());
    shutdown.spawn(watch);
    let (routes, _) = routes().split_for_parts();
    Ok(routes
        .method_not_allowed_fallback(problem::method_not_allowed)
        .merge(mcp::router(config, &gateway))
        .with_state(gateway))
}

/// What only parameters are made of.
#[derive(OpenApi)]
#[openapi(components(schemas(calls::by_id::WaitMs)))]
struct OfParameters;

/// The routes beside MCP's, each with what the document says of it.
fn routes() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::with_openapi(OfParameters::openapi())
        .routes(routes!(devices::list))
        .routes(routes!(devices::show))
        .routes(routes!(calls::create))
        .routes(routes!(calls::by_id::list))
        .routes(routes!(calls::by_id::show, calls::by_id::withdraw))
}

async fn write_usage(gateway: Arc<Gateway>, shutdown: Shutdown) {
    gateway
        .metrics
        .write_usage(gateway.store.clone(), shutdown)
        .await;
}

/// The bus could not be asked, and nothing was sent to any device.
fn bus_unavailable(error: &switchboard_bus::BusError) -> Problem {
    tracing::warn!(%error, "a request was refused because the bus is away");
    Problem::new(
        http::StatusCode::SERVICE_UNAVAILABLE,
        "bus_unavailable",
        "Bus unavailable",
        "The devices cannot be reached at the moment; nothing was sent, and a retry is safe.",
    )
    .header(http::header::RETRY_AFTER, 1)
}

/// The record could not be asked, so that `failed`. The detail says what that means while the database is away; all
/// else is our own fault.
fn store_unavailable(error: &StoreError, failed: &str, detail: &str) -> Problem {
    problem::record_failed(error.is_unavailable(), &error.report(), failed, detail)
}
