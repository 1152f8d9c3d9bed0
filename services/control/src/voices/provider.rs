//! Who makes voices of samples: one small interface, and the providers that an operator has set, by name.
//! Never: a row of the database, or a state that a voice cannot have.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use switchboard_store::{VoiceFault, VoiceJob, VoiceStanding};

use super::remote::Remote;
use crate::Config;

/// The provider that is always there, and that holds when none is named.
pub(crate) const EMBEDDED: &str = "embedded";
/// The provider at the address that an operator sets.
const REMOTE: &str = "http";

/// What a provider does, while it does it.
pub(super) type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// Makes voices. What it is asked twice under the same key it does once.
pub(super) trait Provider: Send + Sync {
    /// Begins to make a voice of a sample. The key is the same for each attempt at the same voice.
    fn make<'a>(
        &'a self,
        job: &'a VoiceJob,
        key: &'a str,
        sample: Bytes,
    ) -> Doing<'a, VoiceStanding>;

    /// Says how far a voice is.
    fn status<'a>(&'a self, made_as: &'a str) -> Doing<'a, VoiceStanding>;

    /// Says what it calls the voice that it was asked for under this key, when it has made one or is making it.
    fn find<'a>(&'a self, key: &'a str) -> Doing<'a, Option<String>>;

    /// Lets go of a voice, if it is there.
    fn remove<'a>(&'a self, made_as: &'a str) -> Doing<'a, ()>;
}

/// Why a provider did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    /// It may do it another time.
    #[error("{0}")]
    Away(String),
    /// It will not do it, whoever asks.
    #[error("{}", .0.detail)]
    Refused(VoiceFault),
}

/// The providers there are.
#[derive(Clone)]
pub(crate) struct Providers(Arc<BTreeMap<&'static str, Box<dyn Provider>>>);

impl Providers {
    /// The embedded one, and the one that the operator has set.
    pub(crate) fn new(config: &Config) -> Self {
        let mut all: BTreeMap<&'static str, Box<dyn Provider>> = BTreeMap::new();
        all.insert(EMBEDDED, Box::new(Embedded));
        if let Some(remote) = Remote::new(config) {
            all.insert(REMOTE, Box::new(remote));
        }
        Self(Arc::new(all))
    }

    /// What they are called.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().map(|name| (*name).to_owned()).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Result<&dyn Provider, ProviderError> {
        let found = self.0.get(name).map(AsRef::as_ref);
        found.ok_or_else(|| ProviderError::Away(format!("there is no provider {name} here")))
    }
}

/// The sample is the voice: it is kept, and played.
struct Embedded;

impl Provider for Embedded {
    /// Whoever asks has made sure that the sample is there and is what was sent; nothing else is needed to play it.
    fn make<'a>(&'a self, _: &'a VoiceJob, _: &'a str, _: Bytes) -> Doing<'a, VoiceStanding> {
        Box::pin(std::future::ready(Ok(ready())))
    }

    fn status<'a>(&'a self, _: &'a str) -> Doing<'a, VoiceStanding> {
        Box::pin(std::future::ready(Ok(ready())))
    }

    fn find<'a>(&'a self, _: &'a str) -> Doing<'a, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn remove<'a>(&'a self, _: &'a str) -> Doing<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

const fn ready() -> VoiceStanding {
    VoiceStanding::Ready {
        made_as: None,
        next: None,
    }
}

/// How soon a provider is asked again for a voice that it is making.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How soon it is asked whether a voice that it has made is still there.
pub(super) const LOOK_AFTER: Duration = Duration::from_secs(3600);
