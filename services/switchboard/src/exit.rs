//! Exit codes and terminal output. Every exit code is documented in the `--help` of its subcommand.

use std::{fmt::Display, io::Write, process::ExitCode};

use switchboard_runtime::settings::SettingsError;

/// General failure.
const GENERAL: u8 = 1;
/// Invalid command line, environment or file (`EX_USAGE`).
const USAGE: u8 = 64;
/// A required program is not installed (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;

/// A failed subcommand: exit code, and message for the terminal.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Creates a failure with a code specific to the subcommand.
    pub(crate) fn with_code(code: u8, text: impl Display) -> Self {
        Self {
            code,
            text: text.to_string(),
        }
    }

    /// Creates a general failure.
    pub(crate) fn general(text: impl Display) -> Self {
        Self::with_code(GENERAL, text)
    }

    /// Creates a failure for an invalid setting; the text names it.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self::with_code(USAGE, text)
    }

    /// Creates a failure for a missing program.
    pub(crate) fn unavailable(text: impl Display) -> Self {
        Self::with_code(UNAVAILABLE, text)
    }

    /// Prints the message on stderr and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        print_stderr(&format!("switchboard: {}", self.text));
        ExitCode::from(self.code)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::general(format!("{error:#}"))
    }
}

/// Prints the output of the settings parser: help and version on stdout, errors on stderr.
pub(crate) fn report_settings(error: &SettingsError) -> ExitCode {
    if error.exit_code == 0 {
        // Stdout may be closed, as in `switchboard --help | head`.
        let _ = std::io::stdout().write_all(error.text.as_bytes());
    } else {
        print_stderr(error.text.trim_end());
    }
    ExitCode::from(error.exit_code)
}

/// Prints a line on stderr; ignores a closed stderr.
pub(crate) fn print_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a line on stdout.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print(line: &str) -> Result<(), Failure> {
    print_bytes(format!("{line}\n").as_bytes())
}

/// Prints bytes on stdout.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::general(format!("cannot write to stdout: {error}")))
}
