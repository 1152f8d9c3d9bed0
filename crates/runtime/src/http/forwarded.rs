//! The address of a client behind trusted proxies.
//! Invariant: a client cannot choose it: each proxy appends the address that it received from.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;

/// Returns the last address of `X-Forwarded-For` that no trusted proxy has. `None` if there is none,
/// or if an element after it is no address.
pub(super) fn client_address(
    headers: &HeaderMap,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let lines = headers.get_all("x-forwarded-for").iter();
    // An element of an unreadable line is no address.
    let lines = lines.map(|line| line.to_str().unwrap_or_default());
    for element in lines.flat_map(|line| line.split(',')).rev() {
        let address = parse(element.trim())?;
        if !is_proxy(address) {
            return Some(address);
        }
    }
    None
}

/// Some proxies append the port.
fn parse(element: &str) -> Option<IpAddr> {
    let socket = || element.parse().ok().map(|socket: SocketAddr| socket.ip());
    element.parse().ok().or_else(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_address_that_is_no_proxy_is_the_client() {
        fn check(lines: &[&str], expect: Option<&str>) {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            let proxy: ipnet::IpNet = "10.0.0.0/8".parse().unwrap();
            let client = client_address(&headers, |address| proxy.contains(&address));
            let expect = expect.map(|address| address.parse().unwrap());
            assert_eq!(client, expect, "{lines:?}");
        }
        check(&[], None);
        check(&["192.0.2.1"], Some("192.0.2.1"));
        check(&["2001:db8::1"], Some("2001:db8::1"));
        // What the client has sent comes first.
        check(&["203.0.113.9, 192.0.2.1"], Some("192.0.2.1"));
        check(&["203.0.113.9", "192.0.2.1,10.0.0.1"], Some("192.0.2.1"));
        check(
            &["203.0.113.9, 192.0.2.1", "10.0.0.1, 10.2.3.4"],
            Some("192.0.2.1"),
        );
        check(&["10.0.0.1"], None);
        check(&["192.0.2.1:4711"], Some("192.0.2.1"));
        check(&["[2001:db8::1]:4711"], Some("2001:db8::1"));
        check(&["192.0.2.1, unknown"], None);
        check(&["unknown, 192.0.2.1"], Some("192.0.2.1"));
        check(&["192.0.2.1,"], None);
    }
}
