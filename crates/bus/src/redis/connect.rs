//! Opens and authenticates the sockets that only publish or only subscribe.

use std::{io, net::TcpStream, os::fd::OwnedFd};

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net,
};

use super::resp::{self, Frame};
use crate::error::BusError;

/// A reply to `AUTH` is a short line.
const MAX_REPLY_BYTES: usize = 1024;

/// Connects to a server and authenticates. The socket is non-blocking.
pub(super) async fn connect(info: &ConnectionInfo) -> Result<TcpStream, BusError> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let address = (host.as_str(), *port);
            let mut stream = net::TcpStream::connect(address)
                .await
                .map_err(unreachable)?;
            stream.set_nodelay(true).map_err(unreachable)?;
            authenticate(&mut stream, info).await?;
            stream.into_std().map_err(unreachable)
        }
        ConnectionAddr::Unix(path) => {
            let mut stream = net::UnixStream::connect(path).await.map_err(unreachable)?;
            authenticate(&mut stream, info).await?;
            let stream = stream.into_std().map_err(unreachable)?;
            // Reading and writing are the same for both kinds of stream.
            Ok(OwnedFd::from(stream).into())
        }
        other => Err(BusError::Address(format!("{other} is not supported"))),
    }
}

/// Authenticates with the credentials of the URL, if it has any.
async fn authenticate(
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
    resp::encode_command(&mut command, &parts);
    stream.write_all(&command).await.map_err(unreachable)?;
    // Byte by byte: what follows the reply is for the owner of the socket to read.
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") && reply.len() < MAX_REPLY_BYTES {
        reply.push(stream.read_u8().await.map_err(unreachable)?);
    }
    match resp::decode(&mut &reply[..]) {
        Ok(Some(Frame::Error(error))) => {
            Err(BusError::Unexpected(String::from_utf8_lossy(error).into()))
        }
        _ => Ok(()),
    }
}

fn unreachable(error: io::Error) -> BusError {
    redis::RedisError::from(error).into()
}
