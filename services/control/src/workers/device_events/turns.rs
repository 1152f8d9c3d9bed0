//! Events that are read and not written yet. Organisations take turns: the events of one do not
//! wait behind all events of another.
//!
//! Invariant: an organisation has a queue, and one place in `turns`, while it has events.

use std::collections::{HashMap, HashSet, VecDeque};

use switchboard_bus::{DeviceEvent, EventId};
use switchboard_protocol::id::OrgId;

/// The queues of organisations. The bus bounds their bytes: it accepts no events beyond its budget
/// until former ones are acknowledged.
#[derive(Default)]
pub(super) struct EventTurns {
    queues: HashMap<OrgId, VecDeque<(EventId, DeviceEvent)>>,
    turns: VecDeque<OrgId>,
    /// The entries in the queues. The bus delivers an event that waits for long again.
    entries: HashSet<EventId>,
}

impl EventTurns {
    /// Adds events, those of one organisation in their order.
    pub(super) fn extend(&mut self, events: Vec<(EventId, DeviceEvent)>) {
        for (id, event) in events {
            if !self.entries.insert(id.clone()) {
                continue;
            }
            let org = event.device().org;
            let turns = &mut self.turns;
            let queue = self.queues.entry(org).or_insert_with(|| {
                turns.push_back(org);
                VecDeque::new()
            });
            queue.push_back((id, event));
        }
    }

    /// Removes the next events: one of each organisation in turn.
    pub(super) fn next(&mut self, max: usize) -> (Vec<EventId>, Vec<DeviceEvent>) {
        let (mut ids, mut events) = (Vec::new(), Vec::new());
        while ids.len() < max
            && let Some(org) = self.turns.pop_front()
        {
            let Some(queue) = self.queues.get_mut(&org) else {
                continue;
            };
            if let Some((id, event)) = queue.pop_front() {
                self.entries.remove(&id);
                ids.push(id);
                events.push(event);
            }
            if queue.is_empty() {
                self.queues.remove(&org);
            } else {
                self.turns.push_back(org);
            }
        }
        (ids, events)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
