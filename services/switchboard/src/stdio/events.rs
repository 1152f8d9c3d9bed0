//! The messages of a stream of server-sent events.
//! Never: an event without a bound.

use anyhow::anyhow;

use crate::site::{Answer, AskError};

/// The longest event that is read.
const LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// A stream, and what was read of it beyond the last message.
pub(super) struct Events {
    answer: Answer,
    unread: Vec<u8>,
}

impl Events {
    pub(super) fn of(answer: Answer) -> Self {
        Self {
            answer,
            unread: Vec::new(),
        }
    }

    /// The data of the next event; none at the end. What is not data, such as signs of life, is passed over.
    pub(super) async fn next(&mut self) -> Result<Option<String>, AskError> {
        loop {
            while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if let Some(data) = data_of(&line) {
                    return Ok(Some(data));
                }
            }
            if self.unread.len() > LIMIT_BYTES {
                let detail = anyhow!("an event has more than {LIMIT_BYTES} bytes");
                return Err(AskError::Broken(detail));
            }
            match self.answer.chunk().await? {
                Some(chunk) => self.unread.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// The gateway writes each message on one line.
fn data_of(line: &[u8]) -> Option<String> {
    let data = line.strip_prefix(b"data:")?.trim_ascii();
    (!data.is_empty()).then(|| String::from_utf8_lossy(data).into_owned())
}
