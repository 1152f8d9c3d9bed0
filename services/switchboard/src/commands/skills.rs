//! `switchboard skills`: sends, lists, searches and removes skills books.
//! Never: a file held in memory, or a book called ready before it can be searched.

mod upload;

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use switchboard_protocol::id::SkillsBookId;

use crate::{
    api::ApiArguments,
    collection::Collection,
    exit::{self, Failure},
    query::encoded,
};

const SKILLS_BOOKS: Collection = Collection {
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
    /// Lists the skills books, a line each: id, state, progress, name
    List(Listing),
    /// Shows one skills book as JSON
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
    api: ApiArguments,
}

#[derive(Debug, clap::Args)]
struct Listing {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
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
        Command::List(listing) => list(&listing).await?,
        Command::Show(one) => {
            let book = get(&one.api, &SKILLS_BOOKS.at(one.id)).await?;
            exit::print(&format!("{book:#}"))?;
        }
        Command::Search(search) => find(&search).await?,
        Command::Delete(one) => SKILLS_BOOKS.remove(&one.api, one.id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(listing: &Listing) -> Result<(), Failure> {
    let api = listing.api.connect()?;
    let mut books: Vec<Box<RawValue>> = Vec::new();
    let take = |book: Box<RawValue>| {
        if !listing.json {
            let book = serde_json::from_str(book.get()).map_err(Failure::general)?;
            return exit::print(&line(&book));
        }
        books.push(book);
        Ok(())
    };
    SKILLS_BOOKS.each(&api, &[], take).await?;
    if !listing.json {
        return Ok(());
    }
    let books = serde_json::to_string(&books).map_err(Failure::general)?;
    exit::print(&books)
}

fn line(book: &Value) -> String {
    let text = |field: &str| book[field].as_str().unwrap_or_default().to_owned();
    let progress = book["progress"].as_f64().unwrap_or_default() * 100.0;
    format!(
        "{}  {:9}  {progress:3.0} %  {}",
        text("id"),
        text("state"),
        text("name")
    )
}

async fn find(search: &Search) -> Result<(), Failure> {
    let path = format!(
        "{}/search?q={}&limit={}",
        SKILLS_BOOKS.at(search.id),
        encoded(&search.question),
        search.limit
    );
    let answer = get(&search.api, &path).await?;
    if search.json {
        return exit::print(&answer.to_string());
    }
    let found: Found = serde_json::from_value(answer).map_err(Failure::general)?;
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

async fn get(api: &ApiArguments, path: &str) -> Result<Value, Failure> {
    api.connect()?.get(path).await.map_err(Failure::general)
}
