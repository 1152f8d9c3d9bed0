//! Reads the logs of organisations for those who watch them: one reader for each organisation in a
//! process, which its watches share.
//!
//! Invariant: a slow watch holds up nobody, and what waits for it is bounded: it reads the log itself
//! where it left, and learns of a gap if the log has been trimmed there.
//! After a failure the log may be one that lacks its last entries, and has given their numbers to
//! others: that is a gap as well.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::{
        OnceCell,
        broadcast::{self, error::RecvError},
    },
    time::{Instant, sleep, timeout},
};

use super::log::{KeptLog, LiveEntry, LivePosition, LogPage, MAX_ENTRY_BYTES, Skipped};
use crate::{
    background::spawn_task,
    bus::{Bus, Node},
    error::BusError,
    transport::Message,
};

/// How often a log is read.
const READ_INTERVAL: Duration = Duration::from_millis(200);
/// How often a log is kept, and the nodes are told that it is watched: six times within its life.
const KEEP_INTERVAL: Duration = Duration::from_secs(10);
/// How long the first watch of an organisation waits until the node knows the shared clock.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Entries that the reader of an organisation reads at once.
const READ_ENTRIES: usize = 256;
/// Entries that wait for the slowest watch of an organisation, which all of them share. Protects memory.
const MAX_WAITING: usize = 64;
/// Entries that one watch reads at once when it is behind. Protects memory.
const PAGE_ENTRIES: usize = 32;

/// The readers of this node.
pub(crate) struct LiveFeeds {
    feeds: Mutex<HashMap<OrgId, Weak<Feed>>>,
    shutdown: Shutdown,
}

/// The reader of an organisation's log, while it has watches.
struct Feed {
    entries: broadcast::Sender<Item>,
    /// Whether the log exists and the nodes were told that it is watched.
    started: OnceCell<()>,
    /// How often entries may have been lost with a server.
    losses: AtomicU64,
}

#[derive(Clone)]
enum Item {
    Entry(Arc<LiveEntry>),
    /// The reader has missed some.
    Missed,
    /// Some may have been lost with a server.
    Lost {
        /// The [`Feed::losses`] with this one.
        losses: u64,
        end: LivePosition,
    },
}

/// What a watch sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The next event.
    Event(Arc<LiveEntry>),
    /// Events before this position are missing.
    Gap(LivePosition),
}

/// The live events of an organisation from a position on, without loss or repetition.
pub struct LiveWatch {
    node: Arc<Node>,
    org: OrgId,
    feed: Arc<Feed>,
    shared: broadcast::Receiver<Item>,
    /// The last entry that was seen.
    position: LivePosition,
    /// Later entries are to be read from the log before those that are shared.
    is_behind: bool,
    /// The [`Feed::losses`] that the watch knows.
    losses: u64,
    /// The next entries of the log may not be those that follow the position.
    may_have_lost: bool,
    page: VecDeque<Arc<LiveEntry>>,
    has_missed: bool,
}

impl LiveFeeds {
    pub(crate) fn new(shutdown: &Shutdown) -> Self {
        Self {
            feeds: Mutex::default(),
            shutdown: shutdown.clone(),
        }
    }

    fn feed(&self, org: OrgId) -> Arc<Feed> {
        let mut feeds = self.feeds.lock();
        if let Some(feed) = feeds.get(&org).and_then(Weak::upgrade) {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed {
            entries: broadcast::Sender::new(MAX_WAITING),
            started: OnceCell::new(),
            losses: AtomicU64::new(0),
        });
        feeds.insert(org, Arc::downgrade(&feed));
        feed
    }
}

impl Bus {
    /// The most that the entries take in memory which wait for a watch that is the only one of its
    /// organisation.
    pub const LIVE_WATCH_BYTES: usize = (PAGE_ENTRIES + MAX_WAITING) * MAX_ENTRY_BYTES;

    /// Watches what happens in an organisation from now on, or after a position that was seen before.
    /// From now on means: what happened before can be read from where it is stored.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn watch_live(
        &self,
        org: OrgId,
        after: Option<LivePosition>,
    ) -> Result<LiveWatch, BusError> {
        let node = &self.0;
        let feed = node.live_feeds.feed(org);
        let shared = feed.entries.subscribe();
        let losses = feed.losses.load(Ordering::Acquire);
        let start = || node.start_feed(org, &feed);
        feed.started.get_or_try_init(start).await?;
        let end = node.backend.keep_log(org).await?.end;
        let mut watch = LiveWatch {
            node: Arc::clone(node),
            org,
            feed,
            shared,
            position: after.unwrap_or(end),
            is_behind: after.is_some(),
            losses,
            may_have_lost: false,
            page: VecDeque::new(),
            has_missed: false,
        };
        if watch.is_behind {
            watch.has_missed = watch.catch_up().await?.is_some();
        }
        Ok(watch)
    }
}

impl LiveWatch {
    /// The position of the last event that was seen, or where the watch began.
    #[must_use]
    pub const fn position(&self) -> LivePosition {
        self.position
    }

