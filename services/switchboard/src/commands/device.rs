//! `switchboard device`: a device that registers services and answers calls. It uses the same
//! protocol as any other device.

mod port;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use secrecy::SecretString;
use switchboard_protocol::{id::DeviceId, message::MAX_PICTURE_BYTES};
use switchboard_runtime::{shutdown::Shutdown, signals};

use crate::{
    api::ApiArguments,
    device::{self, Device, Listening, Services, Sound, Tokens, Voice},
    exit::{Failure, print_stderr},
    files,
};

pub(crate) use self::port::PortArguments;

/// Connects as a device, registers services and answers calls.
///
/// By default it connects to the `up` running on --data-dir, with the services get_current_time,
/// create_file and echo. Prints {"event":"online","device_id"} on stdout after each registration;
/// logs go to stderr. Reconnects until stopped; with --say, exits after the response.
///
/// Exit codes: 0 ended normally, 1 services or conversation rejected, or no complete response, 64
/// invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Id of the device, 1 to 64 characters of A-Z a-z 0-9 . _ : -; with --token, the token
    /// determines it
    #[arg(long, env, default_value = "demo-1")]
    id: DeviceId,
    #[command(flatten)]
    port: PortArguments,
    /// Access token with the scope `device`. Default: issued with the API key and renewed
    #[arg(long, env, hide_env_values = true)]
    token: Option<SecretString>,
    /// File of services to offer instead of the demo:
    /// {"services":{NAME:{"description","parameters","timeout_ms","command":["PROGRAM","ARGUMENT"]}}}.
    /// A command reads the parameters as JSON from stdin; its stdout, JSON or text, is the data of
    /// the result
    #[arg(long, value_name = "FILE")]
    services: Option<PathBuf>,
    /// Folder for the files of create_file [default: the folder `scratch` in --data-dir]
    #[arg(long, value_name = "FOLDER", conflicts_with = "services")]
    scratch: Option<PathBuf>,
    /// Send this text, print the response and exit; calls are answered in the meantime
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    /// The picture that this text is about: JPEG, PNG, WebP or GIF, at most 512 KiB
    #[arg(long, value_name = "FILE", requires = "say")]
    picture: Option<PathBuf>,
    /// Listen to a recording: a WAV file, or raw 16-bit samples at 16 kHz, from stdin with `-`. Prints
    /// what was understood and the answer on stdout; exits after the answer to the end of the recording
    #[arg(long, value_name = "FILE", conflicts_with = "say")]
    mic: Option<PathBuf>,
    /// Where to write the sound of answers, at 24 kHz: a WAV file, another file, or `-` for stdout
    #[arg(long, value_name = "FILE", requires = "mic")]
    speaker: Option<PathBuf>,
    /// When a message begins and ends: detected by the server, or with the recording; `realtime` can
    /// interrupt answers
    #[arg(long, value_enum, default_value_t = Listening::Auto, requires = "mic")]
    listen: Listening,
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
    let picture = match &arguments.picture {
        Some(file) => files::read_input(file, MAX_PICTURE_BYTES as u64)?,
        None => Vec::new(),
    };
    let device = Device {
        address: arguments.port.address(&arguments.api)?,
        tokens: tokens(&arguments)?,
        services: Arc::new(services),
        text: arguments.say,
        picture,
        voice: arguments.mic.map(|microphone| Voice {
            microphone: Sound::File(microphone),
            speaker: arguments.speaker.map(Sound::File),
            listen: arguments.listen.into(),
        }),
    };
    serve(device).await
}

/// Runs a device until it has its answer, or until a signal.
///
/// # Errors
/// When the server rejects the device, or the answer is incomplete.
pub(crate) async fn serve(device: Device) -> Result<ExitCode, Failure> {
    let shutdown = Shutdown::new();
    let answered = tokio::select! {
        answered = device::run(device, &shutdown) => answered,
        watched = signals::watch(&shutdown, async {}, device::SHUTDOWN_TIMEOUT) => {
            watched.context("cannot handle signals")?;
            Ok(())
        }
        () = shutdown.draining() => Ok(()),
    };
    shutdown.stop();
    shutdown.finished(device::SHUTDOWN_TIMEOUT).await;
    answered.map(|()| {
        print_stderr("ended");
        ExitCode::SUCCESS
    })
}

fn tokens(arguments: &Arguments) -> Result<Tokens, Failure> {
    match &arguments.token {
        Some(token) => Ok(Tokens::fixed(token.clone())),
        None => Ok(Tokens::renewed(arguments.api.connect()?, &arguments.id)),
    }
}
