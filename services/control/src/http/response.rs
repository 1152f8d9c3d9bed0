//! JSON responses, serialised by one code path for all resources.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A resource as JSON. The type is the same for every resource, so that handlers, routes and the
/// conversion to a response are compiled once and not for each of them.
pub(crate) struct JsonResponse {
    status: StatusCode,
    etag: Option<String>,
    body: Vec<u8>,
}

impl JsonResponse {
    /// 200.
    pub(crate) fn ok(view: &impl Serialize) -> Self {
        Self::new(StatusCode::OK, view)
    }

    /// 202: the work continues in the background.
    pub(crate) fn accepted(view: &impl Serialize) -> Self {
        Self::new(StatusCode::ACCEPTED, view)
    }

    fn new(status: StatusCode, view: &impl Serialize) -> Self {
        Self {
            status,
            etag: None,
            body: to_bytes(view),
        }
    }

    /// With this entity tag.
    pub(crate) fn etag(mut self, etag: String) -> Self {
        self.etag = Some(etag);
        self
    }
}

impl IntoResponse for JsonResponse {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, JSON);
        if let Some(Ok(etag)) = self.etag.map(HeaderValue::try_from) {
            headers.insert(header::ETAG, etag);
        }
        response
    }
}

/// A view as JSON. Views have no maps with other keys than strings, so this does not fail.
pub(crate) fn to_bytes(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).unwrap_or_default()
}
