//! What one NPC remembers and shows, as agents read it: its own memories and its template's, and its pictures.
//! Never: what another NPC remembers, or a picture that this one does not show.

use futures_util::TryStreamExt as _;
use switchboard_protocol::id::{PictureId, TemplateId};
use uuid::Uuid;

use super::Npc;
use crate::{
    ListedResource, Resource, Store, StoreError, UriTemplate, UriValues,
    database::bounded,
    resources::{Found, Row, TITLE_CHARS},
    uri_template::LONGEST_URI,
};

impl Npc {
    fn template(&self) -> Option<Uuid> {
        self.settings.template.map(TemplateId::uuid)
    }

    /// The pictures that it shows.
    fn shown(&self) -> Vec<Uuid> {
        let pictures = self.effective.settings.pictures().into_iter();
        pictures.map(PictureId::uuid).collect()
    }

    fn books(&self) -> Vec<Uuid> {
        let books = self.effective.settings.skills_book_ids.iter();
        books.map(|book| book.uuid()).collect()
    }
}

impl Store {
    /// The memories and pictures of an NPC, or those of its memories whose URIs have expressions; otherwise as
    /// [`Store::list_resources`].
    ///
    /// # Errors
    /// As every query.
    pub async fn npc_resources(
        &self,
        npc: &Npc,
        with_expressions: bool,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        // No URI has one, and the server takes none.
        if after.is_some_and(|after| after.contains('\0')) {
            return Ok(Vec::new());
        }
        let query = sqlx::query_as!(
            Row,
            r#"WITH page AS (SELECT DISTINCT ON (uri) * FROM npc_resources($1, $2, $3, $4)
                             WHERE is_template = $5 AND uri > $6 ORDER BY uri, org_id NULLS LAST LIMIT $7)
               SELECT page.uri AS "uri!", page.memory_id, page.picture_id,
                      COALESCE(p.name, left(split_part(m.text, E'\n', 1), $8)) AS "title!",
                      NULLIF(concat_ws(', ', m.kind, m.subject), '') AS description,
                      COALESCE(p.mime_type, m.mime_type) AS "mime_type!",
                      CASE WHEN NOT page.is_template THEN COALESCE(p.size_bytes, octet_length(m.text)) END AS size_bytes
               FROM page LEFT JOIN memories m ON m.id = page.memory_id LEFT JOIN pictures p ON p.id = page.picture_id
               ORDER BY page.uri"#,
            npc.org.uuid(),
            npc.id.uuid(),
            npc.template(),
            &npc.shown(),
            with_expressions,
            after.unwrap_or_default(),
            i64::from(limit),
            TITLE_CHARS
        );
        let rows =
            bounded(async { query.fetch_all(&mut *self.within(npc.org).await?).await }).await?;
        Ok(rows.into_iter().map(ListedResource::from).collect())
    }

    /// What an NPC has under this URI, found as [`Store::resource_by_uri`] finds it.
    ///
    /// # Errors
    /// As every query.
    pub async fn npc_resource_by_uri(
        &self,
        npc: &Npc,
        uri: &str,
    ) -> Result<Option<Resource>, StoreError> {
        if uri.len() > LONGEST_URI || uri.contains('\0') {
            return Ok(None);
        }
        let Some((memory, picture, values)) = bounded(self.npc_match(npc, uri)).await? else {
            return Ok(None);
        };
        let query = sqlx::query_as!(
            Found,
            r#"SELECT r.org_id, r.memory_id, r.picture_id,
                      COALESCE(p.name, left(split_part(m.text, E'\n', 1), $4)) AS "title!",
                      NULLIF(concat_ws(', ', m.kind, m.subject), '') AS description,
                      COALESCE(p.mime_type, m.mime_type) AS "mime_type!", m.text AS "text?", p.object AS "object?",
                      p.size_bytes AS "size_bytes?"
               FROM resources r LEFT JOIN memories m ON m.id = r.memory_id LEFT JOIN pictures p ON p.id = r.picture_id
               WHERE (r.memory_id = $2 OR r.picture_id = $3) AND (r.org_id = $1 OR r.org_id IS NULL)"#,
            npc.org.uuid(),
            memory,
            picture,
            TITLE_CHARS
        );
        let found = bounded(async {
            query
                .fetch_optional(&mut *self.within(npc.org).await?)
                .await
        })
        .await?;
        Ok(found.map(|found| found.read(uri, &values)))
    }

    /// The first that stands under this URI, and what its expressions stand for.
    async fn npc_match(
        &self,
        npc: &Npc,
        uri: &str,
    ) -> Result<Option<(Option<Uuid>, Option<Uuid>, UriValues)>, sqlx::Error> {
        let shown = npc.shown();
        let mut connection = self.within(npc.org).await?;
        let mut candidates = sqlx::query!(
            r#"SELECT uri AS "uri!", memory_id, picture_id FROM npc_resources($1, $2, $3, $4)
               WHERE CASE WHEN is_template THEN starts_with($5, prefix) ELSE uri = $5 END
               ORDER BY is_template, org_id NULLS LAST, octet_length(prefix) DESC, uri"#,
            npc.org.uuid(),
            npc.id.uuid(),
            npc.template(),
            &shown,
            uri
        )
        .fetch(&mut *connection);
        while let Some(candidate) = candidates.try_next().await? {
            let written = UriTemplate::parse(&candidate.uri).ok();
            if let Some(values) = written.and_then(|written| written.matches(uri)) {
                return Ok(Some((candidate.memory_id, candidate.picture_id, values)));
            }
        }
        Ok(None)
    }

    /// Something short that is the same for the same memories, pictures and skills books of an NPC.
    ///
    /// # Errors
    /// As every query.
    pub async fn npc_resources_digest(&self, npc: &Npc) -> Result<String, StoreError> {
        let query = sqlx::query_scalar!(
            r#"SELECT concat_ws(' ',
                   (SELECT sum(hashtextextended(concat(uri, memory_id, picture_id), 0))
                    FROM npc_resources($1, $2, $3, $4)),
                   (SELECT string_agg(id::text, ' ' ORDER BY id) FROM skills_books
                    WHERE id = ANY ($5) AND state = 'ready' AND (org_id = $1 OR org_id IS NULL))) AS "digest!""#,
            npc.org.uuid(),
            npc.id.uuid(),
            npc.template(),
            &npc.shown(),
            &npc.books()
        );
        bounded(async { query.fetch_one(&mut *self.within(npc.org).await?).await }).await
    }
}
