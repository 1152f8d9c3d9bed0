//! Keeps the table of slots true: learnt from the cluster, corrected by every refusal.
//! Never: an older answer over what was learnt a moment ago.

use std::{sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, ConnectionInfo, Value};
use tokio::time::{sleep, timeout};

use super::{
    ASK_LIMIT, Cluster,
    table::{Member, Table},
};
use crate::{
    error::BusError,
    redis::{
        address::{at, host_and_port},
        shard::{Hearing, Shard, Whereabouts},
        slot::SLOTS,
    },
};

/// How often the cluster is asked when nothing is wrong, and when something is.
const ROUND: Duration = Duration::from_secs(5);
const TROUBLED_ROUND: Duration = Duration::from_millis(250);
/// Whatever is doubted, no more often than this.
const SHORTEST_ROUND: Duration = Duration::from_millis(25);
/// What was learnt since then is newer than an answer may be.
const FRESH: Duration = Duration::from_millis(500);

/// Slots from and to, and who owns them.
struct Range {
    from: u16,
    to: u16,
    address: String,
}

impl Cluster {
    /// Asks now and then, and whenever something is in doubt.
    pub(super) async fn follow_map(self: &Arc<Self>) {
        let mut told = false;
        loop {
            let known = self.refresh().await;
            if let Err(error) = &known
                && self.table.load().is_empty()
                && !std::mem::replace(&mut told, true)
            {
                tracing::warn!(%error, "no server of the Redis cluster can be asked, trying until one can");
            }
            let troubled = known.is_err() || !self.table.load().is_whole();
            let round = if troubled { TROUBLED_ROUND } else { ROUND };
            sleep(SHORTEST_ROUND).await;
            tokio::select! {
                () = sleep(round) => {}
                () = self.doubt.notified() => {}
                () = self.detours.down.notified() => {}
            }
        }
    }

    /// Asks one server after another, until one answers.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<(), BusError> {
        let mut failed = BusError::Unavailable;
        let table = self.table.load_full();
        let mut lives: Vec<_> = table.shards().filter_map(Shard::live).collect();
        if !lives.is_empty() {
            let turn = rand::random_range(0..lives.len());
            lives.rotate_left(turn);
        }
        for live in lives {
            let command = ask();
            let ask = live.query::<Vec<Vec<Value>>>(&command);
            match timeout(ASK_LIMIT, ask).await {
                Ok(Ok(said)) => {
                    self.adopt(&read(&said, &live.info));
                    return Ok(());
                }
                Ok(Err(fault)) => failed = fault.into(),
                Err(_) => failed = BusError::Timeout(ASK_LIMIT),
            }
        }
        for seed in std::iter::once(&self.seeds.0).chain(&self.seeds.1) {
            match timeout(ASK_LIMIT, ask_seed(seed)).await {
                Ok(Ok(said)) => {
                    self.adopt(&read(&said, seed));
                    return Ok(());
                }
                Ok(Err(error)) => failed = error.into(),
                Err(_) => failed = BusError::Timeout(ASK_LIMIT),
            }
        }
        Err(failed)
    }

    /// Notes the owner of one slot.
    pub(super) fn learn(self: &Arc<Self>, slot: u16, address: &str) {
        // Redis does not repeat the host when it only has the one.
        if host_and_port(address).is_none_or(|(host, _)| host.is_empty()) {
            return self.doubt.notify_one();
        }
        let _learning = self.learning.lock();
        let mut table = (**self.table.load()).clone();
        let place = self.place_in(&mut table, address);
        if table.give(slot, Some(place)) {
            self.detours.changed([slot]);
        }
        self.table.store(Arc::new(table));
        // Where one slot went, others may have gone.
        self.doubt.notify_one();
        self.house.hearing.notify_one();
    }

    /// Connects to a server that owns nothing yet.
    pub(super) fn meet(self: &Arc<Self>, address: &str) {
        let _learning = self.learning.lock();
        let mut table = (**self.table.load()).clone();
        self.place_in(&mut table, address);
        self.table.store(Arc::new(table));
    }

    /// A shard said that it does not have this slot any more, and not who does.
    pub(super) fn forget(&self, slot: u16) {
        let _learning = self.learning.lock();
        let mut table = (**self.table.load()).clone();
        if table.give(slot, None) {
            self.detours.changed([slot]);
            self.table.store(Arc::new(table));
        }
        self.doubt.notify_one();
    }

    fn adopt(self: &Arc<Self>, ranges: &[Range]) {
        let _learning = self.learning.lock();
        let mut table = (**self.table.load()).clone();
        let first = table.is_empty();
        let mut owners = vec![None; usize::from(SLOTS)];
        for Range { from, to, address } in ranges {
            let place = self.place_in(&mut table, address);
            let slots = owners.get_mut(usize::from(*from)..=usize::from(*to));
            slots.unwrap_or_default().fill(Some(place));
        }
        let mut changed = Vec::new();
        for (slot, place) in (0..SLOTS).zip(owners) {
            if table.place(slot).is_some() && self.detours.is_younger(slot, FRESH) {
                if table.place(slot) != place {
                    self.doubt.notify_one();
                }
            } else if table.give(slot, place) {
                changed.push(slot);
            }
        }
        let gone = table.let_go();
        if !first {
            self.detours.changed(changed.iter().copied());
        }
        self.table.store(Arc::new(table));
        for member in gone {
            member.let_go.cancel();
            member.shard.end();
        }
        if !changed.is_empty() {
            self.house.hearing.notify_one();
        }
    }

    /// The place of a server, which is connected to if it has none yet.
    fn place_in(self: &Arc<Self>, table: &mut Table, address: &str) -> usize {
        if let Some(place) = table.place_of(address) {
            return place;
        }
        let (host, port) = host_and_port(address).unwrap_or_default();
        // All of them are signed in at alike.
        let whereabouts = Whereabouts::At(at(&self.seeds.0, host, port));
        let echo = self.keys.echo(&self.house.node);
        let hearing = Hearing::Shard { echo };
        let shard = Arc::new(Shard::new(whereabouts, hearing, self.house.clone()));
        let member = Member::new(address.to_owned(), Arc::clone(&shard));
        let (let_go, stop) = (member.let_go.clone(), self.shutdown.clone());
        let cluster = Arc::clone(self);
        self.shutdown.spawn(async move {
            tokio::select! {
                () = shard.supervise(&cluster) => {}
                () = let_go.cancelled() => {}
                () = stop.stopping() => {}
            }
        });
        table.admit(member)
    }
}

