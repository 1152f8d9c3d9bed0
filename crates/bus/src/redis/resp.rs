//! The Redis serialization protocol (RESP2), as far as publishing and subscribing need it.
//!
//! The driver speaks it for commands. The connections that only publish or only subscribe use
//! this codec, because they must see replies and pushes as they arrive.
//! Invariant: no length that a peer sends is trusted beyond the limits below.

use std::{fmt, io::Write as _};

/// Longer than any batch.
const MAX_BULK_BYTES: usize = 64 * 1024 * 1024;
/// A line holds a length, a number or an error message.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// A pub/sub message has a kind, a channel, and a payload or a number of subscriptions.
const MESSAGE_PARTS: usize = 3;

/// A reply or a pub/sub message; slices of the buffer that was read.
#[derive(Debug, PartialEq)]
pub(super) enum Frame<'a> {
    /// `+OK`
    Status(&'a [u8]),
    /// `-ERR …`, without the sign.
    Error(&'a [u8]),
    /// `:1`
    Integer(u64),
    /// `*3`: kind, channel, and the payload or the number of subscriptions.
    Message([&'a [u8]; MESSAGE_PARTS]),
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "+{}", String::from_utf8_lossy(status)),
            Self::Error(error) => write!(f, "-{}", String::from_utf8_lossy(error)),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Message(parts) => {
                let [kind, channel, payload] = parts.map(String::from_utf8_lossy);
                write!(f, "{kind} {channel} {payload}")
            }
        }
    }
}

/// Bytes that no Redis server sends on such a connection.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

/// Appends a command: an array of bulk strings.
pub(super) fn encode_command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    // Writing to a vector does not fail.
    let _ = write!(out, "*{}\r\n", parts.len());
    for part in parts {
        let _ = write!(out, "${}\r\n", part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

/// Decodes the next frame and advances the buffer behind it. `None` while the frame is
/// incomplete; the buffer is left as it is then.
pub(super) fn decode<'a>(buffer: &mut &'a [u8]) -> Result<Option<Frame<'a>>, Malformed> {
    let mut rest = *buffer;
    let Some((kind, line)) = take_line(&mut rest)? else {
        return Ok(None);
    };
    let frame = match kind {
        b'+' => Frame::Status(line),
        b'-' => Frame::Error(line),
        b':' => Frame::Integer(parse_number(line)?),
        b'*' => {
            if parse_number(line)? != MESSAGE_PARTS as u64 {
                return Err(Malformed);
            }
            let mut parts = [&b""[..]; MESSAGE_PARTS];
            for part in &mut parts {
                match take_part(&mut rest)? {
                    Some(bytes) => *part = bytes,
                    None => return Ok(None),
                }
            }
            Frame::Message(parts)
        }
        _ => return Err(Malformed),
    };
    *buffer = rest;
    Ok(Some(frame))
}

/// A bulk string, or a number as it is written.
fn take_part<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let Some((kind, line)) = take_line(rest)? else {
        return Ok(None);
    };
    match kind {
        b':' => Ok(Some(line)),
        b'$' => {
            let length = usize::try_from(parse_number(line)?).map_err(|_| Malformed)?;
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

/// The first byte of a line, and what follows up to its end.
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
    let (kind, line) = line.split_first().ok_or(Malformed)?;
    *rest = after;
    Ok(Some((*kind, line)))
}

fn parse_number(line: &[u8]) -> Result<u64, Malformed> {
    str::from_utf8(line)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the bytes for every position at which they can be split.
    #[track_caller]
    fn check(bytes: &str, expected: &[&str]) {
        for split in 0..=bytes.len() {
            let (head, tail) = bytes.as_bytes().split_at(split);
            let mut buffer = Vec::new();
            let mut decoded = Vec::new();
            for part in [head, tail] {
                buffer.extend_from_slice(part);
                let mut rest = &buffer[..];
                while let Some(frame) = decode(&mut rest).unwrap() {
                    decoded.push(frame.to_string());
                }
                buffer = rest.to_vec();
            }
            assert_eq!(decoded, expected, "{bytes:?} split at {split}");
        }
    }

    #[test]
    fn frames_split_anywhere_are_decoded() {
        let confirmation = "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n";
        let message = "*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$4\r\n\r\n*\0\r\n";
        let moved = "-MOVED 7 127.0.0.1:7000\r\n";
        check("", &[]);
        check(":1\r\n:0\r\n+OK\r\n", &[":1", ":0", "+OK"]);
        check(confirmation, &["ssubscribe a 1"]);
        check(
            &[message, moved, confirmation].concat(),
            &[
                "smessage a \r\n*\0",
                "-MOVED 7 127.0.0.1:7000",
                "ssubscribe a 1",
            ],
        );
    }

    #[test]
    fn malformed_frames_are_refused() {
        for wrong in [
            "*2\r\n",
            "$2\r\nab\r\n",
            "*3\r\n$99999999999\r\n",
            "*3\r\n*1\r\n",
            "*x\r\n",
            "\r\n",
        ] {
            assert_eq!(decode(&mut wrong.as_bytes()), Err(Malformed), "{wrong:?}");
        }
        let endless = [b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(decode(&mut &endless[..]), Err(Malformed));
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        encode_command(&mut out, &[b"PUBLISH", "sb:in:节点".as_bytes(), b"\r\n\0"]);
        let expected = "*3\r\n$7\r\nPUBLISH\r\n$12\r\nsb:in:节点\r\n$3\r\n\r\n\0\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
