//! The MQTT 5 packets that a device needs, at quality of service 0.

use anyhow::{Context as _, bail};

const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;

const RESPONSE_TOPIC: u8 = 0x08;
const CORRELATION_DATA: u8 = 0x09;

/// A packet sent by the broker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    /// The broker accepted the connection.
    Connected,
    /// The broker accepted the subscription.
    Subscribed,
    /// A request. Its response goes to `response_topic` with the same correlation data.
    Request {
        response_topic: &'a [u8],
        correlation: &'a [u8],
    },
    /// A packet that devices ignore.
    Other,
}

/// CONNECT with a clean start and without keep-alive.
pub(super) fn connect(client_id: &str) -> Vec<u8> {
    let mut body = Vec::new();
    push_text(&mut body, b"MQTT");
    // Version 5, clean start, no keep-alive, no properties.
    body.extend([5, 0x02, 0, 0, 0]);
    push_text(&mut body, client_id.as_bytes());
    packet(0x10, &body)
}

/// SUBSCRIBE to one topic at quality of service 0.
pub(super) fn subscribe(topic: &str) -> Vec<u8> {
    // Packet id 1, no properties.
    let mut body = vec![0, 1, 0];
    push_text(&mut body, topic.as_bytes());
    body.push(0);
    packet(0x82, &body)
}

/// PUBLISH of a response.
pub(super) fn publish_response(topic: &[u8], correlation: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut properties = vec![CORRELATION_DATA];
    push_text(&mut properties, correlation);
    let mut body = Vec::with_capacity(topic.len() + properties.len() + payload.len() + 4);
    push_text(&mut body, topic);
    push_varint(&mut body, properties.len());
    body.extend_from_slice(&properties);
    body.extend_from_slice(payload);
    packet(PUBLISH, &body)
}

/// Parses the first packet and returns it with its length, or `None` if it is incomplete.
pub(super) fn parse(received: &[u8]) -> anyhow::Result<Option<(Packet<'_>, usize)>> {
    let mut reader = Reader { rest: received };
    let (Ok(kind), Ok(length)) = (reader.byte(), reader.varint()) else {
        return Ok(None);
    };
    let Ok(body) = reader.take(length) else {
        return Ok(None);
    };
    let consumed = received.len() - reader.rest.len();
    let packet = match kind & 0xf0 {
        CONNACK if body.get(1) != Some(&0) => bail!("the broker rejected the connection"),
        CONNACK => Packet::Connected,
        SUBACK => Packet::Subscribed,
        PUBLISH => request(body)?,
        _ => Packet::Other,
    };
    Ok(Some((packet, consumed)))
}

fn request(body: &[u8]) -> anyhow::Result<Packet<'_>> {
    let mut reader = Reader { rest: body };
    reader.text()?;
    let length = reader.varint()?;
    let mut properties = Reader {
        rest: reader.take(length)?,
    };
    let (mut response_topic, mut correlation) = (&[][..], &[][..]);
    while !properties.rest.is_empty() {
        match properties.byte()? {
            RESPONSE_TOPIC => response_topic = properties.text()?,
            CORRELATION_DATA => correlation = properties.text()?,
            0x01 => drop(properties.byte()?),
            0x02 => drop(properties.take(4)?),
            0x03 => drop(properties.text()?),
            0x0b => drop(properties.varint()?),
            0x26 => drop((properties.text()?, properties.text()?)),
            unknown => bail!("unknown PUBLISH property {unknown:#04x}"),
        }
    }
    Ok(Packet::Request {
        response_topic,
        correlation,
    })
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> anyhow::Result<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .context("the packet is truncated")?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> anyhow::Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// Reads a variable byte integer: seven bits per byte, low bits first, at most four bytes.
    fn varint(&mut self) -> anyhow::Result<usize> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        bail!("the variable byte integer is longer than four bytes")
    }

    fn text(&mut self) -> anyhow::Result<&'a [u8]> {
        let length = self.take(2)?;
        self.take(usize::from(u16::from_be_bytes([length[0], length[1]])))
    }
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![kind];
    push_varint(&mut packet, body.len());
    packet.extend_from_slice(body);
    packet
}

/// Appends a length-prefixed string. Strings in a benchmark are far below the limit of 64 KiB.
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend(length.to_be_bytes());
    out.extend_from_slice(&text[..usize::from(length)]);
}

fn push_varint(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_incomplete_packet_returns_none() {
        fn check(received: &[u8], expected: Option<(Packet<'_>, usize)>) {
            assert_eq!(parse(received).unwrap(), expected);
        }
        check(&[0x20], None);
        check(&[0x20, 3, 0, 0], None);
        check(&[0x20, 3, 0, 0, 0, 9], Some((Packet::Connected, 5)));
        check(&[0x90, 4, 0, 1, 0, 0], Some((Packet::Subscribed, 6)));
        check(&[0xd0, 0], Some((Packet::Other, 2)));
        assert!(parse(&[0x20, 3, 0, 0x87, 0]).is_err());
    }

    #[test]
    fn parse_request_returns_response_topic() {
        let body = *b"\x00\x05dev-1\x0b\x08\x00\x03out\x09\x00\x02\x00\x07payload";
        let request = packet(PUBLISH, &body);
        let expected = Packet::Request {
            response_topic: b"out",
            correlation: &[0, 7],
        };
        assert_eq!(parse(&request).unwrap(), Some((expected, request.len())));
    }

    #[test]
    fn varint_round_trip_preserves_value() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_152] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(Reader { rest: &bytes }.varint().unwrap(), value);
        }
    }
}
