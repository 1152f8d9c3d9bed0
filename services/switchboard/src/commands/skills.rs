//! `switchboard skills`: skills books of an organisation.

mod upload;

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_protocol::id::SkillsBookId;

use crate::{
    api::ApiArguments,
    collection::{Collection, CreateArguments, ListArguments},
    exit::{self, Failure},
    query::percent_encode,
};

const SKILLS_BOOKS: Collection = Collection {
    command: "skills",
    path: "/v1/skills-books",
    member: "skills_books",
    page: 200,
};

/// Manages skills books, the documents that NPCs search.
///
/// Exit codes: 0 done, 1 refused, not reachable, or the document cannot be parsed, 64 invalid
/// settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Uploads a file and waits until it can be searched
    Upload(Upload),
    /// Lists skills books: id, state, progress in percent and name, separated by tabs
    List(ListArguments),
    /// Shows a skills book as JSON
    Show(One),
    /// Searches a skills book
    Search(Search),
    /// Deletes a skills book that no template uses
    Delete(One),
}

/// Arguments of `upload`.
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

#[derive(Debug, clap::Args)]
struct One {
    /// Id of the skills book: skb_…
    #[arg(value_name = "ID")]
    id: SkillsBookId,
    #[command(flatten)]
    api: ApiArguments,
}

#[derive(Debug, clap::Args)]
struct Search {
    /// Id of the skills book: skb_…
    #[arg(value_name = "ID")]
    id: SkillsBookId,
    /// Search words or a question
    #[arg(value_name = "QUESTION")]
    question: String,
    /// Maximum number of chunks
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    limit: u16,
    /// Print the response as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The members of a skills book that `list` prints.
#[derive(Deserialize)]
struct SkillsBookSummary {
    id: SkillsBookId,
    state: String,
    progress: f64,
    name: String,
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

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Upload(upload) => upload::run(&upload).await?,
        Command::List(listing) => SKILLS_BOOKS.list(&listing, &[], line).await?,
        Command::Show(one) => SKILLS_BOOKS.show(&one.api, one.id).await?,
        Command::Search(query) => search(&query).await?,
        Command::Delete(one) => SKILLS_BOOKS.remove(&one.api, one.id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn line(book: SkillsBookSummary) -> String {
    let SkillsBookSummary {
        id,
        state,
        progress,
        name,
    } = book;
    format!("{id}\t{state}\t{:.0}\t{name}", progress * 100.0)
}

async fn search(query: &Search) -> Result<(), Failure> {
    let path = format!(
        "{}/search?q={}&limit={}",
        SKILLS_BOOKS.element_path(query.id),
        percent_encode(&query.question),
        query.limit
    );
    let answer = query.api.connect()?.get(&path).await;
    let answer: Box<RawValue> = answer.map_err(Failure::general)?;
    if query.json {
        return exit::print_json_line(&answer);
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
