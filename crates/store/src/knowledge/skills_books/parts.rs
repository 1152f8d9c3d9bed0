//! The parts of skills books: uploaded one by one and verified by the hash of the whole.
//! Invariant: at most one part of a book is in memory, and a book is processed only after its hash
//! was verified.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use switchboard_protocol::id::SkillsBookId;
use uuid::Uuid;

use super::{BookState, SkillsBook, SkillsBookError};
use crate::{
    Owner, Store, StoreError,
    database::{interval, with_timeout},
    media::objects::{ObjectKey, Objects, hex},
};

/// How many missing parts a response lists.
const MAX_LISTED_PARTS: usize = 100;

/// The result of uploading a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartWrite {
    /// It was written.
    Written {
        /// The size of all parts in bytes.
        bytes_received: i64,
    },
    /// The owner has no such book.
    Unknown,
    /// The book accepts no further parts.
    NotUploading(BookState),
    /// With this part, the book would exceed its declared size.
    TooLarge {
        /// The declared size in bytes.
        declared: i64,
        /// The resulting size in bytes.
        would_be: i64,
    },
}

/// The result of finishing an upload.
#[derive(Debug, Clone, PartialEq)]
pub enum BookFinish {
    /// The upload is complete; the book is being processed, or has been.
    Accepted(Box<SkillsBook>),
    /// The owner has no such book.
    Unknown,
    /// It has failed or was cancelled.
    Ended(BookState),
    /// Parts are missing.
    Missing {
        /// The first missing parts.
        parts: Vec<i32>,
        /// How many are missing.
        count: usize,
    },
    /// The size differs from the declared one.
    WrongSize {
        /// The declared size in bytes.
        declared: i64,
        /// The uploaded size in bytes.
        sent: i64,
    },
    /// The hash differs from the declared one.
    WrongHash {
        /// The hash of the upload; lower-case hexadecimal digits.
        sent: String,
    },
    /// A part was written while the hash was computed.
    Changed,
}

/// A stored part.
struct Part {
    number: i32,
    object: Uuid,
    size_bytes: i64,
}

impl Store {
    /// Writes one part: first its bytes, then its row. A previous part with this number is
    /// replaced.
    ///
    /// # Errors
    /// [`SkillsBookError`] if there is no object store, or if one of the two stores fails.
    pub async fn write_skills_book_part(
        &self,
        owner: Owner,
        id: SkillsBookId,
        number: i32,
        bytes: Bytes,
    ) -> Result<PartWrite, SkillsBookError> {
        let objects = self.objects().ok_or(SkillsBookError::NoObjects)?;
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        // Checked first without a lock, so that nothing is stored in vain.
        let checked = with_timeout(async {
            let mut connection = self.tenant_conn(owner).await?;
            check_part(&mut connection, owner, id, (number, size), false).await
        });
        if let Err(rejection) = checked.await? {
            return Ok(rejection);
        }
        let object = Uuid::now_v7();
        let key = ObjectKey::skills_book_part(owner, id, object);
        objects.put(&key, bytes).await?;
        let inserted = with_timeout(self.insert_part(owner, id, (number, size), object)).await;
        match inserted {
            Ok(Ok((bytes_received, before))) => {
                if let Some(before) = before {
                    self.delete_part_object(owner, id, before).await;
                }
                Ok(PartWrite::Written { bytes_received })
            }
            Ok(Err(rejection)) => {
                self.delete_part_object(owner, id, object).await;
                Ok(rejection)
            }
            // The row may exist, so the bytes remain. If not, they are deleted as orphans.
            Err(error) => Err(error.into()),
        }
    }

