//! Speech synthesis: a sentence in, its audio out.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use switchboard_runtime::outbound::Contact;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use crate::{
    SpeechError,
    failure::Failure,
    metrics::Direction,
    openai::SPEECH,
    provider::{Interface, Provider, in_order},
    recognition::Shared,
};

/// Pieces of audio that wait to be taken. A provider waits when there are more.
const MAX_WAITING_PIECES: usize = 16;
/// The largest piece: 1 s of the highest rate.
const MAX_PIECE_SAMPLES: usize = 48_000;
/// Maximum duration of a sentence.
const MAX_SENTENCE_S: u32 = 60;
/// Time of a provider to the first audio of a sentence, when another one can follow, and in any case.
const FIRST_AUDIO_TIMEOUT: Duration = Duration::from_secs(8);
/// Time for all of a sentence, in which its audio is taken at the rate at which it is played.
const SENTENCE_TIMEOUT: Duration = Duration::from_secs(90);

/// The providers of speech synthesis, in order. Clones share them.
#[derive(Clone)]
pub struct Synthesizers {
    shared: Arc<Shared>,
}

/// How a sentence is spoken. Without a member, the default of the provider holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpokenStyle {
    /// The provider's name of the voice.
    pub voice: Option<String>,
    /// The language, as a BCP 47 tag.
    pub language: Option<String>,
    /// The speaking rate as a factor.
    pub rate: Option<f64>,
}

/// A piece of audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pcm {
    /// Mono samples.
    pub samples: Vec<i16>,
    /// Samples per second.
    pub rate: u32,
}

/// A sentence that is being spoken. It works while [`Self::next`] is polled, and dropping it cancels the
/// request.
pub struct Synthesis {
    pieces: mpsc::Receiver<Pcm>,
    /// Until it has ended.
    work: Option<BoxFuture<'static, Result<(), SpeechError>>>,
}

/// Passes on the audio of a provider.
pub(crate) struct ChunkSender {
    pieces: mpsc::Sender<Pcm>,
    begun: Instant,
    state: parking_lot::Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    samples: u64,
    first: Option<Instant>,
}

impl Synthesizers {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The names of the providers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let providers = self.shared.providers.iter();
        providers.map(|provider| provider.name.as_str())
    }

    /// Contacts all providers without a request for audio, one after the other, each within `limit`.
    pub async fn contact(&self, limit: Duration) -> Vec<Contact> {
        let mut contacts = Vec::new();
        for provider in &self.shared.providers {
            contacts.push(provider.contact(SPEECH, limit).await);
        }
        contacts
    }

    /// Begins to speak a sentence.
    #[must_use]
    pub fn begin(&self, text: String, style: SpokenStyle) -> Synthesis {
        let (sender, pieces) = mpsc::channel(MAX_WAITING_PIECES);
        let shared = Arc::clone(&self.shared);
        Synthesis {
            pieces,
            work: Some(Box::pin(synthesize(shared, text, style, sender))),
        }
    }
}

impl Synthesis {
    /// Waits for the next audio; `None` at the end. Can be dropped and called again.
    ///
    /// # Errors
    /// When all providers have failed before the first audio, or the one that speaks fails later.
    pub async fn next(&mut self) -> Option<Result<Pcm, SpeechError>> {
        if let Some(work) = &mut self.work {
            let ended = tokio::select! {
                biased;
                Some(piece) = self.pieces.recv() => return Some(Ok(piece)),
                ended = work => ended,
            };
            self.work = None;
            if let Err(error) = ended {
                return Some(Err(error));
            }
        }
        self.pieces.recv().await.map(Ok)
    }
}

