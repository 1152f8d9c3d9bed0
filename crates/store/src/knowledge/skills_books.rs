//! Skills books: uploaded documents in which characters look up knowledge, from the first part to
//! the last chunk.
//! Invariant: readers see only books whose state is `ready`.

mod ingestion;
mod parts;
mod queries;
mod search;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::SkillsBookId;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Owner, Store, StoreError, TenantTransaction,
    database::with_timeout,
    media::objects::{ObjectError, ObjectKey, hex},
};
pub use ingestion::{BookJob, NewChunk};
pub use parts::{BookFinish, PartWrite};
pub use queries::{BookChunk, BookFilter, BookSection, ReadyBook};
pub use search::ChunkMatch;

/// A skills book to be uploaded.
#[derive(Debug, Clone)]
pub struct NewSkillsBook {
    /// Its id.
    pub id: SkillsBookId,
    /// The display name; 1 to 100 characters.
    pub name: String,
    /// The media type, which selects the parser.
    pub mime_type: &'static str,
    /// The language of its text.
    pub locale: String,
    /// The declared size in bytes.
    pub size_bytes: i64,
    /// The declared SHA-256.
    pub sha256: [u8; 32],
}

/// A stored skills book.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillsBook {
    /// The id of the book.
    pub id: SkillsBookId,
    /// Its owner.
    pub owner: Owner,
    /// The display name.
    pub name: String,
    /// The media type, which selects the parser.
    pub mime_type: String,
    /// The language of its text.
    pub locale: String,
    /// The declared size in bytes.
    pub size_bytes: i64,
    /// The declared SHA-256; lower-case hexadecimal digits.
    pub sha256: String,
    /// The total size of its parts, in bytes.
    pub bytes_received: i64,
    /// Its state.
    pub state: BookState,
    /// The number of its chunks, once known.
    pub chunks_total: Option<i32>,
    /// The number of chunks that are indexed.
    pub chunks_indexed: i32,
    /// The reason of a failure.
    pub fault: Option<BookFault>,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the last progress.
    pub updated_at: DateTime<Utc>,
}

/// The state of a skills book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SkillsBookState, example = "indexing")]
#[serde(rename_all = "lowercase")]
pub enum BookState {
    /// Its parts are being uploaded.
    Uploading,
    /// Its text is being extracted.
    Parsing,
    /// Its chunks are being stored.
    Indexing,
    /// All chunks can be searched.
    Ready,
    /// It cannot be processed.
    Failed,
    /// Its owner cancelled it.
    Cancelled,
}

/// The reason why a skills book cannot be processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SkillsBookFault)]
pub struct BookFault {
    /// Machine-readable kind of the fault.
    #[schema(pattern = "^[a-z0-9_]{1,64}$", example = "invalid_utf8")]
    pub kind: String,
    /// Human-readable description of the fault and its position.
    #[schema(
        max_length = 65_535,
        example = "The text is not UTF-8, from byte 10 in line 1 on."
    )]
    pub detail: String,
}

/// The result of cancelling a skills book.
#[derive(Debug, Clone, PartialEq)]
pub enum BookCancel {
    /// It is cancelled, now or before.
    Cancelled(Box<SkillsBook>),
    /// The owner has no book with this id.
    Unknown,
    /// It has already ended in this state.
    Ended(BookState),
}

/// The result of deleting a skills book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookRemoval {
    /// It was deleted.
    Removed,
    /// The owner has no book with this id.
    Unknown,
    /// It was not deleted: a template or an NPC refers to it.
    InUse,
}