    /// Inserts the row of a part whose bytes are stored. Returns the new total size, and the object
    /// that it replaced.
    async fn insert_part(
        &self,
        owner: Owner,
        id: SkillsBookId,
        (number, size): (i32, i64),
        object: Uuid,
    ) -> Result<Result<(i64, Option<Uuid>), PartWrite>, sqlx::Error> {
        let mut transaction = self.begin_tenant(owner).await?;
        let checked = check_part(&mut transaction, owner, id, (number, size), true).await?;
        let bytes_received = match checked {
            Ok(bytes_received) => bytes_received,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let before = sqlx::query_scalar!(
            "SELECT object FROM skills_book_parts WHERE book_id = $1 AND number = $2",
            id.uuid(),
            number
        )
        .fetch_optional(&mut *transaction)
        .await?;
        sqlx::query!(
            "INSERT INTO skills_book_parts (book_id, number, object, size_bytes) VALUES ($1, $2, $3, $4)
             ON CONFLICT (book_id, number) DO UPDATE SET object = excluded.object, size_bytes = excluded.size_bytes",
            id.uuid(),
            number,
            object,
            size
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query!(
            "UPDATE skills_books SET revision = revision + 1, updated_at = now() WHERE id = $1",
            id.uuid()
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Ok((bytes_received, before)))
    }

    /// Finishes an upload: if all parts are present and match the declared size and hash,
    /// processing begins. Finishing again changes nothing.
    ///
    /// # Errors
    /// [`SkillsBookError`] if there is no object store, or if one of the two stores fails.
    pub async fn finish_skills_book(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<BookFinish, SkillsBookError> {
        let objects = self.objects().ok_or(SkillsBookError::NoObjects)?;
        let query = sqlx::query!(
            "SELECT state, revision, size_bytes, sha256 FROM skills_books
             WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2",
            id.uuid(),
            owner.column()
        );
        let Some(book) = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(owner).await?)
                .await
        })
        .await?
        else {
            return Ok(BookFinish::Unknown);
        };
        match BookState::from_column(&book.state) {
            BookState::Uploading => {}
            ended @ (BookState::Failed | BookState::Cancelled) => {
                return Ok(BookFinish::Ended(ended));
            }
            _ => return self.finish_result(owner, id).await,
        }
        // Read after the revision: a part that is written in between is detected at the end.
        let parts = self.parts(owner, id).await?;
        if let Some(rejection) = incomplete(&parts, book.size_bytes) {
            return Ok(rejection);
        }
        let sent = hash(objects, owner, id, &parts).await?;
        if sent != book.sha256 {
            return Ok(BookFinish::WrongHash { sent: hex(&sent) });
        }
        let query = sqlx::query!(
            "UPDATE skills_books SET state = 'parsing', updated_at = now()
             WHERE id = $1 AND state = 'uploading' AND revision = $2",
            id.uuid(),
            book.revision
        );
        with_timeout(async { query.execute(&mut *self.tenant_conn(owner).await?).await }).await?;
        self.finish_result(owner, id).await
    }

    /// The result for a book that was finished, just now or before.
    async fn finish_result(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<BookFinish, SkillsBookError> {
        let Some(book) = self.skills_book(owner, id).await? else {
            return Ok(BookFinish::Unknown);
        };
        Ok(match book.state {
            BookState::Uploading => BookFinish::Changed,
            BookState::Cancelled => BookFinish::Ended(book.state),
            _ => BookFinish::Accepted(Box::new(book)),
        })
    }

    /// Cancels a batch of books without a new part for this long; returns them.
    ///
    /// # Errors
    /// [`SkillsBookError`] if there is no object store or the database fails.
    pub async fn cancel_abandoned_skills_books(
        &self,
        after: Duration,
    ) -> Result<Vec<(Owner, SkillsBookId)>, SkillsBookError> {
        let query = sqlx::query!(
            "SELECT id, org_id FROM skills_books WHERE state = 'uploading' AND updated_at <= now() - $1::interval
             ORDER BY updated_at LIMIT 100",
            interval(after)
        );
        let abandoned =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        let mut cancelled = Vec::new();
        for book in abandoned {
            let owner = Owner::from_column(book.org_id);
            let id = SkillsBookId::from_uuid(book.id);
            self.cancel_skills_book(owner, id).await?;
            cancelled.push((owner, id));
        }
        Ok(cancelled)
    }

    async fn parts(&self, owner: Owner, id: SkillsBookId) -> Result<Vec<Part>, StoreError> {
        let query = sqlx::query_as!(
            Part,
            "SELECT number, object, size_bytes FROM skills_book_parts WHERE book_id = $1 ORDER BY number",
            id.uuid()
        );
        with_timeout(async { query.fetch_all(&mut *self.tenant_conn(owner).await?).await }).await
    }

    /// The object keys of a book's parts, in order.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn skills_book_objects(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<Vec<ObjectKey>, StoreError> {
        let parts = self.parts(owner, id).await?.into_iter();
        Ok(parts
            .map(|part| ObjectKey::skills_book_part(owner, id, part.object))
            .collect())
    }
}

