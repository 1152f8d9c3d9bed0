//! Messages of the device whose end has not arrived.

use switchboard_protocol::frame::TaskId;

use super::{Turns, pictures::PartialPicture};

/// Bytes of a refused message that are kept, for the language of its notice.
const MAX_BEGINNING_BYTES: usize = 256;

/// A message whose END frame has not arrived.
pub(super) struct Message {
    pub(super) task: TaskId,
    pub(super) content: Content,
    pub(super) picture: PartialPicture,
}

pub(super) enum Content {
    Text(String),
    /// Has the beginning of the text.
    TooLong(String),
    /// Too much waits in other connections. Has the beginning of the text.
    TooMany(String),
    Cancelled,
}

impl Content {
    /// Whether nothing was written: the message is a picture, or nothing.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    /// The text, or its beginning.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::TooLong(text) | Self::TooMany(text) => text,
            Self::Cancelled => "",
        }
    }
}

impl Turns {
    pub(in crate::handle) fn append_text(&mut self, task: TaskId, text: &str, max_bytes: usize) {
        let index = self.message_index(task);
        let Some(message) = self.messages.get_mut(index) else {
            return;
        };
        if let Content::Text(so_far) = &mut message.content {
            if so_far.len() + text.len() > max_bytes {
                let start = if so_far.is_empty() {
                    text
                } else {
                    so_far.as_str()
                };
                message.content = Content::TooLong(beginning(start));
            } else {
                so_far.push_str(text);
            }
        }
    }

    /// The task's incomplete message, which may begin now.
    pub(super) fn message_index(&mut self, task: TaskId) -> usize {
        let found = self.messages.iter().position(|part| part.task == task);
        found.unwrap_or_else(|| {
            self.messages.push(Message {
                task,
                content: Content::Text(String::new()),
                picture: PartialPicture::None,
            });
            self.messages.len() - 1
        })
    }

    /// Drops the text of a message for which there is no room.
    pub(in crate::handle) fn drop_message(&mut self, task: TaskId) {
        let mut messages = self.messages.iter_mut();
        if let Some(message) = messages.find(|message| message.task == task) {
            message.content = Content::TooMany(beginning(message.content.text()));
        }
    }
}

/// As much of a text as its language needs.
fn beginning(text: &str) -> String {
    let (start, _) = text.split_at(text.floor_char_boundary(MAX_BEGINNING_BYTES));
    start.to_owned()
}
