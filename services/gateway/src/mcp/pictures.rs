//! Pictures' bytes on their way into answers, and how many of them at a time.
//! Never: a picture read before there is room for it, or its room given away while its answer is still being sent.

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

/// Pictures in all answers of a node together, as they are stored. Protects memory: written as Base64 and JSON, each
/// takes some times as much until its client has read it.
const UNDER_WAY_BYTES: u32 = 48 * 1024 * 1024;
/// How long an answer waits for others to be sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of an answer is handed over at a time, so that its end is not said to be sent with its beginning.
const SENT_AT_ONCE: usize = 64 * 1024;

/// The room for pictures in one node.
pub(super) struct Pictures {
    room: Arc<Semaphore>,
}

/// The room that one request's answer takes, until it is sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Share(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl Pictures {
    pub(super) fn new() -> Self {
        let room = usize::try_from(UNDER_WAY_BYTES).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            room: Arc::new(Semaphore::new(room)),
        }
    }

    /// Waits for room for so many bytes in the answer to this request.
    pub(super) async fn reserve(
        &self,
        bytes: u64,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if bytes == 0 {
            return Ok(());
        }
        let bytes = u32::try_from(bytes).unwrap_or(UNDER_WAY_BYTES);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes.min(UNDER_WAY_BYTES));
        let Ok(Ok(permit)) = tokio::time::timeout(PATIENCE, room).await else {
            let detail = "too many pictures are being read at the moment; try again in a moment";
            return Err(ErrorData::internal_error(detail, None));
        };
        let parts = context.extensions.get::<Parts>();
        let share = parts.and_then(|parts| parts.extensions.get::<Share>());
        share
            .ok_or_else(|| ErrorData::internal_error("the request came in past the gate", None))?
            .0
            .lock()
            .push(permit);
        Ok(())
    }
}

impl Share {
    /// The same response, which gives the room back when it is sent or its client has gone.
    pub(super) async fn until_sent(&self, response: Response) -> Result<Response, Problem> {
        let permits = std::mem::take(&mut *self.0.lock());
        if permits.is_empty() {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        let whole = body.collect().await.map_err(|_| internal())?.to_bytes();
        head.headers
            .insert(header::CONTENT_LENGTH, whole.len().into());
        let pieces = stream::unfold((whole, permits), |(mut left, permits)| async move {
            let piece = left.split_to(left.len().min(SENT_AT_ONCE));
            let piece = (!piece.is_empty()).then_some(Ok::<_, std::convert::Infallible>(piece));
            piece.map(|piece| (piece, (left, permits)))
        });
        Ok(Response::from_parts(head, Body::from_stream(pieces)))
    }
}

/// A picture's bytes as Base64. There has to be room for them.
pub(super) async fn encoded(gateway: &Gateway, key: &ObjectKey) -> Result<String, ErrorData> {
    Ok(BASE64_STANDARD.encode(object(gateway, key).await?))
}

async fn object(gateway: &Gateway, key: &ObjectKey) -> Result<Bytes, ErrorData> {
    let Some(objects) = gateway.store.objects() else {
        let detail = "this gateway has no object store: its operator sets --objects or SWITCHBOARD_OBJECTS, the same as for the control plane";
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
