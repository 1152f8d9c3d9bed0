//! `switchboard doctor`: checks whether dependencies are reachable. It changes nothing and prints
//! no secrets.

mod finding;
mod local;
mod providers;
mod running;
mod stores;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use secrecy::SecretString;
use switchboard_control::WebhookConfig;
use switchboard_store::{MasterKeyConfig, ObjectsConfig};

use self::{
    finding::{Check, Finding, Problem},
    running::Target,
};
use crate::{arguments::DataArguments, data_folder::Instance, exit::Failure, shell};

/// Timeout of each check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks the dependencies of Switchboard and suggests fixes.
///
/// Checks the given settings and the `up` running on --data-dir. Each line says in brackets what was
/// done to find out, and a failed one ends with the command or the setting that solves it. No check
/// requests an answer or audio of a provider, and webhooks receive no request. It is a failure if
/// nothing is given and nothing runs.
///
/// Exit codes: 0 all checks passed, 1 a check failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print a JSON list of {"check","ok","how","detail","remedy"}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArguments,
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
    /// URL of the HTTP API. Default: that of the `up` running on --data-dir
    #[arg(long, env, value_name = "URL")]
    url: Option<String>,
    /// Address of the device port. Default: that of the `up` running on --data-dir
    #[arg(long, env, value_name = "HOST:PORT")]
    addr: Option<String>,
    /// API key to check. Default: that of the `up` running on --data-dir
    #[arg(long, env, hide_env_values = true, value_name = "KEY")]
    api_key: Option<SecretString>,
    /// Folder of PostgreSQL's programs. Default: PATH and the usual install locations
    #[arg(long, env, value_name = "FOLDER")]
    postgres_bin_dir: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (folder, instance) = local::data_folder(&arguments);
    let mut findings = vec![
        installation(&arguments, instance.as_ref()),
        folder,
        local::databases(arguments.data.path().ok().as_deref()),
    ];
    if arguments.database.database_url.is_some() {
        findings.push(stores::database(&arguments).await);
        findings.push(stores::stored_keys(&arguments).await);
    } else {
        findings.push(local::programs(&arguments));
    }
    if arguments.objects.objects.is_some() {
        findings.push(stores::objects(&arguments.objects).await);
    }
    if arguments.bus.redis_url.is_some() {
        findings.push(stores::redis(&arguments).await);
    }
    findings.push(providers::embeddings(&arguments).await);
    findings.push(providers::conversations(&arguments).await);
    findings.extend(providers::speech(&arguments).await);
    let target = arguments.target(instance);
    if let Some(url) = &target.url {
        findings.push(target.api(url).await);
        findings.push(target.webhooks(url, &arguments.webhooks).await);
    }
    if let Some(url) = &target.admin_url {
        findings.push(target.admin_port(url).await);
    }
    if let Some(addr) = &target.device_addr {
        findings.push(target.device_port(addr).await);
    }
    finding::print(&findings, arguments.json)
}

/// Whether there is something to check.
fn installation(arguments: &Arguments, instance: Option<&Instance>) -> Finding {
    let named = match instance {
        Some(_) => Ok("the `up` of the data folder".to_owned()),
        None if arguments.names_an_installation() => Ok("named by the settings".to_owned()),
        None => Err(Problem::run_or_set(
            "nothing runs on this data folder, and no other installation is named",
            arguments.start_command(),
            "--data-dir or --url",
        )),
    };
    Check::Installation.line("read the settings and the data folder", named)
}

impl Arguments {
    /// Whether the settings name something that runs.
    fn names_an_installation(&self) -> bool {
        let addresses = [&self.url, &self.addr];
        addresses.into_iter().any(Option::is_some)
            || self.database.database_url.is_some()
            || self.bus.redis_url.is_some()
    }

    fn start_command(&self) -> String {
        match &self.data.data_dir {
            Some(folder) => format!("switchboard up --data-dir {}", shell::quote_path(folder)),
            None => "switchboard up".to_owned(),
        }
    }

    /// What the settings name, otherwise the `up` of the data folder.
    fn target(&self, instance: Option<Instance>) -> Target {
        let start = self.start_command();
        let (url, key) = (self.url.clone(), self.api_key.clone());
        let addr = self.addr.clone();
        match instance {
            Some(instance) => Target {
                url: url.or(instance.http_url),
                key: key.or(Some(instance.api_key.into())),
                admin_url: instance.admin_url,
                device_addr: addr.or(instance.device_addr),
                start,
            },
            None => Target {
                url,
                key,
                admin_url: None,
                device_addr: addr,
                start,
            },
        }
    }
}
