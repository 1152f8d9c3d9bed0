//! The connection that subscribes at one server of a cluster, and does nothing else.
//!
//! A server that migrates a slot away ends the subscriptions in it. The driver would mistake that
//! push for the reply to a command in flight, so no commands go through this connection.

use bytes::{Buf, Bytes, BytesMut};
use redis::ConnectionInfo;
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt, WriteHalf},
    sync::Mutex,
};

use super::{
    connector::{Connector, Stream},
    resp::{self, Frame},
    subscriber::Subscriber,
};
use crate::error::BusError;

/// Capacity that is reserved for one read.
const READ_BYTES: usize = 64 * 1024;

pub(super) struct ShardSubscriber {
    write_half: Mutex<WriteHalf<Stream>>,
    read_half: Mutex<ReadHalf>,
}

struct ReadHalf {
    socket: io::ReadHalf<Stream>,
    buffer: BytesMut,
}

impl ShardSubscriber {
    pub(super) async fn connect(
        connector: &Connector,
        info: &ConnectionInfo,
    ) -> Result<Self, BusError> {
        let (socket, write_half) = io::split(connector.connect(info).await?);
        Ok(Self {
            write_half: Mutex::new(write_half),
            read_half: Mutex::new(ReadHalf {
                socket,
                buffer: BytesMut::new(),
            }),
        })
    }

    /// Sends `SUBSCRIBE` or another command about a channel. Redis confirms it with a push that
    /// names the channel.
    pub(super) async fn send(&self, command: &str, channel: &str) -> Result<(), BusError> {
        let mut bytes = Vec::new();
        resp::encode_command(&mut bytes, &[command.as_bytes(), channel.as_bytes()]);
        let mut write_half = self.write_half.lock().await;
        let written = match write_half.write_all(&bytes).await {
            Ok(()) => write_half.flush().await,
            failed => failed,
        };
        written.map_err(|error| redis::RedisError::from(error).into())
    }

    /// Passes pushes to the subscriber until the connection fails. Returns the reason. Errors of
    /// Redis are passed to `on_error`.
    pub(super) async fn run(&self, subscriber: &Subscriber, on_error: impl Fn(&str)) -> String {
        let mut read_half = self.read_half.lock().await;
        let ReadHalf { socket, buffer } = &mut *read_half;
        loop {
            loop {
                let mut rest = &buffer[..];
                match resp::decode(&mut rest) {
                    Ok(Some(Frame::Message([kind, channel, payload]))) => match kind {
                        b"message" | b"smessage" => {
                            subscriber.receive(channel, Bytes::copy_from_slice(payload));
                        }
                        b"subscribe" | b"ssubscribe" => subscriber.confirm(channel, true),
                        b"sunsubscribe" => subscriber.confirm(channel, false),
                        _ => {}
                    },
                    Ok(Some(Frame::Error(error))) => on_error(&String::from_utf8_lossy(error)),
                    Ok(None) => break,
                    Ok(Some(Frame::Status(_) | Frame::Integer(_))) | Err(resp::Malformed) => {
                        return "subscribing failed: Redis sent a malformed push".to_owned();
                    }
                }
                let consumed = buffer.len() - rest.len();
                buffer.advance(consumed);
            }
            buffer.reserve(READ_BYTES);
            match socket.read_buf(buffer).await {
                Ok(0) => return "subscribing failed: closed by Redis".to_owned(),
                Ok(_) => {}
                Err(error) => return format!("subscribing failed: {error}"),
            }
        }
    }
}
