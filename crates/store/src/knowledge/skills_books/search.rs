//! Search in one skills book: the same ranking as for memories, in the language of the book.

use switchboard_protocol::id::SkillsBookId;

use crate::{Owner, QueryEmbedding, Store, StoreError, database::with_timeout};

/// A chunk that matches a query.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkMatch {
    /// Its number, from 0.
    pub number: i32,
    /// The headings above it, outermost first.
    pub heading: Option<String>,
    /// The page on which it begins, from 1.
    pub page: Option<i32>,
    /// Its text.
    pub text: String,
    /// From 0 to 1: how much of the query it matches, and how often. With an embedding, by its
    /// ranks in the text search and in the vector search.
    pub score: f64,
}

impl Store {
    /// The chunks of a book that match a query, best first; of equal ones the first.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn search_skills_book(
        &self,
        reader: Owner,
        id: SkillsBookId,
        question: &str,
        embedding: Option<&QueryEmbedding>,
        limit: u32,
    ) -> Result<Vec<ChunkMatch>, StoreError> {
        // No chunk contains NUL, and the server rejects it.
        if question.contains('\0') {
            return Ok(Vec::new());
        }
        let nearest = self.nearest_chunks(reader, id, embedding).await;
        let query = sqlx::query_as!(
            ChunkMatch,
            r#"WITH asked AS MATERIALIZED (
                   SELECT id, search_query($3, lower(split_part(locale, '-', 1))) AS query
                   FROM skills_books WHERE id = $1 AND (org_id = $2 OR org_id IS NULL)),
               found AS (
                   SELECT c.number, ts_rank('{1,1,1,1}', c.terms, asked.query) AS score
                   FROM skills_book_chunks c JOIN asked ON c.book_id = asked.id
                   WHERE c.terms @@ asked.query
                   ORDER BY score DESC, c.number LIMIT greatest($4::bigint, cardinality($5::integer[]))),
               by_words AS (SELECT number, score, row_number() OVER (ORDER BY score DESC, number) AS place FROM found),
               by_meaning AS (SELECT number, place FROM UNNEST($5::integer[]) WITH ORDINALITY AS nearest (number, place)),
               best AS (
                   SELECT coalesce(w.number, n.number) AS number,
                          CASE WHEN $5::integer[] IS NULL THEN w.score ELSE fused_score(w.place, n.place) END AS score
                   FROM by_words w FULL JOIN by_meaning n ON n.number = w.number
                   ORDER BY score DESC, number LIMIT $4)
               SELECT c.number, c.heading, c.page, c.text, best.score::float8 AS "score!"
               FROM asked JOIN skills_book_chunks c ON c.book_id = asked.id JOIN best ON best.number = c.number
               ORDER BY best.score DESC, c.number"#,
            id.uuid(),
            reader.column(),
            question.to_lowercase(),
            i64::from(limit),
            nearest.as_deref() as Option<&[i32]>
        );
        with_timeout(async { query.fetch_all(&mut *self.search_conn(reader).await?).await }).await
    }
}
