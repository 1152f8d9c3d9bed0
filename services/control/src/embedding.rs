//! Has texts embedded in the background: takes those that wait, asks the endpoint, stores what it says. And what
//! questions mean.
//! Never: somebody who writes a memory and waits for that, or a process that stops because the endpoint does.

use std::time::Duration;

use switchboard_embeddings::{EmbedError, Endpoint};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{EmbeddingError, EmbeddingModel, Meaning, Store, StoreError, TextToEmbed};

use crate::{Control, metrics::EmbeddingMetrics};

/// How many texts are sent in one request.
const BATCH: usize = 32;
/// How long the endpoint may take for them.
const WITHIN: Duration = Duration::from_secs(30);
/// How long texts belong to a worker that gives no sign of life: longer than it waits for the endpoint.
const LEASE: Duration = Duration::from_secs(60);
/// How often a worker without work looks for some.
const LOOK: Duration = Duration::from_secs(1);
/// How long a worker rests when the endpoint or the database is not fit for this.
const REST: Duration = Duration::from_secs(5);
/// How often a text is tried that the endpoint cannot embed while it embeds others.
const MOST_FAILURES: i32 = 3;
/// What the endpoint is asked to see how many numbers the model has, and whether it answers.
const SAMPLE: &str = "a";

/// Embeds until it is told to stop.
pub(crate) struct Worker {
    store: Store,
    endpoint: Endpoint,
    metrics: EmbeddingMetrics,
    /// The model that was set last, once this process has set its own.
    model: Option<EmbeddingModel>,
    /// Whether this process has set its model: whoever was started last decides.
    has_decided: bool,
    /// The cause of the last failure; a log line is written when it changes.
    trouble: Option<String>,
}

/// Why a step did not go on.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Endpoint(#[from] EmbedError),
    #[error("the store failed")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Place(#[from] EmbeddingError),
    #[error("another process, started later, embeds by the model {0}")]
    Outvoted(String),
}

impl Worker {
    pub(crate) const fn new(store: Store, endpoint: Endpoint, metrics: EmbeddingMetrics) -> Self {
        Self {
            store,
            endpoint,
            metrics,
            model: None,
            has_decided: false,
            trouble: None,
        }
    }

