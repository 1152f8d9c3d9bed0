//! Skills books: documents that characters look things up in, from the first part to the last chunk.
//! Never: a book that is half there for its readers; what it is, its state says.

mod ingestion;
mod parts;
mod reading;
mod search;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::SkillsBookId;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    Creation, Store, StoreError,
    database::bounded,
    objects::{ObjectError, ObjectKey, hex},
    owner::Owner,
};
pub use ingestion::{BookJob, NewChunk};
pub use parts::{BookFinish, PartWrite};
pub use reading::{BookChunk, BookFilter, BookPlace, ReadyBook};
pub use search::FoundChunk;

/// A skills book about to be sent.
#[derive(Debug, Clone)]
pub struct NewSkillsBook {
    /// Its id.
    pub id: SkillsBookId,
    /// What people call it; 1 to 100 characters.
    pub name: String,
    /// How it is read.
    pub mime_type: &'static str,
    /// The language it is written in.
    pub locale: String,
    /// How many bytes it will have.
    pub size_bytes: i64,
    /// Of those bytes.
    pub sha256: [u8; 32],
}

/// A skills book as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillsBook {
    /// Its id.
    pub id: SkillsBookId,
    /// Whose it is.
    pub owner: Owner,
    /// What people call it.
    pub name: String,
    /// How it is read.
    pub mime_type: String,
    /// The language it is written in.
    pub locale: String,
    /// How many bytes it has, as declared.
    pub size_bytes: i64,
    /// Of those bytes, as declared; lower-case hexadecimal digits.
    pub sha256: String,
    /// How many bytes its parts have.
    pub bytes_received: i64,
    /// How far it is.
    pub state: BookState,
    /// How many chunks it has, once that is known.
    pub chunks_total: Option<i32>,
    /// How many of them can be found.
    pub chunks_indexed: i32,
    /// Why it failed.
    pub fault: Option<BookFault>,
    /// When it was begun.
    pub created_at: DateTime<Utc>,
    /// When it got further last.
    pub updated_at: DateTime<Utc>,
}

/// How far a skills book is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SkillsBookState, example = "indexing")]
#[serde(rename_all = "lowercase")]
pub enum BookState {
    /// Its parts are being sent.
    Uploading,
    /// Its text is being read out of it.
    Parsing,
    /// Its chunks are being stored.
    Indexing,
    /// All of it can be found.
    Ready,
    /// It cannot be read.
    Failed,
    /// Its owner gave it up.
    Cancelled,
}

/// Why a skills book cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SkillsBookFault)]
pub struct BookFault {
    /// What kind of fault, in machines' words.
    #[schema(pattern = "^[a-z0-9_]{1,64}$", example = "invalid_utf8")]
    pub kind: String,
    /// What is wrong and where, in people's words.
    #[schema(
        max_length = 65_535,
        example = "The text is not UTF-8, from byte 10 in line 1 on."
    )]
    pub detail: String,
}

/// What became of a book that was to be given up.
#[derive(Debug, Clone, PartialEq)]
pub enum BookCancel {
    /// It is given up, now or before.
    Cancelled(Box<SkillsBook>),
    /// The owner has none with this id.
    Unknown,
    /// It is over already, in this state.
    Over(BookState),
}

/// What became of a book that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookRemoval {
    /// It is gone.
    Removed,
    /// The owner has none with this id.
    Unknown,
    /// It stays: a template or an NPC names it.
    InUse,
}

/// Why nothing became of it.
#[derive(Debug, thiserror::Error)]
pub enum SkillsBookError {
    /// No object store is set.
    #[error("there is no object store; set --objects or SWITCHBOARD_OBJECTS")]
    NoObjects,
    /// The object store did not do it.
    #[error("the object store did not do its part of a skills book")]
    Objects(#[from] ObjectError),
    /// The database did not do it.
    #[error("the database did not do its part of a skills book")]
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

    /// The state in the words of the database and of the API.
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

    /// A constraint lets no other word into the database.
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

impl Creation {
    /// Begins a skills book, without a part; it is not seen before the commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id exists already, else as every query.
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
        let row = bounded(query.fetch_one(self.connection())).await?;
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
    /// One skills book that this reader sees.
    ///
    /// # Errors
    /// As every query.
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
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(reader).await?).await }).await?;
        Ok(row.map(SkillsBook::from))
    }

    /// Skills books that this reader sees, in the order of their beginning, strictly after `after`.
    ///
    /// # Errors
    /// As every query.
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
            bounded(async { query.fetch_all(&mut *self.within(reader).await?).await }).await?;
        Ok(rows.into_iter().map(SkillsBook::from).collect())
    }

    /// Gives up a book that is being sent or read: nobody reads on, and its bytes and chunks go.
    ///
    /// # Errors
    /// [`SkillsBookError`] when there is no object store or the database fails. Bytes that could not be removed are
    /// logged; they go with the book, or when what is left over is looked for.
    pub async fn cancel_skills_book(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<BookCancel, SkillsBookError> {
        self.objects().ok_or(SkillsBookError::NoObjects)?;
        let cancelled = bounded(async {
            let mut transaction = self.begin_within(owner).await?;
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
            // Also when it was given up before: whoever did so may have got no further.
            Some(mut book) if book.state == BookState::Cancelled => {
                self.forget_parts(owner, id).await?;
                book.bytes_received = 0;
                Ok(BookCancel::Cancelled(Box::new(book)))
            }
            Some(book) => Ok(BookCancel::Over(book.state)),
            None => Ok(BookCancel::Unknown),
        }
    }

    /// Removes a book that no template names, whatever its state: first its rows, then its bytes.
    ///
    /// # Errors
    /// [`SkillsBookError`] when there is no object store or the database fails. Bytes that could not be removed are
    /// logged, and are left over until they are looked for.
    pub async fn delete_skills_book(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<BookRemoval, SkillsBookError> {
        self.objects().ok_or(SkillsBookError::NoObjects)?;
        let removed = bounded(async {
            let mut transaction = self.begin_within(owner).await?;
            let held = sqlx::query_scalar!(
                "SELECT id FROM skills_books WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 FOR UPDATE",
                id.uuid(),
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            if held.is_none() {
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
                self.remove_parts(owner, id).await;
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

    /// Removes all parts of a book that was given up.
    async fn forget_parts(&self, owner: Owner, id: SkillsBookId) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "DELETE FROM skills_book_parts WHERE book_id = $1",
            id.uuid()
        );
        bounded(async { query.execute(&mut *self.within(owner).await?).await }).await?;
        self.remove_parts(owner, id).await;
        Ok(())
    }

    /// Removes all bytes of a book that takes no parts any more, whether a row named them or not.
    async fn remove_parts(&self, owner: Owner, id: SkillsBookId) {
        let Some(objects) = self.objects() else {
            return;
        };
        let folder = ObjectKey::skills_book(owner, id);
        if let Err(error) = objects.delete_folder(&folder).await {
            tracing::warn!(error = error.report(), skills_book.id = %id, "bytes of a skills book were left behind");
        }
    }

    /// Removes the bytes of one part that no row names any more.
    async fn remove_part(&self, owner: Owner, id: SkillsBookId, object: Uuid) {
        let Some(objects) = self.objects() else {
            return;
        };
        let key = ObjectKey::skills_book_part(owner, id, object);
        if let Err(error) = objects.delete(&key).await {
            tracing::warn!(error = error.report(), object = %key, "a part of a skills book was left behind");
        }
    }
}
