//! Who reads which skills book, and how far it is: a lease that is renewed, and chunks that are counted as they are stored.
//! Never: a chunk twice or a hole between two, or a word from a worker whose book somebody else reads now.

use std::time::Duration;

use switchboard_protocol::id::SkillsBookId;
use uuid::Uuid;

use super::BookFault;
use crate::{
    Store, StoreError,
    database::{bounded, interval},
    owner::Owner,
};

/// A book that a worker has to itself until its lease ends.
#[derive(Debug, Clone)]
pub struct BookJob {
    /// Which book.
    pub id: SkillsBookId,
    /// Whose it is.
    pub owner: Owner,
    /// How it is read.
    pub mime_type: String,
    /// How many bytes it has.
    pub size_bytes: i64,
    /// How often it was begun since a chunk was stored last, this time included.
    pub attempts: i32,
}

/// A chunk about to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChunk {
    /// The headings above it, outermost first.
    pub heading: Option<String>,
    /// The page on which it begins, from 1.
    pub page: Option<i32>,
    /// What it says.
    pub text: String,
}

impl Store {
    /// Takes over a book that has to be read and that nobody reads.
    ///
    /// # Errors
    /// As every query.
    pub async fn claim_skills_book(
        &self,
        worker: Uuid,
        lease: Duration,
    ) -> Result<Option<BookJob>, StoreError> {
        let query = sqlx::query!(
            "UPDATE skills_books SET worker = $1, leased_until = now() + $2::interval, attempts = attempts + 1
             WHERE id = (SELECT id FROM skills_books
                         WHERE state IN ('parsing', 'indexing') AND (leased_until IS NULL OR leased_until < now())
                         ORDER BY updated_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING id, org_id, mime_type, size_bytes, attempts",
            worker,
            interval(lease)
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.throughout().await?).await }).await?;
        Ok(row.map(|row| BookJob {
            id: SkillsBookId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            mime_type: row.mime_type,
            size_bytes: row.size_bytes,
            attempts: row.attempts,
        }))
    }

    /// Keeps a book for longer; false when it is not this worker's any more.
    ///
    /// # Errors
    /// As every query.
    pub async fn renew_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "UPDATE skills_books SET leased_until = now() + $3::interval WHERE id = $1 AND worker = $2",
            id.uuid(),
            worker,
            interval(lease)
        );
        let renewed =
            bounded(async { query.execute(&mut *self.throughout().await?).await }).await?;
        Ok(renewed.rows_affected() > 0)
    }

    /// Gives a book back unread, for anybody to take after a while; this attempt does not count.
    ///
    /// # Errors
    /// As every query.
    pub async fn release_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        after: Duration,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE skills_books SET worker = NULL, leased_until = now() + $3::interval, attempts = greatest(attempts - 1, 0)
             WHERE id = $1 AND worker = $2",
            id.uuid(),
            worker,
            interval(after)
        );
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }

    /// Says which chunks a book has: how many of them are stored already, or nothing when it is not this worker's any
    /// more. Chunks of another reading, by another version of this program, are removed.
    ///
    /// # Errors
    /// As every query.
    pub async fn begin_indexing_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        chunks: i32,
        sha256: &[u8],
    ) -> Result<Option<i32>, StoreError> {
        bounded(async {
            let mut transaction = self.begin_throughout().await?;
            let held = sqlx::query!(
                "SELECT chunks_indexed, chunks_sha256 FROM skills_books WHERE id = $1 AND worker = $2 FOR UPDATE",
                id.uuid(),
                worker
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(held) = held else {
                return Ok(None);
            };
            let is_same = held.chunks_sha256.as_deref() == Some(sha256);
            let indexed = if is_same { held.chunks_indexed } else { 0 };
            if !is_same {
                let book = id.uuid();
                sqlx::query!("DELETE FROM skills_book_chunks WHERE book_id = $1", book)
                    .execute(&mut *transaction)
                    .await?;
            }
            sqlx::query!(
                "UPDATE skills_books SET state = 'indexing', chunks_total = $2, chunks_indexed = $3, chunks_sha256 = $4,
                                         updated_at = now()
                 WHERE id = $1",
                id.uuid(),
                chunks,
                indexed,
                sha256
            )
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(Some(indexed))
        })
        .await
    }

    /// Stores the chunks that begin with this number; false when the book is not this worker's any more.
    ///
    /// # Errors
    /// As every query.
    pub async fn add_skills_book_chunks(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        first: i32,
        chunks: &[NewChunk],
    ) -> Result<bool, StoreError> {
        let next = first.saturating_add(i32::try_from(chunks.len()).unwrap_or(i32::MAX));
        let numbers: Vec<i32> = (first..next).collect();
        let headings: Vec<_> = chunks.iter().map(|chunk| chunk.heading.clone()).collect();
        let pages: Vec<_> = chunks.iter().map(|chunk| chunk.page).collect();
        let texts: Vec<_> = chunks.iter().map(|chunk| chunk.text.clone()).collect();
        let searched: Vec<_> = chunks.iter().map(searched).collect();
        bounded(async {
            let mut transaction = self.begin_throughout().await?;
            let counted = sqlx::query!(
                "UPDATE skills_books SET chunks_indexed = $4, attempts = 0, updated_at = now()
                 WHERE id = $1 AND worker = $2 AND state = 'indexing' AND chunks_indexed = $3",
                id.uuid(),
                worker,
                first,
                next
            )
            .execute(&mut *transaction)
            .await?;
            if counted.rows_affected() == 0 {
                return Ok(false);
            }
            sqlx::query!(
                "INSERT INTO skills_book_chunks (book_id, number, heading, page, text, terms)
                 SELECT $1, number, heading, page, text, search_terms(lowered, lower(split_part(book.locale, '-', 1)))
                 FROM skills_books book,
                      UNNEST($2::integer[], $3::text[], $4::integer[], $5::text[], $6::text[])
                          AS chunk (number, heading, page, text, lowered)
                 WHERE book.id = $1",
                id.uuid(),
                &numbers,
                &headings as _,
                &pages as _,
                &texts,
                &searched
            )
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(true)
        })
        .await
    }

    /// Ends the reading of a book of which every chunk is stored; false when that is not so, or it is not this worker's.
    ///
    /// # Errors
    /// As every query.
    pub async fn complete_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "UPDATE skills_books SET state = 'ready', worker = NULL, leased_until = NULL, updated_at = now()
             WHERE id = $1 AND worker = $2 AND state = 'indexing' AND chunks_indexed = chunks_total",
            id.uuid(),
            worker
        );
        let completed =
            bounded(async { query.execute(&mut *self.throughout().await?).await }).await?;
        Ok(completed.rows_affected() > 0)
    }

    /// Ends the reading of a book that cannot be read; what was read of it goes.
    ///
    /// # Errors
    /// As every query.
    pub async fn fail_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        fault: &BookFault,
    ) -> Result<(), StoreError> {
        bounded(async {
            let mut transaction = self.begin_throughout().await?;
            let failed = sqlx::query!(
                "UPDATE skills_books SET state = 'failed', error_kind = $3, error_detail = $4, worker = NULL,
                                         leased_until = NULL, chunks_total = NULL, chunks_indexed = 0, updated_at = now()
                 WHERE id = $1 AND worker = $2",
                id.uuid(),
                worker,
                fault.kind,
                fault.detail
            )
            .execute(&mut *transaction)
            .await?;
            if failed.rows_affected() > 0 {
                let book = id.uuid();
                sqlx::query!("DELETE FROM skills_book_chunks WHERE book_id = $1", book)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await
        })
        .await
    }
}

/// What a chunk is found by.
fn searched(chunk: &NewChunk) -> String {
    let heading = chunk.heading.as_deref().unwrap_or_default();
    format!("{heading}\n{}", chunk.text).to_lowercase()
}
