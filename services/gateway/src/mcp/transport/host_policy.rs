//! The hosts that MCP requests may name, and the origins of pages that may send them. Protects a
//! server on a laptop from DNS rebinding.
//!
//! Invariant: a host that is not allowed is not repeated in a response.

use std::{str::FromStr, sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use http::uri::Authority;
use switchboard_runtime::problem::{Problem, ProblemKind};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::session;
use crate::Config;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// How long a browser may cache a preflight response.
const PREFLIGHT_TTL: Duration = Duration::from_secs(3_600);

/// The response headers that a page may read.
const EXPOSED_HEADERS: [HeaderName; 3] = [
    session::SESSION_HEADER,
    header::WWW_AUTHENTICATE,
    header::RETRY_AFTER,
];

/// The allowed hosts and origins of one gateway.
pub(in crate::mcp) struct HostPolicy {
    /// `None` if any host is allowed.
    hosts: Option<Vec<AllowedHost>>,
    origins: Vec<AllowedOrigin>,
}

/// A host that requests may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedHost {
    /// Any host, written `*`.
    Any,
    /// One host.
    Named {
        /// Without the brackets of an IPv6 address.
        name: Box<str>,
        /// `None` for any port.
        port: Option<u16>,
    },
}

/// A web origin (RFC 6454) whose pages may send requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// The origin of pages that have none, such as local files.
    Null,
    /// Scheme, host and port.
    Named {
        /// Usually `https` or `http`.
        scheme: Box<str>,
        /// Without the brackets of an IPv6 address.
        host: Box<str>,
        /// `None` for any port.
        port: Option<u16>,
    },
}

/// Why a host or an origin in the settings is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPolicyError {
    /// Not a host.
    #[error("expected a host with an optional port and without a scheme, or `*` for any host")]
    Host,
    /// Not an origin.
    #[error(
        "expected a scheme and a host, like `https://app.example.com:443`, or `:*` as the port for any port"
    )]
    Origin,
}

impl HostPolicy {
    pub(in crate::mcp) fn new(config: &Config) -> Arc<Self> {
        let public = config.public_url.as_ref().and_then(Uri::authority);
        let loopback = LOOPBACK.iter().map(|name| AllowedHost::named(name, None));
        let configured = config.mcp_allowed_hosts.iter().cloned();
        let hosts: Vec<_> = public
            .map(|public| AllowedHost::named(public.host(), public.port_u16()))
            .into_iter()
            .chain(configured)
            .chain(loopback)
            .collect();
        Arc::new(Self {
            hosts: (!hosts.contains(&AllowedHost::Any)).then_some(hosts),
            origins: config.mcp_allowed_origins.clone(),
        })
    }

