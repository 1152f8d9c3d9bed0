//! The resources of one NPC: its own memories, those of its template, and its pictures.

use futures_util::TryStreamExt as _;
use switchboard_catalog::{ListedResource, MAX_URI_BYTES, UriTemplate, UriValues};
use switchboard_protocol::id::{PictureId, TemplateId};
use uuid::Uuid;

use super::Npc;
use crate::{
    Resource, Store, StoreError,
    database::with_timeout,
    settings::resources::{ListedRow, ResourceRow, TITLE_CHARS},
};

impl Npc {
    fn template(&self) -> Option<Uuid> {
        self.settings.template.map(TemplateId::uuid)
    }

    /// The pictures of its effective settings.
    fn picture_ids(&self) -> Vec<Uuid> {
        let pictures = self.effective.settings.pictures().into_iter();
        pictures.map(PictureId::uuid).collect()
    }

    fn book_ids(&self) -> Vec<Uuid> {
        let books = self.effective.settings.skills_book_ids.iter();
        books.map(|book| book.uuid()).collect()
    }
}

impl Store {
    /// The memories and pictures of an NPC, or its memories whose URIs contain expressions;
    /// otherwise like [`Store::list_resources`].
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn npc_resources(
        &self,
        npc: &Npc,
        with_expressions: bool,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        // No URI contains NUL, and the server rejects it.
        if after.is_some_and(|after| after.contains('\0')) {
            return Ok(Vec::new());
        }
        let query = sqlx::query_as!(
            ListedRow,
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
            &npc.picture_ids(),
            with_expressions,
            after.unwrap_or_default(),
            i64::from(limit),
            TITLE_CHARS
        );
        let rows = with_timeout(async {
            query
                .fetch_all(&mut *self.tenant_conn(npc.org).await?)
                .await
        })
        .await?;
        Ok(rows.into_iter().map(ListedResource::from).collect())
    }

    /// The resource of an NPC with this URI, matched like [`Store::resource_by_uri`].
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn npc_resource_by_uri(
        &self,
        npc: &Npc,
        uri: &str,
    ) -> Result<Option<Resource>, StoreError> {
        if uri.len() > MAX_URI_BYTES || uri.contains('\0') {
            return Ok(None);
        }
        let Some((memory, picture, values)) = with_timeout(self.npc_match(npc, uri)).await? else {
            return Ok(None);
        };
        let query = sqlx::query_as!(
            ResourceRow,
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
        let found = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(npc.org).await?)
                .await
        })
        .await?;
        Ok(found.map(|found| found.into_resource(uri, &values)))
    }

    /// The first resource whose URI matches, and the values of its expressions.
    async fn npc_match(
        &self,
        npc: &Npc,
        uri: &str,
    ) -> Result<Option<(Option<Uuid>, Option<Uuid>, UriValues)>, sqlx::Error> {
        let pictures = npc.picture_ids();
        let mut connection = self.tenant_conn(npc.org).await?;
        let mut candidates = sqlx::query!(
            r#"SELECT uri AS "uri!", memory_id, picture_id FROM npc_resources($1, $2, $3, $4)
               WHERE CASE WHEN is_template THEN starts_with($5, prefix) ELSE uri = $5 END
               ORDER BY is_template, org_id NULLS LAST, octet_length(prefix) DESC, uri"#,
            npc.org.uuid(),
            npc.id.uuid(),
            npc.template(),
            &pictures,
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

    /// A digest that changes with the memories, pictures and skills books of an NPC.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
            &npc.picture_ids(),
            &npc.book_ids()
        );
        with_timeout(async {
            query
                .fetch_one(&mut *self.tenant_conn(npc.org).await?)
                .await
        })
        .await
    }
}
