//! `switchboard pictures`: what templates show, sent and fetched as files.
//! Never: a picture judged here; the API reads what it is.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use http::{HeaderMap, Method};
use serde::Deserialize;
use switchboard_protocol::id::PictureId;

use crate::{
    api::{ApiArguments, Sent},
    collection::{Collection, CreateArguments, ListArguments},
    exit::Failure,
    files::{self, LARGEST_FILE},
    query::encoded,
};

const PICTURES: Collection = Collection {
    command: "pictures",
    path: "/v1/pictures",
    member: "pictures",
    page: 200,
};

/// Sends, lists, fetches and removes pictures.
///
/// Exit codes: 0 done, 1 refused or not reachable, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Upload(Upload),
    /// Prints a line for each picture: id, name, type, size in pixels and in bytes, with tabs between them
    List(ListArguments),
    /// Prints what is known of a picture as JSON
    Show(One),
    Download(Download),
    /// Removes a picture that no template and no NPC shows
    Delete(One),
}

/// Sends a picture and prints its id.
#[derive(Debug, clap::Args)]
struct Upload {
    /// PNG, JPEG, GIF or WebP; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What people call it; its id when not set
    #[arg(long)]
    name: Option<String>,
    /// Where agents read it; by its id when not set
    #[arg(long)]
    uri: Option<String>,
    #[command(flatten)]
    create: CreateArguments,
}

/// Writes the picture itself.
#[derive(Debug, clap::Args)]
struct Download {
    /// Which picture
    id: PictureId,
    /// Where to; stdout when not set
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    api: ApiArguments,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Which picture
    id: PictureId,
    #[command(flatten)]
    api: ApiArguments,
}

/// What a line says of a picture.
#[derive(Deserialize)]
struct Listed {
    id: PictureId,
    name: String,
    mime_type: String,
    width: u32,
    height: u32,
    size_bytes: u64,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.action {
        Action::Upload(upload) => send(&upload).await,
        Action::List(listing) => PICTURES.list(&listing, &[], line).await,
        Action::Show(one) => PICTURES.show(&one.api, one.id).await,
        Action::Download(download) => fetch(&download).await,
        Action::Delete(one) => PICTURES.remove(&one.api, one.id).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

fn line(picture: Listed) -> String {
    let Listed {
        id,
        name,
        mime_type,
        width,
        height,
        size_bytes,
    } = picture;
    format!("{id}\t{name}\t{mime_type}\t{width}x{height}\t{size_bytes}")
}

async fn send(upload: &Upload) -> Result<(), Failure> {
    let body = files::read_input(&upload.file, LARGEST_FILE)?;
    let mut path = PICTURES.path.to_owned();
    let given = [("name", &upload.name), ("uri", &upload.uri)];
    let given = given
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for ((name, value), sign) in given.zip(["?", "&"]) {
        // Writing to a String does not fail.
        let _ = write!(path, "{sign}{name}={}", encoded(value));
    }
    upload.create.make(&path, body).await
}

async fn fetch(download: &Download) -> Result<(), Failure> {
    let path = format!("{}/content", PICTURES.at(download.id));
    let sent = Sent {
        method: Method::GET,
        path: &path,
        headers: HeaderMap::new(),
        body: Vec::new(),
    };
    let picture = download.api.connect()?.bytes(sent).await;
    let picture = picture.map_err(Failure::general)?;
    files::write_output(download.file.as_deref(), &picture)
}
