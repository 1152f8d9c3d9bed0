//! NPCs as prompts.
//! Invariant: the name of an NPC's prompt does not change.

use switchboard_catalog::{ListedPrompt, PromptSource, WholePrompt};
use switchboard_protocol::id::{NpcId, OrgId};

use super::{Members, Npc, NpcFilter};
use crate::{Store, StoreError, settings::id_names};

/// The prefix of the names. Names of templates' prompts contain no `/`.
const NAME_PREFIX: &str = "npcs/";

impl Npc {
    /// The name of its prompt.
    #[must_use]
    pub fn prompt_name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }

    /// The NPC whose prompt has this name.
    pub(crate) fn id_from_prompt_name(name: &str) -> Option<NpcId> {
        id_names::parse_id(name, NAME_PREFIX)
    }

    /// Its effective settings as a prompt. The title begins with its name, because NPCs of one
    /// template share the rest.
    #[must_use]
    pub fn prompt(&self) -> WholePrompt {
        let settings = &self.effective.settings;
        let mut written = settings.prompt.clone();
        if let Some(title) = written.as_mut().and_then(|prompt| prompt.title.as_mut()) {
            *title = format!("{}: {title}", settings.name);
        }
        let id = (PromptSource::Npc(self.id), self.prompt_name());
        WholePrompt::new(id, settings.name.clone(), &settings.persona, written)
    }
}

impl Store {
    /// The prompts of an organisation's NPCs, in byte order of their names, strictly after `after`.
    pub(crate) async fn npc_prompts(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ListedPrompt>, StoreError> {
        let Some(mut after_id) = id_names::resume_after(after, NAME_PREFIX) else {
            return Ok(Vec::new());
        };
        let (filter, limit) = (
            NpcFilter::default(),
            usize::try_from(limit).unwrap_or(usize::MAX),
        );
        let mut listed = Vec::new();
        // Page by page, since whole NPCs are read for a small part of them.
        while listed.len() < limit {
            let remaining = u16::try_from(limit - listed.len()).unwrap_or(u16::MAX);
            let page = self
                .npcs_with(org, &filter, (after_id, remaining), Members::AllButCard)
                .await?;
            listed.extend(page.elements.iter().map(|npc| npc.prompt().listed));
            after_id = page.next_page_after().map(|last| last.id);
            if after_id.is_none() {
                break;
            }
        }
        Ok(listed)
    }
}
