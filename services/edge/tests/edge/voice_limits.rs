//! Bad and excessive input of spoken conversations, as docs/protocol.md lists it.

use std::time::Duration;

use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::eventually::{eventually, eventually_true};
use tokio::net::TcpSocket;

use crate::{
    device::{Device, Frame},
    voice::{
        FRAME_BYTES, FRAME_MS, Fixture, LONG_ANSWER, RATE, TASK, receive_answer, receive_until,
        recording, send_voice, speak, voice_with,
    },
    voice_tasks::{OTHER, ended},
};

/// The kernel takes a megabyte and more of an answer that is not read, at 96 kB/s.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Frames of a recording that are speech.
const WORD: usize = 12;

async fn problem(device: &mut Device) -> Value {
    voice_with(device, "problem").await["problem"].clone()
}

#[tokio::test]
async fn invalid_audio_has_an_answer_and_the_connection_stays() {
    let fixture = Fixture::start("cat > /dev/null; echo hello").await;
    let opus = json!({"in": {"codec": "opus", "rate": RATE, "frame_ms": FRAME_MS}});
    let (mut device, _) = fixture.device("opus", &opus).await;
    // The length of a packet that no packet has.
    device.send(Kind::Audio, TASK, 0, &[0x10, 0, 1]).await;
    assert_eq!(problem(&mut device).await, "bad_audio");
    // Fifty packets that are no Opus.
    device
        .send(Kind::Audio, TASK, 1, &[0, 2, 3, 0].repeat(50))
        .await;
    assert_eq!(problem(&mut device).await, "bad_audio");
    // The message ends within a packet.
    device.send(Kind::Audio, TASK, 2, &[0, 9, 1]).await;
    device.send(Kind::End, TASK, 3, b"").await;
    assert_eq!(problem(&mut device).await, "bad_audio");
    device.send(Kind::Ping, TASK, 0, b"there?").await;
    device.expect(Kind::Pong).await;

    let (mut device, _) = fixture.device("pcm", &json!({})).await;
    // Five seconds at once.
    device
        .send(Kind::Audio, TASK, 0, &vec![0; 5 * 2 * RATE])
        .await;
    assert_eq!(problem(&mut device).await, "too_fast");
    // Ignored: a stop without a start, and reports of what was played.
    send_voice(&mut device, &json!({"listen": "stop"})).await;
    send_voice(&mut device, &json!({"played_ms": 5})).await;
    send_voice(&mut device, &json!({"wake": "x".repeat(10_000)})).await;
    send_voice(
        &mut device,
        &json!({"listen": "start", "mode": "telepathy"}),
    )
    .await;
    send_voice(&mut device, &json!({"listen": "start", "mode": "manual"})).await;
    device.send(Kind::Voice, TASK, 0, b"{}").await;
    let mut frame = device.next().await.expect("a frame");
    while frame.kind == Kind::Voice {
        frame = device.next().await.expect("a frame");
    }
    let rejected = frame.json();
    assert_eq!(rejected["data"]["call_id"], "voice", "{rejected}");
    fixture.no_turn().await;
}

#[tokio::test]
async fn offer_that_does_not_fit_is_explained_and_audio_is_not_needed() {
    let fixture = Fixture::start("cat > /dev/null; echo hello").await;
    let check = async |terms: Value, expect: &str| {
        let (_, accepted) = fixture.device("toy", &terms).await;
        assert_eq!(accepted.get("audio"), None, "{accepted}");
        let notice = accepted["audio_notice"].as_str().unwrap();
        assert!(notice.contains(expect), "{notice}");
    };
    check(
        json!({"in": {"codec": "mp3", "rate": RATE}}),
        "unknown variant `mp3`",
    )
    .await;
    check(
        json!({"out": {"codec": "opus", "rate": 44_100}}),
        "client.audio.out",
    )
    .await;
    check(json!({"in": null}), "client.audio").await;
    // Without an offer, VOICE has no effect, and audio is answered as before.
    let mut device = fixture.node.device("other").await;
    send_voice(&mut device, &json!({"listen": "start"})).await;
    device.send(Kind::Audio, TASK, 0, b"sound").await;
    device.send(Kind::End, TASK, 1, b"").await;
    let answer = device.expect(Kind::Text).await;
    let notice = b"There is no conversation service for sound here.";
    assert!(answer.payload.starts_with(notice));
    device.expect(Kind::End).await;
    fixture.no_turn().await;
}

