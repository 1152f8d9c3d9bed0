//! Where a webhook is, as its owner writes it.
//! Never: a way past TLS that the operator has not opened, or a password in a URL.

use std::net::IpAddr;

use url::{Host, Position, Url};

use super::networks::Networks;

/// The longest URL, in bytes.
pub(super) const LONGEST: usize = 2048;

/// Where a webhook is.
#[derive(Debug, Clone)]
pub(super) struct Destination(Url);

impl Destination {
    /// Reads it; says why it does not do. An address in it is judged here already, a name when it is looked up.
    pub(super) fn read(text: &str, networks: &Networks) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "is not an absolute URL")?;
        if text.len() > LONGEST || url.as_str().len() > LONGEST {
            return Err("has more than 2048 bytes");
        }
        match url.scheme() {
            "https" => {}
            "http" if networks.are_allowed() => {}
            _ => return Err("must begin with https://"),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not have a user or a password; what is sent is signed");
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
                Err("must not lead to an address inside a network")
            }
            _ => Ok(destination),
        }
    }

    /// Whether it may be connected to at this address. Without TLS, only where the operator allows it.
    pub(super) fn may_connect(&self, address: IpAddr, networks: &Networks) -> bool {
        if self.is_tls() {
            networks.permit(address)
        } else {
            networks.allow(address)
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The address, when no name stands for it.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// The name or address, as it is looked up and as a certificate says it.
    pub(super) fn host(&self) -> &str {
        self.0
            .host_str()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// What the header Host says.
    pub(super) fn authority(&self) -> &str {
        &self.0[Position::BeforeHost..Position::AfterPort]
    }

    /// What is asked for there.
    pub(super) fn path(&self) -> &str {
        &self.0[Position::BeforePath..Position::AfterQuery]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
        fn check(url: &str, allowed: &[&str], good: bool) {
            let allowed: Vec<_> = allowed.iter().map(|net| net.parse().unwrap()).collect();
            let read = Destination::read(url, &Networks::new(&allowed));
            assert_eq!(read.is_ok(), good, "{url}: {read:?}");
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
    fn it_says_what_a_request_needs() {
        let read = |url: &str| Destination::read(url, &Networks::default()).unwrap();
        let named = read("https://Example.com:8443/a%20b?c=d");
        assert_eq!(
            (named.host(), named.port(), named.authority(), named.path()),
            ("example.com", 8443, "example.com:8443", "/a%20b?c=d")
        );
        let addressed = read("https://[2606:4700::1111]");
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
