//! Speech recognition: an utterance in, its words out.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, Either, select};
use prometheus::Registry;
use switchboard_runtime::outbound::Contact;
use tokio::sync::watch;

use crate::{
    SpeechError,
    config::{Config, ConfigError, Settings},
    failure::Failure,
    metrics::{Direction, Metrics},
    openai::TRANSCRIPTIONS,
    provider::{Interface, Provider, in_order},
    utterance::{Spoken, Utterance, checked},
};

/// Time of a provider from the end of an utterance to its transcript.
const TRANSCRIPT_TIMEOUT: Duration = Duration::from_secs(15);
/// Pauses of an utterance in which its transcript is requested early. Protects providers.
const MAX_EARLY_REQUESTS: u32 = 3;

/// The providers of speech recognition, in order. Clones share them.
#[derive(Clone)]
pub struct Recognizers {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) providers: Vec<Provider>,
    pub(crate) metrics: Metrics,
}

/// An utterance that is being recognised. Its audio is sent while it is being spoken, to providers that
/// take it. It works while [`Self::next`] is polled, and dropping it cancels the request.
///
/// ```text
///               pause: an early request is complete       finish
///   Speaking ◄───────────────────────────────► Paused ─────────────► Finished ──► Final
///      │        resume: it begins again                                  ▲
///      └─────────────────────────────────────────────────────────────────┘ finish
/// ```
///
/// It holds the audio, 1 MiB at most: another provider receives all of it when one fails.
pub struct Recognition {
    shared: Arc<Shared>,
    language: Option<String>,
    spoken: watch::Sender<Spoken>,
    partial: watch::Sender<String>,
    words: watch::Receiver<String>,
    work: BoxFuture<'static, Result<String, SpeechError>>,
    /// Of a request that is complete.
    transcript: Option<Result<String, SpeechError>>,
    early_requests: u32,
    /// A provider was asked that takes the end of a pause for that of the utterance, or all have failed.
    is_cut_short: Arc<AtomicBool>,
}

/// What is known about the words of an utterance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    /// Those of its beginning, which may still change.
    Partial(String),
    /// All of them; empty if there are none.
    Final(String),
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

    /// Contacts all providers without a request for words, one after the other, each within `limit`.
    pub async fn contact(&self, limit: Duration) -> Vec<Contact> {
        let mut contacts = Vec::new();
        for provider in &self.shared.providers {
            contacts.push(provider.contact(TRANSCRIPTIONS, limit).await);
        }
        contacts
    }

    /// Begins to recognise an utterance in a language, a BCP 47 tag, or in any.
    #[must_use]
    pub fn begin(&self, language: Option<String>) -> Recognition {
        let spoken = watch::Sender::new(Spoken::default());
        let (partial, words) = watch::channel(String::new());
        let mut recognition = Recognition {
            shared: Arc::clone(&self.shared),
            language,
            spoken,
            partial,
            words,
            work: Box::pin(std::future::pending()),
            transcript: None,
            early_requests: MAX_EARLY_REQUESTS,
            is_cut_short: Arc::default(),
        };
        recognition.request();
        recognition
    }
}

impl Recognition {
    /// Adds audio of the utterance. What exceeds the longest utterance is dropped.
    pub fn push(&mut self, pcm: &[i16]) {
        self.spoken.send_modify(|spoken| spoken.push(pcm));
    }

    /// The user is silent, and the utterance may be complete: its transcript is requested now, where the
    /// provider allows it.
    pub fn pause(&mut self) {
        if self.early_requests > 0 {
            self.early_requests -= 1;
            self.spoken.send_modify(Spoken::pause);
        }
    }

    /// The user continues: an early request is cancelled. A provider that waits for the end of the
    /// utterance continues to receive it.
    pub fn resume(&mut self) {
        if !self.spoken.borrow().is_paused() {
            return;
        }
        self.spoken.send_modify(Spoken::resume);
        if self.is_cut_short.load(Ordering::Relaxed) {
            self.transcript = None;
            self.request();
        }
    }

