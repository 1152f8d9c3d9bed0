//! `switchboard skills`: sends, lists, searches and removes skills books.
//! Never: a file held in memory, or a book called ready before it can be searched.

mod upload;

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use http::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::{Api, ApiArguments},
    exit::{self, Failure},
};

/// How many books a page of the list has.
const PAGE: u16 = 200;

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
    id: String,
    #[command(flatten)]
    api: ApiArguments,
}

#[derive(Debug, clap::Args)]
struct Search {
    /// Which skills book: skb_…
    #[arg(value_name = "ID")]
    id: String,
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

/// A page of the list.
#[derive(Deserialize)]
struct Page {
    skills_books: Vec<Value>,
    next_cursor: Option<String>,
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
            let book = get(&one.api.connect()?, &path(&one.id)?).await?;
            exit::print(&format!("{book:#}"))?;
        }
        Command::Search(search) => find(&search).await?,
        Command::Delete(one) => {
            let api = one.api.connect()?;
            let path = path(&one.id)?;
            let deleted = api.send::<Value>(Method::DELETE, &path, Vec::new()).await;
            deleted.map_err(Failure::general)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(listing: &Listing) -> Result<(), Failure> {
    let api = listing.api.connect()?;
    let mut books = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/skills-books?limit={PAGE}{cursor}");
        let page = api.send(Method::GET, &path, Vec::new()).await;
        let page: Page = page.map_err(Failure::general)?;
        books.extend(page.skills_books);
        let Some(next) = page.next_cursor else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    if listing.json {
        return exit::print(&Value::from(books).to_string());
    }
    books.iter().try_for_each(|book| exit::print(&line(book)))
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
    let api = search.api.connect()?;
    let question = encoded(&search.question);
    let path = format!(
        "{}/search?q={question}&limit={}",
        path(&search.id)?,
        search.limit
    );
    let answer = get(&api, &path).await?;
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

async fn get(api: &Api, path: &str) -> Result<Value, Failure> {
    api.send(Method::GET, path, Vec::new())
        .await
        .map_err(Failure::general)
}

fn path(id: &str) -> Result<String, Failure> {
    let is_id = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_id && !id.is_empty() {
        return Ok(format!("/v1/skills-books/{id}"));
    }
    Err(Failure::usage(format!(
        "{id} is no id of a skills book; it looks like skb_…"
    )))
}

/// A text as a value of the query string.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            // Writing to a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_survives_the_query_string() {
        assert_eq!(encoded("a&b=ü c"), "a%26b%3D%C3%BC%20c");
        assert!(path("skb_0/../x").is_err());
        assert_eq!(path("skb_01").unwrap(), "/v1/skills-books/skb_01");
    }
}
