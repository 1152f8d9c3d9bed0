//! How many further turns of each organisation a worker can answer.

use std::collections::HashMap;

use switchboard_protocol::id::OrgId;

/// How many further turns of an organisation the worker can answer at the moment.
pub(crate) type OrgRoom<'a> = dyn Fn(OrgId) -> usize + Send + Sync + 'a;

/// The room that is left while turns are claimed.
pub(crate) struct Rooms<'a> {
    room: &'a OrgRoom<'a>,
    left: HashMap<OrgId, usize>,
}

impl<'a> Rooms<'a> {
    pub(crate) fn new(room: &'a OrgRoom<'a>) -> Self {
        Self {
            room,
            left: HashMap::new(),
        }
    }

    /// Takes room for one turn of the organisation; false when there is none.
    pub(crate) fn take(&mut self, org: OrgId) -> bool {
        let left = self.left.entry(org).or_insert_with(|| (self.room)(org));
        let has_room = *left > 0;
        *left = left.saturating_sub(1);
        has_room
    }
}
