//! `switchboard templates`: templates of NPCs, and their exchange as character cards. The API
//! validates all input.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use http::{HeaderValue, Method, header};
use serde::Deserialize;
use switchboard_protocol::id::TemplateId;

use crate::{
    api::{ApiArguments, ApiRequest},
    collection::{ChangeArguments, Collection, CreateArguments, ListArguments},
    exit::Failure,
    files::{self, MAX_FILE_BYTES},
};

const TEMPLATES: Collection = Collection {
    command: "templates",
    path: "/v1/templates",
    member: "templates",
    page: 20,
};

/// Manages templates, from which NPCs are created, and exchanges them as character cards.
///
/// Exit codes: 0 done, 1 refused or not reachable, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    List(Listing),
    /// Shows a template as JSON
    Show(One),
    Create(CreateOptions),
    Edit(Edit),
    /// Deletes a template and its memories
    Delete(One),
    Export(Export),
    Import(Import),
}

/// Lists templates: id, name, visibility and version, separated by tabs.
#[derive(Debug, clap::Args)]
struct Listing {
    /// Only templates visible to all organisations
    #[arg(long)]
    public: bool,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, clap::Args)]
struct One {
    /// Id of the template
    id: TemplateId,
    #[command(flatten)]
    api: ApiArguments,
}

/// Creates a template and prints its id.
#[derive(Debug, clap::Args)]
struct CreateOptions {
    /// JSON file with the settings, including `name`; - is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    create: CreateArguments,
}

/// Changes a template with a JSON merge patch (RFC 7396) and prints the result.
#[derive(Debug, clap::Args)]
struct Edit {
    /// Id of the template
    id: TemplateId,
    #[command(flatten)]
    change: ChangeArguments,
}

/// Exports a template as a Character Card V2.
#[derive(Debug, clap::Args)]
struct Export {
    /// Id of the template
    id: TemplateId,
    /// Output file; .png embeds the card in the avatar, otherwise it is JSON. Default: stdout
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    api: ApiArguments,
}

/// Creates a template from a Character Card V2 (JSON or PNG) and prints its id.
#[derive(Debug, clap::Args)]
struct Import {
    /// Card file; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    create: CreateArguments,
}

/// The members of a template that `list` prints.
#[derive(Deserialize)]
struct TemplateSummary {
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
        Action::Create(creation) => create(TEMPLATES.path, &creation.file, &creation.create).await,
        Action::Edit(edit) => TEMPLATES.edit(edit.id, &edit.change).await,
        Action::Delete(one) => TEMPLATES.remove(&one.api, one.id).await,
        Action::Export(export) => write_card(&export).await,
        Action::Import(import) => {
            create(
                &TEMPLATES.element_path("import"),
                &import.file,
                &import.create,
            )
            .await
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

fn line(template: TemplateSummary) -> String {
    let TemplateSummary {
        id,
        name,
        visibility,
        version,
    } = template;
    format!("{id}\t{name}\t{visibility}\t{version}")
}

async fn create(path: &str, file: &Path, arguments: &CreateArguments) -> Result<(), Failure> {
    arguments
        .create_and_print(path, files::read_input(file, MAX_FILE_BYTES)?)
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
    let path = format!(
        "{}/export?format=card_v2",
        TEMPLATES.element_path(export.id)
    );
    let sent = ApiRequest {
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
