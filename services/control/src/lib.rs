//! The control plane: organisations, API keys, access tokens, settings, and the state of devices.

mod bootstrap;
mod catalog_events;
mod config;
mod http;
mod key_set;
mod live_events;
mod metrics;
mod quotas;
mod resources;
mod signing_keys;
mod workers;

use std::sync::Arc;

use axum::Router;
use secrecy::SecretString;
use switchboard_bus::Bus;
use switchboard_embeddings::{Endpoint, QueryEmbedder};
use switchboard_identity::Authenticator;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    budget::{self, Budgets},
    problem::{self, Problem},
    quota::Limits,
    rate_limit::{self, TokenBuckets},
    response_budget::ResponseBudget,
    shutdown::Shutdown,
};
use switchboard_store::{Objects, Owner, QueryEmbedding, Store};

pub use bootstrap::bootstrap;
pub use config::{Config, WebhookConfig};
pub use http::api::document;
use http::error::objects_not_configured;
use metrics::RequestMetrics;
pub use quotas::QuotaConfig;
pub use resources::{LARGER_BODIES, SignInCode};
pub use signing_keys::PublicKeys;
pub use workers::{
    ingestion::{Format, read_confined},
    start_workers,
    webhooks::{Authorities, WebhookContacts},
};

/// What the control plane depends on.
#[derive(Clone)]
pub struct Deps {
    /// The settings and the state of devices.
    pub store: Store,
    /// The other nodes: token keys, revocations and changes of the catalog go out,
    /// device events come in.
    pub bus: Bus,
    /// Authenticates callers.
    pub authenticator: Authenticator,
    /// Where metrics are registered.
    pub registry: prometheus::Registry,
    /// Bounds what the process holds at the same time.
    pub budgets: Budgets,
    /// What the workers load for the routes: the same value for both, initially the default.
    pub public_keys: PublicKeys,
    /// Begins a session without a key, if the process that prints it has one.
    pub sign_in_code: Option<SignInCode>,
    /// The port that devices dial on the host of the API, which the console shows.
    pub device_port: u16,
}

/// What handlers share.
#[derive(Clone)]
struct Control {
    store: Store,
    bus: Bus,
    authenticator: Authenticator,
    operator_key: Option<SecretString>,
    max_token_ttl_s: u64,
    quota_defaults: Limits,
    webhook_networks: workers::webhooks::Networks,
    embedder: Option<QueryEmbedder>,
    metrics: RequestMetrics,
    public_keys: PublicKeys,
    responses: ResponseBudget,
    /// The rate of each organisation, whatever the number of its keys.
    rates: Arc<TokenBuckets<OrgId>>,
    providers: workers::voices::Providers,
    sign_in_code: Option<SignInCode>,
    device_port: u16,
    /// Sign-ins of each address.
    sign_ins: Arc<TokenBuckets<budget::Owner>>,
}

impl Control {
    fn new(config: &Config, deps: Deps) -> Result<Self, prometheus::Error> {
        let (rate, burst) = (config.control_org_rate_per_s, config.control_org_burst);
        Ok(Self {
            store: deps.store,
            bus: deps.bus,
            authenticator: deps.authenticator,
            operator_key: config.operator_key.clone(),
            max_token_ttl_s: config.longest_token_ttl_s,
            quota_defaults: config.quotas.limits(),
            webhook_networks: workers::webhooks::Networks::new(&config.webhooks.webhooks_allow),
            embedder: Endpoint::from_config(&config.embeddings)
                .map(|endpoint| QueryEmbedder::new(endpoint, &deps.budgets)),
            metrics: RequestMetrics::new(&deps.registry)?,
            public_keys: deps.public_keys,
            responses: ResponseBudget::new(&deps.budgets),
            rates: Arc::new(TokenBuckets::new(rate, burst)),
            providers: workers::voices::Providers::new(config),
            sign_in_code: deps.sign_in_code,
            device_port: deps.device_port,
            sign_ins: Arc::new(resources::session::rate()),
        })
    }

    /// The same, with all changes recorded in the audit log under the name of this actor.
    fn with_actor(&self, actor: &str) -> Self {
        Self {
            store: self.store.with_actor(actor),
            ..self.clone()
        }
    }

    /// The object store, or the problem of an installation without one.
    fn objects(&self) -> Result<&Objects, Problem> {
        self.store.objects().ok_or_else(objects_not_configured)
    }

    /// The embedding of a search query. None without an endpoint, and while texts are embedded with
    /// another model than this process has.
    async fn query_embedding(&self, reader: Owner, query: &str) -> Option<QueryEmbedding> {
        let embedder = self.embedder.as_ref()?;
        let current = self.store.embedding_model().await.ok()??;
        if current.model != embedder.model() {
            return None;
        }
        let vector = embedder.embed(reader.into(), query).await?;
        Some(QueryEmbedding {
            model: current.model,
            vector,
        })
    }
}

/// Starts the control plane: its tasks run on `shutdown` until it drains. Returns its routes; the
/// process that serves them, alone or merged with others, sets the fallback. Building the routes
/// spawns nothing.
///
/// # Errors
/// When `deps.registry` already has metrics of these names. Nothing is started then.
pub fn run(config: &Config, deps: Deps, shutdown: &Shutdown) -> Result<Router, prometheus::Error> {
    let control = Arc::new(Control::new(config, deps.clone())?);
    start_workers(config, &deps, shutdown)?;
    let (rates, sign_ins) = (Arc::clone(&control.rates), Arc::clone(&control.sign_ins));
    let sweep = move || {
        rates.sweep();
        sign_ins.sweep();
    };
    shutdown.spawn(rate_limit::sweep(sweep, shutdown.clone()));
    Ok(routes(control))
}

/// The routes of the control plane. They and [`start_workers`] are public in addition to [`run`],
/// unlike in the other services, because they share only the database and the bus: tests start
/// either of the two, and the workers of several processes.
///
/// # Errors
/// When `deps.registry` already has metrics of these names.
pub fn router(config: &Config, deps: Deps) -> Result<Router, prometheus::Error> {
    Control::new(config, deps).map(|control| routes(Arc::new(control)))
}

fn routes(control: Arc<Control>) -> Router {
    let (routes, _) = resources::routes().split_for_parts();
    let routes = routes.method_not_allowed_fallback(problem::method_not_allowed);
    let routes = control.authenticator.accept_sessions(routes);
    routes.with_state(control)
}
