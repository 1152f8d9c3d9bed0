//! Many servers as one: which shard owns what, packs and commands to where they belong, and again to where they
//! belong now.
//! Never: a pack sent again that may have arrived; a command sent again that may have been executed.

mod detours;
mod listening;
mod map;
mod table;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use redis::{ConnectionAddr, ConnectionInfo, FromRedisValue, Pipeline, RedisError, Value};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

pub(super) use self::detours::Detours;
use self::{detours::Held, table::Table};
use super::{
    address::{Seeds, at, host_and_port},
    keys::Keys,
    link::{Batch, Step},
    live::{COMMAND_LIMIT, Fault, Live},
    publisher::{Attempt, Channel, Returned, Returns},
    script,
    shard::{Household, Shard, Watcher},
    slot,
    standing::Standing,
};
use crate::{backend::Undelivered, error::BusError, node::NodeId};

/// Ways by which packs leave, each at its own pace: a shard that stands still holds up the packs of its own way only.
pub(super) const WAYS: usize = 16;
/// No server is waited for longer that is asked about itself or the others.
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// Before a command is tried again that its server could not do yet.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Cluster {
    keys: Keys,
    house: Household,
    standing: Arc<Standing>,
    detours: Arc<Detours>,
    /// Channels that this node is to be heard at.
    channels: Vec<String>,
    /// Servers that were named: one, and perhaps others.
    seeds: Seeds,
    shutdown: Shutdown,
    table: ArcSwap<Table>,
    /// One learns at a time.
    learning: Mutex<()>,
    /// The table may be wrong.
    doubt: Notify,
    /// What a shard refused to listen for last, once it was told.
    refusal: Mutex<Option<String>>,
}

/// What an error means for the command that got it.
enum Advice {
    Never,
    Soon,
    /// Another server does it, this once.
    At(Elsewhere),
}

/// A server that a slot is on its way to.
struct Elsewhere {
    /// `host:port`.
    address: String,
    /// How it is said there, if not as it was.
    command: Option<redis::Cmd>,
}

impl Cluster {
    pub(super) fn new(
        keys: Keys,
        house: Household,
        standing: Arc<Standing>,
        detours: Arc<Detours>,
        seeds: Seeds,
        shutdown: Shutdown,
    ) -> Self {
        let mut channels = vec![house.inbox_channel.clone(), keys.everybody()];
        if house.inbox.follows() {
            channels.extend(keys.all_registered());
        }
        Self {
            keys,
            house,
            standing,
            detours,
            channels,
            seeds,
            shutdown,
            table: ArcSwap::from_pointee(Table::empty()),
            learning: Mutex::new(()),
            doubt: Notify::new(),
            refusal: Mutex::default(),
        }
    }

    /// Keeps the table true, and the channels heard.
    pub(super) async fn supervise(self: &Arc<Self>) {
        tokio::join!(self.follow_map(), self.listen());
    }

    /// Keeps packs going where they belong now, the last words of a node that leaves as well.
    pub(super) async fn redirect(self: &Arc<Self>) {
        tokio::join!(self.resend(), self.look_into_absences());
    }

    pub(super) fn end(&self) {
        for shard in self.table.load().shards() {
            shard.end();
        }
    }

    fn live_at(&self, slot: u16) -> Option<Arc<Live>> {
        self.table.load().owner(slot).and_then(|shard| shard.live())
    }

    /// Whether this node's inbox belongs to this shard, and is heard there.
    fn has_inbox(&self, shard: &Shard) -> bool {
        let inbox = &self.house.inbox_channel;
        let table = self.table.load();
        let owner = table.owner(slot::of(inbox));
        let owns = owner.is_some_and(|owner| std::ptr::eq(owner, shard));
        owns && shard.live().is_some_and(|live| live.ears.hears(inbox))
    }

    pub(super) fn post(&self, to: &NodeId, pack: Bytes) {
        let attempt = Attempt::first();
        if let Some(pack) = self.detours.hold_behind(to, pack, attempt) {
            self.post_at(to, pack, attempt);
        }
    }