#[tokio::test]
async fn conversation_beyond_the_share_is_refused_and_leaves_room_for_others() {
    let fixture = Fixture::with("cat > /dev/null; echo hello", |config| {
        config.voice_max_sessions = 4
    })
    .await;
    let (mut first, _) = fixture.device("first", &json!({})).await;
    send_voice(&mut first, &json!({"listen": "start"})).await;
    first
        .send(Kind::Audio, TASK, 0, &recording()[..40_000])
        .await;
    assert_eq!(voice_with(&mut first, "state").await["state"], "heard");
    let (mut second, _) = fixture.device("second", &json!({})).await;
    second.send(Kind::Audio, TASK, 0, &[0; 100]).await;
    assert_eq!(problem(&mut second).await, "overloaded");
    second.send(Kind::End, TASK, 1, b"").await;
    // Each message has one END, also one that ends in two ways. Its picture is dropped.
    for task in [TASK, OTHER] {
        second.send(Kind::Audio, task, 0, &[0; 100]).await;
        second.send(Kind::Picture, task, 1, b"\x89PNG").await;
        let stop = json!({"listen": "stop"}).to_string();
        second.send(Kind::Voice, task, 0, stop.as_bytes()).await;
        second.send(Kind::End, task, 2, b"").await;
    }
    let mut received = Vec::new();
    while ended(&received).last() != Some(&OTHER) {
        received.push(second.next().await.expect("a frame"));
    }
    assert_eq!(ended(&received), [TASK, TASK, OTHER]);
    let voice = received.iter().filter(|frame| frame.kind == Kind::Voice);
    let problems = voice.map(|frame| frame.json()["problem"].clone());
    assert_eq!(problems.collect::<Vec<_>>(), ["overloaded"; 3]);
    let is_free = || fixture.node.budget_used("device_messages") == 0;
    eventually_true("the pictures are dropped", is_free).await;
}

#[tokio::test]
async fn half_a_sample_waits_for_the_other_half() {
    let whole = "test $(($(wc -c) % 2)) -eq 0 && echo whole";
    let fixture = Fixture::start(whole).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let mut audio = recording();
    audio.truncate(15 * FRAME_BYTES);
    let mut seq = 0;
    for piece in audio.chunks(FRAME_BYTES + 1) {
        device.send(Kind::Audio, TASK, seq, piece).await;
        seq += 1;
    }
    device.send(Kind::End, TASK, seq, b"").await;
    let turn = fixture.turn().await;
    assert_eq!(&*turn.text, "whole");
    fixture.node.caller.finish_reply(&turn);
    receive_answer(&mut device).await;
    // A message that ends within a sample has no answer.
    device.send(Kind::Audio, TASK, 0, &audio[..321]).await;
    device.send(Kind::End, TASK, 1, b"").await;
    assert_eq!(problem(&mut device).await, "bad_audio");
    assert_eq!(receive_answer(&mut device).await, 0);
    fixture.no_turn().await;
}

