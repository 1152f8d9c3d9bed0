//! Templates as agents read them: prompts, by name.
//! Never: a template of another organisation.

use std::collections::BTreeMap;

use sqlx::types::Json;
use switchboard_protocol::id::{OrgId, TemplateId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::bounded,
    templates::{
        Persona, Prompt, PromptArgument, PromptContent, PromptMessage, PromptRole, RenderError,
        render,
    },
};

/// A prompt as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPrompt {
    /// The template that it comes from.
    pub template: TemplateId,
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
pub struct TemplatePrompt {
    /// What a list says of it.
    pub listed: ListedPrompt,
    /// What it says; placeholders are still in place.
    pub messages: Vec<PromptMessage>,
}

impl TemplatePrompt {
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
            template: TemplateId::from_uuid(row.id),
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

impl From<WholeRow> for TemplatePrompt {
    fn from(row: WholeRow) -> Self {
        let persona = row.persona.0;
        let written = row.prompt.map(|prompt| prompt.0);
        let messages = match &written {
            Some(prompt) => prompt.messages.clone(),
            None => vec![PromptMessage {
                role: PromptRole::User,
                content: PromptContent::Text {
                    text: persona.as_text(&row.name),
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
                template: TemplateId::from_uuid(row.id),
                name: row.prompt_name,
                title: title.unwrap_or(row.name),
                description: description.or(persona.description),
                arguments,
            },
            messages,
        }
    }
}

impl Store {
    /// Prompts that an organisation reads, its own and the installation's, in byte order of their names, strictly
    /// after `after`. Of two with the same name it is the organisation's own.
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
        let rows = bounded(query.fetch_all(&self.pool)).await?;
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
    ) -> Result<Option<TemplatePrompt>, StoreError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let query = sqlx::query_as!(
            WholeRow,
            r#"SELECT id, prompt_name, name, persona AS "persona: Json<Persona>", prompt AS "prompt: Json<Prompt>"
               FROM templates WHERE prompt_name = $2 AND (org_id = $1 OR org_id IS NULL)
               ORDER BY org_id NULLS LAST LIMIT 1"#,
            org.uuid(),
            name
        );
        let row = bounded(query.fetch_optional(&self.pool)).await?;
        Ok(row.map(TemplatePrompt::from))
    }
}
