//! Skills books as agents read them: those that are ready, what is in them, and one chunk.
//! Never: a book that is not ready, or one that the organisation does not see.

use switchboard_protocol::id::{OrgId, SkillsBookId};
use uuid::Uuid;

use crate::{ListedResource, Store, StoreError, database::bounded, id_names};

/// What stands before the id in a book's URI.
const URIS: &str = "switchboard://skills-books/";

/// Which of the ready books are meant.
#[derive(Debug, Clone, Copy, Default)]
pub struct BookFilter<'a> {
    /// Those among these; all when not given.
    pub among: Option<&'a [SkillsBookId]>,
    /// Those whose id or name begins so; the case of the name does not matter.
    pub begins: &'a str,
}

/// A book that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyBook {
    /// Its id.
    pub id: SkillsBookId,
    /// What people call it.
    pub name: String,
    /// What it was sent as.
    pub mime_type: String,
    /// How many chunks it has; the first is 0.
    pub chunks: i32,
}

/// Where something begins in a book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookPlace {
    /// The first chunk of it.
    pub chunk: i32,
    /// The headings above it, outermost first.
    pub heading: Option<String>,
    /// The page on which the chunk begins, from 1.
    pub page: Option<i32>,
}

/// A chunk that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookChunk {
    /// Where it is.
    pub place: BookPlace,
    /// What it says.
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
    /// What all URIs of books begin with.
    pub const URIS: &str = URIS;

    /// Where agents read a book.
    #[must_use]
    pub fn uri_of(id: SkillsBookId) -> String {
        format!("{URIS}{id}")
    }

    fn listed(self) -> ListedResource {
        let description = format!(
            "A skills book ({}) of {} chunks: what is in it, and how to read and search it",
            self.mime_type, self.chunks
        );
        ListedResource {
            uri: Self::uri_of(self.id),
            name: self.id.to_string(),
            title: self.name,
            description: Some(description),
            mime_type: "application/json".to_owned(),
            size_bytes: None,
        }
    }
}

impl Store {
    /// Ready books that an organisation reads, its own and the installation's, in the order of their ids, strictly
    /// after `after`.
    ///
    /// # Errors
    /// As every query.
    pub async fn ready_skills_books(
        &self,
        org: OrgId,
        filter: BookFilter<'_>,
        after: Option<SkillsBookId>,
        limit: u32,
    ) -> Result<Vec<ReadyBook>, StoreError> {
        // No name has one, and the server takes none.
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
        let rows = bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
        Ok(rows.into_iter().map(ReadyBook::from).collect())
    }

    /// The same as resources, in byte order of their URIs, strictly after `after`.
    ///
    /// # Errors
    /// As every query.
    pub async fn list_skills_book_resources(
        &self,
        org: OrgId,
        among: Option<&[SkillsBookId]>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        let Some(behind) = id_names::goes_on_behind(after, URIS) else {
            return Ok(Vec::new());
        };
        let filter = BookFilter { among, begins: "" };
        let books = self.ready_skills_books(org, filter, behind, limit).await?;
        Ok(books.into_iter().map(ReadyBook::listed).collect())
    }

    /// Where another heading or another page begins in a ready book, in order; the first `limit` of these places.
    ///
    /// # Errors
    /// As every query.
    pub async fn skills_book_places(
        &self,
        org: OrgId,
        id: SkillsBookId,
        limit: u32,
    ) -> Result<Vec<BookPlace>, StoreError> {
        let query = sqlx::query_as!(
            BookPlace,
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
        bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await
    }

    /// One chunk of a ready book.
    ///
    /// # Errors
    /// As every query.
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
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(org).await?).await }).await?;
        Ok(row.map(|row| BookChunk {
            place: BookPlace {
                chunk: row.number,
                heading: row.heading,
                page: row.page,
            },
            text: row.text,
        }))
    }
}
