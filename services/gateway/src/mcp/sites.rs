//! Which hosts a request may name, and which web pages may send one: what stands between a server on a laptop and a
//! page that pretends to be local (DNS rebinding).
//! Never: a name that is not allowed repeated in an answer.

use std::{str::FromStr, sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http::uri::Authority;
use switchboard_runtime::problem::Problem;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::session;
use crate::Config;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// How long a browser may remember what a preflight was told.
const PREFLIGHT_FOR: Duration = Duration::from_secs(3_600);

/// What a page may read of an answer beside its body.
const EXPOSED: [HeaderName; 3] = [
    session::HEADER,
    header::WWW_AUTHENTICATE,
    header::RETRY_AFTER,
];

/// The sites of one gateway.
pub(crate) struct Sites {
    /// None where any is allowed.
    hosts: Option<Vec<AllowedHost>>,
    origins: Vec<AllowedOrigin>,
}

/// A host that requests may name, with any port where none is given, or `*` for any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHost {
    /// Whatever they name.
    Any,
    /// This one.
    Named {
        /// Without the brackets of an IPv6 address.
        name: Box<str>,
        /// Any where it is none.
        port: Option<u16>,
    },
}

/// A web origin (RFC 6454) whose pages may send requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// That of pages without one, like files.
    Null,
    /// Scheme, host and port.
    Named {
        /// `https` or `http`, mostly.
        scheme: Box<str>,
        /// Without the brackets of an IPv6 address.
        host: Box<str>,
        /// Any where it is none.
        port: Option<u16>,
    },
}

/// What is wrong with a host or an origin in the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// No host.
    #[error("give a host, with or without a port and without a scheme, or `*` for any")]
    Host,
    /// No origin.
    #[error("give scheme and host, like `https://app.example.com:443`, with `:*` for any port")]
    Origin,
}

impl Sites {
    pub(crate) fn new(config: &Config) -> Arc<Self> {
        let public = config.public_url.as_ref().and_then(Uri::authority);
        let loopback = LOOPBACK.iter().map(|name| AllowedHost::named(name, None));
        let given = config.mcp_allowed_hosts.iter().cloned();
        let hosts: Vec<_> = public
            .map(|public| AllowedHost::named(public.host(), public.port_u16()))
            .into_iter()
            .chain(given)
            .chain(loopback)
            .collect();
        Arc::new(Self {
            hosts: (!hosts.contains(&AllowedHost::Any)).then_some(hosts),
            origins: config.mcp_allowed_origins.clone(),
        })
    }

    /// Refuses a request that names a host, or comes from a page, that nobody allowed.
    ///
    /// # Errors
    /// 403 for those, and 400 where no host can be read.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = named(uri, headers).ok_or_else(unreadable_host)?;
        if !self.allows_host(&host) {
            return Err(refused("host_not_allowed", "the host that it names"));
        }
        match headers.get(header::ORIGIN) {
            Some(origin) if !self.allows_origin(origin) => {
                Err(refused("origin_not_allowed", "the web page that sent it"))
            }
            _ => Ok(()),
        }
    }

    /// The host by which the client called this server, if it may; else the first of those by which it may.
    pub(crate) fn host_for(&self, uri: &Uri, headers: &HeaderMap) -> String {
        let called = named(uri, headers).filter(|host| self.allows_host(host));
        if let Some(called) = called {
            return called.to_string();
        }
        let first = self.hosts.iter().flatten().find_map(AllowedHost::authority);
        first.unwrap_or_else(|| "localhost".to_owned())
    }

    /// Lets the pages of allowed origins read what they are answered, refusals as well; `None` where there are none.
    pub(crate) fn cors(self: &Arc<Self>) -> Option<CorsLayer> {
        if self.origins.is_empty() {
            return None;
        }
        let sites = Arc::clone(self);
        let may = move |_: &HeaderValue, request: &http::request::Parts| {
            sites.check(&request.uri, &request.headers).is_ok()
        };
        let layer = CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(may))
            .allow_methods([Method::GET, Method::POST])
            // `Mcp-Param-…` are as many as devices think of, and no cookie goes with any of them.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(EXPOSED)
            .max_age(PREFLIGHT_FOR);
        Some(layer)
    }

    fn allows_host(&self, host: &Authority) -> bool {
        let Some(allowed) = &self.hosts else {
            return true;
        };
        allowed.iter().any(|allowed| allowed.is(host))
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().ok();
        let origin = origin.and_then(|origin| origin.parse::<AllowedOrigin>().ok());
        origin.is_some_and(|origin| self.origins.iter().any(|allowed| allowed.covers(&origin)))
    }
}

impl AllowedHost {
    fn named(name: &str, port: Option<u16>) -> Self {
        let name = bare(name).into();
        Self::Named { name, port }
    }

    fn is(&self, host: &Authority) -> bool {
        match self {
            Self::Any => true,
            Self::Named { name, port } => {
                name.eq_ignore_ascii_case(bare(host.host()))
                    && port.is_none_or(|port| host.port_u16() == Some(port))
            }
        }
    }

