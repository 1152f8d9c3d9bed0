//! The table of numbers, made for one model and made anew for the next.
//! Never: a program that does not start because a server lacks the extension.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{EmbeddingModel, MOST_DIMENSIONS};
use crate::{Store, StoreError, connections::speak_throughout, database::bounded};

/// The oldest extension that does: with it a search goes on until enough is found that its asker may see.
const OLDEST_EXTENSION: [u32; 2] = [0, 8];

/// Why there is no place for numbers.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingError {
    /// The server has no such extension.
    #[error(
        "the PostgreSQL server has no extension `vector` (pgvector, often in a package postgresql-NN-pgvector)"
    )]
    NoExtension,
    /// It has one that lacks something.
    #[error(
        "the extension `vector` is version {0}, and 0.8 is needed: install it, and run ALTER EXTENSION vector UPDATE"
    )]
    OldExtension(String),
    /// The model has more numbers, or none.
    #[error("the model has {0} dimensions, and 1 to {MOST_DIMENSIONS} can be kept")]
    Dimensions(usize),
    /// The database did not do it.
    #[error("the database did not make a place for embeddings")]
    Store(#[from] StoreError),
}

impl Store {
    /// The model that was set last.
    ///
    /// # Errors
    /// As every query.
    pub async fn embedding_model(&self) -> Result<Option<EmbeddingModel>, StoreError> {
        let query = sqlx::query!(
            "SELECT generation, model, dimensions FROM embedding_models ORDER BY generation DESC LIMIT 1"
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.throughout().await?).await }).await?;
        Ok(row.map(|row| EmbeddingModel {
            generation: row.generation,
            model: row.model,
            dimensions: usize::try_from(row.dimensions).unwrap_or_default(),
        }))
    }

    /// The version of the extension that the database has or could have.
    ///
    /// # Errors
    /// [`EmbeddingError::NoExtension`] or [`EmbeddingError::OldExtension`] when it does not do, else as every query.
    pub async fn vector_extension(&self) -> Result<String, EmbeddingError> {
        let query = sqlx::query_scalar!(
            r#"SELECT coalesce(installed_version, default_version) AS "version!"
               FROM pg_available_extensions WHERE name = 'vector'"#
        );
        let found =
            bounded(async { query.fetch_optional(&mut *self.outside().await?).await }).await?;
        let version = found.ok_or(EmbeddingError::NoExtension)?;
        let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
        let known = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
        if known < OLDEST_EXTENSION {
            return Err(EmbeddingError::OldExtension(version));
        }
        Ok(version)
    }

    /// Sets the model: all texts wait for it, and numbers of another one are gone. Nothing happens when it is set already.
    ///
    /// # Errors
    /// [`EmbeddingError`] when there is no extension for it, or the account may not make tables.
    pub async fn set_embedding_model(
        &self,
        model: &str,
        dimensions: usize,
    ) -> Result<EmbeddingModel, EmbeddingError> {
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            return Err(EmbeddingError::Dimensions(dimensions));
        }
        self.vector_extension().await?;
        // A connection of its own, as for migrations: all that is stored is put into the queue, and that takes its time.
        let options = self
            .connections
            .options()
            .options([("statement_timeout", "0")]);
        let mut connection = bounded(PgConnection::connect_with(&options)).await?;
        let set = set(&mut connection, model, dimensions).await;
        drop(connection.close().await);
        Ok(set.map_err(StoreError::from)?)
    }
}

