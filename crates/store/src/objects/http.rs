//! The HTTP client through which buckets are asked: over TLS by the workspace's one provider, within limits.
//! Never: a redirect followed, or plain HTTP where it is not allowed.

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

/// How long one attempt may take until its answer begins.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(8);

/// Has the client made by us and not by the library, because TLS is ours to choose.
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
