//! `switchboard man`: manual pages, from the same definitions as the help.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Command;

use crate::{cli, exit::Failure};

/// Writes the manual pages into a folder: switchboard.1 and one for each command.
///
/// Exit codes: 0 written, 1 the folder cannot be written, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the pages, which is created if necessary
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// The pages have no text of what the short help leaves out.
fn with_all_settings(command: Command) -> Command {
    let command = command.mut_args(|argument| argument.hide_short_help(false));
    command.mut_subcommands(with_all_settings)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let folder = &arguments.folder;
    let write = || {
        std::fs::create_dir_all(folder)?;
        let command = cli::command().disable_help_subcommand(true);
        clap_mangen::generate_to(with_all_settings(command), folder)
    };
    write().with_context(|| format!("cannot write {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
