//! What waits to be sent to one node: a pack that grows until somebody posts it.
//! Never: two that post for one lane at a time, so that what was added first arrives first.

use std::{
    mem,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    envelope::{self, Envelope},
    error::BusError,
    node::NodeId,
};

/// For how long answers are sent again to a caller that is not listening.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Failures further apart than this are not one trouble: longer than a failure takes to show.
const SAME_TROUBLE: Duration = Duration::from_secs(3);
/// A lane without traffic for this long is taken down.
const IDLE_LANE: Duration = Duration::from_secs(60);

/// What waits for one node, and who sends it.
pub(super) struct Lane {
    pub(super) to: NodeId,
    state: Mutex<Waiting>,
}

struct Waiting {
    pack: Vec<u8>,
    /// What came back, and goes before what was added since.
    returned: Vec<u8>,
    /// How many envelopes are in the two.
    envelopes: usize,
    /// Whether somebody is about to send the pack.
    awaited: bool,
    /// Whether somebody is posting the pack before this one.
    posting: bool,
    /// Whether the pack is to be sent after a pause only.
    resting: bool,
    trouble: Option<Trouble>,
    used: Instant,
}

/// While it lives, nobody else posts for the lane.
pub(super) struct Posting<'a> {
    lane: &'a Lane,
    ended: bool,
}

/// A lane whose packs do not arrive.
#[derive(Clone, Copy)]
struct Trouble {
    since: Instant,
    last: Instant,
}

impl Lane {
    pub(super) fn new(to: NodeId) -> Self {
        let state = Waiting {
            pack: Vec::new(),
            returned: Vec::new(),
            envelopes: 0,
            awaited: false,
            posting: false,
            resting: false,
            trouble: None,
            used: Instant::now(),
        };
        Self {
            to,
            state: Mutex::new(state),
        }
    }

    /// Adds to the waiting pack; true when nobody was about to send it.
    pub(super) fn add(
        &self,
        sender: &NodeId,
        envelope: &Envelope,
        room: usize,
    ) -> Result<bool, BusError> {
        let mut waiting = self.state.lock();
        if waiting.returned.len() + waiting.pack.len() > room {
            return Err(BusError::Overloaded);
        }
        waiting.put(sender, envelope);
        Ok(!std::mem::replace(&mut waiting.awaited, true))
    }

    /// Adds what was sent before; true when it is to be sent after a pause.
    pub(super) fn put_back(&self, sender: &NodeId, envelopes: &[Envelope]) -> bool {
        let mut waiting = self.state.lock();
        for envelope in envelopes {
            waiting.put_first(sender, envelope);
        }
        // Whoever is posting may be the one who failed, and shall not try again at once.
        let sent_soon = waiting.awaited && !waiting.posting;
        waiting.awaited = true;
        !sent_soon && !std::mem::replace(&mut waiting.resting, true)
    }

    /// Only for whoever is about to send: the one that [`Self::add`] said it to.
    pub(super) fn begin_posting(&self) -> (Option<Vec<u8>>, Posting<'_>) {
        let mut waiting = self.state.lock();
        waiting.used = Instant::now();
        waiting.posting = true;
        let pack = Some(waiting.take()).filter(|pack| !pack.is_empty());
        let posting = Posting {
            lane: self,
            ended: false,
        };
        (pack, posting)
    }

    /// Whether nothing is about to be sent.
    pub(super) fn is_still(&self) -> bool {
        !self.state.lock().awaited
    }

    /// How many envelopes wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().envelopes
    }

    /// Whether it is in use, or was of late.
    pub(super) fn is_needed(&self) -> bool {
        let waiting = self.state.lock();
        waiting.awaited || waiting.used.elapsed() < IDLE_LANE
    }

    /// The pause after [`Self::put_back`] has passed.
    pub(super) fn rest_is_over(&self) {
        self.state.lock().resting = false;
    }

    /// Notes that a pack did not arrive; false when that has been so for too long.
    pub(super) fn is_worth_trying(&self) -> bool {
        let now = Instant::now();
        let mut waiting = self.state.lock();
        let same = |trouble: &Trouble| now.duration_since(trouble.last) < SAME_TROUBLE;
        let since = waiting
            .trouble
            .filter(same)
            .map_or(now, |trouble| trouble.since);
        waiting.trouble = Some(Trouble { since, last: now });
        now.duration_since(since) <= ANSWER_PATIENCE
    }
}

