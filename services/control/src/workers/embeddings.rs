//! Embeds texts in the background: claims pending texts, sends them to the endpoint,
//! and stores the vectors.
//!
//! Writing a memory does not wait for its embedding, and a failing endpoint stops no process.

use std::time::Duration;

use switchboard_embeddings::{EmbedError, Endpoint};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{EmbeddingError, EmbeddingModel, JobTurn, Store, StoreError, TextToEmbed};

use crate::metrics::EmbeddingMetrics;

/// Number of texts in a request.
const BATCH_SIZE: usize = 32;
/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long claimed texts belong to a worker: longer than a request may take.
const TEXT_LEASE: Duration = Duration::from_secs(60);
/// How often an idle worker looks for texts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a worker pauses when the endpoint or the database is not suitable.
const UNSUITABLE_BACKOFF: Duration = Duration::from_secs(5);
/// Attempts for a text that the endpoint fails to embed while it embeds others.
const MAX_FAILURES: i32 = 3;
/// The text that probes the endpoint and the dimensions of its model.
const PROBE_TEXT: &str = "a";

/// Embeds texts until the process drains.
pub(super) struct Worker {
    store: Store,
    endpoint: Endpoint,
    metrics: EmbeddingMetrics,
    /// The current model, after this process has set its own.
    model: Option<EmbeddingModel>,
    turn: JobTurn,
    /// Whether this process has set its model. The process that started last sets the model.
    has_set_model: bool,
    /// The cause of the last failure. A log line is written when it changes.
    failure: Option<String>,
}

/// Why a batch failed.
#[derive(Debug, thiserror::Error)]
enum BatchError {
    #[error(transparent)]
    Endpoint(#[from] EmbedError),
    #[error("the store failed")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embedding(#[from] EmbeddingError),
    #[error("a process that started later embeds texts with the model {0}")]
    Superseded(String),
}

impl Worker {
    pub(super) fn new(store: Store, endpoint: Endpoint, metrics: EmbeddingMetrics) -> Self {
        Self {
            store,
            endpoint,
            metrics,
            model: None,
            turn: JobTurn::default(),
            has_set_model: false,
            failure: None,
        }
    }

    /// Ends as soon as draining begins. Another worker embeds the claimed texts after their lease.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        loop {
            let result = tokio::select! {
                result = self.embed_batch() => result,
                () = shutdown.draining() => return,
            };
            let pause = match result {
                Ok(texts) => {
                    backoff.reset();
                    if texts == 0 {
                        POLL_INTERVAL
                    } else {
                        Duration::ZERO
                    }
                }
                Err(error) => {
                    let pause = pause_after(&error);
                    self.report(Some(cause(&error)));
                    if pause.is_zero() && !backoff.pause(&shutdown).await {
                        return;
                    }
                    pause
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shutdown.draining() => return,
            }
        }
    }

    /// Embeds one batch. Returns the number of texts.
    async fn embed_batch(&mut self) -> Result<usize, BatchError> {
        let model = match self.model.take() {
            Some(model) => model,
            None => self.select_model().await?,
        };
        let claimed =
            self.store
                .claim_texts_to_embed(&model, BATCH_SIZE, TEXT_LEASE, &mut self.turn);
        let Some(texts) = claimed.await? else {
            // The model has changed; the next batch loads it.
            return Ok(0);
        };
        self.model = Some(model.clone());
        if !texts.is_empty() {
            self.embed(&model, &texts).await?;
        }
        self.report(None);
        Ok(texts.len())
    }

    /// Sets the model of this process, unless a process that started later has set another one.
    async fn select_model(&mut self) -> Result<EmbeddingModel, BatchError> {
        let dimensions = match self.store.embedding_model().await? {
            Some(current) if current.model == self.endpoint.model() => current.dimensions,
            Some(other) if self.has_set_model => return Err(BatchError::Superseded(other.model)),
            _ => self
                .request(&[PROBE_TEXT])
                .await?
                .first()
                .map_or(0, Vec::len),
        };
        self.set_model(dimensions).await
    }

    async fn set_model(&mut self, dimensions: usize) -> Result<EmbeddingModel, BatchError> {
        let name = self.endpoint.model();
        let model = self.store.set_embedding_model(name, dimensions).await?;
        tracing::info!(
            model = name,
            dimensions,
            "texts are embedded with this model"
        );
        self.has_set_model = true;
        Ok(model)
    }

