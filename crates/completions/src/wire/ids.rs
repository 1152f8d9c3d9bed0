//! The ids of calls as a provider takes them: its own as it made them, those of others in the form that every provider takes.
//! Never: one id for two calls of a request, or a result whose call has another.

use std::collections::{HashMap, HashSet};

use crate::ToolCall;

/// The ids of one request.
pub(super) struct Ids<'a> {
    provider: &'a str,
    taken: HashSet<String>,
    /// As the round says them that was read last, and as they travel: its results follow it.
    of_round: HashMap<&'a str, String>,
}

impl<'a> Ids<'a> {
    /// For a request to this provider.
    pub(super) fn of(provider: &'a str) -> Self {
        Self {
            provider,
            taken: HashSet::new(),
            of_round: HashMap::new(),
        }
    }

    /// Reads the calls of a round that this provider made, or another one.
    pub(super) fn begin_round(&mut self, calls: &'a [ToolCall], provider: Option<&str>) {
        let is_own = provider == Some(self.provider);
        self.of_round.clear();
        for call in calls {
            let is_kept = is_own && !call.id.is_empty() && self.taken.insert(call.id.clone());
            let id = if is_kept {
                call.id.clone()
            } else {
                self.numbered()
            };
            self.of_round.insert(&call.id, id);
        }
    }

    /// The id of a call of that round, or of its result.
    pub(super) fn of_call(&self, id: &str) -> String {
        self.of_round.get(id).cloned().unwrap_or_default()
    }

    /// Nine letters and digits; the same for the same conversation, which providers remember from its beginning on.
    fn numbered(&mut self) -> String {
        let mut number = self.taken.len();
        loop {
            number += 1;
            let id = format!("call{number:05}");
            if self.taken.insert(id.clone()) {
                return id;
            }
        }
    }
}
