//! `switchboard npcs`: an organisation's characters, and the devices they speak through.
//! Never: a rule of the API's repeated here; what it refuses, it explains.

use std::process::ExitCode;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use switchboard_protocol::id::{DeviceId, NpcId, TemplateId};

use crate::{
    api::{Api, ApiArguments, Sent},
    collection::{ChangeArguments, Collection, CreateArguments, ListArguments},
    exit::{self, Failure},
};

const NPCS: Collection = Collection {
    command: "npcs",
    path: "/v1/npcs",
    member: "npcs",
    page: 20,
};

/// Where it stands who answers for all other devices.
const ORG: &str = "/v1/org";

/// Shows, makes, changes and removes NPCs: characters made from a template or on their own.
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
    Edit(Edit),
    Delete(One),
    Default(Answering),
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
    #[command(flatten)]
    list: ListArguments,
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
    create: CreateArguments,
}

/// Changes an NPC by a JSON merge patch (RFC 7396), and prints it as it is then.
///
/// The patch is of what `show` prints: `device_ids` are the devices that it speaks through, `overrides` what
/// differs from the template, `template_version` the version that it stays with, null to follow the newest.
#[derive(Debug, clap::Args)]
struct Edit {
    /// Which NPC
    id: NpcId,
    #[command(flatten)]
    change: ChangeArguments,
}

/// Prints which NPC answers for devices through which none speaks, as `list` does; - for none. Sets it when one is given.
#[derive(Debug, clap::Args)]
struct Answering {
    /// Which NPC shall answer from now on
    #[arg(conflicts_with = "none", value_name = "NPC")]
    id: Option<NpcId>,
    /// Nobody shall answer any more
    #[arg(long)]
    none: bool,
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

/// What matters here of an organisation.
#[derive(Deserialize)]
struct Org {
    default_npc_id: Option<NpcId>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.action {
        Action::List(listing) => {
            let template = listing.template.map(|id| id.to_string());
            let device = listing.device_id.map(|id| id.to_string());
            let filters = [("template_id", template), ("device_id", device)];
            NPCS.list(&listing.list, &filters, line).await
        }
        Action::Show(one) => NPCS.show(&one.api, one.id).await,
        Action::Create(creation) => create(&creation).await,
        Action::Edit(edit) => NPCS.edit(edit.id, &edit.change).await,
        Action::Delete(one) => NPCS.remove(&one.api, one.id).await,
        Action::Default(default) => answering(&default).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

fn line(npc: Listed) -> String {
    let template = npc
        .template_id
        .map_or_else(|| "-".to_owned(), |id| id.to_string());
    let devices: Vec<_> = npc.device_ids.iter().map(DeviceId::as_str).collect();
    let name = npc.effective.name;
    format!("{}\t{name}\t{template}\t{}", npc.id, devices.join(","))
}

/// Prints who answers for all other devices, and sets it before when that is asked for.
async fn answering(asked: &Answering) -> Result<(), Failure> {
    let api = asked.api.connect()?;
    let org: Org = if asked.none || asked.id.is_some() {
        let org = set_answering(&api, asked.id).await?;
        serde_json::from_slice(&org).map_err(Failure::general)?
    } else {
        api.get(ORG).await.map_err(Failure::general)?
    };
    let Some(id) = org.default_npc_id else {
        return exit::print("-");
    };
    let npc = api.get(&NPCS.at(id)).await.map_err(Failure::general)?;
    exit::print(&line(npc))
}

/// Says who answers, in whatever version the organisation is; gives it as it is then.
async fn set_answering(api: &Api, npc: Option<NpcId>) -> Result<Bytes, Failure> {
    let any = [(header::IF_MATCH, HeaderValue::from_static("*"))];
    let sent = Sent {
        method: Method::PATCH,
        path: ORG,
        headers: any.into_iter().collect(),
        body: json!({"default_npc_id": npc}).to_string().into_bytes(),
    };
    api.bytes(sent).await.map_err(Failure::general)
}

async fn create(creation: &Creation) -> Result<(), Failure> {
    let document = Document {
        template_id: creation.template,
        template_version: creation.template_version,
        overrides: &creation.overrides,
        device_ids: &creation.device_id,
    };
    let document = serde_json::to_vec(&document).map_err(Failure::general)?;
    creation.create.make(NPCS.path, document).await
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn who_answers_is_asked_for_set_or_taken_away() {
        fn check(words: &[&str], expected: Option<(bool, bool)>) {
            let line = ["npcs", "default"].iter().chain(words);
            let read = Line::try_parse_from(line).ok();
            let asked = read.and_then(|line| match line.arguments.action {
                Action::Default(asked) => Some((asked.id.is_some(), asked.none)),
                _ => None,
            });
            assert_eq!(asked, expected, "{words:?}");
        }
        let npc = format!("npc_{}", "0".repeat(32));
        check(&[], Some((false, false)));
        check(&[&npc], Some((true, false)));
        check(&["--none"], Some((false, true)));
        check(&[&npc, "--none"], None);
        check(&["Rex"], None);
    }
}
