//! Ids of calls in a request: a provider's own ids unchanged, others in a form that all accept.
//! Invariant: ids are unique within a request, and a result has the id of its call.

use std::collections::{HashMap, HashSet};

use crate::ToolCall;

/// The ids of one request.
pub(super) struct Ids<'a> {
    provider: &'a str,
    taken: HashSet<String>,
    /// Original and sent ids of the last round of calls; its results follow it.
    current_round: HashMap<&'a str, String>,
}

impl<'a> Ids<'a> {
    /// Ids for a request to this provider.
    pub(super) fn new(provider: &'a str) -> Self {
        Self {
            provider,
            taken: HashSet::new(),
            current_round: HashMap::new(),
        }
    }

    /// Assigns ids to the calls of a round. `provider` made the calls.
    pub(super) fn start_round(&mut self, calls: &'a [ToolCall], provider: Option<&str>) {
        let is_own = provider == Some(self.provider);
        self.current_round.clear();
        for call in calls {
            let is_unchanged = is_own && !call.id.is_empty() && self.taken.insert(call.id.clone());
            let id = if is_unchanged {
                call.id.clone()
            } else {
                self.next_id()
            };
            self.current_round.insert(&call.id, id);
        }
    }

    /// The sent id of a call of the last round, or of its result.
    pub(super) fn get(&self, id: &str) -> String {
        self.current_round.get(id).cloned().unwrap_or_default()
    }

    /// Nine letters and digits. The ids are stable, so that providers can cache the start of a
    /// conversation.
    fn next_id(&mut self) -> String {
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
