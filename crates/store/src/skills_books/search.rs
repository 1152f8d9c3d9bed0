//! What a skills book says about a question: the same search as that of memories, in the language of the book.
//! Never: a chunk of a book that the reader does not see.

use switchboard_protocol::id::SkillsBookId;

use crate::{Meaning, Store, StoreError, database::bounded, owner::Owner};

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundChunk {
    /// Which chunk, from 0.
    pub number: i32,
    /// The headings above it, outermost first.
    pub heading: Option<String>,
    /// The page on which it begins, from 1.
    pub page: Option<i32>,
    /// What it says.
    pub text: String,
    /// From 0 to 1: how much of the question it speaks of, and how often. With a meaning, by its places among those found
    /// by words and among the nearest.
    pub score: f64,
}

impl Store {
    /// The chunks of a book that speak of a question, those that speak of it most first, of those that do so alike the
    /// first.
    ///
    /// # Errors
    /// As every query.
    pub async fn search_skills_book(
        &self,
        reader: Owner,
        id: SkillsBookId,
        question: &str,
        meaning: Option<&Meaning>,
        limit: u32,
    ) -> Result<Vec<FoundChunk>, StoreError> {
        // No chunk has one, and the server takes none.
        if question.contains('\0') {
            return Ok(Vec::new());
        }
        let nearest = self.nearest_chunks(reader, id, meaning).await;
        let query = sqlx::query_as!(
            FoundChunk,
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
        bounded(async { query.fetch_all(&mut *self.searching(reader).await?).await }).await
    }
}
