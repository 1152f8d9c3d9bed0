//! Embeds search queries. While the endpoint fails, queries are not embedded.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{EmbedError, Endpoint};

/// How long a search waits for the embedding of its query.
const EMBED_TIMEOUT: Duration = Duration::from_secs(1);
/// How long no request is sent after a failure.
const FAILURE_BACKOFF: Duration = Duration::from_secs(5);

/// Embeds search queries. Clones share the backoff.
#[derive(Debug, Clone)]
pub struct QueryEmbedder {
    endpoint: Endpoint,
    backoff_until: Arc<Mutex<Option<Instant>>>,
}

impl QueryEmbedder {
    /// An embedder with this endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            backoff_until: Arc::default(),
        }
    }

    /// The name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        self.endpoint.model()
    }

    /// The embedding of a query; `None` when the endpoint fails or does not respond within a
    /// second, and for at least five seconds after that.
    pub async fn embed(&self, query: &str) -> Option<Vec<f32>> {
        if self
            .backoff_until
            .lock()
            .is_some_and(|until| Instant::now() < until)
        {
            return None;
        }
        let error = match self.endpoint.embed(&[query], EMBED_TIMEOUT).await {
            Ok(vectors) => return vectors.into_iter().next(),
            Err(error) => error,
        };
        let backoff = match error {
            // The next query may be accepted.
            EmbedError::Rejected(_) => None,
            EmbedError::Busy { after } => Some(after.max(FAILURE_BACKOFF)),
            EmbedError::Unreachable(_) | EmbedError::Invalid(_) => Some(FAILURE_BACKOFF),
        };
        tracing::warn!(%error, "cannot embed a query; searching by words only");
        if let Some(backoff) = backoff {
            *self.backoff_until.lock() = Instant::now().checked_add(backoff);
        }
        None
    }
}
