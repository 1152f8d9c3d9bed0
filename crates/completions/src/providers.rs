//! The configured providers, and completions with failover between them.

use std::{cell::RefCell, sync::Arc, time::Duration};

use bytes::Bytes;
use prometheus::Registry;
use switchboard_runtime::{
    outbound::{self, Contact},
    span,
};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    CompletionError, Config, ConfigError, Reply, ReplySink, Request, attempt,
    deadlines::Deadlines,
    endpoint::Endpoint,
    failover::{Candidate, NextStep, ProviderQueue},
    failure::{Failure, RejectCause},
    metrics::Metrics,
    reply_builder::ReplyBuilder,
    request_body::{RequestBody, Target},
    settings,
};

/// The configured providers, in order. Clones share connections, cooldowns and metrics.
#[derive(Debug, Clone)]
pub struct Providers {
    shared: Arc<Shared>,
    idle_timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    metrics: Metrics,
}

impl Providers {
    /// The configured providers; `None` without any.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration is invalid.
    pub fn from_config(config: &Config) -> Result<Option<Self>, ConfigError> {
        Self::with_environment(config, &|name| std::env::var(name).ok())
    }

    /// The environment variables that must contain keys and do not, where nothing else is wrong with
    /// the configuration.
    #[must_use]
    pub fn missing_variables(config: &Config) -> Vec<String> {
        let missing = RefCell::new(Vec::new());
        let environment = |name: &str| {
            let key = std::env::var(name).ok();
            let key = key.filter(|key| !key.trim().is_empty());
            // In place of the key, so that the rest is examined.
            key.or_else(|| {
                missing.borrow_mut().push(name.to_owned());
                Some(name.to_owned())
            })
        };
        match settings::load(config, &environment) {
            Ok(_) => missing.into_inner(),
            Err(_) => Vec::new(),
        }
    }

