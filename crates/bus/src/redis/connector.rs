//! Opens every socket to Redis, with TLS or without, as the URL requires.

use std::{error::Error as _, fmt::Display, io, os::fd::OwnedFd, path::Path, sync::Arc};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError, aio::MultiplexedConnection,
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use switchboard_runtime::outbound;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    task::JoinSet,
    time::{Duration, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use super::{
    address::Address,
    resp::{self, Frame},
};
use crate::error::BusError;

/// A reply to `AUTH` is a short line.
const MAX_REPLY_BYTES: usize = 1024;
/// The longest that a socket waits for a TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(1);

/// A socket to Redis. One to a Unix socket is a [`TcpStream`] as well: reading and writing are the
/// same for both.
pub(super) type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// Connects to servers. All sockets of a node are opened here, so they trust the same authorities.
///
/// The address of a server determines whether it is reached with TLS: see
/// [`with_address`](super::address::with_address), which servers that sentinels or a cluster
/// announce go through.
///
/// Invariant: a server's certificate is verified, for the host name by which it is reached.
#[derive(Clone)]
pub(super) struct Connector {
    /// Only when the URL asks for TLS.
    tls: Option<TlsConnector>,
}

/// The client of Redis over one socket. The socket is closed when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Driver {
    pub(super) commands: MultiplexedConnection,
    _task: Arc<JoinSet<()>>,
}

/// Why a server cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{0}")]
    Redis(#[from] RedisError),
    #[error("{0}")]
    Tls(String),
    /// The answer to the credentials of the URL.
    #[error("{0}")]
    Refused(String),
}

impl From<ConnectError> for BusError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Redis(error) => error.into(),
            ConnectError::Tls(error) => Self::Tls(error),
            ConnectError::Refused(error) => Self::Unexpected(error),
        }
    }
}

impl From<ConnectError> for RedisError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Redis(error) => error,
            ConnectError::Tls(error) | ConnectError::Refused(error) => {
                io::Error::other(error).into()
            }
        }
    }
}

impl Connector {
    /// Trusts the authorities in a PEM file, or those of the system. Warns when what is sent to
    /// the address could be read on the way.
    ///
    /// # Errors
    /// When the file has no certificate, or when it would not be used.
    pub(super) fn new(address: &Address, authorities: Option<&Path>) -> Result<Self, BusError> {
        let is_tls = address.is_tls();
        if address.is_readable_on_the_way() {
            tracing::warn!(
                "Redis is on another machine and reached without TLS: an attacker on the network \
                 path can read and change calls and the keys of tokens; use TLS with rediss instead \
                 of redis in the URL"
            );
        }
        let authorities = match authorities {
            Some(_) if !is_tls => {
                return Err(BusError::Address(
                    "certificate authorities for Redis are set, but the URL is without TLS: \
                     expected rediss://, rediss+sentinel:// or rediss+cluster://"
                        .to_owned(),
                ));
            }
            Some(file) => Some(read_authorities(file)?),
            None => None,
        };
        if !is_tls {
            return Ok(Self { tls: None });
        }
        let config = outbound::tls_config(authorities);
        let config = config.map_err(|error| BusError::Tls(error.to_string()))?;
        let tls = Some(TlsConnector::from(Arc::new(config)));
        Ok(Self { tls })
    }

    /// Connects to a server and authenticates, for a socket that only publishes or only
    /// subscribes.
    pub(super) async fn connect(&self, info: &ConnectionInfo) -> Result<Stream, ConnectError> {
        let mut stream = self.dial(info, TLS_TIMEOUT).await?;
        authenticate(&mut stream, info).await?;
        Ok(stream)
    }

