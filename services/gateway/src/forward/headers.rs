//! Headers of one connection, and those that tell a service how its client reached the gateway.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The headers of one connection (RFC 9110, section 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes the headers that belong to the connection on which they arrived.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let lines = headers.get_all(header::CONNECTION).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(','));
    let named = names.filter_map(|name| name.trim().parse().ok());
    // A client must not hide its address by naming what a balancer has added.
    let named = named.filter(|name| *name != FORWARDED_FOR);
    let named: Vec<HeaderName> = named.collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Appends the address from which a request was received. What a client has sent comes before it.
pub(super) fn append_forwarded_for(headers: &mut HeaderMap, peer: IpAddr) {
    if let Ok(address) = HeaderValue::from_str(&peer.to_string()) {
        headers.append(FORWARDED_FOR, address);
    }
}

/// Adds the host by which the client addressed the gateway, unless a proxy before it has.
pub(super) fn keep_host(headers: &mut HeaderMap) {
    if let Some(host) = headers.remove(header::HOST) {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
}

/// Names HTTPS if it ends at the gateway.
pub(super) fn set_forwarded_proto(headers: &mut HeaderMap, is_tls: bool) {
    if is_tls {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Mine"),
            ("connection", "x-other, X-Forwarded-For"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic c2VjcmV0"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-mine", "1"),
            ("x-other", "2"),
            ("x-forwarded-for", "192.0.2.1"),
            ("idempotency-key", "one"),
            ("host", "toys.example"),
            ("x-forwarded-proto", "http"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        append_forwarded_for(&mut headers, "2001:db8::1".parse().unwrap());
        set_forwarded_proto(&mut headers, true);
        keep_host(&mut headers);
        let left: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let expected = [
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-for", "2001:db8::1"),
            ("idempotency-key", "one"),
            ("x-forwarded-host", "toys.example"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(left.len(), expected.len(), "{left:?}");
        assert!(expected.iter().all(|line| left.contains(line)), "{left:?}");
    }
}
