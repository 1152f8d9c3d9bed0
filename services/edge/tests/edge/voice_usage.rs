//! What a spoken message reports for the usage of its organisation.

use serde_json::json;
use switchboard_protocol::frame::{Kind, TaskId};

use crate::{
    device::Device,
    voice::{Fixture, RATE, TASK, receive_answer, recording, speak},
};

const WRITTEN: TaskId = TaskId(*b"text0001");
/// Prints how many bytes it has received of all utterances. It recognises no words in the first one.
const RECOGNIZER: &str = "bytes=$(cat \"$0.bytes\" 2> /dev/null || echo 0); \
    echo $((bytes + $(wc -c))) > \"$0.bytes\"; test $bytes -eq 0 || cat \"$0.bytes\"";

async fn say(device: &mut Device) {
    let seq = speak(device, 0, &recording(), &mut Vec::new()).await;
    device.send(Kind::End, TASK, seq, b"").await;
}

#[tokio::test]
async fn spoken_message_reports_the_audio_since_the_one_before() {
    let fixture = Fixture::start(RECOGNIZER).await;
    let caller = &fixture.node.caller;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    say(&mut device).await;
    assert_eq!(receive_answer(&mut device).await, 0);
    let (mut heard_ms, mut answer_ms) = (0, 0);
    for answer in ["I am there.", "I am here, and now I am there again.", ""] {
        say(&mut device).await;
        let turn = fixture.turn().await;
        let total_ms = turn.text.parse::<usize>().unwrap() / (2 * RATE / 1_000);
        let reported_ms = usize::try_from(turn.audio_ms).unwrap();
        assert_eq!(reported_ms, total_ms - heard_ms + answer_ms);
        heard_ms = total_ms;
        caller.send_text(&turn, answer);
        caller.finish_reply(&turn);
        answer_ms = receive_answer(&mut device).await;
        assert_eq!(answer_ms > 500, !answer.is_empty(), "{answer_ms} ms");
        caller.complete_turn(&turn.id).await.unwrap();
        // A written message reports nothing, and leaves the audio to the next spoken one.
        device.send(Kind::Text, WRITTEN, 0, b"Hello").await;
        device.send(Kind::End, WRITTEN, 1, b"").await;
        let turn = fixture.turn().await;
        let read = (&*turn.text, turn.task, turn.audio_ms);
        assert_eq!(read, ("Hello", WRITTEN.0, 0));
        caller.finish_reply(&turn);
        while device.next().await.expect("a frame").kind != Kind::End {}
        caller.complete_turn(&turn.id).await.unwrap();
    }
    assert!(heard_ms > 3_000, "{heard_ms} ms");
}
