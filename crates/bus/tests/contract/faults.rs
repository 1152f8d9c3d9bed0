//! What Redis and nodes in trouble may cost, and how long.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use switchboard_bus::{Answer, Bus, BusError, Call};
use switchboard_protocol::outcome::Outcome;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::interval_at,
};

use crate::{
    eventually::eventually,
    offers::{await_event, services},
    redis_server::RedisServer,
    station::{Site, call, call_for, device, org},
};

pub async fn works_again(caller: &switchboard_bus::Bus, within: Duration) {
    let again = async || {
        let mut brief = call_for(&device("toy-1"), "{}");
        brief.timeout = Duration::from_millis(300);
        caller.call(brief).await.map(|answer| answer.outcome).ok()
    };
    let succeeded = |outcome: &Option<Outcome>| *outcome == Some(Outcome::Succeeded);
    eventually(within, again, succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_a_redis_that_restarts_empty_is_healed_within_five_seconds() {
    let mut site = Site::redis().await;
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    works_again(&caller, Duration::from_secs(5)).await;
    site.server().kill();
    let refused = async || call(&caller, &device("toy-1")).await;
    let refused = eventually(Duration::from_secs(5), refused, Result::is_err).await;
    assert!(matches!(refused, Err(BusError::Unavailable)), "{refused:?}");
    site.server().restart();
    works_again(&caller, Duration::from_secs(5)).await;
    let presence = async || caller.find(&device("toy-1")).await.ok().flatten();
    let presence = eventually(Duration::from_secs(5), presence, Option::is_some)
        .await
        .unwrap();
    assert_eq!(presence.digest, Some(digest));
    assert!(caller.services(&presence).await.unwrap().is_some());
    // Nor does the next time wait until the directory has been looked through after this one.
    site.server().kill();
    site.server().restart();
    works_again(&caller, Duration::from_millis(2500)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_ready_while_redis_was_away_arrives() {
    let mut site = Site::redis().await;
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    edge.connect(&device("toy-1")).await;
    edge.mute();
    let waiting = {
        let caller = caller.clone();
        let mut long = call_for(&device("toy-1"), "{}");
        long.timeout = Duration::from_secs(20);
        tokio::task::JoinSet::from_iter([async move { caller.call(long).await }])
    };
    eventually(
        Duration::from_secs(5),
        async || edge.delivered().len(),
        |count| *count == 1,
    )
    .await;
    site.server().kill();
    edge.speak();
    site.server().restart();
    let answers = waiting.join_all().await;
    assert_eq!(answers[0].as_ref().unwrap().outcome, Outcome::Succeeded);
}

/// Many calls at once, in one background task each.
fn in_background(
    caller: &Bus,
    calls: impl IntoIterator<Item = Call>,
) -> JoinSet<Result<Answer, BusError>> {
    let call = |call| {
        let caller = caller.clone();
        async move { caller.call(call).await }
    };
    calls.into_iter().map(call).collect()
}

/// On one thread: whoever waits for replies must not keep the one who sees the connection's end from running.
#[tokio::test]
async fn calls_that_wait_for_their_turn_end_with_the_connection() {
    let mut site = Site::redis().await;
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    edge.connect(&device("toy-1")).await;
    works_again(&caller, Duration::from_secs(5)).await;
    site.server().pause();
    let begun = Instant::now();
    let calls = (0..8).map(|_| call_for(&device("toy-1"), "{}"));
    let waiting = in_background(&caller, calls);
    let handed_over = async || caller.calls_waiting();
    eventually(Duration::from_secs(1), handed_over, |count| *count == 8).await;
    site.server().kill();
    for ended in waiting.join_all().await {
        let outcome = ended.map(|answer| answer.outcome);
        assert!(
            matches!(outcome, Ok(Outcome::Lost) | Err(BusError::Unavailable)),
            "{outcome:?}"
        );
    }
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_had_no_room_for_arrives_whole_and_each_has_its_own_fate() {
    let mut site = Site::redis().await;
    let caller = site.caller("caller").await;
    let (edge, doomed) = (site.station("edge").await, site.station("doomed").await);
    edge.connect(&device("toy-1")).await;
    doomed.connect(&device("toy-2")).await;
    for toy in ["toy-1", "toy-2"] {
        call(&caller, &device(toy)).await.unwrap();
    }
    // Nobody hears it any more; the caller still remembers it.
    doomed.shutdown.stop();
    let left = async || doomed.bus.health().detail;
    eventually(Duration::from_secs(5), left, |detail| detail != "connected").await;
    site.server().pause();
    let large = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(500_000));
    let of = |toy: &str, n: usize| call_for(&device(toy), large(n));
    let given_up = in_background(&caller, (0..4).map(|n| of("toy-1", n)));
    let here = in_background(&caller, (0..8).map(|n| of("toy-1", n)));
    let gone = in_background(&caller, (0..8).map(|n| of("toy-2", n)));
    let handed_over = async || caller.calls_waiting();
    eventually(Duration::from_secs(1), handed_over, |count| *count == 20).await;
    drop(given_up);
    site.server().resume();
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
async fn last_words_that_redis_had_no_room_for_are_said_to_the_end() {
    let mut site = Site::redis().await;
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    edge.connect(&device("toy-1")).await;
    edge.mute();
    let calls = (0..30).map(|_| call_for(&device("toy-1"), "{}"));
    let waiting = in_background(&caller, calls);
    let replies = edge.unanswered(30).await;
    site.server().pause();
    let large = format!("{{\"success\":true,\"data\":\"{}\"}}", "x".repeat(250_000));
    for reply in &replies {
        let answer = Answer::result(true, large.clone().into());
        edge.bus.answer(reply, answer);
    }
    edge.shutdown.stop();
    // What is left is what sends, and what leaves.
    let tasks = async || edge.shutdown.tasks();
    eventually(Duration::from_secs(1), tasks, |count| *count <= 2).await;
    site.server().resume();
    for answer in waiting.join_all().await {
        assert_eq!(answer.unwrap().outcome, Outcome::Succeeded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_a_node_that_was_taken_for_dead_enters_its_devices_again() {
    let site = Site::redis().await;
    let (caller, edge) = (site.follower("caller").await, site.station("edge").await);
    let mut events = caller.offer_changes().unwrap();
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    // As if its process had stood still; its connections do not notice. In its first seconds a
    // node compares anyway.
    let later = tokio::time::Instant::now() + Duration::from_secs(4);
    let mut often = interval_at(later, Duration::from_millis(5));
    let standing_still = async {
        loop {
            often.tick().await;
            site.end_lease(edge.bus.node()).await;
        }
    };
    let gone = services(&device("toy-1"), None);
    tokio::select! {
        () = await_event(&mut events, &gone, Duration::from_secs(15)) => {}
        () = standing_still => {}
    }
    let back = services(&device("toy-1"), Some(digest));
    await_event(&mut events, &back, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_services_that_redis_refused_are_entered_when_it_takes_them() {
    let site = Site::redis().await;
    let edge = site.station("edge").await;
    edge.connect(&device("toy-1")).await;
    site.configure("maxmemory", "1").await;
    let refused = edge.try_register(&device("toy-1"), "{}").await;
    assert!(
        matches!(refused, Err(BusError::Unexpected(_))),
        "{refused:?}"
    );
    site.configure("maxmemory", "0").await;
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
async fn i9_the_calls_of_a_node_that_is_gone_are_lost_within_three_seconds() {
    let site = Site::redis().await;
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    edge.connect(&device("toy-1")).await;
    edge.mute();
    let waiting = {
        let caller = caller.clone();
        let mut long = call_for(&device("toy-1"), "{}");
        long.timeout = Duration::from_secs(60);
        tokio::task::JoinSet::from_iter([async move { caller.call(long).await }])
    };
    eventually(
        Duration::from_secs(5),
        async || edge.delivered().len(),
        |count| *count == 1,
    )
    .await;
    let gone = Instant::now();
    edge.shutdown.stop();
    let answers = waiting.join_all().await;
    assert_eq!(answers[0].as_ref().unwrap().outcome, Outcome::Lost);
    assert!(
        gone.elapsed() < Duration::from_secs(3),
        "{:?}",
        gone.elapsed()
    );
    let begun = Instant::now();
    assert_eq!(
        call(&caller, &device("toy-1")).await.unwrap().outcome,
        Outcome::Offline
    );
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "decided at once, not at the deadline"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_what_a_dead_node_left_is_gone_within_ten_seconds() {
    let site = Site::redis().await;
    let caller = site.follower("caller").await;
    let mut events = caller.offer_changes().unwrap();
    let mut way = Reaches::start(site.redis_address()).await;
    let doomed = Site::through(way.url());
    let edge = doomed.station("doomed").await;
    edge.connect(&device("toy-1")).await;
    let digest = edge.register(&device("toy-1"), "{}").await;
    assert!(caller.find(&device("toy-1")).await.unwrap().is_some());
    way.black_hole();
    let found = async || caller.find(&device("toy-1")).await.unwrap();
    eventually(Duration::from_secs(10), found, Option::is_none).await;
    let left = async || caller.list(org(), None, 10).await.unwrap();
    eventually(Duration::from_secs(1), left, Vec::is_empty).await;
    let gone = services(&device("toy-1"), None);
    await_event(&mut events, &gone, Duration::from_secs(4)).await;
    // The node was not dead after all: it enters its device again.
    way.pass();
    eventually(Duration::from_secs(10), found, Option::is_some).await;
    let back = services(&device("toy-1"), Some(digest));
    await_event(&mut events, &back, Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_a_redis_that_stalled_under_connects_and_disconnects_leaves_no_ghost() {
    let mut site = Site::redis().await;
    let edge = site.station("edge").await;
    let name = |n: usize| device(&format!("toy-{n:02}"));
    for n in 0..20 {
        edge.connect(&name(n)).await;
        edge.register(&name(n), "{}").await;
    }
    site.server().pause();
    // Refused here, and executed when Redis goes on: entries without a connection. One of them
    // is even newer than the live connection of its device.
    let mut refused = tokio::task::JoinSet::new();
    for n in 15..30 {
        let bus = edge.bus.clone();
        refused.spawn(async move { bus.claim(&name(n)).await });
    }
    assert!(refused.join_all().await.iter().all(Result::is_err));
    for n in 0..10 {
        edge.disconnect(&name(n));
    }
    let deaf = async || edge.bus.health().detail;
    eventually(Duration::from_secs(10), deaf, |detail| {
        detail != "connected"
    })
    .await;
    site.server().resume();
    // Where the refused claim was the newer one, the older connection gives way and the device
    // has to come again: both sides agree on that, too.
    let both = async || {
        let listed = edge.bus.list(org(), None, 100).await.unwrap_or_default();
        let listed: Vec<_> = listed
            .into_iter()
            .map(|(id, presence)| (id, presence.epoch))
            .collect();
        let mut live = edge.held_now();
        live.sort();
        (listed, live)
    };
    let (listed, _) = eventually(Duration::from_secs(10), both, |(listed, live)| {
        listed == live
    })
    .await;
    assert!(listed.len() >= 5, "{listed:?}");
    let registered = edge.bus.find(&name(12)).await.unwrap().unwrap();
    assert!(edge.bus.services(&registered).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_a_silent_black_hole_is_noticed_and_healed_within_six_seconds() {
    let server = RedisServer::start();
    let mut hole = Reaches::start(server.address()).await;
    let site = Site::through(hole.url());
    let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
    edge.connect(&device("toy-1")).await;
    works_again(&caller, Duration::from_secs(5)).await;
    // Connections that exist stay open and carry nothing; new ones are carried.
    hole.swallow_existing();
    works_again(&caller, Duration::from_secs(6)).await;
}

/// A way to Redis that can turn into a black hole.
struct Reaches {
    addr: SocketAddr,
    mood: watch::Sender<Mood>,
    _carriers: tokio::task::JoinSet<()>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Pass,
    /// Connections older than this generation carry nothing.
    Swallow(u64),
    BlackHole,
}

impl Reaches {
    async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (mood, watched) = watch::channel(Mood::Pass);
        let mut carriers = tokio::task::JoinSet::new();
        carriers.spawn(async move {
            let mut lines = tokio::task::JoinSet::new();
            let mut generation = 0;
            loop {
                let (near, _) = listener.accept().await.unwrap();
                if let Mood::Swallow(before) = *watched.borrow() {
                    generation = before;
                }
                let far = TcpStream::connect(to).await.unwrap();
                let (near, far) = (near.into_split(), far.into_split());
                lines.spawn(carry(near.0, far.1, watched.clone(), generation));
                lines.spawn(carry(far.0, near.1, watched.clone(), generation));
            }
        });
        Self {
            addr,
            mood,
            _carriers: carriers,
        }
    }

    fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    fn black_hole(&mut self) {
        self.mood.send_replace(Mood::BlackHole);
    }

    fn pass(&mut self) {
        self.mood.send_replace(Mood::Pass);
    }

    fn swallow_existing(&mut self) {
        self.mood.send_replace(Mood::Swallow(1));
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut mood: watch::Receiver<Mood>,
    generation: u64,
) {
    let mut buffer = vec![0; 16 * 1024];
    let carries = |mood: &Mood| match *mood {
        Mood::Pass => true,
        Mood::Swallow(before) => generation >= before,
        Mood::BlackHole => false,
    };
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if mood.wait_for(|mood| carries(mood)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_with_users_and_one_behind_a_unix_socket_serve_alike() {
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
        let site = Site::through(url);
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        edge.connect(&device("toy-1")).await;
        let answer = call(&caller, &device("toy-1")).await.unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
    }
}
