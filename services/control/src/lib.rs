//! The control plane: organisations, API keys, access tokens, settings, and the record of devices.
//! Never: SQL, a device's connection, or a call.

mod access;
mod api;
mod api_keys;
mod audit_log;
mod bootstrap;
mod config;
mod content;
mod document;
mod embedding;
mod error;
mod facts;
mod ingestion;
mod jwks;
mod label;
mod leases;
mod leftovers;
mod limits;
mod memories;
mod metrics;
mod npcs;
mod offers;
mod once;
mod orgs;
mod patch;
mod pictures;
mod precondition;
mod seal;
mod signing;
mod skills_books;
mod templates;
mod tokens;
mod trust;
mod usage;
mod voices;
mod webhooks;

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::DefaultBodyLimit};
use secrecy::SecretString;
use switchboard_bus::Bus;
use switchboard_embeddings::{Endpoint, Questions};
use switchboard_identity::Authenticator;
use switchboard_runtime::{http::LargerBody, problem, shutdown::Shutdown};
use switchboard_store::{Store, merge_patch};
use utoipa::OpenApi;
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouterExt},
    routes,
};

pub use api::document;
pub use bootstrap::bootstrap;
pub use config::Config;
pub use ingestion::{Format, read_confined};
use metrics::{
    BackgroundMetrics, EmbeddingMetrics, IngestionMetrics, RequestMetrics, VoiceMetrics,
    WebhookMetrics,
};
pub use webhooks::Authorities;

/// The paths whose bodies are larger than those of other requests, for whoever serves the router.
pub const LARGER_BODIES: &[LargerBody] = &[
    LargerBody {
        path: pictures::PATH,
        bytes: pictures::LARGEST_BYTES,
        read_timeout: Duration::from_secs(60),
    },
    LargerBody {
        path: templates::cards::PATH,
        bytes: templates::cards::LARGEST_BYTES,
        read_timeout: Duration::from_secs(60),
    },
    LargerBody {
        path: skills_books::PART_PATHS,
        bytes: skills_books::LARGEST_PART_BYTES,
        read_timeout: Duration::from_secs(60),
    },
    LargerBody {
        path: voices::PATH,
        bytes: voices::LARGEST_BYTES,
        read_timeout: Duration::from_secs(60),
    },
];

/// What every request is answered from.
#[derive(Clone)]
struct Control {
    store: Store,
    bus: Bus,
    authenticator: Authenticator,
    operator_key: Option<SecretString>,
    longest_token_ttl_s: u64,
    webhook_networks: webhooks::Networks,
    questions: Option<Questions>,
    metrics: RequestMetrics,
    providers: voices::Providers,
}

impl Control {
    /// The same, with what changes put down to whoever is called so.
    fn acting(&self, actor: &str) -> Self {
        Self {
            store: self.store.acting(actor),
            ..self.clone()
        }
    }
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
        webhook_networks: webhooks::Networks::new(&config.webhooks_allow),
        questions: Endpoint::from_config(&config.embeddings).map(Questions::new),
        metrics: RequestMetrics::new(registry)?,
        providers: voices::Providers::new(config),
    };
    let (routes, _) = routes().split_for_parts();
    Ok(routes
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(Arc::new(control)))
}

/// What only parameters are made of.
#[derive(OpenApi)]
#[openapi(components(schemas(skills_books::asked::Question)))]
struct OfParameters;

