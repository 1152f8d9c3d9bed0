//! Why a connection ends, in words for whoever wrote the device's firmware.
//! Never: anything that a device sent in an AUTH frame.

use crate::frame::{FrameError, Kind, TaskId};

/// Ends the connection: an ERROR frame with [`Self::code`] and this text, then close.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Something else than AUTH came first.
    #[error("the first frame of a connection is AUTH (0x10) with an access token")]
    NotAuthenticated,
    /// A second AUTH.
    #[error("this connection is authenticated; reconnect to use another token")]
    AlreadyAuthenticated,
    /// An AUTH payload of another shape. Says where, never what: a token could be in it.
    #[error("an AUTH payload is `{{\"token\":\"…\"}}`, which this is not at {line}:{column}")]
    BadAuth {
        /// Line of the payload, from 1.
        line: usize,
        /// Column in that line.
        column: usize,
    },
    /// A frame is missing or came twice: the message has a hole that must not pass in silence.
    #[error("task `{task}` goes on with seq {expected:04}, not {got:04}")]
    SeqGap {
        /// Which task.
        task: TaskId,
        /// What would be right.
        expected: u16,
        /// What came.
        got: u16,
    },
    /// A 0x03 frame for a task of which nothing came before.
    #[error("task `{task}` has no frame that 0x03 could end")]
    NothingToEnd {
        /// Which task.
        task: TaskId,
    },
    /// Four digits cannot number more frames.
    #[error("task `{task}` is longer than 9999 frames and their end; go on in another task")]
    TaskTooLong {
        /// Which task.
        task: TaskId,
    },
    /// More texts and sounds at a time than the connection may have.
    #[error("task `{task}` is one too many: end one of the {limit} that are open")]
    TooManyTasks {
        /// Which task.
        task: TaskId,
        /// How many may be open.
        limit: u8,
    },
    /// Text and audio in one task.
    #[error("task `{task}` mixes text and audio; use a task for each")]
    MixedTask {
        /// Which task.
        task: TaskId,
    },
    /// A 0x03 frame with something in it.
    #[error("a 0x03 frame ends task `{task}` and carries nothing itself")]
    EndWithPayload {
        /// Which task.
        task: TaskId,
    },
    /// A piece of text that is not UTF-8 by itself.
    #[error("text is UTF-8, cut between characters; task `{task}` is not at byte {at}")]
    BadText {
        /// Which task.
        task: TaskId,
        /// The first bad byte of the frame's payload.
        at: usize,
    },
    /// A frame that only the server sends.
    #[error("a frame of type 0x{:02x} is the server's to send", .kind.byte())]
    UnexpectedKind {
        /// Its type.
        kind: Kind,
    },
}

impl SessionError {
    /// What [`Self::code`] may answer, beside the codes of frames.
    pub const CODES: [&str; 11] = [
        "not_authenticated",
        "already_authenticated",
        "bad_auth",
        "seq_gap",
        "nothing_to_end",
        "task_too_long",
        "too_many_tasks",
        "mixed_task",
        "end_with_payload",
        "bad_text",
        "unexpected_kind",
    ];

    /// The stable name for the ERROR frame and the metric.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Frame(error) => error.code(),
            Self::NotAuthenticated => "not_authenticated",
            Self::AlreadyAuthenticated => "already_authenticated",
            Self::BadAuth { .. } => "bad_auth",
            Self::SeqGap { .. } => "seq_gap",
            Self::NothingToEnd { .. } => "nothing_to_end",
            Self::TaskTooLong { .. } => "task_too_long",
            Self::TooManyTasks { .. } => "too_many_tasks",
            Self::MixedTask { .. } => "mixed_task",
            Self::EndWithPayload { .. } => "end_with_payload",
            Self::BadText { .. } => "bad_text",
            Self::UnexpectedKind { .. } => "unexpected_kind",
        }
    }
}