    fn post_at(&self, to: &NodeId, pack: Bytes, attempt: Attempt) {
        let inbox = self.keys.inbox(to);
        let channel = Channel {
            publish: self.keys.speech.publish,
            name: &inbox,
        };
        match self.table.load().owner(slot::of(&inbox)) {
            Some(shard) => shard.post(channel, to, pack, attempt),
            None => self.detours.returned(Returned::unsent(to, pack, attempt)),
        }
    }

    /// Sends again what was returned because its slot is elsewhere, or just was.
    async fn resend(self: &Arc<Self>) {
        loop {
            let (news, packs) = self.detours.take().await;
            for (slot, address) in news {
                self.learn(slot, &address);
            }
            for Held { to, pack, attempt } in packs {
                self.post_at(&to, pack, attempt);
            }
            self.detours.taken();
            for way in 0..WAYS {
                self.flush(way);
            }
        }
    }

    /// Where nobody heard a pack, that is asked after: a server that was a master until now answers as if it still
    /// were, and has nobody left.
    async fn look_into_absences(&self) {
        loop {
            let mut masters: BTreeMap<Arc<str>, Option<bool>> = BTreeMap::new();
            for (Held { to, pack, attempt }, server) in self.detours.absences().await {
                let slot = slot::of(&self.keys.inbox(&to));
                let owner = self.live_at(slot);
                let Some(owner) = owner.filter(|owner| *owner.publisher.server == *server) else {
                    // Whoever said so is not the one that counts now.
                    self.detours.again(&to, pack, attempt.in_doubt());
                    continue;
                };
                let master = match masters.get(&server) {
                    Some(known) => *known,
                    None => timeout(ASK_LIMIT, owner.is_master())
                        .await
                        .ok()
                        .and_then(Result::ok),
                };
                masters.insert(server, master);
                match master {
                    Some(true) if self.detours.is_young(slot) => {
                        self.detours.again(&to, pack, attempt.in_doubt());
                    }
                    Some(true) if !attempt.doubted => {
                        self.detours.give_up(&to, pack, Undelivered::NobodyThere);
                    }
                    Some(false) => {
                        self.forget(slot);
                        self.detours.again(&to, pack, attempt.in_doubt());
                    }
                    Some(true) | None => self.detours.give_up(&to, pack, Undelivered::Unknown),
                }
            }
            self.detours.looked_into();
        }
    }

    pub(super) fn way(&self, to: &NodeId) -> usize {
        let slot = slot::of(&self.keys.inbox(to));
        self.table.load().place(slot).unwrap_or(0) % WAYS
    }

    pub(super) fn flush(&self, way: usize) {
        self.table
            .load()
            .by_way(way)
            .for_each(|shard| shard.flush());
    }

    pub(super) fn is_clear(&self, way: usize) -> bool {
        self.table.load().by_way(way).all(|shard| shard.is_clear())
    }

    /// Whether no pack has come back that goes on from here.
    pub(super) fn is_settled(&self) -> bool {
        self.detours.is_empty()
    }

    pub(super) async fn clear(&self, way: usize) {
        let table = self.table.load_full();
        for shard in table.by_way(way) {
            shard.clear().await;
        }
    }

    /// The shard that has this key, which may be being connected just now.
    pub(super) async fn owner(&self, key: &str) -> Result<Arc<Live>, BusError> {
        let slot = slot::of(key);
        let deadline = Instant::now() + COMMAND_LIMIT;
        loop {
            match self.live_at(slot) {
                Some(live) => return Ok(live),
                None if self.detours.is_young(slot) && Instant::now() < deadline => {
                    sleep(PAUSE).await;
                }
                None => return Err(BusError::Unavailable),
            }
        }
    }

    /// Where to go on, after a server said that it is not the one to be asked; and whether it has to be told that it was
    /// another that said so.
    pub(super) fn redirected(
        self: &Arc<Self>,
        error: &RedisError,
        by: &Live,
    ) -> Option<(ConnectionInfo, bool)> {
        let (address, asking) = match self.advice_on(error, Some(by)) {
            Advice::At(elsewhere) => (elsewhere.address, true),
            _ => (error.redirect_node()?.0.to_owned(), false),
        };
        let (host, port) = host_and_port(&address).filter(|(host, _)| !host.is_empty())?;
        Some((at(&self.seeds.0, host, port), asking))
    }

