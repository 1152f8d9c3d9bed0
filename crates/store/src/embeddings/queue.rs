//! The texts that wait for a model, and the numbers that come back.
//! Never: a text with two workers at once for longer than a lease, or one that waits twice.

use std::time::Duration;

use super::{EmbeddingModel, written};
use crate::{
    Store, StoreError,
    database::{bounded, interval},
};

/// The longest beginning of a text that a model is asked about, in characters: models take some thousand tokens.
const LONGEST_TEXT: i32 = 6_000;

/// A text that somebody embeds until its lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextToEmbed {
    /// Its place in the queue.
    pub id: i64,
    /// What it says, or how that begins.
    pub text: String,
    /// How often the model could not embed it while it embedded others.
    pub failures: i32,
}

impl Store {
    /// Takes texts that wait for this model and that nobody has; nothing when another model was set since.
    ///
    /// # Errors
    /// As every query.
    pub async fn claim_texts_to_embed(
        &self,
        model: &EmbeddingModel,
        most: usize,
        lease: Duration,
    ) -> Result<Option<Vec<TextToEmbed>>, StoreError> {
        if self.embedding_model().await?.as_ref() != Some(model) {
            return Ok(None);
        }
        let query = sqlx::query_as!(
            TextToEmbed,
            r#"WITH due AS (
                   SELECT id FROM embedding_queue WHERE due_at <= now()
                   ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED),
               claimed AS (
                   UPDATE embedding_queue q SET due_at = now() + $2::interval FROM due
                   WHERE q.id = due.id RETURNING q.id, q.memory_id, q.book_id, q.chunk, q.failures)
               SELECT claimed.id AS "id!", left(coalesce(m.text, concat_ws(E'\n', c.heading, c.text)), $3) AS "text!",
                      claimed.failures AS "failures!"
               FROM claimed
               LEFT JOIN memories m ON m.id = claimed.memory_id
               LEFT JOIN skills_book_chunks c ON c.book_id = claimed.book_id AND c.number = claimed.chunk
               ORDER BY claimed.id"#,
            i64::try_from(most).unwrap_or(i64::MAX),
            interval(lease),
            LONGEST_TEXT
        );
        Ok(Some(
            bounded(async { query.fetch_all(&mut *self.throughout().await?).await }).await?,
        ))
    }

    /// Gives texts back, for anybody to take after a while.
    ///
    /// # Errors
    /// As every query.
    pub async fn release_texts_to_embed(
        &self,
        texts: &[TextToEmbed],
        after: Duration,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE embedding_queue SET due_at = now() + $2::interval WHERE id = ANY ($1)",
            &ids(texts),
            interval(after)
        );
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }

    /// Gives a text back that the model could not embed while it embedded others, for anybody to take after a while.
    ///
    /// # Errors
    /// As every query.
    pub async fn postpone_text_to_embed(
        &self,
        text: &TextToEmbed,
        after: Duration,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE embedding_queue SET failures = failures + 1, due_at = now() + $2::interval WHERE id = $1",
            text.id,
            interval(after)
        );
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }

    /// Gives a text up that the model does not take: it is found by its words.
    ///
    /// # Errors
    /// As every query.
    pub async fn forget_text_to_embed(&self, text: &TextToEmbed) -> Result<(), StoreError> {
        let query = sqlx::query!("DELETE FROM embedding_queue WHERE id = $1", text.id);
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }

    /// Stores what the model says of texts, and takes those out of the queue. Texts that are not there any more, and those
    /// that another one has stored meanwhile, are passed over.
    ///
    /// # Errors
    /// As every query; also when the numbers are not as many as the model's.
    pub async fn store_embeddings(
        &self,
        texts: &[TextToEmbed],
        vectors: &[Vec<f32>],
    ) -> Result<u64, StoreError> {
        let vectors: Vec<_> = vectors.iter().map(|vector| written(vector)).collect();
        // No checked query can know a table whose columns depend on the model.
        let query = sqlx::query(
            "WITH answers AS (SELECT * FROM UNNEST($1::bigint[], $2::text[]) AS answer (id, embedding)),
                  done AS (DELETE FROM embedding_queue q USING answers a WHERE q.id = a.id
                           RETURNING q.memory_id, q.book_id, q.chunk, a.embedding)
             INSERT INTO embeddings (holder_id, memory_id, book_id, chunk, embedding)
             SELECT coalesce(m.npc_id, m.template_id, done.book_id), done.memory_id, done.book_id, done.chunk,
                    done.embedding::halfvec
             FROM done LEFT JOIN memories m ON m.id = done.memory_id
             WHERE done.book_id IS NOT NULL OR m.id IS NOT NULL
             ON CONFLICT DO NOTHING",
        )
        .bind(ids(texts))
        .bind(vectors);
        let stored = bounded(async { query.execute(&mut *self.throughout().await?).await }).await?;
        Ok(stored.rows_affected())
    }
}

fn ids(texts: &[TextToEmbed]) -> Vec<i64> {
    texts.iter().map(|text| text.id).collect()
}
