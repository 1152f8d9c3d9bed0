//! `switchboard completions`: scripts with which shells complete the command line. A script asks the
//! program, so that it knows every command of its version, and the ids on the server.

use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::env::Shells;

use crate::exit::{self, Failure};

/// Variable by which a script asks the program.
pub(crate) const VARIABLE: &str = "SWITCHBOARD_COMPLETE";

/// Prints the script that lets a shell complete commands, flags, and ids on the server.
///
/// Ids are those of the installation that the command line, the environment or the current context
/// names, with the permissions of its key.
///
/// Exit codes: 0 printed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let name = match arguments.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
    };
    let shells = Shells::builtins();
    let shell = shells
        .completer(name)
        .context("this shell is not supported")?;
    let mut script = Vec::new();
    let program = program()?;
    let written = shell.write_registration(
        VARIABLE,
        "switchboard",
        "switchboard",
        &program,
        &mut script,
    );
    written.context("cannot write the script")?;
    exit::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The program that the script asks: by its name if it was found in PATH.
fn program() -> Result<String, Failure> {
    let called = std::env::args().next().unwrap_or_default();
    if !called.contains('/') {
        return Ok("switchboard".to_owned());
    }
    let file = std::env::current_exe().context("cannot find the program")?;
    Ok(file.to_string_lossy().into_owned())
}
