//! The command line: subcommands and the settings they share.

use std::process::ExitCode;

use switchboard_runtime::telemetry;

use crate::{commands, exit::Failure, process::Telemetry};

/// Calls services of devices that connect from behind NAT.
///
/// Devices connect to Switchboard, register their services and receive calls over that connection.
///
/// Every setting is a flag, an environment variable and a key of one TOML file (--config), with the
/// same name and meaning. A flag overrides the environment; the environment overrides the file.
#[derive(Debug, clap::Parser)]
#[command(name = "switchboard", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logs: telemetry::Config,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands, in the order in which users need them.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Up(Box<commands::up::Arguments>),
    Device(commands::device::Arguments),
    Call(commands::call::Arguments),
    Calls(commands::calls::Arguments),
    Token(commands::token::Arguments),
    Templates(commands::templates::Arguments),
    Npcs(commands::npcs::Arguments),
    Talk(commands::talk::Arguments),
    Pictures(commands::pictures::Arguments),
    Skills(commands::skills::Arguments),
    Voices(commands::voices::Arguments),
    Stdio(commands::stdio::Arguments),
    Convert(commands::convert::Arguments),
    Doctor(Box<commands::doctor::Arguments>),
    Edge(Box<commands::edge::Arguments>),
    Gateway(Box<commands::gateway::Arguments>),
    Chat(Box<commands::chat::Arguments>),
    Control(Box<commands::control::Arguments>),
    Migrate(commands::migrate::Arguments),
    #[command(hide = true)]
    ReadSkillsBook(commands::read_skills_book::Arguments),
}

impl Command {
    /// Returns the name of the service in traces and metrics, if the subcommand is one.
    pub(crate) const fn service(&self) -> Option<&'static str> {
        match self {
            Self::Up(_) => Some("up"),
            Self::Edge(_) => Some("edge"),
            Self::Gateway(_) => Some("gateway"),
            Self::Chat(_) => Some("chat"),
            Self::Control(_) => Some("control"),
            _ => None,
        }
    }

    /// Runs the subcommand.
    pub(crate) async fn run(self, telemetry: Telemetry) -> Result<ExitCode, Failure> {
        match self {
            Self::Up(arguments) => Box::pin(commands::up::run(*arguments, telemetry)).await,
            Self::Device(arguments) => Box::pin(commands::device::run(arguments)).await,
            Self::Call(arguments) => Box::pin(commands::call::run(arguments)).await,
            Self::Calls(arguments) => Box::pin(commands::calls::run(arguments)).await,
            Self::Token(arguments) => Box::pin(commands::token::run(arguments)).await,
            Self::Templates(arguments) => Box::pin(commands::templates::run(arguments)).await,
            Self::Npcs(arguments) => Box::pin(commands::npcs::run(arguments)).await,
            Self::Talk(arguments) => Box::pin(commands::talk::run(arguments)).await,
            Self::Pictures(arguments) => Box::pin(commands::pictures::run(arguments)).await,
            Self::Skills(arguments) => Box::pin(commands::skills::run(arguments)).await,
            Self::Voices(arguments) => Box::pin(commands::voices::run(arguments)).await,
            Self::Stdio(arguments) => Box::pin(commands::stdio::run(arguments)).await,
            Self::Convert(arguments) => commands::convert::run(&arguments),
            Self::Doctor(arguments) => Box::pin(commands::doctor::run(*arguments)).await,
            Self::Edge(arguments) => Box::pin(commands::edge::run(*arguments, telemetry)).await,
            Self::Gateway(arguments) => {
                Box::pin(commands::gateway::run(*arguments, telemetry)).await
            }
            Self::Chat(arguments) => Box::pin(commands::chat::run(*arguments, telemetry)).await,
            Self::Control(arguments) => {
                Box::pin(commands::control::run(*arguments, telemetry)).await
            }
            Self::Migrate(arguments) => Box::pin(commands::migrate::run(arguments)).await,
            Self::ReadSkillsBook(arguments) => commands::read_skills_book::run(&arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn setting_names_are_unique() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_has_help() {
        for subcommand in Cli::command().get_subcommands() {
            for argument in subcommand.get_arguments() {
                let named = format!("{} {}", subcommand.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{named}");
            }
        }
    }
}
