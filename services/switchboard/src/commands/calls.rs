//! `switchboard calls show`, `wait` and `group`: the outcome of a call is the exit code.

mod group;

use std::{process::ExitCode, time::Duration};

use clap_complete::ArgValueCandidates;
use switchboard_protocol::id::CallId;

use super::call::{NOT_ACCEPTED, exit_code, refused};
use crate::{
    api::ApiArguments,
    exit::Failure,
    output::FormatArguments,
    resources::{self, complete_ids, table::CALLS},
};

/// The call has not ended.
const NOT_ENDED: u8 = 11;
/// Timeout of one long poll; polls are repeated.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(55);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Show(Show),
    Wait(Wait),
    Group(group::Group),
}

/// Prints a call as JSON.
///
/// Exit codes: 0 succeeded, 1 failed, 2 invalid params, 3 unknown device or service, 4 offline, 5
/// overloaded, 6 cancelled, 7 timed out, 8 lost, 9 unknown call or API unreachable, 10 expired, 11
/// not ended yet, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Id of the call, or the beginning of one
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&CALLS)))]
    id: String,
    /// Wait until the call has ended
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

/// Waits until a call has ended and prints it as JSON.
///
/// Exit codes: as `switchboard calls show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// Id of the call, or the beginning of one
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&CALLS)))]
    id: String,
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

impl resources::Action for Action {
    async fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Show(show) => print(&show.api, &show.id, show.wait, show.format).await,
            Self::Group(group) => group.call().await,
            Self::Wait(wait) => print(&wait.api, &wait.id, true, wait.format).await,
        }
    }
}

async fn print(
    api: &ApiArguments,
    given: &str,
    is_waiting: bool,
    format: FormatArguments,
) -> Result<ExitCode, Failure> {
    let api = api.connect()?;
    let id = CALLS.resolve_as::<CallId>(&api, given).await;
    // Exit code 1 is a failed call.
    let id = id.map_err(|failure| failure.in_place_of_general(NOT_ACCEPTED))?;
    let wait = if is_waiting {
        LONG_POLL_TIMEOUT
    } else {
        Duration::ZERO
    };
    loop {
        let (document, call) = api.stored_call(id, wait).await.map_err(refused)?;
        if is_waiting && call.outcome.is_none() {
            continue;
        }
        format.print(&document)?;
        return Ok(ExitCode::from(call.outcome.map_or(NOT_ENDED, exit_code)));
    }
}
