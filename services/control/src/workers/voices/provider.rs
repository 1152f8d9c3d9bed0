//! The interface of voice providers, and the configured providers by name.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use switchboard_store::{VoiceFault, VoiceJob, VoiceStatus};

use super::{http_provider::HttpProvider, openai_provider::OpenAiProvider};
use crate::Config;

/// The default provider, which is always available.
pub(crate) const EMBEDDED_PROVIDER: &str = "embedded";
/// The provider at the URL that the operator configures.
const HTTP_PROVIDER: &str = "http";
/// The provider with an API like OpenAI's at the URL that the operator configures.
const OPENAI_PROVIDER: &str = "openai";

/// A request to a provider.
pub(super) type ProviderFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// Trains voices. Requests with the same key are idempotent.
pub(super) trait Provider: Send + Sync {
    /// Starts the training of a voice. All attempts for the same voice have the same key.
    fn create<'a>(
        &'a self,
        job: &'a VoiceJob,
        key: &'a str,
        sample: Bytes,
    ) -> ProviderFuture<'a, VoiceStatus>;

    /// The status of a voice.
    fn status<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, VoiceStatus>;

    /// The id of the voice that was created with this key, if there is one.
    fn find<'a>(&'a self, key: &'a str) -> ProviderFuture<'a, Option<String>>;

    /// Deletes a voice, if it exists.
    fn delete<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, ()>;
}

/// Why a request to a provider failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    /// Temporary: the provider is unavailable, or its response is invalid.
    #[error("{0}")]
    Unavailable(String),
    /// The provider rejected the request; a retry fails, too.
    #[error("{}", .0.detail)]
    Rejected(VoiceFault),
}

/// The configured providers.
#[derive(Clone)]
pub(crate) struct Providers(Arc<BTreeMap<&'static str, Box<dyn Provider>>>);

impl Providers {
    /// The embedded provider, and those at the configured URLs.
    pub(crate) fn new(config: &Config) -> Self {
        let mut all: BTreeMap<&'static str, Box<dyn Provider>> = BTreeMap::new();
        all.insert(EMBEDDED_PROVIDER, Box::new(Embedded));
        if let Some(provider) = HttpProvider::new(config) {
            all.insert(HTTP_PROVIDER, Box::new(provider));
        }
        if let Some(provider) = OpenAiProvider::new(config) {
            all.insert(OPENAI_PROVIDER, Box::new(provider));
        }
        Self(Arc::new(all))
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().map(|name| (*name).to_owned()).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Result<&dyn Provider, ProviderError> {
        let found = self.0.get(name).map(AsRef::as_ref);
        found.ok_or_else(|| {
            ProviderError::Unavailable(format!("the provider {name} is not configured"))
        })
    }
}

/// The sample itself is the voice.
struct Embedded;

impl Provider for Embedded {
    /// The caller has checked the sample, so the voice is ready.
    fn create<'a>(
        &'a self,
        _: &'a VoiceJob,
        _: &'a str,
        _: Bytes,
    ) -> ProviderFuture<'a, VoiceStatus> {
        Box::pin(std::future::ready(Ok(ready())))
    }

    fn status<'a>(&'a self, _: &'a str) -> ProviderFuture<'a, VoiceStatus> {
        Box::pin(std::future::ready(Ok(ready())))
    }

    fn find<'a>(&'a self, _: &'a str) -> ProviderFuture<'a, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn delete<'a>(&'a self, _: &'a str) -> ProviderFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

const fn ready() -> VoiceStatus {
    VoiceStatus::Ready {
        made_as: None,
        next: None,
    }
}

/// Between two status requests during a training.
pub(super) const TRAINING_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Between two checks that a trained voice still exists.
pub(super) const READY_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
