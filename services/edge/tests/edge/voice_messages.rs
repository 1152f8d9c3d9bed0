//! Where spoken messages begin and end: devices that mark them, several tasks, and interruptions.

use std::time::Duration;

use serde_json::json;
use switchboard_bus::Played;
use switchboard_protocol::frame::Kind;

use crate::{
    device::{Device, Frame},
    voice::{
        FRAME_BYTES, Fixture, LONG_ANSWER, TASK, receive_answer, receive_until, recording,
        send_voice, speak, voice_with,
    },
    voice_tasks::OTHER,
};

const HELLO: &str = "cat > /dev/null; echo hello";

async fn say(device: &mut Device, received: &mut Vec<Frame>) {
    let seq = speak(device, 0, &recording(), received).await;
    device.send(Kind::End, TASK, seq, b"").await;
}

/// Checks that nothing but VOICE messages arrives for a while.
async fn silence(device: &mut Device) {
    while let Some(frame) = device.next_within(Duration::from_millis(300)).await {
        assert_eq!(frame.kind, Kind::Voice, "{frame:?}");
    }
}

#[tokio::test]
async fn message_of_a_manual_device_stops_the_answer_once() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    say(&mut device, &mut received).await;
    let turn = fixture.turn().await;
    fixture.node.caller.send_text(&turn, LONG_ANSWER);
    voice_with(&mut device, "saying").await;
    receive_until(&mut device, Kind::Audio, &mut Vec::new()).await;
    received.clear();
    say(&mut device, &mut received).await;
    // While the user speaks, the device learns that it is heard.
    let heard = json!({"state": "heard"});
    let mut voice = received.iter().filter(|frame| frame.kind == Kind::Voice);
    assert!(voice.any(|frame| frame.json() == heard));
    let next = fixture.turn().await;
    assert_eq!(&*next.text, "hello");
    let Played { message, words } = next.played.clone().expect("what was played");
    assert_eq!(message, "hello");
    assert!(words.len() < LONG_ANSWER.len() / 2, "{words}");
    fixture.node.caller.send_text(&next, "Yes.");
    fixture.node.caller.finish_reply(&next);
    receive_until(&mut device, Kind::End, &mut received).await;
    // Audio of the old answer, CANCEL and END, the new answer and its END.
    received.retain(|frame| !matches!(frame.kind, Kind::Audio | Kind::Voice));
    let kinds: Vec<Kind> = received.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [Kind::Cancel, Kind::End, Kind::End]);
}

#[tokio::test]
async fn second_end_of_a_message_is_ignored() {
    let fixture = Fixture::start("cat > /dev/null; sleep 0.5; echo hello").await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    let seq = speak(&mut device, 0, &recording(), &mut received).await;
    send_voice(&mut device, &json!({"listen": "stop"})).await;
    device.send(Kind::End, TASK, seq, b"").await;
    let turn = fixture.turn().await;
    assert_eq!(&*turn.text, "hello");
    fixture.node.caller.send_text(&turn, "Yes.");
    fixture.node.caller.finish_reply(&turn);
    assert!(receive_answer(&mut device).await > 200);
    silence(&mut device).await;
}

#[tokio::test]
async fn cancel_ends_a_message_that_is_being_recognised() {
    let fixture = Fixture::start("cat > /dev/null; sleep 1; echo hello").await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    say(&mut device, &mut received).await;
    device.send(Kind::Cancel, TASK, 0, b"").await;
    assert_eq!(receive_answer(&mut device).await, 0);
    silence(&mut device).await;
    // The next one is answered.
    say(&mut device, &mut received).await;
    assert_eq!(&*fixture.turn().await.text, "hello");
}

#[tokio::test]
async fn words_on_another_task_replace_the_turn_of_the_first() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({})).await;
    let mut received = Vec::new();
    let mut audio = recording();
    audio.extend(vec![0; 15 * FRAME_BYTES]);
    speak(&mut device, 0, &audio, &mut received).await;
    let first = fixture.turn().await;
    for (seq, frame) in (0..).zip(audio.chunks(FRAME_BYTES)) {
        device.send(Kind::Audio, OTHER, seq, frame).await;
        let tick = Duration::from_millis(50);
        received.extend(device.next_within(tick).await);
    }
    let second = fixture.turn().await;
    assert_eq!((&*second.text, second.task), ("hello hello", OTHER.0));
    fixture.node.caller.send_text(&first, "Old.");
    fixture.node.caller.send_text(&second, "New.");
    fixture.node.caller.finish_reply(&second);
    // The first message has its END, and nothing else.
    receive_until(&mut device, Kind::Audio, &mut received).await;
    let own = received.iter().filter(|frame| frame.task == TASK);
    let own: Vec<Kind> = own
        .map(|frame| frame.kind)
        .filter(|kind| *kind != Kind::Voice)
        .collect();
    assert_eq!(own, [Kind::End]);
    let mut sayings = received.iter().filter(|frame| frame.kind == Kind::Voice);
    assert!(sayings.any(|frame| frame.json()["saying"] == "New."));
}

