//! The HTTP client for buckets, with the workspace's TLS configuration.
//! Invariant: redirects are not followed, and plain HTTP is used only if configured.

use std::{pin::Pin, time::Duration};

use http_body_util::BodyExt as _;
use object_store::{
    ClientConfigKey, ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
        HttpResponse, HttpResponseBody, HttpService,
    },
};
use switchboard_runtime::outbound;
use tokio::time::timeout;

/// The timeout of one attempt until its response begins.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(8);

/// Supplies our client to the library, because the workspace configures TLS.
#[derive(Debug)]
pub(super) struct Connector;

#[derive(Debug)]
struct Service {
    client: outbound::Client<HttpRequestBody>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = is_true(options.get_config_value(&ClientConfigKey::AllowHttp));
        let client =
            outbound::client(allows_http).map_err(|error| object_store::Error::Generic {
                store: "S3",
                source: Box::new(error),
            })?;
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
            let response = timeout(ATTEMPT_TIMEOUT, self.client.request(request));
            let response = response
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
            let body_error = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            Ok(response.map(|body| HttpResponseBody::new(body.map_err(body_error))))
        })
    }
}

/// Whether an environment variable is set to yes.
pub(super) fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}
