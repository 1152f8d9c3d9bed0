//! `switchboard chat`: the service that answers users of devices and NPCs.

use std::{path::PathBuf, process::ExitCode};

use secrecy::SecretString;
use switchboard_chat::{self as chat, StartError};
use switchboard_embeddings::{Endpoint, QueryEmbedder};
use switchboard_runtime::{admin::Need, http::HttpLimits};

use crate::{
    exit::Failure,
    http_service::{Deps, HttpService, HttpServiceArguments},
    process::{Process, Telemetry},
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
    moved: Moved,
    /// Address of the HTTP port
    #[arg(long, env, default_value = "0.0.0.0:8082", value_name = "HOST:PORT")]
    http_listen: String,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    embeddings: switchboard_embeddings::Config,
    #[command(flatten)]
    chat: chat::Config,
}

/// Former flags of a client, kept for an error that names `switchboard talk`.
#[derive(Debug, clap::Args)]
struct Moved {
    /// See `switchboard talk`
    #[arg(long, hide = true)]
    npc: Option<String>,
    /// See `switchboard talk`
    #[arg(long, hide = true)]
    say: Option<String>,
    /// See `switchboard talk`
    #[arg(long, hide = true)]
    subject: Option<String>,
    /// See `switchboard talk`
    #[arg(long, hide = true)]
    url: Option<String>,
    /// See `switchboard talk`
    #[arg(long, hide = true)]
    api_key: Option<SecretString>,
    /// See `switchboard talk`
    #[arg(long, hide = true)]
    tls_ca: Option<PathBuf>,
    /// See `switchboard talk`
    #[arg(long, hide = true)]
    data_dir: Option<PathBuf>,
}

impl Moved {
    fn check(&self) -> Result<(), Failure> {
        let Self {
            npc, say, subject, ..
        } = self;
        let flags = [("--npc", npc), ("--say", say), ("--subject", subject)];
        match flags.iter().find(|(_, value)| value.is_some()) {
            Some((flag, _)) => Err(Failure::usage(format!(
                "`switchboard chat` is the service and has no {flag}; to talk to an NPC, use \
                 `switchboard talk --npc ID`"
            ))),
            None => Ok(()),
        }
    }
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    arguments.moved.check()?;
    let service = HttpService {
        name: "chat",
        configure_bus: std::convert::identity,
        // NPCs in the cache answer without it.
        database: Need::Optional,
        needs_token_keys: true,
        document: chat::document,
    };
    let (config, embeddings) = (arguments.chat, arguments.embeddings);
    let start = |deps: Deps, process: &Process| {
        let deps = chat::Deps {
            bus: deps.bus,
            store: deps.store,
            authenticator: deps.authenticator,
            embedder: Endpoint::from_config(&embeddings).map(QueryEmbedder::new),
            registry: deps.registry,
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
