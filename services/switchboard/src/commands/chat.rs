//! `switchboard chat`: answers what people say to devices and NPCs, over Redis and Postgres; or, with an NPC, talks to it.
//! Never: state of its own; any replica answers any turn.

mod talk;

use std::process::ExitCode;

use axum::Router;
use switchboard_chat::{Deps, StartError};
use switchboard_embeddings::{Endpoint, Questions};
use switchboard_runtime::{admin::Need, http::HttpLimits};

use crate::{
    api::ApiArguments,
    arguments,
    exit::Failure,
    http_service::{HttpServiceArguments, Kind, Parts},
    process::{Process, Telemetry},
};

/// Answers what people say to devices, against DATABASE_URL and REDIS_URL; with --npc, talks to an NPC in the terminal.
///
/// Language models answer, at --completions-endpoint or those in --completions-file. Without any, the embedded responder
/// does: fixed rules that match words to services. Prints {"event":"ready","http_url","admin_url"} on stdout when it can
/// serve; logs go to stderr. Ends on SIGTERM, when turns under way are answered.
///
/// With --npc it is a client of --url instead, or of the `up` that runs on --data-dir: each line on stdin is said to the NPC,
/// and its answer is printed as it is given. It uses the services of the NPC's devices.
///
/// Exit codes: 0 ended as asked, 1 failed or refused, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    talk: talk::Arguments,
    #[command(flatten)]
    api: ApiArguments,
    /// Where people without a device talk to NPCs
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_LISTEN",
        default_value = "0.0.0.0:8082",
        value_name = "HOST:PORT"
    )]
    http_listen: String,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    embeddings: switchboard_embeddings::Config,
    #[command(flatten)]
    chat: switchboard_chat::Config,
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    if let Some(npc) = arguments.talk.npc {
        return talk::run(npc, &arguments.talk, &arguments.api).await;
    }
    let kind = Kind {
        name: "chat",
        on_bus: std::convert::identity,
        // NPCs that were seen before answer without it.
        database: Need::Helpful,
    };
    let questions = Endpoint::from_config(&arguments.embeddings).map(Questions::new);
    let serve = |process: &Process, parts| serve(&arguments.chat, questions, process, parts);
    arguments
        .service
        .run(&arguments.http_listen, kind, telemetry, serve)
        .await
}

fn serve(
    chat: &switchboard_chat::Config,
    questions: Option<Questions>,
    process: &Process,
    parts: Parts,
) -> Result<(Router, HttpLimits), Failure> {
    arguments::watch_trust(&parts.bus, &process.readiness);
    let deps = Deps {
        bus: parts.bus,
        store: parts.store,
        authenticator: parts.authenticator,
        questions,
    };
    let router = switchboard_chat::start(chat, deps, &process.registry, &process.stages.serving)
        .map_err(failure)?;
    let router = router.merge(switchboard_chat::document().routes());
    Ok((router, HttpLimits::default()))
}

/// A file of providers that is wrong is a wrong setting.
pub(crate) fn failure(error: StartError) -> Failure {
    match error {
        StartError::Providers(error) => Failure::usage(error),
        StartError::Metrics(_) => Failure::general(error),
    }
}
