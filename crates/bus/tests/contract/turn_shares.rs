//! Turns of one organisation neither fill the queue nor block turns of others.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::{Value, cmd};
use switchboard_bus::{Bus, BusError, Epoch, MAX_RECORDING_BYTES, NewMessage, Recording, Turn};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    message::{MAX_PICTURE_BYTES, Picture},
    schema::Digest,
};
use switchboard_test_support::eventually::eventually;
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestEdge, TestSystem, org},
    turns::{BRIEF_TIMEOUT, OTHER, TASK, TEST_TIMEOUT, cancel, claim, enqueue, renew},
};

/// Turns of one organisation in the queue.
const MAX_ORG_TURNS: usize = 2_500;
/// Those of them that have a picture.
const MAX_ORG_PICTURES: usize = 32;

type Target = (DeviceKey, Epoch);

async fn connect(edge: &TestEdge, org: OrgId, id: &str) -> Target {
    let device = id.parse().unwrap();
    let device = DeviceKey { org, device };
    let epoch = edge.connect(&device).await;
    (device, epoch)
}

/// A device of a crowded organisation, and one of another.
async fn two_orgs(edge: &TestEdge) -> (Target, Target) {
    let quiet = OrgId::from_uuid(Uuid::from_u128(0xabc));
    (
        connect(edge, org(), "toy-1").await,
        connect(edge, quiet, "toy-2").await,
    )
}

/// Claims turns with room for this many of the crowded organisation, and for all of others.
async fn claim_within(chat: &Bus, crowded: usize, wait: Duration) -> Vec<Turn> {
    let room = |claimed: OrgId| if claimed == org() { crowded } else { 10 };
    chat.claim_turns_within(10, wait, &room).await.unwrap()
}

/// Claims turns until there is one.
async fn claim_next(chat: &Bus, crowded: usize) -> Vec<Turn> {
    let claimed = claim_within(chat, crowded, TEST_TIMEOUT).await;
    assert!(!claimed.is_empty(), "a turn is claimed in time");
    claimed
}

fn assert_none(turns: &[Turn]) {
    assert!(turns.is_empty(), "{turns:?}");
}

fn texts(turns: &[Turn]) -> Vec<&str> {
    turns.iter().map(|turn| &*turn.text).collect()
}

#[tokio::test]
async fn turns_without_room_wait_and_block_no_other_org() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let (chat, second) = system.start_nodes("chat-1", "chat-2").await;
        let (crowded, quiet) = two_orgs(&edge).await;
        for text in ["a", "b", "c", "d", "e"] {
            enqueue(&edge, &crowded, TASK, text).await;
        }
        enqueue(&edge, &quiet, TASK, "quiet").await;
        let first = claim_next(&chat, 2).await;
        assert_eq!(texts(&first), ["a", "b", "quiet"]);
        assert_none(&claim_within(&chat, 0, BRIEF_TIMEOUT).await);
        // A turn that is enqueued later does not overtake those that wait.
        enqueue(&edge, &crowded, OTHER, "f").await;
        enqueue(&edge, &quiet, OTHER, "again").await;
        assert_eq!(texts(&claim_next(&second, 0).await), ["again"]);
        let resumed = claim_next(&second, 2).await;
        assert_eq!(texts(&resumed), ["c", "d"]);
        let rest = claim_next(&chat, 9).await;
        assert_eq!(texts(&rest), ["e", "f"]);
        for turn in resumed.iter().chain(&rest) {
            // Waiting was no attempt.
            assert_eq!((turn.attempts, turn.has_side_effects), (1, false));
        }
        assert_eq!(renew(&chat, &[&rest[0], &rest[1]]).await, []);
    })
    .await;
}

#[tokio::test]
async fn turn_that_waits_for_room_can_be_cancelled() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (crowded, _) = two_orgs(&edge).await;
        enqueue(&edge, &crowded, TASK, "unwanted").await;
        enqueue(&edge, &crowded, OTHER, "wanted").await;
        assert_none(&claim_within(&chat, 0, BRIEF_TIMEOUT).await);
        cancel(&edge, &crowded, Some(TASK)).await;
        assert_eq!(texts(&claim_next(&chat, 9).await), ["wanted"]);
    })
    .await;
}

/// Enqueues turns until one is refused. Returns how many were accepted.
async fn fill(edge: &Arc<TestEdge>, (device, epoch): &Target) -> usize {
    for count in 0..=MAX_ORG_TURNS {
        let text = "hello".to_owned();
        let enqueued = edge.bus.enqueue_turn(device, *epoch, TASK, text).await;
        match enqueued {
            Ok(()) => {}
            Err(BusError::Overloaded) => return count,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("one organisation has more than {MAX_ORG_TURNS} turns");
}

#[tokio::test]
async fn one_org_has_a_quarter_of_the_places() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (crowded, quiet) = two_orgs(&edge).await;
        assert_eq!(fill(&edge, &crowded).await, MAX_ORG_TURNS);
        enqueue(&edge, &quiet, TASK, "quiet").await;
        let turn = claim(&chat).await;
        assert_eq!(turn.device, crowded.0);
        chat.complete_turn(&turn.id).await.unwrap();
        assert_eq!(fill(&edge, &crowded).await, 1);
        cancel(&edge, &crowded, Some(TASK)).await;
        enqueue(&edge, &crowded, TASK, "accepted").await;
    })
    .await;
}

