//! HTTP client of the command line: one connection per request, over TCP or TLS. Redirects are not
//! followed.

mod body;

use std::{convert::Infallible, path::Path, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header, uri::Authority};
use http_body_util::BodyExt as _;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection},
};
use hyper_util::rt::TokioIo;
use indicatif::ProgressBar;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_rustls::TlsConnector;

use self::body::RequestBody;
use crate::tls;

/// Maximum size of a response body.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Timeout between two chunks of a body: three keep-alive intervals of an event stream (15 s).
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(45);
/// Timeout for connecting, before the request is sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one server: its address, and the prefix of all paths.
#[derive(Clone)]
pub(crate) struct HttpClient {
    authority: Authority,
    path: String,
    tls: Option<TlsConnector>,
    /// Timeout between two chunks of a body.
    pub(crate) idle_timeout: Duration,
    /// Shows how much of a body is sent.
    pub(crate) progress: ProgressBar,
}

/// A request.
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: Method,
    /// Path below the client's prefix, with a leading slash.
    pub(crate) path: &'a str,
    pub(crate) headers: HeaderMap,
    /// JSON, or empty.
    pub(crate) body: Vec<u8>,
    pub(crate) timeout: Duration,
}

/// A response whose head has been received.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    connection: ConnectionDriver,
    idle_timeout: Duration,
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The request was not sent; a retry is safe.
    #[error("{0:#}")]
    NotSent(anyhow::Error),
    /// The server may have processed the request.
    #[error("{0:#}")]
    Broken(anyhow::Error),
}

/// Future that drives the I/O of a connection.
type ConnectionDriver = Pin<Box<dyn Future<Output = Infallible> + Send>>;

impl HttpClient {
    /// Creates a client for `http://…` or `https://…`. HTTPS trusts the certificates in
    /// `authority`, or those of the system if `None`.
    ///
    /// # Errors
    /// When the URL is malformed, or there is no certificate to trust.
    pub(crate) fn new(url: &str, authority: Option<&Path>) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url} is not a URL"))?;
        if uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            bail!("the URL has a user name; the only credential is an API key");
        }
        if uri.query().is_some() {
            bail!("the URL has a query; give the address only, such as https://host");
        }
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(TlsConnector::from(Arc::new(tls::client_config(authority)?))),
            _ => bail!("{url} must begin with http:// or https://"),
        };
        let path = uri.path().trim_end_matches('/').to_owned();
        let authority = uri
            .into_parts()
            .authority
            .ok_or_else(|| anyhow!("{url} has no host"))?;
        Ok(Self {
            authority,
            path,
            tls,
            idle_timeout: BODY_IDLE_TIMEOUT,
            progress: ProgressBar::hidden(),
        })
    }

    /// Returns the host without the port.
    pub(crate) fn host(&self) -> &str {
        self.authority.host()
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// When the response is late or too large.
    pub(crate) async fn fetch(
        &self,
        request: HttpRequest<'_>,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let timeout = request.timeout;
        let exchange = async {
            let mut response = self.open(request).await?;
            let body = response.read_to_end().await?;
            Ok((response.status, body))
        };
        time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(HttpError::timed_out(timeout)))
    }

    /// Sends a request and waits for the head of the response. The body is read later.
    ///
    /// # Errors
    /// When there is no head in time.
    pub(crate) async fn open(&self, request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        let timeout = request.timeout;
        let opening = async {
            let request = self.build(request).map_err(HttpError::NotSent)?;
            let tcp = before_send(self.connect()).await?;
            match &self.tls {
                None => self.exchange(tcp, request).await,
                Some(tls) => {
                    let tls_handshake = async {
                        let name = ServerName::try_from(self.bare_host().to_owned())?;
                        anyhow::Ok(tls.connect(name, tcp).await?)
                    };
                    self.exchange(before_send(tls_handshake).await?, request)
                        .await
                }
            }
        };
        time::timeout(timeout, opening)
            .await
            .unwrap_or_else(|_| Err(HttpError::timed_out(timeout)))
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let default_port = if self.tls.is_some() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let tcp = TcpStream::connect((self.bare_host(), port)).await?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }

    async fn exchange<S>(
        &self,
        socket: S,
        request: Request<RequestBody>,
    ) -> Result<HttpResponse, HttpError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let handshake = http1::handshake(TokioIo::new(socket)).await;
        let (mut sender, connection) =
            handshake.map_err(|error| HttpError::NotSent(error.into()))?;
        let mut connection: ConnectionDriver = Box::pin(drive(connection));
        let response = tokio::select! {
            response = sender.send_request(request) => response,
            never = &mut connection => match never {},
        };
        let response = response.map_err(|error| match error.is_canceled() {
            true => HttpError::NotSent(error.into()),
            false => HttpError::Broken(error.into()),
        })?;
        let (head, body) = response.into_parts();
        Ok(HttpResponse {
            status: head.status,
            headers: head.headers,
            body,
            connection,
            idle_timeout: self.idle_timeout,
        })
    }

    fn bare_host(&self) -> &str {
        self.host().trim_start_matches('[').trim_end_matches(']')
    }

    fn build(&self, request: HttpRequest<'_>) -> anyhow::Result<Request<RequestBody>> {
        let mut built = body::request(request.body, self.progress.clone());
        *built.method_mut() = request.method;
        *built.uri_mut() = format!("{}{}", self.path, request.path).parse()?;
        *built.headers_mut() = request.headers;
        let host = HeaderValue::from_str(self.authority.as_str())?;
        built.headers_mut().insert(header::HOST, host);
        body::expect_continue(&mut built);
        Ok(built)
    }
}

