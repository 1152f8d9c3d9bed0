//! `switchboard voices`: sends, lists, shows, makes again and removes voices.
//! Never: a voice sent without saying who agreed to it.

mod upload;

use std::{path::PathBuf, process::ExitCode};

use chrono::{DateTime, Utc};
use http::Method;
use serde_json::{Value, value::RawValue};
use switchboard_protocol::id::VoiceId;

use crate::{
    api::{Api, ApiArguments},
    collection::{Collection, CreateArguments, ListArguments, Settling, print_document},
    exit::Failure,
};

const VOICES: Collection = Collection {
    command: "voices",
    path: "/v1/voices",
    member: "voices",
    page: 200,
};
/// The states that a voice leaves by itself.
const PASSING: &[&str] = &["uploaded", "training"];

/// Sends samples of how somebody sounds, for characters to speak with.
///
/// Exit codes: 0 done, 1 refused, not reachable, or the voice cannot be made, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Sends a sample and waits until the voice is ready
    Upload(Upload),
    /// Prints a line for each voice: id, state, provider, languages, name, with tabs between them
    List(Listing),
    /// Shows one voice as JSON
    Show(One),
    /// Has a voice made again from its sample, and waits until it is ready
    Train(One),
    /// Removes a voice that nobody speaks with, and its sample
    Delete(One),
}

/// What is sent, and what is said of it.
#[derive(Debug, clap::Args)]
pub(crate) struct Upload {
    /// 1 second to 5 minutes as WAV, MP3, FLAC, or Opus or Vorbis in Ogg; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What people call it; the file's name when not set; stdin has none
    #[arg(long)]
    name: Option<String>,
    /// What the person agreed to whose voice it is
    #[arg(long, value_name = "STATEMENT")]
    consent: String,
    /// Whose voice it is
    #[arg(long, value_name = "WHO")]
    consent_by: String,
    /// When they agreed, as 2026-01-02T03:04:05Z; now when not set
    #[arg(long, value_name = "TIME")]
    consent_agreed_at: Option<DateTime<Utc>>,
    /// From when on the voice must not be used any more; never when not set
    #[arg(long, value_name = "TIME")]
    consent_expires_at: Option<DateTime<Utc>>,
    /// What it speaks, as a tag like de-DE; can be given several times
    #[arg(long, value_name = "TAG", value_delimiter = ',', num_args = 1)]
    language: Vec<String>,
    /// A word to find it by; can be given several times
    #[arg(long, value_name = "WORD", value_delimiter = ',', num_args = 1)]
    label: Vec<String>,
    /// Who makes it: embedded, or http where the operator has set one
    #[arg(long, value_name = "NAME", default_value = "embedded")]
    provider: String,
    /// Return as soon as it is sent
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    create: CreateArguments,
}

#[derive(Debug, clap::Args)]
struct Listing {
    /// Only those in this state: uploaded, training, ready, failed or expired
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only those that speak this language
    #[arg(long, value_name = "TAG")]
    language: Option<String>,
    /// Only those that this provider makes
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Which voice: voice_…
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
            let train = format!("{}/train", VOICES.at(one.id));
            let begun = api.send(Method::POST, &train, Vec::new()).await;
            settled(&api, begun.map_err(Failure::general)?).await?;
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

/// Waits until a voice can be spoken with, or will not be, and prints it.
async fn settled(api: &Api, voice: Box<RawValue>) -> Result<(), Failure> {
    let settling = Settling {
        api,
        of: &VOICES,
        passing: PASSING,
    };
    print_document(&settling.settled(voice, |_| ()).await?)
}
