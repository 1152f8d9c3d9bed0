//! `switchboard calls group`: calls a service of many devices.

use std::process::ExitCode;

use clap_complete::ArgValueCandidates;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_protocol::{id::DeviceId, label::DeviceLabel, outcome::Outcome};

use crate::{
    api::ApiArguments,
    commands::call::{NOT_ACCEPTED, exit_code, params, refused},
    exit::Failure,
    output::{Column, Format, Printer},
    resources::complete_connected_devices,
};

const COLUMNS: &[Column] = &[
    Column::new("DEVICE", "device_id"),
    Column::new("OUTCOME", "outcome"),
    Column::new("DELIVERED", "delivered"),
    Column::new("MS", "elapsed_ms"),
    Column::new("DATA", "result.data"),
    Column::new("PROBLEM", "problem.detail"),
];

/// Calls a service of all devices with a label, or of some devices.
///
/// Prints how each call ended: as a table on a terminal, otherwise each as a line as soon as it has. Ctrl-C
/// cancels the calls in flight.
///
/// Exit code: 0 if all calls succeeded, otherwise the highest of the exit codes that `switchboard call` has
/// for them.
#[derive(Debug, clap::Args)]
#[group(id = "choice", required = true, multiple = false, args = ["label", "device_id"])]
pub(crate) struct Group {
    /// Devices that have this label; repeated: that have all of them
    #[arg(long, value_name = "LABEL", value_delimiter = ',', num_args = 1)]
    label: Vec<DeviceLabel>,
    /// Ids of devices
    #[arg(long, value_name = "ID", value_delimiter = ',', num_args = 1, add = ArgValueCandidates::new(complete_connected_devices))]
    device_id: Vec<DeviceId>,
    /// Name of the service
    service: String,
    /// Parameters, a JSON object
    #[arg(default_value = "{}", value_name = "JSON", value_parser = params)]
    params: Box<RawValue>,
    /// Timeout of each call in milliseconds. Default: set by the server
    #[arg(long, value_name = "MILLISECONDS")]
    timeout_ms: Option<u64>,
    /// How many calls are in flight at the same time. Default: set by the server
    #[arg(long, value_name = "NUMBER")]
    at_once: Option<u16>,
    /// Format of the output. Default: table on a terminal, otherwise tsv
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    api: ApiArguments,
}

#[derive(Serialize)]
struct Request<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    labels: &'a [DeviceLabel],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    devices: &'a [DeviceId],
    service: &'a str,
    params: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_once: Option<u16>,
}

/// An item, as far as the exit code follows from it.
#[derive(Deserialize)]
struct Item {
    outcome: Option<Outcome>,
}

impl Group {
    pub(super) async fn call(self) -> Result<ExitCode, Failure> {
        let api = self.api.connect()?;
        let request = Request {
            labels: &self.label,
            devices: &self.device_id,
            service: &self.service,
            params: &self.params,
            timeout_ms: self.timeout_ms,
            at_once: self.at_once,
        };
        let body = serde_json::to_vec(&request).map_err(Failure::general)?;
        let events = api.events("/v1/group-calls", body).await;
        let mut events = events.map_err(refused)?;
        let mut printer = Printer::new(self.format, COLUMNS);
        let mut worst = 0;
        loop {
            let event = events.next().await;
            let Some(event) = event.map_err(|error| refused(api.failed(&error)))? else {
                break;
            };
            match event.name.as_str() {
                "item" => {
                    let item = serde_json::from_str::<Item>(&event.data);
                    let item = item.map_err(|error| refused(api.unanswered(error)))?;
                    worst = worst.max(item.outcome.map_or(NOT_ACCEPTED, exit_code));
                    let element = RawValue::from_string(event.data);
                    printer.add(element.map_err(Failure::general)?)?;
                }
                "ended" => {
                    printer.finish()?;
                    return Ok(ExitCode::from(worst));
                }
                _ => {}
            }
        }
        Err(refused(
            api.unanswered("the stream ended before all calls had ended"),
        ))
    }
}
