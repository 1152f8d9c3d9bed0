//! Nodes follow the master that the sentinels report.

use std::time::Duration;

use switchboard_bus::{Bus, BusConfig, BusError, DeviceEvent, EventId};
use switchboard_protocol::id::DeviceKey;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_test_support::{eventually::eventually, sentinels::SentinelSetup};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    cluster_servers::{parse_command, try_query},
    faults::await_success,
    test_edge::{TestSystem, device},
    turns,
};

/// When the sentinels consider a silent master down.
const DOWN_AFTER: Duration = Duration::from_secs(1);
/// How long the sentinels may take to agree, and the nodes to reconnect.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(20);

async fn await_subscribers(setup: &SentinelSetup, server: usize, by: usize) {
    let channels = parse_command("PUBSUB CHANNELS test:in:*");
    let server = setup.servers[server].address();
    // A server that changes its role closes all connections.
    let inboxes = async || {
        let channels = try_query::<Vec<String>>(server, &channels).await;
        channels.unwrap_or_default().len()
    };
    eventually(SWITCH_TIMEOUT, inboxes, |count| *count == by).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_follow_the_master_after_switch_and_failure() {
    let mut setup = SentinelSetup::start(DOWN_AFTER).await;
    let system = TestSystem::with_url(setup.url());
    let (caller, edge) = system.start_with_edge("caller").await;
    edge.connect(&device("toy-1")).await;
    await_success(&caller, Duration::from_secs(5)).await;
    await_subscribers(&setup, 0, 2).await;
    // The old master stays alive and still reports itself as the master; the sentinels do not.
    setup.switch().await;
    await_subscribers(&setup, 1, 2).await;
    await_success(&caller, SWITCH_TIMEOUT).await;
    setup.make_replica(0, 1).await;
    // Two sentinels are a majority.
    setup.kill_sentinel();
    setup.servers[1].kill();
    await_subscribers(&setup, 0, 2).await;
    await_success(&caller, SWITCH_TIMEOUT).await;
    let presence = async || caller.find(&device("toy-1")).await.ok().flatten();
    eventually(Duration::from_secs(5), presence, Option::is_some).await;
}

#[tokio::test]
async fn master_unknown_to_sentinels_is_not_found() {
    let setup = SentinelSetup::start(DOWN_AFTER).await;
    let wrong = setup.url().replace("/main", "/other");
    let shutdown = Shutdown::new();
    let start = |url: String| {
        let config = BusConfig::redis(&url.into(), "node", "test");
        Bus::start(config, &prometheus::Registry::new(), &shutdown).unwrap()
    };
    let (lost, found) = (start(wrong), start(setup.url()));
    found.wait_ready(SWITCH_TIMEOUT).await.unwrap();
    let ready = lost.wait_ready(Duration::from_millis(500)).await;
    assert!(matches!(ready, Err(BusError::Timeout(_))), "{ready:?}");
    shutdown.stop();
}

/// Reads device events until this device has connected.
async fn await_event_of(control: &Bus, lamp: &DeviceKey) {
    let events = async || {
        let events = control.read_events("one", 100, turns::BRIEF_TIMEOUT).await;
        events.unwrap_or_default()
    };
    let has_connected = |events: &Vec<(EventId, DeviceEvent)>| {
        let is_of_toy = |event: &DeviceEvent| matches!(event, DeviceEvent::Connected { device, .. } if device == lamp);
        events.iter().any(|(_, event)| is_of_toy(event))
    };
    eventually(turns::TEST_TIMEOUT, events, has_connected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_readers_follow_the_master() {
    let setup = SentinelSetup::start(DOWN_AFTER).await;
    let system = TestSystem::with_url(setup.url());
    let (chat, edge) = system.start_with_edge("chat").await;
    let control = system.start_node("control").await;
    let lamp = turns::connected(&edge).await;
    turns::enqueue(&edge, &lamp, turns::TASK, "before").await;
    let before = turns::claim(&chat).await;
    chat.complete_turn(&before.id).await.unwrap();
    await_event_of(&control, &lamp.0).await;
    await_subscribers(&setup, 0, 3).await;
    // A worker waits for turns while the master is switched.
    let waiting = {
        let chat = chat.clone();
        JoinSet::from_iter([async move { chat.claim_turns(1, SWITCH_TIMEOUT).await }])
    };
    setup.switch().await;
    await_subscribers(&setup, 1, 3).await;
    edge.bus.wait_ready(SWITCH_TIMEOUT).await.unwrap();
    chat.wait_ready(SWITCH_TIMEOUT).await.unwrap();
    control.wait_ready(SWITCH_TIMEOUT).await.unwrap();
    let ended = timeout(turns::TEST_TIMEOUT, waiting.join_all())
        .await
        .unwrap();
    assert!(ended[0].is_err(), "{ended:?}");
    let other = device("toy-2");
    turns::enqueue_eventually(&edge, &lamp, "after").await;
    // The old master reports itself as the master for some seconds.
    assert_eq!(turns::claim(&chat).await.text, "after");
    edge.connect(&other).await;
    await_event_of(&control, &other).await;
}
