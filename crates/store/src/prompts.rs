//! Templates and NPCs as agents read them: prompts, by name.
//! Never: a template or an NPC of another organisation.

use std::collections::BTreeMap;

use sqlx::types::Json;
use switchboard_protocol::id::{NpcId, OrgId, TemplateId};
use uuid::Uuid;

use crate::{
    Npc, Store, StoreError,
    database::bounded,
    templates::{
        Persona, Prompt, PromptArgument, PromptContent, PromptMessage, PromptRole, RenderError,
        render,
    },
};

/// What a prompt comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptSource {
    /// A template.
    Template(TemplateId),
    /// An NPC.
    Npc(NpcId),
}

/// A prompt as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPrompt {
    /// What it comes from.
    pub source: PromptSource,
    /// What it is called; unique among what the organisation reads.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// What it is for.
    pub description: Option<String>,
    /// What it asks for.
    pub arguments: Vec<PromptArgument>,
}

/// A prompt with what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholePrompt {
    /// What a list says of it.
    pub listed: ListedPrompt,
    /// What it says; placeholders are still in place.
    pub messages: Vec<PromptMessage>,
}

impl WholePrompt {
    /// Its messages with these values put in; see [`render`].
    ///
    /// # Errors
    /// [`RenderError`] when the values do not fit the arguments, or the result is too large.
    pub fn render(
        &self,
        values: &BTreeMap<String, String>,
    ) -> Result<Vec<PromptMessage>, RenderError> {
        render(&self.listed.arguments, &self.messages, values)
    }
}

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
        Self::of((source, row.prompt_name), row.name, &row.persona.0, prompt)
    }
}

impl WholePrompt {
    /// What somebody with this name and persona says: what is written, or else who it is.
    pub(crate) fn of(
        (source, prompt_name): (PromptSource, String),
        name: String,
        persona: &Persona,
        written: Option<Prompt>,
    ) -> Self {
        let messages = match &written {
            Some(prompt) => prompt.messages.clone(),
            None => vec![PromptMessage {
                role: PromptRole::User,
                content: PromptContent::Text {
                    text: persona.as_text(&name),
                },
            }],
        };
        let Prompt {
            title,
            description,
            arguments,
            ..
        } = written.unwrap_or_default();
        Self {
            listed: ListedPrompt {
                source,
                name: prompt_name,
                title: title.unwrap_or(name),
                description: description.or_else(|| persona.description.clone()),
                arguments,
            },
            messages,
        }
    }
}

impl Store {
    /// Prompts that an organisation reads, its templates', the installation's and its NPCs', in byte order of their
    /// names, strictly after `after`. Of two templates with the same name it is the organisation's own; the names of
    /// NPCs' prompts have a `/`, and those of templates' none.
    ///
    /// # Errors
    /// As every query.
    pub async fn list_prompts(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedPrompt>, StoreError> {
        // No name has one, and the server takes none.
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
        let rows = bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
        Ok(rows.into_iter().map(ListedPrompt::from).collect())
    }

    /// The prompt that an organisation reads under this name.
    ///
    /// # Errors
    /// As every query.
    pub async fn prompt_by_name(
        &self,
        org: OrgId,
        name: &str,
    ) -> Result<Option<WholePrompt>, StoreError> {
        if name.contains('\0') {
            return Ok(None);
        }
        if let Some(id) = Npc::of_prompt(name) {
            let npc = self.npc(org, id).await?;
            return Ok(npc.map(|npc| npc.prompt()));
        }
        let query = sqlx::query_as!(
            WholeRow,
            r#"SELECT id, prompt_name, name, persona AS "persona: Json<Persona>", prompt AS "prompt: Json<Prompt>"
               FROM templates WHERE prompt_name = $2 AND (org_id = $1 OR org_id IS NULL)
               ORDER BY org_id NULLS LAST LIMIT 1"#,
            org.uuid(),
            name
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(org).await?).await }).await?;
        Ok(row.map(WholePrompt::from))
    }
}
