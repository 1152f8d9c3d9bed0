//! `switchboard doctor`: checks whether dependencies are reachable. It changes nothing and prints
//! no secrets.

mod finding;
mod local;
mod providers;
mod running;
mod stores;
mod target;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use switchboard_control::WebhookConfig;
use switchboard_store::{MasterKeyConfig, ObjectsConfig};

use self::{finding::Check, target::Target};
use crate::{api::ApiArguments, exit::Failure, shell};

/// Timeout of each check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks the dependencies of Switchboard and suggests fixes.
///
/// Checks the installation that other commands use with the same flags: of --url, of a context, or
/// the `up` running on --data-dir, whose settings apply where none are given here. Each line has in
/// brackets what was done to find out, and a failed one ends with the command or the setting that
/// solves it. A line that starts with - was not checked, for the reason that it gives. No check
/// requests an answer or audio of a provider, and webhooks receive no request. It is a failure if
/// nothing is given and nothing runs.
///
/// Exit codes: 0 no check failed, 1 a check failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print a JSON list of {"check","ok","how","detail","remedy"}; `ok` is null if it is not checked
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArguments,
    #[command(flatten)]
    database: switchboard_store::Config,
    #[command(flatten)]
    master_key: MasterKeyConfig,
    #[command(flatten)]
    objects: ObjectsConfig,
    #[command(flatten)]
    bus: switchboard_bus::Config,
    #[command(flatten)]
    embeddings: switchboard_embeddings::Config,
    #[command(flatten)]
    completions: switchboard_completions::Config,
    #[command(flatten)]
    speech: switchboard_speech::Config,
    #[command(flatten)]
    webhooks: WebhookConfig,
    /// Address of the device port. Default: that of the `up` running on --data-dir
    #[arg(long, env, value_name = "HOST:PORT")]
    addr: Option<String>,
    /// Folder of PostgreSQL's programs. Default: PATH and the usual install locations
    #[arg(long, env, value_name = "FOLDER")]
    postgres_bin_dir: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (folder, instance) = local::data_folder(&arguments);
    let mut target = Target::find(&arguments, instance)?;
    let arguments = target.complete(arguments);
    let mut findings = vec![
        target.installation(),
        folder,
        local::databases(arguments.api.data.path().ok().as_deref()),
    ];
    let has_database = arguments.database.database_url.is_some();
    if has_database {
        findings.push(stores::database(&arguments).await);
        findings.push(stores::stored_keys(&arguments).await);
    } else if let Some(reason) = target.unknown_settings("database-url", false, true) {
        findings.push(Check::Postgres.skipped("read the settings", reason));
    } else {
        findings.push(local::programs(&arguments, &target));
    }
    findings.extend(stores::objects(&arguments.objects, &target).await);
    if arguments.bus.redis_url.is_some() {
        findings.push(stores::redis(&arguments).await);
    }
    findings.push(providers::embeddings(&arguments, &target).await);
    findings.push(providers::conversations(&arguments, &target).await);
    findings.extend(providers::speech(&arguments, &target).await);
    if let Some(url) = &target.url {
        findings.push(target.api(url).await);
        findings.push(target.webhooks(url, &arguments.webhooks).await);
    }
    if target.is_running_somewhere() {
        findings.push(target.admin_port().await);
        findings.push(target.device_port().await);
    }
    finding::print(&findings, arguments.json)
}

impl Arguments {
    /// Whether the settings name a service that runs without an `up`.
    const fn names_a_service(&self) -> bool {
        self.addr.is_some() || self.database.database_url.is_some() || self.bus.redis_url.is_some()
    }

    fn start_command(&self) -> String {
        match &self.api.data.data_dir {
            Some(folder) => format!("switchboard up --data-dir {}", shell::quote_path(folder)),
            None => "switchboard up".to_owned(),
        }
    }
}
