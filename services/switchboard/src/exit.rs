//! How the process ends: exit codes and the words on stderr that go with them.
//! Never: an exit code that `--help` does not explain.

use std::{fmt::Display, io::Write, process::ExitCode};

use switchboard_runtime::settings::SettingsError;

/// Something went wrong while running.
const GENERAL: u8 = 1;
/// The command line, the environment or the file was wrong (`EX_USAGE`).
const USAGE: u8 = 64;
/// Something that has to be installed is missing (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;

/// Why a subcommand could not do its work, for the person who started it.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Fails with a code of the subcommand's own.
    pub(crate) fn with_code(code: u8, text: impl Display) -> Self {
        Self {
            code,
            text: text.to_string(),
        }
    }

    /// Anything that has no code of its own.
    pub(crate) fn general(text: impl Display) -> Self {
        Self::with_code(GENERAL, text)
    }

    /// The settings were wrong; the text names the one that was.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self::with_code(USAGE, text)
    }

    /// Something has to be installed first.
    pub(crate) fn unavailable(text: impl Display) -> Self {
        Self::with_code(UNAVAILABLE, text)
    }

    /// Says it on stderr and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        say(&format!("switchboard: {}", self.text));
        ExitCode::from(self.code)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::general(format!("{error:#}"))
    }
}

/// Prints what the settings parser said: help and version to stdout, mistakes to stderr.
pub(crate) fn report_settings(error: &SettingsError) -> ExitCode {
    if error.exit_code == 0 {
        // Nobody is left to tell when stdout is closed, as in `switchboard --help | head`.
        let _ = std::io::stdout().write_all(error.text.as_bytes());
    } else {
        say(error.text.trim_end());
    }
    ExitCode::from(error.exit_code)
}

/// One line for a person, on stderr; lost without harm when stderr is closed.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// One line for a program or a pipe, on stdout.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print(line: &str) -> Result<(), Failure> {
    print_bytes(format!("{line}\n").as_bytes())
}

/// Bytes as they are, on stdout.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::general(format!("stdout cannot be written: {error}")))
}
