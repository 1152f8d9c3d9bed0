//! JSON responses, serialised by one code path for all resources.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use switchboard_runtime::{budget::Permit, problem::Problem, response_budget::hold_body};
use switchboard_store::Owner;

use crate::Control;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A resource as JSON. The type is the same for every resource, so that handlers, routes and the
/// conversion to a response are compiled once and not for each of them.
pub(crate) struct JsonResponse {
    status: StatusCode,
    etag: Option<String>,
    body: Vec<u8>,
    /// Held until the client has read the response.
    permit: Option<Permit>,
}

impl JsonResponse {
    /// 200: a page of a list, whose bytes are charged to its reader.
    ///
    /// # Errors
    /// 429 when the reader's clients have to read other pages first.
    pub(crate) fn page(
        control: &Control,
        reader: impl Into<Owner>,
        view: &impl Serialize,
    ) -> Result<Self, Problem> {
        let mut page = Self::ok(view);
        let reader: Owner = reader.into();
        page.permit = control.responses.reserve(reader.into(), page.body.len())?;
        Ok(page)
    }

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
            permit: None,
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
        let body = hold_body(self.body.into(), self.permit);
        let mut response = (self.status, body).into_response();
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
