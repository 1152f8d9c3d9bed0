//! Spoken conversations over the socket: recordings of a person in, frames of the answer out. Programs
//! recognise and speak.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use switchboard_bus::{Played, SpeakingStyle, Turn};
use switchboard_edge::Config;
use switchboard_protocol::frame::{Kind, TaskId, next_seq};
use switchboard_speech::ProviderKind;
use tempfile::TempDir;
use tokio::time::{Instant, interval};

use crate::{
    device::{Device, Frame},
    node::{Node, TEST_TIMEOUT},
};

pub const TASK: TaskId = TaskId(*b"voice001");
pub const RATE: usize = 16_000;
pub const FRAME_MS: usize = 60;
pub const FRAME_BYTES: usize = 2 * RATE / 1_000 * FRAME_MS;
/// Long enough that audio is sent while it is interrupted.
pub const LONG_ANSWER: &str = "This is the first of several long sentences that nobody has to hear to their end. \
    Here is another one that goes on and on for quite a while. And a third one follows after that. ";

/// An edge whose recogniser is a script, which reads samples and prints words.
pub struct Fixture {
    pub node: Node,
    _folder: TempDir,
}

impl Fixture {
    pub async fn start(recognizer: &str) -> Self {
        Self::with(recognizer, |_| {}).await
    }

    pub async fn with(recognizer: &str, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("recognize.sh");
        fs::write(&script, recognizer).unwrap();
        let mut config = Config::default();
        config.speech.stt_kind = Some(ProviderKind::Command);
        config.speech.stt_endpoint = Some(format!("sh {}", script.display()));
        change(&mut config);
        Self {
            node: Node::start(config).await,
            _folder: folder,
        }
    }

    /// A device with these terms, PCM in both directions unless they name others.
    pub async fn device(&self, id: &str, terms: &Value) -> (Device, Value) {
        let mut device = Device::connect(self.node.addr).await;
        let accepted = self.authenticate(&mut device, id, terms).await;
        (device, accepted)
    }

    pub async fn authenticate(&self, device: &mut Device, id: &str, terms: &Value) -> Value {
        let mut audio = json!({
            "in": {"codec": "pcm_s16le", "rate": RATE, "frame_ms": FRAME_MS},
            "out": {"codec": "pcm_s16le", "rate": RATE, "frame_ms": FRAME_MS},
            "captions": true,
        });
        for (name, value) in terms.as_object().unwrap() {
            audio[name] = value.clone();
        }
        let token = self.node.token(id);
        let request =
            json!({"token": token, "client": {"name": "toy", "version": "1", "audio": audio}});
        let request = request.to_string();
        device
            .send(Kind::Auth, TaskId::MCP, 0, request.as_bytes())
            .await;
        let answer = device.expect(Kind::Auth).await.json();
        assert_eq!(answer["data"]["success"], true, "{answer}");
        answer["data"].clone()
    }

    pub async fn turn(&self) -> Turn {
        let mut turns = self.node.caller.claim_turns(1, TEST_TIMEOUT).await.unwrap();
        assert_eq!(turns.len(), 1, "no turn in time");
        turns.remove(0)
    }

    pub async fn no_turn(&self) {
        let none = self.node.caller.claim_turns(1, Duration::from_millis(200));
        assert!(none.await.unwrap().is_empty());
    }
}

/// A person says "go forward ten meters".
pub fn recording() -> Vec<u8> {
    let folder = std::env::var_os("SWITCHBOARD_SPEECH_SAMPLES");
    let folder = folder.map_or_else(|| "/usr/share/pocketsphinx/test/data".into(), PathBuf::from);
    let file = folder.join("goforward.raw");
    fs::read(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; install pocketsphinx-testdata", file.display())
    })
}

pub async fn send_voice(device: &mut Device, message: &Value) {
    let payload = message.to_string();
    device.send(Kind::Voice, TASK, 0, payload.as_bytes()).await;
}

/// Sends audio as fast as it is recorded, and frames of the edge to `received`. Returns the next seq.
pub async fn speak(device: &mut Device, seq: u16, audio: &[u8], received: &mut Vec<Frame>) -> u16 {
    speak_on(device, TASK, seq, audio, received).await
}

