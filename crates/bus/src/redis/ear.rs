//! Listens at one server of a cluster, on a connection that does nothing else.
//!
//! A server that gives a slot away ends the subscriptions in it unasked. The driver would take
//! that for the reply to whatever command is under way, so nothing else may be under way here.
//! Never: a length believed that no pack has.

use bytes::{Buf, Bytes, BytesMut};
use redis::ConnectionInfo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
};

use super::{dial::dial, ears::Ears, publisher::put_command};
use crate::error::BusError;

/// Longer than any pack.
const MAX_BULK_BYTES: usize = 64 * 1024 * 1024;
/// A line says a length, a number, or what is wrong.
const MAX_LINE_BYTES: usize = 1024;
/// Room for what is read at once.
const READ_BYTES: usize = 64 * 1024;
/// A message has a kind, a channel and a pack or a number.
const PARTS: usize = 3;

pub(super) struct Ear {
    mouth: Mutex<OwnedWriteHalf>,
    reading: Mutex<Reading>,
}

struct Reading {
    socket: OwnedReadHalf,
    buffer: BytesMut,
}

/// One thing that Redis said.
#[derive(Debug, PartialEq)]
enum Said {
    /// Kind, channel, and what was published or how many channels are heard.
    Message([Bytes; PARTS]),
    Refused(String),
}

/// Bytes that no Redis sends here.
#[derive(Debug, PartialEq)]
struct Malformed;

impl Ear {
    pub(super) async fn connect(info: &ConnectionInfo) -> Result<Self, BusError> {
        let stream = TcpStream::from_std(dial(info).await?).map_err(redis::RedisError::from)?;
        let (socket, mouth) = stream.into_split();
        Ok(Self {
            mouth: Mutex::new(mouth),
            reading: Mutex::new(Reading {
                socket,
                buffer: BytesMut::new(),
            }),
        })
    }

    /// `SUBSCRIBE`, or what else is about channels; Redis confirms it by the channel's name.
    pub(super) async fn ask(&self, what: &str, channel: &str) -> Result<(), BusError> {
        let mut command = Vec::new();
        put_command(&mut command, &[what.as_bytes(), channel.as_bytes()]);
        let mut mouth = self.mouth.lock().await;
        let written = mouth.write_all(&command).await;
        written.map_err(|error| redis::RedisError::from(error).into())
    }

    /// Hands on what is said, until the connection is no good any more: why. What Redis refused
    /// is told to `refused`.
    pub(super) async fn listen(&self, ears: &Ears, refused: impl Fn(&str)) -> String {
        let mut reading = self.reading.lock().await;
        let Reading { socket, buffer } = &mut *reading;
        loop {
            loop {
                match take(buffer) {
                    Ok(Some(Said::Message([kind, channel, pack]))) => match &kind[..] {
                        b"message" | b"smessage" => ears.message(&channel, pack),
                        b"subscribe" | b"ssubscribe" => ears.confirm(&channel, true),
                        b"sunsubscribe" => ears.confirm(&channel, false),
                        _ => {}
                    },
                    Ok(Some(Said::Refused(why))) => refused(&why),
                    Ok(None) => break,
                    Err(Malformed) => return "listening failed: no Redis talks so".to_owned(),
                }
            }
            buffer.reserve(READ_BYTES);
            match socket.read_buf(buffer).await {
                Ok(0) => return "listening failed: closed by Redis".to_owned(),
                Ok(_) => {}
                Err(error) => return format!("listening failed: {error}"),
            }
        }
    }
}

/// Takes the next whole thing out of the buffer, if it is there to its end.
fn take(buffer: &mut BytesMut) -> Result<Option<Said>, Malformed> {
    let mut rest = &buffer[..];
    let Some((sort, line)) = take_line(&mut rest)? else {
        return Ok(None);
    };
    let said = match sort {
        b'*' => {
            if number(line)? != PARTS {
                return Err(Malformed);
            }
            let mut parts: [Bytes; PARTS] = Default::default();
            for part in &mut parts {
                match take_part(&mut rest)? {
                    Some(bytes) => *part = Bytes::copy_from_slice(bytes),
                    None => return Ok(None),
                }
            }
            Said::Message(parts)
        }
        b'-' => Said::Refused(String::from_utf8_lossy(line).into_owned()),
        _ => return Err(Malformed),
    };
    let taken = buffer.len() - rest.len();
    buffer.advance(taken);
    Ok(Some(said))
}

/// A string, or a number as it is written.
fn take_part<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let Some((sort, line)) = take_line(rest)? else {
        return Ok(None);
    };
    match sort {
        b':' => Ok(Some(line)),
        b'$' => {
            let length = number(line)?;
            if length > MAX_BULK_BYTES {
                return Err(Malformed);
            }
            let (Some(bytes), Some(after)) = (rest.get(..length), rest.get(length + 2..)) else {
                return Ok(None);
            };
            *rest = after;
            Ok(Some(bytes))
        }
        _ => Err(Malformed),
    }
}

/// What a line begins with, and what follows.
fn take_line<'a>(rest: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, Malformed> {
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return if rest.len() > MAX_LINE_BYTES {
            Err(Malformed)
        } else {
            Ok(None)
        };
    };
    let (line, after) = (
        rest.get(..end).ok_or(Malformed)?,
        rest.get(end + 2..).ok_or(Malformed)?,
    );
    let (sort, line) = line.split_first().ok_or(Malformed)?;
    *rest = after;
    Ok(Some((*sort, line)))
}

fn number(line: &[u8]) -> Result<usize, Malformed> {
    str::from_utf8(line)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that is read, for every way in which the bytes can be cut.
    #[track_caller]
    fn check(bytes: &str, expected: &[&str]) {
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.as_bytes().split_at(cut);
            let mut buffer = BytesMut::new();
            let mut seen = Vec::new();
            for part in [head, tail] {
                buffer.extend_from_slice(part);
                loop {
                    match take(&mut buffer) {
                        Ok(Some(Said::Message(parts))) => {
                            let text = |part: Bytes| String::from_utf8(part.into()).unwrap();
                            seen.push(parts.map(text).join(" "));
                        }
                        Ok(Some(Said::Refused(why))) => seen.push(format!("-{why}")),
                        Ok(None) => break,
                        Err(Malformed) => panic!("{bytes:?} cut at {cut}"),
                    }
                }
            }
            assert_eq!(seen, expected, "{bytes:?} cut at {cut}");
        }
    }

    #[test]
    fn what_redis_says_is_read_however_it_is_cut() {
        let confirmed = "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n";
        let message = "*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$4\r\n\r\n*\0\r\n";
        let moved = "-MOVED 7 127.0.0.1:7000\r\n";
        check("", &[]);
        check(confirmed, &["ssubscribe a 1"]);
        check(
            &[message, moved, confirmed].concat(),
            &[
                "smessage a \r\n*\0",
                "-MOVED 7 127.0.0.1:7000",
                "ssubscribe a 1",
            ],
        );
    }

    #[test]
    fn what_no_redis_says_is_not_waited_for() {
        for wrong in [
            "*2\r\n",
            "+OK\r\n",
            "*3\r\n$99999999999\r\n",
            "*3\r\n*1\r\n",
            "*x\r\n",
            "\r\n",
        ] {
            let mut buffer = BytesMut::from(wrong);
            assert_eq!(take(&mut buffer), Err(Malformed), "{wrong:?}");
        }
        let mut endless = BytesMut::from(&[b'x'; MAX_LINE_BYTES + 1][..]);
        assert_eq!(take(&mut endless), Err(Malformed));
    }
}
