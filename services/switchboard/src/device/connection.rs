//! Device side of one connection: authentication, registration, calls.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use serde_json::value::{RawValue, to_raw_value};
use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::{
        AudioTerms, AuthAccepted, AuthRequest, ClientInfo, ErrorNotice, Goaway, ResumeTicket,
        ServerMessage, parse_auth_answer,
    },
};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use crate::exit::{PieceWriter, print_stderr};

use super::{
    Disconnect,
    call_line::{self, CallEnd},
    dialogue::Dialogue,
    services::Services,
    wire::{Address, ReceivedFrame, Wire, WireError},
};

/// Timeout for responses to AUTH and to the registration.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of concurrent calls, equal to the server's limit per device.
const MAX_CALLS: usize = 64;
/// Id of the registration message.
const REGISTER: &str = "register";
/// Task id of frames other than control messages.
const OWN_TASK: TaskId = TaskId(*b"device01");
/// Task id of the text of --say.
const TEXT_TASK: TaskId = TaskId(*b"spoken01");
/// Reserve for header, delimiters and escapes of a result frame.
const FRAME_OVERHEAD: usize = 512;

/// An open connection.
pub(super) struct Connection {
    wire: Wire,
    heartbeat: Duration,
    max_result_bytes: usize,
}

/// A call that the device works on.
struct RunningCall {
    task: AbortHandle,
    service: String,
    started: Instant,
}

/// A finished call.
struct FinishedCall {
    call_id: String,
    message: Vec<u8>,
}

impl Connection {
    /// Connects to the server.
    ///
    /// # Errors
    /// When the server is unreachable.
    pub(super) async fn open(address: &Address) -> Result<Self, WireError> {
        let wire = Wire::dial(address).await?;
        Ok(Self {
            wire,
            heartbeat: RESPONSE_TIMEOUT,
            max_result_bytes: 0,
        })
    }

