//! The parts of skills books: written one by one, held together by the hash of the whole.
//! Never: a book held in memory, or one that is read before its hash was right.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use switchboard_protocol::id::SkillsBookId;
use uuid::Uuid;

use super::{BookState, SkillsBook, SkillsBookError};
use crate::{
    Store, StoreError,
    database::{bounded, interval},
    objects::{ObjectKey, Objects, hex},
    owner::Owner,
};

/// How many missing parts are named.
const NAMED: usize = 100;

/// What became of a part that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartWrite {
    /// It is written; so many bytes of the book are there now.
    Written {
        /// In all of its parts.
        bytes_received: i64,
    },
    /// The owner has no such book.
    Unknown,
    /// The book takes no parts any more.
    NotUploading(BookState),
    /// With this part, the book would be larger than declared.
    TooLarge {
        /// How many bytes it was declared to have.
        declared: i64,
        /// How many it would have.
        would_be: i64,
    },
}

/// What became of a book that was to be finished.
#[derive(Debug, Clone, PartialEq)]
pub enum BookFinish {
    /// It is whole and is being read, or has been.
    Accepted(Box<SkillsBook>),
    /// The owner has no such book.
    Unknown,
    /// It failed or was cancelled.
    Over(BookState),
    /// Parts are missing.
    Missing {
        /// The first of them.
        parts: Vec<i32>,
        /// How many there are in all.
        count: usize,
    },
    /// The parts have another size than was declared.
    WrongSize {
        /// As declared.
        declared: i64,
        /// As sent.
        sent: i64,
    },
    /// The parts have another hash than was declared.
    WrongHash {
        /// As sent; lower-case hexadecimal digits.
        sent: String,
    },
    /// A part was written while the hash was made.
    Changed,
}

/// A part as it is stored.
struct Part {
    number: i32,
    object: Uuid,
    size_bytes: i64,
}

impl Store {
    /// Writes one part: first its bytes, then its row. What was under this number before goes.
    ///
    /// # Errors
    /// [`SkillsBookError`] when there is no object store, or one of the two stores fails.
    pub async fn write_skills_book_part(
        &self,
        owner: Owner,
        id: SkillsBookId,
        number: i32,
        bytes: Bytes,
    ) -> Result<PartWrite, SkillsBookError> {
        let objects = self.objects().ok_or(SkillsBookError::NoObjects)?;
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        // Asked first without a lock, so that nothing is stored that is then thrown away.
        let room = bounded(async {
            let mut connection = self.within(owner).await?;
            room(&mut connection, owner, id, (number, size), false).await
        });
        if let Err(refusal) = room.await? {
            return Ok(refusal);
        }
        let object = Uuid::now_v7();
        let key = ObjectKey::skills_book_part(owner, id, object);
        objects.put(&key, bytes).await?;
        let entered = bounded(self.enter_part(owner, id, (number, size), object)).await;
        match entered {
            Ok(Ok((bytes_received, before))) => {
                if let Some(before) = before {
                    self.remove_part(owner, id, before).await;
                }
                Ok(PartWrite::Written { bytes_received })
            }
            Ok(Err(refusal)) => {
                self.remove_part(owner, id, object).await;
                Ok(refusal)
            }
            // Whether the row is there is not known: the bytes stay until they are found to be left over.
            Err(error) => Err(error.into()),
        }
    }

