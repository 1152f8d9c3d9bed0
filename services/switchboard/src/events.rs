//! Parser of server-sent events.

use anyhow::anyhow;

use crate::http_client::{HttpError, HttpResponse};

/// Maximum length of a line.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// A stream and its unparsed bytes.
pub(crate) struct Events {
    response: HttpResponse,
    unread: Vec<u8>,
    /// Name of the current event.
    name: String,
    /// The id of the last event that has one; empty before.
    last_id: String,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Name; empty if the event has none.
    pub(crate) name: String,
    /// Data. The services write it on one line.
    pub(crate) data: String,
}

impl Events {
    pub(crate) fn new(response: HttpResponse) -> Self {
        Self {
            response,
            unread: Vec::new(),
            name: String::new(),
            last_id: String::new(),
        }
    }

    /// Where a client that opens the stream again continues; `None` at its beginning.
    pub(crate) fn position(&self) -> Option<&str> {
        (!self.last_id.is_empty()).then_some(&*self.last_id)
    }

    /// Returns the next event, `None` at the end of the stream. Comments such as keep-alives are
    /// skipped.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, HttpError> {
        loop {
            while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if let Some(event) = self.parse_line(&line) {
                    return Ok(Some(event));
                }
            }
            if self.unread.len() > MAX_LINE_BYTES {
                let detail = anyhow!("an event has more than {MAX_LINE_BYTES} bytes");
                return Err(HttpError::Broken(detail));
            }
            match self.response.chunk().await? {
                Some(chunk) => self.unread.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }

    fn parse_line(&mut self, line: &[u8]) -> Option<Event> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if line.is_empty() {
            self.name.clear();
        } else if let Some(name) = line.strip_prefix("event:") {
            name.trim_start().clone_into(&mut self.name);
        } else if let Some(id) = line.strip_prefix("id:") {
            id.trim_start().clone_into(&mut self.last_id);
        }
        let data = line.strip_prefix("data:")?.trim_start();
        (!data.is_empty()).then(|| Event {
            name: self.name.clone(),
            data: data.to_owned(),
        })
    }
}
