//! The control plane: organisations, API keys, access tokens, settings, and the record of devices.
//! Never: SQL, a device's connection, or a call.

mod access;
mod api_keys;
mod bootstrap;
mod config;
mod document;
mod error;
mod facts;
mod ingestion;
mod jwks;
mod label;
mod limits;
mod memories;
mod metrics;
mod npcs;
mod offers;
mod orgs;
mod paging;
mod pictures;
mod precondition;
mod signing;
mod skills_books;
mod templates;
mod tokens;
mod trust;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{delete, get, post},
};
use secrecy::SecretString;
use switchboard_bus::Bus;
use switchboard_identity::Authenticator;
use switchboard_runtime::{http::LargerBody, problem, shutdown::Shutdown};
use switchboard_store::{Store, merge_patch};

pub use bootstrap::bootstrap;
pub use config::Config;
pub use ingestion::{Format, read_confined};
use metrics::{BackgroundMetrics, IngestionMetrics, RequestMetrics};

/// The paths whose bodies are larger than those of other requests, for whoever serves the router.
pub const LARGER_BODIES: &[LargerBody] = &[
    LargerBody {
        path: pictures::PATH,
        bytes: pictures::LARGEST_BYTES,
        read_timeout: Duration::from_secs(60),
    },
    LargerBody {
        path: skills_books::PART_PATHS,
        bytes: skills_books::LARGEST_PART_BYTES,
        read_timeout: Duration::from_secs(60),
    },
];

/// What every request is answered from.
struct Control {
    store: Store,
    bus: Bus,
    authenticator: Authenticator,
    operator_key: Option<SecretString>,
    longest_token_ttl_s: u64,
    metrics: RequestMetrics,
}

/// The routes of the control plane. Whoever serves them, alone or merged with others, sets the fallback.
///
/// # Errors
/// When the metrics' names are taken in `registry`.
pub fn router(
    config: &Config,
    store: Store,
    bus: Bus,
    authenticator: Authenticator,
    registry: &prometheus::Registry,
) -> Result<Router, prometheus::Error> {
    let control = Control {
        store,
        bus,
        authenticator,
        operator_key: config.operator_key.clone(),
        longest_token_ttl_s: config.longest_token_ttl_s,
        metrics: RequestMetrics::new(registry)?,
    };
    Ok(Router::new()
        .route("/v1/orgs", post(orgs::create))
        .route("/v1/api-keys", post(api_keys::create).get(api_keys::list))
        .route("/v1/api-keys/{id}", delete(api_keys::revoke))
        .route("/v1/tokens", post(tokens::create))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .route("/.well-known/jwks.json", get(jwks::show))
        .merge(settings())
        .merge(skills_books::routes())
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(Arc::new(control)))
}

/// The routes of templates, NPCs, memories and pictures.
fn settings() -> Router<Arc<Control>> {
    let pictures = post(pictures::create)
        .layer(DefaultBodyLimit::max(pictures::LARGEST_BYTES))
        .get(pictures::list);
    Router::new()
        .route(
            "/v1/templates",
            post(templates::create).get(templates::list),
        )
        .route(
            "/v1/templates/{id}",
            get(templates::show)
                .patch(templates::change)
                .delete(templates::remove),
        )
        .route(
            "/v1/templates/{id}/memories",
            post(memories::create).get(memories::list),
        )
        .route("/v1/memories/{id}", delete(memories::remove))
        .route("/v1/npcs", post(npcs::create).get(npcs::list))
        .route(
            "/v1/npcs/{id}",
            get(npcs::show).patch(npcs::change).delete(npcs::remove),
        )
        .route(
            "/v1/npcs/{id}/memories",
            post(npcs::memories::create).get(npcs::memories::list),
        )
        .route(pictures::PATH, pictures)
        .route(
            "/v1/pictures/{id}",
            get(pictures::show).delete(pictures::remove),
        )
        .route("/v1/pictures/{id}/content", get(pictures::content))
}

/// Starts the work that no request asks for, on `shutdown`'s tracker: facts from the bus are written to the store, and
/// every node is told which tokens to trust, and skills books are read. Neither PostgreSQL nor the bus need be there yet. When `shutdown` drains,
/// the facts that are there are still written.
///
/// # Errors
/// When the metrics' names are taken in `registry`.
pub fn start(
    config: &Config,
    store: Store,
    bus: Bus,
    registry: &prometheus::Registry,
    shutdown: &Shutdown,
) -> Result<(), prometheus::Error> {
    let metrics = BackgroundMetrics::new(registry)?;
    let publisher = trust::Publisher::new(store.clone(), bus.clone(), metrics.clone());
    shutdown.spawn(publisher.run(shutdown.clone()));
    let ingestion = IngestionMetrics::new(registry)?;
    if store.objects().is_some() {
        for _ in 0..config.skills_readers {
            let worker = ingestion::Worker::new(store.clone(), ingestion.clone());
            shutdown.spawn(worker.run(shutdown.clone()));
        }
    }
    let recorder = facts::Recorder::new(store, bus, config.facts_batch, metrics);
    shutdown.spawn(recorder.run(shutdown.clone()));
    Ok(())
}
