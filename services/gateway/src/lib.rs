//! The gateway: the REST and MCP interfaces through which callers list devices and call them.
//!
//! Invariant: a call that may have reached its device is never sent again.

mod admission;
mod api;
mod calls;
mod config;
mod devices;
mod events;
mod forward;
mod mcp;
mod metrics;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde::Serialize;
use switchboard_bus::{Bus, BusError, Presence};
use switchboard_identity::Authenticator;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind, Owner},
    problem::{self, Problem, ProblemKind},
    quota::Quota,
    rate_limit,
    response_budget::{ResponseBudget, hold_until_sent},
    shutdown::Shutdown,
};
use switchboard_store::{CallJournal, Store, StoreError};
use tokio::time::Instant;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use admission::RateLimits;
pub use api::document;
use calls::AsyncCalls;
pub use config::Config;
pub use forward::{Forwarding, Upstream};
use mcp::Mcp;
pub use mcp::{AllowedHost, AllowedOrigin};
use metrics::Metrics;

/// What the gateway depends on.
#[derive(Clone)]
pub struct Deps {
    /// The settings, the state of devices, and asynchronous and queued calls.
    pub store: Store,
    /// The way to the devices.
    pub bus: Bus,
    /// Authenticates callers.
    pub authenticator: Authenticator,
    /// Where metrics are registered.
    pub registry: prometheus::Registry,
    /// Bounds what the process holds at the same time.
    pub budgets: Budgets,
    /// The requests that are forwarded to other services.
    pub forwarding: Forwarding,
}

/// Registrations that a gateway reads from Redis at the same time.
const REGISTRATION_READS: usize = 8;
/// How long such a read waits for its turn.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The state that handlers and background tasks share.
struct Gateway {
    bus: Bus,
    store: Store,
    authenticator: Authenticator,
    params_limit_bytes: usize,
    metrics: Metrics,
    rate_limits: RateLimits,
    responses: ResponseBudget,
    /// Reads of registrations of connected devices.
    registration_reads: Budget,
    mcp: Mcp,
    journal: CallJournal,
    async_calls: AsyncCalls,
    /// Calls whose callers read their progress.
    call_streams: Budget,
    /// Calls of many devices.
    group_calls: Budget,
    /// Clients that read what happens in their organisation.
    event_streams: Budget,
}

impl Gateway {
    fn new(
        config: &Config,
        deps: Deps,
        shutdown: &Shutdown,
    ) -> Result<Arc<Self>, prometheus::Error> {
        let metrics = Metrics::new(&deps.registry)?;
        deps.budgets
            .reserve("directory_cache", deps.bus.cached_bytes());
        Ok(Arc::new(Self {
            bus: deps.bus,
            store: deps.store,
            authenticator: deps.authenticator,
            params_limit_bytes: config.params_limit_bytes,
            rate_limits: RateLimits::new(config, metrics.shed.clone()),
            journal: CallJournal::new(&deps.budgets, metrics.left_out.clone()),
            metrics,
            responses: ResponseBudget::new(&deps.budgets),
            registration_reads: deps.budgets.slots(
                "registration_reads",
                REGISTRATION_READS,
                Kind::Brief,
            ),
            mcp: Mcp::new(config, &deps.budgets, shutdown),
            async_calls: AsyncCalls::new(config, &deps.budgets, shutdown),
            call_streams: calls::stream::budget(config.call_streams.into(), &deps.budgets),
            group_calls: calls::group::budget(config.group_calls.into(), &deps.budgets),
            event_streams: events::budget(config.event_streams.into(), &deps.budgets),
        }))
    }
}

impl Gateway {
    /// The services object of a connected device. Organisations take turns: a registration is large,
    /// and whatever else this node asks Redis for waits behind those that are being read.
    async fn live_services(
        &self,
        org: OrgId,
        presence: &Presence,
    ) -> Result<Option<Bytes>, BusError> {
        let (owner, deadline) = (Owner::Org(org.uuid()), Instant::now() + READ_TIMEOUT);
        let permit = self.registration_reads.acquire(owner, 1, deadline).await;
        let _permit = permit.map_err(|_| BusError::Overloaded)?;
        self.bus.services(org, presence).await
    }

    /// Counts the result of a call that is about to be stored.
    async fn result_stored(&self, org: OrgId, bytes: usize) {
        let quotas = self.authenticator.quotas();
        quotas.add(org, Quota::StoredResultBytes, bytes).await;
    }
}

