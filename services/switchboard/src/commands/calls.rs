//! `switchboard calls`: asynchronous and queued calls.

use std::{process::ExitCode, time::Duration};

use switchboard_protocol::id::CallId;

use super::call::{exit_code, refused};
use crate::{
    api::ApiArguments,
    exit::{self, Failure},
};

/// The call has not ended.
const NOT_ENDED: u8 = 11;
/// Timeout of one long poll; polls are repeated.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(55);

/// Shows calls that were made with `switchboard call --async` or `--queued`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Show(Show),
}

/// Prints a call as JSON.
///
/// Exit codes: 0 succeeded, 1 failed, 2 invalid params, 3 unknown device or service, 4 offline, 5
/// overloaded, 6 cancelled, 7 timed out, 8 lost, 9 unknown call or API unreachable, 10 expired, 11
/// not ended yet, 64 invalid settings.
#[derive(Debug, clap::Args)]
struct Show {
    /// Id of the call
    id: CallId,
    /// Wait until the call has ended
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Command::Show(show) = arguments.command;
    let api = show.api.connect()?;
    let wait = if show.wait {
        LONG_POLL_TIMEOUT
    } else {
        Duration::ZERO
    };
    loop {
        let (document, call) = api.stored_call(show.id, wait).await.map_err(refused)?;
        if show.wait && call.outcome.is_none() {
            continue;
        }
        exit::print_json(&document)?;
        return Ok(ExitCode::from(call.outcome.map_or(NOT_ENDED, exit_code)));
    }
}