    /// Whether events between the position that was given and the present one are missing.
    #[must_use]
    pub const fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// Waits for the next event. While the bus is not reachable there is none.
    pub async fn next(&mut self) -> Seen {
        loop {
            if let Some(entry) = self.page.pop_front() {
                return self.seen(entry);
            }
            if self.is_behind {
                match self.catch_up().await {
                    Ok(Some(gap)) => return gap,
                    Ok(None) => {}
                    Err(_) => sleep(READ_INTERVAL).await,
                }
                continue;
            }
            match self.shared.recv().await {
                Ok(Item::Entry(entry)) if entry.position > self.position => {
                    return self.seen(entry);
                }
                Ok(Item::Entry(_)) => {}
                Ok(Item::Lost { losses, end }) if losses > self.losses => {
                    self.losses = losses;
                    self.position = end;
                    return Seen::Gap(end);
                }
                Ok(Item::Lost { .. }) => {}
                Ok(Item::Missed) | Err(RecvError::Lagged(_)) => self.is_behind = true,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    fn seen(&mut self, entry: Arc<LiveEntry>) -> Seen {
        self.position = entry.position;
        match entry.is_gap() {
            true => Seen::Gap(entry.position),
            false => Seen::Event(entry),
        }
    }

    /// Reads the next entries from the log, or where to continue after a gap.
    async fn catch_up(&mut self) -> Result<Option<Seen>, BusError> {
        // Before the log is read, or what is written in between would be missed.
        self.shared = self.feed.entries.subscribe();
        let losses = self.feed.losses.load(Ordering::Acquire);
        self.may_have_lost |= mem::replace(&mut self.losses, losses) != losses;
        let read = self.read().await;
        self.may_have_lost = read.is_err();
        match read? {
            Ok(entries) => {
                self.is_behind = entries.len() == PAGE_ENTRIES;
                self.page = entries.into_iter().map(Arc::new).collect();
                Ok(None)
            }
            Err(end) => {
                self.is_behind = false;
                self.position = end;
                Ok(Some(Seen::Gap(end)))
            }
        }
    }

    /// The next entries, or where to continue after those that are missing.
    async fn read(&self) -> Result<Result<Vec<LiveEntry>, LivePosition>, BusError> {
        let backend = &self.node.backend;
        let page = backend
            .read_log(self.org, self.position, PAGE_ENTRIES)
            .await?;
        let next = match self.may_have_lost {
            true => Err(Skipped(page.end)),
            false => page.after(self.position),
        };
        match next {
            Ok(entries) => Ok(Ok(entries)),
            Err(Skipped(Some(end))) => Ok(Err(end)),
            Err(Skipped(None)) => Ok(Err(self.node.keep_log(self.org).await?.end)),
        }
    }
}

impl Node {
    /// Keeps the log of an organisation, and tells all nodes that it is watched.
    async fn keep_log(&self, org: OrgId) -> Result<KeptLog, BusError> {
        let began = Instant::now();
        let kept = self.backend.keep_log(org).await?;
        // Not what the log's server takes for the time: in a cluster, it may have a clock of its own.
        let began_ms = self.lease.shared_ms(began).filter(|_| kept.has_begun);
        self.broadcast(&Message::Watched { org, began_ms }).await?;
        Ok(kept)
    }

    async fn start_feed(self: &Arc<Self>, org: OrgId, feed: &Arc<Feed>) -> Result<(), BusError> {
        // Without it, other nodes have to assume that the log lacks events.
        let _ = timeout(CLOCK_TIMEOUT, self.lease.clock_known()).await;
        let end = self.keep_log(org).await?.end;
        let (node, feed) = (Arc::clone(self), Arc::downgrade(feed));
        let stop = self.live_feeds.shutdown.clone();
        spawn_task(&self.live_feeds.shutdown, async move {
            tokio::select! {
                biased;
                () = stop.stopping() => {}
                () = node.read_feed(org, &feed, end) => {}
            }
        });
        Ok(())
    }

    /// Reads the log of an organisation until nobody watches it here.
    async fn read_feed(&self, org: OrgId, feed: &Weak<Feed>, mut position: LivePosition) {
        let mut kept_at = Instant::now();
        let mut connection = self.backend.status().generation;
        let mut may_have_lost = false;
        loop {
            sleep(READ_INTERVAL).await;
            let Some(feed) = feed.upgrade() else {
                return;
            };
            if kept_at.elapsed() >= KEEP_INTERVAL && self.keep_log(org).await.is_ok() {
                kept_at = Instant::now();
            }
            loop {
                let current = self.backend.status().generation;
                may_have_lost |= mem::replace(&mut connection, current) != current;
                let Ok(page) = self.backend.read_log(org, position, READ_ENTRIES).await else {
                    may_have_lost = true;
                    break;
                };
                let shared = match may_have_lost {
                    true => self.share_loss(&feed, org, page.end).await,
                    false => self.share(&feed, org, page, position).await,
                };
                let Some(end) = shared else {
                    break;
                };
                (position, may_have_lost) = (end, false);
            }
        }
    }

    /// Reports to the watches that entries may have been lost. Returns where to continue at once.
    async fn share_loss(
        &self,
        feed: &Feed,
        org: OrgId,
        end: Option<LivePosition>,
    ) -> Option<LivePosition> {
        let end = match end {
            Some(end) => end,
            None => self.keep_log(org).await.ok()?.end,
        };
        // First: a watch that does not receive the item compares the numbers.
        let losses = feed.losses.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        // There may be no watch at the moment.
        let _ = feed.entries.send(Item::Lost { losses, end });
        Some(end)
    }

    /// Shares what was read with the watches. Returns where to continue at once, if there is more.
    async fn share(
        &self,
        feed: &Feed,
        org: OrgId,
        page: LogPage,
        position: LivePosition,
    ) -> Option<LivePosition> {
        // There may be no watch at the moment.
        let share = |item| drop(feed.entries.send(item));
        match page.after(position) {
            Ok(entries) => {
                let end = entries.last().map(|entry| entry.position);
                let shared = entries.into_iter().map(Arc::new).map(Item::Entry);
                shared.for_each(share);
                end
            }
            Err(Skipped(end)) => {
                let end = match end {
                    Some(end) => end,
                    None => self.keep_log(org).await.ok()?.end,
                };
                share(Item::Missed);
                Some(end)
            }
        }
    }
}
