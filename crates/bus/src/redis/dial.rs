//! Opens the socket that packs are published through, and signs in on it.
//! Never: a byte read that belongs to a later reply.

use std::{io, net::TcpStream, os::fd::OwnedFd};

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net,
};

use super::publisher::put_command;
use crate::error::BusError;

/// A reply to `AUTH` is a short line.
const MAX_REPLY_BYTES: usize = 1024;

/// Connects to the Redis that the URL names. The socket never blocks.
pub(super) async fn dial(info: &ConnectionInfo) -> Result<TcpStream, BusError> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let address = (host.as_str(), *port);
            let mut stream = net::TcpStream::connect(address)
                .await
                .map_err(unreachable)?;
            stream.set_nodelay(true).map_err(unreachable)?;
            sign_in(&mut stream, info).await?;
            stream.into_std().map_err(unreachable)
        }
        ConnectionAddr::Unix(path) => {
            let mut stream = net::UnixStream::connect(path).await.map_err(unreachable)?;
            sign_in(&mut stream, info).await?;
            let stream = stream.into_std().map_err(unreachable)?;
            // To reading and writing, a stream is a stream.
            Ok(OwnedFd::from(stream).into())
        }
        other => Err(BusError::Address(format!("{other} is not supported"))),
    }
}

/// Signs in with what the URL has, if it has anything.
async fn sign_in(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    info: &ConnectionInfo,
) -> Result<(), BusError> {
    let Some(password) = info.redis_settings().password() else {
        return Ok(());
    };
    let mut parts: Vec<&[u8]> = vec![b"AUTH"];
    parts.extend(info.redis_settings().username().map(str::as_bytes));
    parts.push(password.as_bytes());
    let mut command = Vec::new();
    put_command(&mut command, &parts);
    stream.write_all(&command).await.map_err(unreachable)?;
    // Byte by byte: nothing may be read that the socket's owner is to read.
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") && line.len() < MAX_REPLY_BYTES {
        line.push(stream.read_u8().await.map_err(unreachable)?);
    }
    match line.strip_prefix(b"-") {
        None => Ok(()),
        Some(refusal) => {
            let refusal = String::from_utf8_lossy(refusal).trim_end().to_owned();
            Err(BusError::Unexpected(refusal))
        }
    }
}

fn unreachable(error: io::Error) -> BusError {
    redis::RedisError::from(error).into()
}
