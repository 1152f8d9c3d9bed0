//! `switchboard voices upload` and `train`. An upload requires the consent of the speaker.

mod upload;

use std::{path::PathBuf, process::ExitCode};

use chrono::{DateTime, Utc};
use clap_complete::ArgValueCandidates;
use http::Method;
use serde_json::value::RawValue;
use switchboard_protocol::id::VoiceId;

use crate::{
    api::{Api, ApiArguments},
    exit::Failure,
    output::FormatArguments,
    resources::{self, CreateArguments, JobWatch, complete_ids, table::VOICES},
};

/// States that a voice leaves by itself.
const TRANSIENT_STATES: &[&str] = &["uploaded", "training"];

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Upload(Box<Upload>),
    Train(Train),
}

/// Uploads a sample and waits until the voice is ready.
///
/// Exit codes: 0 done, 1 refused, not reachable, or the voice cannot be created, 64 invalid
/// settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Upload {
    /// Sample of 1 second to 5 minutes: WAV, MP3, FLAC, or Opus or Vorbis in Ogg; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the voice. Default: the file name; required for stdin
    #[arg(long)]
    name: Option<String>,
    /// Statement to which the speaker agreed
    #[arg(long, value_name = "STATEMENT")]
    consent: String,
    /// Name of the speaker
    #[arg(long, value_name = "WHO")]
    consent_by: String,
    /// When the speaker agreed, for example 2026-01-02T03:04:05Z. Default: now
    #[arg(long, value_name = "TIME")]
    consent_agreed_at: Option<DateTime<Utc>>,
    /// When the consent expires. Default: never
    #[arg(long, value_name = "TIME")]
    consent_expires_at: Option<DateTime<Utc>>,
    /// Language of the voice, for example de-DE; can be repeated
    #[arg(long, value_name = "TAG", value_delimiter = ',', num_args = 1)]
    language: Vec<String>,
    /// Label of the voice; can be repeated
    #[arg(long, value_name = "WORD", value_delimiter = ',', num_args = 1)]
    label: Vec<String>,
    /// Provider that creates the voice: embedded, or http or openai if the operator has configured it
    #[arg(long, value_name = "NAME", default_value = "embedded")]
    provider: String,
    /// Return when the sample is uploaded
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    create: CreateArguments,
}

/// Creates a voice again from its sample, and waits until it is ready.
///
/// Exit codes: 0 done, 1 refused, not reachable, or the voice cannot be created, 64 invalid
/// settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Train {
    /// Id or name of the voice
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&VOICES)))]
    id: String,
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

impl resources::Action for Action {
    async fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Upload(upload) => upload::run(&upload).await,
            Self::Train(one) => train(&one).await,
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn train(one: &Train) -> Result<(), Failure> {
    let api = one.api.connect()?;
    let id: VoiceId = VOICES.resolve_as(&api, &one.id).await?;
    let train = format!("{}/train", VOICES.element_path(id));
    let begun = api.send(Method::POST, &train, Vec::new()).await;
    wait_and_print(&api, begun.map_err(Failure::general)?, one.format).await
}

/// Waits until a voice is ready or has failed, and prints it.
async fn wait_and_print(
    api: &Api,
    voice: Box<RawValue>,
    format: FormatArguments,
) -> Result<(), Failure> {
    let watch = JobWatch {
        api,
        resource: &VOICES,
        transient_states: TRANSIENT_STATES,
    };
    format.print(&watch.wait(voice, |_| ()).await?)
}