/// All routes, each with what the document says of it.
fn routes() -> OpenApiRouter<Arc<Control>> {
    let pictures = routes!(pictures::create).layer(DefaultBodyLimit::max(pictures::LARGEST_BYTES));
    let import = routes!(templates::cards::import);
    let import = import.layer(DefaultBodyLimit::max(templates::cards::LARGEST_BYTES));
    let parts = routes!(skills_books::write_part)
        .layer(DefaultBodyLimit::max(skills_books::LARGEST_PART_BYTES));
    let voices = routes!(voices::create).layer(DefaultBodyLimit::max(voices::LARGEST_BYTES));
    OpenApiRouter::with_openapi(OfParameters::openapi())
        .routes(routes!(orgs::create))
        .routes(routes!(orgs::show, orgs::change))
        .routes(routes!(api_keys::create, api_keys::list))
        .routes(routes!(api_keys::revoke))
        .routes(routes!(tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(audit_log::list))
        .routes(routes!(jwks::show))
        .routes(routes!(usage::show))
        .routes(routes!(templates::create, templates::list))
        .routes(routes!(
            templates::show,
            templates::change,
            templates::remove
        ))
        .routes(import)
        .routes(routes!(templates::cards::export))
        .routes(routes!(memories::create, memories::list))
        .routes(routes!(memories::remove))
        .routes(routes!(npcs::create, npcs::list))
        .routes(routes!(npcs::show, npcs::change, npcs::remove))
        .routes(routes!(npcs::memories::create, npcs::memories::list))
        .routes(pictures)
        .routes(routes!(pictures::list))
        .routes(routes!(pictures::show, pictures::remove))
        .routes(routes!(pictures::content))
        .routes(routes!(skills_books::create, skills_books::list))
        .routes(routes!(skills_books::show, skills_books::remove))
        .routes(parts)
        .routes(routes!(skills_books::finish))
        .routes(routes!(skills_books::cancel))
        .routes(routes!(skills_books::search))
        .routes(voices)
        .routes(routes!(voices::listing::list))
        .routes(routes!(voices::show, voices::change, voices::remove))
        .routes(routes!(voices::preview::play))
        .routes(routes!(voices::train))
        .routes(routes!(webhooks::create, webhooks::list))
        .routes(routes!(webhooks::show, webhooks::change, webhooks::remove))
        .routes(routes!(webhooks::rotation::rotate))
        .routes(routes!(webhooks::deliveries::test))
        .routes(routes!(webhooks::deliveries::list))
        .routes(routes!(webhooks::deliveries::show))
        .routes(routes!(webhooks::deliveries::redeliver))
}

/// Starts the work that no request asks for, on `shutdown`'s tracker: facts from the bus are written to the store,
/// every node is told which tokens to trust, skills books are read, voices are made, objects that nothing names are removed,
/// texts are embedded, and webhooks are told of events. Neither PostgreSQL nor the bus need be there yet. When `shutdown` drains,
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
    // They are there whatever is set, so that whoever watches asks for the same everywhere.
    let (ingestion, voices) = (
        IngestionMetrics::new(registry)?,
        VoiceMetrics::new(registry)?,
    );
    if store.objects().is_some() {
        for _ in 0..config.skills_readers {
            let reading = ingestion::Ingestion::new(store.clone(), bus.clone(), ingestion.clone());
            shutdown.spawn(leases::Worker::new(reading).run(shutdown.clone()));
        }
        let providers = voices::Providers::new(config);
        // One for each: a provider that is silent holds up nobody else's voices.
        for provider in providers.names() {
            let metrics = voices.clone();
            let making = voices::Maker::new(store.clone(), providers.clone(), provider, metrics);
            shutdown.spawn(leases::Worker::new(making).run(shutdown.clone()));
        }
        shutdown.spawn(leftovers::run(store.clone(), shutdown.clone()));
    }
    let webhook_metrics = WebhookMetrics::new(registry)?;
    if config.webhooks_senders > 0 {
        let worker = webhooks::Worker::new(config, store.clone(), webhook_metrics);
        shutdown.spawn(worker.run(shutdown.clone()));
    }
    let embedded = EmbeddingMetrics::new(registry)?;
    if let Some(endpoint) = Endpoint::from_config(&config.embeddings) {
        let worker = embedding::Worker::new(store.clone(), endpoint, embedded);
        shutdown.spawn(worker.run(shutdown.clone()));
    }
    let recorder = facts::Recorder::new(store, bus, config.facts_batch, metrics);
    shutdown.spawn(recorder.run(shutdown.clone()));
    Ok(())
}
