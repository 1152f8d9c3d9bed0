//! HTTP client: TLS configuration and pooled clients. Redirects are not followed, requests are not
//! retried, and response bodies have a size limit.

mod contact;
mod form;

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, Limited};
pub use hyper::Uri;
use hyper::{
    Request, Response,
    body::{Body, Incoming},
    header::{self, HeaderValue, InvalidHeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};

pub use self::{
    contact::{Api, Contact},
    form::Form,
};
use crate::trace::TraceContext;

/// Bytes of a response that a client reads ahead of its reader. Limits the size of a head as well, which
/// servers keep far below. Protects memory: each connection may fill its buffer, and all uses can have
/// hundreds of connections at the same time, those to providers and stores of objects no less than those of
/// forwarding. Longer bodies are not limited: they are read in more pieces. A record of TLS has 16 KiB, so
/// no use would gain from a value of its own. Webhooks, whose servers belong to organisations, have a client
/// with a smaller one.
const MAX_READ_AHEAD_BYTES: usize = 64 * 1024;
/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which an unused connection is closed; servers close theirs at some point, too.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The shortest part of a key that is removed from a text.
const MIN_KEY_PART_BYTES: usize = 8;
/// Maximum number of unused connections per host.
const MAX_IDLE_PER_HOST: usize = 16;

/// A client with TLS. Clones share a connection pool.
pub type Client<B> = legacy::Client<HttpsConnector<HttpConnector>, B>;

/// There was no complete response; the text includes all causes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FetchError(String);

/// Creates a TLS configuration that trusts `authorities`, or those of the system if `None`. With an
/// empty list no server is trusted.
///
/// # Errors
/// When the TLS provider is not usable.
pub fn tls_config(
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> Result<ClientConfig, rustls::Error> {
    let certificates =
        authorities.unwrap_or_else(|| rustls_native_certs::load_native_certs().certs);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Creates a client that trusts the authorities of the system; `allows_http` permits plain HTTP.
///
/// # Errors
/// As [`tls_config`].
pub fn client<B>(allows_http: bool) -> Result<Client<B>, rustls::Error>
where
    B: Body + Send,
    B::Data: Send,
{
    build(allows_http, MAX_IDLE_PER_HOST)
}

/// The same, with a connection for each request. A server that stops, or closes an idle connection,
/// cannot lose a request that is being written to it.
///
/// # Errors
/// As [`tls_config`].
pub fn client_without_pool<B>(allows_http: bool) -> Result<Client<B>, rustls::Error>
where
    B: Body + Send,
    B::Data: Send,
{
    build(allows_http, 0)
}

fn build<B>(allows_http: bool, max_idle_per_host: usize) -> Result<Client<B>, rustls::Error>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    // The HTTPS connector decides which schemes are allowed.
    tcp.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls_config(None)?);
    let connector = if allows_http {
        builder.https_or_http()
    } else {
        builder.https_only()
    };
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(max_idle_per_host)
        .http1_max_buf_size(MAX_READ_AHEAD_BYTES)
        .build(connector.enable_http1().wrap_connector(tcp)))
}

/// Parses a base URL from the settings, for example `https://host/v1`.
///
/// # Errors
/// A description of a valid value.
pub fn parse_base_url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| "not a URL".to_owned())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
    match uri.authority() {
        Some(host) if known && !host.as_str().contains('@') => Ok(uri),
        _ => Err("expected http:// or https:// with a host, without a user or a query".to_owned()),
    }
}

/// Creates an `Authorization` value for a key; it is marked as sensitive and not logged.
///
/// # Errors
/// When the key contains characters that a header cannot carry.
pub fn bearer(key: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut bearer = HeaderValue::try_from(format!("Bearer {key}"))?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// Removes a key, and parts of it, from what a service returned, so that it may be logged and shown:
/// services repeat a key that they reject, some of them only its beginning.
#[must_use]
pub fn redact(text: &str, key: &str) -> String {
    let key = key.trim();
    let shortest = MIN_KEY_PART_BYTES.min(key.len()).max(1);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let starts = key.char_indices().filter_map(|(at, _)| key.get(at..));
        let part = starts.map(|start| common_bytes(start, rest)).max();
        let part = part.filter(|bytes| *bytes >= shortest);
        if part.is_some() {
            clean.push_str("(the key)");
        } else {
            clean.push(next);
        }
        let (_, left) = rest.split_at(part.unwrap_or(next.len_utf8()));
        rest = left;
    }
    clean
}

/// The length of the common beginning of two texts.
fn common_bytes(one: &str, other: &str) -> usize {
    let both = one.chars().zip(other.chars());
    let common = both.take_while(|(one, other)| one == other);
    common.map(|(one, _)| one.len_utf8()).sum()
}

/// Sends a request with the current trace context and waits for the head of the response. Only for
/// servers set by the operator: webhooks of organisations must not receive trace contexts.
///
/// # Errors
/// When there is no response. It has no timeout of its own.
pub async fn send(
    client: &Client<Full<Bytes>>,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, legacy::Error> {
    if let Some(trace) = TraceContext::current() {
        trace.write(request.headers_mut());
    }
    client.request(request).await
}

/// Asks a URL whether what it belongs to is ready.
#[derive(Debug)]
pub struct Probe {
    client: Client<Empty<Bytes>>,
    url: Uri,
}

impl Probe {
    /// Creates a probe of an HTTP or HTTPS URL.
    ///
    /// # Errors
    /// As [`tls_config`].
    pub fn new(url: Uri) -> Result<Self, rustls::Error> {
        let client = client(true)?;
        Ok(Self { client, url })
    }

    /// Whether a GET is answered with a success within `timeout`. Each opens a connection, because a
    /// balancer decides then who answers.
    pub async fn is_ok(&self, timeout: Duration) -> bool {
        let mut get = Request::new(Empty::new());
        *get.uri_mut() = self.url.clone();
        let close = HeaderValue::from_static("close");
        get.headers_mut().insert(header::CONNECTION, close);
        let answered = tokio::time::timeout(timeout, self.client.request(get)).await;
        matches!(answered, Ok(Ok(answer)) if answer.status().is_success())
    }
}

/// Like [`send`], and reads a body of at most `max_bytes`.
///
/// # Errors
/// [`FetchError`] when there is no complete response. It has no timeout of its own.
pub async fn fetch(
    client: &Client<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    max_bytes: usize,
) -> Result<Response<Bytes>, FetchError> {
    let response = send(client, request).await;
    let (head, body) = response.map_err(|error| with_causes(&error))?.into_parts();
    let body = Limited::new(body, max_bytes).collect().await;
    let body = body.map_err(|error| with_causes(&*error))?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// Formats an error and its causes on one line.
#[must_use]
pub fn with_causes(error: &dyn Error) -> FetchError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    FetchError(text)
}

#[cfg(test)]
mod tests;
