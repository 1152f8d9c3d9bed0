//! What comes in from one server of Redis: packs, registrations, signs of life.
//! Never: blocking; whoever drains the socket runs this.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::IntCounter;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::{doubles::Doubles, keys::Keys};
use crate::{backend::Inbox, offers::OfferChange};

/// What one connection hears, and what becomes of it.
pub(super) struct Ears {
    heard: AtomicU64,
    /// The probe that is under way, and whether there is one.
    probe: Mutex<Bytes>,
    probed: AtomicBool,
    /// It came back.
    came_back: Notify,
    pub(super) gone: Notify,
    /// A command got no answer: others may hear us no more.
    pub(super) doubted: Notify,
    /// The node's own channel, and where else it hears itself: both count as signs of life.
    own: String,
    counting: String,
    /// Channels that were asked for at an ear, as Redis confirmed them.
    subscribed: Mutex<HashSet<String>>,
    /// Something changed in that: whoever waits here knows it, and whoever keeps all of it.
    confirming: Notify,
    changed: Arc<Notify>,
    doubles: Arc<Doubles>,
    inbox: Arc<dyn Inbox>,
    malformed: IntCounter,
}

impl Ears {
    pub(super) fn new(
        own: String,
        counting: String,
        changed: Arc<Notify>,
        doubles: Arc<Doubles>,
        inbox: Arc<dyn Inbox>,
        malformed: IntCounter,
    ) -> Self {
        Self {
            heard: AtomicU64::new(0),
            probe: Mutex::default(),
            probed: AtomicBool::new(false),
            came_back: Notify::new(),
            gone: Notify::new(),
            doubted: Notify::new(),
            own,
            counting,
            subscribed: Mutex::default(),
            confirming: Notify::new(),
            changed,
            doubles,
            inbox,
            malformed,
        }
    }

    /// How many signs of life there were.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Acquire)
    }

    /// From now on this very pack is listened for.
    pub(super) fn expect(&self, probe: Bytes) {
        *self.probe.lock() = probe;
        self.probed.store(true, Ordering::Release);
    }

    /// Waits until the pack that was expected last has come.
    pub(super) async fn came_back(&self) {
        loop {
            let came_back = self.came_back.notified();
            if !self.probed.load(Ordering::Acquire) {
                return;
            }
            came_back.await;
        }
    }

    fn note_probe(&self, pack: &Bytes) {
        if self.probed.load(Ordering::Acquire) && *self.probe.lock() == *pack {
            self.probed.store(false, Ordering::Release);
            self.came_back.notify_waiters();
        }
    }

    /// Takes what the driver was sent.
    pub(super) fn take(&self, info: PushInfo) {
        match info.kind {
            PushKind::Message => {
                let mut data = info.data.into_iter();
                if let (Some(Value::BulkString(channel)), Some(Value::BulkString(pack))) =
                    (data.next(), data.next())
                {
                    self.message(&channel, pack.into());
                }
            }
            PushKind::Disconnection => self.gone.notify_one(),
            _ => {}
        }
    }

    /// Takes what was published.
    pub(super) fn message(&self, channel: &[u8], pack: Bytes) {
        if Keys::is_registered(channel) {
            match OfferChange::parse(&pack) {
                Some(event) => self.inbox.offer_changed(&event),
                None => self.malformed.inc(),
            }
            return;
        }
        let is_own = self.own.as_bytes() == channel;
        if is_own || self.counting.as_bytes() == channel {
            self.heard.fetch_add(1, Ordering::AcqRel);
            self.note_probe(&pack);
        }
        // What is said to everybody may be said twice, and is not sent again.
        if !is_own || !self.doubles.is_double(&pack) {
            self.inbox.receive(pack);
        }
    }

    /// Redis says that a channel is heard here from now on, or not any more.
    pub(super) fn confirm(&self, channel: &[u8], heard: bool) {
        let Ok(channel) = str::from_utf8(channel) else {
            return;
        };
        let mut subscribed = self.subscribed.lock();
        if heard {
            subscribed.insert(channel.to_owned());
        } else {
            subscribed.remove(channel);
        }
        drop(subscribed);
        self.confirming.notify_waiters();
        self.changed.notify_one();
    }

    /// Waits until Redis has confirmed that a channel is heard here, or is not.
    pub(super) async fn confirmed(&self, channel: &str, heard: bool) {
        loop {
            let confirming = self.confirming.notified();
            if self.hears(channel) == heard {
                return;
            }
            confirming.await;
        }
    }

    /// Whether this channel is heard here.
    pub(super) fn hears(&self, channel: &str) -> bool {
        self.subscribed.lock().contains(channel)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::{backend::Undelivered, node::NodeId};

    #[derive(Default)]
    struct Taker(Mutex<Vec<Bytes>>);

    impl Inbox for Taker {
        fn receive(&self, pack: Bytes) {
            self.0.lock().push(pack);
        }

        fn undelivered(&self, _: &NodeId, _: Bytes, why: Undelivered) {
            unreachable!("{why:?}");
        }

        fn healed(&self) {}

        fn missed(&self) {}

        fn follows(&self) -> bool {
            false
        }

        fn offer_changed(&self, _: &OfferChange) {}
    }

    fn ears(doubles: &Arc<Doubles>, taker: &Arc<Taker>) -> Ears {
        Ears::new(
            "sb:in:node".to_owned(),
            "sb:echo:node".to_owned(),
            Arc::default(),
            Arc::clone(doubles),
            Arc::clone(taker) as Arc<dyn Inbox>,
            IntCounter::new("malformed", "Malformed").unwrap(),
        )
    }

    #[test]
    fn only_what_is_said_to_the_node_itself_can_come_twice() {
        let (doubles, taker) = (Arc::new(Doubles::new()), Arc::new(Taker::default()));
        let ears = ears(&doubles, &taker);
        doubles.watch();
        let check = |channel: &[u8], taken: usize| {
            for _ in 0..2 {
                ears.message(channel, Bytes::from_static(b"pack"));
            }
            assert_eq!(taker.0.lock().drain(..).count(), taken);
        };
        check(b"sb:all", 2);
        check(b"sb:in:node", 1);
        check(b"sb:all", 2);
    }

    #[tokio::test]
    async fn a_probe_is_back_when_it_is_heard_itself_and_not_when_others_are() {
        let ears = ears(&Arc::new(Doubles::new()), &Arc::default());
        let (probe, other) = (Bytes::from("probe 1"), Bytes::from("probe 2"));
        ears.expect(probe.clone());
        ears.message(b"sb:in:node", other);
        ears.message(b"sb:all", probe.clone());
        let soon = Duration::from_millis(20);
        assert!(timeout(soon, ears.came_back()).await.is_err());
        assert_eq!(
            ears.heard(),
            1,
            "the other one is a sign of life all the same"
        );
        ears.message(b"sb:in:node", probe);
        assert!(timeout(soon, ears.came_back()).await.is_ok());
    }
}
