//! The PROXY header that a balancer puts before a device's first byte, versions 1 and 2 of HAProxy's specification.
//! Never: a byte taken from the socket that is not the header's.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use proxy_header::{ParseConfig, Protocol, ProxiedAddress, ProxyHeader};
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    time::{Instant, timeout_at},
};

/// How long a balancer may take: protects the slots of the unauthenticated. It sends the header with its first packet.
const PATIENCE: Duration = Duration::from_secs(5);

/// What version 1 begins with.
const TEXT: &[u8] = b"PROXY ";
/// Its longest line, the end included, by the specification.
const MAX_TEXT_BYTES: usize = 107;

/// What version 2 begins with.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Up to the addresses: behind the signature a version, a family, and the length of the rest.
const FIXED_BYTES: usize = 16;
/// The version and the command LOCAL, in one byte.
const LOCAL: u8 = 0x20;

/// The longest header of either version: protects memory. Addresses take 232 bytes at most, the rest are notes to us.
const MAX_BYTES: usize = 1_024;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Version 1 names this device.
    Text(IpAddr),
    /// Version 2 names this device.
    Binary(IpAddr),
    /// The balancer speaks for itself, or does not know for whom.
    Balancer,
}

/// Why there is no header.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("what came first is no PROXY header")]
    Missing,
    #[error("the PROXY header is malformed")]
    Malformed,
    #[error("the PROXY header is longer than it may be")]
    TooLong,
    #[error("the connection ended before its PROXY header was whole")]
    Cut,
    #[error("the PROXY header did not come in time")]
    Late,
    #[error("the socket failed before the PROXY header was whole")]
    Broken(#[source] io::Error),
}

/// The labels of all that can be said, and of all that can be wrong.
pub(crate) const LABELS: [&str; 9] = [
    "v1",
    "v2",
    "local",
    "missing",
    "malformed",
    "too_long",
    "cut",
    "late",
    "broken",
];

/// How much of what came is the header.
#[derive(Debug, PartialEq, Eq)]
enum Extent {
    /// All of it, and more is to come.
    Part,
    /// These first bytes.
    Whole(usize),
}

impl Origin {
    /// The metric label.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Text(_) => "v1",
            Self::Binary(_) => "v2",
            Self::Balancer => "local",
        }
    }

    /// What it comes to when this balancer says it: one that looks whether the edge is there may name itself.
    pub(super) fn said_by(self, balancer: IpAddr) -> Self {
        match self {
            Self::Text(device) | Self::Binary(device) if device == balancer.to_canonical() => {
                Self::Balancer
            }
            said => said,
        }
    }
}

impl HeaderError {
    /// The metric label.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Cut => "cut",
            Self::Late => "late",
            Self::Broken(_) => "broken",
        }
    }
}

/// Takes the header from the socket, and nothing behind it.
pub(super) async fn take(stream: &mut TcpStream, deadline: Instant) -> Result<Origin, HeaderError> {
    let deadline = deadline.min(Instant::now() + PATIENCE);
    let taken = timeout_at(deadline, take_exactly(stream)).await;
    taken.unwrap_or(Err(HeaderError::Late))
}

async fn take_exactly(stream: &mut TcpStream) -> Result<Origin, HeaderError> {
    let mut bytes = [0; MAX_BYTES];
    let mut taken = 0;
    loop {
        let rest = bytes.get_mut(taken..).ok_or(HeaderError::TooLong)?;
        // A look first: what is behind the header stays for whoever reads next.
        let seen = stream.peek(rest).await.map_err(HeaderError::Broken)?;
        if seen == 0 {
            return Err(HeaderError::Cut);
        }
        let extent = extent(bytes.get(..taken + seen).unwrap_or_default())?;
        let end = match extent {
            Extent::Part => taken + seen,
            Extent::Whole(length) => length,
        };
        let ours = bytes.get_mut(taken..end).ok_or(HeaderError::TooLong)?;
        stream.read_exact(ours).await.map_err(HeaderError::Broken)?;
        taken = end;
        if let Extent::Whole(length) = extent {
            return origin(bytes.get(..length).unwrap_or_default());
        }
    }
}

