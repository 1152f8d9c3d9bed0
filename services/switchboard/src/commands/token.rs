//! `switchboard token`: issues an access token.

use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::ArgValueCandidates;
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::value::to_raw_value;
use switchboard_protocol::id::DeviceId;

use crate::{
    api::ApiArguments,
    exit::{self, Failure},
    output::FormatArguments,
    resources::{complete_ids, table::DEVICES},
};

/// Issues an access token for a device or a client and prints it.
///
/// Exit codes: 0 issued, 1 refused or not reachable, 64 invalid settings.
#[derive(Debug, clap::Args)]
#[command(mut_arg("format", |argument| argument.help(
    "Print the token, its id and its lifetime, in this format. Default: the token alone"
)))]
#[command(group = clap::ArgGroup::new("subject").required(true).args(["device", "scope"]))]
pub(crate) struct Arguments {
    /// Issue a token for this device
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&DEVICES)))]
    device: Option<DeviceId>,
    /// Issue a token for a client with this scope: call, read or admin; can be repeated
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', num_args = 1)]
    scope: Vec<String>,
    /// Name of the client in logs
    #[arg(
        long,
        value_name = "NAME",
        default_value = "cli",
        conflicts_with = "device"
    )]
    client: String,
    /// Lifetime of the token in seconds. Default: set by the server
    #[arg(long, value_name = "SECONDS")]
    ttl_s: Option<u64>,
    /// Print a JSON object with the token, its id and its lifetime: the same as -o jsonl
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct TokenOutput<'a> {
        access_token: &'a str,
        token_type: &'static str,
        expires_in: u64,
        token_id: &'a str,
    }
    let (subject, scopes) = match &arguments.device {
        Some(device) => (format!("device:{device}"), vec!["device".to_owned()]),
        None => (format!("client:{}", arguments.client), arguments.scope),
    };
    let api = arguments.api.connect()?;
    let token = api
        .token(&subject, &scopes, arguments.ttl_s)
        .await
        .map_err(Failure::general)?;
    let access_token = token.access_token.expose_secret();
    let format = arguments.format.or_json(arguments.json);
    if !format.is_given() {
        exit::print(access_token)?;
        return Ok(ExitCode::SUCCESS);
    }
    let output = TokenOutput {
        access_token,
        token_type: "Bearer",
        expires_in: token.expires_in,
        token_id: &token.token_id,
    };
    format.print(&to_raw_value(&output).context("cannot serialise the token")?)?;
    Ok(ExitCode::SUCCESS)
}
