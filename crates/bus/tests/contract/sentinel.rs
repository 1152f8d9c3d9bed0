//! A master that changes: its nodes go where its sentinels say.

use std::time::Duration;

use switchboard_bus::{Bus, BusConfig, BusError, Fact, FactId};
use switchboard_protocol::id::DeviceKey;
use switchboard_runtime::shutdown::Shutdown;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    cluster_servers::{Watched, said, try_ask},
    eventually::eventually,
    faults::works_again,
    station::{Site, device},
    turns,
};

/// How long the sentinels may take to agree, and the nodes to follow.
const SWITCH: Duration = Duration::from_secs(20);

async fn is_listened_to(watched: &Watched, server: usize, by: usize) {
    let channels = said("PUBSUB CHANNELS test:in:*");
    let server = watched.servers[server].address();
    // Whoever becomes another is cut off from everybody for a moment.
    let inboxes = async || {
        let channels = try_ask::<Vec<String>>(server, &channels).await;
        channels.unwrap_or_default().len()
    };
    eventually(SWITCH, inboxes, |count| *count == by).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_follow_the_master_when_it_is_switched_and_when_it_dies() {
    let mut watched = Watched::start().await;
    let site = Site::through(watched.url());
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    edge.connect(&device("toy-1")).await;
    works_again(&caller, Duration::from_secs(5)).await;
    is_listened_to(&watched, 0, 2).await;
    // The former master lives on, and takes itself for the master still: only the sentinels say otherwise.
    watched.switch().await;
    is_listened_to(&watched, 1, 2).await;
    works_again(&caller, SWITCH).await;
    watched.make_replica(0, 1).await;
    // Those that are left are enough.
    watched.lose_a_sentinel();
    watched.servers[1].kill();
    is_listened_to(&watched, 0, 2).await;
    works_again(&caller, SWITCH).await;
    let presence = async || caller.find(&device("toy-1")).await.ok().flatten();
    eventually(Duration::from_secs(5), presence, Option::is_some).await;
}

#[tokio::test]
async fn a_master_that_no_sentinel_knows_is_not_found() {
    let watched = Watched::start().await;
    let wrong = watched.url().replace("/main", "/other");
    let shutdown = Shutdown::new();
    let start = |url: String| {
        let config = BusConfig::redis(&url.into(), "node", "test");
        Bus::start(config, &prometheus::Registry::new(), &shutdown).unwrap()
    };
    let (lost, found) = (start(wrong), start(watched.url()));
    found.ready(SWITCH).await.unwrap();
    let ready = lost.ready(Duration::from_millis(500)).await;
    assert!(matches!(ready, Err(BusError::Timeout(_))), "{ready:?}");
    shutdown.stop();
}

/// Reads facts until this device is told of.
async fn hears_of(control: &Bus, toy: &DeviceKey) {
    let facts = async || {
        let facts = control.facts("one", 100, turns::NOW).await;
        facts.unwrap_or_default()
    };
    let told = |facts: &Vec<(FactId, Fact)>| {
        let is = |fact: &Fact| matches!(fact, Fact::Connected { device, .. } if device == toy);
        facts.iter().any(|(_, fact)| is(fact))
    };
    eventually(turns::SOON, facts, told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_turns_and_facts_goes_where_the_master_is() {
    let watched = Watched::start().await;
    let site = Site::through(watched.url());
    let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
    let control = site.caller("control").await;
    let toy = turns::connected(&edge).await;
    turns::ask(&edge, &toy, turns::TASK, "before").await;
    let before = turns::take(&chat).await;
    chat.end_turn(&before.id).await.unwrap();
    hears_of(&control, &toy.0).await;
    is_listened_to(&watched, 0, 3).await;
    // They wait for more while the master is switched.
    let waiting = {
        let chat = chat.clone();
        JoinSet::from_iter([async move { chat.take_turns(1, SWITCH).await }])
    };
    watched.switch().await;
    is_listened_to(&watched, 1, 3).await;
    edge.bus.ready(SWITCH).await.unwrap();
    chat.ready(SWITCH).await.unwrap();
    control.ready(SWITCH).await.unwrap();
    let ended = timeout(turns::SOON, waiting.join_all()).await.unwrap();
    assert!(ended[0].is_err(), "{ended:?}");
    let other = device("toy-2");
    let asked = async || {
        let asked = edge
            .bus
            .begin_turn(&toy.0, toy.1, turns::TASK, "after".into());
        asked.await.is_ok()
    };
    eventually(turns::SOON, asked, |asked| *asked).await;
    // The former master takes itself for one for some seconds more.
    assert_eq!(turns::take(&chat).await.text, "after");
    edge.connect(&other).await;
    hears_of(&control, &other).await;
}
