//! `switchboard templates export`: a template as a character card.

use std::{path::PathBuf, process::ExitCode};

use clap_complete::ArgValueCandidates;
use http::{HeaderValue, Method, header};
use switchboard_protocol::id::TemplateId;

use crate::{
    api::{ApiArguments, ApiRequest},
    exit::Failure,
    files,
    resources::{self, complete_ids, table::TEMPLATES},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Export(Export),
}

/// Exports a template as a Character Card V2.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Id or name of the template
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&TEMPLATES)))]
    id: String,
    /// Output file; .png embeds the card in the avatar, otherwise it is JSON. Default: stdout
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    api: ApiArguments,
}

impl resources::Action for Action {
    async fn run(self) -> Result<ExitCode, Failure> {
        let Self::Export(export) = self;
        write_card(&export).await?;
        Ok(ExitCode::SUCCESS)
    }
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
    let api = export.api.connect()?;
    let id: TemplateId = TEMPLATES.resolve_as(&api, &export.id).await?;
    let path = format!("{}/export?format=card_v2", TEMPLATES.element_path(id));
    let sent = ApiRequest {
        method: Method::GET,
        path: &path,
        headers: [(header::ACCEPT, HeaderValue::from_static(accept))]
            .into_iter()
            .collect(),
        body: Vec::new(),
    };
    let card = api.bytes(sent).await;
    let card = card.map_err(Failure::general)?;
    files::write_output(export.file.as_deref(), &card)
}
