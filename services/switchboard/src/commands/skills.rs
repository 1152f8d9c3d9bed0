//! `switchboard skills upload` and `search`: skills books of an organisation.

mod upload;

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap_complete::ArgValueCandidates;
use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_protocol::id::SkillsBookId;

use crate::{
    api::ApiArguments,
    exit::{self, Failure},
    output::FormatArguments,
    query::percent_encode,
    resources::{self, CreateArguments, complete_ids, table::SKILLS},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Upload(Upload),
    Search(Search),
}

/// Uploads a file and waits until it can be searched.
///
/// Exit codes: 0 done, 1 refused, not reachable, or the document cannot be parsed, 64 invalid
/// settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Upload {
    /// Text, Markdown, HTML or PDF file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the skills book. Default: the file name
    #[arg(long)]
    name: Option<String>,
    /// text/plain, text/markdown, text/html or application/pdf. Default: from the file name
    #[arg(long, value_name = "TYPE")]
    mime_type: Option<String>,
    /// Language of the document, for example de or zh-Hans-CN
    #[arg(long, default_value = "en")]
    locale: String,
    /// Return when the upload is complete, without waiting for the indexing
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    create: CreateArguments,
}

/// Searches a skills book.
///
/// Prints the score and the place of each chunk, and its text.
///
/// Exit codes: 0 done, 1 refused or not reachable, 64 invalid settings.
#[derive(Debug, clap::Args)]
#[command(mut_arg("format", |argument| argument.help(
    "Print the response in this format. Default: text"
)))]
pub(crate) struct Search {
    /// Id or name of the skills book
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&SKILLS)))]
    id: String,
    /// Search words or a question
    #[arg(value_name = "QUESTION")]
    question: String,
    /// Maximum number of chunks
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    limit: u16,
    /// Print the response as JSON: the same as -o jsonl
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

/// The response of a search.
#[derive(Deserialize)]
struct SearchResponse {
    chunks: Vec<Chunk>,
}

#[derive(Deserialize)]
struct Chunk {
    score: f64,
    heading: Option<String>,
    page: Option<i32>,
    text: String,
}

impl resources::Action for Action {
    async fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Upload(upload) => upload::run(&upload).await,
            Self::Search(query) => search(&query).await,
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn search(query: &Search) -> Result<(), Failure> {
    let api = query.api.connect()?;
    let id: SkillsBookId = SKILLS.resolve_as(&api, &query.id).await?;
    let path = format!(
        "{}/search?q={}&limit={}",
        SKILLS.element_path(id),
        percent_encode(&query.question),
        query.limit
    );
    let answer = api.get(&path).await;
    let answer: Box<RawValue> = answer.map_err(Failure::general)?;
    let format = query.format.or_json(query.json);
    if format.is_given() {
        return format.print(&answer);
    }
    let response: SearchResponse = serde_json::from_str(answer.get()).map_err(Failure::general)?;
    response
        .chunks
        .iter()
        .try_for_each(|chunk| exit::print(&format_chunk(chunk)))
}

fn format_chunk(chunk: &Chunk) -> String {
    let mut place = format!("{:.3}", chunk.score);
    // Writing to a `String` cannot fail.
    if let Some(heading) = &chunk.heading {
        let _ = write!(place, "  {heading}");
    }
    if let Some(page) = chunk.page {
        let _ = write!(place, "  page {page}");
    }
    format!("{place}\n{}\n", chunk.text)
}
