//! `switchboard stdio`: an MCP server on stdin and stdout for desktop clients. Stdout carries MCP
//! messages only.

use std::process::ExitCode;

use switchboard_protocol::id::{DeviceId, NpcId};

use crate::{
    api::ApiArguments,
    exit::Failure,
    files,
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
    #[arg(long, group = "which", value_name = "ID")]
    device: Option<DeviceId>,
    /// Serve the services of this NPC's devices
    #[arg(long, group = "which", value_name = "ID")]
    npc: Option<NpcId>,
    /// Serve the services of all devices of the organisation; tool names begin with the device id
    #[arg(long, group = "which")]
    all: bool,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (site, key) = arguments.api.connect()?.into_parts();
    files::hint_stdin("messages of an MCP client");
    let path = match (&arguments.device, arguments.npc) {
        (Some(device), _) => format!("/mcp/devices/{device}"),
        (None, Some(npc)) => format!("/mcp/npcs/{npc}"),
        (None, None) => "/mcp".to_owned(),
    };
    let gateway = Gateway::new(site, &key, path)?;
    stdio::serve(gateway, tokio::io::stdin(), tokio::io::stdout()).await?;
    Ok(ExitCode::SUCCESS)
}
