//! The events of a stream of server-sent events.
//! Never: an event without a bound.

use anyhow::anyhow;

use crate::site::{Answer, AskError};

/// The longest line that is read.
const LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// A stream, and what was read of it beyond the last event.
pub(crate) struct Events {
    answer: Answer,
    unread: Vec<u8>,
    /// What the event is called that is being read.
    name: String,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// What it is called; empty when it has no name.
    pub(crate) name: String,
    /// Its data, which our services write on one line.
    pub(crate) data: String,
}

impl Events {
    pub(crate) fn of(answer: Answer) -> Self {
        Self {
            answer,
            unread: Vec::new(),
            name: String::new(),
        }
    }

    /// The next event; none at the end. What is not data, such as signs of life, is passed over.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, AskError> {
        loop {
            while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if let Some(event) = self.take(&line) {
                    return Ok(Some(event));
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

    fn take(&mut self, line: &[u8]) -> Option<Event> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if line.is_empty() {
            self.name.clear();
        } else if let Some(name) = line.strip_prefix("event:") {
            name.trim_start().clone_into(&mut self.name);
        }
        let data = line.strip_prefix("data:")?.trim_start();
        (!data.is_empty()).then(|| Event {
            name: self.name.clone(),
            data: data.to_owned(),
        })
    }
}
