//! `switchboard npcs create` and `default`. The API validates all input.

use std::process::ExitCode;

use bytes::Bytes;
use clap_complete::ArgValueCandidates;
use http::{HeaderValue, Method, header};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use switchboard_protocol::id::{DeviceId, NpcId, TemplateId};

use crate::{
    api::{Api, ApiArguments, ApiRequest},
    exit::{self, Failure},
    output::{FormatArguments, Printer},
    resources::{
        self, CreateArguments, complete_ids, created_format,
        table::{DEVICES, NPCS, TEMPLATES},
    },
};

/// Path of the organisation, which holds the default NPC.
const ORG: &str = "/v1/org";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Create(CreateOptions),
    Default(DefaultNpc),
}

/// Creates an NPC and prints its id.
#[derive(Debug, clap::Args)]
#[command(mut_arg("format", created_format))]
pub(crate) struct CreateOptions {
    /// Settings that differ from the template, a JSON object; without a template all settings,
    /// including `name`
    #[arg(default_value = "{}", value_name = "JSON", value_parser = overrides)]
    overrides: Box<RawValue>,
    /// Template to base the NPC on: its id or name
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&TEMPLATES)))]
    template: Option<String>,
    /// Version of the template to pin. Default: follow the newest
    #[arg(long, value_name = "NUMBER", requires = "template")]
    template_version: Option<i64>,
    /// Device of the NPC; can be repeated
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        num_args = 1,
        add = ArgValueCandidates::new(|| complete_ids(&DEVICES))
    )]
    device_id: Vec<DeviceId>,
    #[command(flatten)]
    create: CreateArguments,
}

/// Shows or sets the default NPC, which answers devices without an NPC. Prints it like `list`, or -
/// if there is none.
#[derive(Debug, clap::Args)]
#[command(mut_arg("format", |argument| argument.help(
    "Print the NPC in this format, as `show` does. Default: its line of `list`"
)))]
pub(crate) struct DefaultNpc {
    /// NPC to set as the default: its id or name
    #[arg(
        conflicts_with = "none",
        value_name = "NPC",
        add = ArgValueCandidates::new(|| complete_ids(&NPCS))
    )]
    id: Option<String>,
    /// Remove the default
    #[arg(long)]
    none: bool,
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

/// A new NPC, as the API expects it.
#[derive(Serialize)]
struct Document<'a> {
    template_id: Option<TemplateId>,
    template_version: Option<i64>,
    overrides: &'a RawValue,
    device_ids: &'a [DeviceId],
}

/// The members of an organisation that are used here.
#[derive(Deserialize)]
struct Org {
    default_npc_id: Option<NpcId>,
}

impl resources::Action for Action {
    async fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(creation) => create(&creation).await,
            Self::Default(default) => default_npc(&default).await,
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the default NPC, after changing it if requested.
async fn default_npc(arguments: &DefaultNpc) -> Result<(), Failure> {
    let api = arguments.api.connect()?;
    let new = match &arguments.id {
        Some(given) => Some(NPCS.resolve_as(&api, given).await?),
        None => None,
    };
    let org: Org = if arguments.none || new.is_some() {
        let org = set_default_npc(&api, new).await?;
        serde_json::from_slice(&org).map_err(Failure::general)?
    } else {
        api.get(ORG).await.map_err(Failure::general)?
    };
    let Some(id) = org.default_npc_id else {
        return exit::print("-");
    };
    let npc: Box<RawValue> = api
        .get(&NPCS.element_path(id))
        .await
        .map_err(Failure::general)?;
    if arguments.format.is_given() {
        return arguments.format.print(&npc);
    }
    let mut printer = Printer::new(None, NPCS.columns);
    printer.add(npc)?;
    printer.finish()
}

/// Sets the default NPC regardless of the organisation's version; returns the organisation.
async fn set_default_npc(api: &Api, npc: Option<NpcId>) -> Result<Bytes, Failure> {
    let any = [(header::IF_MATCH, HeaderValue::from_static("*"))];
    let sent = ApiRequest {
        method: Method::PATCH,
        path: ORG,
        headers: any.into_iter().collect(),
        body: json!({"default_npc_id": npc}).to_string().into_bytes(),
    };
    api.bytes(sent).await.map_err(Failure::general)
}

async fn create(creation: &CreateOptions) -> Result<(), Failure> {
    let api = creation.create.begin()?;
    let template_id = match &creation.template {
        Some(given) => Some(TEMPLATES.resolve_as(&api.api, given).await?),
        None => None,
    };
    let document = Document {
        template_id,
        template_version: creation.template_version,
        overrides: &creation.overrides,
        device_ids: &creation.device_id,
    };
    let document = serde_json::to_vec(&document).map_err(Failure::general)?;
    let created: Box<RawValue> = api.create(NPCS.path, document).await?;
    let format = creation.create.format;
    if format.is_given() {
        return format.print(&created);
    }
    exit::print(&NPCS.identity(&created)?)
}

fn overrides(text: &str) -> Result<Box<RawValue>, String> {
    let raw: Box<RawValue> =
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    if raw.get().starts_with('{') {
        Ok(raw)
    } else {
        Err("overrides must be a JSON object".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        action: Action,
    }

    #[test]
    fn default_npc_arguments_are_exclusive() {
        fn check(flags: &[&str], expected: Option<(bool, bool)>) {
            let line = ["npcs", "default"].iter().chain(flags);
            let read = Line::try_parse_from(line).ok();
            let arguments = read.and_then(|line| match line.action {
                Action::Default(arguments) => Some((arguments.id.is_some(), arguments.none)),
                Action::Create(_) => None,
            });
            assert_eq!(arguments, expected, "{flags:?}");
        }
        let npc = format!("npc_{}", "0".repeat(32));
        check(&[], Some((false, false)));
        check(&[&npc], Some((true, false)));
        check(&["--none"], Some((false, true)));
        check(&[&npc, "--none"], None);
        check(&["Rex"], Some((true, false)));
        check(&["Rex", "--none"], None);
    }
}
