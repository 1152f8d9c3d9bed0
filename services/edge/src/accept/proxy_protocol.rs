//! Connections from a balancer: reads the PROXY header (HAProxy's specification, versions 1 and 2)
//! that precedes the device's first byte.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use proxy_header::{ParseConfig, Protocol, ProxiedAddress, ProxyHeader};
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tracing::debug;

use super::{ConnectionPermit, reject, send_goaway};

/// A balancer sends the header with its first packet. Protects the unauthenticated slots.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

const V1_PREFIX: &[u8] = b"PROXY ";
/// The longest line of version 1, line end included.
const MAX_V1_BYTES: usize = 107;

const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version, family, and the length of the rest.
const V2_FIXED_BYTES: usize = 16;
/// Version 2 and the command LOCAL, in one byte.
const V2_LOCAL: u8 = 0x20;

/// The longest header that is accepted. Addresses take at most 232 bytes; the rest are extensions
/// that the edge ignores.
const MAX_HEADER_BYTES: usize = 1_024;

/// The device that a header names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    V1(IpAddr),
    V2(IpAddr),
    /// The balancer itself, such as a health check, or unknown.
    Local,
}

#[derive(Debug, thiserror::Error)]
enum ProxyHeaderError {
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    #[error("the PROXY header is malformed")]
    Malformed,
    #[error("the PROXY header is too long")]
    TooLong,
    #[error("the connection ended within the PROXY header")]
    Truncated,
    #[error("the PROXY header did not arrive in time")]
    Timeout,
    #[error("the socket failed within the PROXY header")]
    Io(#[source] io::Error),
}

/// The metric labels of all headers and all errors.
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

/// How much of the bytes received so far is the header.
#[derive(Debug, PartialEq, Eq)]
enum Extent {
    /// All of them, and more follow.
    Partial,
    /// This many bytes.
    Complete(usize),
}

impl Origin {
    const fn label(self) -> &'static str {
        match self {
            Self::V1(_) => "v1",
            Self::V2(_) => "v2",
            Self::Local => "local",
        }
    }

    /// A balancer's health check may name the balancer itself as the device.
    fn without_balancer(self, balancer: IpAddr) -> Self {
        match self {
            Self::V1(device) | Self::V2(device) if device == balancer.to_canonical() => Self::Local,
            origin => origin,
        }
    }
}

impl ProxyHeaderError {
    const fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Truncated => "cut",
            Self::Timeout => "late",
            Self::Io(_) => "broken",
        }
    }
}

/// Reads the header of a proxied connection and gives the permit the device's address. Returns
/// `None` when there is nothing to serve.
pub(super) async fn read_proxy_header(
    mut stream: TcpStream,
    mut permit: ConnectionPermit,
) -> Option<(TcpStream, ConnectionPermit)> {
    let edge = Arc::clone(permit.edge());
    let header = tokio::select! {
        biased;
        () = edge.tasks.draining() => return None,
        () = permit.evicted() => {
            send_goaway(&edge, &stream);
            return None;
        }
        header = read(&mut stream, permit.deadline()) => {
            header.map(|origin| origin.without_balancer(permit.address()))
        }
    };
    let label = header
        .as_ref()
        .map_or_else(|error| error.label(), |origin| origin.label());
    edge.metrics.proxy_headers.with_label_values(&[label]).inc();
    match header {
        Ok(Origin::V1(device) | Origin::V2(device)) => match permit.set_device_address(device) {
            Ok(()) => Some((stream, permit)),
            Err(limit) => {
                reject(&edge, &stream, limit);
                None
            }
        },
        Ok(Origin::Local) => has_data(&stream, &permit).await.then_some((stream, permit)),
        Err(error) => {
            let cause = &error as &dyn std::error::Error;
            debug!(balancer.address = %permit.address(), reason = label, cause,
                "proxied connection closed: no valid PROXY header");
            None
        }
    }
}

/// Waits for data after a local header. A health check sends none; it is neither counted nor
/// logged.
async fn has_data(stream: &TcpStream, permit: &ConnectionPermit) -> bool {
    let mut first = [0];
    tokio::select! {
        biased;
        () = permit.edge().tasks.draining() => false,
        () = permit.evicted() => {
            send_goaway(permit.edge(), stream);
            false
        }
        peeked = timeout_at(permit.deadline(), stream.peek(&mut first)) => matches!(peeked, Ok(Ok(1))),
    }
}

async fn read(stream: &mut TcpStream, deadline: Instant) -> Result<Origin, ProxyHeaderError> {
    let deadline = deadline.min(Instant::now() + HEADER_TIMEOUT);
    let header = timeout_at(deadline, read_exactly(stream)).await;
    header.unwrap_or(Err(ProxyHeaderError::Timeout))
}

