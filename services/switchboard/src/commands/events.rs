//! `switchboard events`: what happens in the organisation, as it happens.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap_complete::ArgValueCandidates;
use serde_json::{Map, Value, value::to_raw_value};
use switchboard_protocol::id::DeviceId;

use crate::{
    api::ApiArguments,
    exit::{self, Failure},
    query::percent_encode,
    resources::complete_connected_devices,
};

/// How events are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each event: its time, its type, and its members
    Tsv,
    /// Each event as one line of JSON
    Jsonl,
}

/// Prints what happens in the organisation as it happens, until Ctrl-C.
///
/// Devices that connect, register and leave, calls that end, and settings that change. `gap` means that
/// events are missing.
///
/// Exit codes: 1 refused, not reachable or ended by the server, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only events of these types, such as `device.online`
    #[arg(long, value_delimiter = ',', value_name = "TYPE,…")]
    types: Vec<String>,
    /// Only events of this device
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(complete_connected_devices))]
    device: Option<DeviceId>,
    /// Format of the output. Default: tsv
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    api: ApiArguments,
}

impl Arguments {
    fn path(&self) -> String {
        let types = (!self.types.is_empty()).then(|| self.types.join(","));
        let types = types.map(|types| format!("types={}", percent_encode(&types)));
        let device = self.device.as_ref();
        let device = device.map(|id| format!("device={}", percent_encode(id.as_str())));
        let query: Vec<_> = types.into_iter().chain(device).collect();
        match query.is_empty() {
            true => "/v1/events".to_owned(),
            false => format!("/v1/events?{}", query.join("&")),
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = arguments.api.connect()?;
    let events = api.live_events(&arguments.path()).await;
    let mut events = events.map_err(Failure::general)?;
    loop {
        let event = events.next().await;
        let event = event.map_err(|error| Failure::general(api.failed(&error)))?;
        let Some(event) = event else {
            let detail =
                anyhow!("the stream ended: the server stops, or the key is not valid any more");
            return Err(Failure::general(detail));
        };
        if event.name == "ready" {
            continue;
        }
        let members = serde_json::from_str(&event.data).context("an event has an unexpected form");
        print(&event.name, members?, arguments.format)?;
    }
}

fn print(
    name: &str,
    mut members: Map<String, Value>,
    format: Option<Format>,
) -> Result<(), Failure> {
    if format == Some(Format::Jsonl) {
        members.insert("type".to_owned(), name.into());
        let line = to_raw_value(&members).context("cannot write JSON")?;
        return exit::print_json_line(&line);
    }
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let at = members.remove("at").as_ref().map_or("-".to_owned(), text);
    let members = members
        .iter()
        .map(|(name, value)| format!("{name}={}", text(value)));
    let members = members.collect::<Vec<_>>().join(" ");
    exit::print(&format!("{at}\t{name}\t{members}"))
}
