//! The bytes of pictures in responses, limited by a budget.
//!
//! Invariant: the bytes of a picture are reserved before it is read, and until its response is
//! sent.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures_util::stream;
use http::{header, request::Parts};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use rmcp::{ErrorData, RoleServer, service::RequestContext};
use switchboard_runtime::problem::{Problem, internal};
use switchboard_store::ObjectKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Gateway;

/// Stored size of the pictures in all responses of a node. Protects memory: encoded as Base64 and
/// JSON, a picture takes a multiple until its client has read it.
const BUDGET_BYTES: u32 = 48 * 1024 * 1024;
/// How long a response waits until others are sent.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the chunks of a response. The reservation is released after the last one.
const CHUNK_BYTES: usize = 64 * 1024;

/// The budget of one node.
pub(in crate::mcp) struct ByteBudget {
    permits: Arc<Semaphore>,
}

/// The bytes reserved for the response to one request.
#[derive(Debug, Clone, Default)]
pub(in crate::mcp) struct Reservation(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl ByteBudget {
    pub(in crate::mcp) fn new() -> Self {
        let bytes = usize::try_from(BUDGET_BYTES).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(bytes)),
        }
    }

    /// Reserves bytes for the response to a request, waiting if necessary.
    pub(in crate::mcp) async fn reserve(
        &self,
        bytes: u64,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if bytes == 0 {
            return Ok(());
        }
        let bytes = u32::try_from(bytes).unwrap_or(BUDGET_BYTES);
        let acquire = Arc::clone(&self.permits).acquire_many_owned(bytes.min(BUDGET_BYTES));
        let Ok(Ok(permit)) = tokio::time::timeout(RESERVE_TIMEOUT, acquire).await else {
            let detail = "too many pictures are being read at the moment; retry later";
            return Err(ErrorData::internal_error(detail, None));
        };
        let parts = context.extensions.get::<Parts>();
        let reservation = parts.and_then(|parts| parts.extensions.get::<Reservation>());
        reservation
            .ok_or_else(|| ErrorData::internal_error("the request was not admitted", None))?
            .0
            .lock()
            .push(permit);
        Ok(())
    }
}

impl Reservation {
    /// Releases the reservation when the response is sent or its client has disconnected.
    pub(in crate::mcp) async fn hold_until_sent(
        &self,
        response: Response,
    ) -> Result<Response, Problem> {
        let permits = std::mem::take(&mut *self.0.lock());
        if permits.is_empty() {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        let whole = body.collect().await.map_err(|_| internal())?.to_bytes();
        head.headers
            .insert(header::CONTENT_LENGTH, whole.len().into());
        let chunks = stream::unfold((whole, permits), |(mut left, permits)| async move {
            let chunk = left.split_to(left.len().min(CHUNK_BYTES));
            let chunk = (!chunk.is_empty()).then_some(Ok::<_, std::convert::Infallible>(chunk));
            chunk.map(|chunk| (chunk, (left, permits)))
        });
        Ok(Response::from_parts(head, Body::from_stream(chunks)))
    }
}

/// The bytes of a picture as Base64. They must have been reserved.
pub(in crate::mcp) async fn read_base64(
    gateway: &Gateway,
    key: &ObjectKey,
) -> Result<String, ErrorData> {
    Ok(BASE64_STANDARD.encode(read(gateway, key).await?))
}

async fn read(gateway: &Gateway, key: &ObjectKey) -> Result<Bytes, ErrorData> {
    let Some(objects) = gateway.store.objects() else {
        let detail = "this gateway has no object store; its operator must set --objects or SWITCHBOARD_OBJECTS as for the control plane";
        return Err(ErrorData::internal_error(detail, None));
    };
    objects.get(key).await.map_err(|error| {
        tracing::error!(
            %error,
            cause = std::error::Error::source(&error).map(tracing::field::display),
            object.key = %key,
            "a picture could not be read"
        );
        ErrorData::internal_error("the picture cannot be read at the moment", None)
    })
}
