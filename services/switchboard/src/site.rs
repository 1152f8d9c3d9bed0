//! An HTTP site as the command line sees it: one request, one answer, over TCP or TLS.
//! Never: a redirect followed, an answer without a bound.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header, uri::Authority};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, Connection};
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
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Scheme, host and port of a site, and the path that everything is below.
#[derive(Clone)]
pub(crate) struct Site {
    authority: Authority,
    path: String,
    tls: Option<TlsConnector>,
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
    pub(crate) async fn ask(&self, ask: Ask<'_>) -> anyhow::Result<(StatusCode, Bytes)> {
        let within = ask.within;
        let exchange = async {
            let default_port = if self.tls.is_some() { 443 } else { 80 };
            let port = self.authority.port_u16().unwrap_or(default_port);
            let host = self.host().trim_start_matches('[').trim_end_matches(']');
            let tcp = TcpStream::connect((host, port)).await?;
            tcp.set_nodelay(true)?;
            let request = self.request(ask)?;
            match &self.tls {
                None => exchange(tcp, request).await,
                Some(tls) => {
                    let name = ServerName::try_from(host.to_owned())?;
                    exchange(tls.connect(name, tcp).await?, request).await
                }
            }
        };
        timeout(within, exchange)
            .await
            .unwrap_or_else(|_| Err(anyhow!("no answer within {} s", within.as_secs())))
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

async fn exchange<S>(
    socket: S,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| anyhow!("the answer cannot be read: {error}"))?;
        Ok((status, body.to_bytes()))
    };
    tokio::select! {
        answer = answer => answer,
        never = drive(connection) => match never {},
    }
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