/// The same on this task.
pub async fn speak_on(
    device: &mut Device,
    task: TaskId,
    mut seq: u16,
    audio: &[u8],
    received: &mut Vec<Frame>,
) -> u16 {
    let mut ticks = interval(Duration::from_millis(FRAME_MS as u64));
    for frame in audio.chunks(FRAME_BYTES) {
        ticks.tick().await;
        device.send(Kind::Audio, task, seq, frame).await;
        seq = next_seq(seq);
        while let Some(frame) = device.next_within(Duration::from_millis(1)).await {
            received.push(frame);
        }
    }
    seq
}

/// The next VOICE message that has this member, and everything before it.
pub async fn voice_with(device: &mut Device, member: &str) -> Value {
    loop {
        let frame = device.next().await.expect("a frame");
        if frame.kind == Kind::Voice && frame.json().get(member).is_some() {
            return frame.json();
        }
    }
}

/// Receives frames until one of this kind, unless that is the last one already.
pub async fn receive_until(device: &mut Device, kind: Kind, received: &mut Vec<Frame>) {
    while received.last().is_none_or(|frame| frame.kind != kind) {
        received.push(device.next().await.expect("a frame"));
    }
}

/// Receives an answer until its END. Returns the milliseconds of its audio.
pub async fn receive_answer(device: &mut Device) -> usize {
    let (mut expected, mut bytes) = (0, 0);
    loop {
        let frame = device.next().await.expect("a frame");
        assert_eq!(frame.task, TASK, "{frame:?}");
        match frame.kind {
            Kind::Audio => {
                assert_eq!(frame.seq, expected);
                expected += 1;
                bytes += frame.payload.len();
            }
            Kind::End => {
                assert_eq!(frame.seq, expected);
                return bytes / (2 * RATE / 1_000);
            }
            Kind::Voice => {}
            kind => panic!("{kind:?}"),
        }
    }
}

#[tokio::test]
async fn message_of_a_user_is_recognised_and_answered_aloud() {
    // The recogniser receives the utterance, without most of the silence around it.
    let fixture = Fixture::start(
        "bytes=$(wc -c); test $bytes -gt 32000 && test $bytes -lt 112000 && echo go forward",
    )
    .await;
    let node = &fixture.node;
    for (answers, mode) in [(1.0, "auto"), (2.0, "manual")] {
        let (mut device, accepted) = fixture.device(mode, &json!({"listen": mode})).await;
        assert_eq!(accepted["audio"]["listen"], mode, "{accepted}");
        let mut audio = vec![0; 12 * FRAME_BYTES];
        audio.extend(recording());
        let mut received = Vec::new();
        let seq = speak(&mut device, 0, &audio, &mut received).await;
        if mode == "manual" {
            device.send(Kind::End, TASK, seq, b"").await;
        } else {
            speak(&mut device, seq, &vec![0; 15 * FRAME_BYTES], &mut received).await;
        }
        let turn = fixture.turn().await;
        assert_eq!(
            (&*turn.text, turn.is_spoken, turn.task),
            ("go forward", true, TASK.0)
        );
        let style = SpeakingStyle {
            language: Some("de".to_owned()),
            ..SpeakingStyle::default()
        };
        node.caller.send_style(&turn, &style);
        node.caller.send_text(&turn, "I am there. Now");
        node.caller.send_text(&turn, " what? **Nothing** 🙂.");
        node.caller.finish_reply(&turn);
        let voice = received.iter().filter(|frame| frame.kind == Kind::Voice);
        let is_final = |message: &Value| message["final"] == true;
        let mut heard = voice.map(Frame::json).find(is_final);
        while heard.is_none() {
            // Words of a pause come first.
            heard = Some(voice_with(&mut device, "heard").await).filter(is_final);
        }
        let heard = heard.unwrap();
        assert_eq!(heard, json!({"heard": "go forward", "final": true}));
        let saying = voice_with(&mut device, "saying").await;
        assert_eq!(saying, json!({"saying": "I am there."}));
        let started = Instant::now();
        let answer_ms = receive_answer(&mut device).await;
        for stage in ["silence", "recognition", "reply", "synthesis"] {
            let family = "switchboard_voice_stage_seconds";
            assert_eq!(node.sum(family, Some(stage)), answers, "{stage}");
        }
        assert!((1_000..10_000).contains(&answer_ms), "{answer_ms} ms");
        // As fast as it is played, with a lead.
        let took = started.elapsed() + Duration::from_millis(700);
        assert!(took >= Duration::from_millis(answer_ms as u64), "{took:?}");
        node.caller.complete_turn(&turn.id).await.unwrap();
    }
}