    /// Enters a part whose bytes are stored: how many bytes are there now, and which object it replaced.
    async fn enter_part(
        &self,
        owner: Owner,
        id: SkillsBookId,
        (number, size): (i32, i64),
        object: Uuid,
    ) -> Result<Result<(i64, Option<Uuid>), PartWrite>, sqlx::Error> {
        let mut transaction = self.begin_within(owner).await?;
        let room = room(&mut transaction, owner, id, (number, size), true).await?;
        let bytes_received = match room {
            Ok(bytes_received) => bytes_received,
            Err(refusal) => return Ok(Err(refusal)),
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

    /// Finishes a book: when all of its parts are there and have the size and hash that were declared, it is read.
    /// Finishing it again changes nothing.
    ///
    /// # Errors
    /// [`SkillsBookError`] when there is no object store, or one of the two stores fails.
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
        let Some(book) =
            bounded(async { query.fetch_optional(&mut *self.within(owner).await?).await }).await?
        else {
            return Ok(BookFinish::Unknown);
        };
        match BookState::from_column(&book.state) {
            BookState::Uploading => {}
            over @ (BookState::Failed | BookState::Cancelled) => return Ok(BookFinish::Over(over)),
            _ => return self.finished(owner, id).await,
        }
        // Read after the revision: a part that is written in between is noticed at the end.
        let parts = self.parts(owner, id).await?;
        if let Some(refusal) = incomplete(&parts, book.size_bytes) {
            return Ok(refusal);
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
        bounded(async { query.execute(&mut *self.within(owner).await?).await }).await?;
        self.finished(owner, id).await
    }

    /// What a book is that was finished, just now or before.
    async fn finished(
        &self,
        owner: Owner,
        id: SkillsBookId,
    ) -> Result<BookFinish, SkillsBookError> {
        let Some(book) = self.skills_book(owner, id).await? else {
            return Ok(BookFinish::Unknown);
        };
        Ok(match book.state {
            BookState::Uploading => BookFinish::Changed,
            BookState::Cancelled => BookFinish::Over(book.state),
            _ => BookFinish::Accepted(Box::new(book)),
        })
    }

    /// Gives up books of which no part has come for this long, a number of them at a time; says how many.
    ///
    /// # Errors
    /// [`SkillsBookError`] when there is no object store or the database fails.
    pub async fn cancel_abandoned_skills_books(
        &self,
        after: Duration,
    ) -> Result<usize, SkillsBookError> {
        let query = sqlx::query!(
            "SELECT id, org_id FROM skills_books WHERE state = 'uploading' AND updated_at <= now() - $1::interval
             ORDER BY updated_at LIMIT 100",
            interval(after)
        );
        let abandoned =
            bounded(async { query.fetch_all(&mut *self.throughout().await?).await }).await?;
        for book in &abandoned {
            let owner = Owner::from_column(book.org_id);
            self.cancel_skills_book(owner, SkillsBookId::from_uuid(book.id))
                .await?;
        }
        Ok(abandoned.len())
    }

    async fn parts(&self, owner: Owner, id: SkillsBookId) -> Result<Vec<Part>, StoreError> {
        let query = sqlx::query_as!(
            Part,
            "SELECT number, object, size_bytes FROM skills_book_parts WHERE book_id = $1 ORDER BY number",
            id.uuid()
        );
        bounded(async { query.fetch_all(&mut *self.within(owner).await?).await }).await
    }

    /// Where the parts of a book are, in their order.
    ///
    /// # Errors
    /// As every query.
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

/// How many bytes the book has with this part, if it takes it.
async fn room(
    connection: &mut PgConnection,
    owner: Owner,
    id: SkillsBookId,
    (number, size): (i32, i64),
    held: bool,
) -> Result<Result<i64, PartWrite>, sqlx::Error> {
    if held {
        // One at a time from here on, until the transaction ends.
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

/// Why these parts are not the whole of a book of this size.
fn incomplete(parts: &[Part], declared: i64) -> Option<BookFinish> {
    let last = parts.last().map_or(0, |part| part.number);
    let mut there = parts.iter().map(|part| part.number).peekable();
    let missing: Vec<i32> = (1..=last.max(1))
        .filter(|number| there.next_if_eq(number).is_none())
        .collect();
    if !missing.is_empty() {
        let count = missing.len();
        let parts = missing.into_iter().take(NAMED).collect();
        return Some(BookFinish::Missing { parts, count });
    }
    let sent = parts.iter().map(|part| part.size_bytes).sum();
    (sent != declared).then_some(BookFinish::WrongSize { declared, sent })
}

/// The hash of all parts, one after the other; only one is in memory at a time.
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
        // Some milliseconds that no other request should wait for.
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
    fn what_is_missing_is_named() {
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
            panic!("something is missing");
        };
        assert_eq!((parts.len(), count), (NAMED, 9_999));
    }
}
