//! Messages of the device whose end has not arrived.

use switchboard_protocol::frame::TaskId;

use super::{Turns, pictures::PartialPicture};

/// Bytes of a message that are kept, for the language of a notice.
const MAX_BEGINNING_BYTES: usize = 255;

/// A message whose END frame has not arrived.
pub(super) struct Message {
    pub(super) task: TaskId,
    pub(super) content: Content,
    pub(super) picture: PartialPicture,
}

pub(super) enum Content {
    Text(String),
    /// Has the beginning of the text.
    TooLong(Box<Beginning>),
    /// Too much waits in other connections. Has the beginning of the text.
    TooMany(Box<Beginning>),
    Cancelled,
}

/// As much of a text as its language needs, without an allocation: few messages have a notice.
#[derive(Clone, Copy)]
pub(super) struct Beginning {
    length: u8,
    bytes: [u8; MAX_BEGINNING_BYTES],
}

impl Beginning {
    pub(super) fn of(text: &str) -> Self {
        let (start, _) = text.split_at(text.floor_char_boundary(MAX_BEGINNING_BYTES));
        let mut bytes = [0; MAX_BEGINNING_BYTES];
        for (byte, of_text) in bytes.iter_mut().zip(start.bytes()) {
            *byte = of_text;
        }
        let length = u8::try_from(start.len()).unwrap_or_default();
        Self { length, bytes }
    }

    pub(super) fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length.into()).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Content {
    /// Whether nothing was written: the message is a picture, or nothing.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    /// The text, or its beginning.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::TooLong(beginning) | Self::TooMany(beginning) => beginning.as_str(),
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
                message.content = Content::TooLong(Box::new(Beginning::of(start)));
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
            let beginning = Beginning::of(message.content.text());
            message.content = Content::TooMany(Box::new(beginning));
        }
    }
}
