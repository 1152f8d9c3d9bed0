//! Pictures of messages whose end has not arrived.

use bytes::Bytes;
use switchboard_phrases::Phrase;
use switchboard_protocol::{
    frame::TaskId,
    message::{MAX_PICTURE_BYTES, Picture},
};
use switchboard_runtime::budget::{Budget, Owner};

use super::{TurnEnd, Turns, message::Content};

const TOO_LARGE: Phrase<'static> = Phrase::PictureOver {
    kib: MAX_PICTURE_BYTES / 1024,
};

/// A notice instead of a reply, and how the turn ends with it.
pub(super) type Refusal = (Phrase<'static>, TurnEnd);

/// The picture of a message whose end has not arrived.
#[derive(Default)]
pub(super) enum PartialPicture {
    #[default]
    None,
    Part(Vec<u8>),
    TooLarge,
    /// Too much waits in other connections.
    NoRoom,
}

impl PartialPicture {
    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Part(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// Adds a piece if `reserve` finds room for it.
    fn push(&mut self, chunk: &[u8], reserve: impl FnOnce() -> bool) {
        if matches!(self, Self::None) {
            *self = Self::Part(Vec::new());
        }
        let Self::Part(bytes) = self else {
            return;
        };
        if bytes.len() + chunk.len() > MAX_PICTURE_BYTES {
            *self = Self::TooLarge;
        } else if reserve() {
            bytes.extend_from_slice(chunk);
        } else {
            *self = Self::NoRoom;
        }
    }

    /// The picture, if there is one.
    pub(super) fn finish(self) -> Result<Option<Picture>, Refusal> {
        match self {
            Self::None => Ok(None),
            Self::Part(bytes) => {
                let picture = Picture::parse(Bytes::from(bytes.into_boxed_slice()));
                let no_picture = (Phrase::NoPicture, TurnEnd::BadPicture);
                picture.map(Some).ok_or(no_picture)
            }
            Self::TooLarge => Err((TOO_LARGE, TurnEnd::BadPicture)),
            Self::NoRoom => Err((Phrase::TooManyTurns, TurnEnd::TooMany)),
        }
    }
}

impl Turns {
    /// Appends a piece of the picture of an incomplete message; an empty one withdraws the picture.
    /// The piece is charged before it is kept.
    pub(in crate::handle) fn append_picture(
        &mut self,
        task: TaskId,
        chunk: &[u8],
        budget: &Budget,
        owner: Owner,
    ) {
        if chunk.is_empty() {
            self.withdraw_picture(task);
        } else {
            let total = self.bytes() + chunk.len();
            let index = self.message_index(task);
            if let Some(message) = self.messages.get_mut(index)
                && matches!(message.content, Content::Text(_))
            {
                let waiting = &mut self.waiting;
                let reserve = || waiting.set(total, budget, owner).is_ok();
                message.picture.push(chunk, reserve);
            }
        }
        // Less than before, or what was just reserved.
        let _ = self.charge(budget, owner);
    }

    /// Drops the picture of an incomplete message, and a message that is nothing else.
    pub(in crate::handle) fn withdraw_picture(&mut self, task: TaskId) {
        self.messages
            .retain(|message| message.task != task || !message.content.is_empty());
        for message in &mut self.messages {
            if message.task == task {
                message.picture = PartialPicture::None;
            }
        }
    }

    /// Moves the picture of one task to another one, unless that has one.
    pub(in crate::handle) fn move_picture(&mut self, from: TaskId, to: TaskId) {
        if !self.has_picture(to)
            && let Some(message) = self.messages.iter_mut().find(|part| part.task == from)
            && message.content.is_empty()
        {
            message.task = to;
        }
    }

    /// Whether the task has a picture without words.
    pub(in crate::handle) fn has_picture(&self, task: TaskId) -> bool {
        let mut messages = self.messages.iter();
        messages.any(|message| message.task == task)
    }
}
