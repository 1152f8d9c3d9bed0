//! `switchboard voices`: voices of an organisation. An upload requires the consent of the speaker.

mod upload;

use std::{path::PathBuf, process::ExitCode};

use chrono::{DateTime, Utc};
use http::Method;
use serde_json::{Value, value::RawValue};
use switchboard_protocol::id::VoiceId;

use crate::{
    api::{Api, ApiArguments},
    collection::{Collection, CreateArguments, JobWatch, ListArguments},
    exit::{self, Failure},
};

const VOICES: Collection = Collection {
    command: "voices",
    path: "/v1/voices",
    member: "voices",
    page: 200,
};
/// States that a voice leaves by itself.
const TRANSIENT_STATES: &[&str] = &["uploaded", "training"];

/// Manages voices, created from recorded samples.
///
/// Exit codes: 0 done, 1 refused, not reachable, or the voice cannot be created, 64 invalid
/// settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Uploads a sample and waits until the voice is ready
    Upload(Upload),
    /// Lists voices: id, state, provider, languages and name, separated by tabs
    List(Listing),
    /// Shows a voice as JSON
    Show(One),
    /// Creates a voice again from its sample, and waits until it is ready
    Train(One),
    /// Deletes a voice that no template or NPC uses, and its sample
    Delete(One),
}

/// Arguments of `upload`.
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

#[derive(Debug, clap::Args)]
struct Listing {
    /// Only voices in this state: uploaded, training, ready, failed or expired
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only voices with this language
    #[arg(long, value_name = "TAG")]
    language: Option<String>,
    /// Only voices of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Id of the voice: voice_…
    #[arg(value_name = "ID")]
    id: VoiceId,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Upload(upload) => upload::run(&upload).await?,
        Command::List(listing) => list(listing).await?,
        Command::Show(one) => VOICES.show(&one.api, one.id).await?,
        Command::Train(one) => {
            let api = one.api.connect()?;
            let train = format!("{}/train", VOICES.element_path(one.id));
            let begun = api.send(Method::POST, &train, Vec::new()).await;
            wait_and_print(&api, begun.map_err(Failure::general)?).await?;
        }
        Command::Delete(one) => VOICES.remove(&one.api, one.id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(listing: Listing) -> Result<(), Failure> {
    let filters = [
        ("state", listing.state),
        ("language", listing.language),
        ("provider", listing.provider),
    ];
    VOICES.list(&listing.list, &filters, line).await
}

fn line(voice: Value) -> String {
    let text = |field: &str| voice[field].as_str().unwrap_or_default().to_owned();
    let languages = voice["languages"].as_array().into_iter().flatten();
    let languages: Vec<_> = languages.filter_map(Value::as_str).collect();
    [
        text("id"),
        text("state"),
        text("provider"),
        languages.join(","),
        text("name"),
    ]
    .join("\t")
}

/// Waits until a voice is ready or has failed, and prints it.
async fn wait_and_print(api: &Api, voice: Box<RawValue>) -> Result<(), Failure> {
    let watch = JobWatch {
        api,
        collection: &VOICES,
        transient_states: TRANSIENT_STATES,
    };
    exit::print_json(&watch.wait(voice, |_| ()).await?)
}
