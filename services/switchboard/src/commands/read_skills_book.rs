//! `switchboard read-skills-book`: reads one document from stdin in a process that may do nothing else.
//! Never: started by a person; the control plane does that, for each book.

use std::process::ExitCode;

use switchboard_control::Format;

use crate::exit::Failure;

/// Reads a document from stdin and writes its chunks to stdout, for the control plane.
///
/// Exit codes: 0 all is said, 1 nobody listens.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How it is read
    format: Format,
    /// How many bytes it has
    size_bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    switchboard_control::read_confined(arguments.format, arguments.size_bytes, input, output)
        .map_err(Failure::general)?;
    Ok(ExitCode::SUCCESS)
}
