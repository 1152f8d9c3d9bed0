//! The server's side of a connection as a state machine: which frames are valid now, and what each
//! one means.

use crate::{
    frame::{Frame, Kind, MAX_SEQ, SeqFormat, TaskId, next_seq},
    message::{AuthRequest, DeviceEvent, DeviceMessage, DeviceVoice, MessageError},
};

mod error;

pub use error::SessionError;

/// The call ids of the answers to an invalid EVENT and an invalid VOICE, which have none of their own.
const EVENT_CALL_ID: &str = "event";
const VOICE_CALL_ID: &str = "voice";

/// The meaning of one frame.
#[derive(Debug)]
pub enum Event<'a> {
    /// The device's token. If it is valid, answer and call [`Session::set_authenticated`].
    Auth(AuthRequest<'a>),
    /// A message in a 0x06 frame.
    Message(DeviceMessage<'a>),
    /// A 0x06, EVENT or VOICE payload that is malformed or invalid. Answer with an error result under this
    /// call id (`register` if none) and keep the connection. (S 6.1, 6.3)
    Rejected {
        /// The message's own call id; `event` for an EVENT frame, `voice` for a VOICE frame.
        call_id: Option<String>,
        /// What is wrong.
        detail: String,
    },
    /// The next piece of a text. (S 7.1)
    Text {
        /// The text's task.
        task: TaskId,
        /// The piece's position, from 0.
        seq: u16,
        /// The piece.
        text: &'a str,
    },
    /// The next piece of an audio message. (ours)
    Audio {
        /// The audio's task.
        task: TaskId,
        /// The piece.
        chunk: &'a [u8],
    },
    /// The next piece of the picture of a message. (ours)
    Picture {
        /// The message's task.
        task: TaskId,
        /// The piece; an empty one begins the picture again.
        chunk: &'a [u8],
    },
    /// The text or audio of a task is complete. (S 7.1)
    End {
        /// The task.
        task: TaskId,
        /// `Text` or `Audio`; `Text` for a message of a picture only.
        kind: Kind,
    },
    /// Cancel the server's work on this task. (ours)
    Cancel {
        /// The task.
        task: TaskId,
    },
    /// An event on the device: a valid `{"name", "data"}` object, as sent. (ours)
    DeviceEvent {
        /// The object's JSON.
        raw: &'a [u8],
    },
    /// What the device reports about its spoken conversation. (ours)
    Voice {
        /// The conversation's task.
        task: TaskId,
        /// The message.
        message: DeviceVoice<'a>,
    },
    /// The payload to return in a PONG. (ours)
    Ping(&'a [u8]),
    /// The payload of the device's answer to a PING. (ours)
    Pong(&'a [u8]),
}

/// The state of one connection between its frames. It has no clock and does no I/O.
///
/// ```text
///                     AUTH, then set_authenticated
///   Unauthenticated ──────────────────────────────► Authenticated
///         │ any other frame                          │ AUTH, GOAWAY, ERROR; a seq gap;
///         ▼                                          ▼ any rule of a task broken
///     SessionError: ERROR frame with its code, then close
///
///   Each task of an authenticated connection:
///
///           TEXT, AUDIO, PICTURE, seq 0       END, next seq
///   (none) ─────────────────────► Open(kind) ──────────────► (none)
///                                  │      ▲
///                                  └──────┘ same kind or PICTURE, next seq
/// ```
///
/// - Before AUTH no other frame is valid; after it, no second AUTH. (ours)
/// - TEXT and AUDIO open a task with seq 0. Each further frame has the next seq and the same kind,
///   up to 9998, so that END has one. A gap or a repetition ends the connection. (S 7.1, I12) The seq
///   of audio continues at 0 after 9999, so its task has no end of its own. (ours)
/// - PICTURE is counted among them, before the first one or between two. (ours)
/// - A 0x06 frame is a complete message. Its seq is 0 or continues the last 0x06 frame of the same
///   task id. (S 7.1) Answers use the device's task id and [`SeqFormat`].
/// - An invalid 0x06, EVENT or VOICE payload is [`Event::Rejected`]; the connection stays. (S 6.1)
/// - CANCEL, PING, PONG, EVENT and VOICE have no state.
///
/// Invariant: a connection with no open task holds no memory besides this struct, and at most
/// `max_open_tasks` are open. (I15)
#[derive(Debug)]
pub struct Session {
    open: Option<Box<OpenTasks>>,
    control_task: TaskId,
    control_next: u16,
    max_open_tasks: u8,
    seq_format: Option<SeqFormat>,
    authenticated: bool,
}

/// Absent most of the time.
#[derive(Debug, Default)]
struct OpenTasks(Vec<OpenTask>);

/// A text or audio message whose END has not arrived.
#[derive(Debug)]
struct OpenTask {
    task: TaskId,
    next: u16,
    /// `Picture` until the first text or audio.
    kind: Kind,
}

impl OpenTasks {
    fn find(&mut self, task: TaskId) -> Option<&mut OpenTask> {
        self.0.iter_mut().find(|open| open.task == task)
    }

    /// Returns whether none is left.
    fn remove(&mut self, task: TaskId) -> bool {
        self.0.retain(|open| open.task != task);
        self.0.is_empty()
    }
}

impl Session {
    /// Creates the state of a new connection that may have `max_open_tasks` texts and audio
    /// messages open at a time.
    #[must_use]
    pub const fn new(max_open_tasks: u8) -> Self {
        Self {
            open: None,
            control_task: TaskId::MCP,
            control_next: 0,
            max_open_tasks,
            seq_format: None,
            authenticated: false,
        }
    }

    /// Returns the meaning of a frame at this point of the connection.
    ///
    /// # Errors
    /// When the frame is not valid at this point. The connection closes.
    pub fn handle<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, SessionError> {
        let Frame {
            kind,
            task,
            payload,
            ..
        } = frame;
        match (kind, self.authenticated) {
            (Kind::Auth, false) => read_auth(payload).map(Event::Auth),
            (_, false) => Err(SessionError::NotAuthenticated),
            (Kind::Auth, true) => Err(SessionError::AlreadyAuthenticated),
            (Kind::Goaway | Kind::Error, true) => Err(SessionError::UnexpectedKind { kind }),
            (Kind::Control, true) => self.control(frame),
            (Kind::Text, true) => self.text(frame),
            (Kind::Audio, true) => {
                self.advance(frame)?;
                Ok(Event::Audio {
                    task,
                    chunk: payload,
                })
            }
            (Kind::Picture, true) => {
                self.advance(frame)?;
                Ok(Event::Picture {
                    task,
                    chunk: payload,
                })
            }
            (Kind::End, true) => self.end(frame),
            (Kind::Cancel, true) => Ok(Event::Cancel { task }),
            (Kind::Event, true) => Ok(read_event(payload)),
            (Kind::Voice, true) => Ok(read_voice(task, payload)),
            (Kind::Ping, true) => Ok(Event::Ping(payload)),
            (Kind::Pong, true) => Ok(Event::Pong(payload)),
        }
    }

    /// Accepts all frames but AUTH from here on.
    pub const fn set_authenticated(&mut self) {
        self.authenticated = true;
    }

    /// Returns whether [`Self::set_authenticated`] was called.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Returns the seq format of the device's first 0x06 frame, plain before there is one. The
    /// server uses the same. (ours)
    #[must_use]
    pub fn seq_format(&self) -> SeqFormat {
        self.seq_format.unwrap_or_default()
    }

    /// Returns the task id of the device's last 0x06 frame, `mcp00001` before there is one. The
    /// server uses the same. (ours)
    #[must_use]
    pub const fn control_task(&self) -> TaskId {
        self.control_task
    }

    /// Devices may number every 0x06 frame `0000`, as the supplement's examples do, or count. With
    /// another task id than before, counting restarts.
    fn control<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, SessionError> {
        let Frame {
            task,
            seq,
            seq_format,
            payload,
            ..
        } = frame;
        let expected = if task == self.control_task {
            self.control_next
        } else {
            0
        };
        if seq != 0 && seq != expected {
            return Err(SessionError::SeqGap {
                task,
                expected,
                got: seq,
            });
        }
        self.control_task = task;
        self.control_next = next_seq(seq);
        self.seq_format.get_or_insert(seq_format);
        Ok(match DeviceMessage::parse(payload) {
            Ok(message) => Event::Message(message),
            Err(error) => rejected(&error, error.call_id()),
        })
    }

    fn text<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, SessionError> {
        let Frame {
            task, seq, payload, ..
        } = frame;
        self.advance(frame)?;
        let text = std::str::from_utf8(payload).map_err(|error| SessionError::BadText {
            task,
            at: error.valid_up_to(),
        })?;
        Ok(Event::Text { task, seq, text })
    }

    /// Checks and counts a piece of text, audio or a picture. The first one opens its task.
    fn advance(&mut self, frame: Frame<'_>) -> Result<(), SessionError> {
        let Frame {
            kind,
            task,
            seq: got,
            ..
        } = frame;
        let open = self.open.as_mut().and_then(|open| open.find(task));
        let Some(open) = open else {
            return self.open(frame);
        };
        if open.next != got {
            return Err(SessionError::SeqGap {
                task,
                expected: open.next,
                got,
            });
        }
        if open.kind == Kind::Picture {
            open.kind = kind;
        }
        if kind != Kind::Picture && open.kind != kind {
            return Err(SessionError::MixedTask { task });
        }
        if got >= MAX_SEQ && open.kind != Kind::Audio {
            return Err(SessionError::TaskTooLong { task });
        }
        open.next = next_seq(got);
        Ok(())
    }

    fn open(&mut self, frame: Frame<'_>) -> Result<(), SessionError> {
        let Frame {
            kind,
            task,
            seq: got,
            ..
        } = frame;
        if got != 0 {
            return Err(SessionError::SeqGap {
                task,
                expected: 0,
                got,
            });
        }
        let limit = self.max_open_tasks;
        if self.open.as_ref().map_or(0, |open| open.0.len()) >= usize::from(limit) {
            return Err(SessionError::TooManyTasks { task, limit });
        }
        self.open.get_or_insert_default().0.push(OpenTask {
            task,
            next: 1,
            kind,
        });
        Ok(())
    }

    fn end<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, SessionError> {
        let Frame {
            task,
            seq: got,
            payload,
            ..
        } = frame;
        let open = self.open.as_mut().and_then(|open| open.find(task));
        let Some(open) = open else {
            return Err(SessionError::NothingToEnd { task });
        };
        let (expected, kind) = (open.next, open.kind);
        if got != expected {
            return Err(SessionError::SeqGap {
                task,
                expected,
                got,
            });
        }
        if !payload.is_empty() {
            return Err(SessionError::EndWithPayload { task });
        }
        // An idle connection holds no memory.
        self.open.take_if(|open| open.remove(task));
        let kind = match kind {
            Kind::Audio => Kind::Audio,
            _ => Kind::Text,
        };
        Ok(Event::End { task, kind })
    }
}

fn read_auth(payload: &[u8]) -> Result<AuthRequest<'_>, SessionError> {
    let bad_auth = |line, column| SessionError::BadAuth { line, column };
    let request: AuthRequest<'_> =
        serde_json::from_slice(payload).map_err(|error| bad_auth(error.line(), error.column()))?;
    if request.token.is_empty() && request.ticket.is_empty() {
        return Err(SessionError::AuthWithoutCredential);
    }
    Ok(request)
}

fn read_event(payload: &[u8]) -> Event<'_> {
    match DeviceEvent::parse(payload) {
        Ok(_) => Event::DeviceEvent { raw: payload },
        Err(error) => rejected(&error, Some(EVENT_CALL_ID)),
    }
}

fn read_voice(task: TaskId, payload: &[u8]) -> Event<'_> {
    match DeviceVoice::parse(payload) {
        Ok(message) => Event::Voice { task, message },
        Err(error) => rejected(&error, Some(VOICE_CALL_ID)),
    }
}

fn rejected<'a>(error: &MessageError, call_id: Option<&str>) -> Event<'a> {
    Event::Rejected {
        call_id: call_id.map(str::to_owned),
        detail: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
