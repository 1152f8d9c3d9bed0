//! What a device says, over its socket: handed over once it is whole, answered frame by frame.

use std::time::{Duration, Instant};

use switchboard_bus::{Bus, StopReason, TURN_LEASE, Turn};
use switchboard_edge::Config;
use switchboard_protocol::frame::{Kind, TaskId};
use tokio::time::timeout;

use crate::{
    device::Device,
    node::{Node, SOON, eventually},
    redis_server::RedisServer,
};

const TASK: TaskId = TaskId(*b"task0001");
const OTHER: TaskId = TaskId(*b"task0002");
/// Longer than any test takes.
const PATIENT: u64 = 3_600_000;

async fn start() -> Node {
    Node::start(Config {
        turn_patience_ms: PATIENT,
        ..Config::default()
    })
    .await
}

async fn say(device: &mut Device, task: TaskId, words: &str) {
    device.send(Kind::Text, task, 0, words.as_bytes()).await;
    device.send(Kind::End, task, 1, b"").await;
}

async fn take(chat: &Bus) -> Turn {
    let mut turns = chat.take_turns(1, SOON).await.unwrap();
    assert_eq!(turns.len(), 1, "a turn in time");
    turns.remove(0)
}

/// Asks and has it taken.
async fn ask(node: &Node, device: &mut Device, task: TaskId, words: &str) -> Turn {
    say(device, task, words).await;
    let turn = take(&node.caller).await;
    assert_eq!((turn.task, &*turn.text), (task.0, words));
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

/// An answer of one sentence that nobody else gave.
async fn check_sentence(device: &mut Device, task: TaskId, part: &str) {
    let frame = device.expect(Kind::Text).await;
    assert_eq!((frame.task, frame.seq), (task, 0));
    let said = String::from_utf8(frame.payload).unwrap();
    assert!(said.contains(part), "{said}");
    check_end(device, task, 1).await;
}

#[tokio::test]
async fn words_become_a_turn_and_pieces_become_frames() {
    let node = start().await;
    let mut toy = node.device("toy").await;
    for (seq, piece) in ["What ", "time", " is it? ##", "END"].iter().enumerate() {
        let seq = u16::try_from(seq).unwrap();
        toy.send(Kind::Text, TASK, seq, piece.as_bytes()).await;
    }
    toy.send(Kind::End, TASK, 4, b"").await;
    let turn = take(&node.caller).await;
    assert_eq!(turn.text, "What time is it? ##END");
    assert_eq!(
        (turn.device.clone(), turn.task),
        (node.device_key("toy"), TASK.0)
    );
    assert_eq!(&turn.node, node.bus.node());
    node.caller.say(&turn, "It is ");
    check_text(&mut toy, TASK, 0, "It is ").await;
    node.caller.say(&turn, "现在几点##END");
    check_text(&mut toy, TASK, 1, "现在几点##").await;
    check_text(&mut toy, TASK, 2, "END").await;
    node.caller.finish(&turn);
    check_end(&mut toy, TASK, 3).await;
    node.caller.end_turn(&turn.id).await.unwrap();
    // The task may be used again, and begins anew.
    let turn = ask(&node, &mut toy, TASK, "again").await;
    node.caller.say(&turn, "yes");
    check_text(&mut toy, TASK, 0, "yes").await;
    node.caller.finish(&turn);
    check_end(&mut toy, TASK, 1).await;
    node.metric_is("turns_total", Some("answered"), 2.0).await;
}

#[tokio::test]
async fn i12_a_piece_larger_than_a_frame_is_split_between_characters() {
    let node = Node::start(Config {
        device_max_frame_bytes: 1_024,
        turn_patience_ms: PATIENT,
        ..Config::default()
    })
    .await;
    let mut toy = node.device("toy").await;
    let turn = ask(&node, &mut toy, TASK, "a long story").await;
    let story = "从前有座山".repeat(400);
    node.caller.say(&turn, &story);
    node.caller.finish(&turn);
    let (mut told, mut seq) = (String::new(), 0);
    loop {
        let frame = toy.next().await.unwrap();
        assert_eq!((frame.task, frame.seq), (TASK, seq));
        if frame.kind == Kind::End {
            break;
        }
        assert!(frame.payload.len() <= 1_024);
        told.push_str(str::from_utf8(&frame.payload).unwrap());
        seq += 1;
    }
    assert_eq!(told, story);
    assert!(seq >= 6);
}

#[tokio::test]
async fn a_cancelled_answer_ends_at_once_and_whoever_gives_it_is_told() {
    let node = start().await;
    let mut toy = node.device("toy").await;
    let mut stops = node.caller.stops();
    let turn = ask(&node, &mut toy, TASK, "sing").await;
    node.caller.say(&turn, "la");
    check_text(&mut toy, TASK, 0, "la").await;
    toy.send(Kind::Cancel, TASK, 0, b"").await;
    check_end(&mut toy, TASK, 1).await;
    let stop = timeout(SOON, stops.next()).await.unwrap();
    assert_eq!((stop.task, stop.why), (Some(TASK.0), StopReason::Unwanted));
    assert!(stop.concerns(&turn));
    assert!(!node.caller.turn_acted(&turn.id).await.unwrap());
    // What is still said comes to nobody, not even to the next turn of the same task.
    let next = ask(&node, &mut toy, TASK, "speak").await;
    assert!(!stop.concerns(&next));
    node.caller.say(&turn, "la");
    node.caller.say(&next, "hello");
    check_text(&mut toy, TASK, 0, "hello").await;
    // A message that was cancelled before it was whole is ended, and nobody hears of it.
    toy.send(Kind::Text, OTHER, 0, b"never").await;
    toy.send(Kind::Cancel, OTHER, 0, b"").await;
    toy.send(Kind::Text, OTHER, 1, b" mind").await;
    toy.send(Kind::End, OTHER, 2, b"").await;
    check_end(&mut toy, OTHER, 0).await;
    let none = node.caller.take_turns(1, Duration::from_millis(50)).await;
    assert!(none.unwrap().is_empty());
    node.metric_is("turns_total", Some("cancelled"), 2.0).await;
}

#[tokio::test]
async fn two_tasks_are_answered_at_a_time_and_a_task_says_one_thing_at_a_time() {
    let node = start().await;
    let mut toy = node.device("toy").await;
    let first = ask(&node, &mut toy, TASK, "one").await;
    let second = ask(&node, &mut toy, OTHER, "two").await;
    node.caller.say(&second, "2");
    check_text(&mut toy, OTHER, 0, "2").await;
    node.caller.say(&first, "1");
    check_text(&mut toy, TASK, 0, "1").await;
    // Something else on the first task ends what was being said there.
    let third = ask(&node, &mut toy, TASK, "three").await;
    check_end(&mut toy, TASK, 1).await;
    node.caller.say(&first, "1");
    node.caller.say(&third, "3");
    check_text(&mut toy, TASK, 0, "3").await;
    node.caller.finish(&second);
    check_end(&mut toy, OTHER, 1).await;
    node.caller.finish(&third);
    check_end(&mut toy, TASK, 1).await;
}

#[tokio::test]
async fn what_is_too_much_is_answered_with_a_sentence_and_the_connection_stays() {
    let node = Node::start(Config {
        turn_patience_ms: PATIENT,
        device_max_turn_bytes: 10,
        device_max_turns: 1,
        ..Config::default()
    })
    .await;
    let mut toy = node.device("toy").await;
    say(&mut toy, TASK, "01234567890").await;
    check_sentence(&mut toy, TASK, "too long").await;
    let turn = ask(&node, &mut toy, TASK, "0123456789").await;
    say(&mut toy, OTHER, "more").await;
    check_sentence(&mut toy, OTHER, "already").await;
    node.caller.say(&turn, "ten");
    check_text(&mut toy, TASK, 0, "ten").await;
    node.caller.finish(&turn);
    check_end(&mut toy, TASK, 1).await;
    toy.settled().await;
    node.metric_is("turns_total", Some("too_long"), 1.0).await;
    node.metric_is("turns_total", Some("too_many"), 1.0).await;
}

#[tokio::test]
async fn who_asks_too_often_is_asked_to_wait_whoever_has_answered_by_then() {
    let node = Node::start(Config {
        turn_patience_ms: PATIENT,
        device_turn_burst: 2,
        device_turn_every_ms: 3_600_000,
        ..Config::default()
    })
    .await;
    let mut toy = node.device("toy").await;
    for _ in 0..2 {
        let turn = ask(&node, &mut toy, TASK, "again").await;
        node.caller.finish(&turn);
        check_end(&mut toy, TASK, 0).await;
    }
    say(&mut toy, TASK, "and again").await;
    check_sentence(&mut toy, TASK, "Too much is being answered").await;
    node.metric_is("turns_total", Some("too_many"), 1.0).await;
    let none = node.caller.take_turns(1, Duration::from_millis(50)).await;
    assert!(none.unwrap().is_empty());
    // Another device has its own.
    let mut other = node.device("other").await;
    ask(&node, &mut other, TASK, "hello").await;
}

#[tokio::test]
async fn a_sound_and_a_turn_that_nobody_takes_are_answered_in_plain_words() {
    let node = Node::start(Config {
        turn_patience_ms: 50,
        ..Config::default()
    })
    .await;
    let mut toy = node.device("toy").await;
    toy.send(Kind::Audio, TASK, 0, "你好".as_bytes()).await;
    toy.send(Kind::End, TASK, 1, b"").await;
    check_sentence(&mut toy, TASK, "no conversation service").await;
    say(&mut toy, TASK, "你好").await;
    check_sentence(&mut toy, TASK, "no conversation service").await;
    // Nobody acts for it once the device was told so.
    node.metric_is("turns_total", Some("unanswered"), 1.0).await;
    let none = node.caller.take_turns(1, Duration::from_millis(50)).await;
    assert!(none.unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_goes_on_as_long_as_its_giver_lives_and_is_broken_off_when_he_died() {
    const PATIENCE: Duration = Duration::from_secs(5);
    let node = Node::start(Config {
        turn_patience_ms: PATIENCE.as_secs() * 1_000,
        ..Config::default()
    })
    .await;
    let mut toy = node.device("toy").await;
    let turn = ask(&node, &mut toy, TASK, "think").await;
    // Longer than it is waited for without a sign.
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while begun.elapsed() < PATIENCE + Duration::from_secs(1) {
        ticks.tick().await;
        let kept = node.caller.keep_turns(std::slice::from_ref(&turn.id));
        kept.await.unwrap();
    }
    node.caller.say(&turn, "Well");
    check_text(&mut toy, TASK, 0, "Well").await;
    let broken = toy.expect(Kind::Text).await;
    assert_eq!(broken.seq, 1);
    assert!(
        String::from_utf8(broken.payload)
            .unwrap()
            .contains("broke off")
    );
    check_end(&mut toy, TASK, 2).await;
    node.metric_is("turns_total", Some("broken_off"), 1.0).await;
}

#[tokio::test]
async fn a_device_that_comes_back_hears_nothing_of_what_it_asked_before() {
    let node = start().await;
    let mut toy = node.device("toy").await;
    let mut stops = node.caller.stops();
    let old = ask(&node, &mut toy, TASK, "one").await;
    drop(toy);
    let stop = timeout(SOON, stops.next()).await.unwrap();
    assert_eq!((stop.task, stop.why), (None, StopReason::Unwanted));
    assert!(stop.concerns(&old));
    node.metric_is("turns_total", Some("gone"), 1.0).await;
    let mut toy = node.device("toy").await;
    let new = ask(&node, &mut toy, TASK, "two").await;
    assert!(new.epoch > old.epoch);
    node.caller.say(&old, "one");
    node.caller.finish(&old);
    node.caller.say(&new, "two");
    check_text(&mut toy, TASK, 0, "two").await;
    node.caller.finish(&new);
    check_end(&mut toy, TASK, 1).await;
}

#[tokio::test]
async fn nobody_is_told_of_a_device_that_goes_with_its_answer() {
    let node = start().await;
    let mut stops = node.caller.stops();
    for is_speaking in [false, true] {
        let mut toy = node.device("toy").await;
        let turn = ask(&node, &mut toy, TASK, "one").await;
        node.caller.say(&turn, "1");
        node.caller.finish(&turn);
        check_text(&mut toy, TASK, 0, "1").await;
        check_end(&mut toy, TASK, 1).await;
        if is_speaking {
            // A message that is not whole is nothing that anybody answers.
            toy.send(Kind::Text, OTHER, 0, b"and").await;
            toy.settled().await;
        }
        drop(toy);
        eventually("it has left", || node.metric("connections", None) < 0.5).await;
        node.caller.say(&turn, "is anybody there?");
        let stop = timeout(SOON, stops.next()).await.unwrap();
        assert_eq!(stop.task, Some(TASK.0), "only who speaks is told: {stop:?}");
    }
    // One that is answered is told of.
    let mut toy = node.device("toy").await;
    ask(&node, &mut toy, TASK, "two").await;
    drop(toy);
    let stop = timeout(SOON, stops.next()).await.unwrap();
    assert_eq!(stop.task, None);
    node.metric_is("turns_total", Some("gone"), 1.0).await;
}

#[tokio::test]
async fn who_answers_in_place_of_one_who_died_says_so_before_it_begins_again() {
    let node = start().await;
    let mut toy = node.device("toy").await;
    let dead = ask(&node, &mut toy, TASK, "How is the weather?").await;
    node.caller.say(&dead, "It is sunny to");
    check_text(&mut toy, TASK, 0, "It is sunny to").await;
    let taken = node.caller.take_turns(1, TURN_LEASE + SOON).await.unwrap();
    let [again] = &taken[..] else {
        panic!("{taken:?}");
    };
    node.caller.say(again, "It is sunny");
    node.caller.say(&dead, "day.");
    node.caller.say(again, " today.");
    node.caller.finish(again);
    let mut said = String::new();
    loop {
        let frame = toy.next().await.unwrap();
        if frame.kind == Kind::End {
            break;
        }
        said.push_str(str::from_utf8(&frame.payload).unwrap());
    }
    let expected = "\nI was interrupted; once more:\nIt is sunny today.";
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_turn_that_redis_took_too_late_is_answered_to_nobody_and_stopped() {
    let redis = RedisServer::start();
    let config = Config {
        turn_patience_ms: PATIENT,
        ..Config::default()
    };
    let node = Node::start_over(&redis.url(), config).await;
    let mut toy = node.device("toy").await;
    let mut stops = node.caller.stops();
    redis.pause();
    say(&mut toy, TASK, "late").await;
    check_sentence(&mut toy, TASK, "can not be reached").await;
    redis.resume();
    node.bus.ready(SOON).await.unwrap();
    node.caller.ready(SOON).await.unwrap();
    let late = take_after_trouble(&node.caller).await;
    assert_eq!(late.text, "late");
    let next = ask(&node, &mut toy, TASK, "next").await;
    node.caller.say(&late, "la");
    node.caller.say(&next, "yes");
    check_text(&mut toy, TASK, 0, "yes").await;
    let stop = timeout(SOON, stops.next()).await.unwrap();
    assert!(stop.concerns(&late) && !stop.concerns(&next));
    node.caller.finish(&next);
    check_end(&mut toy, TASK, 1).await;
}

/// A turn, from a bus that may have to find its way back first.
async fn take_after_trouble(chat: &Bus) -> Turn {
    let deadline = Instant::now() + SOON;
    loop {
        let taken = chat.take_turns(1, Duration::from_millis(50)).await;
        if let Some(turn) = taken.unwrap_or_default().pop() {
            return turn;
        }
        assert!(Instant::now() < deadline, "a turn in time");
    }
}

#[tokio::test]
async fn a_device_that_reads_nothing_is_closed_when_too_much_waits() {
    let node = Node::start(Config {
        turn_patience_ms: PATIENT,
        device_max_unsent_bytes: 65_536,
        ..Config::default()
    })
    .await;
    let mut toy = node.device("toy").await;
    let turn = ask(&node, &mut toy, TASK, "everything").await;
    let piece = "x".repeat(32_768);
    eventually("it was closed", || {
        node.caller.say(&turn, &piece);
        node.metric("left_total", Some("slow_reader")) > 0.5
    })
    .await;
    drop(toy);
}
