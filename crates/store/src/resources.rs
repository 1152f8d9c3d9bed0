//! Memories and pictures as agents read them: resources, by URI.
//! Never: a memory that has ended, or anything of another organisation.

use std::collections::BTreeMap;

use switchboard_protocol::id::{MemoryId, OrgId, PictureId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::bounded,
    objects::ObjectKey,
    owner::Owner,
    placeholders,
    uri_template::{LONGEST_URI, UriTemplate, UriValues},
};

/// The most bytes that a memory has once the URI's values are put in.
const FILLED_LIMIT_BYTES: usize = 1024 * 1024;
/// How many resource templates are matched against a URI at a time.
const MATCH_STEP: u32 = 200;
/// How many characters of a memory's text are its title when it has no kind.
pub(crate) const TITLE_CHARS: i32 = 80;

/// A resource, or a resource template, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedResource {
    /// Where it is read; with expressions when it is a resource template.
    pub uri: String,
    /// The id of the memory or picture.
    pub name: String,
    /// What people call it: a picture's name, the beginning of a memory.
    pub title: String,
    /// What kind of memory it is, and whom it is about.
    pub description: Option<String>,
    /// What it is.
    pub mime_type: String,
    /// How many bytes, when that is known without its being read.
    pub size_bytes: Option<i64>,
}

/// A resource that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The URI that was asked for.
    pub uri: String,
    /// The id of the memory or picture.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// What kind of memory it is, and whom it is about.
    pub description: Option<String>,
    /// What it is.
    pub mime_type: String,
    /// What it holds.
    pub body: ResourceBody,
}

/// What a resource holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceBody {
    /// A text.
    Text(String),
    /// A picture, in the object store.
    Picture {
        /// Where its bytes are.
        key: ObjectKey,
        /// How many there are.
        size_bytes: i64,
    },
}

/// One row of `resources` with what it leads to.
pub(crate) struct Row {
    pub(crate) uri: String,
    pub(crate) memory_id: Option<Uuid>,
    pub(crate) picture_id: Option<Uuid>,
    pub(crate) title: String,
    pub(crate) description: Option<String>,
    pub(crate) mime_type: String,
    pub(crate) size_bytes: Option<i64>,
}

impl Row {
    fn name(&self) -> String {
        let memory = self.memory_id.map(|id| MemoryId::from_uuid(id).to_string());
        let picture = self
            .picture_id
            .map(|id| PictureId::from_uuid(id).to_string());
        memory.or(picture).unwrap_or_default()
    }
}

impl From<Row> for ListedResource {
    fn from(row: Row) -> Self {
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
    /// Memories whose URIs have no expressions, and pictures, that an organisation reads, its own and the
    /// installation's, in byte order of their URIs, strictly after `after`. Of two with the same URI it is the
    /// organisation's own.
    ///
    /// # Errors
    /// As every query.
    pub async fn list_resources(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        let rows = self.resource_page(org, false, after, limit).await?;
        Ok(rows.into_iter().map(ListedResource::from).collect())
    }

    /// Memories whose URIs have expressions; otherwise as [`Store::list_resources`].
    ///
    /// # Errors
    /// As every query.
    pub async fn list_resource_templates(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedResource>, StoreError> {
        let rows = self.resource_page(org, true, after, limit).await?;
        Ok(rows.into_iter().map(ListedResource::from).collect())
    }

    /// What an organisation reads under this URI: what is there under exactly this one, else the memory whose
    /// expressions stand for it, the organisation's own first, then the one that says most before its first
    /// expression.
    ///
    /// # Errors
    /// As every query.
    pub async fn resource_by_uri(
        &self,
        org: OrgId,
        uri: &str,
    ) -> Result<Option<Resource>, StoreError> {
        if uri.len() > LONGEST_URI || uri.contains('\0') {
            return Ok(None);
        }
        if let Some(found) = self.resource_at(org, uri).await? {
            return Ok(Some(found.read(uri, &BTreeMap::new())));
        }
        let Some((written, owner, values)) = self.matching_uri(org, uri).await? else {
            return Ok(None);
        };
        let found = self.resource_of(owner, &written).await?;
        Ok(found.map(|found| found.read(uri, &values)))
    }
}

/// A row with its body.
pub(crate) struct Found {
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

impl Found {
    pub(crate) fn read(self, uri: &str, values: &UriValues) -> Resource {
        let memory = self.memory_id.map(|id| MemoryId::from_uuid(id).to_string());
        let picture = self
            .picture_id
            .map(|id| PictureId::from_uuid(id).to_string());
        let body = match (self.text, self.object) {
            (Some(text), _) => ResourceBody::Text(fill(text, &self.mime_type, values)),
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

/// The text with what the URI says put in. Inside JSON a value stays inside the string in which it stands.
fn fill(text: String, mime_type: &str, values: &UriValues) -> String {
    if values.is_empty() {
        return text;
    }
    let is_json = mime_type == "application/json";
    let written = |value: &String| {
        if is_json {
            json_escaped(value)
        } else {
            value.clone()
        }
    };
    let values: BTreeMap<_, _> = values
        .iter()
        .map(|(name, value)| (name, written(value)))
        .collect();
    let value = |name: &str| values.get(&name.to_owned()).map(String::as_str);
    placeholders::substitute(&text, FILLED_LIMIT_BYTES, value).unwrap_or(text)
}

fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

impl Store {
    async fn resource_page(
        &self,
        org: OrgId,
        with_expressions: bool,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Row>, StoreError> {
        // No URI has one, and the server takes none.
        if after.is_some_and(|after| after.contains('\0')) {
            return Ok(Vec::new());
        }
        let query = sqlx::query_as!(
            Row,
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
        bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await
    }

    /// What is under exactly this URI, without expressions.
    async fn resource_at(&self, org: OrgId, uri: &str) -> Result<Option<Found>, StoreError> {
        let query = sqlx::query_as!(
            Found,
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
        bounded(async { query.fetch_optional(&mut *self.within(org).await?).await }).await
    }

    /// What this owner has under a URI with expressions, as it is written.
    async fn resource_of(&self, owner: Owner, written: &str) -> Result<Option<Found>, StoreError> {
        let query = sqlx::query_as!(
            Found,
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
        bounded(async { query.fetch_optional(&mut *self.within(owner).await?).await }).await
    }

    /// The URI with expressions that stands for this one, whose it is, and what its expressions stand for.
    async fn matching_uri(
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
                i64::from(MATCH_STEP)
            );
            let candidates =
                bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
            let last = candidates.len() < usize::try_from(MATCH_STEP).unwrap_or_default();
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
            passed = passed.saturating_add(MATCH_STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_uri_says_is_put_in() {
        fn check(text: &str, mime_type: &str, id: &str, expected: &str) {
            let values = UriValues::from([("id".to_owned(), id.to_owned())]);
            assert_eq!(fill(text.to_owned(), mime_type, &values), expected);
        }
        check("it is {{id}}", "text/plain", "7", "it is 7");
        check(
            "{{id}} {{other}}",
            "text/plain",
            "{{id}}",
            "{{id}} {{other}}",
        );
        check(
            "{\"a\":\"{{id}}\"}",
            "application/json",
            "x\",\"b\":\"y",
            "{\"a\":\"x\\\",\\\"b\\\":\\\"y\"}",
        );
        check("{\"a\":\"{{id}}\"}", "text/plain", "\"", "{\"a\":\"\"\"}");
        let untouched = fill("{{id}}".to_owned(), "text/plain", &UriValues::new());
        assert_eq!(untouched, "{{id}}");
    }
}
