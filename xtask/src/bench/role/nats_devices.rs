//! Devices of a NATS server, each with its own connection and one subscription: as lean as ours,
//! so that the comparison is one of servers.
//! Never: more of the protocol than a device needs.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{BrokerOptions, device_name, fleet::Fleet, payload};

const CONNECT: &str = r#"CONNECT {"verbose":false,"pedantic":false,"lang":"rust","version":"0"}"#;

/// Devices that dial one server.
pub(super) struct NatsFleet {
    address: SocketAddr,
}

/// A connection with its one subscription.
pub(super) struct NatsDevice {
    stream: TcpStream,
    received: Vec<u8>,
}

/// What the server sends, as far as a device cares.
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
        let hello = format!("{CONNECT}\r\nSUB {} 1\r\nPING\r\n", device_name(index));
        stream.write_all(hello.as_bytes()).await?;
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
        let mut answers = Vec::new();
        loop {
            device.read().await?;
            let mut consumed = 0;
            while let Some((operation, length)) = parse(&device.received[consumed..])? {
                match operation {
                    Operation::Message { reply } => {
                        let head = format!("PUB {reply} {}\r\n", payload.len());
                        answers.extend_from_slice(head.as_bytes());
                        answers.extend_from_slice(&payload);
                        answers.extend_from_slice(b"\r\n");
                    }
                    Operation::Ping => answers.extend_from_slice(b"PONG\r\n"),
                    Operation::Pong | Operation::Other => {}
                }
                consumed += length;
            }
            device.received.drain(..consumed);
            device.stream.write_all(&answers).await?;
            answers.clear();
        }
    }
}

impl NatsDevice {
    async fn read(&mut self) -> anyhow::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => bail!("the server closed"),
            _ => Ok(()),
        }
    }
}

/// The first operation and its length; `None` until all of it has arrived.
fn parse(received: &[u8]) -> anyhow::Result<Option<(Operation<'_>, usize)>> {
    let Some(end) = received.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = std::str::from_utf8(&received[..end])?;
    let after_line = end + 2;
    let words: Vec<_> = line.split(' ').collect();
    let (operation, length) = match words[..] {
        ["MSG", _subject, _id, reply, bytes] => {
            let bytes: usize = bytes.parse().context("a message's length")?;
            (Operation::Message { reply }, after_line + bytes + 2)
        }
        ["PING"] => (Operation::Ping, after_line),
        ["PONG"] => (Operation::Pong, after_line),
        ["-ERR", ..] => bail!("the server says {line}"),
        _ => (Operation::Other, after_line),
    };
    Ok((received.len() >= length).then_some((operation, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_whole() {
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
