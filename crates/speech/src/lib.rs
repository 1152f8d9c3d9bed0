//! Providers of speech recognition and of speech synthesis. Each kind of provider is a module; several
//! of them take over from each other ([`Recognizers`], [`Synthesizers`]).
//!
//! Audio is mono with 16-bit samples. What is recognised has [`RATE`] samples per second.
//!
//! Nothing here starts a task: a [`Recognition`] and a [`Synthesis`] run while they are polled, and
//! dropping one cancels its request.

mod command;
mod config;
mod failure;
mod language;
mod metrics;
mod openai;
mod pcm;
mod provider;
mod realtime;
mod recognition;
mod synthesis;
mod utterance;
mod wyoming;

pub use config::{Config, ConfigError, ProviderKind};
pub use failure::SpeechError;
pub use recognition::{Recognition, Recognizers, Words};
pub use synthesis::{Pcm, SpokenStyle, Synthesis, Synthesizers};

/// The configured providers.
#[derive(Clone, Default)]
pub struct Speech {
    /// Recognition, if a provider is configured.
    pub recognizers: Option<Recognizers>,
    /// Synthesis, if a provider is configured or `espeak-ng` is installed.
    pub synthesizers: Option<Synthesizers>,
}

impl Speech {
    /// Creates the configured providers, and registers their metrics.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration is invalid, or the registry has the metrics already.
    pub fn from_config(
        config: &Config,
        registry: &prometheus::Registry,
    ) -> Result<Self, ConfigError> {
        let [stt, tts] = recognition::Shared::load(config, registry)?;
        Ok(Self {
            recognizers: stt.map(Recognizers::new),
            synthesizers: tts.map(Synthesizers::new),
        })
    }
}

/// Samples per second of the audio that is recognised.
pub const RATE: u32 = 16_000;
