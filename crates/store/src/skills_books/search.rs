//! What a skills book says about a question: by words, by the characters of languages without word breaks, and by likeness.
//! Never: a chunk of a book that the reader does not see.

use switchboard_protocol::id::SkillsBookId;

use super::unspaced;
use crate::{Store, StoreError, database::bounded, owner::Owner};

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
    /// How well it fits, 0 to 1; says something only beside others of the same answer.
    pub score: f64,
}

impl Store {
    /// The chunks of a book that fit a question best, the best one first. A chunk that has some of the words is found,
    /// one that has more of them comes before it; a word that is spelt slightly differently is found by its likeness.
    ///
    /// # Errors
    /// As every query.
    pub async fn search_skills_book(
        &self,
        reader: Owner,
        id: SkillsBookId,
        question: &str,
        limit: u32,
    ) -> Result<Vec<FoundChunk>, StoreError> {
        let quoted = unspaced::question(question).into_iter();
        let unspaced: Vec<_> = quoted.map(|term| format!("'{term}'")).collect();
        let query = sqlx::query_as!(
            FoundChunk,
            r#"WITH book AS (SELECT id FROM skills_books WHERE id = $1 AND (org_id = $2 OR org_id IS NULL)),
                    words AS (SELECT replace(plainto_tsquery('english', $3)::text, '&', '|')::tsquery AS any_of),
                    asked AS (SELECT coalesce(any_of || nullif($4, '')::tsquery, any_of) AS terms FROM words),
                    by_terms AS (SELECT c.number, ts_rank(c.terms, asked.terms, 33) AS rank
                                 FROM skills_book_chunks c, book, asked
                                 WHERE c.book_id = book.id AND c.terms @@ asked.terms
                                 ORDER BY rank DESC, c.number LIMIT 200),
                    by_likeness AS (SELECT c.number, 0::real AS rank FROM skills_book_chunks c, book
                                    WHERE c.book_id = book.id AND $3 <% c.text
                                    ORDER BY word_similarity($3, c.text) DESC, c.number LIMIT 200),
                    found AS (SELECT number, max(rank) AS rank
                              FROM (SELECT * FROM by_terms UNION ALL SELECT * FROM by_likeness) both_ways GROUP BY number)
               SELECT c.number, c.heading, c.page, c.text,
                      ((found.rank + word_similarity($3, c.text)) / 2)::double precision AS "score!"
               FROM found JOIN skills_book_chunks c ON c.book_id = $1 AND c.number = found.number
               ORDER BY "score!" DESC, c.number LIMIT $5"#,
            id.uuid(),
            reader.column(),
            question,
            unspaced.join(" | "),
            i64::from(limit)
        );
        bounded(query.fetch_all(&self.pool)).await
    }
}
