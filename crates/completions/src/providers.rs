//! All providers, and a reply from whichever gives one.
//! Never: a second provider asked for a reply of which a word was heard.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prometheus::Registry;
use switchboard_runtime::{outbound, span};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    CompletionError, Config, ConfigError, Ear, Reply, Request, attempt,
    endpoint::Endpoint,
    failure::{About, Failure},
    metrics::Metrics,
    patience::Patience,
    reading::Reading,
    round::{Next, Round, Seat},
    settings,
    wire::{To, Wire},
};

/// The providers that an operator set, in order. Clones share connections, rests and metrics.
#[derive(Debug, Clone)]
pub struct Providers {
    shared: Arc<Shared>,
    pause: Duration,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    metrics: Metrics,
}

impl Providers {
    /// The providers that are set; none when there are none.
    ///
    /// # Errors
    /// [`ConfigError`] when what is set is no use.
    pub fn from_config(config: &Config) -> Result<Option<Self>, ConfigError> {
        Self::with_environment(config, &|name| std::env::var(name).ok())
    }

    fn with_environment(
        config: &Config,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let settings = settings::all(config, environment)?;
        if settings.is_empty() {
            return Ok(None);
        }
        let client = outbound::client(true).map_err(|error| ConfigError::Tls(error.to_string()))?;
        let endpoints = settings
            .into_iter()
            .map(|settings| Endpoint::new(settings, client.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let names = endpoints.iter().map(|endpoint| endpoint.name.as_str());
        Ok(Some(Self {
            shared: Arc::new(Shared {
                metrics: Metrics::new(names)?,
                endpoints,
            }),
            pause: Duration::from_millis(config.completions_pause_ms),
        }))
    }

    /// Enters the metrics of all providers.
    ///
    /// # Errors
    /// When they are in this registry already.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        self.shared.metrics.register(registry)
    }

    /// Their names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shared
            .endpoints
            .iter()
            .map(|endpoint| endpoint.name.as_str())
    }

    /// A reply to this request. Its words are heard the moment they arrive, and so is what it takes; dropped, it ends the request
    /// upstream.
    ///
    /// # Errors
    /// [`CompletionError`] when there is no whole reply by the deadline; some of it may have been heard.
    pub async fn complete(
        &self,
        request: &Request,
        deadline: Instant,
        ear: &mut dyn Ear,
    ) -> Result<Reply, CompletionError> {
        let mut wire = Wire::new(request);
        let preferred = request.preferred.as_ref();
        let mut round = Round::new(&self.shared.endpoints, preferred, deadline);
        loop {
            let place = match round.next() {
                Next::Ask(place) => place,
                Next::Wait(until) => {
                    sleep_until(until).await;
                    continue;
                }
                Next::End(error) => return Err(error),
            };
            let Some(seat) = round.seat(place) else {
                return Err(CompletionError::Late);
            };
            let endpoint = seat.endpoint;
            let patience = round.patience_for(place, self.pause);
            let (failure, was_heard) = match self.ask(seat, patience, &mut wire, ear).await {
                Ok(reply) => {
                    seat.replied();
                    return Ok(reply);
                }
                Err(failed) => failed,
            };
            let is_news = round.failed(place, &failure);
            log(endpoint, &failure, was_heard, is_news);
            if was_heard {
                return Err(failure.after_words());
            }
            if failure == Failure::Late {
                return Err(CompletionError::Late);
            }
        }
    }

    /// Asks one of them; why there is no reply, and whether some of it was heard. A model that has a temperature of its
    /// own is asked once more, without one.
    async fn ask(
        &self,
        seat: &Seat<'_>,
        patience: Patience,
        wire: &mut Wire<'_>,
        ear: &mut dyn Ear,
    ) -> Result<Reply, (Failure, bool)> {
        let model = seat.model;
        let with_temperature = wire.has_temperature() && model.takes_temperature();
        let ended = self
            .ask_once(seat, patience, body(wire, seat, with_temperature), ear)
            .await;
        let is_about_it = |failure: &Failure| {
            let about = About::Temperature;
            matches!(failure, Failure::Refused { about: found, .. } if *found == about)
        };
        match &ended {
            Err((failure, false)) if with_temperature && is_about_it(failure) => {}
            _ => return ended,
        }
        let ended = self
            .ask_once(seat, patience, body(wire, seat, false), ear)
            .await;
        // Only what replies has shown that this was the matter.
        if matches!(ended, Ok(_) | Err((_, true))) && model.keeps_temperature() {
            tracing::info!(
                provider.name = seat.endpoint.name,
                model.name = model.name,
                "a model has a temperature of its own, and is told none from now on"
            );
        }
        ended
    }

    async fn ask_once(
        &self,
        seat: &Seat<'_>,
        patience: Patience,
        body: Result<Bytes, serde_json::Error>,
        ear: &mut dyn Ear,
    ) -> Result<Reply, (Failure, bool)> {
        let endpoint = seat.endpoint;
        let body = body.map_err(|error| (Failure::Broken(error.to_string()), false))?;
        let asked = self.shared.metrics.begin(&endpoint.name);
        let mut reading = Reading::new(ear, asked, seat.model.prices);
        let span = span!(
            "chat",
            otel.kind = "client",
            otel.name = format!("chat {}", seat.model.name),
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = endpoint.name.as_str(),
            gen_ai.request.model = seat.model.name.as_str(),
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            "error.type" = Empty,
        );
        let asked = attempt::ask(endpoint, body, patience, &mut reading);
        let ended = asked.instrument(span.clone()).await;
        let settled = reading.settle(ended, &endpoint.name);
        note(&span, &settled);
        settled
    }
}

fn body(
    wire: &mut Wire<'_>,
    seat: &Seat<'_>,
    with_temperature: bool,
) -> Result<Bytes, serde_json::Error> {
    wire.to(To {
        provider: &seat.endpoint.name,
        model: &seat.model.name,
        limit_field: seat.endpoint.limit_field,
        with_temperature,
    })
}

/// What a request came to, for its span.
fn note(span: &Span, settled: &Result<Reply, (Failure, bool)>) {
    if span.is_disabled() {
        return;
    }
    match settled {
        Ok(reply) => {
            span.record("gen_ai.usage.input_tokens", reply.usage.prompt_tokens);
            span.record("gen_ai.usage.output_tokens", reply.usage.completion_tokens);
        }
        Err((failure, _)) => {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", failure.clone().into_error().kind());
        }
    }
}

/// What is no news is a refusal that was told of when its rest began.
fn log(endpoint: &Endpoint, failure: &Failure, was_heard: bool, is_news: bool) {
    let name = endpoint.name.as_str();
    match failure {
        Failure::Late => {
            tracing::warn!(
                provider.name = name,
                reply.heard = was_heard,
                "a provider did not end its reply by the deadline"
            );
        }
        Failure::Busy { after } => {
            let after = after.as_millis();
            tracing::warn!(
                provider.name = name,
                provider.rest_ms = after,
                "a provider has too much to do"
            );
        }
        Failure::Refused { reason, .. } if is_news => {
            tracing::error!(provider.name = name, reason, "a provider refuses a request");
        }
        Failure::Refused { reason, .. } => {
            tracing::debug!(
                provider.name = name,
                reason,
                "a provider refuses requests still"
            );
        }
        Failure::Unavailable { reason, .. } | Failure::Broken(reason) => {
            tracing::warn!(
                provider.name = name,
                reply.heard = was_heard,
                reason,
                "a provider gives no whole reply"
            );
        }
    }
}
