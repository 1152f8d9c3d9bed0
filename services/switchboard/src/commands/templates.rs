//! `switchboard templates`: what an organisation's characters are made from, also as character cards.
//! Never: a rule of the API's repeated here; what it refuses, it explains.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use http::{HeaderValue, Method, header};
use serde::Deserialize;
use switchboard_protocol::id::TemplateId;

use crate::{
    api::{ApiArguments, Sent},
    collection::{ChangeArguments, Collection, CreateArguments, ListArguments},
    exit::Failure,
    files::{self, LARGEST_FILE},
};

const TEMPLATES: Collection = Collection {
    command: "templates",
    path: "/v1/templates",
    member: "templates",
    page: 20,
};

/// Shows, makes, changes and removes templates, and moves them as character cards.
///
/// Exit codes: 0 done, 1 refused or not reachable, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    List(Listing),
    /// Prints a template as JSON
    Show(One),
    Create(Creation),
    Edit(Edit),
    /// Removes a template and its memories
    Delete(One),
    Export(Export),
    Import(Import),
}

/// Prints a line for each template: id, name, visibility and version, with tabs between them.
#[derive(Debug, clap::Args)]
struct Listing {
    /// Only those that every organisation sees
    #[arg(long)]
    public: bool,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Which template
    id: TemplateId,
    #[command(flatten)]
    api: ApiArguments,
}

/// Makes a template and prints its id.
#[derive(Debug, clap::Args)]
struct Creation {
    /// A file with its settings as JSON, with a `name`; - is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    create: CreateArguments,
}

/// Changes a template by a JSON merge patch (RFC 7396), and prints it as it is then.
#[derive(Debug, clap::Args)]
struct Edit {
    /// Which template
    id: TemplateId,
    #[command(flatten)]
    change: ChangeArguments,
}

/// Writes a template as a Character Card V2.
#[derive(Debug, clap::Args)]
struct Export {
    /// Which template
    id: TemplateId,
    /// Where to; a name that ends in .png makes it the avatar with the card inside, else it is JSON; stdout when not set
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    api: ApiArguments,
}

/// Makes a template from a Character Card V2, JSON or PNG, and prints its id.
#[derive(Debug, clap::Args)]
struct Import {
    /// The card; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    create: CreateArguments,
}

/// What a line says of a template.
#[derive(Deserialize)]
struct Listed {
    id: TemplateId,
    name: String,
    visibility: String,
    version: u64,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.action {
        Action::List(listing) => {
            let public = listing.public.then(|| "public".to_owned());
            TEMPLATES
                .list(&listing.list, &[("visibility", public)], line)
                .await
        }
        Action::Show(one) => TEMPLATES.show(&one.api, one.id).await,
        Action::Create(creation) => make(TEMPLATES.path, &creation.file, &creation.create).await,
        Action::Edit(edit) => TEMPLATES.edit(edit.id, &edit.change).await,
        Action::Delete(one) => TEMPLATES.remove(&one.api, one.id).await,
        Action::Export(export) => write_card(&export).await,
        Action::Import(import) => make(&TEMPLATES.at("import"), &import.file, &import.create).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

fn line(template: Listed) -> String {
    let Listed {
        id,
        name,
        visibility,
        version,
    } = template;
    format!("{id}\t{name}\t{visibility}\t{version}")
}

async fn make(path: &str, file: &Path, create: &CreateArguments) -> Result<(), Failure> {
    create
        .make(path, files::read_input(file, LARGEST_FILE)?)
        .await
}

async fn write_card(export: &Export) -> Result<(), Failure> {
    let is_png = export.file.as_ref().is_some_and(|file| {
        let ending = file.extension().unwrap_or_default();
        ending.eq_ignore_ascii_case("png")
    });
    let accept = if is_png {
        "image/png"
    } else {
        "application/json"
    };
    let path = format!("{}/export?format=card_v2", TEMPLATES.at(export.id));
    let sent = Sent {
        method: Method::GET,
        path: &path,
        headers: [(header::ACCEPT, HeaderValue::from_static(accept))]
            .into_iter()
            .collect(),
        body: Vec::new(),
    };
    let card = export.api.connect()?.bytes(sent).await;
    let card = card.map_err(Failure::general)?;
    files::write_output(export.file.as_deref(), &card)
}
