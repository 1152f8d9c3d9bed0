//! A minimal device: sends and receives frames.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use serde_json::{Value, json};
use switchboard_protocol::frame::{self, Decoder, Kind, SeqFormat, TaskId};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::node::TEST_TIMEOUT;

/// One service with one parameter.
pub const LIGHT: &str = r#"{"light":{"description":"Switch the light","parameters":
    {"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]}}}"#;

pub struct Device<S = TcpStream> {
    pub stream: S,
    buffer: Vec<u8>,
    decoder: Decoder,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub task: TaskId,
    pub seq: u16,
    pub seq_format: SeqFormat,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.payload).unwrap()
    }

    /// The id of the call in this frame.
    pub fn call_id(&self) -> String {
        let message = self.json();
        assert_eq!(message["type"], "call", "{message}");
        message["data"]["call_id"].as_str().unwrap().to_owned()
    }
}

impl Device {
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).await.unwrap())
    }

    /// Connects from another address of this machine, such as 127.0.0.2.
    pub async fn connect_from(from: [u8; 4], addr: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::from(from), 0).into()).unwrap();
        Self::over(socket.connect(addr).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Device<S> {
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            decoder: Decoder::new(1 << 22),
        }
    }

    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub async fn send(&mut self, kind: Kind, task: TaskId, seq: u16, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, kind, task, seq, SeqFormat::Plain, payload);
        self.send_raw(&bytes).await;
    }

    pub async fn message(&mut self, message: &Value) {
        self.send(
            Kind::Control,
            TaskId::MCP,
            0,
            message.to_string().as_bytes(),
        )
        .await;
    }

    /// The next frame, or `None` when the edge has closed the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        timeout(TEST_TIMEOUT, self.read())
            .await
            .expect("no frame and no end in time")
    }

    /// The next frame, or `None` when there is none in this time.
    pub async fn next_within(&mut self, within: Duration) -> Option<Frame> {
        let frame = timeout(within, self.read()).await.ok()?;
        Some(frame.expect("the connection is open"))
    }

    async fn read(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, length)) = self.decoder.decode(&self.buffer).unwrap() {
                let frame = Frame {
                    kind: frame.kind,
                    task: frame.task,
                    seq: frame.seq,
                    seq_format: frame.seq_format,
                    payload: frame.payload.to_vec(),
                };
                self.buffer.drain(..length);
                return Some(frame);
            }
            // A reset counts as the end.
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub async fn expect(&mut self, kind: Kind) -> Frame {
        let frame = self.next().await.expect("a frame");
        assert_eq!(
            frame.kind,
            kind,
            "{}",
            String::from_utf8_lossy(&frame.payload)
        );
        frame
    }

    pub async fn expect_end(&mut self) {
        assert_eq!(self.next().await, None);
    }

    /// Expects an ERROR frame with this code, then the end.
    pub async fn expect_error(&mut self, code: &str) {
        let error = self.expect(Kind::Error).await.json();
        assert_eq!(error["code"], code, "{error}");
        self.expect_end().await;
    }

    /// Expects a GOAWAY frame with this reason, then the end.
    pub async fn expect_goaway(&mut self, reason: &str) {
        let goaway = self.expect(Kind::Goaway).await.json();
        assert_eq!(goaway["reason"], reason, "{goaway}");
        self.expect_end().await;
    }

    pub async fn auth(&mut self, token: &str) -> Value {
        let payload = json!({"token": token, "client": {"name": "test", "version": "1"}});
        self.send(Kind::Auth, TaskId::MCP, 0, payload.to_string().as_bytes())
            .await;
        self.expect(Kind::Auth).await.json()
    }

    pub async fn authenticate(&mut self, token: &str) {
        let answer = self.auth(token).await;
        assert_eq!(answer["data"]["success"], true, "{answer}");
    }

    /// Registers services and returns the answer's `data`.
    pub async fn try_register(&mut self, services: &str) -> Value {
        let message = format!(r#"{{"type":"register","data":{{"services":{services}}}}}"#);
        self.send(Kind::Control, TaskId::MCP, 0, message.as_bytes())
            .await;
        self.expect(Kind::Control).await.json()["data"].take()
    }

    pub async fn register(&mut self, services: &str) {
        let answer = self.try_register(services).await;
        assert_eq!(answer["call_id"], "register");
        assert_eq!(answer["result"]["success"], true, "{answer}");
    }

    pub async fn result(&mut self, call_id: &str, data: &str) {
        let result = json!({"success": true, "data": data});
        self.message(&json!({"type": "result", "data": {"call_id": call_id, "result": result}}))
            .await;
    }

    /// Sends a PING and waits for its PONG: all frames before it are handled.
    pub async fn sync(&mut self) {
        self.send(Kind::Ping, TaskId::MCP, 0, b"sync").await;
        assert_eq!(self.expect(Kind::Pong).await.payload, b"sync");
    }
}
