//! A cluster's slots on their way from one shard to another: what is shared can be read and written meanwhile.

use std::time::{Duration, Instant};

use redis::{Value, cmd};
use switchboard_bus::{Fact, OfferChange};

use crate::{
    cluster_servers::{RedisCluster, ask, said},
    conversations::{LONG, begin, due, named, text_of},
    eventually::eventually,
    offers::await_event,
    station::{Site, device, org},
    turns::{self, OTHER, SOON, TASK, connected, lost_of, nothing_waits, take},
};

/// From where to where one slot goes.
struct Route {
    slot: u16,
    from: usize,
    to: usize,
}

impl Route {
    async fn of(cluster: &RedisCluster, name: &str) -> Self {
        let slot = cluster.slot(name).await;
        let from = cluster.first_owner(slot);
        let to = (from + 1) % usize::from(RedisCluster::MASTERS);
        Self { slot, from, to }
    }

    async fn open(&self, cluster: &RedisCluster) {
        cluster.open_move(self.slot, self.from, self.to).await;
    }

    async fn carry(&self, cluster: &RedisCluster) {
        cluster.carry_all(self.slot, self.from, self.to).await;
    }

    async fn end(&self, cluster: &RedisCluster) {
        cluster.end_move(self.slot, self.from, self.to).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_handed_over_taken_and_ended_at_every_step_of_their_move() {
    let cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
    let toy = connected(&edge).await;
    turns::ask(&edge, &toy, OTHER, "held").await;
    let held = take(&chat).await;
    let route = Route::of(&cluster, "test:{turns}").await;
    for step in ["open", "carry", "end", "after"] {
        match step {
            "open" => route.open(&cluster).await,
            "carry" => route.carry(&cluster).await,
            "end" => route.end(&cluster).await,
            _ => {}
        }
        turns::ask(&edge, &toy, TASK, step).await;
        let turn = take(&chat).await;
        assert_eq!((&*turn.text, turn.attempts, turn.acted), (step, 1, false));
        assert!(chat.turn_acted(&turn.id).await.unwrap(), "{step}");
        assert_eq!(lost_of(&chat, &[&held, &turn]).await, [], "{step}");
        chat.end_turn(&turn.id).await.unwrap();
        assert!(!chat.turn_acted(&turn.id).await.unwrap(), "{step}");
        // One that is taken back before anybody took it.
        turns::ask(&edge, &toy, TASK, "unwanted").await;
        let unwanted = edge.bus.stop_turns(&toy.0, toy.1, Some(TASK));
        unwanted.await.unwrap();
        nothing_waits(&chat).await;
    }
    chat.end_turn(&held.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_told_and_read_at_every_step_of_their_move() {
    let cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let (control, edge) = (site.caller("control").await, site.station("edge").await);
    let route = Route::of(&cluster, "test:facts").await;
    for step in ["before", "open", "carry", "end"] {
        match step {
            "open" => route.open(&cluster).await,
            "carry" => route.carry(&cluster).await,
            "end" => route.end(&cluster).await,
            _ => {}
        }
        let toy = device(step);
        edge.connect(&toy).await;
        let facts = control.facts("one", 10, SOON).await.unwrap();
        let [(id, Fact::Connected { device, .. })] = &facts[..] else {
            panic!("{step}: {facts:?}");
        };
        assert_eq!(*device, toy);
        control.acknowledge(std::slice::from_ref(id)).await.unwrap();
    }
}

/// Every device's entry is out of the directory.
async fn nobody_is_entered(cluster: &RedisCluster) {
    let entered = async || {
        let mut keys = Vec::new();
        for n in 0..usize::from(RedisCluster::MASTERS) {
            let address = cluster.address(n);
            keys.extend(ask::<Vec<String>>(address, &said("KEYS test:*:live")).await);
        }
        keys
    };
    eventually(SOON, entered, Vec::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_device_of_an_organisation_comes_and_goes_while_its_slot_moves() {
    let cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    let toy = device("toy-1");
    edge.connect(&toy).await;
    let mut live = Vec::new();
    for n in 0..usize::from(RedisCluster::MASTERS) {
        live.extend(ask::<Vec<String>>(cluster.address(n), &said("KEYS test:*:live")).await);
    }
    let route = Route::of(&cluster, &live[0]).await;
    edge.disconnect(&toy);
    nobody_is_entered(&cluster).await;
    route.open(&cluster).await;
    assert_eq!(caller.list(org(), None, 10).await.unwrap(), []);
    edge.connect(&toy).await;
    let digest = edge.register(&toy, "{}").await;
    let presence = caller.find(&toy).await.unwrap().unwrap();
    assert_eq!(presence.digest, Some(digest));
    let listed = caller.list(org(), None, 10).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    edge.disconnect(&toy);
    nobody_is_entered(&cluster).await;
    edge.connect(&toy).await;
    route.carry(&cluster).await;
    route.end(&cluster).await;
    assert!(caller.find(&toy).await.unwrap().is_some());
}

async fn count(cluster: &RedisCluster, at: usize, set: &str) -> usize {
    let mut count = cmd("ZCARD");
    ask(cluster.address(at), count.arg(set)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_conversation_is_lost_whose_name_moves_before_it() {
    const MOST_OF_ORG: usize = 5_000;
    let cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let bus = site.caller("chat").await;
    let (owed, new) = (named("owed"), named("new"));
    let version = begin(&bus, &owed, "owed", Duration::ZERO).await;
    let all = "test:{conversations}".to_owned();
    let theirs = format!("{all}:{}", org());
    let route = Route::of(&cluster, &all).await;
    // As many as there may be, so that one has to go for the next.
    let mut fill = cmd("EVAL");
    let code = "for i = 2, ARGV[1] do
          redis.call('ZADD', KEYS[1], 9e12, ARGV[2] .. '/' .. i)
          redis.call('ZADD', KEYS[2], 9e12, ARGV[2] .. '/' .. i)
        end";
    fill.arg(code).arg(2).arg(&all).arg(&theirs);
    fill.arg(MOST_OF_ORG).arg(org().to_string());
    ask::<Value>(cluster.address(route.from), &fill).await;
    route.open(&cluster).await;
    let sets = [all.clone(), theirs.clone()];
    cluster.carry(&sets, route.from, route.to).await;
    let given = bus.take_due_conversations(10, LONG).await;
    assert_eq!(given.unwrap(), [], "it is not where it is looked for");
    begin(&bus, &new, "new", LONG).await;
    route.carry(&cluster).await;
    assert_eq!(text_of(&bus, &owed).await, Some((version, "owed".into())));
    route.end(&cluster).await;
    assert_eq!(count(&cluster, route.to, &theirs).await, MOST_OF_ORG);
    let given = due(&bus, LONG).await;
    assert_eq!(given[0].key, owed);
    assert!(bus.drop_conversation(&owed, version).await.unwrap());
    assert_eq!(text_of(&bus, &new).await.unwrap().1, "new");
    assert_eq!(count(&cluster, route.to, &theirs).await, MOST_OF_ORG - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_what_is_said_to_everybody_is_told_that_some_may_be_missing() {
    let cluster = RedisCluster::start(0).await;
    let site = Site::through(cluster.url());
    let follower = site.follower("follower").await;
    let mut events = follower.offer_changes().unwrap();
    let route = Route::of(&cluster, "test:all").await;
    route.open(&cluster).await;
    route.end(&cluster).await;
    await_event(&mut events, &OfferChange::Missed, SOON).await;
}

/// How often a server was asked to let somebody listen.
async fn asked_to_listen(cluster: &RedisCluster) -> u64 {
    let stats: String = ask(cluster.address(0), &said("INFO commandstats")).await;
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_ssubscribe:"));
    let counts = line
        .unwrap_or_default()
        .split([':', ','])
        .filter_map(|field| {
            let (name, count) = field.split_once('=')?;
            matches!(name, "calls" | "rejected_calls").then(|| count.parse::<u64>().ok())?
        });
    counts.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_lets_nobody_listen_is_not_asked_without_a_pause() {
    /// Each of what a follower listens to, at most.
    const CHANNELS: u64 = 67;
    let mut cluster = RedisCluster::start_watchful(0).await;
    let set = said("CONFIG SET cluster-allow-pubsubshard-when-down no");
    ask::<()>(cluster.address(0), &set).await;
    for doomed in [1, 2] {
        cluster.servers[doomed].kill();
    }
    let info = async || ask::<String>(cluster.address(0), &said("CLUSTER INFO")).await;
    let is_down = |info: &String| info.contains("cluster_state:fail");
    eventually(Duration::from_secs(15), info, is_down).await;
    let site = Site::through(cluster.url());
    let begun = Instant::now();
    let _follower = site.unready_follower("follower");
    // It is asked again and again all the same.
    let asked = async || asked_to_listen(&cluster).await;
    let asked = eventually(SOON * 2, asked, |asked| *asked > 2 * CHANNELS).await;
    let rounds = u64::try_from(begun.elapsed().as_millis()).unwrap() / 250 + 2;
    assert!(asked <= rounds * CHANNELS, "{asked} in {rounds} rounds");
}