/// Enqueues a turn with a picture of this payload.
async fn show(edge: &TestEdge, to: &Target, payload: Vec<u8>) -> Result<(), BusError> {
    let message = NewMessage {
        text: "What is this?".to_owned(),
        picture: Some(Picture::parse(payload.into()).unwrap()),
        ..NewMessage::default()
    };
    edge.bus.enqueue_turn(&to.0, to.1, TASK, message).await
}

/// A picture of the largest size, with every byte in it.
fn largest_picture() -> Vec<u8> {
    let mut payload = b"\x89PNG\r\n\x1a\n".to_vec();
    payload.extend(
        (0..=u8::MAX)
            .cycle()
            .take(MAX_PICTURE_BYTES - payload.len()),
    );
    payload
}

#[tokio::test]
async fn locale_reaches_the_worker_with_its_turn() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (device, _) = two_orgs(&edge).await;
        for locale in [Some("zh-CN"), None] {
            let message = NewMessage {
                text: "42".to_owned(),
                locale: locale.map(str::to_owned),
                ..NewMessage::default()
            };
            let enqueued = edge.bus.enqueue_turn(&device.0, device.1, TASK, message);
            enqueued.await.unwrap();
            let turn = claim(&chat).await;
            assert_eq!(turn.locale.as_deref(), locale);
            chat.complete_turn(&turn.id).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn worker_learns_what_the_edge_knows_of_the_device() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (device, _) = two_orgs(&edge).await;
        // An earlier connection may have turns, until the first one of this one was answered.
        for (registration, is_alone) in [(None, false), (Some(Digest::compute(b"{}")), true)] {
            let message = NewMessage {
                registration,
                ..NewMessage::from("42".to_owned())
            };
            let enqueued = edge.bus.enqueue_turn(&device.0, device.1, TASK, message);
            enqueued.await.unwrap();
            let turn = claim(&chat).await;
            assert_eq!((turn.registration, turn.is_alone), (registration, is_alone));
            chat.finish_reply(&turn);
            edge.expect_replies("|").await;
            chat.complete_turn(&turn.id).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn picture_reaches_the_worker_with_its_turn() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (device, _) = two_orgs(&edge).await;
        let id = "pic_00000000000000000000000000000007";
        for payload in [largest_picture(), id.into()] {
            show(&edge, &device, payload.clone()).await.unwrap();
            let turn = claim(&chat).await;
            let picture = turn.picture.as_ref().unwrap();
            assert!(picture.payload() == payload, "{picture:?}");
            chat.complete_turn(&turn.id).await.unwrap();
        }
        enqueue(&edge, &device, TASK, "no picture").await;
        assert_eq!(claim(&chat).await.picture, None);
    })
    .await;
}

#[tokio::test]
async fn pictures_of_one_org_leave_room_for_others() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (crowded, quiet) = two_orgs(&edge).await;
        for _ in 0..MAX_ORG_PICTURES {
            show(&edge, &crowded, b"GIF89a".into()).await.unwrap();
        }
        let refused = show(&edge, &crowded, b"GIF89a".into()).await;
        assert!(matches!(refused, Err(BusError::Overloaded)), "{refused:?}");
        enqueue(&edge, &crowded, OTHER, "no picture").await;
        show(&edge, &quiet, b"GIF89a".into()).await.unwrap();
        let turn = claim(&chat).await;
        assert_eq!(turn.device, crowded.0);
        chat.complete_turn(&turn.id).await.unwrap();
        show(&edge, &crowded, b"GIF89a".into()).await.unwrap();
        assert!(show(&edge, &crowded, b"GIF89a".into()).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn recording_is_dropped_where_half_of_the_places_of_pictures_are_taken() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (crowded, _) = two_orgs(&edge).await;
        let recording = Recording {
            file: (0..=u8::MAX).cycle().take(MAX_RECORDING_BYTES).collect(),
            ms: 40_000,
        };
        let say = async || {
            let message = NewMessage {
                text: "Hello".to_owned(),
                is_spoken: true,
                recording: Some(recording.clone()),
                ..NewMessage::default()
            };
            let enqueued = edge.bus.enqueue_turn(&crowded.0, crowded.1, TASK, message);
            enqueued.await.unwrap();
        };
        say().await;
        let turn = claim(&chat).await;
        assert!(turn.recording.as_ref() == Some(&recording));
        for _ in 1..MAX_ORG_PICTURES / 2 {
            show(&edge, &crowded, b"GIF89a".into()).await.unwrap();
            claim(&chat).await;
        }
        // The message itself has a place.
        say().await;
        assert_eq!(claim(&chat).await.recording, None);
        chat.complete_turn(&turn.id).await.unwrap();
        say().await;
        assert!(claim(&chat).await.recording.is_some());
    })
    .await;
}