    fn authority(&self) -> Option<String> {
        let Self::Named { name, port } = self else {
            return None;
        };
        let name = if name.contains(':') {
            format!("[{name}]")
        } else {
            name.to_string()
        };
        Some(match port {
            Some(port) => format!("{name}:{port}"),
            None => name,
        })
    }
}

impl FromStr for AllowedHost {
    type Err = SiteError;

    fn from_str(text: &str) -> Result<Self, SiteError> {
        let text = text.trim();
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(Self::named(text, None));
        }
        let authority = authority(text).ok_or(SiteError::Host)?;
        Ok(Self::named(authority.host(), authority.port_u16()))
    }
}

impl AllowedOrigin {
    /// Whether this, as a setting, allows that one, as a browser sent it; browsers leave out a scheme's own port.
    fn covers(&self, origin: &Self) -> bool {
        match (self, origin) {
            (Self::Null, Self::Null) => true,
            (
                Self::Named { scheme, host, port },
                Self::Named {
                    scheme: its_scheme,
                    host: its_host,
                    port: its_port,
                },
            ) => {
                let its_port = || its_port.or_else(|| default_port(its_scheme));
                scheme.eq_ignore_ascii_case(its_scheme)
                    && host.eq_ignore_ascii_case(its_host)
                    && port.is_none_or(|port| its_port() == Some(port))
            }
            _ => false,
        }
    }
}

impl FromStr for AllowedOrigin {
    type Err = SiteError;

    fn from_str(text: &str) -> Result<Self, SiteError> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("null") {
            return Ok(Self::Null);
        }
        let (scheme, place) = text.split_once("://").ok_or(SiteError::Origin)?;
        let (place, any_port) = match place.strip_suffix(":*") {
            Some(place) => (place, true),
            None => (place.strip_suffix('/').unwrap_or(place), false),
        };
        let place = authority(place).ok_or(SiteError::Origin)?;
        let port = place.port_u16();
        if scheme.is_empty() || (any_port && port.is_some()) {
            return Err(SiteError::Origin);
        }
        Ok(Self::Named {
            scheme: scheme.into(),
            host: bare(place.host()).into(),
            port,
        })
    }
}

/// The one host that a request names. HTTP/2 carries it in the URI.
fn named(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => authority(host.to_str().ok()?),
        (None, _) => uri.authority().cloned(),
        (Some(_), Some(_)) => None,
    }
}

/// A host and perhaps a port; no user, which no `Host` and no origin has.
fn authority(text: &str) -> Option<Authority> {
    let authority = text.parse::<Authority>().ok()?;
    let has_port = authority.as_str().len() > authority.host().len();
    let whole = !authority.as_str().contains('@') && !authority.host().is_empty();
    (whole && (!has_port || authority.port_u16().is_some())).then_some(authority)
}

/// Without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

fn unreadable_host() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "invalid_host",
        "Invalid host",
        "A request names one host, and perhaps a port, in its Host header.",
    )
}

fn refused(slug: &'static str, what: &str) -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        slug,
        "Not allowed here",
        format!(
            "The request was refused because of {what}; the operator's settings name those that may."
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_by_name_and_by_the_port_that_is_set() {
        fn check(allowed: &str, host: &str, expect: bool) {
            let allowed: AllowedHost = allowed.parse().unwrap();
            assert_eq!(
                allowed.is(&host.parse().unwrap()),
                expect,
                "{allowed:?} {host}"
            );
        }
        check("a.example", "a.example", true);
        check("A.example", "a.EXAMPLE:99", true);
        check("a.example:8080", "a.example:8080", true);
        check("a.example:8080", "a.example", false);
        check("a.example", "a.example.evil", false);
        check("::1", "[::1]:80", true);
        check("[::1]:80", "[::1]:81", false);
        check("*", "whatever", true);
        for wrong in [
            "",
            "https://a.example",
            "user@a.example",
            "a b",
            "a:port",
            "a/b",
        ] {
            assert_eq!(
                wrong.parse::<AllowedHost>(),
                Err(SiteError::Host),
                "{wrong}"
            );
        }
    }

    #[test]
    fn origins_are_compared_by_scheme_host_and_port() {
        fn check(allowed: &str, origin: &str, expect: bool) {
            let allowed: AllowedOrigin = allowed.parse().unwrap();
            let covers = origin.parse().is_ok_and(|origin| allowed.covers(&origin));
            assert_eq!(covers, expect, "{allowed:?} {origin}");
        }
        check("https://a.example:443", "https://a.example", true);
        check("https://a.example:443", "https://a.example:444", false);
        check("https://a.example", "https://A.example:444", true);
        check("http://localhost:*", "http://localhost:5173", true);
        check("https://a.example", "http://a.example", false);
        check("https://a.example", "https://a.example.evil", false);
        check("https://a.example", "https://a.example@evil", false);
        check("null", "null", true);
        check("https://a.example", "null", false);
        check("http://[::1]:*", "http://[::1]:80", true);
        check("https://a.example", "nonsense", false);
        for wrong in [
            "",
            "a.example",
            "https://",
            "https://a:443:*",
            "https://a.example/path",
            "null:*",
        ] {
            assert_eq!(
                wrong.parse::<AllowedOrigin>(),
                Err(SiteError::Origin),
                "{wrong}"
            );
        }
    }
}
