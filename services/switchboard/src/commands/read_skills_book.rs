//! `switchboard read-skills-book`: parses one document in a sandboxed process. The control plane
//! starts it for each book.

use std::process::ExitCode;

use switchboard_control::Format;

use crate::exit::Failure;

/// Parses a document from stdin and writes its chunks to stdout, for the control plane.
///
/// Exit codes: 0 complete, 1 stdout is closed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Format of the document
    format: Format,
    /// Size of the document in bytes
    size_bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    switchboard_control::read_confined(arguments.format, arguments.size_bytes, input, output)
        .map_err(Failure::general)?;
    Ok(ExitCode::SUCCESS)
}
