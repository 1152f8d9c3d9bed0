//! Memories and pictures as resources, by URI.
//! Invariant: an expired memory is not returned.

use switchboard_catalog::{
    ListedResource, MAX_URI_BYTES, UriTemplate, UriValues, substitute_uri_values,
};
use switchboard_protocol::id::{MemoryId, OrgId, PictureId};
use uuid::Uuid;

use crate::{Owner, Store, StoreError, database::with_timeout, media::objects::ObjectKey};

/// How many resource templates one query returns for matching.
const MATCH_BATCH_SIZE: u32 = 200;
/// How many characters of a memory's text are its title.
pub(crate) const TITLE_CHARS: i32 = 80;

/// A resource with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The requested URI.
    pub uri: String,
    /// The id of the memory or picture.
    pub name: String,
    /// The title for display.
    pub title: String,
    /// A memory's kind and subject.
    pub description: Option<String>,
    /// The media type.
    pub mime_type: String,
    /// The content.
    pub body: ResourceBody,
}

/// The content of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceBody {
    /// Text.
    Text(String),
    /// A picture, in the object store.
    Picture {
        /// The key of its object.
        key: ObjectKey,
        /// Its size in bytes.
        size_bytes: i64,
    },
}

/// A row of `resources` with the columns of a list entry.
pub(crate) struct ListedRow {
    pub(crate) uri: String,
    pub(crate) memory_id: Option<Uuid>,
    pub(crate) picture_id: Option<Uuid>,
    pub(crate) title: String,
    pub(crate) description: Option<String>,
    pub(crate) mime_type: String,
    pub(crate) size_bytes: Option<i64>,
}

impl ListedRow {
    fn name(&self) -> String {
        let memory = self.memory_id.map(|id| MemoryId::from_uuid(id).to_string());
        let picture = self
            .picture_id
            .map(|id| PictureId::from_uuid(id).to_string());
        memory.or(picture).unwrap_or_default()
    }
}

impl From<ListedRow> for ListedResource {
    fn from(row: ListedRow) -> Self {
        Self {
            name: row.name(),
            uri: row.uri,
            title: row.title,
            description: row.description,
            mime_type: row.mime_type,
            size_bytes: row.size_bytes,
        }
    }
}

impl Store {
    /// Memories whose URIs contain no expressions, and pictures, that an organisation can read; in
    /// byte order of their URIs, strictly after `after`. Of two with the same URI, the
    /// organisation's own is returned.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn list_resources(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        let rows = self.resource_page(org, false, after, limit).await?;
        Ok(rows.into_iter().map(ListedResource::from).collect())
    }

    /// Memories whose URIs contain expressions; otherwise like [`Store::list_resources`].
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn list_resource_templates(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        let rows = self.resource_page(org, true, after, limit).await?;
        Ok(rows.into_iter().map(ListedResource::from).collect())
    }

    /// The resource with this URI that an organisation can read. An exact URI is preferred, then a
    /// matching one with expressions: the organisation's own first, then the one with the longest
    /// literal prefix.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn resource_by_uri(
        &self,
        org: OrgId,
        uri: &str,
    ) -> Result<Option<Resource>, StoreError> {
        if uri.len() > MAX_URI_BYTES || uri.contains('\0') {
            return Ok(None);
        }
        if let Some(found) = self.exact_resource(org, uri).await? {
            return Ok(Some(found.into_resource(uri, &UriValues::new())));
        }
        let Some((written, owner, values)) = self.find_template(org, uri).await? else {
            return Ok(None);
        };
        let found = self.resource_by_template(owner, &written).await?;
        Ok(found.map(|found| found.into_resource(uri, &values)))
    }
}

/// A row of `resources` with its content.
pub(crate) struct ResourceRow {
    pub(crate) org_id: Option<Uuid>,
    pub(crate) memory_id: Option<Uuid>,
    pub(crate) picture_id: Option<Uuid>,
    pub(crate) title: String,
    pub(crate) description: Option<String>,
    pub(crate) mime_type: String,
    pub(crate) text: Option<String>,
    pub(crate) object: Option<String>,
    pub(crate) size_bytes: Option<i64>,
}

impl ResourceRow {
    pub(crate) fn into_resource(self, uri: &str, values: &UriValues) -> Resource {
        let memory = self.memory_id.map(|id| MemoryId::from_uuid(id).to_string());
        let picture = self
            .picture_id
            .map(|id| PictureId::from_uuid(id).to_string());
        let body = match (self.text, self.object) {
            (Some(text), _) => {
                ResourceBody::Text(substitute_uri_values(text, &self.mime_type, values))
            }
            (None, object) => {
                let owner = Owner::from_column(self.org_id);
                ResourceBody::Picture {
                    key: ObjectKey::picture(owner, &object.unwrap_or_default()),
                    size_bytes: self.size_bytes.unwrap_or_default(),
                }
            }
        };
        Resource {
            uri: uri.to_owned(),
            name: memory.or(picture).unwrap_or_default(),
            title: self.title,
            description: self.description,
            mime_type: self.mime_type,
            body,
        }
    }
}

