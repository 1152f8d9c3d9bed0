//! `switchboard gateway`: the service that accepts calls over REST and MCP.

use std::process::ExitCode;

use anyhow::Context as _;
use http::Uri;
use switchboard_bus::BusConfig;
use switchboard_chat as chat;
use switchboard_control as control;
use switchboard_gateway::{self as gateway, Forwarding, Upstream};
use switchboard_runtime::{
    admin::Need,
    api::Document,
    http::{HttpLimits, LargerBody},
    outbound,
};
use switchboard_store::MasterKeyConfig;

use crate::{
    exit::Failure,
    http_service::{Deps, HttpService, HttpServiceArguments},
    process::{Process, Telemetry},
    stored_keys::StoredKeys,
};

/// Accepts calls over REST and MCP, using DATABASE_URL and REDIS_URL.
///
/// Prints {"event":"ready","http_url","admin_url"} on stdout when ready; logs go to stderr. Starts
/// even if Redis or Postgres is unavailable, reports that on the admin port, and becomes ready as
/// soon as Redis is reachable: callers with access tokens do not need Postgres. On SIGTERM, it
/// finishes the requests in progress and exits.
///
/// With --control-url and --chat-url it is the one address of a deployment: requests to paths of
/// these services are forwarded to them, and /openapi.json shows the whole interface.
///
/// Exit codes: 0 ended normally, 1 failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address of the HTTP port
    #[arg(long, env, default_value = "0.0.0.0:8080", value_name = "HOST:PORT")]
    http_listen: String,
    #[command(flatten)]
    forwarding: ForwardingArguments,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    master_key: MasterKeyConfig,
    #[command(flatten)]
    gateway: gateway::Config,
}

/// The services behind the address of the gateway.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "One address")]
struct ForwardingArguments {
    /// URL of the control plane, such as `http://control:8081`. Requests to its paths are forwarded
    /// there; without it they are not found here
    #[arg(long, env, value_parser = outbound::parse_base_url, value_name = "URL")]
    control_url: Option<Uri>,
    /// The same for the chat service, such as `http://chat:8082`
    #[arg(long, env, value_parser = outbound::parse_base_url, value_name = "URL")]
    chat_url: Option<Uri>,
    /// Maximum number of forwarded requests in progress, of which one organisation or address gets a
    /// quarter; further ones receive 429. Each has a connection to its service; protects file
    /// descriptors
    #[arg(long, env, default_value_t = 1_024, value_name = "COUNT")]
    forwarded_requests: usize,
}

impl ForwardingArguments {
    fn forwarding(&self) -> anyhow::Result<Forwarding> {
        let chat = ("chat", "--chat-url");
        let control = ("control", "--control-url");
        let services = [
            (control, &self.control_url, control::document as fn() -> _),
            (chat, &self.chat_url, chat::document),
        ];
        let mut upstreams = Vec::new();
        for (service, url, document) in services {
            if let Some(url) = url {
                upstreams.push(Upstream::new(service, url, document())?);
            }
        }
        Ok(Forwarding {
            upstreams,
            max_requests: self.forwarded_requests,
            ..Forwarding::default()
        })
    }
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let forwarding = arguments.forwarding.forwarding()?;
    let documents = forwarding.upstreams.iter().map(Upstream::document).cloned();
    let service = HttpService {
        name: "gateway",
        configure_bus: BusConfig::watching_catalog,
        // Access tokens and cached API keys work without it.
        database: Need::Optional,
        needs_token_keys: true,
        stored_keys: StoredKeys::Read(arguments.master_key),
        document: documents.fold(gateway::document(), Document::merged),
    };
    let larger_bodies: &[LargerBody] = match arguments.forwarding.control_url {
        Some(_) => control::LARGER_BODIES,
        None => &[],
    };
    let config = arguments.gateway;
    let start = |deps: Deps, process: &Process| {
        let deps = gateway::Deps {
            store: deps.store,
            bus: deps.bus,
            authenticator: deps.authenticator,
            registry: deps.registry,
            budgets: deps.budgets,
            forwarding,
        };
        let router = gateway::run(&config, deps, &process.stages.serving)
            .context("the gateway cannot start")?
            .merge(switchboard_console::routes());
        let limits = HttpLimits {
            larger_bodies,
            ..config.http_limits()
        };
        Ok((router, limits))
    };
    let listen = &arguments.http_listen;
    arguments
        .service
        .run(listen, service, telemetry, start)
        .await
}
