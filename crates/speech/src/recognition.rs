//! Speech recognition: an utterance in, its words out.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use prometheus::Registry;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    RATE, SpeechError,
    audio::{Audio, MAX_SAMPLES},
    config::{Config, ConfigError, Settings},
    failure::Failure,
    metrics::{Direction, Metrics},
    provider::{Interface, Provider, in_order},
};

/// Pieces of an utterance that wait to be read.
const MAX_WAITING_PIECES: usize = 2_048;
/// Maximum bytes of a transcript.
const MAX_TRANSCRIPT_BYTES: usize = 8 * 1024;
/// Time of a provider from the end of an utterance to its transcript.
const TRANSCRIPT_TIMEOUT: Duration = Duration::from_secs(15);

/// The providers of speech recognition, in order. Clones share them.
#[derive(Clone)]
pub struct Recognizers {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) providers: Vec<Provider>,
    pub(crate) metrics: Metrics,
}

/// An utterance that is being recognised. Its audio may be sent while it is being spoken. It works while
/// [`Self::transcript`] is polled, and dropping it cancels the request.
///
/// It holds the audio, 1 MiB at most: another provider receives all of it when one fails.
pub struct Recognition {
    audio: Option<mpsc::Sender<Vec<i16>>>,
    transcript: BoxFuture<'static, Result<String, SpeechError>>,
}

impl Shared {
    /// The configured providers of recognition and of synthesis; `None` for a direction without one.
    pub(crate) fn load(
        config: &Config,
        registry: &Registry,
    ) -> Result<[Option<Arc<Self>>; 2], ConfigError> {
        let Settings { stt, tts } = Settings::load(config)?;
        let metrics = Metrics::new(registry)?;
        let providers = |direction, settings: Vec<_>| {
            let providers = settings.into_iter().map(Provider::new);
            let providers = providers.collect::<Result<Vec<_>, _>>()?;
            for provider in &providers {
                metrics.add(direction, &provider.name);
            }
            let metrics = metrics.clone();
            let shared = (!providers.is_empty()).then(|| Arc::new(Self { providers, metrics }));
            Ok::<_, ConfigError>(shared)
        };
        Ok([
            providers(Direction::Recognition, stt)?,
            providers(Direction::Synthesis, tts)?,
        ])
    }
}

impl Recognizers {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The names of the providers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let providers = self.shared.providers.iter();
        providers.map(|provider| provider.name.as_str())
    }

    /// Begins to recognise an utterance in a language, a BCP 47 tag, or in any.
    #[must_use]
    pub fn begin(&self, language: Option<String>) -> Recognition {
        let (sender, more) = mpsc::channel(MAX_WAITING_PIECES);
        let shared = Arc::clone(&self.shared);
        let audio = Audio::new(more);
        Recognition {
            audio: Some(sender),
            transcript: Box::pin(recognize(shared, audio, language)),
        }
    }
}

impl Recognition {
    /// Adds audio of the utterance. What exceeds the longest utterance is dropped.
    pub fn push(&mut self, pcm: &[i16]) {
        if let Some(audio) = &self.audio {
            // Full, or no provider is left: there will be no transcript.
            let _ = audio.try_send(pcm.to_vec());
        }
    }

    /// The utterance is complete.
    pub fn finish(&mut self) {
        self.audio = None;
    }

    /// Waits for the words; empty if there are none. Can be dropped and called again, until it returns.
    ///
    /// # Errors
    /// When all providers have failed.
    pub async fn transcript(&mut self) -> Result<String, SpeechError> {
        (&mut self.transcript).await
    }
}

async fn recognize(
    shared: Arc<Shared>,
    mut audio: Audio,
    language: Option<String>,
) -> Result<String, SpeechError> {
    let mut error = SpeechError::NotConfigured;
    for provider in in_order(&shared.providers) {
        let transcript = transcribe(provider, &mut audio, language.as_deref()).await;
        let transcript = transcript.and_then(checked);
        provider.record(&transcript);
        let direction = Direction::Recognition;
        shared.metrics.count(direction, &provider.name, &transcript);
        match transcript {
            Ok(text) => {
                let took = audio.since_end();
                shared.metrics.observe(direction, &provider.name, took);
                return Ok(text);
            }
            Err(failure) => error = SpeechError::Failed(failure.to_string()),
        }
    }
    // Nothing is reported before the end of the utterance.
    audio.all().await;
    Err(error)
}

async fn transcribe(
    provider: &Provider,
    audio: &mut Audio,
    language: Option<&str>,
) -> Result<String, Failure> {
    match &provider.interface {
        Interface::OpenAi(api) => {
            let pcm = audio.all().await;
            in_time(api.transcribe(pcm, language)).await
        }
        Interface::Command(command) => {
            let pcm = audio.all().await;
            in_time(command.transcribe(pcm)).await
        }
        // The utterance itself may take its maximum duration.
        Interface::Wyoming(server) => {
            let limit = TRANSCRIPT_TIMEOUT + Duration::from_secs(MAX_SAMPLES as u64 / RATE as u64);
            let transcript = timeout(limit, server.transcribe(audio, language)).await;
            transcript.map_err(|_| Failure::TimedOut)?
        }
    }
}

async fn in_time(
    transcript: impl Future<Output = Result<String, Failure>>,
) -> Result<String, Failure> {
    let transcript = timeout(TRANSCRIPT_TIMEOUT, transcript).await;
    transcript.map_err(|_| Failure::TimedOut)?
}

/// Trims a transcript, and refuses one that no utterance can have.
fn checked(text: String) -> Result<String, Failure> {
    if text.len() > MAX_TRANSCRIPT_BYTES {
        let detail = format!("a transcript of {} bytes", text.len());
        return Err(Failure::Invalid(detail));
    }
    Ok(text.trim().to_owned())
}
