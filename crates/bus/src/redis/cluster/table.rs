//! Which shard owns which slot, as far as this node knows.
//! Never: a place that means another shard while anybody may remember it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::WAYS;
use crate::redis::{shard::Shard, slot::SLOTS};

/// A server that has owned nothing for so long is let go.
const IDLE_SERVER: Duration = Duration::from_secs(10);
/// Nobody's.
const UNKNOWN: u16 = u16::MAX;

/// Shards have places, slots have the place of their owner.
#[derive(Clone)]
pub(super) struct Table {
    members: Vec<Option<Member>>,
    owners: Vec<u16>,
}

#[derive(Clone)]
pub(super) struct Member {
    /// `host:port`.
    pub(super) address: String,
    pub(super) shard: Arc<Shard>,
    /// Ends its supervision.
    pub(super) let_go: CancellationToken,
    idle_since: Option<Instant>,
}

impl Member {
    pub(super) fn new(address: String, shard: Arc<Shard>) -> Self {
        Self {
            address,
            shard,
            let_go: CancellationToken::new(),
            idle_since: None,
        }
    }
}

impl Table {
    pub(super) fn empty() -> Self {
        Self {
            members: Vec::new(),
            owners: vec![UNKNOWN; usize::from(SLOTS)],
        }
    }

    /// Whether nothing was learnt yet.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn place(&self, slot: u16) -> Option<usize> {
        let place = self.owners.get(usize::from(slot)).copied()?;
        (place != UNKNOWN).then_some(usize::from(place))
    }

    pub(super) fn shard(&self, place: usize) -> Option<&Shard> {
        let member = self.members.get(place)?.as_ref()?;
        Some(&member.shard)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Shard> {
        self.shard(self.place(slot)?)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.members.iter().flatten().map(|member| &*member.shard)
    }

    pub(super) fn by_way(&self, way: usize) -> impl Iterator<Item = &Shard> {
        let ours = self.members.iter().skip(way).step_by(WAYS);
        ours.flatten().map(|member| &*member.shard)
    }

    pub(super) fn named(&self, address: &str) -> Option<&Shard> {
        self.shard(self.place_of(address)?)
    }

    pub(super) fn place_of(&self, address: &str) -> Option<usize> {
        let named = |member: &Option<Member>| {
            let member = member.as_ref();
            member.is_some_and(|member| member.address == address)
        };
        self.members.iter().position(named)
    }

    /// Whether every slot has an owner that is connected.
    pub(super) fn is_whole(&self) -> bool {
        let known = self.owners.iter().all(|place| *place != UNKNOWN);
        known && self.used().all(|shard| shard.live().is_some())
    }

    /// Shards that own anything.
    fn used(&self) -> impl Iterator<Item = &Shard> {
        let mut used = vec![false; self.members.len()];
        for place in &self.owners {
            if let Some(used) = used.get_mut(usize::from(*place)) {
                *used = true;
            }
        }
        let members = self.members.iter().zip(used);
        members.filter_map(|(member, used)| Some(&*member.as_ref().filter(|_| used)?.shard))
    }

    /// Gives a newcomer a place.
    pub(super) fn admit(&mut self, member: Member) -> usize {
        let free = self.members.iter().position(Option::is_none);
        let place = free.unwrap_or(self.members.len());
        match self.members.get_mut(place) {
            Some(empty) => *empty = Some(member),
            None => self.members.push(Some(member)),
        }
        place
    }

    /// Notes a slot's owner; whether it had another.
    pub(super) fn give(&mut self, slot: u16, place: Option<usize>) -> bool {
        let place = place.and_then(|place| u16::try_from(place).ok());
        let place = place.unwrap_or(UNKNOWN);
        match self.owners.get_mut(usize::from(slot)) {
            Some(owner) => std::mem::replace(owner, place) != place,
            None => false,
        }
    }

    /// Lets go of servers that have owned nothing for long.
    pub(super) fn let_go(&mut self) -> Vec<Member> {
        let mut owning = vec![false; self.members.len()];
        for place in &self.owners {
            if let Some(owning) = owning.get_mut(usize::from(*place)) {
                *owning = true;
            }
        }
        let mut gone = Vec::new();
        for (member, owns) in self.members.iter_mut().zip(owning) {
            let Some(standing) = member else { continue };
            if owns {
                standing.idle_since = None;
                continue;
            }
            let since = *standing.idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() > IDLE_SERVER {
                gone.extend(member.take());
            }
        }
        gone
    }
}

/// What `MOVED 3999 127.0.0.1:6381` says.
pub(super) fn moved(refusal: &str) -> Option<(u16, &str)> {
    let (slot, address) = refusal.strip_prefix("MOVED ")?.split_once(' ')?;
    Some((slot.parse().ok()?, address.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_is_read() {
        assert_eq!(moved("MOVED 39 a:1"), Some((39, "a:1")));
        assert_eq!(moved("MOVED x a:1"), None);
        assert_eq!(moved("ASK 39 a:1"), None);
    }

    #[test]
    fn slots_are_given_and_forgotten() {
        let mut table = Table::empty();
        assert_eq!(table.place(7), None);
        assert!(table.give(7, Some(2)));
        assert!(!table.give(7, Some(2)));
        assert_eq!(table.place(7), Some(2));
        assert!(table.give(7, None));
        assert_eq!(table.place(7), None);
        assert!(!table.give(SLOTS, Some(1)), "there is no such slot");
    }
}
