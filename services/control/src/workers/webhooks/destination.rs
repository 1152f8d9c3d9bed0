//! The URL of a webhook.
//!
//! Invariant: without TLS, only networks that the operator allows can be reached.

use std::net::IpAddr;

use url::{Host, Position, Url};

use super::networks::Networks;

/// The maximum length of a URL.
pub(crate) const MAX_URL_BYTES: usize = 2048;

/// The valid URL of a webhook.
#[derive(Debug, Clone)]
pub(crate) struct Destination(Url);

impl Destination {
    /// Parses a URL; an error is the reason why it is invalid. An IP address is checked here, a
    /// host name when it is resolved.
    pub(crate) fn parse(text: &str, networks: &Networks) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "is not an absolute URL")?;
        if text.len() > MAX_URL_BYTES || url.as_str().len() > MAX_URL_BYTES {
            return Err("has more than 2048 bytes");
        }
        match url.scheme() {
            "https" => {}
            "http" if !networks.is_empty() => {}
            _ => return Err("must begin with https://"),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not have a user or a password; deliveries are signed");
        }
        if url.fragment().is_some() {
            return Err("must not have a fragment");
        }
        if url.port() == Some(0) {
            return Err("must not have the port 0");
        }
        let destination = Self(url);
        match destination.address() {
            Some(address) if !destination.may_connect(address, networks) => {
                Err("must not have a non-public address")
            }
            _ => Ok(destination),
        }
    }

    /// Whether a connection to this address is permitted. Without TLS, the operator must allow it.
    pub(super) fn may_connect(&self, address: IpAddr, networks: &Networks) -> bool {
        if self.is_tls() {
            networks.permits(address)
        } else {
            networks.allows(address)
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The IP address, if the URL has one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// The host name or address, as it is resolved and as it is in certificates.
    pub(super) fn host(&self) -> &str {
        self.0
            .host_str()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// The value of the header `Host`.
    pub(super) fn authority(&self) -> &str {
        &self.0[Position::BeforeHost..Position::AfterPort]
    }

    /// The path and the query.
    pub(super) fn path(&self) -> &str {
        &self.0[Position::BeforePath..Position::AfterQuery]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_url_is_rejected() {
        fn check(url: &str, allowed: &[&str], good: bool) {
            let allowed: Vec<_> = allowed.iter().map(|net| net.parse().unwrap()).collect();
            let parsed = Destination::parse(url, &Networks::new(&allowed));
            assert_eq!(parsed.is_ok(), good, "{url}: {parsed:?}");
        }
        check("https://example.com/hooks?a=b", &[], true);
        check("https://example.com:8443", &[], true);
        check("https://1.1.1.1/", &[], true);
        check("https://bücher.example/", &[], true);
        check("http://example.com/", &[], false);
        check("ftp://example.com/", &["127.0.0.0/8"], false);
        check("/hooks", &[], false);
        check("", &[], false);
        check("https://", &[], false);
        check("https://example.com/#a", &[], false);
        check("https://user@example.com/", &[], false);
        check("https://user:secret@example.com/", &[], false);
        check("https://example.com:0/", &[], false);
        check(
            &format!("https://example.com/{}", "x".repeat(2048)),
            &[],
            false,
        );
        for local in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            check(&format!("https://{local}/"), &[], false);
            check(&format!("http://{local}/"), &[], false);
        }
        check("https://127.1/", &["127.0.0.0/8"], true);
        check("http://127.0.0.1:9/", &["127.0.0.0/8"], true);
        check("http://[::ffff:127.0.0.1]/", &["127.0.0.0/8"], true);
        check("http://1.1.1.1/", &["127.0.0.0/8"], false);
    }

    #[test]
    fn url_has_host_port_authority_and_path() {
        let parse = |url: &str| Destination::parse(url, &Networks::default()).unwrap();
        let named = parse("https://Example.com:8443/a%20b?c=d");
        assert_eq!(
            (named.host(), named.port(), named.authority(), named.path()),
            ("example.com", 8443, "example.com:8443", "/a%20b?c=d")
        );
        let addressed = parse("https://[2606:4700::1111]");
        assert_eq!(
            (
                addressed.host(),
                addressed.port(),
                addressed.authority(),
                addressed.path()
            ),
            ("2606:4700::1111", 443, "[2606:4700::1111]", "/")
        );
    }
}