    fn with_environment(
        config: &Config,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let settings = settings::load(config, environment)?;
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
            idle_timeout: Duration::from_millis(config.completions_pause_ms),
        }))
    }

    /// Registers the metrics of all providers.
    ///
    /// # Errors
    /// When the registry has them already.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        self.shared.metrics.register(registry)
    }

    /// The names of the providers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shared
            .endpoints
            .iter()
            .map(|endpoint| endpoint.name.as_str())
    }

    /// Contacts all providers without a request for a reply, one after the other, each within
    /// `limit`.
    pub async fn contact(&self, limit: Duration) -> Vec<Contact> {
        let mut contacts = Vec::new();
        for endpoint in &self.shared.endpoints {
            contacts.push(endpoint.contact(limit).await);
        }
        contacts
    }

    /// Whether any model of them sees pictures.
    #[must_use]
    pub fn see_pictures(&self) -> bool {
        let mut endpoints = self.shared.endpoints.iter();
        endpoints.any(Endpoint::sees_pictures)
    }

    /// Completes a request. The sink receives text and usage as they arrive. Dropping the future
    /// cancels the request to the provider.
    ///
    /// # Errors
    /// [`CompletionError`] when there is no complete reply by the deadline. A part of its text may
    /// have been sent to the sink.
    pub async fn complete(
        &self,
        request: &Request,
        deadline: Instant,
        sink: &mut dyn ReplySink,
    ) -> Result<Reply, CompletionError> {
        let mut body = RequestBody::new(request);
        let preference = request.preference.as_ref();
        let mut queue = ProviderQueue::new(&self.shared.endpoints, preference, deadline);
        loop {
            let index = match queue.next() {
                NextStep::Send(index) => index,
                NextStep::Wait(until) => {
                    sleep_until(until).await;
                    continue;
                }
                NextStep::Fail(error) => return Err(error),
            };
            let Some(candidate) = queue.candidate(index) else {
                return Err(CompletionError::TimedOut);
            };
            let endpoint = candidate.endpoint;
            let deadlines = queue.deadlines_for(index, self.idle_timeout);
            let result = self.request(candidate, deadlines, &mut body, sink).await;
            let (failure, is_partial) = match result {
                Ok(reply) => {
                    candidate.record_success();
                    return Ok(reply);
                }
                Err(failed) => failed,
            };
            let is_new = queue.record_failure(index, &failure);
            log_failure(endpoint, &failure, is_partial, is_new);
            if is_partial {
                return Err(failure.after_partial_reply());
            }
            if failure == Failure::TimedOut {
                return Err(CompletionError::TimedOut);
            }
        }
    }

    /// Requests a reply from one provider; again without a temperature when the model rejects it.
    /// An error includes whether a part of the text was sent.
    async fn request(
        &self,
        candidate: &Candidate<'_>,
        deadlines: Deadlines,
        body: &mut RequestBody<'_>,
        sink: &mut dyn ReplySink,
    ) -> Result<Reply, (Failure, bool)> {
        let model = candidate.model;
        let with_temperature = body.has_temperature() && model.accepts_temperature();
        let bytes = encode(body, candidate, with_temperature);
        let result = self.request_once(candidate, deadlines, bytes, sink).await;
        let is_temperature = |failure: &Failure| {
            let temperature = RejectCause::Temperature;
            matches!(failure, Failure::Rejected { cause, .. } if *cause == temperature)
        };
        match &result {
            Err((failure, false)) if with_temperature && is_temperature(failure) => {}
            _ => return result,
        }
        let bytes = encode(body, candidate, false);
        let result = self.request_once(candidate, deadlines, bytes, sink).await;
        // Only a reply proves that the temperature was the cause.
        if matches!(result, Ok(_) | Err((_, true))) && model.set_rejects_temperature() {
            tracing::info!(
                provider.name = candidate.endpoint.name,
                model.name = model.name,
                "model has a fixed temperature; sending none from now on"
            );
        }
        result
    }

    async fn request_once(
        &self,
        candidate: &Candidate<'_>,
        deadlines: Deadlines,
        body: Result<Bytes, serde_json::Error>,
        sink: &mut dyn ReplySink,
    ) -> Result<Reply, (Failure, bool)> {
        let endpoint = candidate.endpoint;
        let body = body.map_err(|error| (Failure::Invalid(error.to_string()), false))?;
        let timer = self.shared.metrics.start(&endpoint.name);
        let mut builder = ReplyBuilder::new(sink, timer, candidate.model.prices);
        let span = span!(
            "chat",
            otel.kind = "client",
            otel.name = format!("chat {}", candidate.model.name),
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = endpoint.name.as_str(),
            gen_ai.request.model = candidate.model.name.as_str(),
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            "error.type" = Empty,
        );
        let attempt = attempt::run(endpoint, body, deadlines, &mut builder);
        let result = attempt.instrument(span.clone()).await;
        let result = builder.build(result, &endpoint.name);
        record_in_span(&span, &result);
        result
    }
}

fn encode(
    body: &mut RequestBody<'_>,
    candidate: &Candidate<'_>,
    with_temperature: bool,
) -> Result<Bytes, serde_json::Error> {
    body.encode(Target {
        provider: &candidate.endpoint.name,
        model: &candidate.model.name,
        limit_field: candidate.endpoint.limit_field,
        with_temperature,
        sees_pictures: candidate.model.sees_pictures,
    })
}

fn record_in_span(span: &Span, result: &Result<Reply, (Failure, bool)>) {
    if span.is_disabled() {
        return;
    }
    match result {
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

/// Logs a failure. A rejection is an error when its cooldown starts, and not repeated after that.
fn log_failure(endpoint: &Endpoint, failure: &Failure, is_partial: bool, is_new: bool) {
    let name = endpoint.name.as_str();
    match failure {
        Failure::TimedOut => {
            tracing::warn!(
                provider.name = name,
                reply.partial = is_partial,
                "reply was not complete by the deadline"
            );
        }
        Failure::Busy { after } => {
            let after = after.as_millis();
            tracing::warn!(
                provider.name = name,
                provider.retry_after_ms = after,
                "provider is busy"
            );
        }
        Failure::Rejected { reason, .. } if is_new => {
            tracing::error!(provider.name = name, reason, "provider rejected a request");
        }
        Failure::Rejected { reason, .. } => {
            tracing::debug!(
                provider.name = name,
                reason,
                "provider still rejects requests"
            );
        }
        Failure::Unavailable { reason, .. } | Failure::Invalid(reason) => {
            tracing::warn!(
                provider.name = name,
                reply.partial = is_partial,
                reason,
                "provider did not send a complete reply"
            );
        }
    }
}
