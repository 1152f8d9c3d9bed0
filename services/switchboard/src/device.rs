//! A device: dials in, says who it is and what it can do, answers calls, and comes back for ever.
//! Never: an answer to a call of an earlier connection, a call that waits without a bound.

use std::{sync::Arc, time::Duration};

use switchboard_protocol::id::DeviceId;
use switchboard_runtime::shutdown::Shutdown;

use crate::exit::{self, Failure, say};

use self::{connection::Connection, wire::WireError};

mod command;
mod connection;
mod demo;
mod services;
mod tokens;
mod wire;

pub(crate) use self::{services::Services, tokens::Tokens, wire::Address};

/// How long calls under way may hold up the end.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(2);

/// The first and the longest pause between two connections.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a device is.
pub(crate) struct Device {
    /// Where it dials in.
    pub(crate) address: Address,
    /// How it proves who it is.
    pub(crate) tokens: Tokens,
    /// What it can do.
    pub(crate) services: Arc<Services>,
    /// What it says once it is online; it ends when that is answered.
    pub(crate) words: Option<String>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    /// The network or the other side failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// No token could be had.
    #[error("no token: {0}")]
    NoToken(String),
    /// The token was refused.
    #[error("the token was refused: {0}")]
    TokenRefused(String),
    /// What the device can do was refused: it will be again.
    #[error("the services were refused: {0}")]
    ServicesRefused(String),
    /// The server asked to reconnect.
    #[error("the server asked to reconnect ({reason})")]
    SentAway {
        /// Why.
        reason: String,
        /// How long to wait before.
        wait: Duration,
    },
    /// What it said was answered to the end.
    #[error("the answer is complete")]
    Answered,
    /// Nothing was heard for too long.
    #[error("the server has been silent for {} s", .0.as_secs())]
    Silent(Duration),
}

impl Ended {
    /// Whether the server lets this connection finish what is under way.
    fn is_drain(&self) -> bool {
        matches!(self, Self::SentAway { reason, .. } if reason == "drain")
    }
}

/// Connects again and again, until stopped or answered.
///
/// # Errors
/// When the server refuses the services, which no repetition would change.
pub(crate) async fn run(mut device: Device, shutdown: &Shutdown) -> Result<(), Failure> {
    let mut attempts = 0;
    loop {
        let calls = shutdown.child();
        let mut registered = false;
        let ended = live(&mut device, &calls, &mut registered).await;
        calls.stop();
        if registered {
            attempts = 0;
        }
        let wait = match ended {
            Ok(never) => match never {},
            Err(Ended::Answered) => return Ok(()),
            // Said once more, it might be done once more.
            Err(ended) if registered && device.words.is_some() => {
                return Err(Failure::general(format!("not answered: {ended}")));
            }
            Err(Ended::ServicesRefused(reason)) => {
                return Err(Failure::general(format!(
                    "the services were refused: {reason}"
                )));
            }
            Err(ended) => {
                let wait = pause(&ended, attempts);
                say(&format!(
                    "{ended}; connecting again in {} ms",
                    wait.as_millis()
                ));
                wait
            }
        };
        attempts += 1;
        tokio::time::sleep(wait).await;
    }
}

/// One connection, from dialling to its end.
async fn live(
    device: &mut Device,
    calls: &Shutdown,
    registered: &mut bool,
) -> Result<std::convert::Infallible, Ended> {
    let token = device
        .tokens
        .current()
        .await
        .map_err(|error| Ended::NoToken(error.to_string()))?;
    let mut connection = Connection::open(&device.address).await?;
    let welcome = match connection.authenticate(&token).await? {
        Ok(welcome) => welcome,
        Err(reason) => {
            device.tokens.refused();
            return Err(Ended::TokenRefused(reason));
        }
    };
    connection.register(&device.services).await?;
    *registered = true;
    say(&format!(
        "online as {} at {}",
        welcome.device_id, device.address.host_and_port
    ));
    match &device.words {
        Some(words) => connection.speak(words).await?,
        None => announce(&welcome.device_id),
    }
    connection.answer_calls(&device.services, calls).await
}

/// Tells whoever started this that calls can be made.
fn announce(device_id: &DeviceId) {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        event: &'static str,
        device_id: &'a DeviceId,
    }
    let line = Line {
        event: "online",
        device_id,
    };
    let told = serde_json::to_string(&line).is_ok_and(|line| exit::print(&line).is_ok());
    if !told {
        say("stdout is closed; going on without it");
    }
}

/// As long as the server asks, otherwise anything up to twice as long as the last time.
fn pause(ended: &Ended, attempts: u32) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(attempts))
        .min(LONGEST_PAUSE);
    let jitter = longest.mul_f64(rand::random::<f64>());
    match ended {
        Ended::SentAway { wait, .. } => *wait + jitter.min(FIRST_PAUSE),
        _ => jitter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_bounded_and_obey_the_server() {
        for attempts in [0, 1, 5, 40, u32::MAX] {
            assert!(pause(&Ended::Silent(LONGEST_PAUSE), attempts) <= LONGEST_PAUSE);
        }
        let asked = Ended::SentAway {
            reason: "drain".into(),
            wait: Duration::from_secs(7),
        };
        assert!(pause(&asked, 0) >= Duration::from_secs(7));
    }
}