#[tokio::test]
async fn device_that_is_too_fast_is_ignored_until_it_is_not() {
    let fixture = Fixture::start("cat > /dev/null; echo hello").await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let too_fast = vec![0; 5 * 2 * RATE];
    device.send(Kind::Audio, TASK, 0, &too_fast).await;
    assert_eq!(problem(&mut device).await, "too_fast");
    // Neither an END nor `listen` starts anew: nothing of this is analysed.
    device.send(Kind::End, TASK, 1, b"").await;
    assert_eq!(receive_answer(&mut device).await, 0);
    send_voice(&mut device, &json!({"listen": "start"})).await;
    device.send(Kind::Audio, TASK, 0, &recording()).await;
    device.send(Kind::End, TASK, 1, b"").await;
    assert_eq!(receive_answer(&mut device).await, 0);
    // 5 s of audio take 3.4 s at 1.5 times their rate.
    let mut received = Vec::new();
    let silence = vec![0; 60 * FRAME_BYTES];
    let seq = speak(&mut device, 0, &silence, &mut received).await;
    let seq = speak(&mut device, seq, &recording(), &mut received).await;
    device.send(Kind::End, TASK, seq, b"").await;
    assert_eq!(&*fixture.turn().await.text, "hello");
}

#[tokio::test]
async fn utterances_are_limited_in_number() {
    let fixture = Fixture::start("cat > /dev/null").await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let speech = recording();
    let word = &speech[10 * FRAME_BYTES..15 * FRAME_BYTES];
    let (mut received, mut answered) = (Vec::new(), 0);
    loop {
        let seq = speak(&mut device, 0, word, &mut received).await;
        device.send(Kind::End, TASK, seq, b"").await;
        receive_until(&mut device, Kind::End, &mut received).await;
        let is_problem =
            |frame: Frame| frame.kind == Kind::Voice && frame.json()["problem"] == "too_many";
        if received.drain(..).any(is_problem) {
            break;
        }
        answered += 1;
    }
    // Every 3 s there is another one.
    assert!((20..30).contains(&answered), "{answered}");
}

#[tokio::test]
async fn words_that_recognisers_invent_for_noise_are_dropped() {
    let fixture = Fixture::start("cat > /dev/null; echo Thank you.").await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let speech = recording();
    let word = &speech[10 * FRAME_BYTES..(10 + WORD) * FRAME_BYTES];
    let mut received = Vec::new();
    // Mostly speech: a person said it.
    let seq = speak(&mut device, 0, word, &mut received).await;
    device.send(Kind::End, TASK, seq, b"").await;
    let turn = fixture.turn().await;
    assert_eq!(&*turn.text, "Thank you.");
    fixture.node.caller.finish_reply(&turn);
    receive_answer(&mut device).await;
    // Mostly silence.
    let silence = vec![0; 6 * WORD * FRAME_BYTES];
    let audio = [word, &silence, word].concat();
    let seq = speak(&mut device, 0, &audio, &mut received).await;
    device.send(Kind::End, TASK, seq, b"").await;
    assert_eq!(receive_answer(&mut device).await, 0);
    fixture.no_turn().await;
}

#[tokio::test]
async fn device_that_does_not_read_loses_the_rest_of_the_answer() {
    let fixture = Fixture::start("cat > /dev/null; echo tell me").await;
    let socket = TcpSocket::new_v4().unwrap();
    // With a larger one, the kernels of both sides take megabytes.
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let mut device = Device::over(socket.connect(fixture.node.addr).await.unwrap());
    let terms = json!({
        "listen": "manual",
        "out": {"codec": "pcm_s16le", "rate": 48_000, "frame_ms": 100},
    });
    fixture.authenticate(&mut device, "toy", &terms).await;
    let mut audio = recording();
    audio.truncate(30 * FRAME_BYTES);
    device.send(Kind::Audio, TASK, 0, &audio).await;
    device.send(Kind::End, TASK, 1, b"").await;
    let (turn, caller) = (fixture.turn().await, &fixture.node.caller);
    caller.send_text(&turn, &LONG_ANSWER.repeat(20));
    caller.finish_reply(&turn);
    let late = async || {
        fixture
            .node
            .sum("switchboard_voice_answers_late_total", None)
    };
    eventually(UNREAD_TIMEOUT, late, |late| *late > 0.0).await;
    // The connection stays.
    device.send(Kind::Ping, TASK, 0, b"there?").await;
    while device.next().await.expect("a frame").kind != Kind::Pong {}
}
