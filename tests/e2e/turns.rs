//! Turns on a device, frame by frame. Only heartbeats are skipped.

use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, SeqFormat, TaskId, encode, encode_stream};

use crate::device::{Device, Received};

/// The task id with this number.
pub fn task(number: usize) -> TaskId {
    TaskId(format!("task{number:04}").into_bytes().try_into().unwrap())
}

/// The service of the protocol's example.
pub fn time_service(description: &str) -> String {
    let parameters = json!({"type": "object", "properties": {"format": {"type": "string", "enum": ["simple", "detailed"]}}});
    json!({"get_current_time": {"description": description, "parameters": parameters}}).to_string()
}

impl Device {
    /// Sends a complete user message.
    pub async fn send_text(&mut self, task: TaskId, text: &str) {
        let mut frames = Vec::new();
        let seq_format = SeqFormat::Plain;
        encode(
            &mut frames,
            Kind::Text,
            task,
            0,
            seq_format,
            text.as_bytes(),
        );
        encode(&mut frames, Kind::End, task, 1, seq_format, &[]);
        self.send_bytes(&frames).await;
    }

    /// Sends a message about a picture, as frames of at most 100 kB.
    pub async fn show(&mut self, task: TaskId, picture: &[u8], text: &str) {
        let (mut frames, mut seq) = (Vec::new(), 0);
        for (kind, payload) in [(Kind::Picture, picture), (Kind::Text, text.as_bytes())] {
            seq = encode_stream(&mut frames, kind, task, seq, payload, 100_000).unwrap();
        }
        encode(&mut frames, Kind::End, task, seq, SeqFormat::Plain, &[]);
        self.send_bytes(&frames).await;
    }

    /// Cancels a turn.
    pub async fn cancel_turn(&mut self, task: TaskId) {
        let mut frame = Vec::new();
        encode(&mut frame, Kind::Cancel, task, 0, SeqFormat::Plain, &[]);
        self.send_bytes(&frame).await;
    }

    /// The next frame except heartbeats.
    pub async fn receive_frame(&mut self) -> Received {
        loop {
            let received = self.receive().await.expect("a frame before the end");
            match received.kind {
                Kind::Ping => self.send(Kind::Pong, "").await,
                Kind::Pong => {}
                _ => return received,
            }
        }
    }

    /// The chunk of an answer, which must be the next frame.
    pub async fn receive_chunk(&mut self, task: TaskId, seq: u16) -> String {
        let received = self.receive_frame().await;
        let head = (received.kind, received.task, received.seq);
        assert_eq!(head, (Kind::Text, task, seq), "{received:?}");
        String::from_utf8(received.payload).unwrap()
    }

    /// Receives the end of an answer, which must be the next frame.
    pub async fn receive_end(&mut self, task: TaskId) {
        let received = self.receive_frame().await;
        assert_eq!(
            (received.kind, received.task),
            (Kind::End, task),
            "{received:?}"
        );
        assert!(received.payload.is_empty(), "{received:?}");
    }

    /// A complete answer: frames of one task, contiguous from 0000, terminated by an empty frame.
    pub async fn receive_answer(&mut self, task: TaskId) -> String {
        let mut text = Vec::new();
        for seq in 0.. {
            let received = self.receive_frame().await;
            let place = (received.task, received.seq);
            assert_eq!(place, (task, seq), "{received:?}");
            match received.kind {
                Kind::Text => text.extend(received.payload),
                Kind::End => {
                    assert!(received.payload.is_empty() && !text.is_empty());
                    break;
                }
                other => panic!("{other:?} within an answer"),
            }
        }
        String::from_utf8(text).unwrap()
    }

    /// Sends a message and returns its answer, which must not contain a call.
    pub async fn ask(&mut self, task: TaskId, text: &str) -> String {
        self.send_text(task, text).await;
        self.receive_answer(task).await
    }

    /// The call, which must be the next frame: its id, service and params.
    pub async fn receive_call(&mut self) -> (String, String, Value) {
        let message = self.receive_message("call").await;
        let text = |field: &str| message[field].as_str().expect("a text").to_owned();
        (text("call_id"), text("method"), message["params"].clone())
    }

    /// The data of the message of this type, which must be the next frame.
    pub async fn receive_message(&mut self, kind: &str) -> Value {
        let received = self.receive_frame().await;
        assert_eq!(received.kind, Kind::Control, "{received:?}");
        let message = received.json();
        assert_eq!(message["type"], kind, "{message}");
        message["data"].clone()
    }

    /// Answers a call with success and this data.
    pub async fn send_result(&mut self, call_id: &str, data: Value) {
        self.answer(call_id, &json!({"success": true, "data": data}))
            .await;
    }
}
