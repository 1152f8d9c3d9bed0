//! NPCs as agents read them: prompts, by names that no template can have.
//! Never: a name that changes while the NPC is there.

use switchboard_protocol::id::{NpcId, OrgId};

use super::{Npc, NpcFilter};
use crate::{ListedPrompt, PromptSource, Store, StoreError, WholePrompt, id_names};

/// What stands before the id. Names of templates' prompts have no `/`.
const NAMES: &str = "npcs/";

impl Npc {
    /// Under which name agents find its prompt.
    #[must_use]
    pub fn prompt_name(&self) -> String {
        format!("{NAMES}{}", self.id)
    }

    /// Whose prompt has this name.
    pub(crate) fn of_prompt(name: &str) -> Option<NpcId> {
        id_names::id_in(name, NAMES)
    }

    /// What holds for it, as a prompt. Its title begins with its name, since NPCs made from one template share the
    /// rest.
    #[must_use]
    pub fn prompt(&self) -> WholePrompt {
        let settings = &self.effective.settings;
        let mut written = settings.prompt.clone();
        if let Some(title) = written.as_mut().and_then(|prompt| prompt.title.as_mut()) {
            *title = format!("{}: {title}", settings.name);
        }
        let names = (PromptSource::Npc(self.id), self.prompt_name());
        WholePrompt::of(names, settings.name.clone(), &settings.persona, written)
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
        let Some(mut behind) = id_names::goes_on_behind(after, NAMES) else {
            return Ok(Vec::new());
        };
        let (filter, limit) = (
            NpcFilter::default(),
            usize::try_from(limit).unwrap_or(usize::MAX),
        );
        let mut listed = Vec::new();
        // Page by page, since whole NPCs are read for the little that is listed of them.
        while listed.len() < limit {
            let left = u16::try_from(limit - listed.len()).unwrap_or(u16::MAX);
            let page = self.npcs(org, &filter, behind, left).await?;
            listed.extend(page.elements.iter().map(|npc| npc.prompt().listed));
            behind = page.continues_behind().map(|last| last.id);
            if behind.is_none() {
                break;
            }
        }
        Ok(listed)
    }
}
