//! One provider: its interface, its cooldown, and the order of several.

use std::time::Duration;

use parking_lot::Mutex;
use switchboard_runtime::outbound::Contact;
use tokio::time::Instant;

use crate::{
    command::Command,
    config::{ConfigError, ProviderKind, ProviderSettings},
    failure::Failure,
    openai::OpenAi,
    realtime::Realtime,
    wyoming::Wyoming,
};

/// A configured provider.
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) interface: Interface,
    /// The voice of characters that have none of their own.
    pub(crate) voice: Option<String>,
    /// Whether a transcript may be requested before it is certain that the utterance is over.
    pub(crate) is_early: bool,
    /// Until when others go first.
    cooldown: Mutex<Option<Instant>>,
}

pub(crate) enum Interface {
    OpenAi(OpenAi),
    Realtime(Realtime),
    Wyoming(Wyoming),
    Command(Command),
}

impl Provider {
    pub(crate) fn new(settings: ProviderSettings) -> Result<Self, ConfigError> {
        let interface = match settings.kind {
            ProviderKind::Openai => OpenAi::new(&settings).map(Interface::OpenAi),
            ProviderKind::Realtime => Realtime::new(&settings).map(Interface::Realtime),
            ProviderKind::Wyoming => Wyoming::new(&settings.endpoint).map(Interface::Wyoming),
            ProviderKind::Command => Command::new(&settings.endpoint).map(Interface::Command),
        };
        let interface = interface.map_err(|reason| ConfigError::Provider {
            name: settings.name.clone(),
            reason,
        })?;
        Ok(Self {
            name: settings.name,
            interface,
            voice: settings.voice,
            is_early: settings.early.unwrap_or(match settings.kind {
                // These may charge for each request, and a stream has its words early anyway.
                ProviderKind::Openai | ProviderKind::Realtime => false,
                ProviderKind::Wyoming | ProviderKind::Command => true,
            }),
            cooldown: Mutex::new(None),
        })
    }

    /// Contacts the provider without a request for words or audio. An API has its requests at `path`.
    pub(crate) async fn contact(&self, path: &str, limit: Duration) -> Contact {
        let (attempt, result) = match &self.interface {
            Interface::OpenAi(api) => return api.contact(&self.name, path, limit).await,
            Interface::Realtime(server) => server.contact().await,
            Interface::Wyoming(server) => server.contact().await,
            Interface::Command(command) => command.contact(),
        };
        Contact {
            provider: self.name.clone(),
            attempt,
            result: result.map_err(|failure| failure.to_string()),
        }
    }

    /// Records the result of a request, and logs a failure.
    pub(crate) fn record<T>(&self, result: &Result<T, Failure>) {
        let until = result.as_ref().err().map(|failure| {
            tracing::warn!(provider.name = self.name, %failure, "speech provider failed");
            failure.cooldown()
        });
        if until != Some(Duration::ZERO) {
            *self.cooldown.lock() = until.map(|cooldown| Instant::now() + cooldown);
        }
    }
}

/// The providers in the order in which they are requested: those that have failed recently come last.
pub(crate) fn in_order(providers: &[Provider]) -> Vec<&Provider> {
    let now = Instant::now();
    let until = |provider: &&Provider| {
        let until = *provider.cooldown.lock();
        until.filter(|until| *until > now)
    };
    let mut ordered: Vec<&Provider> = providers.iter().collect();
    // A stable sort: `None` is smaller than any time.
    ordered.sort_by_key(until);
    ordered
}
