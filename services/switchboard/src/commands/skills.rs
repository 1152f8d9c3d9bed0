//! `switchboard skills`: sends, lists, searches and removes skills books.
//! Never: a file held in memory, or a book called ready before it can be searched.

mod upload;

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_protocol::id::SkillsBookId;

use crate::{
    api::ApiArguments,
    collection::{Collection, CreateArguments, ListArguments},
    exit::{self, Failure},
    query::encoded,
};

const SKILLS_BOOKS: Collection = Collection {
    command: "skills",
    path: "/v1/skills-books",
    member: "skills_books",
    page: 200,
};

/// Sends documents that characters look things up in, and tries what is found in them.
///
/// Exit codes: 0 done, 1 refused, not reachable, or the document cannot be read, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Sends a file and waits until it can be searched
    Upload(Upload),
    /// Prints a line for each skills book: id, state, progress in percent, name, with tabs between them
    List(ListArguments),
    /// Prints a skills book as JSON
    Show(One),
    /// Finds what a skills book says about a question
    Search(Search),
    /// Removes a skills book that no template names
    Delete(One),
}

/// What is sent, and as what.
#[derive(Debug, clap::Args)]
pub(crate) struct Upload {
    /// Text, Markdown, HTML or PDF
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What people call it; the file's name when not set
    #[arg(long)]
    name: Option<String>,
    /// text/plain, text/markdown, text/html or application/pdf; from the file's name when not set
    #[arg(long, value_name = "TYPE")]
    mime_type: Option<String>,
    /// The language it is written in, as de or zh-Hans-CN
    #[arg(long, default_value = "en")]
    locale: String,
    /// Return as soon as all of it is sent
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    create: CreateArguments,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Which skills book: skb_…
    #[arg(value_name = "ID")]
    id: SkillsBookId,
    #[command(flatten)]
    api: ApiArguments,
}

#[derive(Debug, clap::Args)]
struct Search {
    /// Which skills book: skb_…
    #[arg(value_name = "ID")]
    id: SkillsBookId,
    /// Words, or a whole question
    #[arg(value_name = "QUESTION")]
    question: String,
    /// How many chunks at most
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    limit: u16,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// What a line says of a skills book.
#[derive(Deserialize)]
struct Listed {
    id: SkillsBookId,
    state: String,
    progress: f64,
    name: String,
}

/// What was found.
#[derive(Deserialize)]
struct Found {
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
        Command::Search(search) => find(&search).await?,
        Command::Delete(one) => SKILLS_BOOKS.remove(&one.api, one.id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn line(book: Listed) -> String {
    let Listed {
        id,
        state,
        progress,
        name,
    } = book;
    format!("{id}\t{state}\t{:.0}\t{name}", progress * 100.0)
}

async fn find(search: &Search) -> Result<(), Failure> {
    let path = format!(
        "{}/search?q={}&limit={}",
        SKILLS_BOOKS.at(search.id),
        encoded(&search.question),
        search.limit
    );
    let answer = search.api.connect()?.get(&path).await;
    let answer: Box<RawValue> = answer.map_err(Failure::general)?;
    if search.json {
        return exit::print(answer.get());
    }
    let found: Found = serde_json::from_str(answer.get()).map_err(Failure::general)?;
    found
        .chunks
        .iter()
        .try_for_each(|chunk| exit::print(&shown(chunk)))
}

fn shown(chunk: &Chunk) -> String {
    let mut place = format!("{:.3}", chunk.score);
    // Writing to a String does not fail.
    if let Some(heading) = &chunk.heading {
        let _ = write!(place, "  {heading}");
    }
    if let Some(page) = chunk.page {
        let _ = write!(place, "  page {page}");
    }
    format!("{place}\n{}\n", chunk.text)
}