impl Posting<'_> {
    /// Whether more is to be sent now. If not, whoever adds next sends it.
    pub(super) fn end(mut self) -> bool {
        self.ended = true;
        let mut waiting = self.lane.state.lock();
        waiting.posting = false;
        if waiting.resting {
            return false;
        }
        waiting.awaited = waiting.envelopes > 0;
        waiting.awaited
    }
}

impl Drop for Posting<'_> {
    /// Whoever panicked while posting sends nothing more: the next one who adds does.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut waiting = self.lane.state.lock();
        waiting.posting = false;
        waiting.awaited = waiting.resting;
    }
}

impl Waiting {
    fn put(&mut self, sender: &NodeId, envelope: &Envelope) {
        if self.pack.is_empty() {
            envelope::begin_pack(&mut self.pack, sender);
        }
        envelope::put(&mut self.pack, envelope);
        self.envelopes += 1;
    }

    /// Behind what came back before, and before what was added since that was sent first.
    fn put_first(&mut self, sender: &NodeId, envelope: &Envelope) {
        if self.returned.is_empty() {
            envelope::begin_pack(&mut self.returned, sender);
        }
        envelope::put(&mut self.returned, envelope);
        self.envelopes += 1;
    }

    /// All of it, as one pack.
    fn take(&mut self) -> Vec<u8> {
        self.envelopes = 0;
        let (mut first, then) = (mem::take(&mut self.returned), mem::take(&mut self.pack));
        if first.is_empty() {
            return then;
        }
        first.extend_from_slice(envelope::contents(&then));
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        Envelope::NotHere { token: 1 }
    }

    #[test]
    fn what_may_be_lost_finds_less_room() {
        let (sender, lane) = (NodeId::from("a~1"), Lane::new(NodeId::from("b~1")));
        assert!(matches!(lane.add(&sender, &envelope(), 20), Ok(true)));
        assert!(matches!(
            lane.add(&sender, &envelope(), 4),
            Err(BusError::Overloaded)
        ));
        assert!(matches!(lane.add(&sender, &envelope(), 40), Ok(false)));
    }

    #[test]
    fn one_sends_at_a_time_and_a_failure_is_followed_by_a_pause() {
        let (sender, lane) = (NodeId::from("a~1"), Lane::new(NodeId::from("b~1")));
        let add = || lane.add(&sender, &envelope(), 1000).unwrap();
        assert!(add());
        let (pack, posting) = lane.begin_posting();
        assert!(pack.is_some());
        assert_eq!(lane.waiting(), 0);
        assert!(!add(), "somebody posts");
        assert_eq!(lane.waiting(), 1);
        assert!(posting.end(), "and sends that, too");
        let (pack, posting) = lane.begin_posting();
        assert!(pack.is_some());
        assert!(lane.put_back(&sender, &[envelope()]));
        assert!(
            !lane.put_back(&sender, &[envelope()]),
            "one pause is enough"
        );
        assert!(!posting.end(), "not before the pause is over");
        assert!(!add() && !lane.is_still());
        lane.rest_is_over();
        let (pack, posting) = lane.begin_posting();
        assert!(pack.is_some());
        assert!(!posting.end() && lane.is_still());
    }

    #[test]
    fn what_came_back_goes_first_and_in_its_order() {
        let (sender, lane) = (NodeId::from("a~1"), Lane::new(NodeId::from("b~1")));
        let of = |token| Envelope::NotHere { token };
        lane.add(&sender, &of(4), 1000).unwrap();
        lane.put_back(&sender, &[of(1), of(2)]);
        lane.put_back(&sender, &[of(3)]);
        lane.add(&sender, &of(5), 1000).unwrap();
        assert_eq!(lane.waiting(), 5);
        let (pack, _posting) = lane.begin_posting();
        let unpacked = envelope::unpack(pack.unwrap().into()).unwrap();
        assert_eq!(unpacked.sender, sender);
        let tokens = unpacked.map(|envelope| match envelope {
            Ok(Envelope::NotHere { token }) => token,
            other => panic!("{other:?}"),
        });
        assert_eq!(tokens.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn who_panics_while_posting_leaves_the_lane_to_others() {
        let (sender, lane) = (NodeId::from("a~1"), Lane::new(NodeId::from("b~1")));
        assert!(lane.add(&sender, &envelope(), 1000).unwrap());
        drop(lane.begin_posting());
        assert!(lane.add(&sender, &envelope(), 1000).unwrap());
    }
}
