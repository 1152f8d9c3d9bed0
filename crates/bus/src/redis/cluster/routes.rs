//! Which shard owns which slot, as far as this node knows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{ROUTES, slots::SLOTS};
use crate::redis::server::Server;

/// A server that has owned no slot for this long is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The owner of a slot is unknown.
const UNKNOWN: u16 = u16::MAX;

/// The servers, by index, and the index of each slot's owner.
///
/// Invariant: an index is not reused while the server that had it may still be in use.
#[derive(Clone)]
pub(in crate::redis) struct Routes {
    members: Vec<Option<Member>>,
    owners: Vec<u16>,
}

#[derive(Clone)]
pub(in crate::redis) struct Member {
    /// `host:port`.
    pub(super) address: String,
    pub(super) server: Arc<Server>,
    /// Ends the supervision of the server.
    pub(super) removed: CancellationToken,
    idle_since: Option<Instant>,
}

impl Member {
    pub(super) fn new(address: String, server: Arc<Server>) -> Self {
        Self {
            address,
            server,
            removed: CancellationToken::new(),
            idle_since: None,
        }
    }
}

impl Routes {
    pub(super) fn empty() -> Self {
        Self {
            members: Vec::new(),
            owners: vec![UNKNOWN; usize::from(SLOTS)],
        }
    }

    /// Whether no server is known yet.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The index of a slot's owner.
    pub(super) fn index(&self, slot: u16) -> Option<usize> {
        let index = self.owners.get(usize::from(slot)).copied()?;
        (index != UNKNOWN).then_some(usize::from(index))
    }

    pub(super) fn server(&self, index: usize) -> Option<&Server> {
        let member = self.members.get(index)?.as_ref()?;
        Some(&member.server)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Server> {
        self.server(self.index(slot)?)
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.members.iter().flatten().map(|member| &*member.server)
    }

    pub(in crate::redis) fn by_route(&self, route: usize) -> impl Iterator<Item = &Server> {
        let members = self.members.iter().skip(route).step_by(ROUTES);
        members.flatten().map(|member| &*member.server)
    }

    pub(super) fn find(&self, address: &str) -> Option<&Server> {
        self.server(self.find_index(address)?)
    }

    pub(super) fn find_index(&self, address: &str) -> Option<usize> {
        let has_address = |member: &Option<Member>| {
            let member = member.as_ref();
            member.is_some_and(|member| member.address == address)
        };
        self.members.iter().position(has_address)
    }

    /// Whether every slot has an owner that is connected.
    pub(super) fn is_complete(&self) -> bool {
        let all_known = self.owners.iter().all(|index| *index != UNKNOWN);
        let members = self.members.iter().zip(self.owning());
        let owning = members.filter_map(|(member, owns)| member.as_ref().filter(|_| owns));
        let mut owning = owning.map(|member| &member.server);
        all_known && owning.all(|server| server.connection().is_some())
    }

    /// Whether each member owns a slot.
    fn owning(&self) -> Vec<bool> {
        let mut owning = vec![false; self.members.len()];
        for index in &self.owners {
            if let Some(owns) = owning.get_mut(usize::from(*index)) {
                *owns = true;
            }
        }
        owning
    }

    /// Adds a server. Returns its index.
    pub(super) fn add(&mut self, member: Member) -> usize {
        let free = self.members.iter().position(Option::is_none);
        let index = free.unwrap_or(self.members.len());
        match self.members.get_mut(index) {
            Some(empty) => *empty = Some(member),
            None => self.members.push(Some(member)),
        }
        index
    }

    /// Sets a slot's owner. Returns whether it had another.
    pub(super) fn set_owner(&mut self, slot: u16, index: Option<usize>) -> bool {
        let index = index.and_then(|index| u16::try_from(index).ok());
        let index = index.unwrap_or(UNKNOWN);
        match self.owners.get_mut(usize::from(slot)) {
            Some(owner) => std::mem::replace(owner, index) != index,
            None => false,
        }
    }

    /// Removes servers that have owned no slot for long.
    pub(super) fn remove_idle(&mut self) -> Vec<Member> {
        let owning = self.owning();
        let mut removed = Vec::new();
        for (entry, owns) in self.members.iter_mut().zip(owning) {
            let Some(member) = entry else { continue };
            if owns {
                member.idle_since = None;
                continue;
            }
            let since = *member.idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() > IDLE_TIMEOUT {
                removed.extend(entry.take());
            }
        }
        removed
    }
}

/// Parses `MOVED 3999 127.0.0.1:6381`.
pub(super) fn parse_moved(error: &str) -> Option<(u16, &str)> {
    let (slot, address) = error.strip_prefix("MOVED ")?.split_once(' ')?;
    Some((slot.parse().ok()?, address.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_error_is_parsed() {
        assert_eq!(parse_moved("MOVED 39 a:1"), Some((39, "a:1")));
        assert_eq!(parse_moved("MOVED x a:1"), None);
        assert_eq!(parse_moved("ASK 39 a:1"), None);
    }

    #[test]
    fn owner_is_set_and_cleared() {
        let mut routes = Routes::empty();
        assert_eq!(routes.index(7), None);
        assert!(routes.set_owner(7, Some(2)));
        assert!(!routes.set_owner(7, Some(2)));
        assert_eq!(routes.index(7), Some(2));
        assert!(routes.set_owner(7, None));
        assert_eq!(routes.index(7), None);
        assert!(!routes.set_owner(SLOTS, Some(1)), "there is no such slot");
    }
}
