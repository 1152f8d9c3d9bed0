//! Logs: to stderr, for people or for machines.
//! Never: stdout, which belongs to what a command answers.

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Under `info` Postgres tells each time that what a migration makes is there already, and the MCP library writes
/// several lines for each request; what goes wrong with one is its client's to know.
const QUIET: &str = "sqlx::postgres::notice=warn,rmcp=error";

/// How much is logged, and in which shape.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logs")]
#[group(skip)]
pub struct Config {
    /// What is logged: error, warn, info, debug or trace, or finer directives such as `info,switchboard_edge=debug`
    #[arg(long, env = "SWITCHBOARD_LOG", global = true, default_value = "info", value_name = "FILTER", value_parser = filter)]
    pub log_level: String,

    /// `text` for people, `json` for machines; always on stderr
    #[arg(
        long,
        env = "SWITCHBOARD_LOG_FORMAT",
        global = true,
        default_value = "text",
        value_enum
    )]
    pub log_format: LogFormat,
}

/// The shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// Starts logging as configured.
    pub fn init(&self) {
        init(&self.log_level, self.log_format);
    }
}

/// Starts logging for the whole process. The first call counts; directives that cannot be read are
/// named on stderr and left out.
pub fn init(filter: &str, format: LogFormat) {
    let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{filter}"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// Panics are log lines like any other, so that they are found where the logs are.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    tracing::error!(
        panic.message = message,
        panic.location = location,
        "a task panicked"
    );
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked_before_anything_starts() {
        fn check(text: &str, valid: bool) {
            assert_eq!(filter(text).is_ok(), valid, "{text}");
        }
        check("info", true);
        check("warn,switchboard_edge=debug", true);
        check("info,switchboard_bus=louder", false);
    }
}
