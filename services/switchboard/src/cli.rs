//! The command line: subcommands and the settings they share.

use std::process::ExitCode;

use clap::CommandFactory as _;
use switchboard_runtime::{settings::Given, telemetry};

use crate::{commands, exit::Failure, help, process::Telemetry, resources::Invocation};

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
    Up(Box<Given<commands::up::Arguments>>),
    Device(commands::device::Arguments),
    Call(commands::call::Arguments),
    Talk(commands::talk::Arguments),
    Events(commands::events::Arguments),
    Status(commands::status::Arguments),
    #[command(flatten)]
    Resource(Invocation),
    Token(commands::token::Arguments),
    Login(commands::login::Arguments),
    Contexts(commands::contexts::Arguments),
    Completions(commands::completions::Arguments),
    Man(commands::man::Arguments),
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

/// Returns the command line with its help: examples, groups, and what follows from the table of the
/// API. Completions and manual pages are made from it, too.
pub(crate) fn command() -> clap::Command {
    help::decorate(Cli::command())
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
            Self::Talk(arguments) => Box::pin(commands::talk::run(arguments)).await,
            Self::Events(arguments) => Box::pin(commands::events::run(arguments)).await,
            Self::Status(arguments) => Box::pin(commands::status::run(arguments)).await,
            Self::Resource(invocation) => Box::pin(invocation.run()).await,
            Self::Token(arguments) => Box::pin(commands::token::run(arguments)).await,
            Self::Login(arguments) => Box::pin(commands::login::run(arguments)).await,
            Self::Contexts(arguments) => commands::contexts::run(arguments),
            Self::Completions(arguments) => commands::completions::run(&arguments),
            Self::Man(arguments) => commands::man::run(&arguments),
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
    use super::*;

    #[test]
    fn setting_names_are_unique() {
        command().debug_assert();
    }

    #[test]
    fn every_setting_has_help() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let named = format!("{} {}", command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{named}");
            }
            command.get_subcommands().for_each(check);
        }
        command().get_subcommands().for_each(check);
    }
}