impl ChunkSender {
    /// Passes on samples, and waits until there is room for them.
    pub(crate) async fn send(&self, samples: Vec<i16>, rate: u32) -> Result<(), Failure> {
        if samples.is_empty() {
            return Ok(());
        }
        {
            let mut state = self.state.lock();
            state.first.get_or_insert_with(Instant::now);
            state.samples += samples.len() as u64;
            if state.samples > u64::from(rate) * u64::from(MAX_SENTENCE_S) {
                let detail = format!("a sentence takes more than {MAX_SENTENCE_S} s");
                return Err(Failure::Invalid(detail));
            }
        }
        for piece in samples.chunks(MAX_PIECE_SAMPLES) {
            let piece = Pcm {
                samples: piece.to_vec(),
                rate,
            };
            // The listener has gone.
            let sent = self.pieces.send(piece).await;
            sent.map_err(|_| Failure::Unavailable("cancelled".to_owned()))?;
        }
        Ok(())
    }

    /// When the first audio arrived.
    fn first(&self) -> Option<Instant> {
        self.state.lock().first
    }

    fn has_sent(&self) -> bool {
        self.first().is_some()
    }
}

async fn synthesize(
    shared: Arc<Shared>,
    text: String,
    style: SpokenStyle,
    pieces: mpsc::Sender<Pcm>,
) -> Result<(), SpeechError> {
    let direction = Direction::Synthesis;
    let mut error = SpeechError::NotConfigured;
    for provider in in_order(&shared.providers) {
        let chunks = ChunkSender {
            pieces: pieces.clone(),
            begun: Instant::now(),
            state: parking_lot::Mutex::default(),
        };
        let spoken = speak(provider, &text, &style, &chunks).await;
        provider.record(&spoken);
        shared.metrics.count(direction, &provider.name, &spoken);
        if let Some(first) = chunks.first() {
            let took = first.duration_since(chunks.begun);
            shared.metrics.observe(direction, &provider.name, took);
        }
        match spoken {
            Ok(()) => return Ok(()),
            Err(failure) => error = SpeechError::Failed(failure.to_string()),
        }
        if chunks.has_sent() {
            // Another one would repeat what was heard.
            break;
        }
    }
    Err(error)
}

/// Speaks with the voice of the style. One that the provider does not know is replaced by its own.
async fn speak(
    provider: &Provider,
    text: &str,
    style: &SpokenStyle,
    chunks: &ChunkSender,
) -> Result<(), Failure> {
    if style.voice.is_some() {
        match speak_in_time(provider, text, style, chunks).await {
            Err(failure @ Failure::Rejected(_)) if !chunks.has_sent() => {
                tracing::warn!(provider.name = provider.name, %failure, "a voice was rejected");
            }
            spoken => return spoken,
        }
    }
    let style = SpokenStyle {
        voice: provider.voice.clone(),
        ..style.clone()
    };
    speak_in_time(provider, text, &style, chunks).await
}

/// Speaks, and fails when the first audio or the end is late, or there is none.
async fn speak_in_time(
    provider: &Provider,
    text: &str,
    style: &SpokenStyle,
    chunks: &ChunkSender,
) -> Result<(), Failure> {
    let speak = async {
        match &provider.interface {
            Interface::OpenAi(api) => api.speak(text, style, chunks).await,
            Interface::Wyoming(server) => server.speak(text, style, chunks).await,
            Interface::Command(command) => command.speak(text, style, chunks).await,
            // The configuration excludes it.
            Interface::Realtime(_) => Err(Failure::Rejected("it does not speak".to_owned())),
        }
    };
    let mut speak = std::pin::pin!(speak);
    let ended = match timeout(FIRST_AUDIO_TIMEOUT, &mut speak).await {
        Ok(ended) => ended,
        Err(_) if !chunks.has_sent() => Err(Failure::TimedOut),
        Err(_) => {
            let ended = timeout(SENTENCE_TIMEOUT, speak).await;
            ended.unwrap_or(Err(Failure::TimedOut))
        }
    };
    ended?;
    if chunks.has_sent() {
        Ok(())
    } else {
        Err(Failure::Rejected("there is no audio".to_owned()))
    }
}