/// Starts the gateway: its tasks run on `shutdown` until it drains. Returns its routes; the process
/// that serves them, alone or merged with others, sets the fallback. Building the routes spawns
/// nothing.
///
/// # Errors
/// When `deps.registry` already has metrics of these names. Nothing is started then.
pub fn run(config: &Config, deps: Deps, shutdown: &Shutdown) -> Result<Router, prometheus::Error> {
    let forwarded = forward::router(&deps)?;
    let gateway = Gateway::new(config, deps, shutdown)?;
    let router = router(config, Arc::clone(&gateway));
    start_background(&gateway, shutdown);
    Ok(router.merge(forwarded))
}

fn start_background(gateway: &Arc<Gateway>, shutdown: &Shutdown) {
    calls::start_background(gateway, shutdown);
    shutdown.spawn(mcp::check_listeners(Arc::clone(gateway), shutdown.clone()));
    let owned = Arc::clone(gateway);
    let sweep = move || {
        owned.rate_limits.sweep();
        owned.journal.sweep();
    };
    shutdown.spawn(rate_limit::sweep(sweep, shutdown.clone()));
    let (gateway, draining) = (Arc::clone(gateway), shutdown.clone());
    shutdown.spawn(async move {
        let store = gateway.store.clone();
        let journal = &gateway.journal;
        gateway.metrics.write_calls(journal, store, draining).await;
    });
}

fn router(config: &Config, gateway: Arc<Gateway>) -> Router {
    let (routes, _) = routes().split_for_parts();
    let routes = routes.method_not_allowed_fallback(problem::method_not_allowed);
    // Not those of MCP, whose clients are programs.
    gateway
        .authenticator
        .accept_sessions(routes)
        .merge(mcp::router(config, &gateway))
        .with_state(gateway)
}

/// Schemas that only parameters refer to.
#[derive(OpenApi)]
#[openapi(components(schemas(calls::item::WaitMs)))]
struct ParameterSchemas;

/// The REST routes with their API descriptions.
fn routes() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::with_openapi(ParameterSchemas::openapi())
        .routes(routes!(devices::list::list))
        .routes(routes!(devices::counts::get))
        .routes(routes!(
            devices::get,
            devices::labels::patch,
            devices::forget
        ))
        .routes(routes!(devices::labels::list))
        .routes(routes!(devices::disconnect))
        .routes(routes!(devices::approvals::list))
        .routes(routes!(devices::approvals::approve))
        .routes(routes!(devices::approvals::list_all))
        .routes(routes!(devices::approvals::revoke))
        .routes(routes!(calls::create::create))
        .routes(routes!(calls::group::create))
        .routes(routes!(calls::item::list))
        .routes(routes!(calls::recent::list))
        .routes(routes!(calls::item::get, calls::item::cancel))
        .routes(routes!(events::stream))
}

/// The response to a request for a list. The bytes of the page's elements are charged to the
/// organisation until its client has read it.
async fn page_response(
    gateway: &Gateway,
    org: OrgId,
    bytes: usize,
    page: impl Serialize,
) -> Result<Response, Problem> {
    let permit = gateway.responses.reserve(Owner::Org(org.uuid()), bytes)?;
    let response = axum::Json(page).into_response();
    match permit {
        Some(permit) => hold_until_sent(response, permit).await,
        None => Ok(response),
    }
}

/// The problem for a request that failed because the bus is unavailable. Nothing was sent.
fn bus_unavailable(error: &switchboard_bus::BusError) -> Problem {
    tracing::warn!(%error, "request refused: the bus is unavailable");
    Problem::new(
        ProblemKind::BusUnavailable,
        "The devices cannot be reached at the moment; nothing was sent, and a retry is safe.",
    )
    .header(http::header::RETRY_AFTER, 1)
}

/// The problem for a request that failed because of the database. `log` is the log line; `detail`
/// is what the caller reads while the database is unavailable. Any other failure is a 500.
fn store_unavailable(error: &StoreError, log: &str, detail: &str) -> Problem {
    problem::store_failed(error.is_unavailable(), &error.report(), log, detail)
}

/// The media types in a header, without their parameters.
fn media_types<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let kinds = texts.flat_map(|text| text.split(','));
    kinds.map(|kind| kind.split(';').next().unwrap_or_default().trim())
}
