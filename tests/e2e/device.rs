//! A device for tests, independent of the device client, so that a fault in that one is found.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use switchboard_protocol::frame::{Decoder, Kind, SeqFormat, TaskId, encode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

const READ_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_FRAME_BYTES: usize = 1024 * 1024;

pub struct Device {
    stream: TcpStream,
    buffer: Vec<u8>,
    decoder: Decoder,
    pub accepted: Value,
    /// The calls that `serve` executed, oldest first.
    pub executed: Ledger,
}

/// The calls that a device executed. Clones are the same ledger.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Vec<(Instant, Value)>>>);

impl Ledger {
    fn add(&self, params: Value) {
        let mut calls = self.0.lock().expect("no panic under it");
        calls.push((Instant::now(), params));
    }

    /// When each call was executed, and its params.
    pub fn calls(&self) -> Vec<(Instant, Value)> {
        self.0.lock().expect("no panic under it").clone()
    }

    /// The params of all calls.
    pub fn params(&self) -> Vec<Value> {
        self.calls().into_iter().map(|(_, params)| params).collect()
    }
}

/// A received frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub kind: Kind,
    pub task: TaskId,
    pub seq: u16,
    pub payload: Vec<u8>,
}

impl Received {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.payload).expect("JSON")
    }
}

impl Device {
    pub async fn dial(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the edge listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Self {
            stream,
            buffer: Vec::new(),
            decoder: Decoder::new(MAX_FRAME_BYTES),
            accepted: Value::Null,
            executed: Ledger::default(),
        }
    }

    pub async fn connect(address: &str, token: &str) -> Self {
        let mut device = Self::dial(address).await;
        let answer = device.authenticate(token).await;
        assert_eq!(answer["data"]["success"], true, "{answer}");
        device.accepted = answer["data"].clone();
        device
    }

    /// Sends a token and returns the response, success or not.
    pub async fn authenticate(&mut self, token: &str) -> Value {
        let hello = json!({"token": token, "client": {"name": "test", "version": "1"}});
        self.introduce(&hello).await
    }

    /// Sends AUTH with these members and returns the response.
    pub async fn introduce(&mut self, hello: &Value) -> Value {
        self.send(Kind::Auth, &hello.to_string()).await;
        let answer = self.receive().await.expect("an answer to AUTH");
        assert_eq!(answer.kind, Kind::Auth);
        answer.json()
    }

    pub async fn send(&mut self, kind: Kind, payload: &str) {
        let mut frame = Vec::new();
        encode(
            &mut frame,
            kind,
            TaskId::MCP,
            0,
            SeqFormat::Plain,
            payload.as_bytes(),
        );
        self.send_bytes(&frame).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        // A closed connection is detected by the next read.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Registers services and returns the result of the response.
    pub async fn try_register(&mut self, services: &str) -> Value {
        let message = format!("{{\"type\":\"register\",\"data\":{{\"services\":{services}}}}}");
        self.send(Kind::Control, &message).await;
        self.next(Kind::Control).await.json()["data"]["result"].clone()
    }

    pub async fn register(&mut self, services: &str) {
        let result = self.try_register(services).await;
        assert_eq!(result["success"], true, "{result}");
    }

    /// The next frame, or `None` if the server closed the connection.
    pub async fn receive(&mut self) -> Option<Received> {
        timeout(READ_TIMEOUT, self.receive_now())
            .await
            .expect("a frame or an end in time")
    }

    async fn receive_now(&mut self) -> Option<Received> {
        loop {
            if let Some((frame, consumed)) =
                self.decoder.decode(&self.buffer).expect("frames of ours")
            {
                let received = Received {
                    kind: frame.kind,
                    task: frame.task,
                    seq: frame.seq,
                    payload: frame.payload.to_vec(),
                };
                self.buffer.drain(..consumed);
                return Some(received);
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next frame of this kind. Other frames are skipped.
    pub async fn next(&mut self, kind: Kind) -> Received {
        loop {
            let received = self
                .receive()
                .await
                .unwrap_or_else(|| panic!("closed before a {kind:?}"));
            if received.kind == kind {
                return received;
            }
        }
    }

    /// The next call: its id, service and params.
    pub async fn next_call(&mut self) -> (String, String, Value) {
        loop {
            let message = self.next(Kind::Control).await.json();
            if message["type"] == "call" {
                let text =
                    |field: &str| message["data"][field].as_str().expect("a text").to_owned();
                return (
                    text("call_id"),
                    text("method"),
                    message["data"]["params"].clone(),
                );
            }
        }
    }

    pub async fn answer(&mut self, call_id: &str, result: &Value) {
        let message = json!({"type": "result", "data": {"call_id": call_id, "result": result}});
        self.send(Kind::Control, &message.to_string()).await;
    }

    /// Waits until the server closes the connection. Returns the frames before.
    pub async fn closes(&mut self) -> Vec<Received> {
        let mut last_words = Vec::new();
        while let Some(received) = self.receive().await {
            last_words.push(received);
        }
        last_words
    }

    /// Reads until the connection ends, and answers heartbeats only.
    pub fn stall(mut self) -> JoinSet<()> {
        JoinSet::from_iter([async move {
            while let Some(received) = self.receive_now().await {
                if received.kind == Kind::Ping {
                    self.send(Kind::Pong, "").await;
                }
            }
        }])
    }

    /// Answers every call with its own params until the connection ends; the task returns how
    /// many calls there were.
    pub fn serve(mut self) -> JoinSet<usize> {
        JoinSet::from_iter([async move {
            let mut served = 0;
            while let Some(received) = self.receive_now().await {
                match received.kind {
                    Kind::Control => {
                        let message = received.json();
                        if message["type"] == "call" {
                            self.executed.add(message["data"]["params"].clone());
                            let result =
                                json!({"success": true, "data": message["data"]["params"]});
                            let call_id = message["data"]["call_id"]
                                .as_str()
                                .expect("an id")
                                .to_owned();
                            self.answer(&call_id, &result).await;
                            served += 1;
                        }
                    }
                    Kind::Ping => self.send(Kind::Pong, "").await,
                    _ => {}
                }
            }
            served
        }])
    }
}
