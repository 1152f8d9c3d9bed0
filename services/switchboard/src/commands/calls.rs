//! `switchboard calls`: what became of calls that nobody waited for.
//! Never: a call made; that is `switchboard call`.

use std::{process::ExitCode, time::Duration};

use switchboard_protocol::id::CallId;

use super::call::{exit_code, refused, shown};
use crate::{
    api::ApiArguments,
    exit::{self, Failure},
};

/// The call has not ended.
const NOT_ENDED: u8 = 11;
/// How long one request waits; there is always another.
const ONE_WAIT: Duration = Duration::from_secs(55);

/// Looks after calls made with `switchboard call --async` or `--queued`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Show(Show),
}

/// Prints what is known of a call, as JSON.
///
/// Exit codes: 0 succeeded, 1 failed, 2 invalid params, 3 unknown device or service, 4 offline,
/// 5 overloaded, 6 cancelled or taken back, 7 timed out, 8 lost, 9 no such call or API not reachable,
/// 10 expired, 11 not ended yet, 64 wrong settings.
#[derive(Debug, clap::Args)]
struct Show {
    /// Which call
    id: CallId,
    /// Waits until the call has ended, however long that takes
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Command::Show(show) = arguments.command;
    let api = show.api.connect()?;
    let wait = if show.wait { ONE_WAIT } else { Duration::ZERO };
    loop {
        let (document, call) = api.kept_call(show.id, wait).await.map_err(refused)?;
        if show.wait && call.outcome.is_none() {
            continue;
        }
        exit::print(&shown(&document)?)?;
        return Ok(ExitCode::from(call.outcome.map_or(NOT_ENDED, exit_code)));
    }
}
