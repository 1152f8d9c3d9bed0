//! A device client: connects, authenticates, registers its services, answers calls, and reconnects.

use std::{sync::Arc, time::Duration};

use switchboard_protocol::id::DeviceId;
use switchboard_runtime::shutdown::Shutdown;

use tokio::sync::oneshot;

use crate::exit::{self, Failure, print_stderr};

use self::{connection::Connection, dialogue::Dialogue, wire::WireError};

mod call_line;
mod command;
mod connection;
mod demo;
mod dialogue;
mod microphone;
mod services;
mod sound;
mod speaker;
mod tokens;
mod voice;
mod wire;

pub(crate) use self::{
    services::Services,
    tokens::Tokens,
    voice::{Listening, Sound, Voice},
    wire::Address,
};

/// Time that calls in flight have to finish on shutdown.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Bounds of the delay before a reconnect.
const MIN_RECONNECT_BACKOFF: Duration = Duration::from_millis(100);
const MAX_RECONNECT_BACKOFF: Duration = Duration::from_secs(5);

/// Configuration of a device.
pub(crate) struct Device {
    /// Address of the device port.
    pub(crate) address: Address,
    /// Source of access tokens.
    pub(crate) tokens: Tokens,
    /// Services to register.
    pub(crate) services: Arc<Services>,
    /// Text to send once online; the device exits after the response.
    pub(crate) text: Option<String>,
    /// The picture that the text is about; empty without one.
    pub(crate) picture: Vec<u8>,
    /// What the device listens to; it exits after the last answer.
    pub(crate) voice: Option<Voice>,
}

