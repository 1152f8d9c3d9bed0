//! Turns on a device: what its user says, and what is heard, frame by frame.
//! Never: a frame passed over, but for heartbeats.

use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, Spelling, TaskId, encode};

use crate::device::{Device, Received};

/// A task for each number.
pub fn task(number: usize) -> TaskId {
    TaskId(format!("task{number:04}").into_bytes().try_into().unwrap())
}

/// The service of the supplement's example.
pub fn time_service(description: &str) -> String {
    let parameters = json!({"type": "object", "properties": {"format": {"type": "string", "enum": ["simple", "detailed"]}}});
    json!({"get_current_time": {"description": description, "parameters": parameters}}).to_string()
}

impl Device {
    /// A whole message.
    pub async fn says(&mut self, task: TaskId, words: &str) {
        let mut frames = Vec::new();
        let spelling = Spelling::Plain;
        encode(&mut frames, Kind::Text, task, 0, spelling, words.as_bytes());
        encode(&mut frames, Kind::End, task, 1, spelling, &[]);
        self.send_bytes(&frames).await;
    }

    /// The answer is not wanted any more.
    pub async fn takes_back(&mut self, task: TaskId) {
        let mut frame = Vec::new();
        encode(&mut frame, Kind::Cancel, task, 0, Spelling::Plain, &[]);
        self.send_bytes(&frame).await;
    }

    /// The next frame that is no heartbeat.
    pub async fn hears_frame(&mut self) -> Received {
        loop {
            let received = self.receive().await.expect("a frame before the end");
            match received.kind {
                Kind::Ping => self.send(Kind::Pong, "").await,
                Kind::Pong => {}
                _ => return received,
            }
        }
    }

    /// The piece of an answer that must be the very next frame.
    pub async fn hears_piece(&mut self, task: TaskId, seq: u16) -> String {
        let received = self.hears_frame().await;
        let head = (received.kind, received.task, received.seq);
        assert_eq!(head, (Kind::Text, task, seq), "{received:?}");
        String::from_utf8(received.payload).unwrap()
    }

    /// The end of an answer, which must be the very next frame.
    pub async fn hears_end(&mut self, task: TaskId) {
        let received = self.hears_frame().await;
        assert_eq!(
            (received.kind, received.task),
            (Kind::End, task),
            "{received:?}"
        );
        assert!(received.payload.is_empty(), "{received:?}");
    }

    /// An answer to its end: frames of one task, contiguous from 0000, ended by an empty frame.
    pub async fn hears(&mut self, task: TaskId) -> String {
        let mut words = Vec::new();
        for seq in 0.. {
            let received = self.hears_frame().await;
            let place = (received.task, received.seq);
            assert_eq!(place, (task, seq), "{received:?}");
            match received.kind {
                Kind::Text => words.extend(received.payload),
                Kind::End => {
                    assert!(received.payload.is_empty() && !words.is_empty());
                    break;
                }
                other => panic!("{other:?} within an answer"),
            }
        }
        String::from_utf8(words).unwrap()
    }

    /// Says something, and hears the answer to it, in which nothing is called.
    pub async fn talks(&mut self, task: TaskId, words: &str) -> String {
        self.says(task, words).await;
        self.hears(task).await
    }

    /// The call that must be the very next frame: its id, service and params.
    pub async fn is_called(&mut self) -> (String, String, Value) {
        let message = self.is_told("call").await;
        let text = |field: &str| message[field].as_str().expect("a text").to_owned();
        (text("call_id"), text("method"), message["params"].clone())
    }

    /// The data of the message of this type that must be the very next frame.
    pub async fn is_told(&mut self, kind: &str) -> Value {
        let received = self.hears_frame().await;
        assert_eq!(received.kind, Kind::Control, "{received:?}");
        let message = received.json();
        assert_eq!(message["type"], kind, "{message}");
        message["data"].clone()
    }

    /// Answers a call with these data.
    pub async fn gives(&mut self, call_id: &str, data: Value) {
        self.answer(call_id, &json!({"success": true, "data": data}))
            .await;
    }
}
