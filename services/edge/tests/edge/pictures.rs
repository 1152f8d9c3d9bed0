//! Pictures over the socket: they reach the worker with the words of their message, and a bad one has a
//! sentence as its answer.

use serde_json::json;
use switchboard_bus::Turn;
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::{MAX_PICTURE_BYTES, Picture},
};
use switchboard_test_support::{eventually::eventually_true, redis_server::RedisServer};

use crate::{
    device::Device,
    node::{Node, TEST_TIMEOUT},
    voice::{self, FRAME_BYTES, Fixture, receive_answer, recording, speak, speak_on},
};

const TASK: TaskId = TaskId(*b"task0001");
const OTHER: TaskId = TaskId(*b"task0002");
const BUDGET: &str = "device_messages";
/// In bytes: two frames of them fit into a picture.
const FRAME: usize = 200 * 1024;

/// The first bytes of a picture, and bytes that are no text.
fn png(bytes: usize) -> Vec<u8> {
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture.resize(bytes, 0xff);
    picture
}

/// Sends a picture as frames from this seq. Returns the seq that follows.
async fn send_picture(device: &mut Device, task: TaskId, mut seq: u16, picture: &[u8]) -> u16 {
    for piece in picture.chunks(FRAME) {
        device.send(Kind::Picture, task, seq, piece).await;
        seq += 1;
    }
    seq
}

async fn take(node: &Node) -> Turn {
    let mut turns = node.caller.claim_turns(1, TEST_TIMEOUT).await.unwrap();
    assert_eq!(turns.len(), 1, "no turn in time");
    turns.remove(0)
}

fn picture_of(turn: &Turn) -> Vec<u8> {
    let picture = turn.picture.as_ref().expect("a picture");
    picture.payload().to_vec()
}

/// Expects an answer of one sentence of the edge, or of none if `part` is empty.
async fn check_notice(device: &mut Device, part: &str) {
    let mut text = String::new();
    loop {
        let frame = device.next().await.expect("the connection stays");
        match frame.kind {
            Kind::Text => text.push_str(std::str::from_utf8(&frame.payload).unwrap()),
            kind => {
                assert_eq!(kind, Kind::End);
                break;
            }
        }
    }
    assert!(
        text.contains(part) && part.is_empty() == text.is_empty(),
        "{text:?}, not {part:?}"
    );
}

async fn nothing_waits(node: &Node) {
    eventually_true("nothing waits", || node.budget_used(BUDGET) == 0).await;
}

#[tokio::test]
async fn picture_reaches_the_worker_with_its_message() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    let picture = png(MAX_PICTURE_BYTES);
    let (first, second) = picture.split_at(FRAME);
    let seq = send_picture(&mut device, TASK, 0, first).await;
    device.send(Kind::Text, TASK, seq, b"What is ").await;
    let seq = send_picture(&mut device, TASK, seq + 1, second).await;
    device.send(Kind::Text, TASK, seq, b"this?").await;
    device.sync().await;
    assert_eq!(node.budget_used(BUDGET), picture.len() + 13);
    device.send(Kind::End, TASK, seq + 1, b"").await;
    let turn = take(&node).await;
    assert_eq!(turn.text, "What is this?");
    assert!(picture_of(&turn) == picture);
    nothing_waits(&node).await;
    // The next message of the task has none. A message may consist of a picture.
    device.send(Kind::Text, TASK, 0, b"Really?").await;
    device.send(Kind::End, TASK, 1, b"").await;
    assert_eq!(take(&node).await.picture, None);
    let id = "pic_00000000000000000000000000000007";
    device.send(Kind::Picture, TASK, 0, id.as_bytes()).await;
    device.send(Kind::End, TASK, 1, b"").await;
    let turn = take(&node).await;
    assert_eq!(turn.text, "");
    assert_eq!(turn.picture, Some(Picture::Uploaded(id.parse().unwrap())));
}

