//! A device with one service: `cargo run --example device -- HOST:PORT TOKEN` (docs/protocol.md).

use std::io::{BufRead, BufReader, Result, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

// Frame types: 0x06 control messages, 0x10 AUTH, 0x11 PING, 0x12 PONG.

fn send(mut server: &TcpStream, kind: u8, payload: &str) -> Result<()> {
    // `##END` ends the frame: JSON writes `#` as an escape.
    let payload = payload.replace('#', "\\u0023");
    let frame = [b"##START", &[kind][..], b"mcp000010000", payload.as_bytes()].concat();
    server.write_all(&[&frame, &b"##END"[..]].concat())
}

fn receive(server: impl BufRead) -> Result<(u8, String)> {
    let mut frame = Vec::new();
    for byte in server.bytes() {
        frame.push(byte?);
        if let Some(content) = frame.strip_suffix(b"##END") {
            // `##START`, one byte of type, 8 of task id, 4 of sequence number, then the payload.
            let (head, payload) = content.split_at(20);
            return Ok((head[7], String::from_utf8_lossy(payload).into_owned()));
        }
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

fn main() -> Result<()> {
    let [address, token] = [1, 2].map(|n| std::env::args().nth(n).unwrap_or_default());
    let server = TcpStream::connect(address)?;
    let mut input = BufReader::new(&server);
    send(&server, 0x10, &json!({ "token": token }).to_string())?;
    let services = json!({"wave": {"description": "Waves", "parameters": {"type": "object"}}});
    let register = json!({"type": "register", "data": {"services": services}});
    send(&server, 0x06, &register.to_string())?;
    loop {
        let (kind, payload) = receive(&mut input)?;
        let message: Value = serde_json::from_str(&payload).unwrap_or_default();
        if kind == 0x11 {
            send(&server, 0x12, &payload)?;
        } else if message["type"] == "call" {
            let (call_id, result) = (&message["data"]["call_id"], json!({"success": true}));
            let answer = json!({"type": "result", "data": {"call_id": call_id, "result": result}});
            send(&server, 0x06, &answer.to_string())?;
        }
    }
}
