//! The sink of a streamed reply.

use crate::Usage;

/// Receives a reply while it is streamed.
pub trait ReplySink: Send {
    /// The next part of the text.
    fn on_text(&mut self, text: &str);

    /// The usage that the provider reported for one request, whether or not its reply was complete.
    /// Called once for each such request.
    fn on_usage(&mut self, _usage: &Usage) {}
}

/// A sink for the text alone.
impl<F: FnMut(&str) + Send> ReplySink for F {
    fn on_text(&mut self, text: &str) {
        self(text);
    }
}
