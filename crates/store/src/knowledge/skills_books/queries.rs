//! Ready skills books as resources, their contents, and single chunks.

use switchboard_catalog::ListedResource;
use switchboard_protocol::id::{OrgId, SkillsBookId};
use uuid::Uuid;

use crate::{Store, StoreError, database::with_timeout, settings::id_names};

/// The prefix of a book's URI.
const URI_PREFIX: &str = "switchboard://skills-books/";

/// Restricts a list of ready books.
#[derive(Debug, Clone, Copy, Default)]
pub struct BookFilter<'a> {
    /// Books with one of these ids; all if not given.
    pub among: Option<&'a [SkillsBookId]>,
    /// Books whose id or name begins with this; the name case-insensitively.
    pub begins: &'a str,
}

/// A book that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyBook {
    /// Its id.
    pub id: SkillsBookId,
    /// The display name.
    pub name: String,
    /// The media type of the upload.
    pub mime_type: String,
    /// The number of its chunks; the first is 0.
    pub chunks: i32,
}

/// The beginning of a section in a book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookSection {
    /// Its first chunk.
    pub chunk: i32,
    /// The headings above it, outermost first.
    pub heading: Option<String>,
    /// The page on which the chunk begins, from 1.
    pub page: Option<i32>,
}

/// A chunk with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookChunk {
    /// Its position.
    pub place: BookSection,
    /// Its text.
    pub text: String,
}

struct Row {
    id: Uuid,
    name: String,
    mime_type: String,
    chunks: i32,
}

impl From<Row> for ReadyBook {
    fn from(row: Row) -> Self {
        Self {
            id: SkillsBookId::from_uuid(row.id),
            name: row.name,
            mime_type: row.mime_type,
            chunks: row.chunks,
        }
    }
}

impl ReadyBook {
    /// The prefix of all URIs of books.
    pub const URI_PREFIX: &str = URI_PREFIX;

    /// The resource URI of a book.
    #[must_use]
    pub fn uri(id: SkillsBookId) -> String {
        format!("{URI_PREFIX}{id}")
    }

    fn listed(self) -> ListedResource {
        let description = format!(
            "A skills book ({}) with {} chunks: its contents, and how to read and search it",
            self.mime_type, self.chunks
        );
        ListedResource {
            uri: Self::uri(self.id),
            name: self.id.to_string(),
            title: self.name,
            description: Some(description),
            mime_type: "application/json".to_owned(),
            size_bytes: None,
        }
    }
}

impl Store {
    /// Ready books that an organisation can read, its own and public ones, in the order of their
    /// ids, strictly after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn ready_skills_books(
        &self,
        org: OrgId,
        filter: BookFilter<'_>,
        after: Option<SkillsBookId>,
        limit: u32,
    ) -> Result<Vec<ReadyBook>, StoreError> {
        // No name contains NUL, and the server rejects it.
        if filter.begins.contains('\0') {
            return Ok(Vec::new());
        }
        let among = filter.among.map(|books| {
            let ids = books.iter().map(|book| book.uuid());
            ids.collect::<Vec<_>>()
        });
        let query = sqlx::query_as!(
            Row,
            r#"SELECT id, name, mime_type, chunks_total AS "chunks!" FROM skills_books
               WHERE state = 'ready' AND (org_id = $1 OR org_id IS NULL) AND id > $2
                     AND ($3::uuid[] IS NULL OR id = ANY ($3))
                     AND (starts_with('skb_' || replace(id::text, '-', ''), $4) OR starts_with(lower(name), lower($4)))
               ORDER BY id LIMIT $5"#,
            org.uuid(),
            after.map_or(Uuid::nil(), SkillsBookId::uuid),
            among.as_deref() as Option<&[Uuid]>,
            filter.begins,
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        Ok(rows.into_iter().map(ReadyBook::from).collect())
    }

    /// The same books as resources, in byte order of their URIs, strictly after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn list_skills_book_resources(
        &self,
        org: OrgId,
        among: Option<&[SkillsBookId]>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        let Some(after_id) = id_names::resume_after(after, URI_PREFIX) else {
            return Ok(Vec::new());
        };
        let filter = BookFilter { among, begins: "" };
        let books = self
            .ready_skills_books(org, filter, after_id, limit)
            .await?;
        Ok(books.into_iter().map(ReadyBook::listed).collect())
    }

    /// The first `limit` positions in a ready book at which the heading or the page changes.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn skills_book_sections(
        &self,
        org: OrgId,
        id: SkillsBookId,
        limit: u32,
    ) -> Result<Vec<BookSection>, StoreError> {
        let query = sqlx::query_as!(
            BookSection,
            r#"SELECT number AS "chunk!", heading, page
               FROM (SELECT c.number, c.heading, c.page,
                            lag(c.heading) OVER in_order AS heading_before, lag(c.page) OVER in_order AS page_before
                     FROM skills_book_chunks c JOIN skills_books b ON b.id = c.book_id
                     WHERE c.book_id = $2 AND b.state = 'ready' AND (b.org_id = $1 OR b.org_id IS NULL)
                     WINDOW in_order AS (ORDER BY c.number)) chunks
               WHERE number = 0 OR heading IS DISTINCT FROM heading_before OR page IS DISTINCT FROM page_before
               ORDER BY number LIMIT $3"#,
            org.uuid(),
            id.uuid(),
            i64::from(limit)
        );
        with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await }).await
    }

    /// One chunk of a ready book.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn skills_book_chunk(
        &self,
        org: OrgId,
        id: SkillsBookId,
        number: i32,
    ) -> Result<Option<BookChunk>, StoreError> {
        let query = sqlx::query!(
            "SELECT c.number, c.heading, c.page, c.text FROM skills_book_chunks c JOIN skills_books b ON b.id = c.book_id
             WHERE c.book_id = $2 AND c.number = $3 AND b.state = 'ready' AND (b.org_id = $1 OR b.org_id IS NULL)",
            org.uuid(),
            id.uuid(),
            number
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await?;
        Ok(row.map(|row| BookChunk {
            place: BookSection {
                chunk: row.number,
                heading: row.heading,
                page: row.page,
            },
            text: row.text,
        }))
    }
}
