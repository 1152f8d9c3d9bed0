//! Answers what people say to devices and to NPCs: takes their words, calls devices' services for them, says the answer.
//! Never: a second call for a turn that may have acted, or state that another replica would miss.

mod answering;
mod api;
mod by_model;
mod by_rules;
mod character;
mod config;
mod conversation;
mod conversations;
mod decision;
mod embedded;
mod hearer;
mod knowledge;
mod learning;
mod lesson;
mod line;
mod lines;
mod metrics;
mod notes;
mod over_http;
mod prompt;
mod question;
mod service_call;
mod toolbox;
mod turns_under_way;
mod usage;
mod worker;

use std::{sync::Arc, time::Duration};

use axum::Router;
use switchboard_bus::Bus;
use switchboard_completions::{ConfigError, Providers};
use switchboard_embeddings::Questions;
use switchboard_identity::{Authenticator, CallerId};
use switchboard_runtime::{
    clock::unix_now_ms,
    rates::{self, Buckets},
    shutdown::Shutdown,
};
use switchboard_store::Store;
use tokio::sync::Semaphore;
use tracing::info;

pub use api::document;
pub use config::Config;

use character::Characters;
use conversations::Conversations;
use learning::Condensing;
use lines::{Lines, Most};
use metrics::Metrics;
use over_http::Site;
use toolbox::Registrations;
use turns_under_way::TurnsUnderWay;
use usage::TurnUsage;

/// What answers while no provider is configured, for logs and people who ask what is running.
pub const EMBEDDED_RESPONDER: &str = "turns are answered by the embedded responder: fixed rules that match words to services, no language model";

/// What a replica needs besides its settings.
pub struct Deps {
    /// Where turns come from, where calls and answers go, and where conversations are kept.
    pub bus: Bus,
    /// Who answers and what is known; while it is away, NPCs that were seen before answer.
    pub store: Store,
    /// Who may talk over HTTP.
    pub authenticator: Authenticator,
    /// What questions mean, when an endpoint for that is configured.
    pub questions: Option<Questions>,
}

/// Why nothing is answered.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The metrics' names are taken.
    #[error("the metrics of conversations cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The providers of models are not configured as they should be.
    #[error(transparent)]
    Providers(#[from] ConfigError),
}

/// What every turn is answered from.
struct Chat {
    bus: Bus,
    store: Store,
    /// None: rules answer.
    providers: Option<Providers>,
    questions: Option<Questions>,
    conversations: Conversations,
    characters: Characters,
    registrations: Registrations,
    under_way: TurnsUnderWay,
    condensing: Condensing,
    /// How many turns of devices can be answered at a time.
    slots: Arc<Semaphore>,
    /// How many people over HTTP, beside them.
    lines: Lines,
    /// How often each of them may say something.
    rates: Buckets<CallerId>,
    metrics: Metrics,
    usage: TurnUsage,
    turn_timeout: Duration,
    call_timeout: Duration,
    rounds: u32,
}

impl Chat {
    /// In ms since 1970: every turn that began before has ended, whether or not its end was noted.
    fn all_ended_before_ms(&self) -> u64 {
        let longest = u64::try_from(self.turn_timeout.as_millis()).unwrap_or(u64::MAX);
        unix_now_ms().saturating_sub(longest)
    }
}

/// Starts answering turns, until drained, and gives the routes for those who talk over HTTP. Whoever serves them, alone or
/// merged with others, sets the fallback.
///
/// # Errors
/// [`StartError`]; nothing is started then.
pub fn start(
    config: &Config,
    deps: Deps,
    registry: &prometheus::Registry,
    shutdown: &Shutdown,
) -> Result<Router, StartError> {
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
        None => info!("{EMBEDDED_RESPONDER}"),
    }
    let rests_after = Duration::from_secs(config.chat_conversation_rest_s);
    let chat = Arc::new(Chat {
        conversations: Conversations::new(deps.bus.clone(), rests_after),
        bus: deps.bus,
        store: deps.store,
        providers,
        questions: deps.questions,
        characters: Characters::new(),
        registrations: Registrations::new(),
        under_way: TurnsUnderWay::default(),
        condensing: Condensing::default(),
        slots: Arc::new(Semaphore::new(config.chat_turns.into())),
        lines: Lines::new(Most {
            of_all: config.chat_turns.into(),
            of_one: config.chat_org_lines.into(),
        }),
        rates: Buckets::new(config.chat_caller_rate_per_s, config.chat_caller_burst),
        metrics: Metrics::new(registry)?,
        usage: TurnUsage::new(registry)?,
        turn_timeout: Duration::from_millis(config.chat_turn_timeout_ms),
        call_timeout: Duration::from_millis(config.chat_call_timeout_ms),
        rounds: config.chat_rounds,
    });
    shutdown.spawn(worker::run(Arc::clone(&chat), shutdown.clone()));
    shutdown.spawn(usage::run(Arc::clone(&chat), shutdown.clone()));
    shutdown.spawn(learning::run(Arc::clone(&chat), shutdown.clone()));
    let sweeping = Arc::clone(&chat);
    shutdown.spawn(rates::sweep(
        move || sweeping.rates.sweep(),
        shutdown.clone(),
    ));
    Ok(over_http::router(Site {
        chat,
        authenticator: deps.authenticator,
        shutdown: shutdown.clone(),
    }))
}
