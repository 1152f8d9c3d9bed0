//! Spoken messages on several tasks: which task a message, its END and its answer have.

use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, TaskId, next_seq};

use crate::{
    device::{Device, Frame},
    voice::{
        FRAME_BYTES, FRAME_MS, Fixture, LONG_ANSWER, TASK, receive_answer, receive_until,
        recording, send_voice, speak, speak_on, voice_with,
    },
};

pub const OTHER: TaskId = TaskId(*b"voice002");
const HELLO: &str = "cat > /dev/null; echo hello";

async fn send_voice_on(device: &mut Device, task: TaskId, message: &Value) {
    let payload = message.to_string();
    device.send(Kind::Voice, task, 0, payload.as_bytes()).await;
}

/// The tasks of the ENDs that were received.
pub fn ended(received: &[Frame]) -> Vec<TaskId> {
    let ends = received.iter().filter(|frame| frame.kind == Kind::End);
    ends.map(|frame| frame.task).collect()
}

#[tokio::test]
async fn manual_message_has_the_task_of_its_latest_audio() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    send_voice(&mut device, &json!({"listen": "start"})).await;
    let audio = recording();
    let (first, rest) = audio.split_at(10 * FRAME_BYTES);
    let seq = speak(&mut device, 0, first, &mut received).await;
    let other_seq = speak_on(&mut device, OTHER, 0, rest, &mut received).await;
    // The message is not this task's any more.
    device.send(Kind::End, TASK, seq, b"").await;
    fixture.no_turn().await;
    device.send(Kind::End, OTHER, other_seq, b"").await;
    let turn = fixture.turn().await;
    assert_eq!((&*turn.text, turn.task), ("hello", OTHER.0));
    fixture.node.caller.send_text(&turn, "Yes.");
    fixture.node.caller.finish_reply(&turn);
    receive_until(&mut device, Kind::End, &mut received).await;
    assert_eq!(ended(&received), [OTHER]);
}

#[tokio::test]
async fn listening_on_another_task_ends_a_message() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    speak(&mut device, 0, &recording(), &mut received).await;
    send_voice_on(&mut device, OTHER, &json!({"listen": "start"})).await;
    receive_until(&mut device, Kind::End, &mut received).await;
    assert_eq!(ended(&received), [TASK]);
    let seq = speak_on(&mut device, OTHER, 0, &recording(), &mut received).await;
    device.send(Kind::End, OTHER, seq, b"").await;
    let turn = fixture.turn().await;
    assert_eq!((&*turn.text, turn.task), ("hello", OTHER.0));
}

#[tokio::test]
async fn stop_ends_the_message_of_its_task_only() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    // There is no message yet, and later one on another task. `stop` alone ends each of two.
    send_voice(&mut device, &json!({"listen": "stop"})).await;
    let mut seq = 0;
    for _ in 0..2 {
        seq = speak(&mut device, seq, &recording(), &mut received).await;
        send_voice_on(&mut device, OTHER, &json!({"listen": "stop"})).await;
        fixture.no_turn().await;
        send_voice(&mut device, &json!({"listen": "stop"})).await;
        let turn = fixture.turn().await;
        assert_eq!((&*turn.text, turn.task), ("hello", TASK.0));
        fixture.node.caller.send_text(&turn, "Yes.");
        fixture.node.caller.finish_reply(&turn);
        receive_answer(&mut device).await;
    }
}

#[tokio::test]
async fn empty_reply_drops_nothing_of_what_is_being_said() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({})).await;
    let mut received = Vec::new();
    let mut audio = recording();
    audio.extend(vec![0; 15 * FRAME_BYTES]);
    let seq = speak(&mut device, 0, &audio, &mut received).await;
    let turn = fixture.turn().await;
    let (half, rest) = audio.split_at(20 * FRAME_BYTES);
    let seq = speak(&mut device, seq, half, &mut received).await;
    fixture.node.caller.finish_reply(&turn);
    speak(&mut device, seq, rest, &mut received).await;
    assert_eq!(&*fixture.turn().await.text, "hello hello");
    assert_eq!(ended(&received), []);
}

#[tokio::test]
async fn end_of_a_message_without_an_answer_keeps_the_seqs_of_an_answer() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "realtime"})).await;
    let mut received = Vec::new();
    let mut audio = recording();
    audio.extend(vec![0; 15 * FRAME_BYTES]);
    speak(&mut device, 0, &audio, &mut received).await;
    let turn = fixture.turn().await;
    fixture.node.caller.send_text(&turn, LONG_ANSWER);
    fixture.node.caller.finish_reply(&turn);
    voice_with(&mut device, "saying").await;
    received.clear();
    // Too short to interrupt.
    let word = &audio[10 * FRAME_BYTES..][..240 / FRAME_MS * FRAME_BYTES];
    speak_on(&mut device, OTHER, 0, word, &mut received).await;
    device.send(Kind::Cancel, OTHER, 0, b"").await;
    receive_until(&mut device, Kind::End, &mut received).await;
    assert_eq!(ended(&received), [OTHER]);
    received.push(device.next().await.expect("a frame"));
    receive_until(&mut device, Kind::End, &mut received).await;
    received.retain(|frame| frame.task == TASK && frame.kind != Kind::Voice);
    assert!(received.len() > 50, "{}", received.len());
    let seqs = received.iter().map(|frame| frame.seq);
    assert!(
        seqs.eq(std::iter::successors(Some(0), |seq| Some(next_seq(*seq))).take(received.len()))
    );
}