    /// Connects the client of Redis to a server.
    /// Connecting and authenticating together take at most `limit`.
    pub(super) async fn connect_driver(
        &self,
        info: &ConnectionInfo,
        config: &AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<Driver, ConnectError> {
        let connect = async {
            // The handshake has less time, so that its failure is reported as such.
            let stream = self.dial(info, limit * 9 / 10).await?;
            let settings = info.redis_settings();
            MultiplexedConnection::new_with_config(settings, stream, config.clone())
                .await
                .map_err(|error| self.explain(info, error))
        };
        let connected = timeout(limit, connect).await;
        let (commands, serve) =
            connected.unwrap_or_else(|_| Err(failed(io::ErrorKind::TimedOut.into())))?;
        let mut task = JoinSet::new();
        task.spawn(serve);
        Ok(Driver {
            commands,
            _task: Arc::new(task),
        })
    }

    async fn dial(
        &self,
        info: &ConnectionInfo,
        tls_limit: Duration,
    ) -> Result<Stream, ConnectError> {
        match (info.addr(), &self.tls) {
            (ConnectionAddr::Tcp(host, port), _) => dial_tcp(host, *port).await.map(Either::Left),
            (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
                let refused = |error: &dyn Display| {
                    ConnectError::Tls(format!("no TLS with {}: {error}", info.addr()))
                };
                let name = ServerName::try_from(host.clone()).map_err(|error| refused(&error))?;
                let stream = dial_tcp(host, *port).await?;
                match timeout(tls_limit, tls.connect(name, stream)).await {
                    Ok(Ok(stream)) => Ok(Either::Right(stream)),
                    Ok(Err(error)) => Err(refused(&describe(&error))),
                    Err(_) => Err(refused(&format_args!(
                        "it did not answer the handshake in time; is this its port for TLS?"
                    ))),
                }
            }
            (ConnectionAddr::Unix(path), _) => {
                let stream = UnixStream::connect(path).await.map_err(failed)?;
                let stream = OwnedFd::from(stream.into_std().map_err(failed)?);
                let stream = TcpStream::from_std(stream.into()).map_err(failed)?;
                Ok(Either::Left(stream))
            }
            (other, _) => {
                let error = io::Error::other(format!("{other} is not supported"));
                Err(failed(error))
            }
        }
    }

    /// A server that closes the connection before its first reply may expect another kind of
    /// connection.
    fn explain(&self, info: &ConnectionInfo, error: RedisError) -> ConnectError {
        let has_replied = error.code().is_some();
        if has_replied || error.is_timeout() || matches!(info.addr(), ConnectionAddr::Unix(_)) {
            return error.into();
        }
        let server = info.addr();
        let hint = if self.tls.is_some() {
            "if it asks for client certificates, which are not supported, \
             set `tls-auth-clients no` there"
        } else {
            "if this is its port for TLS, the URL begins with rediss"
        };
        let source = error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string);
        ConnectError::Tls(format!("{server} did not reply: {source}; {hint}"))
    }
}

async fn dial_tcp(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

fn read_authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, BusError> {
    let name = file.display();
    let invalid = |error: &dyn Display| {
        BusError::Address(format!(
            "no certificate authority for Redis in {name}: {error}"
        ))
    };
    let authorities = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| invalid(&error))?;
    if authorities.is_empty() {
        return Err(invalid(&"expected certificates in PEM format"));
    }
    Ok(authorities)
}

