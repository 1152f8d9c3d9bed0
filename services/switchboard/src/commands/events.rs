//! `switchboard events`: what happens in the organisation, as it happens.

use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::ArgValueCandidates;
use serde_json::{Map, Value, value::to_raw_value};
use switchboard_protocol::id::DeviceId;
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};

use crate::{
    api::{Api, ApiArguments},
    events::Events,
    exit::{self, Failure, print_stderr},
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
/// events are missing. A connection that is lost is opened again, and continues where it was.
///
/// Exit codes: 1 refused, or not reachable at the beginning, 64 invalid settings.
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
    /// The path of the stream, after the event at this position.
    fn path(&self, position: Option<&str>) -> String {
        let types = (!self.types.is_empty()).then(|| self.types.join(","));
        let types = types.map(|types| format!("types={}", percent_encode(&types)));
        let device = self.device.as_ref();
        let device = device.map(|id| format!("device={}", percent_encode(id.as_str())));
        let position = position.map(|id| format!("last_event_id={}", percent_encode(id)));
        let query: Vec<_> = types.into_iter().chain(device).chain(position).collect();
        match query.is_empty() {
            true => "/v1/events".to_owned(),
            false => format!("/v1/events?{}", query.join("&")),
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = arguments.api.connect()?;
    let events = api.live_events(&arguments.path(None)).await;
    let mut events = events.map_err(Failure::general)?;
    loop {
        let Ok(Some(event)) = events.next().await else {
            print_stderr("the connection has ended; connecting again");
            events = reopen(&api, &arguments, events.position()).await?;
            continue;
        };
        if event.name == "ready" {
            continue;
        }
        let members = serde_json::from_str(&event.data).context("an event has an unexpected form");
        print(&event.name, members?, arguments.format)?;
    }
}

/// The stream after this position, when the server is reachable again.
async fn reopen(
    api: &Api,
    arguments: &Arguments,
    position: Option<&str>,
) -> Result<Events, Failure> {
    let (mut backoff, shutdown) = (Backoff::new(), Shutdown::new());
    let path = arguments.path(position);
    loop {
        backoff.pause(&shutdown).await;
        match api.live_events(&path).await {
            Ok(events) => return Ok(events),
            Err(error) if error.is_refusal() => return Err(Failure::general(error)),
            Err(_) => {}
        }
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
