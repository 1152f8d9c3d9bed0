//! `switchboard npcs`: an organisation's characters, and the devices they speak through.
//! Never: a rule of the API's repeated here; what it refuses, it explains.

use std::{io::IsTerminal as _, process::ExitCode};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_protocol::id::{DeviceId, NpcId, TemplateId};

use crate::{
    api::{Api, ApiArguments},
    exit::{self, Failure},
};

/// Shows, makes and removes NPCs: characters made from a template or on their own.
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
    Show(One),
    Create(Creation),
    Delete(One),
}

/// Prints a line for each NPC: id, name, template and devices, with tabs between them.
#[derive(Debug, clap::Args)]
struct Listing {
    /// Only those made from this template
    #[arg(long, value_name = "ID")]
    template: Option<TemplateId>,
    /// Only the one that speaks through this device
    #[arg(long, value_name = "ID")]
    device_id: Option<DeviceId>,
    /// Print each as a JSON object instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// Prints an NPC as JSON, or removes it with all that it remembers.
#[derive(Debug, clap::Args)]
struct One {
    /// Which NPC
    id: NpcId,
    #[command(flatten)]
    api: ApiArguments,
}

/// Makes an NPC and prints its id.
#[derive(Debug, clap::Args)]
struct Creation {
    /// What differs from the template, a JSON object; without a template all settings, with a `name`
    #[arg(default_value = "{}", value_name = "JSON", value_parser = overrides)]
    overrides: Box<RawValue>,
    /// What it is made from
    #[arg(long, value_name = "ID")]
    template: Option<TemplateId>,
    /// The version of the template to stay with; it follows the newest when not set
    #[arg(long, value_name = "NUMBER", requires = "template")]
    template_version: Option<i64>,
    /// A device that it speaks through; can be given several times
    #[arg(long, value_name = "ID", value_delimiter = ',', num_args = 1)]
    device_id: Vec<DeviceId>,
    #[command(flatten)]
    api: ApiArguments,
}

/// What is made, as the API takes it.
#[derive(Serialize)]
struct Document<'a> {
    template_id: Option<TemplateId>,
    template_version: Option<i64>,
    overrides: &'a RawValue,
    device_ids: &'a [DeviceId],
}

#[derive(Deserialize)]
struct Page {
    npcs: Vec<Box<RawValue>>,
    next_cursor: Option<NpcId>,
}

/// What a line says of an NPC.
#[derive(Deserialize)]
struct Listed {
    id: NpcId,
    template_id: Option<TemplateId>,
    device_ids: Vec<DeviceId>,
    effective: Effective,
}

#[derive(Deserialize)]
struct Effective {
    name: String,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.action {
        Action::List(listing) => list(&listing).await,
        Action::Show(one) => show(&one).await,
        Action::Create(creation) => create(&creation).await,
        Action::Delete(one) => {
            let api = one.api.connect()?;
            let removed = api.remove(&format!("/v1/npcs/{}", one.id)).await;
            removed.map_err(Failure::general)
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn list(listing: &Listing) -> Result<(), Failure> {
    let api = listing.api.connect()?;
    let mut cursor = None;
    loop {
        let page = page(&api, listing, cursor).await?;
        for npc in page.npcs {
            exit::print(&if listing.json {
                npc.get().to_owned()
            } else {
                line(&npc)?
            })?;
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

async fn page(api: &Api, listing: &Listing, cursor: Option<NpcId>) -> Result<Page, Failure> {
    // Few at a time: each of them may be as long as a body.
    let mut path = "/v1/npcs?limit=20".to_owned();
    let filters = [
        ("template_id", listing.template.map(|id| id.to_string())),
        (
            "device_id",
            listing.device_id.as_ref().map(DeviceId::to_string),
        ),
        ("cursor", cursor.map(|id| id.to_string())),
    ];
    for (name, value) in filters {
        // No character of an id means something in a query string.
        path.extend(value.map(|value| format!("&{name}={value}")));
    }
    api.get(&path).await.map_err(Failure::general)
}

fn line(npc: &RawValue) -> Result<String, Failure> {
    let npc: Listed = serde_json::from_str(npc.get()).context("an NPC is not as expected")?;
    let template = npc
        .template_id
        .map_or_else(|| "-".to_owned(), |id| id.to_string());
    let devices: Vec<_> = npc.device_ids.iter().map(DeviceId::as_str).collect();
    let name = npc.effective.name;
    Ok(format!(
        "{}\t{name}\t{template}\t{}",
        npc.id,
        devices.join(",")
    ))
}

async fn show(one: &One) -> Result<(), Failure> {
    let api = one.api.connect()?;
    let npc: Box<RawValue> = api
        .get(&format!("/v1/npcs/{}", one.id))
        .await
        .map_err(Failure::general)?;
    if !std::io::stdout().is_terminal() {
        return exit::print(npc.get());
    }
    let npc: serde_json::Value = serde_json::from_str(npc.get()).context("the NPC is no JSON")?;
    exit::print(&format!("{npc:#}"))
}

async fn create(creation: &Creation) -> Result<(), Failure> {
    let api = creation.api.connect()?;
    let document = Document {
        template_id: creation.template,
        template_version: creation.template_version,
        overrides: &creation.overrides,
        device_ids: &creation.device_id,
    };
    let npc: Listed = api
        .create("/v1/npcs", &document)
        .await
        .map_err(Failure::general)?;
    exit::print(&npc.id.to_string())
}

fn overrides(text: &str) -> Result<Box<RawValue>, String> {
    let raw: Box<RawValue> =
        serde_json::from_str(text).map_err(|error| format!("this is no JSON: {error}"))?;
    if raw.get().starts_with('{') {
        Ok(raw)
    } else {
        Err("overrides are a JSON object".to_owned())
    }
}