/// Why a handshake failed, and what may be the reason.
fn describe(error: &io::Error) -> String {
    use rustls::{CertificateError, Error};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let hint = match cause {
        Some(Error::InvalidMessage(_)) => "; the server speaks without TLS on this port",
        Some(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; if its authority is a private one, set --redis-ca to it",
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "; is this the server's port for TLS?"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

/// Authenticates with the credentials of the URL, if it has any.
async fn authenticate(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    info: &ConnectionInfo,
) -> Result<(), ConnectError> {
    let Some(password) = info.redis_settings().password() else {
        return Ok(());
    };
    let mut parts: Vec<&[u8]> = vec![b"AUTH"];
    parts.extend(info.redis_settings().username().map(str::as_bytes));
    parts.push(password.as_bytes());
    let mut command = Vec::new();
    resp::encode_command(&mut command, &parts);
    stream.write_all(&command).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    // Byte by byte: what follows the reply is for the owner of the socket to read.
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") && reply.len() < MAX_REPLY_BYTES {
        reply.push(stream.read_u8().await.map_err(failed)?);
    }
    match resp::decode(&mut &reply[..]) {
        Ok(Some(Frame::Error(error))) => {
            let error = String::from_utf8_lossy(error).into_owned();
            Err(ConnectError::Refused(error))
        }
        _ => Ok(()),
    }
}

fn failed(error: io::Error) -> ConnectError {
    RedisError::from(error).into()
}

#[cfg(test)]
mod tests {
    use switchboard_test_support::{certificates::Authority, redis_server::RedisServer};
    use tokio::net::TcpListener;

    use super::*;

    /// Enough for a server that answers.
    const LIMIT: Duration = Duration::from_secs(10);
    /// How long a server that does not answer is waited for.
    const SILENT_LIMIT: Duration = Duration::from_millis(500);

    /// Why a server cannot be connected to; with a password, which must not be shown.
    async fn error(
        scheme: &str,
        (host, port): (&str, u16),
        authority: Option<&Authority>,
        limit: Duration,
    ) -> String {
        let url = format!("{scheme}://:secret@{host}:{port}/");
        let address = Address::parse(&url).unwrap();
        let authority = authority.map(Authority::certificate);
        let connector = Connector::new(&address, authority).unwrap();
        let Address::Single(info) = address else {
            panic!("{url} has one server");
        };
        let config = AsyncConnectionConfig::new();
        let connected = connector.connect_driver(&info, &config, limit).await;
        let error = BusError::from(connected.err().unwrap());
        assert!(matches!(error, BusError::Tls(_)), "{error:?}");
        let error = error.to_string();
        assert!(!error.contains("secret"), "{error}");
        error
    }

    #[track_caller]
    fn check(error: &str, expected: &[&str]) {
        for part in expected {
            assert!(error.contains(part), "{error} does not contain {part}");
        }
    }

    #[tokio::test]
    async fn refused_certificate_is_named() {
        let authority = Authority::new();
        let server = RedisServer::start_tls(&authority.issue(&["redis.example"]), &[]);
        let port = server.tls_port();
        let wrong_name = error("rediss", ("localhost", port), Some(&authority), LIMIT).await;
        let address = format!("no TLS with localhost:{port}: ");
        check(&wrong_name, &[&address, "not valid for name \"localhost\""]);
        let unknown = error(
            "rediss",
            ("localhost", port),
            Some(&Authority::new()),
            LIMIT,
        )
        .await;
        check(&unknown, &["invalid peer certificate", "--redis-ca"]);
        let unknown = error("rediss", ("localhost", port), None, LIMIT).await;
        check(&unknown, &["UnknownIssuer", "--redis-ca"]);
    }

    #[tokio::test]
    async fn tls_on_one_side_only_is_named() {
        let authority = Authority::new();
        let server = RedisServer::start_tls(&authority.issue(&["localhost"]), &[]);
        let without = error("redis", ("localhost", server.tls_port()), None, LIMIT).await;
        check(&without, &["did not reply", "the URL begins with rediss"]);
        // Redis without TLS waits for the end of a line that a handshake may not have.
        let plain = ("127.0.0.1", server.address().port());
        let plain = error("rediss", plain, Some(&authority), SILENT_LIMIT).await;
        check(&plain, &["TLS", "port"]);
        // A server without TLS waits for the end of a line, or complains of the first one.
        for (reply, limit, expected) in [
            ("", SILENT_LIMIT, "it did not answer the handshake in time"),
            (
                "-ERR unknown command\r\n",
                LIMIT,
                "the server speaks without TLS",
            ),
        ] {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = server.local_addr().unwrap().port();
            let mut answering = JoinSet::new();
            answering.spawn(async move {
                let (mut stream, _) = server.accept().await.unwrap();
                stream.write_all(reply.as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            });
            let error = error("rediss", ("127.0.0.1", port), Some(&authority), limit).await;
            check(&error, &[expected]);
        }
    }

    #[tokio::test]
    async fn required_client_certificate_is_named() {
        let authority = Authority::new();
        let options = ["--tls-auth-clients", "yes"];
        let server = RedisServer::start_tls(&authority.issue(&["localhost"]), &options);
        let error = error(
            "rediss",
            ("localhost", server.tls_port()),
            Some(&authority),
            LIMIT,
        )
        .await;
        check(&error, &["tls-auth-clients no"]);
    }

    #[test]
    fn unusable_authorities_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "no certificate").unwrap();
        let missing = folder.path().join("missing.pem");
        for (url, file, expected) in [
            ("rediss://a", &empty, "expected certificates in PEM format"),
            ("rediss://a", &missing, "missing.pem"),
            ("redis://a", &empty, "the URL is without TLS"),
        ] {
            let address = Address::parse(url).unwrap();
            let error = Connector::new(&address, Some(file))
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
