//! What a spoken message carries of its audio: nothing, unless a reply asks for it.

use serde_json::json;
use switchboard_bus::{MAX_RECORDING_BYTES, SpeakingStyle};
use switchboard_protocol::frame::Kind;

use crate::voice::{Fixture, RATE, TASK, receive_answer, recording, speak};

const RECOGNIZER: &str = "cat > /dev/null; echo go forward";

#[tokio::test]
async fn messages_are_recorded_from_the_reply_that_asks_for_it() {
    let fixture = Fixture::start(RECOGNIZER).await;
    let caller = &fixture.node.caller;
    let (mut device, _) = fixture.device("toy", &json!({"listen": "manual"})).await;
    let spoken_ms = u32::try_from(recording().len() / (2 * RATE / 1_000)).unwrap();
    // Whether the reply asks for it, and whether its message is recorded.
    for (asks, is_recorded) in [(false, false), (true, false), (true, true), (false, true)]
        .into_iter()
        .chain([(false, false)])
    {
        let seq = speak(&mut device, 0, &recording(), &mut Vec::new()).await;
        device.send(Kind::End, TASK, seq, b"").await;
        let turn = fixture.turn().await;
        assert_eq!(turn.recording.is_some(), is_recorded);
        if let Some(recorded) = &turn.recording {
            assert!(recorded.file.starts_with(b"OggS"));
            assert!(recorded.file.len() <= MAX_RECORDING_BYTES);
            // The silence at the ends does not belong to it.
            assert!((spoken_ms / 2..=spoken_ms + 60).contains(&recorded.ms));
        }
        if asks {
            let style = SpeakingStyle {
                is_recorded: true,
                ..SpeakingStyle::default()
            };
            caller.send_style(&turn, &style);
        }
        caller.send_text(&turn, "Yes.");
        caller.finish_reply(&turn);
        receive_answer(&mut device).await;
        caller.complete_turn(&turn.id).await.unwrap();
    }
}
