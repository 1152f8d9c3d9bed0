//! Whoever hears a reply while it is given, and what it takes.
//! Never: an answer to what is heard.

use crate::Usage;

/// Hears a reply.
pub trait Ear: Send {
    /// The next words.
    fn hear(&mut self, words: &str);

    /// A provider has said what it takes, whatever came of the reply: once for each request of which that is known.
    fn takes(&mut self, _usage: &Usage) {}
}

/// One for the words alone.
impl<F: FnMut(&str) + Send> Ear for F {
    fn hear(&mut self, words: &str) {
        self(words);
    }
}
