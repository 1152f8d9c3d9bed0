//! How a browser reaches this installation, which decides on its cookie.
//!
//! A browser stores a `Secure` cookie over HTTPS only. Over plain HTTP a session is possible from the
//! machine itself alone, where nothing can be read on the way.

use std::net::IpAddr;

use http::{Extensions, HeaderMap, HeaderName, Uri, header};
use switchboard_runtime::http::{is_tls, peer_address};

use super::origin::FORWARDED_HOST;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How a browser reaches this installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Over HTTPS, which a proxy may end.
    Https,
    /// Over HTTP, from the same machine.
    Loopback,
}

impl Transport {
    /// Returns how a request was sent; `None` over HTTP from another machine.
    ///
    /// A client can pretend that a proxy has ended HTTPS: its browser does not store the cookie then.
    /// It cannot pretend to be on this machine.
    #[must_use]
    pub fn of(headers: &HeaderMap, extensions: &Extensions) -> Option<Self> {
        let is_https = is_tls(extensions)
            || headers
                .get(FORWARDED_PROTO)
                .is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"));
        if is_https {
            return Some(Self::Https);
        }
        Self::is_loopback(headers, extensions).then_some(Self::Loopback)
    }

    /// Whether a request was sent from this machine: its connection, those of all proxies, and the
    /// host that it names are local.
    #[must_use]
    pub fn is_loopback(headers: &HeaderMap, extensions: &Extensions) -> bool {
        let peer = peer_address(extensions);
        let forwarded = headers.get_all(FORWARDED_FOR).iter();
        let forwarded = forwarded.flat_map(|line| line.to_str().unwrap_or_default().split(','));
        let is_local = |element: &str| {
            let address = element.trim().parse::<IpAddr>();
            address.is_ok_and(|address| address.to_canonical().is_loopback())
        };
        let hosts = [header::HOST, FORWARDED_HOST];
        let mut hosts = hosts.iter().flat_map(|name| headers.get_all(name));
        peer.is_some_and(|peer| peer.is_loopback())
            && forwarded.into_iter().all(is_local)
            && headers.contains_key(header::HOST)
            && hosts.all(|host| host.to_str().is_ok_and(is_local_host))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Https => "__Host-switchboard",
            Self::Loopback => "switchboard_session",
        }
    }

    const fn secure(self) -> &'static str {
        match self {
            Self::Https => "; Secure",
            Self::Loopback => "",
        }
    }

    /// Without an age: the cookie ends with the browser.
    pub(super) fn cookie(self, sealed: &str) -> String {
        let (name, secure) = (self.name(), self.secure());
        format!("{name}={sealed}; Path=/; HttpOnly; SameSite=Strict{secure}")
    }

    pub(super) fn cleared_cookie(self) -> String {
        format!("{}; Max-Age=0", self.cookie(""))
    }
}

/// The host of a URL of this machine, with or without a port.
fn is_local_host(host: &str) -> bool {
    let uri = host.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The cookie of a session that was sent with a request. That of plain HTTP counts only on this
/// machine: other sites of the same domain can set it.
pub(super) fn sent_cookie<'a>(
    headers: &'a HeaderMap,
    extensions: &Extensions,
) -> Option<(&'a str, Transport)> {
    let (value, transport) = any_cookie(headers)?;
    let counts = transport == Transport::Https || Transport::is_loopback(headers, extensions);
    counts.then_some((value, transport))
}

/// The cookie of a session, wherever it comes from.
pub(super) fn any_cookie(headers: &HeaderMap) -> Option<(&str, Transport)> {
    let find = |transport: Transport| {
        let lines = headers.get_all(header::COOKIE).iter();
        let pairs = lines.flat_map(|line| line.to_str().unwrap_or_default().split(';'));
        let mut values = pairs.filter_map(|pair| pair.trim().split_once('='));
        let found = values.find(|(name, _)| *name == transport.name());
        found.map(|(_, value)| (value, transport))
    };
    find(Transport::Https).or_else(|| find(Transport::Loopback))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_has_the_attributes_of_its_transport() {
        assert_eq!(
            Transport::Https.cookie("v"),
            "__Host-switchboard=v; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
        assert_eq!(
            Transport::Loopback.cookie("v"),
            "switchboard_session=v; Path=/; HttpOnly; SameSite=Strict"
        );
        assert!(
            Transport::Https
                .cleared_cookie()
                .ends_with("; Secure; Max-Age=0")
        );
    }

    #[test]
    fn cookie_is_found_among_others() {
        fn check(lines: &[&str], expected: Option<(&str, Transport)>) {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, line.parse().unwrap());
            }
            assert_eq!(any_cookie(&headers), expected, "{lines:?}");
        }
        let secure = Some(("a", Transport::Https));
        check(&[], None);
        check(&["theme=dark"], None);
        check(&["theme=dark; __Host-switchboard=a; x=y"], secure);
        check(&["theme=dark", "__Host-switchboard=a"], secure);
        check(&["switchboard_session=b;__Host-switchboard=a"], secure);
        check(&["switchboard_session=b"], Some(("b", Transport::Loopback)));
        check(&["x__Host-switchboard=a"], None);
    }

    #[test]
    fn local_hosts_are_recognised() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:80",
            "127.1.2.3",
            "[::1]:8080",
        ] {
            assert!(is_local_host(host), "{host}");
        }
        for host in [
            "",
            "toys.example",
            "localhost.evil.example",
            "192.168.0.1:8080",
            "a b",
        ] {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
