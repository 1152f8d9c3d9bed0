//! Pages of templates.

use sqlx::{PgConnection, types::Json};
use switchboard_catalog::{Conversation, MemoryPolicy, Model, Persona, Prompt, ToolPolicy, Voice};
use switchboard_protocol::id::TemplateId;
use uuid::Uuid;

use super::{Row, Template};
use crate::{
    Owner, Store, StoreError,
    database::{
        page::{MAX_PAGE_BYTES, Page, SizedId, page_ids},
        with_timeout,
    },
};

impl Store {
    /// Templates that the reader can read, in the order of their creation, strictly after `after`;
    /// only public ones if `public_only`. At most `limit`, and at most 4 MiB unless it is a single
    /// one.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn templates(
        &self,
        reader: Owner,
        public_only: bool,
        after: Option<TemplateId>,
        limit: u16,
    ) -> Result<Page<Template>, StoreError> {
        let own = reader.column().filter(|_| !public_only);
        let after = after.map_or(Uuid::nil(), TemplateId::uuid);
        with_timeout(async {
            let mut connection = self.tenant_conn(reader).await?;
            let sizes = next_sizes(&mut connection, own, after, limit).await?;
            let (ids, more) = page_ids(&sizes, limit);
            let elements = read(&mut connection, reader, &ids).await?;
            Ok::<_, sqlx::Error>(Page { elements, more })
        })
        .await
    }
}

/// The ids and cumulated sizes of the next templates, up to one beyond the page. The recursion ends
/// there, so that no further row is decompressed.
async fn next_sizes(
    connection: &mut PgConnection,
    own: Option<Uuid>,
    after: Uuid,
    limit: u16,
) -> Result<Vec<SizedId>, sqlx::Error> {
    sqlx::query_as!(
        SizedId,
        r#"WITH RECURSIVE ahead AS (
               SELECT 0 AS number, $2::uuid AS id, 0::bigint AS bytes
               UNION ALL
               SELECT ahead.number + 1, next.id,
                      ahead.bytes + octet_length(concat(next.name, next.tags, next.persona, next.model, next.voice,
                                                        next.tools, next.memory, next.conversation, next.prompt))
               FROM ahead CROSS JOIN LATERAL (
                   (SELECT * FROM templates WHERE org_id = $1 AND id > ahead.id ORDER BY id LIMIT 1)
                   UNION ALL
                   (SELECT * FROM templates WHERE org_id IS NULL AND id > ahead.id ORDER BY id LIMIT 1)
                   ORDER BY id LIMIT 1) next
               WHERE ahead.number <= $3 AND ahead.bytes <= $4)
           SELECT id AS "id!", bytes AS "bytes!" FROM ahead WHERE number > 0 ORDER BY number"#,
        own,
        after,
        i32::from(limit),
        MAX_PAGE_BYTES
    )
    .fetch_all(connection)
    .await
}

/// The templates with these ids.
async fn read(
    connection: &mut PgConnection,
    reader: Owner,
    ids: &[Uuid],
) -> Result<Vec<Template>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, name, avatar, locale, tags, persona AS "persona: Json<Persona>",
                  model AS "model: Json<Model>", voice AS "voice: Json<Voice>",
                  tools AS "tools: Json<ToolPolicy>", skills_book_ids, memory AS "memory: Json<MemoryPolicy>",
                  conversation AS "conversation: Json<Conversation>",
                  prompt AS "prompt: Json<Prompt>", version, created_at, updated_at
           FROM templates WHERE id = ANY($2) AND (org_id = $1 OR org_id IS NULL) ORDER BY id"#,
        reader.column(),
        ids
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Template::from).collect())
}
