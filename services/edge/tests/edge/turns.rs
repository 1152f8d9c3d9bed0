//! Turns over the socket: a complete message becomes a turn, an answer becomes frames.

use std::time::{Duration, Instant};

use switchboard_bus::{Bus, CancelReason, TURN_LEASE, Turn};
use switchboard_edge::Config;
use switchboard_protocol::frame::{Kind, TaskId};
use switchboard_test_support::{eventually::eventually_true, redis_server::RedisServer};
use tokio::time::timeout;

use crate::{
    device::Device,
    node::{Node, TEST_TIMEOUT},
};

const TASK: TaskId = TaskId(*b"task0001");
const OTHER: TaskId = TaskId(*b"task0002");
/// Longer than any test takes.
const LONG_TIMEOUT_MS: u64 = 3_600_000;

async fn start() -> Node {
    Node::start(Config {
        turn_patience_ms: LONG_TIMEOUT_MS,
        ..Config::default()
    })
    .await
}

async fn send_message(device: &mut Device, task: TaskId, text: &str) {
    device.send(Kind::Text, task, 0, text.as_bytes()).await;
    device.send(Kind::End, task, 1, b"").await;
}

async fn take(chat: &Bus) -> Turn {
    let mut turns = chat.claim_turns(1, TEST_TIMEOUT).await.unwrap();
    assert_eq!(turns.len(), 1, "no turn in time");
    turns.remove(0)
}

/// Sends a message and takes its turn as a worker.
async fn ask(node: &Node, device: &mut Device, task: TaskId, text: &str) -> Turn {
    send_message(device, task, text).await;
    let turn = take(&node.caller).await;
    assert_eq!((turn.task, &*turn.text), (task.0, text));
    turn
}

async fn check_text(device: &mut Device, task: TaskId, seq: u16, text: &str) {
    let frame = device.expect(Kind::Text).await;
    assert_eq!((frame.task, frame.seq), (task, seq));
    assert_eq!(String::from_utf8(frame.payload).unwrap(), text);
}

async fn check_end(device: &mut Device, task: TaskId, seq: u16) {
    let frame = device.expect(Kind::End).await;
    assert_eq!(
        (frame.task, frame.seq, &*frame.payload),
        (task, seq, &b""[..])
    );
}

/// Expects an answer of one fixed sentence from the edge.
async fn check_sentence(device: &mut Device, task: TaskId, part: &str) {
    let frame = device.expect(Kind::Text).await;
    assert_eq!((frame.task, frame.seq), (task, 0));
    let text = String::from_utf8(frame.payload).unwrap();
    assert!(text.contains(part), "{text}");
    check_end(device, task, 1).await;
}

#[tokio::test]
async fn message_becomes_a_turn_and_its_answer_frames() {
    let node = start().await;
    let mut device = node.device("toy").await;
    for (seq, piece) in ["What ", "time", " is it? ##", "END"].iter().enumerate() {
        let seq = u16::try_from(seq).unwrap();
        device.send(Kind::Text, TASK, seq, piece.as_bytes()).await;
    }
    device.send(Kind::End, TASK, 4, b"").await;
    let turn = take(&node.caller).await;
    assert_eq!(turn.text, "What time is it? ##END");
    assert_eq!(
        (turn.device.clone(), turn.task),
        (node.device_key("toy"), TASK.0)
    );
    assert_eq!(&turn.node, node.bus.node());
    node.caller.send_text(&turn, "It is ");
    check_text(&mut device, TASK, 0, "It is ").await;
    node.caller.send_text(&turn, "现在几点##END");
    check_text(&mut device, TASK, 1, "现在几点##").await;
    check_text(&mut device, TASK, 2, "END").await;
    node.caller.finish_reply(&turn);
    check_end(&mut device, TASK, 3).await;
    node.caller.complete_turn(&turn.id).await.unwrap();
    // The task can be reused; its seq restarts at 0.
    let turn = ask(&node, &mut device, TASK, "again").await;
    node.caller.send_text(&turn, "yes");
    check_text(&mut device, TASK, 0, "yes").await;
    node.caller.finish_reply(&turn);
    check_end(&mut device, TASK, 1).await;
    node.metric_is("turns_total", Some("answered"), 2.0).await;
}

