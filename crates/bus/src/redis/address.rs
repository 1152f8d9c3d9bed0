//! Parses the operator's Redis URL: a single server, a master behind sentinels, or a cluster.
//!
//! Invariant: no part of the URL appears in an error, because it may contain a password.

use std::net::IpAddr;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, io::tcp::TcpSettings,
};

use crate::error::BusError;

const SINGLE: &str = "redis://[user:password@]host:port[/db]";
const TLS: &str = "rediss instead of redis asks for TLS";
const SENTINEL: &str =
    "redis+sentinel://[user:password@]host:26379,host:26379/name[/db][?sentinel_password=…]";
const CLUSTER: &str = "redis+cluster://[user:password@]host:port,host:port,host:port";

pub(super) enum Address {
    Single(ConnectionInfo),
    Sentinel(SentinelAddress),
    /// Some of a cluster's servers; the others are discovered.
    Cluster(Seeds),
}

/// One server of a cluster, and others.
pub(super) type Seeds = (ConnectionInfo, Vec<ConnectionInfo>);

/// A master by its name, and the sentinels that monitor it.
pub(super) struct SentinelAddress {
    pub(super) name: String,
    pub(super) sentinels: Vec<ConnectionInfo>,
    /// The credentials and the database at the master; its address is a placeholder.
    pub(super) master: ConnectionInfo,
}

/// The parts of a URL with several hosts.
struct Parts<'a> {
    is_tls: bool,
    credentials: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, BusError> {
        let plain = url.strip_prefix("rediss");
        let plain = plain.filter(|rest| rest.starts_with([':', '+']));
        let is_tls = plain.is_some();
        if is_tls && url.contains('#') {
            return Err(BusError::Address(
                "nothing may follow a `#`, such as `#insecure`: certificates are always verified; \
                 in a password, `#` is written %23"
                    .to_owned(),
            ));
        }
        let rest = plain.or_else(|| url.strip_prefix("redis"));
        if let Some(rest) = rest.and_then(|rest| rest.strip_prefix("+cluster://")) {
            return cluster(&split(rest, is_tls, CLUSTER)?);
        }
        if let Some(rest) = rest.and_then(|rest| rest.strip_prefix("+sentinel://")) {
            return sentinel(&split(rest, is_tls, SENTINEL)?).map(Self::Sentinel);
        }
        let single = match plain {
            Some(rest) => server(&format!("redis{rest}"), true),
            None => server(url, false),
        };
        single.map(Self::Single).map_err(|error| {
            let others = format!("for several servers, {SENTINEL} or {CLUSTER}");
            let forms = format!("expected {SINGLE} or redis+unix:///path; {others}; {TLS}");
            BusError::Address(format!("{error}: {forms}"))
        })
    }

    /// The servers that the URL names.
    fn named(&self) -> Vec<&ConnectionInfo> {
        match self {
            Self::Single(info) => vec![info],
            Self::Sentinel(address) => address.sentinels.iter().collect(),
            Self::Cluster((first, others)) => std::iter::once(first).chain(others).collect(),
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        let mut named = self.named().into_iter();
        named.any(|info| matches!(info.addr(), ConnectionAddr::TcpTls { .. }))
    }

    /// Whether what is sent to a server can be read on the way: without TLS to another machine.
    pub(super) fn is_readable_on_the_way(&self) -> bool {
        let is_local = |host: &str| {
            let address = host.parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        let mut named = self.named().into_iter();
        named.any(|info| matches!(info.addr(), ConnectionAddr::Tcp(host, _) if !is_local(host)))
    }
}

/// The same credentials and settings, at another server. It is reached with TLS if this one is.
pub(super) fn with_address(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    info.clone().set_addr(address(is_tls, host, port))
}

/// The host of a server, unless it is at a Unix socket.
pub(super) fn host(info: &ConnectionInfo) -> Option<&str> {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host),
        _ => None,
    }
}

fn address(is_tls: bool, host: String, port: u16) -> ConnectionAddr {
    if is_tls {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            // The `Connector` has the authorities.
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// `host:port`, as Redis writes it; IPv6 without brackets.
pub(super) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host, port.parse().ok()?)).filter(|(_, port)| *port != 0)
}

fn invalid(error: &str, form: &str) -> BusError {
    BusError::Address(format!("{error}: expected {form}"))
}

