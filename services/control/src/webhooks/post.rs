//! One attempt: a request to an address that was judged, over TLS where the URL says so, and the status of its answer.
//! Never: a redirect followed, an answer's body read, or a connection to an address that was not judged itself.

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

/// How long it may take to look the name up, to connect, and to agree on keys.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long of that an address may take, when there are others: none of them uses all of it.
const ADDRESS_LIMIT: Duration = Duration::from_millis(1200);
/// How long an attempt may take altogether.
pub(super) const WHOLE_LIMIT: Duration = Duration::from_secs(15);
/// How many addresses of one name are tried.
const MOST_ADDRESSES: usize = 4;
/// The longest head of an answer, in bytes. Protects memory.
const LONGEST_HEAD: usize = 16 * 1024;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("the name is not known")]
    Unresolved(#[source] io::Error),
    #[error("the name leads to no address that deliveries may go to")]
    Refused,
    #[error("there is nothing to sign with")]
    Unsigned,
    #[error("nobody answers there")]
    Unreachable(#[source] io::Error),
    #[error("TLS failed")]
    Tls(#[source] io::Error),
    #[error("it took too long")]
    TimedOut,
    #[error("the answer is no HTTP")]
    Broken(#[source] hyper::Error),
}

impl PostError {
    /// The word that the delivery's owner reads.
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

/// Makes attempts.
pub(super) struct Post {
    networks: Networks,
    authorities: Option<Authorities>,
    /// The platform's authorities are read when they are needed first.
    tls: OnceLock<Result<TlsConnector, String>>,
}

impl Post {
    pub(super) const fn new(networks: Networks, authorities: Option<Authorities>) -> Self {
        Self {
            networks,
            authorities,
            tls: OnceLock::new(),
        }
    }

    /// Where a URL leads, by the rules that hold now.
    pub(super) fn destination(&self, url: &str) -> Result<Destination, PostError> {
        Destination::read(url, &self.networks).map_err(|_| PostError::Refused)
    }

    /// Sends the request and answers with the status that came back.
    pub(super) async fn send(
        &self,
        to: &Destination,
        request: Request<Full<Bytes>>,
    ) -> Result<StatusCode, PostError> {
        let whole = async {
            let connect = timeout(CONNECT_LIMIT, self.connect(to));
            let stream = connect.await.map_err(|_| PostError::TimedOut)??;
            if to.is_tls() {
                let stream = timeout(CONNECT_LIMIT, self.secure(to, stream));
                let stream = stream.await.map_err(|_| PostError::TimedOut)??;
                exchange(stream, request).await
            } else {
                exchange(stream, request).await
            }
        };
        let whole = Box::pin(timeout(WHOLE_LIMIT, whole));
        whole.await.map_err(|_| PostError::TimedOut)?
    }

    /// The name is looked up once, and what it leads to is judged and connected to: a name that leads elsewhere a
    /// moment later changes nothing.
    async fn connect(&self, to: &Destination) -> Result<TcpStream, PostError> {
        let found: Vec<SocketAddr> = match to.address() {
            Some(address) => vec![SocketAddr::new(address, to.port())],
            None => lookup_host((to.host(), to.port()))
                .await
                .map_err(PostError::Unresolved)?
                .collect(),
        };
        let permitted = |address: IpAddr| to.may_connect(address, &self.networks);
        let addresses = found
            .into_iter()
            .filter(|address| permitted(address.ip()))
            .take(MOST_ADDRESSES);
        first_of(addresses).await
    }

    async fn secure(
        &self,
        to: &Destination,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, PostError> {
        let broken = |reason: String| PostError::Tls(io::Error::other(reason));
        let connector = self
            .tls
            .get_or_init(|| connector(self.authorities.as_ref()))
            .as_ref();
        let connector = connector.map_err(|reason| broken(reason.clone()))?;
        let name = ServerName::try_from(to.host().to_owned());
        let name = name.map_err(|error| broken(error.to_string()))?;
        let secured = connector.connect(name, stream).await;
        secured.map_err(PostError::Tls)
    }
}

/// A connection to the first address at which somebody answers.
async fn first_of(addresses: impl Iterator<Item = SocketAddr>) -> Result<TcpStream, PostError> {
    let mut addresses = addresses.peekable();
    let mut failed = None;
    while let Some(address) = addresses.next() {
        // The last one has what is left.
        let limit = match addresses.peek() {
            Some(_) => ADDRESS_LIMIT,
            None => CONNECT_LIMIT,
        };
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = Some(error),
            Err(_) => failed = Some(io::ErrorKind::TimedOut.into()),
        }
    }
    Err(failed.map_or(PostError::Refused, PostError::Unreachable))
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, PostError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(LONGEST_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(PostError::Broken)?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let mut connection = std::pin::pin!(connection);
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // What was under way on it is told what became of it.
        _ = &mut connection => answer.await,
    };
    answer
        .map(|answer| answer.status())
        .map_err(PostError::Broken)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A listener whose queue is full: nobody answers who knocks. With it, those who are in the queue.
    async fn deaf() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        let knock = async || timeout(Duration::from_millis(300), TcpStream::connect(address)).await;
        while let Ok(stream) = knock().await {
            queue.push(stream.unwrap());
        }
        (listener, queue)
    }

    #[tokio::test]
    async fn an_address_that_is_silent_leaves_time_for_the_next() {
        let (silent, _queue) = deaf().await;
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [&silent, &silent, &other].map(|one| one.local_addr().unwrap());
        let connected = timeout(CONNECT_LIMIT, first_of(addresses.into_iter())).await;
        let peer = connected.unwrap().unwrap().peer_addr().unwrap();
        assert_eq!(peer, addresses[2]);
        let none = first_of(std::iter::empty()).await;
        assert!(matches!(none, Err(PostError::Refused)));
    }
}