/// Invariant: consumes the bytes of the header and none after them.
async fn read_exactly(stream: &mut TcpStream) -> Result<Origin, ProxyHeaderError> {
    let mut bytes = [0; MAX_HEADER_BYTES];
    let mut consumed = 0;
    loop {
        let rest = bytes.get_mut(consumed..).ok_or(ProxyHeaderError::TooLong)?;
        // Peek first: bytes after the header stay in the socket for the TLS or frame reader.
        let peeked = stream.peek(rest).await.map_err(ProxyHeaderError::Io)?;
        if peeked == 0 {
            return Err(ProxyHeaderError::Truncated);
        }
        let extent = extent(bytes.get(..consumed + peeked).unwrap_or_default())?;
        let end = match extent {
            Extent::Partial => consumed + peeked,
            Extent::Complete(length) => length,
        };
        let header = bytes
            .get_mut(consumed..end)
            .ok_or(ProxyHeaderError::TooLong)?;
        stream
            .read_exact(header)
            .await
            .map_err(ProxyHeaderError::Io)?;
        consumed = end;
        if let Extent::Complete(length) = extent {
            return parse(bytes.get(..length).unwrap_or_default());
        }
    }
}

/// Finds the end of the header in the bytes received so far.
fn extent(bytes: &[u8]) -> Result<Extent, ProxyHeaderError> {
    if matches_prefix(bytes, V2_SIGNATURE) {
        let Some([.., high, low]) = bytes.get(..V2_FIXED_BYTES) else {
            return Ok(Extent::Partial);
        };
        let length = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        if length > MAX_HEADER_BYTES {
            return Err(ProxyHeaderError::TooLong);
        }
        let is_complete = bytes.len() >= length;
        return Ok(if is_complete {
            Extent::Complete(length)
        } else {
            Extent::Partial
        });
    }
    if matches_prefix(bytes, V1_PREFIX) {
        let line = bytes.get(..MAX_V1_BYTES).unwrap_or(bytes);
        return match line.iter().position(|byte| *byte == b'\n') {
            Some(at) => Ok(Extent::Complete(at + 1)),
            None if line.len() == MAX_V1_BYTES => Err(ProxyHeaderError::TooLong),
            None => Ok(Extent::Partial),
        };
    }
    Err(ProxyHeaderError::Missing)
}

/// One of the two is a prefix of the other.
fn matches_prefix(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.starts_with(prefix) || prefix.starts_with(bytes)
}

/// Parses a complete header.
fn parse(header: &[u8]) -> Result<Origin, ProxyHeaderError> {
    let is_v1 = header.starts_with(V1_PREFIX);
    if !is_v1 && header.get(V2_SIGNATURE.len()) == Some(&V2_LOCAL) {
        // The specification ignores the rest, and some balancers leave invalid data there.
        return Ok(Origin::Local);
    }
    let config = ParseConfig {
        include_tlvs: false,
        allow_v1: true,
        allow_v2: true,
    };
    match ProxyHeader::parse(header, config) {
        Ok((parsed, length)) if length == header.len() => match parsed.proxied_address() {
            None => Ok(Origin::Local),
            Some(ProxiedAddress {
                protocol: Protocol::Stream,
                source,
                ..
            }) => Ok(origin(is_v1, *source)),
            Some(_) => Err(ProxyHeaderError::Malformed),
        },
        _ => Err(ProxyHeaderError::Malformed),
    }
}

fn origin(is_v1: bool, source: SocketAddr) -> Origin {
    // An IPv4-mapped IPv6 address counts as the IPv4 address.
    let address = source.ip().to_canonical();
    if is_v1 {
        Origin::V1(address)
    } else {
        Origin::V2(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2_HEADER: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0f\xcb\x00\x71\x09\x0a\x00\x00\x01\x1f\x90\x1f\x91\x04\x00\x00";
    const V1_HEADER: &[u8] = b"PROXY TCP6 2001:db8::9 ::1 65535 1\r\n";

    /// The origin of a header, or the label of what is wrong; `partial` while it is incomplete.
    fn parse_bytes(bytes: &[u8]) -> Result<Origin, &'static str> {
        match extent(bytes).map_err(|error| error.label())? {
            Extent::Partial => Err("partial"),
            Extent::Complete(length) => parse(&bytes[..length]).map_err(|error| error.label()),
        }
    }

    #[test]
    fn extent_is_exact_however_the_header_is_split() {
        for header in [V2_HEADER, V1_HEADER, b"PROXY UNKNOWN\r\n"] {
            for length in 0..header.len() {
                assert_eq!(parse_bytes(&header[..length]), Err("partial"), "{length}");
            }
            let with_frame = [header, b"##START\x10\r\n\n"].concat();
            let extent = extent(&with_frame).unwrap();
            assert_eq!(extent, Extent::Complete(header.len()));
        }
        let device = "203.0.113.9".parse().unwrap();
        assert_eq!(parse_bytes(V2_HEADER), Ok(Origin::V2(device)));
        let device = "2001:db8::9".parse().unwrap();
        assert_eq!(parse_bytes(V1_HEADER), Ok(Origin::V1(device)));
    }

    #[test]
    fn header_with_any_changed_byte_parses_or_is_refused() {
        for header in [V2_HEADER, V1_HEADER] {
            for at in 0..header.len() {
                for byte in 0..=u8::MAX {
                    let mut changed = header.to_vec();
                    changed[at] = byte;
                    if let Err(label) = parse_bytes(&changed) {
                        let known = ["partial", "missing", "malformed", "too_long"];
                        assert!(known.contains(&label), "{label}");
                    }
                }
            }
        }
    }
}