fn split<'a>(rest: &'a str, is_tls: bool, form: &str) -> Result<Parts<'a>, BusError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let hosts: Vec<&str> = hosts.split(',').collect();
    if hosts.iter().any(|host| host.is_empty()) {
        return Err(invalid("a host is missing", form));
    }
    Ok(Parts {
        is_tls,
        credentials,
        hosts,
        path,
        query,
    })
}

/// Parses the URL of one server, whose scheme is the one without TLS.
fn server(url: &str, is_tls: bool) -> Result<ConnectionInfo, String> {
    let info = url
        .into_connection_info()
        .map_err(|error| error.category().to_owned())?;
    let info = match info.addr().clone() {
        ConnectionAddr::Tcp(host, port) => info.set_addr(address(is_tls, host, port)),
        _ if is_tls => return Err("a Unix socket is without TLS".to_owned()),
        _ => info,
    };
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    Ok(info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

fn servers(
    hosts: &[&str],
    is_tls: bool,
    credentials: &str,
    db: &str,
) -> Result<Vec<ConnectionInfo>, String> {
    let separator = if credentials.is_empty() { "" } else { "@" };
    let url = |host: &str| format!("redis://{credentials}{separator}{host}/{db}");
    let parse = |host: &&str| server(&url(host), is_tls);
    hosts.iter().map(parse).collect()
}

fn cluster(parts: &Parts<'_>) -> Result<Address, BusError> {
    if !matches!(parts.path, "" | "0") {
        return Err(invalid("a cluster has database 0 only", CLUSTER));
    }
    if !parts.query.is_empty() {
        return Err(invalid("a cluster has no settings after the `?`", CLUSTER));
    }
    let seeds = servers(&parts.hosts, parts.is_tls, parts.credentials, "0");
    let mut seeds = seeds.map_err(|error| invalid(&error, CLUSTER))?.into_iter();
    let first = seeds
        .next()
        .ok_or_else(|| invalid("a host is missing", CLUSTER))?;
    Ok(Address::Cluster((first, seeds.collect())))
}

fn sentinel(parts: &Parts<'_>) -> Result<SentinelAddress, BusError> {
    let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if name.is_empty() {
        return Err(invalid("the master's name is missing", SENTINEL));
    }
    let (mut user, mut password) = ("", "");
    for setting in parts.query.split('&').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("sentinel_user", value)) => user = value,
            Some(("sentinel_password", value)) => password = value,
            _ => {
                let error = "only sentinel_user and sentinel_password may follow the `?`";
                return Err(invalid(error, SENTINEL));
            }
        }
    }
    let credentials = match (user, password) {
        ("", "") => String::new(),
        (user, password) => format!("{user}:{password}"),
    };
    if !parts.hosts.iter().all(|host| host_and_port(host).is_some()) {
        // Redis's default port would be wrong for a sentinel.
        return Err(invalid("a sentinel's port is missing", SENTINEL));
    }
    let to_error = |error: String| invalid(&error, SENTINEL);
    let sentinels = servers(&parts.hosts, parts.is_tls, &credentials, "").map_err(to_error)?;
    let master = servers(&["localhost"], parts.is_tls, parts.credentials, db).map_err(to_error)?;
    let master = master
        .into_iter()
        .next()
        .ok_or_else(|| invalid("a host is missing", SENTINEL))?;
    Ok(SentinelAddress {
        name: name.to_owned(),
        sentinels,
        master,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Credentials, address and database of every server, or the error.
    fn describe(url: &str) -> String {
        let server = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            let user = settings.username().unwrap_or("-");
            let password = settings.password().unwrap_or("-");
            let tls = match info.addr() {
                ConnectionAddr::TcpTls {
                    insecure: false, ..
                } => "TLS ",
                _ => "",
            };
            format!("{tls}{user} {password} {} {}", info.addr(), settings.db())
        };
        let join = |infos: &[ConnectionInfo]| {
            let servers = infos.iter().map(server);
            servers.collect::<Vec<_>>().join(", ")
        };
        match Address::parse(url) {
            Ok(Address::Single(info)) => server(&info),
            Ok(Address::Cluster((first, others))) => {
                format!("cluster {}", join(&[vec![first], others].concat()))
            }
            Ok(Address::Sentinel(address)) => {
                let master = server(&address.master);
                let sentinels = join(&address.sentinels);
                format!("{} {master} of {sentinels}", address.name)
            }
            Err(error) => error.to_string(),
        }
    }

    #[track_caller]
    fn check(url: &str, expected: &str) {
        assert_eq!(describe(url), expected, "{url}");
    }

    #[track_caller]
    fn check_error(url: &str, expected: &str) {
        let error = describe(url);
        assert!(error.contains(expected), "{url}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn urls_are_parsed() {
        check("redis://a:1/2", "- - a:1 2");
        check("redis://u:p@a", "u p a:6379 0");
        check(
            "redis+cluster://u:p%40@a:1,b:2,[::1]:3",
            "cluster u p@ a:1 0, u p@ b:2 0, u p@ ::1:3 0",
        );
        check("redis+cluster://a/0", "cluster - - a:6379 0");
        check(
            "redis+sentinel://:p@a:1,b:2/main/3?sentinel_user=x&sentinel_password=y",
            "main - p localhost:6379 3 of x y a:1 0, x y b:2 0",
        );
        check(
            "redis+sentinel://a:1/main",
            "main - - localhost:6379 0 of - - a:1 0",
        );
    }

    #[test]
    fn tls_is_to_every_server() {
        check("rediss://u:p@a", "TLS u p a:6379 0");
        check(
            "rediss+cluster://u:p@a:1,b:2",
            "cluster TLS u p a:1 0, TLS u p b:2 0",
        );
        check(
            "rediss+sentinel://:p@a:1,b:2/main/3",
            "main TLS - p localhost:6379 3 of TLS - - a:1 0, TLS - - b:2 0",
        );
        let info = server("redis://u:p@a:1/3", true).unwrap();
        let announced = with_address(&info, "b", 2);
        assert!(
            matches!(announced.addr(), ConnectionAddr::TcpTls { host, port: 2, .. } if host == "b")
        );
        assert_eq!(announced.redis_settings().password(), Some("p"));
    }

    #[test]
    fn plain_urls_of_other_machines_are_readable() {
        let is_readable = |url| Address::parse(url).unwrap().is_readable_on_the_way();
        for url in [
            "redis://redis:6379",
            "redis://10.0.0.7",
            "redis+sentinel://localhost:1,b:1/main",
            "redis+cluster://127.0.0.1:1,10.0.0.7:1",
        ] {
            assert!(is_readable(url), "{url}");
        }
        for url in [
            "redis://localhost",
            "redis://127.0.0.9:1",
            "redis://[::1]:1",
            "redis+unix:///run/redis",
            "rediss://redis:6379",
            "rediss+sentinel://b:1/main",
            "rediss+cluster://10.0.0.7:1",
        ] {
            assert!(!is_readable(url), "{url}");
        }
    }

    #[test]
    fn invalid_url_error_shows_expected_form() {
        check_error("http://secret@a", "expected redis://");
        check_error("rediss:u:secret@a:1", "expected redis://");
        check_error("rediss://u:secret@a:1#insecure", "always verified");
        check_error("rediss+cluster://u:secret@a:1#insecure", "always verified");
        check_error("rediss+sentinel://u:secret@a:1/main#insecure", "always");
        check_error("rediss+unix:///secret", "expected redis://");
        check_error("redis+cluster://u:secret@a:1,,b:2", "a host is missing");
        check_error("redis+cluster://u:secret@a:1/3", "database 0 only");
        check_error("redis+cluster://u:secret@a:x", "redis+cluster://[user");
        check_error("redis+cluster://a:1?x=secret", "after the `?`");
        check_error("redis+sentinel://a:1,b:2", "name is missing");
        check_error("redis+sentinel://a/main", "port is missing");
        check_error(
            "redis+sentinel://a:1/main?password=secret",
            "sentinel_password",
        );
        check_error("redis+sentinel://a:1/main/x", "redis+sentinel://[user");
    }

    #[test]
    fn host_and_port_parses_addresses_of_redis() {
        assert_eq!(host_and_port("10.0.0.1:7000"), Some(("10.0.0.1", 7000)));
        assert_eq!(host_and_port("::1:7000"), Some(("::1", 7000)));
        assert_eq!(host_and_port("[::1]:7000"), Some(("::1", 7000)));
        assert_eq!(host_and_port("host:0"), None);
        assert_eq!(host_and_port("host"), None);
    }
}
