//! The meaning of questions: for a short while, or not at all.
//! Never: a search that waits twice for an endpoint that is down.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{EmbedError, Endpoint};

/// How long a search waits for the meaning of its question.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long nobody is asked after that was in vain.
const REST: Duration = Duration::from_secs(5);

/// Asks for the meaning of questions. Clones rest together.
#[derive(Debug, Clone)]
pub struct Questions {
    endpoint: Endpoint,
    rests_until: Arc<Mutex<Option<Instant>>>,
}

impl Questions {
    /// Asks this endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            rests_until: Arc::default(),
        }
    }

    /// The name of the model that is asked.
    #[must_use]
    pub fn model(&self) -> &str {
        self.endpoint.model()
    }

    /// What a question means; nothing when the endpoint does not say so within a second, and for five seconds after that.
    pub async fn vector(&self, question: &str) -> Option<Vec<f32>> {
        if self
            .rests_until
            .lock()
            .is_some_and(|until| Instant::now() < until)
        {
            return None;
        }
        let error = match self.endpoint.embed(&[question], PATIENCE).await {
            Ok(vectors) => return vectors.into_iter().next(),
            Err(error) => error,
        };
        let rest = match error {
            // That is said of this question, not of the next.
            EmbedError::Refused(_) => None,
            EmbedError::Busy { after } => Some(after.max(REST)),
            EmbedError::Unreachable(_) | EmbedError::Unusable(_) => Some(REST),
        };
        tracing::warn!(%error, "a question goes by words alone");
        if let Some(rest) = rest {
            *self.rests_until.lock() = Instant::now().checked_add(rest);
        }
        None
    }
}