    /// Checks the host and the origin of a request.
    ///
    /// # Errors
    /// 403 if one is not allowed, 400 if the request does not name exactly one host.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = requested_host(uri, headers).ok_or_else(invalid_host)?;
        if !self.allows_host(&host) {
            return Err(refused(ProblemKind::HostNotAllowed, "its host"));
        }
        match headers.get(header::ORIGIN) {
            Some(origin) if !self.allows_origin(origin) && !self.is_own_page(&host, headers) => {
                Err(refused(
                    ProblemKind::OriginNotAllowed,
                    "the origin of the page that sent it",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The host by which the client addressed this server if it is allowed, otherwise the first
    /// allowed host.
    pub(super) fn host_for(&self, uri: &Uri, headers: &HeaderMap) -> String {
        let requested = requested_host(uri, headers).filter(|host| self.allows_host(host));
        if let Some(requested) = requested {
            return requested.to_string();
        }
        let first = self.hosts.iter().flatten().find_map(AllowedHost::authority);
        first.unwrap_or_else(|| "localhost".to_owned())
    }

    /// Lets pages of allowed origins read the responses, including refusals. `None` if no origin
    /// is allowed.
    pub(super) fn cors(self: &Arc<Self>) -> Option<CorsLayer> {
        if self.origins.is_empty() {
            return None;
        }
        let policy = Arc::clone(self);
        let is_allowed = move |_: &HeaderValue, request: &http::request::Parts| {
            policy.check(&request.uri, &request.headers).is_ok()
        };
        let layer = CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(is_allowed))
            .allow_methods([Method::GET, Method::POST])
            // Devices define the names of `Mcp-Param-…`. Requests carry no cookies.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(EXPOSED_HEADERS)
            .max_age(PREFLIGHT_TTL);
        Some(layer)
    }

    fn allows_host(&self, host: &Authority) -> bool {
        let Some(allowed) = &self.hosts else {
            return true;
        };
        allowed.iter().any(|allowed| allowed.matches(host))
    }

    /// Whether a page of this very address sent the request, such as the console: its browser
    /// marks it, and the origin names the host of the request. Where any host is allowed, a name that an
    /// attacker points at this address would be its own page, too; pages then need a setting.
    fn is_own_page(&self, host: &Authority, headers: &HeaderMap) -> bool {
        let own = headers
            .get("sec-fetch-site")
            .is_some_and(|site| site == "same-origin");
        let origin = headers.get(header::ORIGIN);
        let origin = origin.and_then(|origin| origin.to_str().ok());
        let named = origin.and_then(|origin| origin.split_once("://"));
        own && self.hosts.is_some()
            && named.is_some_and(|(_, named)| named.eq_ignore_ascii_case(host.as_str()))
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().ok();
        let origin = origin.and_then(|origin| origin.parse::<AllowedOrigin>().ok());
        origin.is_some_and(|origin| self.origins.iter().any(|allowed| allowed.covers(&origin)))
    }
}

impl AllowedHost {
    fn named(name: &str, port: Option<u16>) -> Self {
        let name = without_brackets(name).into();
        Self::Named { name, port }
    }

    fn matches(&self, host: &Authority) -> bool {
        match self {
            Self::Any => true,
            Self::Named { name, port } => {
                name.eq_ignore_ascii_case(without_brackets(host.host()))
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
    type Err = HostPolicyError;

    fn from_str(text: &str) -> Result<Self, HostPolicyError> {
        let text = text.trim();
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(Self::named(text, None));
        }
        let authority = authority(text).ok_or(HostPolicyError::Host)?;
        Ok(Self::named(authority.host(), authority.port_u16()))
    }
}

impl AllowedOrigin {
    /// Whether this setting allows an origin that a browser sent. Browsers omit the default port.
    fn covers(&self, origin: &Self) -> bool {
        match (self, origin) {
            (Self::Null, Self::Null) => true,
            (
                Self::Named { scheme, host, port },
                Self::Named {
                    scheme: sent_scheme,
                    host: sent_host,
                    port: sent_port,
                },
            ) => {
                let sent_port = || sent_port.or_else(|| default_port(sent_scheme));
                scheme.eq_ignore_ascii_case(sent_scheme)
                    && host.eq_ignore_ascii_case(sent_host)
                    && port.is_none_or(|port| sent_port() == Some(port))
            }
            _ => false,
        }
    }
}

impl FromStr for AllowedOrigin {
    type Err = HostPolicyError;

    fn from_str(text: &str) -> Result<Self, HostPolicyError> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("null") {
            return Ok(Self::Null);
        }
        let (scheme, rest) = text.split_once("://").ok_or(HostPolicyError::Origin)?;
        let (rest, any_port) = match rest.strip_suffix(":*") {
            Some(rest) => (rest, true),
            None => (rest.strip_suffix('/').unwrap_or(rest), false),
        };
        let authority = authority(rest).ok_or(HostPolicyError::Origin)?;
        let port = authority.port_u16();
        if scheme.is_empty() || (any_port && port.is_some()) {
            return Err(HostPolicyError::Origin);
        }
        Ok(Self::Named {
            scheme: scheme.into(),
            host: without_brackets(authority.host()).into(),
            port,
        })
    }
}

/// The only host that a request names. HTTP/2 carries it in the URI.
fn requested_host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => authority(host.to_str().ok()?),
        (None, _) => uri.authority().cloned(),
        (Some(_), Some(_)) => None,
    }
}

/// A host with an optional port, and without user information.
fn authority(text: &str) -> Option<Authority> {
    let authority = text.parse::<Authority>().ok()?;
    let has_port = authority.as_str().len() > authority.host().len();
    let is_host = !authority.as_str().contains('@') && !authority.host().is_empty();
    (is_host && (!has_port || authority.port_u16().is_some())).then_some(authority)
}

/// Strips the brackets of an IPv6 address.
fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

fn invalid_host() -> Problem {
    Problem::new(
        ProblemKind::InvalidHost,
        "The Host header must name exactly one host, with an optional port.",
    )
}

fn refused(kind: ProblemKind, what: &str) -> Problem {
    Problem::new(
        kind,
        format!(
            "The request is refused because of {what}; the operator's settings list the allowed ones."
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_matches_by_name_and_configured_port() {
        fn check(allowed: &str, host: &str, expect: bool) {
            let allowed: AllowedHost = allowed.parse().unwrap();
            assert_eq!(
                allowed.matches(&host.parse().unwrap()),
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
                Err(HostPolicyError::Host),
                "{wrong}"
            );
        }
    }

    #[test]
    fn own_pages_are_allowed_where_the_host_is_known() {
        fn check(hosts: Option<Vec<AllowedHost>>, origin: &str, site: &str, expect: bool) {
            let policy = HostPolicy {
                hosts,
                origins: Vec::new(),
            };
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("a.example:8080"));
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            headers.insert("sec-fetch-site", site.parse().unwrap());
            let allowed = policy.check(&Uri::from_static("/mcp"), &headers).is_ok();
            assert_eq!(allowed, expect, "{origin} {site}");
        }
        let known = || Some(vec![AllowedHost::named("a.example", None)]);
        check(known(), "http://a.example:8080", "same-origin", true);
        check(known(), "https://A.example:8080", "same-origin", true);
        check(known(), "http://a.example:8080", "same-site", false);
        check(known(), "http://a.example", "same-origin", false);
        check(known(), "http://b.example:8080", "same-origin", false);
        check(known(), "null", "same-origin", false);
        check(None, "http://a.example:8080", "same-origin", false);
    }

    #[test]
    fn origin_matches_by_scheme_host_and_port() {
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
                Err(HostPolicyError::Origin),
                "{wrong}"
            );
        }
    }
}
