//! Configuration of speech providers.

use std::path::PathBuf;

use secrecy::SecretString;
use serde::Deserialize;

/// Flags of speech providers.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Provider of speech recognition: an API like OpenAI's, one over a WebSocket, a Wyoming server, or a
    /// program
    #[arg(long, env, value_enum, requires = "stt_endpoint", value_name = "KIND")]
    pub stt_kind: Option<ProviderKind>,

    /// Where it is: the base URL of the API as `https://host/v1`, the URL of the WebSocket, HOST:PORT of
    /// the Wyoming server, or the program with its arguments. The program reads 16-bit samples at 16 kHz from stdin, and prints
    /// the words
    #[arg(long, env, requires = "stt_kind", value_name = "ADDRESS")]
    pub stt_endpoint: Option<String>,

    /// Model of the recognition
    #[arg(long, env, requires = "stt_kind", value_name = "NAME")]
    pub stt_model: Option<String>,

    /// Whether the recognition may be requested in each pause of an utterance, before it is certain that
    /// the user has finished. By default true for Wyoming servers and programs, which charge nothing
    #[arg(long, env, requires = "stt_kind", value_name = "BOOL")]
    pub stt_early: Option<bool>,

    /// API key of the recognition
    #[arg(long, env, hide_env_values = true)]
    pub stt_api_key: Option<SecretString>,

    /// Provider of speech synthesis: an API like OpenAI's, a Wyoming server, or a program; not `realtime`. Without one,
    /// `espeak-ng` speaks where it is installed
    #[arg(long, env, value_enum, requires = "tts_endpoint", value_name = "KIND")]
    pub tts_kind: Option<ProviderKind>,

    /// Where it is, like --stt-endpoint. The program reads the text from stdin, and writes a WAV file to
    /// stdout; `{voice}`, `{language}` and `{wpm}`, words per minute, in its arguments are replaced
    #[arg(long, env, requires = "tts_kind", value_name = "ADDRESS")]
    pub tts_endpoint: Option<String>,

    /// Model of the synthesis
    #[arg(long, env, requires = "tts_kind", value_name = "NAME")]
    pub tts_model: Option<String>,

    /// Voice of characters that have none of their own
    #[arg(long, env, requires = "tts_kind", value_name = "NAME")]
    pub tts_voice: Option<String>,

    /// API key of the synthesis
    #[arg(long, env, hide_env_values = true)]
    pub tts_api_key: Option<SecretString>,

    /// JSON file with several providers in order of preference: `{"stt": [{"name": …, "kind": …,
    /// "endpoint": …, "model": …, "key_env": …}], "tts": […]}`; the next one is used when one fails
    #[arg(long, env, value_name = "FILE")]
    pub speech_file: Option<PathBuf>,
}

/// The interface of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// `POST /audio/transcriptions` and `POST /audio/speech` below a base URL.
    Openai,
    /// Recognition over a WebSocket, as OpenAI and vLLM offer it.
    Realtime,
    /// The Wyoming protocol over TCP.
    Wyoming,
    /// A program, started for each utterance or sentence.
    Command,
}

/// Why the configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the file of speech providers {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the file of speech providers {path} is invalid: {source}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A provider is invalid.
    #[error("the speech provider `{name}` is invalid: {reason}")]
    Provider {
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The variable with the key of a provider is absent.
    #[error(
        "the speech provider `{name}` is invalid: the environment variable {variable} is not set"
    )]
    NoKey {
        /// The name of the provider.
        name: String,
        /// The variable that `key_env` names.
        variable: String,
    },
    /// TLS is not available.
    #[error("TLS is not available: {0}")]
    Tls(String),
    /// Two providers have one name.
    #[error("cannot create the metrics of speech providers: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// One provider, as configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderSettings {
    pub(crate) name: String,
    pub(crate) kind: ProviderKind,
    pub(crate) endpoint: String,
    #[serde(default)]
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) voice: Option<String>,
    /// Recognition only: whether it may be requested before the utterance is over.
    #[serde(default)]
    pub(crate) early: Option<bool>,
    #[serde(default)]
    key_env: Option<String>,
    #[serde(skip)]
    pub(crate) key: Option<SecretString>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    stt: Vec<ProviderSettings>,
    #[serde(default)]
    tts: Vec<ProviderSettings>,
}

/// The providers of one direction, in order.
pub(crate) struct Settings {
    pub(crate) stt: Vec<ProviderSettings>,
    pub(crate) tts: Vec<ProviderSettings>,
}

/// The name of the provider of the flags.
const DEFAULT_NAME: &str = "default";
/// The program that speaks where no provider is configured.
const ESPEAK: &str = "espeak-ng";

impl Settings {
    /// Reads the flags, the file and the environment.
    pub(crate) fn load(config: &Config) -> Result<Self, ConfigError> {
        let mut settings = match &config.speech_file {
            Some(path) => read(path)?,
            None => File::default(),
        };
        let provider = |kind, endpoint: &Option<String>, model, voice, key| {
            Some(ProviderSettings {
                name: DEFAULT_NAME.to_owned(),
                kind,
                endpoint: endpoint.clone()?,
                model,
                voice,
                early: None,
                key_env: None,
                key,
            })
        };
        let stt = config.stt_kind.and_then(|kind| {
            let (model, key) = (config.stt_model.clone(), config.stt_api_key.clone());
            let stt = provider(kind, &config.stt_endpoint, model, None, key);
            stt.map(|stt| ProviderSettings {
                early: config.stt_early,
                ..stt
            })
        });
        let tts = config.tts_kind.and_then(|kind| {
            let (model, voice) = (config.tts_model.clone(), config.tts_voice.clone());
            let key = config.tts_api_key.clone();
            provider(kind, &config.tts_endpoint, model, voice, key)
        });
        settings.stt.splice(0..0, stt);
        settings.tts.splice(0..0, tts);
        if settings.tts.is_empty() && which::which(ESPEAK).is_ok() {
            settings.tts.extend(provider(
                ProviderKind::Command,
                &Some(format!(
                    "{ESPEAK} --stdout --stdin -v {{language}} -s {{wpm}}"
                )),
                None,
                None,
                None,
            ));
        }
        if let Some(provider) = settings
            .tts
            .iter()
            .find(|provider| provider.kind == ProviderKind::Realtime)
        {
            return Err(ConfigError::Provider {
                name: provider.name.clone(),
                reason: "the kind `realtime` recognises speech; one of `openai`, `wyoming` and \
                         `command` speaks"
                    .to_owned(),
            });
        }
        for provider in settings.stt.iter_mut().chain(&mut settings.tts) {
            if let Some(variable) = &provider.key_env {
                let key = std::env::var(variable).map_err(|_| ConfigError::NoKey {
                    name: provider.name.clone(),
                    variable: variable.clone(),
                })?;
                provider.key = Some(key.into());
            }
        }
        Ok(Self {
            stt: settings.stt,
            tts: settings.tts,
        })
    }
}

fn read(path: &PathBuf) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
        path: path.clone(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|source| ConfigError::Malformed {
        path: path.clone(),
        source,
    })
}