impl HttpResponse {
    /// Reads the remaining body.
    ///
    /// # Errors
    /// When the body is too large, the connection breaks, or the idle timeout expires.
    pub(crate) async fn read_to_end(&mut self) -> Result<Bytes, HttpError> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                let limit = MAX_BODY_BYTES;
                return Err(HttpError::Broken(anyhow!(
                    "the response exceeds {limit} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// Reads the next chunk; `None` at the end of the body.
    ///
    /// # Errors
    /// When the connection breaks, or the idle timeout expires because the server is unreachable.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        let idle_timeout = self.idle_timeout;
        let silent = |_| {
            let detail = anyhow!("no data received for {idle_timeout:?}");
            Err(HttpError::Broken(detail))
        };
        let next = time::timeout(idle_timeout, self.read_frame()).await;
        next.unwrap_or_else(silent)
    }

    async fn read_frame(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                never = &mut self.connection => match never {},
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(HttpError::Broken(anyhow!(
                        "cannot read the response: {error}"
                    )));
                }
                // Trailers are ignored.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl HttpError {
    fn timed_out(timeout: Duration) -> Self {
        Self::Broken(anyhow!("no response within {} s", timeout.as_secs()))
    }
}

/// Runs a step before the request is sent: after an error a retry is safe.
async fn before_send<T>(step: impl Future<Output = anyhow::Result<T>>) -> Result<T, HttpError> {
    let late = |_| {
        Err(anyhow!(
            "not connected within {} s",
            CONNECT_TIMEOUT.as_secs()
        ))
    };
    let done = time::timeout(CONNECT_TIMEOUT, step).await;
    done.unwrap_or_else(late).map_err(HttpError::NotSent)
}

/// Drives the connection. Its errors surface in the body.
async fn drive<S>(connection: Connection<TokioIo<S>, RequestBody>) -> Infallible
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let _ = connection.await;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Sends a body to a server that answers its head like this. Returns the status, and the head and
    /// what followed it.
    async fn exchange(bytes: usize, answers: &[&'static str]) -> (StatusCode, String, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            let end = |received: &[u8]| {
                let mut windows = received.windows(4);
                windows
                    .position(|window| window == b"\r\n\r\n")
                    .map(|at| at + 4)
            };
            while end(&received).is_none() {
                assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
            }
            let head = end(&received).unwrap();
            for (index, answer) in answers.iter().enumerate() {
                // The body follows the first of two answers.
                while index > 0 && received.len() < head + bytes {
                    assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            // Until the client closes the connection.
            while stream.read_buf(&mut received).await.unwrap_or(0) > 0 {}
            let text = String::from_utf8_lossy(received.get(..head).unwrap()).to_lowercase();
            (text, received.len() - head)
        };
        let client = HttpClient::new(&url, None).unwrap();
        let fetch = async {
            let request = HttpRequest {
                method: Method::POST,
                path: "/",
                headers: HeaderMap::new(),
                body: vec![b'x'; bytes],
                timeout: Duration::from_secs(30),
            };
            client.fetch(request).await.unwrap().0
        };
        let (status, (head, body)) = tokio::join!(fetch, serve);
        (status, head, body)
    }

    #[tokio::test]
    async fn large_body_is_sent_after_the_server_accepts_it() {
        let refused =
            "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let (status, head, sent) = exchange(100_000, &[refused]).await;
        assert_eq!((status.as_u16(), sent), (413, 0), "{head}");
        assert!(head.contains("expect: 100-continue"), "{head}");
        assert!(head.contains("content-length: 100000"), "{head}");

        let done = "HTTP/1.1 204 No Content\r\n\r\n";
        let (status, _, sent) = exchange(100_000, &["HTTP/1.1 100 Continue\r\n\r\n", done]).await;
        assert_eq!((status.as_u16(), sent), (204, 100_000));

        // This server does not know the expectation.
        let (status, _, sent) = exchange(100_000, &["", done]).await;
        assert_eq!((status.as_u16(), sent), (204, 100_000));

        let (status, head, sent) = exchange(1_000, &["", done]).await;
        assert_eq!((status.as_u16(), sent), (204, 1_000));
        assert!(!head.contains("expect"), "{head}");
    }

    #[test]
    fn url_is_validated() {
        fn check(url: &str, expect: Result<&str, &str>) {
            let client = HttpClient::new(url, None).map_err(|error| error.to_string());
            match (client, expect) {
                (Ok(client), Ok(host)) => assert_eq!(client.host(), host),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (client, _) => panic!("{url}: {:?}", client.map(|client| client.host().to_owned())),
            }
        }
        check("http://127.0.0.1:8080", Ok("127.0.0.1"));
        check("http://[::1]:8080/below/", Ok("[::1]"));
        check("127.0.0.1:8080", Err("http"));
        check("ftp://x", Err("must begin with http://"));
        check("", Err("not a URL"));
    }
}