#[tokio::test]
async fn bad_picture_is_answered_with_a_sentence() {
    let node = Node::start(Config {
        device_max_turns: 1,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    for (picture, part) in [
        (png(MAX_PICTURE_BYTES + 1), "too large"),
        (
            b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(),
            "no picture",
        ),
        (b"pic_7".to_vec(), "no picture"),
        (b"\x89PN".to_vec(), "no picture"),
    ] {
        let seq = send_picture(&mut device, TASK, 0, &picture).await;
        device.send(Kind::Text, TASK, seq, b"What is this?").await;
        device.send(Kind::End, TASK, seq + 1, b"").await;
        check_notice(&mut device, part).await;
    }
    node.metric_is("turns_total", Some("bad_picture"), 4.0)
        .await;
    // A picture that is withdrawn, with its message or without it.
    device.send(Kind::Picture, TASK, 0, b"<svg/>").await;
    device.send(Kind::Picture, TASK, 1, b"").await;
    device.send(Kind::Picture, TASK, 2, &png(9)).await;
    device.send(Kind::End, TASK, 3, b"").await;
    let turn = take(&node).await;
    assert_eq!(picture_of(&turn), png(9));
    for stop in [Kind::Picture, Kind::Cancel] {
        device.send(Kind::Picture, OTHER, 0, &png(9)).await;
        device.send(stop, OTHER, 1, b"").await;
        let seq = if stop == Kind::Cancel { 1 } else { 2 };
        device.send(Kind::End, OTHER, seq, b"").await;
        check_notice(&mut device, "").await;
    }
    // While a message is refused, so is its picture.
    device.send(Kind::Picture, OTHER, 0, &png(9)).await;
    device.send(Kind::End, OTHER, 1, b"").await;
    check_notice(&mut device, "Too much is being answered").await;
    // Sound is not understood here, with a picture or without.
    device.send(Kind::Picture, OTHER, 0, &png(9)).await;
    device.send(Kind::Audio, OTHER, 1, b"\0\0").await;
    device.send(Kind::End, OTHER, 2, b"").await;
    check_notice(&mut device, "no conversation service for sound").await;
    nothing_waits(&node).await;
    // The rules of a task hold for pictures.
    device.send(Kind::Picture, OTHER, 1, &png(9)).await;
    device.expect_error("seq_gap").await;
    let mut stranger = Device::connect(node.addr).await;
    stranger.send(Kind::Picture, TASK, 0, &png(9)).await;
    stranger.expect_error("not_authenticated").await;
}

#[tokio::test]
async fn unfinished_pictures_of_one_organisation_leave_room_for_others() {
    // A share of 300 KiB.
    let node = Node::start(Config {
        device_messages_bytes: 1_200 * 1024,
        device_max_waiting_bytes: FRAME,
        ..Config::default()
    })
    .await;
    let mut first = node.device("toy-1").await;
    let picture = png(FRAME);
    send_picture(&mut first, TASK, 0, &picture).await;
    first.sync().await;
    assert_eq!(node.budget_used(BUDGET), FRAME);
    let mut second = node.device("toy-2").await;
    let (_, mut other) = node.foreign_device("toy-2").await;
    for device in [&mut second, &mut other] {
        send_picture(device, TASK, 0, &picture).await;
        device.send(Kind::End, TASK, 1, b"").await;
    }
    check_notice(&mut second, "Too much is being answered").await;
    assert!(picture_of(&take(&node).await) == picture);
    // The closed connection returns what it held.
    drop(first);
    nothing_waits(&node).await;
}

#[tokio::test]
async fn picture_is_charged_until_the_bus_has_it() {
    let redis = RedisServer::start();
    let node = Node::start_over(&redis.url(), Config::default()).await;
    let mut device = node.device("toy").await;
    redis.pause();
    let seq = send_picture(&mut device, TASK, 0, &png(FRAME)).await;
    device.send(Kind::End, TASK, seq, b"").await;
    device.sync().await;
    assert_eq!(node.budget_used(BUDGET), FRAME);
    check_notice(&mut device, "cannot be reached").await;
    nothing_waits(&node).await;
    redis.resume();
}

#[tokio::test]
async fn spoken_words_are_about_the_picture_before_them() {
    let fixture = Fixture::start("cat > /dev/null; echo go forward").await;
    let node = &fixture.node;
    let (mut device, _) = fixture.device("toy", &json!({})).await;
    let picture = png(FRAME + 1);
    let mut utterance = recording();
    utterance.extend(vec![0; 15 * FRAME_BYTES]);
    let mut received = Vec::new();
    let seq = send_picture(&mut device, voice::TASK, 0, &picture).await;
    let seq = speak(&mut device, seq, &utterance, &mut received).await;
    let turn = fixture.turn().await;
    assert_eq!((&*turn.text, turn.is_spoken), ("go forward", true));
    assert!(picture_of(&turn) == picture);
    // Words that extend the message keep its picture.
    let seq = speak(&mut device, seq, &utterance, &mut received).await;
    let turn = fixture.turn().await;
    assert_eq!(&*turn.text, "go forward go forward");
    assert!(picture_of(&turn) == picture);
    assert_eq!(node.budget_used(BUDGET), picture.len());
    node.caller.send_text(&turn, "A dog.");
    node.caller.finish_reply(&turn);
    receive_answer(&mut device).await;
    nothing_waits(node).await;
    // The next message has none, or a bad one, which is answered aloud.
    let seq = speak(&mut device, seq, &utterance, &mut received).await;
    let turn = fixture.turn().await;
    assert_eq!((&*turn.text, &turn.picture), ("go forward", &None));
    device
        .send(Kind::Picture, voice::TASK, seq, b"<svg/>")
        .await;
    node.caller.finish_reply(&turn);
    receive_answer(&mut device).await;
    received.clear();
    speak(&mut device, seq + 1, &utterance, &mut received).await;
    let voices = received.iter().filter(|frame| frame.kind == Kind::Voice);
    let said = voices.map(|frame| frame.json()["saying"].clone());
    let said = match said.into_iter().find(|saying| !saying.is_null()) {
        Some(said) => said,
        None => voice::voice_with(&mut device, "saying").await["saying"].clone(),
    };
    assert_eq!(said, "This is no picture that can be shown here.");
    fixture.no_turn().await;
}

#[tokio::test]
async fn picture_without_words_is_a_message_when_the_device_ends_it() {
    let fixture = Fixture::start("cat > /dev/null").await;
    let manual = json!({"listen": "manual"});
    let (mut device, _) = fixture.device("toy", &manual).await;
    let mut received = Vec::new();
    for sound in [vec![0; 10 * FRAME_BYTES], recording()] {
        let seq = send_picture(&mut device, voice::TASK, 0, &png(9)).await;
        let seq = speak(&mut device, seq, &sound, &mut received).await;
        device.send(Kind::End, voice::TASK, seq, b"").await;
        let turn = fixture.turn().await;
        assert_eq!((&*turn.text, turn.is_spoken), ("", true));
        assert_eq!(picture_of(&turn), png(9));
        fixture.node.caller.send_text(&turn, "A dog.");
        fixture.node.caller.finish_reply(&turn);
        assert!(receive_answer(&mut device).await > 0);
    }
}

#[tokio::test]
async fn picture_goes_with_words_that_continue_on_another_task() {
    let fixture = Fixture::start("cat > /dev/null; echo go forward").await;
    let (mut device, _) = fixture.device("toy", &json!({})).await;
    let mut utterance = recording();
    utterance.extend(vec![0; 15 * FRAME_BYTES]);
    let (half, rest) = utterance.split_at(30 * FRAME_BYTES);
    let mut received = Vec::new();
    let seq = send_picture(&mut device, voice::TASK, 0, &png(9)).await;
    let seq = speak(&mut device, seq, half, &mut received).await;
    let (first, rest) = rest.split_at(FRAME_BYTES);
    let other_seq = speak_on(&mut device, OTHER, 0, first, &mut received).await;
    // Neither the utterance nor its picture belongs to this task.
    device.send(Kind::End, voice::TASK, seq, b"").await;
    speak_on(&mut device, OTHER, other_seq, rest, &mut received).await;
    let turn = fixture.turn().await;
    assert_eq!((&*turn.text, turn.task), ("go forward", OTHER.0));
    assert_eq!(picture_of(&turn), png(9));
    fixture.no_turn().await;
}

#[tokio::test]
async fn picture_of_a_message_that_is_dropped_is_dropped_with_it() {
    let fixture = Fixture::start("cat > /dev/null; echo go forward").await;
    let manual = json!({"listen": "manual"});
    let (mut device, _) = fixture.device("toy", &manual).await;
    let mut received = Vec::new();
    let seq = send_picture(&mut device, voice::TASK, 0, &png(9)).await;
    speak(&mut device, seq, &recording(), &mut received).await;
    let start = json!({"listen": "start"}).to_string();
    device.send(Kind::Voice, OTHER, 0, start.as_bytes()).await;
    voice::receive_until(&mut device, Kind::End, &mut received).await;
    nothing_waits(&fixture.node).await;
    // The picture of the present task stays.
    let seq = send_picture(&mut device, OTHER, 0, &png(10)).await;
    device.send(Kind::Voice, OTHER, 0, start.as_bytes()).await;
    let seq = speak_on(&mut device, OTHER, seq, &recording(), &mut received).await;
    device.send(Kind::End, OTHER, seq, b"").await;
    assert_eq!(picture_of(&fixture.turn().await), png(10));
}