async fn set(
    connection: &mut PgConnection,
    model: &str,
    dimensions: usize,
) -> Result<EmbeddingModel, sqlx::Error> {
    let columns = i32::try_from(dimensions).unwrap_or(i32::MAX);
    let mut transaction = connection.begin().await?;
    // Texts of all organisations wait for it.
    speak_throughout(&mut transaction).await?;
    // Who writes a text looks whether there is a model: nobody is between the two, and nobody else sets one.
    sqlx::query!("LOCK TABLE memories, skills_book_chunks IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *transaction)
        .await?;
    let known = sqlx::query!(
        r#"SELECT generation, filled AS "filled!" FROM embedding_models
           WHERE generation = (SELECT max(generation) FROM embedding_models) AND model = $1 AND dimensions = $2"#,
        model,
        columns
    )
    .fetch_optional(&mut *transaction)
    .await?;
    let (generation, filled) = match known {
        Some(known) => (known.generation, known.filled),
        None => {
            // No checked query can know a table whose columns depend on the model.
            sqlx::raw_sql(AssertSqlSafe(table(dimensions)))
                .execute(&mut *transaction)
                .await?;
            (begin(&mut transaction, model, columns).await?, false)
        }
    };
    transaction.commit().await?;
    if !filled {
        fill(connection, generation).await?;
    }
    Ok(EmbeddingModel {
        generation,
        model: model.to_owned(),
        dimensions,
    })
}

/// Half the bytes of whole numbers, and the order of what is near stays the same. The table is emptied and not dropped:
/// that would lock those to which it points, also against readers.
fn table(dimensions: usize) -> String {
    format!(
        "CREATE EXTENSION IF NOT EXISTS vector;
         CREATE TABLE IF NOT EXISTS embeddings (
             holder_id uuid NOT NULL, -- the template, NPC or skills book in which it is looked for
             memory_id uuid UNIQUE REFERENCES memories (id) ON DELETE CASCADE,
             book_id   uuid,
             chunk     integer,
             embedding halfvec({dimensions}) NOT NULL,
             UNIQUE (book_id, chunk),
             FOREIGN KEY (book_id, chunk) REFERENCES skills_book_chunks (book_id, number) ON DELETE CASCADE
         );
         TRUNCATE embeddings;
         DROP INDEX IF EXISTS embeddings_by_meaning;
         ALTER TABLE embeddings ALTER COLUMN embedding TYPE halfvec({dimensions});
         CREATE INDEX IF NOT EXISTS embeddings_by_holder ON embeddings (holder_id);
         CREATE INDEX embeddings_by_meaning ON embeddings USING hnsw (embedding halfvec_cosine_ops);
         DROP POLICY IF EXISTS read_with_their_text ON embeddings;
         DROP POLICY IF EXISTS of_the_installation ON embeddings;
         CREATE POLICY read_with_their_text ON embeddings FOR SELECT
             USING (EXISTS (SELECT FROM memories text WHERE text.id = memory_id)
                    OR EXISTS (SELECT FROM skills_books text WHERE text.id = book_id));
         CREATE POLICY of_the_installation ON embeddings USING ((SELECT speaks_for_everyone()));
         ALTER TABLE embeddings ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
    )
}

/// What is written from now on waits for this model.
async fn begin(
    connection: &mut PgConnection,
    model: &str,
    dimensions: i32,
) -> Result<i32, sqlx::Error> {
    sqlx::query!("DELETE FROM embedding_queue")
        .execute(&mut *connection)
        .await?;
    sqlx::query!("DELETE FROM embedding_models")
        .execute(&mut *connection)
        .await?;
    sqlx::query_scalar!(
        "INSERT INTO embedding_models (model, dimensions) VALUES ($1, $2) RETURNING generation",
        model,
        dimensions
    )
    .fetch_one(connection)
    .await
}

/// What was written before waits as well. Nobody has to wait for that; whoever is interrupted begins again.
async fn fill(connection: &mut PgConnection, generation: i32) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    speak_throughout(&mut transaction).await?;
    sqlx::query!(
        "INSERT INTO embedding_queue (memory_id) SELECT id FROM memories ON CONFLICT DO NOTHING"
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!(
        "INSERT INTO embedding_queue (book_id, chunk) SELECT book_id, number FROM skills_book_chunks
         ON CONFLICT DO NOTHING"
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!(
        "UPDATE embedding_models SET filled = true WHERE generation = $1",
        generation
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}