    /// Authenticates the device; the inner error is the server's rejection.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) async fn authenticate(
        &mut self,
        token: &SecretString,
        ticket: Option<&ResumeTicket>,
        audio: Option<AudioTerms>,
    ) -> Result<Result<AuthAccepted, String>, WireError> {
        let audio = audio.as_ref().map(to_raw_value).transpose();
        let audio = audio.map_err(std::io::Error::from)?;
        let request = AuthRequest {
            token: token.expose_secret().into(),
            ticket: ticket.map_or("", ResumeTicket::expose).into(),
            client: Some(ClientInfo {
                name: "switchboard device".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                audio: audio.as_deref(),
            }),
            locale: None,
        };
        let payload = serde_json::to_vec(&request).map_err(std::io::Error::from)?;
        self.wire.send(Kind::Auth, OWN_TASK, &payload).await?;
        let answer = self.receive_kind(Kind::Auth).await?;
        let result = parse_auth_answer(&answer.payload);
        let result = result.map_err(|error| WireError::Unexpected(error.to_string()))?;
        if let Ok(welcome) = &result {
            let limit = usize::try_from(welcome.max_frame_bytes).unwrap_or(usize::MAX);
            self.wire.set_limit(limit);
            self.max_result_bytes = limit.saturating_sub(FRAME_OVERHEAD);
            self.heartbeat = Duration::from_secs(welcome.heartbeat_s.max(1).into());
        }
        Ok(result)
    }

    /// Registers the services and waits for the confirmation.
    ///
    /// # Errors
    /// When the services are rejected, or the connection fails.
    pub(super) async fn register(&mut self, services: &Services) -> Result<(), Disconnect> {
        let message = serde_json::json!({
            "type": "register",
            "data": {"call_id": REGISTER, "services": services.definitions()},
        });
        self.wire
            .send(Kind::Control, TaskId::MCP, message.to_string().as_bytes())
            .await?;
        loop {
            let answer = self.receive_kind(Kind::Control).await?;
            match ServerMessage::parse(&answer.payload) {
                Ok(ServerMessage::Result {
                    call_id,
                    success,
                    error,
                }) if call_id == REGISTER => {
                    let reason = error.unwrap_or_default().into_owned();
                    return if success {
                        Ok(())
                    } else {
                        Err(Disconnect::ServicesRefused(reason))
                    };
                }
                Ok(_) => {}
                Err(error) => return Err(WireError::Unexpected(error.to_string()).into()),
            }
        }
    }

    /// Sends a text, about a picture unless that is empty; `answer_calls` prints the response.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) async fn send_text(&mut self, text: &str, picture: &[u8]) -> Result<(), WireError> {
        self.wire
            .send_text(TEXT_TASK, text, picture, self.max_result_bytes)
            .await
    }

    /// Answers calls until the connection ends. If the edge drains, its GOAWAY goes to `drain`, calls
    /// are still answered, and the server closes the connection.
    pub(super) async fn answer_calls(
        mut self,
        services: &Arc<Services>,
        tasks: &Shutdown,
        mut drain: Option<oneshot::Sender<Disconnect>>,
        mut dialogue: Option<Dialogue>,
    ) -> Result<Infallible, Disconnect> {
        let (finish, mut finished) = mpsc::channel::<FinishedCall>(MAX_CALLS);
        let mut running: HashMap<String, RunningCall> = HashMap::new();
        let silence_timeout = self.heartbeat.mul_f32(2.5);
        let mut heartbeat = interval_at(Instant::now() + self.heartbeat, self.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_received = Instant::now();
        let mut leaving = None;
        let mut response = PieceWriter::default();
        loop {
            tokio::select! {
                received = self.wire.receive() => {
                    last_received = Instant::now();
                    let received = received.map_err(|error| leaving.take().unwrap_or(error.into()))?;
                    if received.task == TEXT_TASK {
                        print_response(&mut response, &received)?;
                    }
                    if let Some(dialogue) = &mut dialogue {
                        dialogue.take(&received).await?;
                    }
                    let calls = Calls { services, tasks, finish: &finish, max_result_bytes: self.max_result_bytes };
                    match calls.take(received, &mut running) {
                        Ok(Some((kind, payload))) => self.wire.send(kind, OWN_TASK, &payload).await?,
                        Ok(None) => {}
                        Err(ended) if ended.is_drain() => match drain.take() {
                            // The receiver waits as long as this connection is the current one.
                            Some(drain) => drop(drain.send(ended)),
                            None => leaving = Some(ended),
                        },
                        Err(ended) => return Err(ended),
                    }
                }
                sound = next_sound(&mut dialogue) => {
                    if let Some(dialogue) = &mut dialogue {
                        dialogue.send(sound, &mut self.wire, self.max_result_bytes).await?;
                    }
                }
                Some(FinishedCall { call_id, message }) = finished.recv() => {
                    if running.remove(&call_id).is_some() {
                        self.wire.send(Kind::Control, TaskId::MCP, &message).await?;
                    }
                }
                _ = heartbeat.tick() => {
                    if last_received.elapsed() > silence_timeout {
                        return Err(Disconnect::Silent(silence_timeout));
                    }
                    self.wire.send(Kind::Ping, OWN_TASK, b"").await?;
                }
            }
        }
    }

    /// Waits for a frame of this kind and answers pings.
    async fn receive_kind(&mut self, kind: Kind) -> Result<ReceivedFrame, WireError> {
        let wait = async {
            loop {
                let received = self.wire.receive().await?;
                match received.kind {
                    Kind::Ping => {
                        self.wire
                            .send(Kind::Pong, OWN_TASK, &received.payload)
                            .await?
                    }
                    Kind::Error => return Err(WireError::Refused(error_notice(&received.payload))),
                    Kind::Goaway => {
                        return Err(WireError::Refused(goaway(&received.payload).reason));
                    }
                    got if got == kind => return Ok(received),
                    _ => {}
                }
            }
        };
        timeout(RESPONSE_TIMEOUT, wait)
            .await
            .unwrap_or(Err(WireError::Late("the server's answer")))
    }
}

/// Waits for the microphone; for ever, if there is none.
async fn next_sound(dialogue: &mut Option<Dialogue>) -> Option<Vec<u8>> {
    match dialogue {
        Some(dialogue) => dialogue.next_sound().await,
        None => std::future::pending().await,
    }
}

/// Context of calls.
struct Calls<'a> {
    services: &'a Arc<Services>,
    tasks: &'a Shutdown,
    finish: &'a mpsc::Sender<FinishedCall>,
    max_result_bytes: usize,
}

