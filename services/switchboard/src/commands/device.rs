//! `switchboard device`: a device that dials in, registers services and answers calls.
//! Never: a shortcut past the wire; it is a client like any other.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use secrecy::SecretString;
use switchboard_protocol::id::DeviceId;
use switchboard_runtime::{shutdown::Shutdown, signals};
use tokio_rustls::TlsConnector;

use crate::{
    api::ApiArguments,
    device::{self, Address, Device, Services, Tokens},
    exit::{Failure, say},
    tls,
};

/// Ports of an edge unless its address says otherwise.
const PLAIN_PORT: u16 = 7700;
const TLS_PORT: u16 = 7701;

/// Dials in as a device, registers services and answers calls until it is stopped.
///
/// Without anything given it connects to the `up` that runs on --data-dir, with the services
/// get_current_time, create_file and echo. Prints {"event":"online","device_id"} on stdout each time
/// its services are registered; what happens otherwise goes to stderr. Reconnects for ever, or with
/// --say until it is answered.
///
/// Exit codes: 0 ended as asked, 1 its services were refused, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Its id, 1 to 64 of A-Z a-z 0-9 . _ : - (with --token, the token says which device this is)
    #[arg(long, env = "SWITCHBOARD_DEVICE_ID", default_value = "demo-1")]
    id: DeviceId,
    /// Where to dial in; without it that of the running `up`, or port 7700 (7701 with --tls) of --url
    #[arg(long, env = "SWITCHBOARD_DEVICE_ADDR", value_name = "HOST:PORT")]
    addr: Option<String>,
    /// Dial in over TLS
    #[arg(long, env = "SWITCHBOARD_DEVICE_TLS")]
    tls: bool,
    /// An access token with the scope `device`; without it one is got with the API key, and renewed
    #[arg(long, env = "SWITCHBOARD_TOKEN", hide_env_values = true)]
    token: Option<SecretString>,
    /// Services of its own instead of the demo: {"services":{NAME:{"description","parameters",
    /// "timeout_ms","command":["PROGRAM","ARGUMENT"]}}}. The command gets the parameters as JSON on
    /// stdin; what it writes to stdout, JSON or text, is the data of the result
    #[arg(long, value_name = "FILE")]
    services: Option<PathBuf>,
    /// Where create_file puts its files [default: the folder `scratch` of --data-dir]
    #[arg(long, value_name = "FOLDER", conflicts_with = "services")]
    scratch: Option<PathBuf>,
    /// Say this to whoever answers, print the answer on stdout, and end; calls are answered meanwhile
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let services = match &arguments.services {
        Some(file) => Services::from_file(file)?,
        None => Services::demo(match &arguments.scratch {
            Some(folder) => folder.clone(),
            None => arguments.api.data.path()?.join("scratch"),
        }),
    };
    let device = Device {
        address: address(&arguments)?,
        tokens: tokens(&arguments)?,
        services: Arc::new(services),
        words: arguments.say,
    };
    let shutdown = Shutdown::new();
    let answered = tokio::select! {
        answered = device::run(device, &shutdown) => answered,
        watched = signals::watch(&shutdown, async {}, device::END_WITHIN) => {
            watched.context("signals cannot be handled")?;
            Ok(())
        }
        () = shutdown.draining() => Ok(()),
    };
    shutdown.stop();
    shutdown.finished(device::END_WITHIN).await;
    answered.map(|()| {
        say("ended");
        ExitCode::SUCCESS
    })
}

fn tokens(arguments: &Arguments) -> Result<Tokens, Failure> {
    match &arguments.token {
        Some(token) => Ok(Tokens::given(token.clone())),
        None => Ok(Tokens::renewed(arguments.api.connect()?, &arguments.id)),
    }
}

fn address(arguments: &Arguments) -> Result<Address, Failure> {
    let tls = match arguments.tls {
        true => Some(TlsConnector::from(Arc::new(tls::client_config(
            arguments.api.tls_ca.as_deref(),
        )?))),
        false => None,
    };
    let port = if arguments.tls { TLS_PORT } else { PLAIN_PORT };
    let running = || match (&arguments.api.url, arguments.tls) {
        (None, false) => Ok(arguments
            .api
            .data
            .instance()?
            .and_then(|instance| instance.device_addr)),
        _ => Ok::<_, Failure>(None),
    };
    let host_and_port = match &arguments.addr {
        Some(addr) => addr.clone(),
        None => match running()? {
            Some(addr) => addr,
            None => format!("{}:{port}", arguments.api.connect()?.host()),
        },
    };
    Ok(Address { host_and_port, tls })
}
