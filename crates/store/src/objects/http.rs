//! The HTTP client through which buckets are asked: over TLS by the workspace's one provider, within limits.
//! Never: a redirect followed, or plain HTTP where it is not allowed.

use std::{pin::Pin, sync::Arc, time::Duration};

use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as TcpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
        HttpResponse, HttpResponseBody, HttpService,
    },
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::time::timeout;

/// How long it may take to be connected.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long one attempt may take until its answer begins.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(8);
/// How long an unused connection is kept; servers close them after a while.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// How many unused connections are kept.
const IDLE_CONNECTIONS: usize = 16;

/// Makes the client, here and not in the library, because TLS is ours to choose.
#[derive(Debug)]
pub(super) struct Connector;

#[derive(Debug)]
struct Service {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = is_true(options.get_config_value(&ClientConfigKey::AllowHttp));
        let mut tcp = TcpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        tcp.set_nodelay(true);
        // Which schemes are taken is the next one's decision.
        tcp.enforce_http(false);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls()?);
        let connector = if allows_http {
            builder.https_or_http()
        } else {
            builder.https_only()
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_LIMIT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector.enable_http1().wrap_connector(tcp));
        Ok(HttpClient::new(Service { client }))
    }
}

impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = timeout(ATTEMPT_LIMIT, self.client.request(request));
            let answer = answer
                .await
                .map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?
                .map_err(|error| {
                    let kind = if error.is_connect() {
                        HttpErrorKind::Connect
                    } else {
                        HttpErrorKind::Interrupted
                    };
                    HttpError::new(kind, error)
                })?;
            let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            Ok(answer.map(|body| HttpResponseBody::new(body.map_err(broken))))
        })
    }
}

/// As variables say yes.
pub(super) fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

/// Trusts whom the system trusts.
fn tls() -> object_store::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // Without any, a bucket over plain HTTP still can be used; over TLS, nobody is trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| object_store::Error::Generic {
            store: "S3",
            source: Box::new(error),
        })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
