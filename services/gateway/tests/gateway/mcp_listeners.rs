//! Those who listen: what they hear, how many they may be, and when they have to go.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use switchboard_protocol::access::Scope;

use crate::{
    mcp_client::{Stream, exchange, get, listen, with_credential},
    stage::{LONG, Stage},
};

const DEVICE: &str = "/mcp/devices/toy-1";
const TOOLS: &str = r#"{"echo":{},"fail":{}}"#;
const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// More than passes between two notifications about tools.
const QUIET: Duration = Duration::from_millis(1_000);
/// What a credential that is no longer good may still be used for.
const AFTERWARDS: Duration = Duration::from_secs(5);

fn wanted() -> Value {
    json!({"toolsListChanged": true})
}

#[tokio::test]
async fn listeners_hear_that_a_device_registered_again_and_nothing_else() {
    let stage = Stage::set().await;
    let epoch = stage.connect_with("toy-1", TOOLS).await;
    stage.connect("toy-2").await;
    let mut modern = Stream::listen(&stage, DEVICE, wanted()).await;
    let mut legacy = Stream::get(&stage, DEVICE).await;
    let mut all = Stream::get(&stage, "/mcp").await;

    // What stays the same is not told, nor what is another device's.
    stage.register("toy-1", epoch, TOOLS).await;
    stage.connect("toy-3").await;
    assert_eq!(all.told().await, LIST_CHANGED);
    for stream in [&mut modern, &mut legacy, &mut all] {
        assert_eq!(stream.next_within(QUIET).await, None);
    }
    stage.register("toy-1", epoch, r#"{"new":{}}"#).await;
    let told = modern.next().await;
    assert_eq!(told["method"], LIST_CHANGED);
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        7
    );
    assert_eq!(legacy.told().await, LIST_CHANGED);
    assert_eq!(all.told().await, LIST_CHANGED);
    for stream in [&mut modern, &mut legacy, &mut all] {
        assert_eq!(stream.next_within(QUIET).await, None);
    }
}

#[tokio::test]
async fn a_device_that_comes_back_as_it_was_is_no_news() {
    let stage = Stage::set().await;
    let epoch = stage.connect("toy-1").await;
    stage.remember("asleep").await;
    let mut all = Stream::get(&stage, "/mcp").await;
    let mut sleeping = Stream::listen(&stage, "/mcp/devices/asleep", wanted()).await;
    stage.disconnect("toy-1", epoch);
    stage.connect("toy-1").await;
    let epoch = stage.connect("asleep").await;
    for stream in [&mut all, &mut sleeping] {
        assert_eq!(stream.next_within(QUIET).await, None);
    }
    // Whoever comes later shares what is known.
    let mut later = Stream::listen(&stage, "/mcp", wanted()).await;
    stage.disconnect("asleep", epoch);
    stage.connect("asleep").await;
    assert_eq!(later.next_within(QUIET).await, None);
    stage.connect_with("asleep", TOOLS).await;
    for stream in [&mut all, &mut sleeping, &mut later] {
        assert_eq!(stream.told().await, LIST_CHANGED);
    }
}

#[tokio::test]
async fn a_storm_of_changes_is_told_a_few_times_and_once_at_its_end() {
    const DEVICES: usize = 60;
    let stage = Stage::set().await;
    let mut all = Stream::get(&stage, "/mcp").await;
    let began = Instant::now();
    let storm = async {
        for at in 0..DEVICES {
            stage.connect(&format!("toy-{at}")).await;
            // So that each could be told on its own.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stage.connect("last").await;
        Instant::now()
    };
    let heard = async {
        let mut heard = Vec::new();
        while let Some(message) = all.next_within(QUIET).await {
            assert_eq!(message["method"], LIST_CHANGED);
            heard.push(Instant::now());
        }
        heard
    };
    let (last, heard) = tokio::join!(storm, heard);
    let pauses = (last - began).as_millis() / 500;
    let told = u128::try_from(heard.len()).unwrap();
    assert!(told <= pauses + 2, "{told} times in {pauses} pauses");
    // The last one came within the pause after another, and is told at its end.
    assert!(
        *heard.last().unwrap() >= last,
        "the last change was not told"
    );
}

#[tokio::test]
async fn a_listener_is_promised_only_what_it_may_hear() {
    let stage = Stage::set().await;
    let everything = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["test://note"],
    });
    let calling = stage.add_key(&[Scope::Call]).await;
    let both = stage.add_key(&[Scope::Call, Scope::Read]).await;
    for (key, accepted) in [(calling, wanted()), (both, everything.clone())] {
        let request = listen(&stage, DEVICE, everything.clone());
        let request = with_credential(request, key.expose_secret());
        let acknowledged = Stream::open(request).await.next().await;
        assert_eq!(acknowledged["params"]["notifications"], accepted);
    }
}

