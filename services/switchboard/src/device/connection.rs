//! A connection's life on the device's side: authenticate, register, answer calls.
//! Never: more calls at a time than the bound, a result for a call that was cancelled.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::{
        AuthAccepted, AuthRequest, ClientInfo, ErrorNotice, Goaway, ServerMessage,
        parse_auth_answer,
    },
};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use crate::exit::{self, say};

use super::{
    Ended,
    services::Services,
    wire::{Address, Received, Wire, WireError},
};

/// How long the server may take to answer AUTH and the registration.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Calls answered at a time: as many as the server has in flight for one device.
const MAX_CALLS: usize = 64;
/// What the registration is answered under.
const REGISTER: &str = "register";
/// The task of frames that are no 0x06 messages.
const OWN_TASK: TaskId = TaskId(*b"device01");
/// The task of what was said with --say.
const SPOKEN_TASK: TaskId = TaskId(*b"spoken01");
/// Header, delimiters and room for the escapes that a frame adds to a result.
const FRAME_OVERHEAD: usize = 512;

/// A connection, as far as it has come.
pub(super) struct Connection {
    wire: Wire,
    heartbeat: Duration,
    max_result_bytes: usize,
}

/// A call that has come to its end.
struct Finished {
    call_id: String,
    message: Vec<u8>,
}

impl Connection {
    /// Dials.
    ///
    /// # Errors
    /// When nobody answers.
    pub(super) async fn open(address: &Address) -> Result<Self, WireError> {
        let wire = Wire::dial(address).await?;
        Ok(Self {
            wire,
            heartbeat: ANSWER_WITHIN,
            max_result_bytes: 0,
        })
    }

    /// Says who this is; the inner error is the server's refusal.
    ///
    /// # Errors
    /// When the wire fails.
    pub(super) async fn authenticate(
        &mut self,
        token: &SecretString,
    ) -> Result<Result<AuthAccepted, String>, WireError> {
        let request = AuthRequest {
            token: token.expose_secret().into(),
            client: Some(ClientInfo {
                name: "switchboard device".into(),
                version: env!("CARGO_PKG_VERSION").into(),
            }),
        };
        let payload = serde_json::to_vec(&request).map_err(std::io::Error::from)?;
        self.wire.send(Kind::Auth, OWN_TASK, &payload).await?;
        let answer = self.answer(Kind::Auth).await?;
        let verdict = parse_auth_answer(&answer.payload);
        let verdict = verdict.map_err(|error| WireError::Unexpected(error.to_string()))?;
        if let Ok(welcome) = &verdict {
            let limit = usize::try_from(welcome.max_frame_bytes).unwrap_or(usize::MAX);
            self.wire.set_limit(limit);
            self.max_result_bytes = limit.saturating_sub(FRAME_OVERHEAD);
            self.heartbeat = Duration::from_secs(welcome.heartbeat_s.max(1).into());
        }
        Ok(verdict)
    }

    /// Says what this device can do, and waits until it is known.
    ///
    /// # Errors
    /// When the services are refused or the wire fails.
    pub(super) async fn register(&mut self, services: &Services) -> Result<(), Ended> {
        let message = serde_json::json!({
            "type": "register",
            "data": {"call_id": REGISTER, "services": services.definitions()},
        });
        self.wire
            .send(Kind::Control, TaskId::MCP, message.to_string().as_bytes())
            .await?;
        loop {
            let answer = self.answer(Kind::Control).await?;
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
                        Err(Ended::ServicesRefused(reason))
                    };
                }
                Ok(_) => {}
                Err(error) => return Err(WireError::Unexpected(error.to_string()).into()),
            }
        }
    }

    /// Says something, for which `answer_calls` prints the answer.
    ///
    /// # Errors
    /// When the wire fails.
    pub(super) async fn speak(&mut self, words: &str) -> Result<(), WireError> {
        self.wire
            .send_words(SPOKEN_TASK, words, self.max_result_bytes)
            .await
    }

    /// Answers calls until the connection ends. Asked to go because the edge drains, it finishes
    /// what is under way; the server closes when nothing is.
    pub(super) async fn answer_calls(
        mut self,
        services: &Arc<Services>,
        tasks: &Shutdown,
    ) -> Result<Infallible, Ended> {
        let (finish, mut finished) = mpsc::channel::<Finished>(MAX_CALLS);
        let mut running: HashMap<String, AbortHandle> = HashMap::new();
        let patience = self.heartbeat.mul_f32(2.5);
        let mut heartbeat = interval_at(Instant::now() + self.heartbeat, self.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut leaving = None;
        loop {
            tokio::select! {
                received = self.wire.receive() => {
                    heard = Instant::now();
                    let received = received.map_err(|error| leaving.take().unwrap_or(error.into()))?;
                    if received.task == SPOKEN_TASK {
                        heard_answer(&received)?;
                    }
                    let calls = Calls { services, tasks, finish: &finish, max_result_bytes: self.max_result_bytes };
                    match calls.take(received, &mut running) {
                        Ok(Some((kind, payload))) => self.wire.send(kind, OWN_TASK, &payload).await?,
                        Ok(None) => {}
                        Err(ended) if ended.is_drain() => leaving = Some(ended),
                        Err(ended) => return Err(ended),
                    }
                }
                Some(Finished { call_id, message }) = finished.recv() => {
                    if running.remove(&call_id).is_some() {
                        self.wire.send(Kind::Control, TaskId::MCP, &message).await?;
                    }
                }
                _ = heartbeat.tick() => {
                    if heard.elapsed() > patience {
                        return Err(Ended::Silent(patience));
                    }
                    self.wire.send(Kind::Ping, OWN_TASK, b"").await?;
                }
            }
        }
    }

    /// The next frame of this type; pings are answered meanwhile.
    async fn answer(&mut self, kind: Kind) -> Result<Received, WireError> {
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
        timeout(ANSWER_WITHIN, wait)
            .await
            .unwrap_or(Err(WireError::Late("the server's answer")))
    }
}

