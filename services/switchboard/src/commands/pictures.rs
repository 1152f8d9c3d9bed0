//! `switchboard pictures`: pictures of an organisation. The API validates all input.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use http::{HeaderMap, Method};
use serde::Deserialize;
use switchboard_protocol::id::PictureId;

use crate::{
    api::{ApiArguments, ApiRequest},
    collection::{Collection, CreateArguments, ListArguments},
    exit::Failure,
    files::{self, MAX_FILE_BYTES},
    query::percent_encode,
};

const PICTURES: Collection = Collection {
    command: "pictures",
    path: "/v1/pictures",
    member: "pictures",
    page: 200,
};

/// Manages pictures.
///
/// Exit codes: 0 done, 1 refused or not reachable, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Upload(Upload),
    /// Lists pictures: id, name, type, size in pixels and size in bytes, separated by tabs
    List(ListArguments),
    /// Shows the metadata of a picture as JSON
    Show(One),
    Download(Download),
    /// Deletes a picture that no template or NPC uses
    Delete(One),
}

/// Uploads a picture and prints its id.
#[derive(Debug, clap::Args)]
struct Upload {
    /// PNG, JPEG, GIF or WebP file; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the picture. Default: its id
    #[arg(long)]
    name: Option<String>,
    /// URI of the picture for agents. Default: derived from its id
    #[arg(long)]
    uri: Option<String>,
    #[command(flatten)]
    create: CreateArguments,
}

/// Downloads a picture.
#[derive(Debug, clap::Args)]
struct Download {
    /// Id of the picture
    id: PictureId,
    /// Output file. Default: stdout
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    api: ApiArguments,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Id of the picture
    id: PictureId,
    #[command(flatten)]
    api: ApiArguments,
}

/// The members of a picture that `list` prints.
#[derive(Deserialize)]
struct PictureSummary {
    id: PictureId,
    name: String,
    mime_type: String,
    width: u32,
    height: u32,
    size_bytes: u64,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.action {
        Action::Upload(upload) => upload_picture(&upload).await,
        Action::List(listing) => PICTURES.list(&listing, &[], line).await,
        Action::Show(one) => PICTURES.show(&one.api, one.id).await,
        Action::Download(download) => download_picture(&download).await,
        Action::Delete(one) => PICTURES.remove(&one.api, one.id).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

fn line(picture: PictureSummary) -> String {
    let PictureSummary {
        id,
        name,
        mime_type,
        width,
        height,
        size_bytes,
    } = picture;
    format!("{id}\t{name}\t{mime_type}\t{width}x{height}\t{size_bytes}")
}

async fn upload_picture(upload: &Upload) -> Result<(), Failure> {
    let body = files::read_input(&upload.file, MAX_FILE_BYTES)?;
    let mut path = PICTURES.path.to_owned();
    let given = [("name", &upload.name), ("uri", &upload.uri)];
    let given = given
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for ((name, value), sign) in given.zip(["?", "&"]) {
        // Writing to a `String` cannot fail.
        let _ = write!(path, "{sign}{name}={}", percent_encode(value));
    }
    upload.create.create_and_print(&path, body).await
}

async fn download_picture(download: &Download) -> Result<(), Failure> {
    let path = format!("{}/content", PICTURES.element_path(download.id));
    let sent = ApiRequest {
        method: Method::GET,
        path: &path,
        headers: HeaderMap::new(),
        body: Vec::new(),
    };
    let picture = download.api.connect()?.bytes(sent).await;
    let picture = picture.map_err(Failure::general)?;
    files::write_output(download.file.as_deref(), &picture)
}