    pub(super) async fn query<T: FromRedisValue>(
        self: &Arc<Self>,
        about: &str,
        command: &redis::Cmd,
    ) -> Result<T, BusError> {
        let slot = slot::of(about);
        let deadline = Instant::now() + COMMAND_LIMIT;
        let mut detour: Option<Elsewhere> = None;
        loop {
            let taken = detour.take();
            let asked = match &taken {
                Some(elsewhere) => self.live_named(&elsewhere.address),
                None => self.live_at(slot),
            };
            let answer = match (&asked, &taken) {
                (None, None) if !self.detours.is_young(slot) => return Err(BusError::Unavailable),
                // Its new owner is being connected.
                (None, _) => Err(Fault::Ended),
                (Some(live), None) => live.query(command).await,
                (Some(live), Some(Elsewhere { command: said, .. })) => {
                    live.query_asking(said.as_ref().unwrap_or(command)).await
                }
            };
            let fault = match answer {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let advice = match &asked {
                None => Advice::Soon,
                Some(live) => self.advice(&fault, live),
            };
            let advice = match (advice, taken) {
                (Advice::Soon, Some(taken)) if asked.is_some() => taken.with_one_key(command),
                (advice, _) => advice,
            };
            let late = Instant::now() + PAUSE > deadline;
            match advice {
                Advice::At(elsewhere) if !late => detour = Some(elsewhere),
                Advice::Soon if !late => sleep(PAUSE).await,
                _ => return Err(fault.into()),
            }
        }
    }

    fn live_named(self: &Arc<Self>, address: &str) -> Option<Arc<Live>> {
        let live = self.table.load().named(address).and_then(Shard::live);
        if live.is_none() {
            // It is about to own something, and will be known when it is connected.
            self.meet(address);
        }
        live
    }

    fn advice(self: &Arc<Self>, fault: &Fault, by: &Live) -> Advice {
        match fault {
            Fault::Refused(error) => self.advice_on(error, Some(by)),
            // It may have been executed.
            Fault::Late | Fault::Ended => Advice::Never,
        }
    }

    fn advice_on(self: &Arc<Self>, error: &RedisError, by: Option<&Live>) -> Advice {
        match (error.code(), error.redirect_node()) {
            (Some("ASK"), Some((address, _))) => Advice::At(Elsewhere {
                // Redis does not repeat the host when it only has the one.
                address: match by.map(|by| by.info.addr()) {
                    Some(ConnectionAddr::Tcp(host, _)) if address.starts_with(':') => {
                        format!("{host}{address}")
                    }
                    _ => address.to_owned(),
                },
                command: None,
            }),
            (Some("MOVED"), Some(_)) => {
                self.heed(error);
                Advice::Soon
            }
            (Some("TRYAGAIN"), _) => Advice::Soon,
            _ => Advice::Never,
        }
    }

    /// Learns from an error where its slot is.
    fn heed(self: &Arc<Self>, error: &RedisError) {
        if let (Some("MOVED"), Some((address, slot))) = (error.code(), error.redirect_node()) {
            self.learn(slot, address);
        }
    }

    pub(super) async fn query_all(self: &Arc<Self>, batch: Batch) -> Result<Vec<Value>, BusError> {
        let Batch { steps, first } = batch;
        let mut said = vec![Value::Nil; steps.len()];
        let (before, after) = steps.split_at(first.min(steps.len()));
        for (stage, offset) in [(before, 0), (after, before.len())] {
            for (_, group) in self.by_shard(stage) {
                for (index, value) in self.query_group(stage, &group).await? {
                    if let Some(place) = said.get_mut(offset + index) {
                        *place = value;
                    }
                }
            }
        }
        Ok(said)
    }

    /// Which steps can go together.
    fn by_shard(&self, steps: &[Step]) -> BTreeMap<Option<usize>, Vec<usize>> {
        let table = self.table.load();
        let mut groups: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            let place = table.place(slot::of(&step.about));
            groups.entry(place).or_default().push(index);
        }
        groups
    }

