//! The server's side of one connection as a state machine: which frame may come now, and what it
//! means. (I12, I15.)
//! Never: a clock, I/O, or memory for a connection on which no text or audio is under way.

use crate::{
    frame::{Frame, Kind, MAX_SEQ, Spelling, TaskId},
    message::{AuthRequest, DeviceEvent, DeviceMessage, MessageError},
};

mod error;

pub use error::SessionError;

/// The `call_id` under which a bad EVENT is refused: events have none of their own.
const EVENT_CALL_ID: &str = "event";

/// What one frame meant.
#[derive(Debug)]
pub enum Event<'a> {
    /// The device says who it is; answer, and call [`Session::authenticated`] if it is.
    Auth(AuthRequest<'a>),
    /// A message in a 0x06 frame.
    Message(DeviceMessage<'a>),
    /// A 0x06 or EVENT payload that is malformed or invalid: answer with an error result under
    /// this call id (`register` if none) and stay connected. (S 6.1, 6.3)
    Rejected {
        /// The message's own call id; `event` for an EVENT frame.
        call_id: Option<String>,
        /// What was wrong.
        detail: String,
    },
    /// The next piece of a text.
    Text {
        /// Which text.
        task: TaskId,
        /// The piece's place, from 0.
        seq: u16,
        /// The piece.
        text: &'a str,
    },
    /// The next piece of a sound.
    Audio {
        /// Which sound.
        task: TaskId,
        /// The piece's place, from 0.
        seq: u16,
        /// The piece.
        chunk: &'a [u8],
    },
    /// The text or sound of a task is complete.
    End {
        /// Which.
        task: TaskId,
    },
    /// Stop what the server does under this task id.
    Cancel {
        /// Which.
        task: TaskId,
    },
    /// Something happened on the device; a valid `{"name", "data"}` object, as sent.
    DeviceEvent {
        /// The object's JSON.
        raw: &'a [u8],
    },
    /// To be echoed in a PONG.
    Ping(&'a [u8]),
    /// The echo of our PING.
    Pong(&'a [u8]),
}

/// What has to be remembered between the frames of one connection.
#[derive(Debug)]
pub struct Session {
    open: Vec<OpenTask>,
    control_task: TaskId,
    control_next: u16,
    max_open_tasks: u8,
    spelling: Option<Spelling>,
    authenticated: bool,
}

/// A text or a sound of which the end has not come.
#[derive(Debug)]
struct OpenTask {
    task: TaskId,
    next: u16,
    kind: Kind,
}

impl Session {
    /// A connection that has said nothing yet and may have `max_open_tasks` texts and sounds
    /// under way at a time.
    #[must_use]
    pub const fn new(max_open_tasks: u8) -> Self {
        Self {
            open: Vec::new(),
            control_task: TaskId::MCP,
            control_next: 0,
            max_open_tasks,
            spelling: None,
            authenticated: false,
        }
    }

    /// Says what a frame means at this point of the connection.
    ///
    /// # Errors
    /// When it may not come at this point; the connection ends.
    pub fn handle<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, SessionError> {
        let Frame {
            kind,
            task,
            seq,
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
                    seq,
                    chunk: payload,
                })
            }
            (Kind::End, true) => self.end(frame),
            (Kind::Cancel, true) => Ok(Event::Cancel { task }),
            (Kind::Event, true) => Ok(read_event(payload)),
            (Kind::Ping, true) => Ok(Event::Ping(payload)),
            (Kind::Pong, true) => Ok(Event::Pong(payload)),
        }
    }

    /// From here on everything but AUTH is accepted.
    pub const fn authenticated(&mut self) {
        self.authenticated = true;
    }

    /// Whether [`Self::authenticated`] was called.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// How the connection spelt the seq of its first 0x06 frame, plain before there was one:
    /// what the server uses too.
    #[must_use]
    pub fn spelling(&self) -> Spelling {
        self.spelling.unwrap_or_default()
    }

    /// The task id the device last used for a 0x06 frame, `mcp00001` before there was one: what
    /// the server uses too.
    #[must_use]
    pub const fn control_task(&self) -> TaskId {
        self.control_task
    }

    /// Every 0x06 frame is a whole message. Devices that number each one `0000`, as the
    /// supplement's examples do, are as right as those that count; a task id other than the last
    /// one's begins anew.
    fn control<'a>(&mut self, frame: Frame<'a>) -> Result<Event<'a>, SessionError> {
        let Frame {
            task,
            seq,
            spelling,
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
        self.control_next = if seq < MAX_SEQ {
            seq.saturating_add(1)
        } else {
            0
        };
        self.spelling.get_or_insert(spelling);
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

    /// Counts a piece of a text or a sound, the first of which opens its task.
    fn advance(&mut self, frame: Frame<'_>) -> Result<(), SessionError> {
        let Frame {
            kind,
            task,
            seq: got,
            ..
        } = frame;
        let Some(open) = self.open.iter_mut().find(|open| open.task == task) else {
            return self.open(frame);
        };
        if open.next != got {
            return Err(SessionError::SeqGap {
                task,
                expected: open.next,
                got,
            });
        }
        if open.kind != kind {
            return Err(SessionError::MixedTask { task });
        }
        if got >= MAX_SEQ {
            return Err(SessionError::TaskTooLong { task });
        }
        open.next = got.saturating_add(1);
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
        if self.open.len() >= usize::from(limit) {
            return Err(SessionError::TooManyTasks { task, limit });
        }
        self.open.push(OpenTask {
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
        let Some(index) = self.open.iter().position(|open| open.task == task) else {
            return Err(SessionError::NothingToEnd { task });
        };
        let expected = self.open.get(index).map_or(0, |open| open.next);
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
        self.open.swap_remove(index);
        if self.open.is_empty() {
            // An idle connection gives its memory back.
            self.open = Vec::new();
        }
        Ok(Event::End { task })
    }
}

fn read_auth(payload: &[u8]) -> Result<AuthRequest<'_>, SessionError> {
    serde_json::from_slice(payload).map_err(|error| SessionError::BadAuth {
        line: error.line(),
        column: error.column(),
    })
}

fn read_event(payload: &[u8]) -> Event<'_> {
    match DeviceEvent::parse(payload) {
        Ok(_) => Event::DeviceEvent { raw: payload },
        Err(error) => rejected(&error, Some(EVENT_CALL_ID)),
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
