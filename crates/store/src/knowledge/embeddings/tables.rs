//! The table of embeddings, created for one model and converted for the next.
//! Invariant: programs start without the extension.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{EmbeddingModel, MAX_DIMENSIONS};
use crate::{
    Store, StoreError,
    database::{connections::set_local_system, with_timeout},
};

/// The minimum version of the extension. It scans the index until enough rows are visible to the
/// reader.
const MIN_EXTENSION: [u32; 2] = [0, 8];

/// The reason why embeddings cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingError {
    /// The server does not have the extension.
    #[error(
        "the PostgreSQL server has no extension `vector` (pgvector, often in a package postgresql-NN-pgvector)"
    )]
    NoExtension,
    /// Its version is too old.
    #[error(
        "the extension `vector` is version {0}, and 0.8 is needed: install it, and run ALTER EXTENSION vector UPDATE"
    )]
    OldExtension(String),
    /// The model has too many dimensions, or none.
    #[error("the model has {0} dimensions; 1 to {MAX_DIMENSIONS} are supported")]
    Dimensions(usize),
    /// The database failed.
    #[error("the database could not prepare the table of embeddings")]
    Store(#[from] StoreError),
}

impl Store {
    /// The model that was set last.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn embedding_model(&self) -> Result<Option<EmbeddingModel>, StoreError> {
        let query = sqlx::query!(
            "SELECT generation, model, dimensions FROM embedding_models ORDER BY generation DESC LIMIT 1"
        );
        let row =
            with_timeout(async { query.fetch_optional(&mut *self.system_conn().await?).await })
                .await?;
        Ok(row.map(|row| EmbeddingModel {
            generation: row.generation,
            model: row.model,
            dimensions: usize::try_from(row.dimensions).unwrap_or_default(),
        }))
    }

    /// The version of the extension that is installed or available.
    ///
    /// # Errors
    /// [`EmbeddingError::NoExtension`] or [`EmbeddingError::OldExtension`] if it is missing or too
    /// old, or any other [`StoreError`].
    pub async fn vector_extension(&self) -> Result<String, EmbeddingError> {
        let query = sqlx::query_scalar!(
            r#"SELECT coalesce(installed_version, default_version) AS "version!"
               FROM pg_available_extensions WHERE name = 'vector'"#
        );
        let found = with_timeout(async {
            query
                .fetch_optional(&mut *self.unscoped_conn().await?)
                .await
        })
        .await?;
        let version = found.ok_or(EmbeddingError::NoExtension)?;
        let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
        let current = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
        if current < MIN_EXTENSION {
            return Err(EmbeddingError::OldExtension(version));
        }
        Ok(version)
    }

    /// Sets the model, deletes the embeddings of another one, and enqueues all texts. Does nothing
    /// if the model is set already.
    ///
    /// # Errors
    /// [`EmbeddingError`] if the extension is missing, or the user may not create tables.
    pub async fn set_embedding_model(
        &self,
        model: &str,
        dimensions: usize,
    ) -> Result<EmbeddingModel, EmbeddingError> {
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(EmbeddingError::Dimensions(dimensions));
        }
        self.vector_extension().await?;
        // On a dedicated connection without a statement timeout, as for migrations: all stored
        // texts are enqueued.
        let options = self
            .connections
            .primary_options()
            .await
            .options([("statement_timeout", "0")]);
        let mut connection = with_timeout(PgConnection::connect_with(&options)).await?;
        let applied = apply_model(&mut connection, model, dimensions).await;
        drop(connection.close().await);
        Ok(applied.map_err(StoreError::from)?)
    }
}

async fn apply_model(
    connection: &mut PgConnection,
    model: &str,
    dimensions: usize,
) -> Result<EmbeddingModel, sqlx::Error> {
    let columns = i32::try_from(dimensions).unwrap_or(i32::MAX);
    let mut transaction = connection.begin().await?;
    // Texts of all organisations are enqueued.
    set_local_system(&mut transaction).await?;
    // Writers of texts check whether a model is set; the lock excludes them, and other processes
    // that set a model.
    sqlx::query!("LOCK TABLE memories, skills_book_chunks IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *transaction)
        .await?;
    let current = sqlx::query!(
        r#"SELECT generation, filled AS "filled!" FROM embedding_models
           WHERE generation = (SELECT max(generation) FROM embedding_models) AND model = $1 AND dimensions = $2"#,
        model,
        columns
    )
    .fetch_optional(&mut *transaction)
    .await?;
    let (generation, filled) = match current {
        Some(current) => (current.generation, current.filled),
        None => {
            // The columns of this table depend on the model, so no checked query can name it.
            sqlx::raw_sql(AssertSqlSafe(table_sql(dimensions)))
                .execute(&mut *transaction)
                .await?;
            (
                start_generation(&mut transaction, model, columns).await?,
                false,
            )
        }
    };
    transaction.commit().await?;
    if !filled {
        enqueue_existing(connection, generation).await?;
    }
    Ok(EmbeddingModel {
        generation,
        model: model.to_owned(),
        dimensions,
    })
}

/// Half-precision vectors need half the bytes, and the order of neighbours is the same. The table
/// is truncated, not dropped: dropping it would lock the referenced tables against readers.
fn table_sql(dimensions: usize) -> String {
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

/// Texts written from now on are enqueued for this model.
async fn start_generation(
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

/// Enqueues existing texts. Nothing depends on it; an interrupted run starts again.
async fn enqueue_existing(
    connection: &mut PgConnection,
    generation: i32,
) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    set_local_system(&mut transaction).await?;
    sqlx::query!(
        "INSERT INTO embedding_queue (memory_id, owner_id)
         SELECT id, coalesce(org_id, '00000000-0000-0000-0000-000000000000') FROM memories
         ON CONFLICT DO NOTHING"
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!(
        "INSERT INTO embedding_queue (book_id, chunk, owner_id)
         SELECT chunk.book_id, chunk.number, coalesce(book.org_id, '00000000-0000-0000-0000-000000000000')
         FROM skills_book_chunks chunk JOIN skills_books book ON book.id = chunk.book_id
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
