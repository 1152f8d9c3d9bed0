//! `switchboard stdio`: an MCP server on stdin and stdout for desktop clients. Stdout carries MCP
//! messages only.

use std::process::ExitCode;

use clap_complete::ArgValueCandidates;
use switchboard_protocol::id::{DeviceId, NpcId};

use crate::{
    api::ApiArguments,
    exit::Failure,
    files,
    resources::{complete_connected_devices, complete_ids, table::NPCS},
    stdio::{self, Gateway},
};

/// Serves the Model Context Protocol (revision 2025-11-25) on stdin and stdout.
///
/// Messages are JSON-RPC, one per line. The tools are the services of a device, or of an NPC's
/// devices. Logs go to stderr. Requests wait up to 10 s for an unreachable gateway. At the end of
/// stdin, requests in progress have 10 s to finish.
///
/// Exit codes: 0 ended normally, 1 failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true)))]
pub(crate) struct Arguments {
    /// Serve the services of this device
    #[arg(
        long,
        group = "which",
        value_name = "ID",
        add = ArgValueCandidates::new(complete_connected_devices)
    )]
    device: Option<DeviceId>,
    /// Serve the services of this NPC's devices: its id, the beginning of it, or its name
    #[arg(
        long,
        group = "which",
        value_name = "ID",
        add = ArgValueCandidates::new(|| complete_ids(&NPCS))
    )]
    npc: Option<String>,
    /// Serve the services of all devices of the organisation; tool names begin with the device id
    #[arg(long, group = "which")]
    all: bool,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = arguments.api.connect()?;
    files::hint_stdin("messages of an MCP client");
    let path = match (&arguments.device, &arguments.npc) {
        (Some(device), _) => format!("/mcp/devices/{device}"),
        // A whole id needs no request: the gateway may start later.
        (None, Some(npc)) => format!("/mcp/npcs/{}", NPCS.resolve_as::<NpcId>(&api, npc).await?),
        (None, None) => "/mcp".to_owned(),
    };
    let (site, key) = api.into_parts();
    let gateway = Gateway::new(site, &key, path)?;
    stdio::serve(gateway, tokio::io::stdin(), tokio::io::stdout()).await?;
    Ok(ExitCode::SUCCESS)
}
