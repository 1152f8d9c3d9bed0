//! Processing of skills books by workers: leases, and chunks that are counted as they are stored.
//! Invariant: chunks are numbered without gaps or duplicates, and a worker whose lease was taken
//! over can no longer write.

use std::time::Duration;

use switchboard_protocol::id::SkillsBookId;
use uuid::Uuid;

use super::BookFault;
use crate::{
    Owner, Store, StoreError,
    database::{interval, job_turn::JobTurn, with_timeout},
};

/// A book that is leased to a worker.
#[derive(Debug, Clone)]
pub struct BookJob {
    /// Its id.
    pub id: SkillsBookId,
    /// Its owner.
    pub owner: Owner,
    /// The media type, which selects the parser.
    pub mime_type: String,
    /// Its size in bytes.
    pub size_bytes: i64,
    /// Number of attempts since a chunk was last stored, this one included.
    pub attempts: i32,
}

/// A chunk to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChunk {
    /// The headings above it, outermost first.
    pub heading: Option<String>,
    /// The page on which it begins, from 1.
    pub page: Option<i32>,
    /// Its text.
    pub text: String,
}

impl Store {
    /// Claims a book that is ready for processing and not leased, of the owner whose turn it is.
    /// Books of suspended organisations wait.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn claim_skills_book(
        &self,
        worker: Uuid,
        lease: Duration,
        turn: &mut JobTurn,
    ) -> Result<Option<BookJob>, StoreError> {
        loop {
            if let Some(job) = self.claim_next_book(worker, lease, turn).await? {
                turn.served(job.owner);
                return Ok(Some(job));
            }
            if !turn.restart() {
                return Ok(None);
            }
        }
    }

    async fn claim_next_book(
        &self,
        worker: Uuid,
        lease: Duration,
        turn: &JobTurn,
    ) -> Result<Option<BookJob>, StoreError> {
        // The join stops at the first book: the owners come in their order.
        let query = sqlx::query!(
            "WITH RECURSIVE owners AS (
               (SELECT coalesce(org_id, '00000000-0000-0000-0000-000000000000') AS owner FROM skills_books
                WHERE state IN ('parsing', 'indexing') AND coalesce(org_id, '00000000-0000-0000-0000-000000000000') >= $3
                ORDER BY coalesce(org_id, '00000000-0000-0000-0000-000000000000') LIMIT 1)
               UNION ALL
               SELECT (SELECT coalesce(org_id, '00000000-0000-0000-0000-000000000000') FROM skills_books
                       WHERE state IN ('parsing', 'indexing')
                         AND coalesce(org_id, '00000000-0000-0000-0000-000000000000') > owners.owner
                       ORDER BY coalesce(org_id, '00000000-0000-0000-0000-000000000000') LIMIT 1)
               FROM owners WHERE owners.owner IS NOT NULL),
             next AS (
               SELECT book.id AS book_id FROM owners
               CROSS JOIN LATERAL (
                 SELECT id FROM skills_books
                 WHERE coalesce(org_id, '00000000-0000-0000-0000-000000000000') = owners.owner
                   AND state IN ('parsing', 'indexing') AND (leased_until IS NULL OR leased_until < now())
                 ORDER BY updated_at LIMIT 1 FOR UPDATE SKIP LOCKED) book
               WHERE owners.owner <> ALL ($4 || ARRAY(SELECT id FROM orgs WHERE suspended_at IS NOT NULL)) LIMIT 1)
             UPDATE skills_books SET worker = $1, leased_until = now() + $2::interval, attempts = attempts + 1
             WHERE id = (SELECT book_id FROM next)
             RETURNING id, org_id, mime_type, size_bytes, attempts",
            worker,
            interval(lease),
            turn.first(),
            turn.busy()
        );
        let row =
            with_timeout(async { query.fetch_optional(&mut *self.system_conn().await?).await })
                .await?;
        Ok(row.map(|row| BookJob {
            id: SkillsBookId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            mime_type: row.mime_type,
            size_bytes: row.size_bytes,
            attempts: row.attempts,
        }))
    }

    /// Extends the lease; false if the book is no longer leased to this worker.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
        self.execute_leased(query).await
    }

    /// Releases a book for other workers after `delay`; this attempt does not count.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn release_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        delay: Duration,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE skills_books SET worker = NULL, leased_until = now() + $3::interval, attempts = greatest(attempts - 1, 0)
             WHERE id = $1 AND worker = $2",
            id.uuid(),
            worker,
            interval(delay)
        );
        self.execute_leased(query).await.map(drop)
    }

    /// Sets the number of chunks of a book. Returns how many of them are already stored, or `None`
    /// if the book is no longer leased to this worker. Chunks of a different result, by another
    /// version of this program, are deleted.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn begin_indexing_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        chunks: i32,
        sha256: &[u8],
    ) -> Result<Option<i32>, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_system().await?;
            let book = sqlx::query!(
                "SELECT chunks_indexed, chunks_sha256 FROM skills_books WHERE id = $1 AND worker = $2 FOR UPDATE",
                id.uuid(),
                worker
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(book) = book else {
                return Ok(None);
            };
            let is_same = book.chunks_sha256.as_deref() == Some(sha256);
            let indexed = if is_same { book.chunks_indexed } else { 0 };
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

    /// Stores chunks, numbered from `first`; false if the book is no longer leased to this worker.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
        let search_texts: Vec<_> = chunks.iter().map(search_text).collect();
        with_timeout(async {
            let mut transaction = self.begin_system().await?;
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
                &search_texts
            )
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(true)
        })
        .await
    }

    /// Completes a book whose chunks are all stored; false if some are missing, or it is not leased
    /// to this worker.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
        self.execute_leased(query).await
    }

    /// Fails a book that cannot be processed, and deletes its chunks.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn fail_skills_book(
        &self,
        worker: Uuid,
        id: SkillsBookId,
        fault: &BookFault,
    ) -> Result<(), StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_system().await?;
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

/// The text by which a chunk is found.
fn search_text(chunk: &NewChunk) -> String {
    let heading = chunk.heading.as_deref().unwrap_or_default();
    format!("{heading}\n{}", chunk.text).to_lowercase()
}
