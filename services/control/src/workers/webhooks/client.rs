//! The HTTP client for webhooks: sends one request, and returns the status of its response.
//!
//! Invariant: every address is checked before a connection to it. No redirect is followed, and no
//! response body is read.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Authorities, authorities::connector, destination::Destination, networks::Networks};
use crate::WebhookConfig;

/// How long the lookup of the name and the connection may take; and how long the TLS handshake may.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection to one address may take when there are others, so that time
/// is left for them.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(1200);
/// How long an attempt may take in total.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// The maximum size of the head of a response. Protects memory.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Why there was no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error("the host name cannot be resolved")]
    Unresolved(#[source] io::Error),
    #[error("the host has no permitted address")]
    Refused,
    #[error("there is no secret to sign with")]
    Unsigned,
    #[error("the host is unreachable")]
    Unreachable(#[source] io::Error),
    #[error("TLS failed")]
    Tls(#[source] io::Error),
    #[error("the request timed out")]
    TimedOut,
    #[error("the response is not valid HTTP")]
    Broken(#[source] hyper::Error),
}

impl DeliveryError {
    /// The error code in the API.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Unresolved(_) => "unknown_host",
            Self::Refused => "address_refused",
            Self::Unsigned => "unsigned",
            Self::Unreachable(_) => "unreachable",
            Self::Tls(_) => "tls",
            Self::TimedOut => "timed_out",
            Self::Broken(_) => "broken_answer",
        }
    }
}

/// Sends requests to webhooks.
pub(super) struct WebhookClient {
    networks: Networks,
    authorities: Option<Authorities>,
    /// Loaded on first use: the authorities of the system may not be needed.
    tls: OnceLock<Result<TlsConnector, String>>,
}

impl WebhookClient {
    pub(super) fn new(config: &WebhookConfig) -> Self {
        Self {
            networks: Networks::new(&config.webhooks_allow),
            authorities: config.webhooks_ca.clone(),
            tls: OnceLock::new(),
        }
    }

    /// The destination of a URL, if the current configuration permits it.
    pub(super) fn destination(&self, url: &str) -> Result<Destination, DeliveryError> {
        Destination::parse(url, &self.networks).map_err(|_| DeliveryError::Refused)
    }

    /// Sends a request, and returns the status of the response.
    pub(super) async fn send(
        &self,
        destination: &Destination,
        request: Request<Full<Bytes>>,
    ) -> Result<StatusCode, DeliveryError> {
        let exchange = async {
            let connect = timeout(CONNECT_TIMEOUT, self.connect(destination));
            let stream = connect.await.map_err(|_| DeliveryError::TimedOut)??;
            if destination.is_tls() {
                let stream = timeout(CONNECT_TIMEOUT, self.tls_handshake(destination, stream));
                let stream = stream.await.map_err(|_| DeliveryError::TimedOut)??;
                send_on(stream, request).await
            } else {
                send_on(stream, request).await
            }
        };
        let exchange = Box::pin(timeout(ATTEMPT_TIMEOUT, exchange));
        exchange.await.map_err(|_| DeliveryError::TimedOut)?
    }

    /// Connects as [`Self::send`] does, and sends no request.
    pub(super) async fn contact(&self, destination: &Destination) -> Result<(), DeliveryError> {
        let connect = timeout(CONNECT_TIMEOUT, self.connect(destination));
        let stream = connect.await.map_err(|_| DeliveryError::TimedOut)??;
        if destination.is_tls() {
            let handshake = timeout(CONNECT_TIMEOUT, self.tls_handshake(destination, stream));
            handshake.await.map_err(|_| DeliveryError::TimedOut)??;
        }
        Ok(())
    }

    /// The name is resolved once, and the checked addresses are the ones to connect to: a later
    /// change of the name has no effect.
    async fn connect(&self, destination: &Destination) -> Result<TcpStream, DeliveryError> {
        let found: Vec<SocketAddr> = match destination.address() {
            Some(address) => vec![SocketAddr::new(address, destination.port())],
            None => lookup_host((destination.host(), destination.port()))
                .await
                .map_err(DeliveryError::Unresolved)?
                .collect(),
        };
        let permitted = |address: IpAddr| destination.may_connect(address, &self.networks);
        let addresses = found
            .into_iter()
            .filter(|address| permitted(address.ip()))
            .take(MAX_ADDRESSES);
        connect_to_first(addresses).await
    }

    async fn tls_handshake(
        &self,
        destination: &Destination,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, DeliveryError> {
        let broken = |reason: String| DeliveryError::Tls(io::Error::other(reason));
        let connector = self
            .tls
            .get_or_init(|| connector(self.authorities.as_ref()))
            .as_ref();
        let connector = connector.map_err(|reason| broken(reason.clone()))?;
        let name = ServerName::try_from(destination.host().to_owned());
        let name = name.map_err(|error| broken(error.to_string()))?;
        let secured = connector.connect(name, stream).await;
        secured.map_err(DeliveryError::Tls)
    }
}

/// A connection to the first address that accepts one.
async fn connect_to_first(
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<TcpStream, DeliveryError> {
    let mut addresses = addresses.peekable();
    let mut failed = None;
    while let Some(address) = addresses.next() {
        // The last address gets the remaining time.
        let limit = match addresses.peek() {
            Some(_) => ADDRESS_TIMEOUT,
            None => CONNECT_TIMEOUT,
        };
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = Some(error),
            Err(_) => failed = Some(io::ErrorKind::TimedOut.into()),
        }
    }
    Err(failed.map_or(DeliveryError::Refused, DeliveryError::Unreachable))
}

async fn send_on<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, DeliveryError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(DeliveryError::Broken)?;
    let mut response = std::pin::pin!(sender.send_request(request));
    let mut connection = std::pin::pin!(connection);
    let response = tokio::select! {
        biased;
        response = &mut response => response,
        // When the connection ends, its request completes with the result.
        _ = &mut connection => response.await,
    };
    response
        .map(|response| response.status())
        .map_err(DeliveryError::Broken)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A listener with a full backlog, which accepts no connection, and the
    /// connections in its backlog.
    async fn silent_listener() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut backlog = Vec::new();
        let connect =
            async || timeout(Duration::from_millis(300), TcpStream::connect(address)).await;
        while let Ok(stream) = connect().await {
            backlog.push(stream.unwrap());
        }
        (listener, backlog)
    }

    #[tokio::test]
    async fn silent_address_leaves_time_for_the_next() {
        let (silent, _backlog) = silent_listener().await;
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [&silent, &silent, &other].map(|one| one.local_addr().unwrap());
        let connected = timeout(CONNECT_TIMEOUT, connect_to_first(addresses.into_iter())).await;
        let peer = connected.unwrap().unwrap().peer_addr().unwrap();
        assert_eq!(peer, addresses[2]);
        let none = connect_to_first(std::iter::empty()).await;
        assert!(matches!(none, Err(DeliveryError::Refused)));
    }
}