#[tokio::test]
async fn i12_text_larger_than_a_frame_is_split() {
    let node = Node::start(Config {
        device_max_frame_bytes: 1_024,
        turn_patience_ms: LONG_TIMEOUT_MS,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    let turn = ask(&node, &mut device, TASK, "a long story").await;
    let story = "从前有座山".repeat(400);
    node.caller.send_text(&turn, &story);
    node.caller.finish_reply(&turn);
    let (mut received, mut seq) = (String::new(), 0);
    loop {
        let frame = device.next().await.unwrap();
        assert_eq!((frame.task, frame.seq), (TASK, seq));
        if frame.kind == Kind::End {
            break;
        }
        assert!(frame.payload.len() <= 1_024);
        received.push_str(str::from_utf8(&frame.payload).unwrap());
        seq += 1;
    }
    assert_eq!(received, story);
    assert!(seq >= 6);
}

#[tokio::test]
async fn cancelled_answer_ends_and_notifies_the_worker() {
    let node = start().await;
    let mut device = node.device("toy").await;
    let mut stops = node.caller.turn_cancellations();
    let turn = ask(&node, &mut device, TASK, "sing").await;
    node.caller.send_text(&turn, "la");
    check_text(&mut device, TASK, 0, "la").await;
    device.send(Kind::Cancel, TASK, 0, b"").await;
    check_end(&mut device, TASK, 1).await;
    let stop = timeout(TEST_TIMEOUT, stops.next()).await.unwrap();
    assert_eq!(
        (stop.task, stop.reason),
        (Some(TASK.0), CancelReason::Unwanted)
    );
    assert!(stop.applies_to(&turn));
    assert!(!node.caller.mark_side_effects(&turn.id).await.unwrap());
    // Further text of the cancelled answer reaches no device, also not through the next turn of the
    // task.
    let next = ask(&node, &mut device, TASK, "speak").await;
    assert!(!stop.applies_to(&next));
    node.caller.send_text(&turn, "la");
    node.caller.send_text(&next, "hello");
    check_text(&mut device, TASK, 0, "hello").await;
    // A message that is cancelled before its end is ended without a turn.
    device.send(Kind::Text, OTHER, 0, b"never").await;
    device.send(Kind::Cancel, OTHER, 0, b"").await;
    device.send(Kind::Text, OTHER, 1, b" mind").await;
    device.send(Kind::End, OTHER, 2, b"").await;
    check_end(&mut device, OTHER, 0).await;
    let none = node.caller.claim_turns(1, Duration::from_millis(50)).await;
    assert!(none.unwrap().is_empty());
    node.metric_is("turns_total", Some("cancelled"), 2.0).await;
}

#[tokio::test]
async fn new_message_replaces_the_answer_of_its_task() {
    let node = start().await;
    let mut device = node.device("toy").await;
    let first = ask(&node, &mut device, TASK, "one").await;
    let second = ask(&node, &mut device, OTHER, "two").await;
    node.caller.send_text(&second, "2");
    check_text(&mut device, OTHER, 0, "2").await;
    node.caller.send_text(&first, "1");
    check_text(&mut device, TASK, 0, "1").await;
    // Another message on the first task ends the answer there.
    let third = ask(&node, &mut device, TASK, "three").await;
    check_end(&mut device, TASK, 1).await;
    node.caller.send_text(&first, "1");
    node.caller.send_text(&third, "3");
    check_text(&mut device, TASK, 0, "3").await;
    node.caller.finish_reply(&second);
    check_end(&mut device, OTHER, 1).await;
    node.caller.finish_reply(&third);
    check_end(&mut device, TASK, 1).await;
}

#[tokio::test]
async fn turn_beyond_the_limits_is_answered_with_a_notice() {
    let node = Node::start(Config {
        turn_patience_ms: LONG_TIMEOUT_MS,
        device_max_turn_bytes: 10,
        device_max_turns: 1,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    send_message(&mut device, TASK, "01234567890").await;
    check_sentence(&mut device, TASK, "too long").await;
    let turn = ask(&node, &mut device, TASK, "0123456789").await;
    send_message(&mut device, OTHER, "more").await;
    check_sentence(&mut device, OTHER, "already").await;
    node.caller.send_text(&turn, "ten");
    check_text(&mut device, TASK, 0, "ten").await;
    node.caller.finish_reply(&turn);
    check_end(&mut device, TASK, 1).await;
    device.sync().await;
    node.metric_is("turns_total", Some("too_long"), 1.0).await;
    node.metric_is("turns_total", Some("too_many"), 1.0).await;
}

#[tokio::test]
async fn turn_rate_is_limited_per_device() {
    let node = Node::start(Config {
        turn_patience_ms: LONG_TIMEOUT_MS,
        device_turn_burst: 2,
        device_turn_every_ms: 3_600_000,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    for _ in 0..2 {
        let turn = ask(&node, &mut device, TASK, "again").await;
        node.caller.finish_reply(&turn);
        check_end(&mut device, TASK, 0).await;
    }
    send_message(&mut device, TASK, "and again").await;
    check_sentence(&mut device, TASK, "Too much is being answered").await;
    node.metric_is("turns_total", Some("too_many"), 1.0).await;
    let none = node.caller.claim_turns(1, Duration::from_millis(50)).await;
    assert!(none.unwrap().is_empty());
    // Another device has its own limit.
    let mut other = node.device("other").await;
    ask(&node, &mut other, TASK, "hello").await;
}

#[tokio::test]
async fn audio_and_unanswered_turn_end_with_a_notice() {
    let node = Node::start(Config {
        turn_patience_ms: 50,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    device.send(Kind::Audio, TASK, 0, "你好".as_bytes()).await;
    device.send(Kind::End, TASK, 1, b"").await;
    check_sentence(&mut device, TASK, "no conversation service").await;
    send_message(&mut device, TASK, "你好").await;
    check_sentence(&mut device, TASK, "这里没有对话服务").await;
    // No worker receives the turn after the device was notified.
    node.metric_is("turns_total", Some("unanswered"), 1.0).await;
    let none = node.caller.claim_turns(1, Duration::from_millis(50)).await;
    assert!(none.unwrap().is_empty());
}

#[tokio::test]
async fn keep_alive_extends_the_answer_timeout() {
    const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
    let node = Node::start(Config {
        turn_patience_ms: ANSWER_TIMEOUT.as_secs() * 1_000,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    let turn = ask(&node, &mut device, TASK, "think").await;
    // Longer than the timeout without a keep-alive.
    let started = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while started.elapsed() < ANSWER_TIMEOUT + Duration::from_secs(1) {
        ticks.tick().await;
        let kept = node.caller.renew_turns(std::slice::from_ref(&turn.id));
        kept.await.unwrap();
    }
    node.caller.send_text(&turn, "Well");
    check_text(&mut device, TASK, 0, "Well").await;
    let broken = device.expect(Kind::Text).await;
    assert_eq!(broken.seq, 1);
    assert!(
        String::from_utf8(broken.payload)
            .unwrap()
            .contains("broke off")
    );
    check_end(&mut device, TASK, 2).await;
    node.metric_is("turns_total", Some("broken_off"), 1.0).await;
}

#[tokio::test]
async fn reconnected_device_receives_no_old_answer() {
    let node = start().await;
    let mut device = node.device("toy").await;
    let mut stops = node.caller.turn_cancellations();
    let old = ask(&node, &mut device, TASK, "one").await;
    drop(device);
    let stop = timeout(TEST_TIMEOUT, stops.next()).await.unwrap();
    assert_eq!((stop.task, stop.reason), (None, CancelReason::Unwanted));
    assert!(stop.applies_to(&old));
    node.metric_is("turns_total", Some("gone"), 1.0).await;
    let mut device = node.device("toy").await;
    let new = ask(&node, &mut device, TASK, "two").await;
    assert!(new.epoch > old.epoch);
    node.caller.send_text(&old, "one");
    node.caller.finish_reply(&old);
    node.caller.send_text(&new, "two");
    check_text(&mut device, TASK, 0, "two").await;
    node.caller.finish_reply(&new);
    check_end(&mut device, TASK, 1).await;
}

#[tokio::test]
async fn answered_device_disconnects_without_notification() {
    let node = start().await;
    let mut stops = node.caller.turn_cancellations();
    for is_sending in [false, true] {
        let mut device = node.device("toy").await;
        let turn = ask(&node, &mut device, TASK, "one").await;
        node.caller.send_text(&turn, "1");
        node.caller.finish_reply(&turn);
        check_text(&mut device, TASK, 0, "1").await;
        check_end(&mut device, TASK, 1).await;
        if is_sending {
            // An incomplete message is not a turn.
            device.send(Kind::Text, OTHER, 0, b"and").await;
            device.sync().await;
        }
        drop(device);
        eventually_true("the device is disconnected", || {
            node.metric("connections", None) < 0.5
        })
        .await;
        node.caller.send_text(&turn, "late text");
        let stop = timeout(TEST_TIMEOUT, stops.next()).await.unwrap();
        assert_eq!(
            stop.task,
            Some(TASK.0),
            "only the worker that answers is notified: {stop:?}"
        );
    }
    // A device that is being answered is reported to the worker.
    let mut device = node.device("toy").await;
    ask(&node, &mut device, TASK, "two").await;
    drop(device);
    let stop = timeout(TEST_TIMEOUT, stops.next()).await.unwrap();
    assert_eq!(stop.task, None);
    node.metric_is("turns_total", Some("gone"), 1.0).await;
}

#[tokio::test]
async fn takeover_by_another_worker_restarts_the_answer() {
    let node = start().await;
    let mut device = node.device("toy").await;
    let lost = ask(&node, &mut device, TASK, "How is the weather?").await;
    node.caller.send_text(&lost, "It is sunny to");
    check_text(&mut device, TASK, 0, "It is sunny to").await;
    let taken = node
        .caller
        .claim_turns(1, TURN_LEASE + TEST_TIMEOUT)
        .await
        .unwrap();
    let [again] = &taken[..] else {
        panic!("{taken:?}");
    };
    node.caller.send_text(again, "It is sunny");
    node.caller.send_text(&lost, "day.");
    node.caller.send_text(again, " today.");
    node.caller.finish_reply(again);
    let mut text = String::new();
    loop {
        let frame = device.next().await.unwrap();
        if frame.kind == Kind::End {
            break;
        }
        text.push_str(str::from_utf8(&frame.payload).unwrap());
    }
    let expected = "\nI was interrupted; once more:\nIt is sunny today.";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn turn_queued_after_its_refusal_is_cancelled() {
    let redis = RedisServer::start();
    let config = Config {
        turn_patience_ms: LONG_TIMEOUT_MS,
        ..Config::default()
    };
    let node = Node::start_over(&redis.url(), config).await;
    let mut device = node.device("toy").await;
    let mut stops = node.caller.turn_cancellations();
    redis.pause();
    send_message(&mut device, TASK, "late").await;
    check_sentence(&mut device, TASK, "cannot be reached").await;
    redis.resume();
    node.bus.wait_ready(TEST_TIMEOUT).await.unwrap();
    node.caller.wait_ready(TEST_TIMEOUT).await.unwrap();
    let late = take_after_outage(&node.caller).await;
    assert_eq!(late.text, "late");
    let next = ask(&node, &mut device, TASK, "next").await;
    node.caller.send_text(&late, "la");
    node.caller.send_text(&next, "yes");
    check_text(&mut device, TASK, 0, "yes").await;
    let stop = timeout(TEST_TIMEOUT, stops.next()).await.unwrap();
    assert!(stop.applies_to(&late) && !stop.applies_to(&next));
    node.caller.finish_reply(&next);
    check_end(&mut device, TASK, 1).await;
}

/// Takes a turn from a bus that may still be recovering.
async fn take_after_outage(chat: &Bus) -> Turn {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let taken = chat.claim_turns(1, Duration::from_millis(50)).await;
        if let Some(turn) = taken.unwrap_or_default().pop() {
            return turn;
        }
        assert!(Instant::now() < deadline, "no turn in time");
    }
}

#[tokio::test]
async fn device_with_too_much_unread_answer_is_closed() {
    let node = Node::start(Config {
        turn_patience_ms: LONG_TIMEOUT_MS,
        device_max_unsent_bytes: 65_536,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    let turn = ask(&node, &mut device, TASK, "everything").await;
    let piece = "x".repeat(32_768);
    eventually_true("the device is closed", || {
        node.caller.send_text(&turn, &piece);
        node.metric("left_total", Some("slow_reader")) > 0.5
    })
    .await;
    drop(device);
}