/// The names of the consumer groups, and of the consumers of `chat`.
async fn groups_and_consumers(system: &TestSystem) -> (Vec<String>, Vec<String>) {
    let names = async |info: redis::Cmd| -> Vec<String> {
        let all: Vec<HashMap<String, Value>> = system.query(&info).await;
        let name = |about: &HashMap<String, Value>| {
            redis::from_redis_value::<String>(about["name"].clone()).unwrap()
        };
        all.iter().map(name).collect()
    };
    let mut groups = cmd("XINFO");
    groups.arg(&["GROUPS", "test:{turns}"]);
    let mut consumers = cmd("XINFO");
    consumers.arg(&["CONSUMERS", "test:{turns}", "chat"]);
    (names(groups).await, names(consumers).await)
}

#[tokio::test]
async fn in_redis_places_of_lost_turns_are_returned() {
    let system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let (crowded, _) = two_orgs(&edge).await;
    // Turns that no worker claimed within a minute, a leased one, and the place of one that a node
    // of an earlier version has completed.
    let mut prepare = cmd("EVAL");
    let code = "redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
        for i = 1, ARGV[2] do
          redis.call('XADD', KEYS[1], '1-' .. i, 'org', ARGV[1])
          redis.call('XCLAIM', KEYS[1], ARGV[1], 'queue', 0, '1-' .. i, 'FORCE', 'JUSTID')
        end
        redis.call('XDEL', KEYS[1], '1-2')
        redis.pcall('XGROUP', 'CREATE', KEYS[1], 'chat', '0')
        redis.call('XGROUP', 'SETID', KEYS[1], 'chat', '0')
        redis.call('XREADGROUP', 'GROUP', 'chat', 'worker', 'COUNT', 1, 'STREAMS', KEYS[1], '>')";
    prepare.arg(code).arg(1).arg("test:{turns}");
    prepare.arg(org().to_string()).arg(MAX_ORG_TURNS);
    system.query::<Value>(&prepare).await;
    enqueue(&edge, &crowded, TASK, "new").await;
    let places = cmd("XPENDING")
        .arg("test:{turns}")
        .arg(org().to_string())
        .to_owned();
    let (count, oldest, ..): (usize, String, String, Value) = system.query(&places).await;
    assert_eq!((count, &*oldest), (MAX_ORG_TURNS - 98, "1-1"));
}

#[tokio::test]
async fn in_redis_ended_turns_leave_no_group_and_no_consumer() {
    let system = TestSystem::redis().await;
    let (chat, edge) = system.start_with_edge("chat").await;
    let (crowded, quiet) = two_orgs(&edge).await;
    enqueue(&edge, &crowded, TASK, "one").await;
    enqueue(&edge, &crowded, OTHER, "two").await;
    show(&edge, &quiet, b"GIF89a".into()).await.unwrap();
    let mut turns = claim_next(&chat, 1).await;
    let (groups, consumers) = groups_and_consumers(&system).await;
    assert_eq!((groups.len(), consumers.len()), (4, 2));
    let postponed = format!("postponed:{}", org());
    assert!(consumers.contains(&postponed), "{consumers:?}");
    turns.extend(claim_next(&chat, 9).await);
    for turn in &turns {
        chat.complete_turn(&turn.id).await.unwrap();
    }
    let left = async || {
        claim_within(&chat, 9, BRIEF_TIMEOUT).await;
        let (groups, consumers) = groups_and_consumers(&system).await;
        (groups, consumers.len())
    };
    let left = eventually(TEST_TIMEOUT, left, |(_, consumers)| *consumers == 1).await;
    assert_eq!(left.0, ["chat"]);
}

#[tokio::test]
async fn in_redis_interrupted_turn_waits_for_room_with_its_attempts() {
    let system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let (dead, chat) = system.start_nodes("chat-1", "chat-2").await;
    let (crowded, _) = two_orgs(&edge).await;
    enqueue(&edge, &crowded, TASK, "acted").await;
    let acted = claim(&dead).await;
    assert!(dead.mark_side_effects(&acted.id).await.unwrap());
    // Its worker has been idle for a minute.
    let mut xclaim = cmd("XCLAIM");
    xclaim.arg(&["test:{turns}", "chat", "dead", "0"]);
    xclaim
        .arg(acted.id.to_string())
        .arg(&["IDLE", "60000", "JUSTID"]);
    system.query::<Value>(&xclaim).await;
    let postponed = format!("postponed:{}", org());
    let consumers = async || {
        assert_none(&claim_within(&chat, 0, BRIEF_TIMEOUT).await);
        groups_and_consumers(&system).await.1
    };
    eventually(TEST_TIMEOUT, consumers, |all| all.contains(&postponed)).await;
    let again = claim_next(&chat, 1).await;
    assert_eq!((again[0].attempts, again[0].has_side_effects), (2, true));
}
