//! `switchboard stdio`: a device or an NPC as an MCP server on stdin and stdout, for desktop clients.
//! Never: a line on stdout that is no message of the protocol.

use std::process::ExitCode;

use switchboard_protocol::id::{DeviceId, NpcId};

use crate::{
    api::ApiArguments,
    exit::Failure,
    stdio::{self, Gateway},
};

/// Speaks the Model Context Protocol, revision 2025-11-25, over stdin and stdout: one JSON-RPC message a line.
///
/// The services of a device are the tools, or those of an NPC's devices that it may use. Logs go to stderr. While the gateway is away, requests wait for it
/// up to 10 s. Ends when stdin ends and every request is answered; what is under way then has 10 s.
///
/// Exit codes: 0 ended as asked, 1 failed, 64 wrong settings.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true)))]
pub(crate) struct Arguments {
    /// Offer this device
    #[arg(long, group = "which", value_name = "ID")]
    device: Option<DeviceId>,
    /// Offer this NPC: the tools of its devices that it may use
    #[arg(long, group = "which", value_name = "ID")]
    npc: Option<NpcId>,
    /// Offer all devices of the organisation, each tool's name beginning with its device's
    #[arg(long, group = "which")]
    all: bool,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (site, key) = arguments.api.connect()?.into_parts();
    let path = match (&arguments.device, arguments.npc) {
        (Some(device), _) => format!("/mcp/devices/{device}"),
        (None, Some(npc)) => format!("/mcp/npcs/{npc}"),
        (None, None) => "/mcp".to_owned(),
    };
    let gateway = Gateway::new(site, &key, path)?;
    stdio::serve(gateway, tokio::io::stdin(), tokio::io::stdout()).await?;
    Ok(ExitCode::SUCCESS)
}
