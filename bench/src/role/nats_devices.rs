//! Devices of a NATS server, each with its own connection and one subscription. The client
//! implements only the needed part of the protocol, to keep the cost of a device low.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{BrokerOptions, device_name, fleet::Fleet, payload};

const CONNECT: &str = r#"CONNECT {"verbose":false,"pedantic":false,"lang":"rust","version":"0"}"#;

/// Devices that connect to one server.
pub(super) struct NatsFleet {
    address: SocketAddr,
}

/// A connection with its one subscription.
pub(super) struct NatsDevice {
    stream: TcpStream,
    received: Vec<u8>,
}

/// An operation sent by the server.
#[derive(Debug, PartialEq, Eq)]
enum Operation<'a> {
    Message { reply: &'a str },
    Ping,
    Pong,
    Other,
}

impl NatsFleet {
    pub(super) fn new(options: &BrokerOptions) -> Self {
        Self {
            address: options.address,
        }
    }
}

impl Fleet for NatsFleet {
    type Device = NatsDevice;

    async fn dial(&self, index: u32) -> anyhow::Result<NatsDevice> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let handshake = format!("{CONNECT}\r\nSUB {} 1\r\nPING\r\n", device_name(index));
        stream.write_all(handshake.as_bytes()).await?;
        let mut device = NatsDevice {
            stream,
            received: Vec::new(),
        };
        loop {
            device.read().await?;
            while let Some((operation, length)) = parse(&device.received)? {
                let ready = operation == Operation::Pong;
                device.received.drain(..length);
                if ready {
                    return Ok(device);
                }
            }
        }
    }

    async fn serve(mut device: NatsDevice) -> anyhow::Result<()> {
        let payload = payload();
        let mut responses = Vec::new();
        loop {
            device.read().await?;
            let mut consumed = 0;
            while let Some((operation, length)) = parse(&device.received[consumed..])? {
                match operation {
                    Operation::Message { reply } => {
                        let head = format!("PUB {reply} {}\r\n", payload.len());
                        responses.extend_from_slice(head.as_bytes());
                        responses.extend_from_slice(&payload);
                        responses.extend_from_slice(b"\r\n");
                    }
                    Operation::Ping => responses.extend_from_slice(b"PONG\r\n"),
                    Operation::Pong | Operation::Other => {}
                }
                consumed += length;
            }
            device.received.drain(..consumed);
            device.stream.write_all(&responses).await?;
            responses.clear();
        }
    }
}

impl NatsDevice {
    async fn read(&mut self) -> anyhow::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => bail!("the server closed the connection"),
            _ => Ok(()),
        }
    }
}

/// Parses the first operation and returns it with its length, or `None` if it is incomplete.
fn parse(received: &[u8]) -> anyhow::Result<Option<(Operation<'_>, usize)>> {
    let Some(end) = received.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = std::str::from_utf8(&received[..end])?;
    let after_line = end + 2;
    let words: Vec<_> = line.split(' ').collect();
    let (operation, length) = match words[..] {
        ["MSG", _subject, _id, reply, bytes] => {
            let bytes: usize = bytes.parse().context("invalid message length")?;
            (Operation::Message { reply }, after_line + bytes + 2)
        }
        ["PING"] => (Operation::Ping, after_line),
        ["PONG"] => (Operation::Pong, after_line),
        ["-ERR", ..] => bail!("the server returned an error: {line}"),
        _ => (Operation::Other, after_line),
    };
    Ok((received.len() >= length).then_some((operation, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_incomplete_operation_returns_none() {
        fn check(received: &[u8], expected: Option<(Operation<'_>, usize)>) {
            assert_eq!(parse(received).unwrap(), expected);
        }
        check(b"PIN", None);
        check(b"PING\r\nPI", Some((Operation::Ping, 6)));
        check(b"INFO {}\r\n", Some((Operation::Other, 9)));
        check(b"MSG dev-1 1 _INBOX.a 3\r\nab", None);
        let message = Operation::Message { reply: "_INBOX.a" };
        check(b"MSG dev-1 1 _INBOX.a 3\r\nabc\r\n", Some((message, 29)));
        assert!(parse(b"-ERR 'no'\r\n").is_err());
    }
}