#[tokio::test]
async fn speech_interrupts_an_answer_only_where_the_device_removes_its_own_sound() {
    let fixture = Fixture::start("cat > /dev/null; echo stop that").await;
    let node = &fixture.node;
    for (id, mode) in [("auto", "auto"), ("realtime", "realtime")] {
        let (mut device, _) = fixture.device(id, &json!({"listen": mode})).await;
        let mut received = Vec::new();
        let mut utterance = recording();
        utterance.extend(vec![0; 15 * FRAME_BYTES]);
        let seq = speak(&mut device, 0, &utterance, &mut received).await;
        let turn = fixture.turn().await;
        node.caller.send_text(&turn, LONG_ANSWER);
        voice_with(&mut device, "saying").await;
        received.clear();
        speak(&mut device, seq, &utterance, &mut received).await;
        let cancelled = received.iter().position(|frame| frame.kind == Kind::Cancel);
        if mode == "auto" {
            assert_eq!(cancelled, None);
            fixture.no_turn().await;
            node.caller.finish_reply(&turn);
            node.caller.complete_turn(&turn.id).await.unwrap();
            continue;
        }
        // Nothing of the old answer follows.
        let after = &received[cancelled.expect("a CANCEL")..];
        assert!(after.iter().all(|frame| frame.kind != Kind::Audio));
        assert_eq!(after[1].kind, Kind::End);
        let next = fixture.turn().await;
        assert_eq!(&*next.text, "stop that");
        let Played { message, words } = next.played.clone().expect("what was played");
        assert_eq!(message, "stop that");
        assert!(LONG_ANSWER.starts_with(&words), "{words}");
        assert!(
            !words.is_empty() && words.len() < LONG_ANSWER.len() / 2,
            "{words}"
        );
        node.caller.send_text(&next, "All right.");
        node.caller.finish_reply(&next);
        assert_eq!(
            voice_with(&mut device, "saying").await["saying"],
            "All right."
        );
        assert!(receive_answer(&mut device).await > 300);
    }
}

#[tokio::test]
async fn noise_without_words_resumes_the_interrupted_sentence() {
    // The first utterance has words, the second one does not.
    let once =
        "cat > /dev/null; test -e \"$0.done\" && exit 0; touch \"$0.done\"; echo tell me something";
    let fixture = Fixture::start(once).await;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "realtime"})).await;
    let mut received = Vec::new();
    let mut utterance = recording();
    utterance.extend(vec![0; 15 * FRAME_BYTES]);
    let seq = speak(&mut device, 0, &utterance, &mut received).await;
    let turn = fixture.turn().await;
    let caller = &fixture.node.caller;
    caller.send_text(&turn, LONG_ANSWER);
    caller.finish_reply(&turn);
    caller.complete_turn(&turn.id).await.unwrap();
    let first = voice_with(&mut device, "saying").await;
    received.clear();
    speak(&mut device, seq, &utterance, &mut received).await;
    let is_cancel = |frame: &Frame| frame.kind == Kind::Cancel;
    let cancelled = received.iter().position(is_cancel).expect("a CANCEL");
    let mut answer = received.split_off(cancelled + 1);
    assert_eq!(answer.remove(0).kind, Kind::End);
    receive_until(&mut device, Kind::End, &mut answer).await;
    // The sentence begins again, with seqs of their own, and the rest follows.
    let voice = answer.iter().filter(|frame| frame.kind == Kind::Voice);
    let mut sayings = voice
        .map(Frame::json)
        .filter(|message| message.get("saying").is_some());
    assert_eq!(sayings.next(), Some(first));
    assert_eq!(sayings.count(), 2);
    answer.retain(|frame| frame.kind != Kind::Voice);
    assert!((0..).zip(&answer).all(|(seq, frame)| frame.seq == seq));
    assert!(answer.len() * FRAME_MS > 5_000);
    fixture.no_turn().await;
}