/// The size of the book with this part in bytes, or why the part is rejected.
async fn check_part(
    connection: &mut PgConnection,
    owner: Owner,
    id: SkillsBookId,
    (number, size): (i32, i64),
    lock: bool,
) -> Result<Result<i64, PartWrite>, sqlx::Error> {
    if lock {
        // Serialises uploads to this book until the transaction ends.
        sqlx::query!(
            "SELECT id FROM skills_books WHERE id = $1 FOR UPDATE",
            id.uuid()
        )
        .fetch_optional(&mut *connection)
        .await?;
    }
    let found = sqlx::query!(
        r#"SELECT state, size_bytes,
                  (SELECT coalesce(sum(p.size_bytes), 0)::bigint FROM skills_book_parts p
                   WHERE p.book_id = b.id AND p.number <> $3) AS "others!"
           FROM skills_books b WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2"#,
        id.uuid(),
        owner.column(),
        number
    )
    .fetch_optional(connection)
    .await?;
    let Some(book) = found else {
        return Ok(Err(PartWrite::Unknown));
    };
    let state = BookState::from_column(&book.state);
    if state != BookState::Uploading {
        return Ok(Err(PartWrite::NotUploading(state)));
    }
    let would_be = book.others.saturating_add(size);
    if would_be > book.size_bytes {
        let declared = book.size_bytes;
        return Ok(Err(PartWrite::TooLarge { declared, would_be }));
    }
    Ok(Ok(would_be))
}

/// Why these parts are not a complete book of this size.
fn incomplete(parts: &[Part], declared: i64) -> Option<BookFinish> {
    let last = parts.last().map_or(0, |part| part.number);
    let mut there = parts.iter().map(|part| part.number).peekable();
    let missing: Vec<i32> = (1..=last.max(1))
        .filter(|number| there.next_if_eq(number).is_none())
        .collect();
    if !missing.is_empty() {
        let count = missing.len();
        let parts = missing.into_iter().take(MAX_LISTED_PARTS).collect();
        return Some(BookFinish::Missing { parts, count });
    }
    let sent = parts.iter().map(|part| part.size_bytes).sum();
    (sent != declared).then_some(BookFinish::WrongSize { declared, sent })
}

/// The hash of all parts in order; only one of them is in memory at a time.
async fn hash(
    objects: &Objects,
    owner: Owner,
    id: SkillsBookId,
    parts: &[Part],
) -> Result<Vec<u8>, SkillsBookError> {
    let mut hasher = Sha256::new();
    for part in parts {
        let key = ObjectKey::skills_book_part(owner, id, part.object);
        let bytes = objects.get(&key).await?;
        // Hashing takes milliseconds; it must not block other requests.
        let hashing = tokio::task::spawn_blocking(move || {
            hasher.update(&bytes);
            hasher
        });
        hasher = hashing.await.map_err(|_| StoreError::Unavailable(None))?;
    }
    Ok(hasher.finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_listed() {
        fn check(numbers: &[i32], declared: i64, expect: Option<BookFinish>) {
            let part = |number: &i32| Part {
                number: *number,
                object: Uuid::nil(),
                size_bytes: 10,
            };
            let parts: Vec<_> = numbers.iter().map(part).collect();
            assert_eq!(incomplete(&parts, declared), expect, "{numbers:?}");
        }
        let missing = |parts: &[i32]| {
            Some(BookFinish::Missing {
                parts: parts.to_vec(),
                count: parts.len(),
            })
        };
        check(&[1, 2], 20, None);
        check(&[], 20, missing(&[1]));
        check(&[2], 20, missing(&[1]));
        check(&[1, 4], 20, missing(&[2, 3]));
        let (declared, sent) = (21, 20);
        check(&[1, 2], 21, Some(BookFinish::WrongSize { declared, sent }));
        let Some(BookFinish::Missing { parts, count }) = incomplete(
            &[Part {
                number: 10_000,
                object: Uuid::nil(),
                size_bytes: 1,
            }],
            1,
        ) else {
            panic!("parts must be missing");
        };
        assert_eq!((parts.len(), count), (MAX_LISTED_PARTS, 9_999));
    }
}
