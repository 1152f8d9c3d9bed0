//! Where Redis is, as the operator's URL says: one server, a master that sentinels know, or a cluster.
//! Never: a part of the URL in an error; it may hold a password.

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, io::tcp::TcpSettings,
};

use crate::error::BusError;

const ONE: &str = "redis://[user:password@]host:port[/db]";
const SENTINEL: &str =
    "redis+sentinel://[user:password@]host:26379,host:26379/name[/db][?sentinel_password=…]";
const CLUSTER: &str = "redis+cluster://[user:password@]host:port,host:port,host:port";

/// What the operator's URL names.
pub(super) enum Address {
    One(ConnectionInfo),
    Sentinel(Sentinel),
    /// Some of a cluster's servers; the others are learnt from them.
    Cluster(Seeds),
}

/// One server of a cluster, and others.
pub(super) type Seeds = (ConnectionInfo, Vec<ConnectionInfo>);

/// A master that sentinels know by this name.
pub(super) struct Sentinel {
    pub(super) name: String,
    pub(super) sentinels: Vec<ConnectionInfo>,
    /// How to sign in at the master; its address stands for nothing.
    pub(super) master: ConnectionInfo,
}

/// The parts of a URL with several hosts, as written.
struct Parts<'a> {
    credentials: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, BusError> {
        if let Some(rest) = url.strip_prefix("redis+cluster://") {
            return cluster(&split(rest, CLUSTER)?);
        }
        if let Some(rest) = url.strip_prefix("redis+sentinel://") {
            return sentinel(&split(rest, SENTINEL)?).map(Self::Sentinel);
        }
        server(url).map(Self::One).map_err(|why| {
            let others = format!("; several servers are {SENTINEL} or {CLUSTER}");
            let right = format!("one server is {ONE} or redis+unix:///path{others}");
            BusError::Address(format!("{why}: {right}"))
        })
    }
}

/// The same way of signing in, at another server.
pub(super) fn at(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = ConnectionAddr::Tcp(host.to_owned(), port);
    info.clone().set_addr(address)
}

/// `host:port`, as Redis writes it; IPv6 without brackets.
pub(super) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host, port.parse().ok()?)).filter(|(_, port)| *port != 0)
}

fn wrong(why: &str, right: &str) -> BusError {
    BusError::Address(format!("{why}: it is {right}"))
}

fn split<'a>(rest: &'a str, right: &str) -> Result<Parts<'a>, BusError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let hosts: Vec<&str> = hosts.split(',').collect();
    if hosts.iter().any(|host| host.is_empty()) {
        return Err(wrong("a host is missing", right));
    }
    Ok(Parts {
        credentials,
        hosts,
        path,
        query,
    })
}

/// One server, by the URL that would name it alone.
fn server(url: &str) -> Result<ConnectionInfo, String> {
    let info = url
        .into_connection_info()
        .map_err(|error| error.category().to_owned())?;
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    Ok(info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

fn servers(hosts: &[&str], credentials: &str, db: &str) -> Result<Vec<ConnectionInfo>, String> {
    let sign = if credentials.is_empty() { "" } else { "@" };
    let of = |host: &&str| server(&format!("redis://{credentials}{sign}{host}/{db}"));
    hosts.iter().map(of).collect()
}

fn cluster(parts: &Parts<'_>) -> Result<Address, BusError> {
    if !matches!(parts.path, "" | "0") {
        return Err(wrong("a cluster has database 0 only", CLUSTER));
    }
    if !parts.query.is_empty() {
        return Err(wrong("there is nothing to be said after a `?`", CLUSTER));
    }
    let seeds = servers(&parts.hosts, parts.credentials, "0");
    let mut seeds = seeds.map_err(|why| wrong(&why, CLUSTER))?.into_iter();
    let first = seeds
        .next()
        .ok_or_else(|| wrong("a host is missing", CLUSTER))?;
    Ok(Address::Cluster((first, seeds.collect())))
}

fn sentinel(parts: &Parts<'_>) -> Result<Sentinel, BusError> {
    let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if name.is_empty() {
        return Err(wrong("the master's name is missing", SENTINEL));
    }
    let (mut user, mut password) = ("", "");
    for setting in parts.query.split('&').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("sentinel_user", value)) => user = value,
            Some(("sentinel_password", value)) => password = value,
            _ => {
                let known = "only sentinel_user and sentinel_password are known after the `?`";
                return Err(wrong(known, SENTINEL));
            }
        }
    }
    let credentials = match (user, password) {
        ("", "") => String::new(),
        (user, password) => format!("{user}:{password}"),
    };
    if !parts.hosts.iter().all(|host| host_and_port(host).is_some()) {
        // Nobody means Redis's own port when the host is a sentinel's.
        return Err(wrong("a sentinel's port is missing", SENTINEL));
    }
    let named = |why: String| wrong(&why, SENTINEL);
    let sentinels = servers(&parts.hosts, &credentials, "").map_err(named)?;
    let master = servers(&["localhost"], parts.credentials, db).map_err(named)?;
    let master = master
        .into_iter()
        .next()
        .ok_or_else(|| wrong("a host is missing", SENTINEL))?;
    Ok(Sentinel {
        name: name.to_owned(),
        sentinels,
        master,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who signs in where, for every server that is named; or what is wrong.
    fn read(url: &str) -> String {
        let of = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            let user = settings.username().unwrap_or("-");
            let password = settings.password().unwrap_or("-");
            format!("{user} {password} {} {}", info.addr(), settings.db())
        };
        let all = |infos: &[ConnectionInfo]| infos.iter().map(of).collect::<Vec<_>>().join(", ");
        match Address::parse(url) {
            Ok(Address::One(info)) => of(&info),
            Ok(Address::Cluster((first, others))) => {
                format!("cluster {}", all(&[vec![first], others].concat()))
            }
            Ok(Address::Sentinel(sentinel)) => {
                let master = of(&sentinel.master);
                let asked = all(&sentinel.sentinels);
                format!("{} {master} of {asked}", sentinel.name)
            }
            Err(error) => error.to_string(),
        }
    }

    #[track_caller]
    fn check(url: &str, expected: &str) {
        assert_eq!(read(url), expected, "{url}");
    }

    #[track_caller]
    fn refused(url: &str, why: &str) {
        let error = read(url);
        assert!(error.contains(why), "{url}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn what_urls_name() {
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
    fn what_is_wrong_is_said_with_what_is_right() {
        refused("http://secret@a", "one server is redis://");
        refused("rediss://u:secret@a:1", "one server is redis://");
        refused("redis+cluster://u:secret@a:1,,b:2", "a host is missing");
        refused("redis+cluster://u:secret@a:1/3", "database 0 only");
        refused("redis+cluster://u:secret@a:x", "redis+cluster://[user");
        refused("redis+cluster://a:1?x=secret", "after a `?`");
        refused("redis+sentinel://a:1,b:2", "name is missing");
        refused("redis+sentinel://a/main", "port is missing");
        refused(
            "redis+sentinel://a:1/main?password=secret",
            "sentinel_password",
        );
        refused("redis+sentinel://a:1/main/x", "redis+sentinel://[user");
    }

    #[test]
    fn addresses_are_read_as_redis_writes_them() {
        assert_eq!(host_and_port("10.0.0.1:7000"), Some(("10.0.0.1", 7000)));
        assert_eq!(host_and_port("::1:7000"), Some(("::1", 7000)));
        assert_eq!(host_and_port("[::1]:7000"), Some(("::1", 7000)));
        assert_eq!(host_and_port("host:0"), None);
        assert_eq!(host_and_port("host"), None);
    }
}
