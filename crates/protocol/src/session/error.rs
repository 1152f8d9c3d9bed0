//! Errors that end a connection, described for the firmware's developer.
//!
//! Invariant: no error repeats what a device sent in an AUTH frame. (I16)

use crate::frame::{FrameError, Kind, TaskId};

/// A protocol violation. The server sends an ERROR frame with [`Self::code`] and this text, then
/// closes the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame other than AUTH came first.
    #[error("the first frame of a connection is AUTH (0x10) with an access token")]
    NotAuthenticated,
    /// A second AUTH.
    #[error("this connection is authenticated; reconnect to use another token")]
    AlreadyAuthenticated,
    /// An invalid AUTH payload. Has the position only: the content could be a token.
    #[error("an AUTH payload is `{{\"token\":\"…\"}}`, and this one is invalid at {line}:{column}")]
    BadAuth {
        /// Line of the payload, from 1.
        line: usize,
        /// Column in that line.
        column: usize,
    },
    /// An AUTH payload without a credential. Has the code of [`Self::BadAuth`].
    #[error("an AUTH payload has `token`, `ticket` or both, and this one has neither")]
    AuthWithoutCredential,
    /// A frame is missing or was repeated. Without an error the message would have a silent gap.
    /// (I12)
    #[error("task `{task}` expects seq {expected:04}, not {got:04}")]
    SeqGap {
        /// The task.
        task: TaskId,
        /// The seq that would be right.
        expected: u16,
        /// The seq that arrived.
        got: u16,
    },
    /// A 0x03 frame for a task that is not open.
    #[error("task `{task}` has no open message that 0x03 could end")]
    NothingToEnd {
        /// The task.
        task: TaskId,
    },
    /// Four digits cannot number more frames.
    #[error(
        "text of task `{task}` is longer than 9999 frames and their end; continue in another task"
    )]
    TaskTooLong {
        /// The task.
        task: TaskId,
    },
    /// More open texts and audio messages than the connection may have.
    #[error("task `{task}` exceeds the limit of {limit} open tasks: end one first")]
    TooManyTasks {
        /// The task.
        task: TaskId,
        /// The maximum number of open tasks.
        limit: u8,
    },
    /// Text and audio in one task.
    #[error("task `{task}` mixes text and audio; use a task for each")]
    MixedTask {
        /// The task.
        task: TaskId,
    },
    /// A 0x03 frame with a payload.
    #[error("a 0x03 frame ends task `{task}` and carries nothing itself")]
    EndWithPayload {
        /// The task.
        task: TaskId,
    },
    /// A piece of text that is not valid UTF-8 by itself.
    #[error("text is UTF-8, split between characters; task `{task}` is invalid at byte {at}")]
    BadText {
        /// The task.
        task: TaskId,
        /// The first invalid byte of the frame's payload.
        at: usize,
    },
    /// A frame that only the server sends.
    #[error("a frame of type 0x{:02x} is sent by the server only", .kind.byte())]
    UnexpectedKind {
        /// Its type.
        kind: Kind,
    },
}

impl SessionError {
    /// All values of [`Self::code`] except those of frames.
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

    /// Returns the stable name for the ERROR frame and the metric.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Frame(error) => error.code(),
            Self::NotAuthenticated => "not_authenticated",
            Self::AlreadyAuthenticated => "already_authenticated",
            Self::BadAuth { .. } | Self::AuthWithoutCredential => "bad_auth",
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