    async fn embed(
        &mut self,
        model: &EmbeddingModel,
        texts: &[TextToEmbed],
    ) -> Result<(), BatchError> {
        let contents: Vec<_> = texts.iter().map(|text| text.text.as_str()).collect();
        match self.request(&contents).await {
            Ok(vectors) => self.store_vectors(model, texts, &vectors).await,
            // The probe shows whether the texts or the endpoint is at fault.
            Err(
                error
                @ (EmbedError::Rejected(_) | EmbedError::Invalid(_) | EmbedError::TimedOut(_)),
            ) => match self.request(&[PROBE_TEXT]).await {
                Ok(_) => self.handle_rejected(model, texts, error).await,
                Err(error) => self.release(texts, error).await,
            },
            Err(error) => self.release(texts, error).await,
        }
    }

    /// The endpoint works, so one of these texts is at fault.
    async fn handle_rejected(
        &mut self,
        model: &EmbeddingModel,
        texts: &[TextToEmbed],
        error: EmbedError,
    ) -> Result<(), BatchError> {
        let [text] = texts else {
            return self.embed_singly(model, texts).await;
        };
        // A rejection is final; any other failure may be temporary.
        let is_rejected = matches!(error, EmbedError::Rejected(_));
        if is_rejected || text.failures + 1 >= MAX_FAILURES {
            self.skip(text, &error).await
        } else {
            Ok(self.store.postpone_text_to_embed(text, TEXT_LEASE).await?)
        }
    }

    async fn release(&self, texts: &[TextToEmbed], error: EmbedError) -> Result<(), BatchError> {
        let after = match error {
            EmbedError::Busy { after } => after,
            EmbedError::Unreachable(_)
            | EmbedError::TimedOut(_)
            | EmbedError::Rejected(_)
            | EmbedError::Invalid(_) => Duration::ZERO,
        };
        self.store.release_texts_to_embed(texts, after).await?;
        Err(error.into())
    }

    async fn embed_singly(
        &mut self,
        model: &EmbeddingModel,
        texts: &[TextToEmbed],
    ) -> Result<(), BatchError> {
        let mut remaining = texts;
        while let Some((text, others)) = remaining.split_first() {
            if let Err(error) = Box::pin(self.embed(model, std::slice::from_ref(text))).await {
                self.store
                    .release_texts_to_embed(others, Duration::ZERO)
                    .await?;
                return Err(error);
            }
            remaining = others;
        }
        Ok(())
    }

    async fn store_vectors(
        &mut self,
        model: &EmbeddingModel,
        texts: &[TextToEmbed],
        vectors: &[Vec<f32>],
    ) -> Result<(), BatchError> {
        let dimensions = vectors.first().map_or(0, Vec::len);
        if dimensions != model.dimensions {
            let name = &model.model;
            tracing::warn!(
                model = name,
                before = model.dimensions,
                dimensions,
                "the embedding model has changed its dimensions"
            );
            // These texts are pending again, like all others.
            self.model = Some(self.set_model(dimensions).await?);
            return Ok(());
        }
        let stored = self.store.store_embeddings(texts, vectors).await?;
        self.metrics.texts_embedded.inc_by(stored);
        Ok(())
    }

    async fn skip(&self, text: &TextToEmbed, error: &EmbedError) -> Result<(), BatchError> {
        self.store.remove_text_to_embed(text).await?;
        self.metrics.texts_refused.inc();
        let reason = error.to_string();
        tracing::warn!(
            reason,
            "text cannot be embedded; searches find it by its words only"
        );
        Ok(())
    }

    async fn request(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.endpoint.embed(texts, REQUEST_TIMEOUT).await
    }

    /// Logs changes of the failure, not every attempt.
    fn report(&mut self, failure: Option<String>) {
        match &failure {
            Some(cause) if failure != self.failure => {
                tracing::warn!(cause, "texts cannot be embedded; retrying");
            }
            None if self.failure.is_some() => tracing::info!("texts are embedded again"),
            _ => {}
        }
        self.failure = failure;
    }
}

/// The pause after an error. Zero stands for the growing backoff.
const fn pause_after(error: &BatchError) -> Duration {
    match error {
        BatchError::Endpoint(EmbedError::Busy { after }) => *after,
        BatchError::Endpoint(EmbedError::Unreachable(_)) | BatchError::Store(_) => Duration::ZERO,
        BatchError::Endpoint(_) | BatchError::Embedding(_) | BatchError::Superseded(_) => {
            UNSUITABLE_BACKOFF
        }
    }
}

fn cause(error: &BatchError) -> String {
    match error {
        BatchError::Store(error) | BatchError::Embedding(EmbeddingError::Store(error)) => {
            error.report()
        }
        other => other.to_string(),
    }
}