impl Calls<'_> {
    /// Handles a frame; returns the immediate response, if any.
    fn take(
        &self,
        received: ReceivedFrame,
        running: &mut HashMap<String, RunningCall>,
    ) -> Result<Option<(Kind, Vec<u8>)>, Disconnect> {
        match received.kind {
            Kind::Ping => return Ok(Some((Kind::Pong, received.payload))),
            Kind::Goaway => {
                let Goaway {
                    reason,
                    retry_after_ms,
                } = goaway(&received.payload);
                return Err(Disconnect::Goaway {
                    reason,
                    wait: Duration::from_millis(retry_after_ms.into()),
                });
            }
            Kind::Error => return Err(WireError::Refused(error_notice(&received.payload)).into()),
            Kind::Control => {}
            // Text and audio are not used by this device.
            _ => return Ok(None),
        }
        match ServerMessage::parse(&received.payload) {
            Ok(ServerMessage::Call {
                call_id,
                method,
                params,
                ..
            }) => {
                return Ok(self.start(&call_id, &method, params, running));
            }
            Ok(ServerMessage::Cancel { call_id }) => {
                if let Some(call) = running.remove(&*call_id) {
                    call.task.abort();
                    let took = call.started.elapsed();
                    call_line::print(&call.service, &call_id, took, &CallEnd::Cancelled);
                }
            }
            Ok(ServerMessage::Result {
                success: false,
                error,
                ..
            }) => {
                print_stderr(&format!(
                    "the server rejected a message: {}",
                    error.unwrap_or_default()
                ));
            }
            Ok(ServerMessage::Result { .. }) => {}
            Err(error) => print_stderr(&format!("ignoring an invalid message: {error}")),
        }
        Ok(None)
    }

    /// Starts a call, or returns an error result if too many are in flight.
    fn start(
        &self,
        call_id: &str,
        service: &str,
        params: &RawValue,
        running: &mut HashMap<String, RunningCall>,
    ) -> Option<(Kind, Vec<u8>)> {
        if running.len() >= MAX_CALLS {
            let busy = format!("this device is at its limit of {MAX_CALLS} concurrent calls");
            call_line::print(service, call_id, Duration::ZERO, &CallEnd::Failed(&busy));
            let message = result_message(call_id, Err(busy), self.max_result_bytes);
            return Some((Kind::Control, message));
        }
        let (services, finish) = (Arc::clone(self.services), self.finish.clone());
        let (id, name, params) = (call_id.to_owned(), service.to_owned(), params.to_owned());
        let max_result_bytes = self.max_result_bytes;
        let started = Instant::now();
        let task = self.tasks.spawn(async move {
            let outcome = services.call(&name, &params).await;
            let end = match &outcome {
                Ok(_) => CallEnd::Succeeded,
                Err(error) => CallEnd::Failed(error),
            };
            call_line::print(&name, &id, started.elapsed(), &end);
            let message = result_message(&id, outcome, max_result_bytes);
            // Fails if the connection has ended; then the result is not needed.
            let _ = finish
                .send(FinishedCall {
                    call_id: id,
                    message,
                })
                .await;
        });
        let call = RunningCall {
            task: task.abort_handle(),
            service: service.to_owned(),
            started,
        };
        running.insert(call_id.to_owned(), call);
        None
    }
}

/// Formats a result message (S 4.3), or an error (S 6.3) if it exceeds the frame limit.
fn result_message(call_id: &str, outcome: Result<Box<RawValue>, String>, limit: usize) -> Vec<u8> {
    let write = |result: serde_json::Value| {
        serde_json::json!({"type": "result", "data": {"call_id": call_id, "result": result}})
            .to_string()
    };
    let failure = |error: &str| write(serde_json::json!({"success": false, "error": error}));
    let message = match outcome {
        // The data must remain byte for byte identical.
        Ok(data) => {
            let id = serde_json::Value::from(call_id);
            format!(
                r#"{{"type":"result","data":{{"call_id":{id},"result":{{"success":true,"data":{data}}}}}}}"#
            )
        }
        Err(error) => failure(&error),
    };
    if message.len() <= limit {
        return message.into_bytes();
    }
    failure(&format!(
        "the result has {} bytes, and the limit is {limit}",
        message.len()
    ))
    .into_bytes()
}

/// Prints a chunk of the response to the text; END completes it.
fn print_response(response: &mut PieceWriter, received: &ReceivedFrame) -> Result<(), Disconnect> {
    let piece: &[u8] = match received.kind {
        Kind::Text => &received.payload,
        Kind::End => b"\n",
        _ => return Ok(()),
    };
    let closed = |_| WireError::Unexpected("stdout, which is closed".to_owned());
    response.print(piece).map_err(closed)?;
    if received.kind == Kind::End {
        return Err(Disconnect::Answered);
    }
    Ok(())
}

fn goaway(payload: &[u8]) -> Goaway {
    serde_json::from_slice(payload).unwrap_or_else(|_| Goaway {
        reason: "no reason given".to_owned(),
        retry_after_ms: 0,
    })
}

fn error_notice(payload: &[u8]) -> String {
    match serde_json::from_slice::<ErrorNotice>(payload) {
        Ok(notice) => format!("{} ({})", notice.message, notice.code),
        Err(_) => "no reason given".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_message_follows_the_protocol_and_fits() {
        let check = |outcome: Result<&str, &str>, limit: usize, expect: &str| {
            let outcome = outcome
                .map(|json| RawValue::from_string(json.to_owned()).unwrap())
                .map_err(str::to_owned);
            let message = String::from_utf8(result_message("c", outcome, limit)).unwrap();
            let value: serde_json::Value = serde_json::from_str(&message).unwrap();
            assert_eq!(value["data"]["call_id"], "c");
            assert!(message.contains(expect), "{message}");
        };
        check(
            Ok(r#"{"a":1.50}"#),
            1000,
            r#""success":true,"data":{"a":1.50}"#,
        );
        check(Err("坏 \"x\""), 1000, r#""error":"坏 \"x\"""#);
        check(Ok(r#""long""#), 10, "bytes, and the limit is 10");
    }
}
