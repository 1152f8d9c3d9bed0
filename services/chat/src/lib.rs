//! The chat service: answers messages of devices and of HTTP callers with language models, or with
//! rules when no model is configured.
//! Invariant: all state between turns is on the bus or in the database, where every replica finds
//! it.

mod active_turns;
mod answer;
#[cfg(test)]
mod compatibility;
mod config;
mod conversation;
mod http;
mod memory;
mod metrics;
mod npc_cache;
mod picture;
mod recording;
mod usage;
mod user_message;
mod worker;

use std::{sync::Arc, time::Duration};

use axum::Router;
use switchboard_bus::{Bus, Turn};
use switchboard_completions::{ConfigError, Providers};
use switchboard_embeddings::QueryEmbedder;
use switchboard_identity::{Approvals, Authenticator, CallerId, QuotaError, Quotas};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind},
    clock::unix_now_ms,
    quota::{Quota, QuotaExceeded},
    rate_limit::{self, TokenBuckets},
    shutdown::Shutdown,
};
use switchboard_store::{CallJournal, Store};
use tracing::{debug, info};

pub use config::Config;
pub use http::document::document;

use active_turns::ActiveTurns;
use answer::tools::ServiceCache;
use conversation::store::ConversationStore;
use http::{HttpState, channel::MAX_BUFFER_BYTES};
use memory::job::ConversationJobs;
use metrics::Metrics;
use npc_cache::NpcCache;
use usage::TurnUsage;

/// States that no provider is configured, for logs and `switchboard doctor`.
pub const RULE_RESPONDER: &str = "turns are answered by the rule responder: fixed rules \
    that match words to services, no language model";

/// Dependencies of the service.
pub struct Deps {
    /// The source of turns, the way to devices, and the storage of conversations.
    pub bus: Bus,
    /// NPCs, memories and books. While it is unavailable, cached NPCs answer.
    pub store: Store,
    /// Authenticates HTTP callers.
    pub authenticator: Authenticator,
    /// Embeds messages for searches; `None` without an endpoint for embeddings.
    pub embedder: Option<QueryEmbedder>,
    /// Registry of the metrics.
    pub registry: prometheus::Registry,
    /// Bounds what the process holds at the same time.
    pub budgets: Budgets,
}

/// The service could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A metric name is registered already.
    #[error("cannot register the metrics of conversations: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The configuration of the providers is invalid.
    #[error(transparent)]
    Providers(#[from] ConfigError),
}

/// State of the service, shared by all turns.
struct Chat {
    bus: Bus,
    store: Store,
    /// `None`: rules answer.
    providers: Option<Providers>,
    embedder: Option<QueryEmbedder>,
    conversations: ConversationStore,
    npcs: NpcCache,
    services: ServiceCache,
    active_turns: ActiveTurns,
    jobs: ConversationJobs,
    /// Concurrent turns of devices. Acquired by the worker only.
    turns: Budget,
    /// Concurrent answers over HTTP, in addition to the turns of devices.
    http_answers: Budget,
    /// Pictures and recordings of the messages that are being answered.
    pictures: Budget,
    /// Rate limit of HTTP callers.
    caller_rates: TokenBuckets<CallerId>,
    /// An organisation can create any number of callers.
    org_rates: TokenBuckets<OrgId>,
    quotas: Quotas,
    approvals: Approvals,
    metrics: Metrics,
    usage: TurnUsage,
    journal: CallJournal,
    turn_timeout: Duration,
    call_timeout: Duration,
    max_rounds: u32,
}

impl Chat {
    /// In ms since 1970: all turns that started earlier have ended, even when their end is not
    /// stored.
    fn oldest_open_turn_ms(&self) -> u64 {
        let timeout_ms = u64::try_from(self.turn_timeout.as_millis()).unwrap_or(u64::MAX);
        unix_now_ms().saturating_sub(timeout_ms)
    }

    /// Admits a turn.
    async fn admit_turn(&self, org: OrgId) -> Result<(), QuotaExceeded> {
        self.admit(org, Quota::TurnsPerDay, 1).await?;
        // Answers of rules cost nothing.
        if self.providers.is_some() {
            self.admit(org, Quota::ModelCostPerDay, 1).await?;
        }
        Ok(())
    }

    /// Admits a turn of a device, with the speech that it reports.
    async fn admit_device_turn(&self, turn: &Turn) -> Result<(), QuotaExceeded> {
        let org = turn.device.org;
        if turn.is_spoken {
            // An edge of an earlier release reports none; at the quota its turns are refused as well.
            let milliseconds = turn.audio_ms.max(1).into();
            self.admit(org, Quota::SpeechMinutesPerDay, milliseconds)
                .await?;
        }
        self.admit_turn(org).await
    }