/// An error of the database or of the object store.
#[derive(Debug, thiserror::Error)]
pub enum SkillsBookError {
    /// No object store is configured.
    #[error("there is no object store; set --objects or SWITCHBOARD_OBJECTS")]
    NoObjects,
    /// The object store failed.
    #[error("the object store failed while processing a skills book")]
    Objects(#[from] ObjectError),
    /// The database failed.
    #[error("the database failed while processing a skills book")]
    Store(#[from] StoreError),
}

impl BookState {
    const ALL: [Self; 6] = [
        Self::Uploading,
        Self::Parsing,
        Self::Indexing,
        Self::Ready,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name in the database and in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uploading => "uploading",
            Self::Parsing => "parsing",
            Self::Indexing => "indexing",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// A constraint excludes other values.
    fn from_column(text: &str) -> Self {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.unwrap_or(Self::Failed)
    }
}

struct Row {
    id: Uuid,
    org_id: Option<Uuid>,
    name: String,
    mime_type: String,
    locale: String,
    size_bytes: i64,
    sha256: Vec<u8>,
    bytes_received: i64,
    state: String,
    chunks_total: Option<i32>,
    chunks_indexed: i32,
    error_kind: Option<String>,
    error_detail: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for SkillsBook {
    fn from(row: Row) -> Self {
        Self {
            id: SkillsBookId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            name: row.name,
            mime_type: row.mime_type,
            locale: row.locale,
            size_bytes: row.size_bytes,
            sha256: hex(&row.sha256),
            bytes_received: row.bytes_received,
            state: BookState::from_column(&row.state),
            chunks_total: row.chunks_total,
            chunks_indexed: row.chunks_indexed,
            fault: row.error_kind.map(|kind| BookFault {
                kind,
                detail: row.error_detail.unwrap_or_default(),
            }),
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl TenantTransaction {
    /// Inserts a skills book without parts. It becomes visible with the commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the id exists, or any other [`StoreError`].
    pub async fn begin_skills_book(
        &mut self,
        owner: Owner,
        book: &NewSkillsBook,
    ) -> Result<SkillsBook, StoreError> {
        let query = sqlx::query!(
            "INSERT INTO skills_books (id, org_id, name, mime_type, size_bytes, sha256, locale)
             VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING created_at, updated_at",
            book.id.uuid(),
            owner.column(),
            book.name,
            book.mime_type,
            book.size_bytes,
            &book.sha256,
            book.locale
        );
        let row = with_timeout(query.fetch_one(self.connection())).await?;
        Ok(SkillsBook {
            id: book.id,
            owner,
            name: book.name.clone(),
            mime_type: book.mime_type.to_owned(),
            locale: book.locale.clone(),
            size_bytes: book.size_bytes,
            sha256: hex(&book.sha256),
            bytes_received: 0,
            state: BookState::Uploading,
            chunks_total: None,
            chunks_indexed: 0,
            fault: None,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

impl Store {
    /// One skills book that the reader can read.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn skills_book(
        &self,
        reader: Owner,
        id: SkillsBookId,
    ) -> Result<Option<SkillsBook>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT id, org_id, name, mime_type, locale, size_bytes, sha256, state, chunks_total, chunks_indexed, error_kind,
                      error_detail, created_at, updated_at,
                      (SELECT coalesce(sum(p.size_bytes), 0)::bigint FROM skills_book_parts p WHERE p.book_id = b.id)
                          AS "bytes_received!"
               FROM skills_books b WHERE id = $1 AND (org_id = $2 OR org_id IS NULL)"#,
            id.uuid(),
            reader.column()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(reader).await?)
                .await
        })
        .await?;
        Ok(row.map(SkillsBook::from))
    }

    /// Skills books that the reader can read, in the order of their creation, strictly after
    /// `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn skills_books(
        &self,
        reader: Owner,
        after: Option<SkillsBookId>,
        limit: u32,
    ) -> Result<Vec<SkillsBook>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"WITH own AS (SELECT * FROM skills_books WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3),
                    public AS (SELECT * FROM skills_books WHERE org_id IS NULL AND id > $2 ORDER BY id LIMIT $3)
               SELECT id AS "id!", org_id, name AS "name!", mime_type AS "mime_type!", locale AS "locale!",
                      size_bytes AS "size_bytes!", sha256 AS "sha256!", state AS "state!", chunks_total, chunks_indexed AS "chunks_indexed!",
                      error_kind, error_detail, created_at AS "created_at!", updated_at AS "updated_at!",
                      (SELECT coalesce(sum(p.size_bytes), 0)::bigint FROM skills_book_parts p WHERE p.book_id = b.id)
                          AS "bytes_received!"
               FROM (SELECT * FROM own UNION ALL SELECT * FROM public) b ORDER BY id LIMIT $3"#,
            reader.column(),
            after.map_or(Uuid::nil(), SkillsBookId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(reader).await?).await })
                .await?;
        Ok(rows.into_iter().map(SkillsBook::from).collect())
    }

    /// Cancels a book that is being uploaded or processed: processing stops, and its bytes and
    /// chunks are deleted.
    ///
    /// # Errors
    /// [`SkillsBookError`] if there is no object store or the database fails. Bytes that could not
    /// be deleted are logged; they are deleted with the book, or as orphans.
    pub async fn cancel_skills_book(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<BookCancel, SkillsBookError> {
        self.objects().ok_or(SkillsBookError::NoObjects)?;
        let cancelled = with_timeout(async {
            let mut transaction = self.begin_tenant(owner).await?;
            let cancelled = sqlx::query!(
                "UPDATE skills_books SET state = 'cancelled', worker = NULL, leased_until = NULL, chunks_total = NULL,
                                         chunks_indexed = 0, updated_at = now()
                 WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 AND state IN ('uploading', 'parsing', 'indexing')",
                id.uuid(),
                owner.column()
            )
            .execute(&mut *transaction)
            .await?;
            if cancelled.rows_affected() > 0 {
                let book = id.uuid();
                sqlx::query!("DELETE FROM skills_book_chunks WHERE book_id = $1", book)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await
        });
        cancelled.await?;
        match self.skills_book(owner, id).await? {
            Some(book) if book.owner != owner => Ok(BookCancel::Unknown),
            // Also if it was cancelled before: that process may have stopped at this point.
            Some(mut book) if book.state == BookState::Cancelled => {
                self.delete_parts(owner, id).await?;
                book.bytes_received = 0;
                Ok(BookCancel::Cancelled(Box::new(book)))
            }
            Some(book) => Ok(BookCancel::Ended(book.state)),
            None => Ok(BookCancel::Unknown),
        }
    }

    /// Deletes a book that nothing refers to, in any state: first its rows, then its bytes.
    ///
    /// # Errors
    /// [`SkillsBookError`] if there is no object store or the database fails. Bytes that could not
    /// be deleted are logged, and later deleted as orphans.
    pub async fn delete_skills_book(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<BookRemoval, SkillsBookError> {
        self.objects().ok_or(SkillsBookError::NoObjects)?;
        let removed = with_timeout(async {
            let mut transaction = self.begin_tenant(owner).await?;
            let locked = sqlx::query_scalar!(
                "SELECT id FROM skills_books WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 FOR UPDATE",
                id.uuid(),
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            if locked.is_none() {
                return Ok(false);
            }
            sqlx::query!("DELETE FROM skills_books WHERE id = $1", id.uuid())
                .execute(&mut *transaction)
                .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(true)
        });
        match removed.await {
            Ok(false) => Ok(BookRemoval::Unknown),
            Ok(true) => {
                self.delete_part_objects(owner, id).await;
                Ok(BookRemoval::Removed)
            }
            Err(StoreError::Refused(sqlx::Error::Database(answer)))
                if answer
                    .constraint()
                    .is_some_and(|name| name.ends_with("_skills_books_book_exists")) =>
            {
                Ok(BookRemoval::InUse)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes all parts of a cancelled book.
    async fn delete_parts(&self, owner: Owner, id: SkillsBookId) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "DELETE FROM skills_book_parts WHERE book_id = $1",
            id.uuid()
        );
        with_timeout(async { query.execute(&mut *self.tenant_conn(owner).await?).await }).await?;
        self.delete_part_objects(owner, id).await;
        Ok(())
    }

    /// Deletes all bytes of a book that accepts no further parts, with or without a row.
    async fn delete_part_objects(&self, owner: Owner, id: SkillsBookId) {
        let Some(objects) = self.objects() else {
            return;
        };
        let folder = ObjectKey::skills_book(owner, id);
        if let Err(error) = objects.delete_folder(&folder).await {
            tracing::warn!(error = error.report(), skills_book.id = %id, "could not delete the bytes of a skills book; they are left to the orphan collection");
        }
    }

    /// Deletes the bytes of a part that no row refers to.
    async fn delete_part_object(&self, owner: Owner, id: SkillsBookId, object: Uuid) {
        let Some(objects) = self.objects() else {
            return;
        };
        let key = ObjectKey::skills_book_part(owner, id, object);
        if let Err(error) = objects.delete(&key).await {
            tracing::warn!(error = error.report(), object = %key, "could not delete a part of a skills book; it is left to the orphan collection");
        }
    }
}