/// Where the header ends in what came so far.
fn extent(bytes: &[u8]) -> Result<Extent, HeaderError> {
    if begins(bytes, SIGNATURE) {
        let Some([.., high, low]) = bytes.get(..FIXED_BYTES) else {
            return Ok(Extent::Part);
        };
        let length = FIXED_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        if length > MAX_BYTES {
            return Err(HeaderError::TooLong);
        }
        let whole = bytes.len() >= length;
        return Ok(if whole {
            Extent::Whole(length)
        } else {
            Extent::Part
        });
    }
    if begins(bytes, TEXT) {
        let line = bytes.get(..MAX_TEXT_BYTES).unwrap_or(bytes);
        return match line.iter().position(|byte| *byte == b'\n') {
            Some(at) => Ok(Extent::Whole(at + 1)),
            None if line.len() == MAX_TEXT_BYTES => Err(HeaderError::TooLong),
            None => Ok(Extent::Part),
        };
    }
    Err(HeaderError::Missing)
}

/// Whether these are the mark's first bytes, or have it before them.
fn begins(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.starts_with(mark) || mark.starts_with(bytes)
}

/// What a whole header says.
fn origin(header: &[u8]) -> Result<Origin, HeaderError> {
    let is_text = header.starts_with(TEXT);
    if !is_text && header.get(SIGNATURE.len()) == Some(&LOCAL) {
        // Nothing else in it is to be looked at, and some balancers leave odd things there.
        return Ok(Origin::Balancer);
    }
    let config = ParseConfig {
        include_tlvs: false,
        allow_v1: true,
        allow_v2: true,
    };
    match ProxyHeader::parse(header, config) {
        Ok((parsed, length)) if length == header.len() => match parsed.proxied_address() {
            None => Ok(Origin::Balancer),
            Some(ProxiedAddress {
                protocol: Protocol::Stream,
                source,
                ..
            }) => Ok(device(is_text, *source)),
            Some(_) => Err(HeaderError::Malformed),
        },
        _ => Err(HeaderError::Malformed),
    }
}

fn device(is_text: bool, source: SocketAddr) -> Origin {
    // An IPv4 address in the clothes of IPv6 is what it is inside.
    let address = source.ip().to_canonical();
    if is_text {
        Origin::Text(address)
    } else {
        Origin::Binary(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0f\xcb\x00\x71\x09\x0a\x00\x00\x01\x1f\x90\x1f\x91\x04\x00\x00";
    const LINE: &[u8] = b"PROXY TCP6 2001:db8::9 ::1 65535 1\r\n";

    fn judge(bytes: &[u8]) -> Result<Origin, &'static str> {
        match extent(bytes).map_err(|error| error.label())? {
            Extent::Part => Err("part"),
            Extent::Whole(length) => origin(&bytes[..length]).map_err(|error| error.label()),
        }
    }

    #[test]
    fn a_header_ends_where_it_says_however_it_is_cut() {
        for header in [BINARY, LINE, b"PROXY UNKNOWN\r\n"] {
            for length in 0..header.len() {
                assert_eq!(judge(&header[..length]), Err("part"), "{length}");
            }
            let more = [header, b"##START\x10\r\n\n"].concat();
            assert_eq!(extent(&more).unwrap(), Extent::Whole(header.len()));
        }
        let device = "203.0.113.9".parse().unwrap();
        assert_eq!(judge(BINARY), Ok(Origin::Binary(device)));
        let device = "2001:db8::9".parse().unwrap();
        assert_eq!(judge(LINE), Ok(Origin::Text(device)));
    }

    #[test]
    fn no_byte_that_is_wrong_is_more_than_refused() {
        for header in [BINARY, LINE] {
            for at in 0..header.len() {
                for byte in 0..=u8::MAX {
                    let mut wrong = header.to_vec();
                    wrong[at] = byte;
                    if let Err(label) = judge(&wrong) {
                        let known = ["part", "missing", "malformed", "too_long"];
                        assert!(known.contains(&label), "{label}");
                    }
                }
            }
        }
    }
}