    /// Admits this much more. While the database is unavailable, turns are answered without quotas.
    async fn admit(&self, org: OrgId, quota: Quota, more: u64) -> Result<(), QuotaExceeded> {
        match self.quotas.admit(org, quota, more).await {
            Ok(()) => Ok(()),
            Err(QuotaError::Exceeded(exceeded)) => Err(exceeded),
            Err(QuotaError::Store(error)) => {
                debug!(
                    error = error.report(),
                    "the use of a quota cannot be measured"
                );
                Ok(())
            }
        }
    }
}

/// Starts the chat service: its tasks run on `shutdown` until it drains. Returns its routes; the
/// process that serves them, alone or merged with others, sets the fallback. Building the routes
/// spawns nothing.
///
/// # Errors
/// When `deps.registry` already has metrics of these names, or the configuration of the providers
/// is invalid. Nothing is started then.
pub fn run(config: &Config, deps: Deps, shutdown: &Shutdown) -> Result<Router, StartError> {
    let authenticator = deps.authenticator.clone();
    let chat = Arc::new(new_chat(config, deps)?);
    let router = http::router(HttpState {
        chat: Arc::clone(&chat),
        authenticator,
        shutdown: shutdown.clone(),
    });
    start_background(&chat, shutdown);
    Ok(router)
}

fn start_background(chat: &Arc<Chat>, shutdown: &Shutdown) {
    shutdown.spawn(worker::run(Arc::clone(chat), shutdown.clone()));
    shutdown.spawn(usage::run(Arc::clone(chat), shutdown.clone()));
    shutdown.spawn(memory::job::run(Arc::clone(chat), shutdown.clone()));
    let swept = Arc::clone(chat);
    let sweep = move || {
        swept.caller_rates.sweep();
        swept.org_rates.sweep();
        swept.journal.sweep();
        swept.conversations.sweep();
    };
    shutdown.spawn(rate_limit::sweep(sweep, shutdown.clone()));
}

fn new_chat(config: &Config, deps: Deps) -> Result<Chat, StartError> {
    let registry = &deps.registry;
    let providers = Providers::from_config(&config.completions)?;
    match &providers {
        Some(providers) => {
            providers.register(registry)?;
            let names: Vec<_> = providers.names().collect();
            info!(
                providers = names.join(", "),
                "turns are answered by language models"
            );
        }
        None => info!("{RULE_RESPONDER}"),
    }
    let metrics = Metrics::new(registry)?;
    let idle_timeout = Duration::from_secs(config.chat_conversation_rest_s);
    let buffers = usize::from(config.chat_turns) * MAX_BUFFER_BYTES;
    deps.budgets.reserve("chat_http_answers", buffers);
    deps.budgets
        .reserve("directory_cache", deps.bus.cached_bytes());
    Ok(Chat {
        conversations: ConversationStore::new(deps.bus.clone(), idle_timeout, &deps.budgets),
        usage: TurnUsage::new(registry)?,
        journal: CallJournal::new(&deps.budgets, metrics.left_out.clone()),
        metrics,
        bus: deps.bus,
        store: deps.store,
        providers,
        embedder: deps.embedder,
        npcs: NpcCache::new(&deps.budgets),
        services: ServiceCache::new(&deps.budgets),
        active_turns: ActiveTurns::default(),
        jobs: ConversationJobs::new(config.chat_conversation_jobs.into(), &deps.budgets),
        turns: deps.budgets.slots(
            "chat_turns",
            config.chat_turns.into(),
            Kind::quarter_of(config.chat_turns.into()),
        ),
        http_answers: deps.budgets.slots(
            "chat_http_answers",
            config.chat_turns.into(),
            Kind::Held {
                share: config.chat_org_lines.into(),
            },
        ),
        pictures: picture::budget(config.chat_pictures_bytes, &deps.budgets),
        caller_rates: TokenBuckets::new(config.chat_caller_rate_per_s, config.chat_caller_burst),
        org_rates: TokenBuckets::new(config.chat_org_rate_per_s, config.chat_org_burst),
        quotas: deps.authenticator.quotas().clone(),
        approvals: deps.authenticator.approvals().clone(),
        turn_timeout: Duration::from_millis(config.chat_turn_timeout_ms),
        call_timeout: Duration::from_millis(config.chat_call_timeout_ms),
        max_rounds: config.chat_rounds,
    })
}