#[tokio::test]
async fn message_without_words_leaves_the_answer_of_another_task() {
    // Only the first utterance has words.
    let once = "cat > /dev/null; test -e \"$0.done\" && exit 0; touch \"$0.done\"; echo hello";
    let fixture = Fixture::start(once).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    say(&mut device, &mut received).await;
    let turn = fixture.turn().await;
    // Two messages on another task: one that is cancelled, one without words.
    for is_cancelled in [true, false] {
        for (seq, frame) in (0..).zip(recording()[..30 * FRAME_BYTES].chunks(FRAME_BYTES)) {
            device.send(Kind::Audio, OTHER, seq, frame).await;
        }
        if is_cancelled {
            device.send(Kind::Cancel, OTHER, 0, b"").await;
        }
        device.send(Kind::End, OTHER, 30, b"").await;
        received.clear();
        receive_until(&mut device, Kind::End, &mut received).await;
        received.retain(|frame| frame.kind != Kind::Voice);
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].task, OTHER);
    }
    fixture.node.caller.send_text(&turn, "Yes.");
    fixture.node.caller.finish_reply(&turn);
    assert!(receive_answer(&mut device).await > 200);
    silence(&mut device).await;
}

#[tokio::test]
async fn written_answer_waits_until_the_user_has_finished() {
    let fixture = Fixture::start(HELLO).await;
    let terms = json!({"out": null, "listen": "manual"});
    let (mut device, _) = fixture.device("toy", &terms).await;
    let mut received = Vec::new();
    say(&mut device, &mut received).await;
    let first = fixture.turn().await;
    speak(&mut device, 0, &recording()[..FRAME_BYTES], &mut received).await;
    fixture.node.caller.send_text(&first, "Old.");
    fixture.node.caller.finish_reply(&first);
    speak(&mut device, 1, &recording(), &mut received).await;
    let seq = u16::try_from(1 + recording().len().div_ceil(FRAME_BYTES)).unwrap();
    device.send(Kind::End, TASK, seq, b"").await;
    let second = fixture.turn().await;
    assert_eq!(&*second.text, "hello hello");
    fixture.node.caller.send_text(&second, "New.");
    fixture.node.caller.finish_reply(&second);
    receive_until(&mut device, Kind::End, &mut received).await;
    let texts = received.iter().filter(|frame| frame.kind == Kind::Text);
    let texts: Vec<_> = texts.map(|frame| &frame.payload[..]).collect();
    assert_eq!(texts, [&b"New."[..]]);
}

#[tokio::test]
async fn utterance_ends_when_the_device_stops_sending() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({})).await;
    let mut received = Vec::new();
    // In the middle of a word.
    let audio = &recording()[..25 * FRAME_BYTES];
    speak(&mut device, 0, audio, &mut received).await;
    assert_eq!(&*fixture.turn().await.text, "hello");
}

/// It takes 20 s: audio must not arrive much faster than it is recorded.
#[tokio::test]
async fn message_of_more_than_thirty_seconds_is_one_turn() {
    let fixture = Fixture::start(HELLO).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let speech = recording().repeat(13);
    let mut tick = tokio::time::interval(Duration::from_millis(400));
    let mut seq = 0;
    for piece in speech.chunks(FRAME_BYTES * 9) {
        tick.tick().await;
        device.send(Kind::Audio, TASK, seq, piece).await;
        seq += 1;
    }
    device.send(Kind::End, TASK, seq, b"").await;
    let turn = fixture.turn().await;
    assert_eq!(&*turn.text, "hello hello");
    assert_eq!(turn.played, None);
    fixture.no_turn().await;
}

#[tokio::test]
async fn failure_of_a_provider_has_a_public_reason() {
    let fixture = Fixture::start("cat > /dev/null; echo secret detail >&2; exit 1").await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    say(&mut device, &mut received).await;
    let problem = voice_with(&mut device, "problem").await;
    assert_eq!(problem["problem"], "recognition_failed");
    let detail = problem["detail"].as_str().unwrap();
    assert!(!detail.contains("secret"), "{detail}");
    assert_eq!(receive_answer(&mut device).await, 0);

    let fixture = Fixture::with(HELLO, |config| {
        config.speech.tts_kind = config.speech.stt_kind;
        config.speech.tts_endpoint = Some("false".to_owned());
    })
    .await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    say(&mut device, &mut received).await;
    let turn = fixture.turn().await;
    fixture.node.caller.send_text(&turn, "One. Two. Three.");
    fixture.node.caller.finish_reply(&turn);
    let problem = voice_with(&mut device, "problem").await;
    assert_eq!(problem["problem"], "synthesis_failed");
    assert_eq!(receive_answer(&mut device).await, 0);
    silence(&mut device).await;
}

#[tokio::test]
async fn notice_that_nothing_is_recognised_is_the_answer() {
    let fixture = Fixture::with(HELLO, |config| config.speech.stt_kind = None).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut received = Vec::new();
    say(&mut device, &mut received).await;
    let problem = voice_with(&mut device, "problem").await;
    assert_eq!(problem["problem"], "no_speech_provider");
    assert!(receive_answer(&mut device).await > 3_000);
    silence(&mut device).await;
    // It can be cancelled.
    say(&mut device, &mut received).await;
    receive_until(&mut device, Kind::Audio, &mut Vec::new()).await;
    device.send(Kind::Cancel, TASK, 0, b"").await;
    receive_until(&mut device, Kind::Cancel, &mut Vec::new()).await;
    fixture.no_turn().await;
}
