//! An HTTP site as the command line sees it: one request, one answer, over TCP or TLS.
//! Never: a redirect followed, an answer without a bound.

use std::{convert::Infallible, path::Path, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header, uri::Authority};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::tls;

/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// How long an answer that has begun may pause: three of the signs of life that streams carry every 15 s.
const QUIET: Duration = Duration::from_secs(45);
/// How long it may take to be connected, before anything is sent.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Scheme, host and port of a site, and the path that everything is below.
#[derive(Clone)]
pub(crate) struct Site {
    authority: Authority,
    path: String,
    tls: Option<TlsConnector>,
    /// How long an answer that has begun may pause.
    pub(crate) quiet: Duration,
}

/// What is asked.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// Below the site's own path, beginning with a slash.
    pub(crate) path: &'a str,
    pub(crate) headers: HeaderMap,
    /// JSON, or empty.
    pub(crate) body: Vec<u8>,
    pub(crate) within: Duration,
}

/// An answer whose head is there.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    connection: Driven,
    quiet: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nothing was sent: asking again is safe.
    #[error("{0:#}")]
    NotSent(anyhow::Error),
    /// The site may have acted.
    #[error("{0:#}")]
    Broken(anyhow::Error),
}

/// What moves the bytes of a connection.
type Driven = Pin<Box<dyn Future<Output = Infallible> + Send>>;

impl Site {
    /// The site at `http://…` or `https://…`; the latter with a certificate by `authority`, or by one
    /// that the system trusts.
    ///
    /// # Errors
    /// When the text is no such URL, or there is nobody to trust.
    pub(crate) fn new(url: &str, authority: Option<&Path>) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(TlsConnector::from(Arc::new(tls::client_config(authority)?))),
            _ => bail!("{url} begins neither with http:// nor with https://"),
        };
        let path = uri.path().trim_end_matches('/').to_owned();
        let authority = uri
            .into_parts()
            .authority
            .ok_or_else(|| anyhow!("{url} names no host"))?;
        Ok(Self {
            authority,
            path,
            tls,
            quiet: QUIET,
        })
    }

    /// Its host, without a port.
    pub(crate) fn host(&self) -> &str {
        self.authority.host()
    }

    /// Sends a request and reads the answer to its end.
    ///
    /// # Errors
    /// When there is no answer in time, or one that is too long.
    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Result<(StatusCode, Bytes), AskError> {
        let within = ask.within;
        let exchange = async {
            let mut answer = self.open(ask).await?;
            let whole = answer.whole().await?;
            Ok((answer.status, whole))
        };
        timeout(within, exchange)
            .await
            .unwrap_or_else(|_| Err(AskError::late(within)))
    }

    /// Sends a request and waits for the head of the answer; the rest comes in its own time.
    ///
    /// # Errors
    /// When there is no head in time.
    pub(crate) async fn open(&self, ask: Ask<'_>) -> Result<Answer, AskError> {
        let within = ask.within;
        let opening = async {
            let request = self.request(ask).map_err(AskError::NotSent)?;
            let tcp = prompt(self.connect()).await?;
            match &self.tls {
                None => self.send(tcp, request).await,
                Some(tls) => {
                    let secured = async {
                        let name = ServerName::try_from(self.bare_host().to_owned())?;
                        anyhow::Ok(tls.connect(name, tcp).await?)
                    };
                    self.send(prompt(secured).await?, request).await
                }
            }
        };
        timeout(within, opening)
            .await
            .unwrap_or_else(|_| Err(AskError::late(within)))
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let default_port = if self.tls.is_some() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let tcp = TcpStream::connect((self.bare_host(), port)).await?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }

    async fn send<S>(&self, socket: S, request: Request<Full<Bytes>>) -> Result<Answer, AskError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let shaken = http1::handshake(TokioIo::new(socket)).await;
        let (mut sender, connection) = shaken.map_err(|error| AskError::NotSent(error.into()))?;
        let mut connection: Driven = Box::pin(drive(connection));
        let response = tokio::select! {
            response = sender.send_request(request) => response,
            never = &mut connection => match never {},
        };
        let response = response.map_err(|error| match error.is_canceled() {
            true => AskError::NotSent(error.into()),
            false => AskError::Broken(error.into()),
        })?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
            connection,
            quiet: self.quiet,
        })
    }

    fn bare_host(&self) -> &str {
        self.host().trim_start_matches('[').trim_end_matches(']')
    }

    fn request(&self, ask: Ask<'_>) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(Bytes::from(ask.body)));
        *request.method_mut() = ask.method;
        *request.uri_mut() = format!("{}{}", self.path, ask.path).parse()?;
        *request.headers_mut() = ask.headers;
        let host = HeaderValue::from_str(self.authority.as_str())?;
        request.headers_mut().insert(header::HOST, host);
        Ok(request)
    }
}

impl Answer {
    /// All of it.
    ///
    /// # Errors
    /// When it has too many bytes, or the connection breaks or falls silent before its end.
    pub(crate) async fn whole(&mut self) -> Result<Bytes, AskError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > MAX_ANSWER_BYTES {
                let limit = MAX_ANSWER_BYTES;
                return Err(AskError::Broken(anyhow!(
                    "the answer has more than {limit} bytes"
                )));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// When the connection breaks or falls silent before. A site whose machine has gone says nothing of it.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, AskError> {
        let quiet = self.quiet;
        let silent = |_| {
            let detail = anyhow!("the answer broke off: nothing came for {quiet:?}");
            Err(AskError::Broken(detail))
        };
        let next = timeout(quiet, self.next_chunk()).await;
        next.unwrap_or_else(silent)
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, AskError> {
        loop {
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                never = &mut self.connection => match never {},
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(AskError::Broken(anyhow!(
                        "the answer cannot be read: {error}"
                    )));
                }
                // Trailers say nothing here.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl AskError {
    fn late(within: Duration) -> Self {
        Self::Broken(anyhow!("no answer within {} s", within.as_secs()))
    }
}

/// What is done before anything is sent: whatever becomes of it, asking again is safe.
async fn prompt<T>(step: impl Future<Output = anyhow::Result<T>>) -> Result<T, AskError> {
    let late = |_| {
        Err(anyhow!(
            "not connected within {} s",
            CONNECT_LIMIT.as_secs()
        ))
    };
    let done = timeout(CONNECT_LIMIT, step).await;
    done.unwrap_or_else(late).map_err(AskError::NotSent)
}

/// Moves the bytes. What goes wrong with them is told to whoever waits for the answer.
async fn drive<S>(connection: Connection<TokioIo<S>, Full<Bytes>>) -> Infallible
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let _ = connection.await;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
        fn check(url: &str, expect: Result<&str, &str>) {
            let site = Site::new(url, None).map_err(|error| error.to_string());
            match (site, expect) {
                (Ok(site), Ok(host)) => assert_eq!(site.host(), host),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (site, _) => panic!("{url}: {:?}", site.map(|site| site.host().to_owned())),
            }
        }
        check("http://127.0.0.1:8080", Ok("127.0.0.1"));
        check("http://[::1]:8080/below/", Ok("[::1]"));
        check("127.0.0.1:8080", Err("http"));
        check("ftp://x", Err("neither with http://"));
        check("", Err("no URL"));
    }
}