    /// Runs steps of one shard in one go, and alone what that shard does not do.
    async fn query_group(
        self: &Arc<Self>,
        steps: &[Step],
        group: &[usize],
    ) -> Result<Vec<(usize, Value)>, BusError> {
        let chosen: Vec<(usize, &Step)> = group
            .iter()
            .filter_map(|index| Some((*index, steps.get(*index)?)))
            .collect();
        let live = chosen
            .first()
            .and_then(|(_, step)| self.live_at(slot::of(&step.about)));
        let mut together = Pipeline::new();
        for (_, step) in &chosen {
            together.add_command(step.command.clone());
        }
        let mut answers = match &live {
            Some(live) if chosen.len() > 1 => live.query_each(&together).await?,
            _ => Vec::new(),
        }
        .into_iter();
        let mut said = Vec::with_capacity(chosen.len());
        for (index, step) in chosen {
            let value = match answers.next().map(Value::extract_error) {
                Some(Ok(value)) => value,
                Some(Err(error)) => match (self.advice_on(&error, live.as_deref()), &live) {
                    (Advice::Never, Some(live)) => {
                        live.judge(&error);
                        return Err(error.into());
                    }
                    _ => self.query(&step.about, &step.command).await?,
                },
                None => self.query(&step.about, &step.command).await?,
            };
            said.push((index, value));
        }
        Ok(said)
    }

    pub(super) async fn silent(
        self: &Arc<Self>,
        nodes: &[NodeId],
    ) -> Result<Vec<NodeId>, BusError> {
        let mut silent = self.silent_at_shards(nodes).await?;
        if !silent.is_empty() {
            // Their inboxes may be elsewhere, and this node has not heard of it.
            self.refresh().await?;
            silent = self.silent_at_shards(&silent).await?;
        }
        silent.retain(|node| !self.detours.is_young(slot::of(&self.keys.inbox(node))));
        Ok(silent)
    }

    async fn silent_at_shards(&self, nodes: &[NodeId]) -> Result<Vec<NodeId>, BusError> {
        let mut by_place: BTreeMap<usize, Vec<(&NodeId, String)>> = BTreeMap::new();
        let table = self.table.load_full();
        for node in nodes {
            let inbox = self.keys.inbox(node);
            if let Some(place) = table.place(slot::of(&inbox)) {
                by_place.entry(place).or_default().push((node, inbox));
            }
        }
        let mut silent = Vec::new();
        for (place, nodes) in by_place {
            // Of a shard that is away, nothing is known.
            if let Some(live) = table.shard(place).and_then(Shard::live) {
                silent.extend(live.silent(self.keys.speech, nodes).await?);
            }
        }
        Ok(silent)
    }
}

impl Elsewhere {
    /// The former owner has none of the keys any more, and the new one lacks some: these are nowhere.
    fn with_one_key(self, command: &redis::Cmd) -> Advice {
        match script::with_one_key(command) {
            Some(said) if self.command.is_none() => Advice::At(Self {
                command: Some(said),
                ..self
            }),
            _ => Advice::Soon,
        }
    }
}

impl Watcher for Arc<Cluster> {
    fn came(&self, _: &Shard) {
        *self.refusal.lock() = None;
        self.house.hearing.notify_one();
        self.standing.disturbed();
    }

    fn heard(&self, shard: &Shard, at: Instant) {
        if self.has_inbox(shard) && self.standing.condition().deaf_for.is_none() {
            self.standing.heard(at);
        }
    }

    fn went(&self, _: &Shard, _: Instant) {
        self.house.hearing.notify_one();
        self.doubt.notify_one();
    }

    fn refused(&self, why: &str) {
        match table::moved(why) {
            Some((slot, address)) => self.learn(slot, address),
            // A channel is asked for again and again; the log has it once.
            None if self.refusal.lock().replace(why.to_owned()).as_deref() != Some(why) => {
                tracing::warn!(why, "a shard of Redis refuses to listen");
            }
            None => {}
        }
    }
}