impl Store {
    async fn resource_page(
        &self,
        org: OrgId,
        with_expressions: bool,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedRow>, StoreError> {
        // No URI contains NUL, and the server rejects it.
        if after.is_some_and(|after| after.contains('\0')) {
            return Ok(Vec::new());
        }
        let query = sqlx::query_as!(
            ListedRow,
            r#"WITH readable AS NOT MATERIALIZED (
                   SELECT r.* FROM resources r LEFT JOIN memories m ON m.id = r.memory_id
                   WHERE (m.expires_at IS NULL OR m.expires_at > now()) AND r.is_template = $2),
               own AS (SELECT * FROM readable WHERE org_id = $1 AND uri > $3 ORDER BY uri LIMIT $4),
               public AS (SELECT * FROM readable WHERE org_id IS NULL AND uri > $3 ORDER BY uri LIMIT $4),
               page AS (SELECT DISTINCT ON (uri) * FROM (SELECT * FROM own UNION ALL SELECT * FROM public) either
                        ORDER BY uri, org_id NULLS LAST LIMIT $4)
               SELECT page.uri AS "uri!", page.memory_id, page.picture_id,
                      COALESCE(p.name, left(split_part(m.text, E'\n', 1), $5)) AS "title!",
                      NULLIF(concat_ws(', ', m.kind, m.subject), '') AS description,
                      COALESCE(p.mime_type, m.mime_type) AS "mime_type!",
                      CASE WHEN NOT page.is_template THEN COALESCE(p.size_bytes, octet_length(m.text)) END AS size_bytes
               FROM page LEFT JOIN memories m ON m.id = page.memory_id LEFT JOIN pictures p ON p.id = page.picture_id
               ORDER BY page.uri"#,
            org.uuid(),
            with_expressions,
            after.unwrap_or_default(),
            i64::from(limit),
            TITLE_CHARS
        );
        with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await }).await
    }

    /// The resource with exactly this URI, without expressions.
    async fn exact_resource(
        &self,
        org: OrgId,
        uri: &str,
    ) -> Result<Option<ResourceRow>, StoreError> {
        let query = sqlx::query_as!(
            ResourceRow,
            r#"SELECT r.org_id, r.memory_id, r.picture_id,
                      COALESCE(p.name, left(split_part(m.text, E'\n', 1), $3)) AS "title!",
                      NULLIF(concat_ws(', ', m.kind, m.subject), '') AS description,
                      COALESCE(p.mime_type, m.mime_type) AS "mime_type!", m.text AS "text?", p.object AS "object?",
                      p.size_bytes AS "size_bytes?"
               FROM resources r LEFT JOIN memories m ON m.id = r.memory_id LEFT JOIN pictures p ON p.id = r.picture_id
               WHERE r.uri = $2 AND NOT r.is_template AND (r.org_id = $1 OR r.org_id IS NULL)
                     AND (m.expires_at IS NULL OR m.expires_at > now())
               ORDER BY r.org_id NULLS LAST LIMIT 1"#,
            org.uuid(),
            uri,
            TITLE_CHARS
        );
        with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await
    }

    /// The owner's resource whose URI template is exactly this text.
    async fn resource_by_template(
        &self,
        owner: Owner,
        written: &str,
    ) -> Result<Option<ResourceRow>, StoreError> {
        let query = sqlx::query_as!(
            ResourceRow,
            r#"SELECT r.org_id, r.memory_id, r.picture_id, left(split_part(m.text, E'\n', 1), $3) AS "title!",
                      NULLIF(concat_ws(', ', m.kind, m.subject), '') AS description,
                      m.mime_type, m.text AS "text?", NULL::text AS object, NULL::bigint AS size_bytes
               FROM resources r JOIN memories m ON m.id = r.memory_id
               WHERE r.uri = $2 AND r.org_id IS NOT DISTINCT FROM $1
                     AND (m.expires_at IS NULL OR m.expires_at > now())"#,
            owner.column(),
            written,
            TITLE_CHARS
        );
        with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(owner).await?)
                .await
        })
        .await
    }

    /// The URI template that matches this URI, its owner, and the values of its expressions.
    async fn find_template(
        &self,
        org: OrgId,
        uri: &str,
    ) -> Result<Option<(String, Owner, UriValues)>, StoreError> {
        let mut passed = 0_u32;
        loop {
            let query = sqlx::query!(
                r#"SELECT r.org_id, r.uri FROM resources r JOIN memories m ON m.id = r.memory_id
                   WHERE r.is_template AND starts_with($2, r.prefix) AND (r.org_id = $1 OR r.org_id IS NULL)
                         AND (m.expires_at IS NULL OR m.expires_at > now())
                   ORDER BY r.org_id NULLS LAST, octet_length(r.prefix) DESC, r.uri OFFSET $3 LIMIT $4"#,
                org.uuid(),
                uri,
                i64::from(passed),
                i64::from(MATCH_BATCH_SIZE)
            );
            let candidates =
                with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                    .await?;
            let last = candidates.len() < usize::try_from(MATCH_BATCH_SIZE).unwrap_or_default();
            for candidate in candidates {
                let parsed = UriTemplate::parse(&candidate.uri).ok();
                if let Some(values) = parsed.and_then(|template| template.matches(uri)) {
                    let owner = Owner::from_column(candidate.org_id);
                    return Ok(Some((candidate.uri, owner, values)));
                }
            }
            if last {
                return Ok(None);
            }
            passed = passed.saturating_add(MATCH_BATCH_SIZE);
        }
    }
}
