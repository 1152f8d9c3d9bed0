//! Templates and NPCs as prompts, by name.

use sqlx::types::Json;
use switchboard_catalog::{
    ListedPrompt, Persona, Prompt, PromptArgument, PromptSource, WholePrompt,
};
use switchboard_protocol::id::{OrgId, TemplateId};
use uuid::Uuid;

use crate::{Npc, Store, StoreError, database::with_timeout};

struct ListedRow {
    id: Uuid,
    prompt_name: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    arguments: Option<Json<Vec<PromptArgument>>>,
}

impl From<ListedRow> for ListedPrompt {
    fn from(row: ListedRow) -> Self {
        Self {
            source: PromptSource::Template(TemplateId::from_uuid(row.id)),
            name: row.prompt_name,
            title: row.title.unwrap_or(row.name),
            description: row.description,
            arguments: row.arguments.map(|list| list.0).unwrap_or_default(),
        }
    }
}

struct WholeRow {
    id: Uuid,
    prompt_name: String,
    name: String,
    persona: Json<Persona>,
    prompt: Option<Json<Prompt>>,
}

impl From<WholeRow> for WholePrompt {
    fn from(row: WholeRow) -> Self {
        let source = PromptSource::Template(TemplateId::from_uuid(row.id));
        let prompt = row.prompt.map(|prompt| prompt.0);
        Self::new((source, row.prompt_name), row.name, &row.persona.0, prompt)
    }
}

impl Store {
    /// Prompts that an organisation can read: of its templates, of public ones, and of its NPCs; in
    /// byte order of their names, strictly after `after`. Of two templates with the same name, the
    /// organisation's own is returned. Names of NPCs' prompts contain a `/`, those of templates do
    /// not.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn list_prompts(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedPrompt>, StoreError> {
        // No name contains NUL, and the server rejects it.
        if after.is_some_and(|after| after.contains('\0')) {
            return Ok(Vec::new());
        }
        let mut listed = self.template_prompts(org, after, limit).await?;
        listed.extend(self.npc_prompts(org, after, limit).await?);
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        listed.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(listed)
    }

    async fn template_prompts(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedPrompt>, StoreError> {
        let query = sqlx::query_as!(
            ListedRow,
            r#"WITH own AS (SELECT * FROM templates WHERE org_id = $1 AND prompt_name > $2
                            ORDER BY prompt_name LIMIT $3),
                    public AS (SELECT * FROM templates WHERE org_id IS NULL AND prompt_name > $2
                               ORDER BY prompt_name LIMIT $3)
               SELECT DISTINCT ON (prompt_name) id AS "id!", prompt_name AS "prompt_name!", name AS "name!",
                      prompt->>'title' AS title, COALESCE(prompt->>'description', persona->>'description') AS description,
                      prompt->'arguments' AS "arguments: Json<Vec<PromptArgument>>"
               FROM (SELECT * FROM own UNION ALL SELECT * FROM public) read
               ORDER BY prompt_name, org_id NULLS LAST LIMIT $3"#,
            org.uuid(),
            after.unwrap_or_default(),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        Ok(rows.into_iter().map(ListedPrompt::from).collect())
    }

    /// The prompt with this name that an organisation can read.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn prompt_by_name(
        &self,
        org: OrgId,
        name: &str,
    ) -> Result<Option<WholePrompt>, StoreError> {
        if name.contains('\0') {
            return Ok(None);
        }
        if let Some(id) = Npc::id_from_prompt_name(name) {
            let npc = self.npc_without_card(org, id).await?;
            return Ok(npc.map(|npc| npc.prompt()));
        }
        let query = sqlx::query_as!(
            WholeRow,
            r#"SELECT id, prompt_name, name, persona - 'card' AS "persona!: Json<Persona>", prompt AS "prompt: Json<Prompt>"
               FROM templates WHERE prompt_name = $2 AND (org_id = $1 OR org_id IS NULL)
               ORDER BY org_id NULLS LAST LIMIT 1"#,
            org.uuid(),
            name
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await?;
        Ok(row.map(WholePrompt::from))
    }
}
