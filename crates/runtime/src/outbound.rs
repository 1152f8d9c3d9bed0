//! What this process asks of others over HTTP: one way to speak TLS, and clients whose connections are kept.
//! Never: a redirect followed, a request sent a second time, or an answer read without a bound.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response, Uri,
    body::{Body, Incoming},
    header::{HeaderValue, InvalidHeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};

use crate::trace::TraceContext;

/// How long it may take to be connected.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long an unused connection is kept; servers close them after a while.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// How many unused connections are kept to one server.
const MOST_IDLE: usize = 16;

/// A client over TLS. Clones share their connections.
pub type Client<B> = legacy::Client<HttpsConnector<HttpConnector>, B>;

/// No answer came, or none that could be read; what was the matter, with all causes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AskError(String);

/// Speaks TLS, and trusts these authorities or else those that the system trusts. Without any, nobody is trusted.
///
/// # Errors
/// When TLS cannot be spoken here at all.
pub fn tls(
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> Result<ClientConfig, rustls::Error> {
    let trusted = authorities.unwrap_or_else(|| rustls_native_certs::load_native_certs().certs);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// A client that trusts whom the system trusts, over plain HTTP as well where that is allowed.
///
/// # Errors
/// As [`tls`].
pub fn client<B>(allows_http: bool) -> Result<Client<B>, rustls::Error>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    tcp.set_nodelay(true);
    // Which schemes are taken is the next one's decision.
    tcp.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls(None)?);
    let connector = if allows_http {
        builder.https_or_http()
    } else {
        builder.https_only()
    };
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_LIMIT)
        .pool_max_idle_per_host(MOST_IDLE)
        .build(connector.enable_http1().wrap_connector(tcp)))
}

/// A place below which there are paths, as an operator sets it: `https://host/v1`.
///
/// # Errors
/// What would be right, when it is none.
pub fn base(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| "it is no URL".to_owned())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
    match uri.authority() {
        Some(host) if known && !host.as_str().contains('@') => Ok(uri),
        _ => Err(
            "it must be http:// or https:// with a host, and without a user or a query".to_owned(),
        ),
    }
}

/// A key as it is sent, and shown in no log.
///
/// # Errors
/// When a header cannot carry it.
pub fn bearer(key: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut bearer = HeaderValue::try_from(format!("Bearer {key}"))?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// Sends a request to whoever an operator set, and waits for the head of its answer. It goes along in the trace that this is
/// part of. Not for strangers, such as webhooks: what is traced here is none of their business.
///
/// # Errors
/// When there is no answer; it waits for ever, unless the caller does not.
pub async fn begin(
    client: &Client<Full<Bytes>>,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, legacy::Error> {
    if let Some(trace) = TraceContext::current() {
        trace.write(request.headers_mut());
    }
    client.request(request).await
}

/// The same, and reads an answer of so many bytes at most.
///
/// # Errors
/// [`AskError`] when there is none; it waits for ever, unless the caller does not.
pub async fn ask(
    client: &Client<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    longest: usize,
) -> Result<Response<Bytes>, AskError> {
    let answer = begin(client, request).await;
    let (head, body) = answer.map_err(|error| chain(&error))?.into_parts();
    let body = Limited::new(body, longest).collect().await;
    let body = body.map_err(|error| chain(&*error))?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// An error and its causes on one line.
fn chain(error: &dyn Error) -> AskError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    AskError(text)
}

#[cfg(test)]
mod tests;
