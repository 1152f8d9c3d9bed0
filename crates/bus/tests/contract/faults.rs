//! What failures of Redis and of nodes cost, and how long recovery takes.

use std::time::{Duration, Instant};

use switchboard_bus::{Answer, BusError, DisconnectReason};
use switchboard_protocol::{id::OrgId, outcome::Outcome};
use switchboard_test_support::{
    eventually::{eventually, eventually_true},
    redis_server::RedisServer,
    tcp_proxy::{Direction, TcpProxy},
};
use tokio::time::interval_at;
use uuid::Uuid;

use crate::{
    catalog_events::{await_event, services},
    test_edge::{TestSystem, call, call_for, device, org, spawn_calls},
};

/// Waits until a call of `toy-1` succeeds.
pub async fn await_success(caller: &switchboard_bus::Bus, within: Duration) {
    let attempt = async || {
        let mut brief = call_for(&device("toy-1"), "{}");
        brief.timeout = Duration::from_millis(300);
        caller.call(brief).await.map(|answer| answer.outcome).ok()
    };
    let succeeded = |outcome: &Option<Outcome>| *outcome == Some(Outcome::Succeeded);
    eventually(within, attempt, succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_empty_redis_restart_heals_within_5_s() {
    let mut system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    await_success(&caller, Duration::from_secs(5)).await;
    system.server().kill();
    let refused = async || call(&caller, &device("toy-1")).await;
    let refused = eventually(Duration::from_secs(5), refused, Result::is_err).await;
    assert!(matches!(refused, Err(BusError::Unavailable)), "{refused:?}");
    system.server().restart();
    await_success(&caller, Duration::from_secs(5)).await;
    let presence = async || caller.find(&device("toy-1")).await.ok().flatten();
    let presence = eventually(Duration::from_secs(5), presence, Option::is_some)
        .await
        .unwrap();
    assert_eq!(presence.digest, Some(digest));
    assert!(caller.services(org(), &presence).await.unwrap().is_some());
    // The next restart does not wait for the comparison of entries after this one.
    system.server().kill();
    system.server().restart();
    await_success(&caller, Duration::from_millis(2500)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_during_redis_outage_arrives_later() {
    let mut system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    edge.connect(&device("toy-1")).await;
    edge.hold_answers();
    let mut long = call_for(&device("toy-1"), "{}");
    long.timeout = Duration::from_secs(20);
    let waiting = spawn_calls(&caller, [long]);
    edge.await_delivered(1).await;
    system.server().kill();
    edge.release_answers();
    system.server().restart();
    let answers = waiting.join_all().await;
    assert_eq!(answers[0].as_ref().unwrap().outcome, Outcome::Succeeded);
}

/// On one thread: the task that waits for replies must not starve the one that detects the end of
/// the connection.
#[tokio::test]
async fn queued_calls_end_with_the_connection() {
    let mut system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    edge.connect(&device("toy-1")).await;
    await_success(&caller, Duration::from_secs(5)).await;
    system.server().pause();
    let started = Instant::now();
    let calls = (0..8).map(|_| call_for(&device("toy-1"), "{}"));
    let waiting = spawn_calls(&caller, calls);
    let pending = async || caller.pending_calls();
    eventually(Duration::from_secs(1), pending, |count| *count == 8).await;
    system.server().kill();
    for ended in waiting.join_all().await {
        let outcome = ended.map(|answer| answer.outcome);
        assert!(
            matches!(outcome, Ok(Outcome::Lost) | Err(BusError::Unavailable)),
            "{outcome:?}"
        );
    }
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_batches_arrive_whole_with_own_outcomes() {
    let mut system = TestSystem::redis().await;
    let caller = system.start_node("caller").await;
    let (edge, doomed) = system.start_edges("edge", "doomed").await;
    edge.connect(&device("toy-1")).await;
    doomed.connect(&device("toy-2")).await;
    for lamp in ["toy-1", "toy-2"] {
        call(&caller, &device(lamp)).await.unwrap();
    }
    // Its inbox has no subscriber; the caller's cache still has its entry.
    doomed.shutdown.stop();
    let left = async || doomed.bus.health().detail;
    eventually(Duration::from_secs(5), left, |detail| detail != "connected").await;
    system.server().pause();
    let large = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(500_000));
    let call_of = |lamp: &str, n: usize| call_for(&device(lamp), large(n));
    let cancelled = spawn_calls(&caller, (0..4).map(|n| call_of("toy-1", n)));
    let here = spawn_calls(&caller, (0..8).map(|n| call_of("toy-1", n)));
    let gone = spawn_calls(&caller, (0..8).map(|n| call_of("toy-2", n)));
    let pending = async || caller.pending_calls();
    eventually(Duration::from_secs(1), pending, |count| *count == 20).await;
    drop(cancelled);
    system.server().resume();
    for answer in gone.join_all().await {
        assert_eq!(answer.unwrap().outcome, Outcome::Offline);
    }
    let answers = here.join_all().await;
    let mut bodies: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.unwrap().body)
        .collect();
    bodies.sort();
    let expected = (0..8).map(|n| format!("{{\"success\":true,\"data\":{}}}", large(n)));
    assert!(bodies.iter().eq(expected.collect::<Vec<_>>().iter()));
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_calls_of_an_organisation_leave_room_for_others() {
    let mut system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    let (noisy, mut quiet) = (device("toy-1"), device("toy-1"));
    quiet.org = OrgId::from_uuid(Uuid::from_u128(2));
    for device in [&noisy, &quiet] {
        edge.connect(device).await;
        call(&caller, device).await.unwrap();
    }
    system.server().pause();
    let large = format!("\"{}\"", "x".repeat(500_000));
    let calls = (0..40).map(|_| call_for(&noisy, large.clone()));
    let mut waiting = spawn_calls(&caller, calls);
    let refused = waiting.join_next().await.unwrap().unwrap();
    assert!(matches!(refused, Err(BusError::Overloaded)), "{refused:?}");
    let own = spawn_calls(&caller, [call_for(&quiet, large.clone())]);
    // All that were accepted wait, and that of the other organisation with them.
    let are_pending = || {
        while let Some(refused) = waiting.try_join_next() {
            assert!(refused.unwrap().is_err());
        }
        caller.pending_calls() == waiting.len() + 1
    };
    eventually_true("all others are pending", are_pending).await;
    system.server().resume();
    for answer in own.join_all().await {
        assert_eq!(answer.unwrap().outcome, Outcome::Succeeded);
    }
    for answer in waiting.join_all().await {
        // A call is pending for a moment before it is refused.
        let end = answer.map(|answer| answer.outcome);
        let is_true = matches!(end, Ok(Outcome::Succeeded) | Err(BusError::Overloaded));
        assert!(is_true, "{end:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_answers_are_sent_before_a_node_leaves() {
    let mut system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    edge.connect(&device("toy-1")).await;
    edge.hold_answers();
    let calls = (0..30).map(|_| call_for(&device("toy-1"), "{}"));
    let waiting = spawn_calls(&caller, calls);
    let replies = edge.held_calls(30).await;
    system.server().pause();
    let large = format!("{{\"success\":true,\"data\":\"{}\"}}", "x".repeat(250_000));
    for reply in &replies {
        let answer = Answer::result(true, large.clone().into());
        edge.bus.answer(reply, answer);
    }
    edge.shutdown.stop();
    // Only the tasks remain that send and leave.
    let tasks = async || edge.shutdown.tasks();
    eventually(Duration::from_secs(1), tasks, |count| *count <= 2).await;
    system.server().resume();
    for answer in waiting.join_all().await {
        assert_eq!(answer.unwrap().outcome, Outcome::Succeeded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_node_with_expired_lease_resyncs_its_devices() {
    let system = TestSystem::redis().await;
    let (caller, edge) = (
        system.start_watcher("caller").await,
        system.start_edge("edge").await,
    );
    let mut events = caller.watch_catalog().unwrap();
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    // As if the process had been suspended: its connections do not notice. A new node compares its
    // entries in the first seconds.
    let later = tokio::time::Instant::now() + Duration::from_secs(4);
    let mut ticks = interval_at(later, Duration::from_millis(5));
    let suspended = async {
        loop {
            ticks.tick().await;
            system.expire_lease(edge.bus.node()).await;
        }
    };
    let gone = services(&device("toy-1"), None);
    tokio::select! {
        () = await_event(&mut events, &gone, Duration::from_secs(15)) => {}
        () = suspended => {}
    }
    let back = services(&device("toy-1"), Some(digest));
    await_event(&mut events, &back, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_refused_registration_is_entered_later() {
    let system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    edge.connect(&device("toy-1")).await;
    system.configure("maxmemory", "1").await;
    let refused = edge.try_register(&device("toy-1"), "{}").await;
    assert!(
        matches!(refused, Err(BusError::Unexpected(_))),
        "{refused:?}"
    );
    system.configure("maxmemory", "0").await;
    let digest = async || {
        edge.bus
            .find(&device("toy-1"))
            .await
            .unwrap()
            .unwrap()
            .digest
    };
    eventually(Duration::from_secs(10), digest, Option::is_some).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_calls_to_a_lost_node_end_within_3_s() {
    let system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    edge.connect(&device("toy-1")).await;
    edge.hold_answers();
    let mut long = call_for(&device("toy-1"), "{}");
    long.timeout = Duration::from_secs(60);
    let waiting = spawn_calls(&caller, [long]);
    edge.await_delivered(1).await;
    let gone = Instant::now();
    edge.shutdown.stop();
    let answers = waiting.join_all().await;
    assert_eq!(answers[0].as_ref().unwrap().outcome, Outcome::Lost);
    assert!(
        gone.elapsed() < Duration::from_secs(3),
        "{:?}",
        gone.elapsed()
    );
    let started = Instant::now();
    assert_eq!(
        call(&caller, &device("toy-1")).await.unwrap().outcome,
        Outcome::Offline
    );
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "not at the deadline"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_that_redis_closes_loses_no_call() {
    let system = TestSystem::redis().await;
    let (caller, edge) = system.start_with_edge("caller").await;
    let lamp = edge.connect_device("toy-1").await;
    for _ in 0..20 {
        caller.wait_ready(Duration::from_secs(10)).await.unwrap();
        edge.bus.wait_ready(Duration::from_secs(10)).await.unwrap();
        let answer = async || call(&caller, &lamp).await.map(|answer| answer.outcome);
        let succeeded = |outcome: &Result<_, _>| matches!(outcome, Ok(Outcome::Succeeded));
        assert!(succeeded(
            &eventually(Duration::from_secs(5), answer, succeeded).await
        ));
        // Longer ago than the last command.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut kill = redis::cmd("CLIENT");
        kill.arg(&["KILL", "TYPE", "normal"]);
        let killed: usize = system.query(&kill).await;
        assert!(killed >= 2, "{killed}");
        let outcome = answer().await;
        assert!(
            matches!(outcome, Ok(Outcome::Succeeded) | Err(BusError::Unavailable)),
            "{outcome:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_entries_of_a_dead_node_expire_within_10_s() {
    let system = TestSystem::redis().await;
    let caller = system.start_watcher("caller").await;
    let mut events = caller.watch_catalog().unwrap();
    let proxy = TcpProxy::start(system.redis_address()).await;
    let doomed = TestSystem::with_url(proxy.redis_url());
    let edge = doomed.start_edge("doomed").await;
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    assert!(caller.find(&device("toy-1")).await.unwrap().is_some());
    proxy.black_hole(Direction::Both);
    let found = async || caller.find(&device("toy-1")).await.unwrap();
    eventually(Duration::from_secs(10), found, Option::is_none).await;
    let left = async || caller.list(org(), None, 10).await.unwrap();
    eventually(Duration::from_secs(1), left, Vec::is_empty).await;
    let gone = services(&device("toy-1"), None);
    await_event(&mut events, &gone, Duration::from_secs(4)).await;
    // The node is alive: it enters its device again.
    proxy.pass();
    eventually(Duration::from_secs(10), found, Option::is_some).await;
    let back = services(&device("toy-1"), Some(digest));
    await_event(&mut events, &back, Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_redis_stall_leaves_no_stale_entry() {
    let mut system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let name = |n: usize| device(&format!("toy-{n:02}"));
    for n in 0..20 {
        edge.connect(&name(n)).await;
        edge.register(&name(n), "{}").await;
    }
    system.server().pause();
    // These claims time out here and are executed later: entries without a connection. Some are
    // newer than the live connection of their device.
    let mut refused = tokio::task::JoinSet::new();
    for n in 15..30 {
        let bus = edge.bus.clone();
        refused.spawn(async move { bus.claim(&name(n)).await });
    }
    assert!(refused.join_all().await.iter().all(Result::is_err));
    for n in 0..10 {
        edge.disconnect(&name(n));
    }
    let health = async || edge.bus.health().detail;
    eventually(Duration::from_secs(10), health, |detail| {
        detail != "connected"
    })
    .await;
    system.server().resume();
    // Where the refused claim was newer, the older connection closes and the device must connect
    // again: both sides agree on that, too.
    let both = async || {
        let listed = edge.bus.list(org(), None, 100).await.unwrap_or_default();
        let listed: Vec<_> = listed
            .into_iter()
            .map(|(id, presence)| (id, presence.epoch))
            .collect();
        let mut live = edge.live_epochs();
        live.sort();
        (listed, live)
    };
    let (listed, _) = eventually(Duration::from_secs(10), both, |(listed, live)| {
        listed == live
    })
    .await;
    assert!(listed.len() >= 5, "{listed:?}");
    let registered = edge.bus.find(&name(12)).await.unwrap().unwrap();
    assert!(
        edge.bus
            .services(org(), &registered)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_registration_without_reply_closes_the_former_connection() {
    let mut system = TestSystem::redis().await;
    let (former, next) = system.start_edges("former", "next").await;
    let caller = system.start_node("caller").await;
    let toy = former.connect_device("toy-1").await;
    former.register(&toy, "{}").await;
    await_success(&caller, Duration::from_secs(5)).await;
    // It would repair what is wrong.
    tokio::join!(former.await_comparison(), next.await_comparison());
    next.connect(&toy).await;
    system.server().pause();
    let refused = next.try_register(&toy, "{\"next\":{}}").await;
    assert!(matches!(refused, Err(BusError::Timeout(_))), "{refused:?}");
    // Redis executes what it has received.
    system.server().resume();
    eventually_true("the former connection is closed", || !former.owns(&toy)).await;
    await_success(&caller, Duration::from_secs(1)).await;
    assert!(next.owns(&toy));
    assert_eq!(next.delivered().len(), 1);
}

/// A comparison of all entries is expensive.
#[tokio::test(flavor = "multi_thread")]
async fn i8_entry_of_a_failed_claim_is_removed_without_a_scan() {
    let server = RedisServer::start();
    let system = TestSystem::with_url(server.url());
    let edge = system.start_edge("edge").await;
    edge.connect(&device("toy-1")).await;
    edge.await_comparison().await;
    let scans = async || -> Vec<String> {
        let stats: String = system.query(redis::cmd("INFO").arg("commandstats")).await;
        let scans = stats.lines().filter(|line| line.contains("hscan"));
        scans.map(str::to_owned).collect()
    };
    let before = scans().await;
    server.pause();
    let refused = edge.bus.claim(&device("toy-2")).await;
    assert!(matches!(refused, Err(BusError::Timeout(_))), "{refused:?}");
    server.resume();
    let found = async || edge.bus.find(&device("toy-2")).await.unwrap();
    eventually(Duration::from_secs(1), found, Option::is_some).await;
    eventually(Duration::from_secs(10), found, Option::is_none).await;
    assert_eq!(scans().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_call_of_a_moving_device_ends_at_its_deadline() {
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.address()).await;
    let system = TestSystem::with_url(server.url());
    let edge = system.start_edge("edge").await;
    let callers = TestSystem::with_url(proxy.redis_url());
    let caller = callers.start_node("caller").await;
    let toy = edge.connect_device("toy-1").await;
    edge.leave(&toy, DisconnectReason::Drain);
    let found = async || edge.bus.find(&toy).await.unwrap();
    eventually(Duration::from_secs(1), found, Option::is_none).await;
    proxy.black_hole_from("\r\nEXISTS\r\n");
    let mut brief = call_for(&toy, "{}");
    brief.timeout = Duration::from_millis(300);
    let started = Instant::now();
    let ended = caller.call(brief).await;
    assert!(matches!(ended, Err(BusError::Timeout(_))), "{ended:?}");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_silent_redis_connection_heals_within_6_s() {
    let server = RedisServer::start();
    let proxy = TcpProxy::start(server.address()).await;
    let system = TestSystem::with_url(proxy.redis_url());
    let (caller, edge) = system.start_with_edge("caller").await;
    edge.connect(&device("toy-1")).await;
    await_success(&caller, Duration::from_secs(5)).await;
    // Existing connections stay open and forward nothing; new ones work.
    proxy.black_hole_existing();
    await_success(&caller, Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_with_credentials_or_unix_socket_serves() {
    let socket = std::env::temp_dir().join(format!("sb-{}.sock", uuid::Uuid::now_v7().simple()));
    let socket = socket.to_str().unwrap();
    let user = "--user toys on >pw ~* &* +@all";
    let mut options: Vec<&str> = user.split(' ').collect();
    options.extend(["--requirepass", "other", "--unixsocket", socket]);
    let server = RedisServer::start_with(&options);
    for url in [
        format!("redis://toys:pw@{}/", server.address()),
        format!("redis://:other@{}/", server.address()),
        format!("redis+unix://{socket}?user=toys&pass=pw"),
    ] {
        let system = TestSystem::with_url(url);
        let (caller, edge) = system.start_with_edge("caller").await;
        edge.connect(&device("toy-1")).await;
        let answer = call(&caller, &device("toy-1")).await.unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
    }
}