    /// The utterance is complete.
    pub fn finish(&mut self) {
        self.spoken.send_modify(Spoken::finish);
    }

    /// The audio of the utterance so far.
    #[must_use]
    pub fn audio(&self) -> Duration {
        self.spoken.borrow().duration()
    }

    /// Waits for words: partial ones, as they change, and at last all of them. Can be dropped and called
    /// again, until it has returned [`Words::Final`] or an error.
    ///
    /// # Errors
    /// When all providers have failed.
    pub async fn next(&mut self) -> Result<Words, SpeechError> {
        loop {
            // It counts when the utterance is over.
            let is_finished = self.spoken.borrow().is_finished();
            if let Some(transcript) = self.transcript.take_if(|_| is_finished) {
                return transcript.map(Words::Final);
            }
            tokio::select! {
                biased;
                transcript = &mut self.work, if self.transcript.is_none() => {
                    if let (Ok(words), false) = (&transcript, is_finished) {
                        self.partial.send_replace(words.clone());
                    }
                    self.transcript = Some(transcript);
                }
                Ok(()) = self.words.changed() => {
                    return Ok(Words::Partial(self.words.borrow_and_update().clone()));
                }
            }
        }
    }

    /// Sends the utterance to the providers, in place of an earlier request.
    fn request(&mut self) {
        let utterance = Utterance::new(
            self.spoken.subscribe(),
            self.partial.clone(),
            self.language.clone(),
        );
        self.is_cut_short = Arc::default();
        let is_cut_short = Arc::clone(&self.is_cut_short);
        self.work = Box::pin(recognize(Arc::clone(&self.shared), utterance, is_cut_short));
    }
}

async fn recognize(
    shared: Arc<Shared>,
    mut utterance: Utterance,
    is_cut_short: Arc<AtomicBool>,
) -> Result<String, SpeechError> {
    let mut error = SpeechError::NotConfigured;
    for provider in in_order(&shared.providers) {
        utterance.set_early(provider.is_early);
        is_cut_short.fetch_or(provider.is_early, Ordering::Relaxed);
        let transcript = tokio::select! {
            transcript = transcribe(provider, &utterance) => transcript.and_then(|words| checked(&words)),
            () = utterance.late(TRANSCRIPT_TIMEOUT) => Err(Failure::TimedOut),
        };
        let transcript = transcript.and_then(|words| {
            let early = || Failure::Invalid("a transcript before the end of the audio".to_owned());
            utterance.is_complete().then_some(words).ok_or_else(early)
        });
        provider.record(&transcript);
        let direction = Direction::Recognition;
        shared.metrics.count(direction, &provider.name, &transcript);
        match transcript {
            Ok(text) => {
                let took = utterance.since_end();
                shared.metrics.observe(direction, &provider.name, took);
                return Ok(text);
            }
            Err(failure) => error = SpeechError::Failed(failure.to_string()),
        }
    }
    // Nothing is reported before the end of the utterance.
    is_cut_short.store(true, Ordering::Relaxed);
    utterance.finished().await;
    Err(error)
}

async fn transcribe(provider: &Provider, utterance: &Utterance) -> Result<String, Failure> {
    match &provider.interface {
        Interface::OpenAi(api) => api.transcribe(utterance).await,
        Interface::Realtime(api) => api.transcribe(utterance).await,
        Interface::Wyoming(server) => server.transcribe(utterance).await,
        Interface::Command(command) => command.transcribe(utterance).await,
    }
}

/// Receives a transcript while the audio is being sent. A server may report a failure before it
/// has all of the audio.
pub(crate) async fn exchange(
    receive: impl Future<Output = Result<String, Failure>>,
    send: impl Future<Output = Result<(), Failure>>,
) -> Result<String, Failure> {
    match select(pin!(receive), pin!(send)).await {
        Either::Left((words, _)) => words,
        Either::Right((sent, receive)) => {
            sent?;
            receive.await
        }
    }
}