/// What is needed to start a call.
struct Calls<'a> {
    services: &'a Arc<Services>,
    tasks: &'a Shutdown,
    finish: &'a mpsc::Sender<Finished>,
    max_result_bytes: usize,
}

impl Calls<'_> {
    /// Acts on a frame; some are answered at once.
    fn take(
        &self,
        received: Received,
        running: &mut HashMap<String, AbortHandle>,
    ) -> Result<Option<(Kind, Vec<u8>)>, Ended> {
        match received.kind {
            Kind::Ping => return Ok(Some((Kind::Pong, received.payload))),
            Kind::Goaway => {
                let Goaway {
                    reason,
                    retry_after_ms,
                } = goaway(&received.payload);
                return Err(Ended::SentAway {
                    reason,
                    wait: Duration::from_millis(retry_after_ms.into()),
                });
            }
            Kind::Error => return Err(WireError::Refused(error_notice(&received.payload)).into()),
            Kind::Control => {}
            // Text, audio and whatever else is not meant for a device that only answers calls.
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
                    call.abort();
                    say(&format!("call {call_id} was cancelled"));
                }
            }
            Ok(ServerMessage::Result {
                success: false,
                error,
                ..
            }) => {
                say(&format!(
                    "the server refused a message: {}",
                    error.unwrap_or_default()
                ));
            }
            Ok(ServerMessage::Result { .. }) => {}
            Err(error) => say(&format!(
                "a message that cannot be read was skipped: {error}"
            )),
        }
        Ok(None)
    }

    /// Starts a call, or says at once why not.
    fn start(
        &self,
        call_id: &str,
        service: &str,
        params: &RawValue,
        running: &mut HashMap<String, AbortHandle>,
    ) -> Option<(Kind, Vec<u8>)> {
        if running.len() >= MAX_CALLS {
            let busy = Err(format!(
                "this device answers {MAX_CALLS} calls at a time, and is busy with them"
            ));
            return Some((
                Kind::Control,
                result_message(call_id, busy, self.max_result_bytes),
            ));
        }
        let (services, finish) = (Arc::clone(self.services), self.finish.clone());
        let (id, service, params) = (call_id.to_owned(), service.to_owned(), params.to_owned());
        let max_result_bytes = self.max_result_bytes;
        let task = self.tasks.spawn(async move {
            let outcome = services.call(&service, &params).await;
            let word = if outcome.is_ok() {
                "succeeded"
            } else {
                "failed"
            };
            say(&format!("call {id} of {service} {word}"));
            let message = result_message(&id, outcome, max_result_bytes);
            // Nobody takes it when the connection has ended: then nobody waits for it either.
            let _ = finish
                .send(Finished {
                    call_id: id,
                    message,
                })
                .await;
        });
        running.insert(call_id.to_owned(), task.abort_handle());
        None
    }
}

/// A result of S 4.3, or of S 6.3 when it would not fit into a frame.
fn result_message(call_id: &str, outcome: Result<Box<RawValue>, String>, limit: usize) -> Vec<u8> {
    let write = |result: serde_json::Value| {
        serde_json::json!({"type": "result", "data": {"call_id": call_id, "result": result}})
            .to_string()
    };
    let failure = |error: &str| write(serde_json::json!({"success": false, "error": error}));
    let message = match outcome {
        // The data stay as they are, byte for byte.
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
        "the result is {} bytes long, and {limit} fit",
        message.len()
    ))
    .into_bytes()
}

/// Prints a piece of the answer to what was said; its last frame ends the conversation.
fn heard_answer(received: &Received) -> Result<(), Ended> {
    let piece: &[u8] = match received.kind {
        Kind::Text => &received.payload,
        Kind::End => b"\n",
        _ => return Ok(()),
    };
    let closed = |_| WireError::Unexpected("stdout, which is closed".to_owned());
    exit::print_bytes(piece).map_err(closed)?;
    if received.kind == Kind::End {
        return Err(Ended::Answered);
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
    fn results_are_those_of_the_supplement_and_fit() {
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
        check(Ok(r#""long""#), 10, "bytes long, and 10 fit");
    }
}
