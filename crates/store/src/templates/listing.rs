//! Templates in the order of their making, page by page.
//! Never: a page that does not fit into memory.

use sqlx::{PgConnection, types::Json};
use switchboard_protocol::id::TemplateId;
use uuid::Uuid;

use super::{Conversation, MemoryPolicy, Model, Persona, Prompt, Row, Template, ToolPolicy, Voice};
use crate::{
    Store, StoreError,
    database::bounded,
    owner::Owner,
    page::{Ahead, LARGEST_PAGE_BYTES, Page, fill},
};

impl Store {
    /// Templates that this reader sees, in the order of their making, strictly after `after`; only public ones when
    /// asked for. At most so many, and 4 MiB unless it is one.
    ///
    /// # Errors
    /// As every query.
    pub async fn templates(
        &self,
        reader: Owner,
        public_only: bool,
        after: Option<TemplateId>,
        limit: u16,
    ) -> Result<Page<Template>, StoreError> {
        let own = reader.column().filter(|_| !public_only);
        let after = after.map_or(Uuid::nil(), TemplateId::uuid);
        bounded(async {
            let mut connection = self.within(reader).await?;
            let ahead = ahead(&mut connection, own, after, limit).await?;
            let (ids, more) = fill(&ahead, limit);
            let elements = read(&mut connection, reader, &ids).await?;
            Ok::<_, sqlx::Error>(Page { elements, more })
        })
        .await
    }
}

/// What is ahead, one by one and no further than one behind a whole page, so that nothing behind it is unpacked.
async fn ahead(
    connection: &mut PgConnection,
    own: Option<Uuid>,
    after: Uuid,
    limit: u16,
) -> Result<Vec<Ahead>, sqlx::Error> {
    sqlx::query_as!(
        Ahead,
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
        LARGEST_PAGE_BYTES
    )
    .fetch_all(connection)
    .await
}

/// Those with these ids.
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