fn ask() -> redis::Cmd {
    let mut ask = redis::cmd("CLUSTER");
    ask.arg("SLOTS");
    ask
}

async fn ask_seed(seed: &ConnectionInfo) -> Result<Vec<Vec<Value>>, redis::RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(ASK_LIMIT));
    let client = redis::Client::open(seed.clone())?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    ask().query_async(&mut connection).await
}

/// What `CLUSTER SLOTS` says: from, to, the master, its replicas. A server that does not know its own host means the
/// one that it was asked at.
fn read(said: &[Vec<Value>], asked: &ConnectionInfo) -> Vec<Range> {
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let range = |entry: &Vec<Value>| {
        let [from, to, Value::Array(master), ..] = &entry[..] else {
            return None;
        };
        let host = match master.first()? {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            _ => String::new(),
        };
        let host = match asked.addr() {
            redis::ConnectionAddr::Tcp(asked, _) if host.is_empty() || host == "?" => asked,
            _ => &host,
        };
        Some(Range {
            from: number(from)?,
            to: number(to)?,
            address: format!("{host}:{}", number(master.get(1)?)?),
        })
    };
    let ranges = said.iter().filter_map(range);
    ranges
        .filter(|range| range.from <= range.to && range.to < SLOTS)
        .collect()
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn what_the_cluster_says_is_read_and_nothing_else() {
        let asked = "redis://asked:7".into_connection_info().unwrap();
        let server = |host: &str, port| {
            let host = Value::BulkString(host.as_bytes().to_vec());
            Value::Array(vec![host, Value::Int(port)])
        };
        let range = |from, to, master| vec![Value::Int(from), Value::Int(to), master];
        let said = [
            range(0, 9, server("a", 1)),
            range(10, 16_383, server("", 2)),
            range(9, 8, server("wrong", 3)),
            range(0, 16_384, server("wrong", 4)),
            range(0, 1, Value::Nil),
            vec![Value::Int(0)],
        ];
        let read = read(&said, &asked);
        let read: Vec<_> = read
            .iter()
            .map(|range| (range.from, range.to, range.address.as_str()))
            .collect();
        assert_eq!(read, [(0, 9, "a:1"), (10, 16_383, "asked:2")]);
    }
}