    /// Ends as soon as draining begins; what was being embedded waits for another worker.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        loop {
            let stepped = tokio::select! {
                stepped = self.step() => stepped,
                () = shutdown.draining() => return,
            };
            let pause = match stepped {
                Ok(texts) => {
                    backoff.reset();
                    if texts == 0 { LOOK } else { Duration::ZERO }
                }
                Err(stop) => {
                    let rest = rest(&stop);
                    self.note(Some(report(&stop)));
                    if rest.is_zero() && !backoff.pause(&shutdown).await {
                        return;
                    }
                    rest
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shutdown.draining() => return,
            }
        }
    }

    /// Embeds one batch; says how many texts were done.
    async fn step(&mut self) -> Result<usize, Stop> {
        let model = match self.model.take() {
            Some(model) => model,
            None => self.decide().await?,
        };
        let claimed = self.store.claim_texts_to_embed(&model, BATCH, LEASE);
        let Some(texts) = claimed.await? else {
            // Looked up anew with the next step.
            return Ok(0);
        };
        self.model = Some(model.clone());
        if !texts.is_empty() {
            self.embed(&model, &texts).await?;
        }
        self.note(None);
        Ok(texts.len())
    }

    /// The model to go by: this process's own from its start on, until another one is started with another.
    async fn decide(&mut self) -> Result<EmbeddingModel, Stop> {
        let dimensions = match self.store.embedding_model().await? {
            Some(set) if set.model == self.endpoint.model() => set.dimensions,
            Some(other) if self.has_decided => return Err(Stop::Outvoted(other.model)),
            _ => self.ask(&[SAMPLE]).await?.first().map_or(0, Vec::len),
        };
        self.set(dimensions).await
    }

    async fn set(&mut self, dimensions: usize) -> Result<EmbeddingModel, Stop> {
        let name = self.endpoint.model();
        let model = self.store.set_embedding_model(name, dimensions).await?;
        tracing::info!(model = name, dimensions, "texts are embedded by this model");
        self.has_decided = true;
        Ok(model)
    }

    async fn embed(&mut self, model: &EmbeddingModel, texts: &[TextToEmbed]) -> Result<(), Stop> {
        let asked: Vec<_> = texts.iter().map(|text| text.text.as_str()).collect();
        match self.ask(&asked).await {
            Ok(vectors) => self.keep(model, texts, &vectors).await,
            // Is it the texts, or would it answer any like that?
            Err(error @ (EmbedError::Refused(_) | EmbedError::Unusable(_))) => {
                match self.ask(&[SAMPLE]).await {
                    Ok(_) => self.sift(model, texts, error).await,
                    Err(error) => self.put_back(texts, error).await,
                }
            }
            Err(error) => self.put_back(texts, error).await,
        }
    }

    /// One of them is at fault, and the others are not.
    async fn sift(
        &mut self,
        model: &EmbeddingModel,
        texts: &[TextToEmbed],
        error: EmbedError,
    ) -> Result<(), Stop> {
        let [text] = texts else {
            return self.embed_singly(model, texts).await;
        };
        // A refusal is the endpoint's word; anything else may have been a mishap.
        let is_refused = matches!(error, EmbedError::Refused(_));
        if is_refused || text.failures + 1 >= MOST_FAILURES {
            self.give_up(text, &error).await
        } else {
            Ok(self.store.postpone_text_to_embed(text, LEASE).await?)
        }
    }

    async fn put_back(&self, texts: &[TextToEmbed], error: EmbedError) -> Result<(), Stop> {
        let after = match error {
            EmbedError::Busy { after } => after,
            EmbedError::Unreachable(_) | EmbedError::Refused(_) | EmbedError::Unusable(_) => {
                Duration::ZERO
            }
        };
        self.store.release_texts_to_embed(texts, after).await?;
        Err(error.into())
    }

    async fn embed_singly(
        &mut self,
        model: &EmbeddingModel,
        texts: &[TextToEmbed],
    ) -> Result<(), Stop> {
        let mut left = texts;
        while let Some((text, others)) = left.split_first() {
            if let Err(stop) = Box::pin(self.embed(model, std::slice::from_ref(text))).await {
                self.store
                    .release_texts_to_embed(others, Duration::ZERO)
                    .await?;
                return Err(stop);
            }
            left = others;
        }
        Ok(())
    }

    async fn keep(
        &mut self,
        model: &EmbeddingModel,
        texts: &[TextToEmbed],
        vectors: &[Vec<f32>],
    ) -> Result<(), Stop> {
        let dimensions = vectors.first().map_or(0, Vec::len);
        if dimensions != model.dimensions {
            let name = &model.model;
            tracing::warn!(
                model = name,
                before = model.dimensions,
                dimensions,
                "the model has changed"
            );
            // They wait again, with all others.
            self.model = Some(self.set(dimensions).await?);
            return Ok(());
        }
        let stored = self.store.store_embeddings(texts, vectors).await?;
        self.metrics.texts_embedded.inc_by(stored);
        Ok(())
    }

    async fn give_up(&self, text: &TextToEmbed, error: &EmbedError) -> Result<(), Stop> {
        self.store.forget_text_to_embed(text).await?;
        self.metrics.texts_refused.inc();
        let reason = error.to_string();
        tracing::warn!(reason, "a text is found by its words alone");
        Ok(())
    }

    async fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.endpoint.embed(texts, WITHIN).await
    }

    /// Logs when something changed, not at each attempt.
    fn note(&mut self, trouble: Option<String>) {
        match &trouble {
            Some(cause) if trouble != self.trouble => {
                tracing::warn!(cause, "texts wait to be embedded; trying again");
            }
            None if self.trouble.is_some() => tracing::info!("texts are embedded again"),
            _ => {}
        }
        self.trouble = trouble;
    }
}

/// How long to leave alone what did not go on; zero is for a backoff that grows.
const fn rest(stop: &Stop) -> Duration {
    match stop {
        Stop::Endpoint(EmbedError::Busy { after }) => *after,
        Stop::Endpoint(EmbedError::Unreachable(_)) | Stop::Store(_) => Duration::ZERO,
        Stop::Endpoint(_) | Stop::Place(_) | Stop::Outvoted(_) => REST,
    }
}

fn report(stop: &Stop) -> String {
    match stop {
        Stop::Store(error) | Stop::Place(EmbeddingError::Store(error)) => error.report(),
        other => other.to_string(),
    }
}

impl Control {
    /// What a question means, if the model that says so is the one that texts are embedded by.
    pub(crate) async fn meaning(&self, question: &str) -> Option<Meaning> {
        let questions = self.questions.as_ref()?;
        let set = self.store.embedding_model().await.ok()??;
        if set.model != questions.model() {
            return None;
        }
        let vector = questions.vector(question).await?;
        Some(Meaning {
            model: set.model,
            vector,
        })
    }
}