#[tokio::test]
async fn i11_listeners_end_with_their_credential() {
    let stage = Stage::set().await;
    let key = stage.add_key(&[Scope::Call]).await;
    let (token, id, until) = stage.issue_token(Duration::from_secs(600)).await;
    let (short, ..) = stage.issue_token(Duration::from_secs(3)).await;
    let open = async |credential: &str| {
        let mut streams = Vec::new();
        for path in [DEVICE, "/mcp"] {
            for request in [get(&stage, path), listen(&stage, path, wanted())] {
                let request = with_credential(request, credential).timeout(3 * LONG);
                streams.push(Stream::open(request).await);
            }
        }
        streams
    };
    let expiring = open(&short).await;
    let revoked_key = open(key.expose_secret()).await;
    let revoked_token = open(&token).await;
    let mut good = Stream::open(get(&stage, DEVICE).timeout(3 * LONG)).await;

    let end = async |streams: Vec<Stream>, within| {
        for mut stream in streams {
            stream.end(within).await;
        }
    };
    stage.revoke_key(&key).await;
    stage.edge.bus.revoke(id, until).await.unwrap();
    tokio::join!(
        end(revoked_key, AFTERWARDS),
        // Told by the bus, and not found out by asking.
        end(revoked_token, Duration::from_millis(500)),
        end(expiring, Duration::from_secs(3) + AFTERWARDS),
    );
    stage.connect("toy-1").await;
    assert_eq!(good.told().await, LIST_CHANGED);
}

#[tokio::test]
async fn one_caller_has_so_many_listeners_and_each_follows_so_much() {
    let stage = Stage::with_flags(&[
        "--mcp-listeners-per-caller=2",
        "--mcp-resources-per-listener=3",
    ])
    .await;
    let followed = |count: usize| {
        let uris: Vec<_> = (0..count).map(|at| format!("test://{at}")).collect();
        json!({ "resourceSubscriptions": uris })
    };
    let refused = exchange(listen(&stage, DEVICE, followed(4))).await;
    assert_eq!((refused.status, refused.error_code()), (200, -32602));
    assert!(
        refused.last()["error"]["message"]
            .as_str()
            .unwrap()
            .contains('3')
    );

    let first = Stream::get(&stage, "/mcp").await;
    let second = Stream::listen(&stage, DEVICE, followed(3)).await;
    let refused = exchange(listen(&stage, DEVICE, wanted())).await;
    assert_eq!((refused.status, refused.error_code()), (429, -32000));
    assert_eq!(refused.last()["id"], 7);
    assert!(refused.headers.contains_key("retry-after"));
    let refused = exchange(get(&stage, DEVICE)).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.last()["limit"], 2);
    assert!(refused.headers.contains_key("retry-after"));

    // Another caller is not concerned, and whoever goes makes room.
    let other = stage.add_key(&[Scope::Call]).await;
    Stream::open(with_credential(get(&stage, DEVICE), other.expose_secret())).await;
    for gone in [first, second] {
        drop(gone);
        room(|| get(&stage, "/mcp")).await;
    }
}

/// Waits until a listener is let in.
async fn room(request: impl Fn() -> RequestBuilder) {
    let patient = async {
        while request().send().await.unwrap().status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, patient).await.unwrap();
}

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_followed() {
    let stage = Stage::set().await;
    // What there is cannot be read yet, so that nobody could say what is news.
    let lock = stage.database.lock("service_registrations").await.unwrap();
    let mut opening = tokio::task::JoinSet::new();
    opening.spawn(Stream::open(listen(&stage, "/mcp", wanted())));
    let early = tokio::time::timeout(Duration::from_millis(300), opening.join_next()).await;
    assert!(early.is_err(), "acknowledged too early");
    lock.release().await.unwrap();
    let mut stream = opening.join_next().await.unwrap().unwrap();
    let acknowledged = "notifications/subscriptions/acknowledged";
    assert_eq!(stream.told().await, acknowledged);
    stage.connect("toy-1").await;
    assert_eq!(stream.told().await, LIST_CHANGED);
}

#[tokio::test]
async fn a_get_of_the_newest_revision_opens_nothing() {
    let stage = Stage::set().await;
    let request = stage.request(Method::GET, DEVICE);
    let request = request.header("accept", "text/event-stream");
    let refused = exchange(request.header("mcp-protocol-version", "2026-07-28")).await;
    assert_eq!(refused.status, 405);
}
