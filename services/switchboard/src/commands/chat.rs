//! `switchboard chat`: the service that answers users of devices and NPCs.

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, error::ErrorKind, parser::ValueSource};
use switchboard_chat::{self as chat, StartError};
use switchboard_embeddings::{Endpoint, QueryEmbedder};
use switchboard_runtime::{admin::Need, http::HttpLimits};
use switchboard_store::MasterKeyConfig;

use crate::{
    exit::Failure,
    http_service::{Deps, HttpService, HttpServiceArguments},
    process::{Process, Telemetry},
    stored_keys::StoredKeys,
};

/// Answers users of devices and NPCs, using DATABASE_URL and REDIS_URL.
///
/// Responses come from the language models at --completions-endpoint or in --completions-file. If
/// none is configured, the rule responder answers: fixed rules that match words to services.
/// Prints {"event":"ready","http_url","admin_url"} on stdout when ready; logs go to stderr. On
/// SIGTERM, it finishes the turns in progress and exits. To talk to an NPC, see `switchboard talk`.
///
/// Exit codes: 0 ended normally, 1 failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    _former: FormerFlags,
    /// Address of the HTTP port
    #[arg(long, env, default_value = "0.0.0.0:8082", value_name = "HOST:PORT")]
    http_listen: String,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    master_key: MasterKeyConfig,
    #[command(flatten)]
    embeddings: switchboard_embeddings::Config,
    #[command(flatten)]
    chat: chat::Config,
}

/// Refuses the former flags of a client with an error that names `switchboard talk`. In the file of
/// --config they are settings of other subcommands, and allowed.
#[derive(Debug)]
struct FormerFlags;

impl FormerFlags {
    const NAMES: [&str; 7] = [
        "npc", "say", "subject", "url", "api-key", "tls-ca", "data-dir",
    ];
}

impl clap::Args for FormerFlags {
    fn augment_args(command: Command) -> Command {
        let flag = |name| Arg::new(name).long(name).hide(true);
        command.args(Self::NAMES.map(|name| flag(name).help("See `switchboard talk`")))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for FormerFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        match Self::NAMES.iter().find(|name| is_given(name)) {
            Some(name) => Err(clap::Error::raw(
                ErrorKind::UnknownArgument,
                format!(
                    "`switchboard chat` is the service and has no --{name}; to talk to an NPC, \
                     use `switchboard talk --npc ID`\n"
                ),
            )),
            None => Ok(Self),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let service = HttpService {
        name: "chat",
        configure_bus: std::convert::identity,
        // NPCs in the cache answer without it.
        database: Need::Optional,
        needs_token_keys: true,
        stored_keys: StoredKeys::Sessions(arguments.master_key),
        document: chat::document(),
    };
    let (config, embeddings) = (arguments.chat, arguments.embeddings);
    let start = |deps: Deps, process: &Process| {
        let deps = chat::Deps {
            bus: deps.bus,
            store: deps.store,
            authenticator: deps.authenticator,
            embedder: Endpoint::from_config(&embeddings)
                .map(|endpoint| QueryEmbedder::new(endpoint, &deps.budgets)),
            registry: deps.registry,
            budgets: deps.budgets,
        };
        let router = chat::run(&config, deps, &process.stages.serving).map_err(start_failure)?;
        Ok((router, HttpLimits::default()))
    };
    let listen = &arguments.http_listen;
    arguments
        .service
        .run(listen, service, telemetry, start)
        .await
}

/// An invalid file of providers is an invalid setting.
pub(crate) fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Providers(error) => Failure::usage(error),
        StartError::Metrics(_) => Failure::general(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use switchboard_runtime::settings::{self, EXIT_USAGE, SettingsError};

    use super::FormerFlags;
    use crate::cli::Cli;

    fn parse(flags: &[&str]) -> Result<Cli, SettingsError> {
        let arguments = ["switchboard", "chat"].iter().chain(flags);
        settings::parse(arguments.map(Into::into))
    }

    #[test]
    fn former_flag_of_client_is_refused_with_its_successor() {
        for name in FormerFlags::NAMES {
            let error = parse(&[&format!("--{name}"), "value"]).unwrap_err();
            assert_eq!(error.exit_code, EXIT_USAGE, "{name}: {error}");
            assert!(error.text.contains(&format!("no --{name};")), "{error}");
            assert!(error.text.contains("switchboard talk"), "{error}");
            assert!(!error.text.contains("value"), "{error}");
        }
    }

    #[test]
    fn former_flag_in_shared_file_is_ignored() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"data-dir = \"/tmp/data\"\nurl = \"http://127.0.0.1:1\"\n")
            .unwrap();
        let path = file.path().to_str().unwrap();
        assert!(parse(&["--config", path]).is_ok());
        assert!(parse(&["--config", path, "--url", "http://127.0.0.1:2"]).is_err());
    }
}