#[tokio::test]
async fn answer_is_text_where_the_device_does_not_speak() {
    let fixture = Fixture::start("cat > /dev/null; echo hello").await;
    let (mut device, _) = fixture
        .device("toy", &json!({"out": null, "listen": "manual"}))
        .await;
    let mut received = Vec::new();
    let seq = speak(&mut device, 0, &recording(), &mut received).await;
    device.send(Kind::End, TASK, seq, b"").await;
    let turn = fixture.turn().await;
    fixture.node.caller.send_text(&turn, "Hello to you.");
    fixture.node.caller.finish_reply(&turn);
    let mut text = String::new();
    loop {
        let frame = device.next().await.expect("a frame");
        match frame.kind {
            Kind::Text => text.push_str(std::str::from_utf8(&frame.payload).unwrap()),
            Kind::End => break,
            _ => {}
        }
    }
    assert_eq!(text, "Hello to you.");
}

#[tokio::test]
async fn words_before_the_answer_extend_the_message() {
    let fixture = Fixture::start("cat > /dev/null; echo go forward").await;
    let (mut device, _) = fixture.device("toy", &json!({})).await;
    let mut received = Vec::new();
    let mut utterance = recording();
    utterance.extend(vec![0; 15 * FRAME_BYTES]);
    let seq = speak(&mut device, 0, &utterance, &mut received).await;
    let first = fixture.turn().await;
    assert_eq!((&*first.text, &first.played), ("go forward", &None));
    speak(&mut device, seq, &utterance, &mut received).await;
    let second = fixture.turn().await;
    assert_eq!(&*second.text, "go forward go forward");
    // No worker has begun the reply that was replaced.
    assert_eq!(second.played, None);
    let caller = &fixture.node.caller;
    // The answer to a part of the message is not wanted.
    caller.send_text(&first, "Old.");
    caller.send_text(&second, "New.");
    caller.finish_reply(&second);
    let saying = voice_with(&mut device, "saying").await;
    assert_eq!(saying["saying"], "New.");
    receive_answer(&mut device).await;
}

#[tokio::test]
async fn message_without_words_ends_without_an_answer() {
    let fixture = Fixture::start("cat > /dev/null").await;
    let manual = json!({"listen": "manual"});
    let (mut device, _) = fixture.device("toy", &manual).await;
    let mut received = Vec::new();
    for audio in [vec![0; 10 * FRAME_BYTES], recording()] {
        let seq = speak(&mut device, 0, &audio, &mut received).await;
        device.send(Kind::End, TASK, seq, b"").await;
        assert_eq!(receive_answer(&mut device).await, 0);
    }
    fixture.no_turn().await;
}

#[tokio::test]
async fn drain_waits_until_an_answer_is_spoken() {
    let fixture = Fixture::start("cat > /dev/null; echo hello").await;
    let (mut device, _) = fixture.device("toy", &json!({})).await;
    let mut received = Vec::new();
    let mut utterance = recording();
    utterance.extend(vec![0; 15 * FRAME_BYTES]);
    speak(&mut device, 0, &utterance, &mut received).await;
    let (turn, caller) = (fixture.turn().await, &fixture.node.caller);
    caller.send_text(
        &turn,
        "This sentence takes two or three seconds to be spoken.",
    );
    caller.finish_reply(&turn);
    caller.complete_turn(&turn.id).await.unwrap();
    voice_with(&mut device, "saying").await;
    fixture.node.shutdown.drain();
    let (mut audio, mut has_goaway, mut has_end) = (0, false, false);
    while let Some(frame) = device.next().await {
        audio += usize::from(frame.kind == Kind::Audio);
        has_goaway |= frame.kind == Kind::Goaway;
        has_end |= frame.kind == Kind::End;
    }
    assert!(has_goaway && has_end);
    assert!(audio * FRAME_MS > 1_500, "{audio} frames");
}