impl Device {
    /// Whether the device exits after an answer.
    const fn exits(&self) -> bool {
        self.text.is_some() || self.voice.is_some()
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Disconnect {
    /// An I/O or protocol error.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The API did not issue a token.
    #[error("cannot get a token: {0}")]
    NoToken(String),
    /// There is no API that issues tokens at the URL.
    #[error("cannot get a token: {0}")]
    WrongAddress(String),
    /// The server rejected the token.
    #[error("the token was rejected: {0}")]
    TokenRefused(String),
    /// The server rejected the services; a retry would be rejected again.
    #[error("the services were rejected: {0}")]
    ServicesRefused(String),
    /// The server sent GOAWAY.
    #[error("the server asked to reconnect ({reason})")]
    Goaway {
        /// Reason.
        reason: String,
        /// Delay before the reconnect.
        wait: Duration,
    },
    /// The response to the text is complete.
    #[error("the response is complete")]
    Answered,
    /// The microphone, the speaker, or the server's terms do not fit.
    #[error("{0}")]
    Voice(String),
    /// The server was silent for too long.
    #[error("the server has been silent for {} s", .0.as_secs())]
    Silent(Duration),
}

impl Disconnect {
    /// Returns whether the server drains: this connection stays open until the device has registered
    /// elsewhere and its calls are finished.
    fn is_drain(&self) -> bool {
        matches!(self, Self::Goaway { reason, .. } if reason == "drain")
    }
}

/// Connects and reconnects until stopped, or until the text has a response.
///
/// # Errors
/// When the server rejects the services.
pub(crate) async fn run(mut device: Device, shutdown: &Shutdown) -> Result<(), Failure> {
    let mut attempts = 0;
    loop {
        let mut registered = false;
        let ended = serve_connection(&mut device, shutdown, &mut registered).await;
        if registered {
            attempts = 0;
        }
        let wait = match ended {
            Ok(never) => match never {},
            Err(Disconnect::Answered) => return Ok(()),
            Err(Disconnect::Voice(error) | Disconnect::WrongAddress(error)) => {
                return Err(Failure::general(error));
            }
            // Sending the message again could repeat its effects.
            Err(ended) if registered && device.exits() => {
                return Err(Failure::general(format!("no complete response: {ended}")));
            }
            Err(Disconnect::ServicesRefused(reason)) => {
                return Err(Failure::general(format!(
                    "the services were rejected: {reason}"
                )));
            }
            Err(ended) => {
                let wait = reconnect_delay(&ended, attempts);
                print_stderr(&format!("{ended}; reconnecting in {} ms", wait.as_millis()));
                wait
            }
        };
        attempts += 1;
        tokio::time::sleep(wait).await;
    }
}

/// Serves one connection until it ends, or until the server drains. In that case the connection is
/// served in the background until the server closes it, while the device connects elsewhere.
async fn serve_connection(
    device: &mut Device,
    shutdown: &Shutdown,
    registered: &mut bool,
) -> Result<std::convert::Infallible, Disconnect> {
    let token = device.tokens.current().await.map_err(|error| {
        let reason = error.to_string();
        if error.is_not_found() {
            Disconnect::WrongAddress(reason)
        } else {
            Disconnect::NoToken(reason)
        }
    })?;
    let mut connection = Connection::open(&device.address).await?;
    let mut dialogue = match &device.voice {
        Some(voice) => Some(Dialogue::open(voice)?),
        None => None,
    };
    let offer = dialogue.as_ref().map(Dialogue::terms);
    let ticket = device.tokens.ticket();
    let answer = connection.authenticate(&token, ticket.as_ref(), offer);
    let welcome = match answer.await? {
        Ok(welcome) => welcome,
        Err(reason) => {
            device.tokens.invalidate();
            return Err(Disconnect::TokenRefused(reason));
        }
    };
    device.tokens.keep_ticket(&welcome);
    connection.register(&device.services).await?;
    *registered = true;
    print_stderr(&format!(
        "online as {} at {}",
        welcome.device_id, device.address.host_and_port
    ));
    if let Some(dialogue) = &mut dialogue {
        dialogue.accept(&welcome)?;
    }
    match &device.text {
        Some(text) => connection.send_text(text, &device.picture).await?,
        None if dialogue.is_some() => {}
        None => print_online(&welcome.device_id),
    }
    let (drain, drained) = oneshot::channel();
    // The response to a message arrives on this connection only.
    let drain = (!device.exits()).then_some(drain);
    let (services, stop) = (Arc::clone(&device.services), shutdown.clone());
    let serving = shutdown.spawn(async move {
        let calls = stop.child();
        let ended = tokio::select! {
            ended = connection.answer_calls(&services, &calls, drain, dialogue) => Some(ended),
            () = stop.stopping() => None,
        };
        calls.stop();
        ended
    });
    tokio::select! {
        biased;
        Ok(goaway) = drained => Err(goaway),
        Ok(Some(ended)) = serving => ended,
        // The process stops, or the task panicked.
        else => Err(WireError::Unexpected("the end of the device".to_owned()).into()),
    }
}

/// Prints the line that reports the device as online.
fn print_online(device_id: &DeviceId) {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        event: &'static str,
        device_id: &'a DeviceId,
    }
    let line = Line {
        event: "online",
        device_id,
    };
    let printed = serde_json::to_string(&line).is_ok_and(|line| exit::print(&line).is_ok());
    if !printed {
        print_stderr("stdout is closed; continuing without it");
    }
}

/// Returns the delay requested by the server, or a random delay with exponential backoff.
fn reconnect_delay(ended: &Disconnect, attempts: u32) -> Duration {
    let max = MIN_RECONNECT_BACKOFF
        .saturating_mul(2_u32.saturating_pow(attempts))
        .min(MAX_RECONNECT_BACKOFF);
    let jitter = max.mul_f64(rand::random::<f64>());
    match ended {
        Disconnect::Goaway { wait, .. } => *wait + jitter.min(MIN_RECONNECT_BACKOFF),
        _ => jitter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnect_delay_is_bounded_and_follows_goaway() {
        for attempts in [0, 1, 5, 40, u32::MAX] {
            assert!(
                reconnect_delay(&Disconnect::Silent(MAX_RECONNECT_BACKOFF), attempts)
                    <= MAX_RECONNECT_BACKOFF
            );
        }
        let goaway = Disconnect::Goaway {
            reason: "drain".into(),
            wait: Duration::from_secs(7),
        };
        assert!(reconnect_delay(&goaway, 0) >= Duration::from_secs(7));
    }
}
